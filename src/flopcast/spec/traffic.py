"""The traffic of a serving engine: when requests arrive, how long they are, and their latency limits.

Answers: which load and which latency limits can a user state?
Elsewhere: distributions of lengths (lengths.py), the text forms (library/traffic_text.py), drawing requests
(serving/arrivals.py), files of recorded requests (interop/request_traces/).
"""

import re
from typing import Annotated, Literal

from annotated_types import Gt, Lt
from pydantic import AliasChoices, BeforeValidator, Field, ValidationInfo, field_validator

from flopcast.fixes import write
from flopcast.layers.images import Images, images_text
from flopcast.quantities import parse_rate
from flopcast.spec.lengths import FORMS, WrittenLengths
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number

DEFAULT_REQUESTS = 2_000  # of each engine; the 99th percentile then has twenty requests above it
LEAST_TURNS = 16  # of each conversation that is open in a closed loop, one after the other
MOST_REQUESTS = 20_000_000
Percentile = Annotated[float, Gt(0), Lt(100)]
_OF_A_TRACE = "a trace already contains the lengths, turns and shared prefixes of requests"


def _rate(given: object) -> object:
    """Return the rate per second of a text; other values unchanged."""
    if not isinstance(given, str):
        return given
    try:
        return parse_rate(given)
    except ValueError as error:
        because = "a rate is a number of requests per unit of time"
        number = re.match(r"\d+(?:\.\d+)?", given)
        right = f"{number[0] if number else 4}/{'min' if re.search('rpm|/ *m', given) else 's'}"
        raise NotAllowedError(str(error), because, write(right, "rate")) from None


class Traffic(StrictModel):
    """Requests that a serving engine receives. Most fields also have a short name.

    A rate, a concurrency or the times of a trace determine when requests arrive. If a trace is combined
    with a rate or a concurrency, only the lengths and shared prefixes of the trace are used.

    Attributes
    ----------
    trace : str or None
        Name of a file with recorded requests: their arrival times, lengths and shared prefixes.
    rate_per_s : float or None
        Mean number of requests that arrive in a second (short name: rate): a number, or a text such as
        "4/s" or "240/min". Each turn of a conversation counts as a request.
    concurrency : int or None
        Number of conversations that are open at any time, each with at most one request in flight. When a
        conversation ends, the next one begins. A conversation has one request unless `turns` is larger.
    arrivals : str
        How requests arrive at a given rate: at random times ("poisson"), at equal intervals ("constant"),
        or with intervals from a gamma distribution ("gamma").
    burstiness : float
        Shape of the gamma distribution of intervals. 1 is the same as "poisson". Smaller values make
        arrivals burstier, and larger values make them more regular.
    prompt_tokens : Lengths or None
        Number of new tokens of a prompt (short name: prompt), without the previous turns: a number,
        "uniform(LOW, HIGH)", "lognormal(MEAN, SIGMA)" where SIGMA is the standard deviation of the
        logarithm, "lognormal(MEAN, SIGMA, LONGEST)" if longer prompts are cut, or a histogram:
        "TOKENS:WEIGHT,TOKENS:WEIGHT" or a list of pairs.
    output_tokens : Lengths or None
        Number of tokens of an answer (short name: output), in the same forms.
    images : tuple of Image
        Images of each request. "2x1024x768 + 336x336" means two images of 1024 × 768 pixels and one image
        of 336 × 336 pixels. The tokens of images are not part of `prompt_tokens`.
    shared_prefix_tokens : int
        Number of tokens at the beginning of the first prompt of a conversation that are the same for many
        conversations, such as a system prompt (short name: shared_prefix). `prompt_tokens` includes them.
    shared_prefix_share : float
        Fraction of the conversations, from 0 to 1, that begin with the shared prefix.
    turns : int
        Number of requests of a conversation. The prompt of a turn contains all previous turns and their
        answers.
    pause_s : float
        Time from an answer to the next turn of its conversation.
    adapters : int
        Number of low-rank adapters. Each request (or conversation) uses one of them. 0 if requests use no
        adapters.
    adapter_skew : float
        How unevenly adapters are used: the fraction of requests with adapter number i is proportional to 1
        / i^skew (Zipf's law). With 0, all adapters are used equally often.
    requests : int or None
        Number of simulated requests of all engines together. By default, all requests of a trace, or
        otherwise 2,000 for each engine, so that twenty requests are above the 99th percentile of a latency.
        With `concurrency`, each engine has at least 16 requests for each of its concurrent requests.
    seed : int
        Seed of the random numbers. Equal seeds give equal requests.
    prefix_hit_share : float or None
        Fraction of every prompt, at least 0 and below 1, that is in the prefix cache (short name:
        prefix_cache). By default, the cache is simulated.
    repeated_requests : int
        Number of requests at the beginning whose prompts were sent before, so that the prefix cache
        contains them (short name: repeated). A benchmark that draws its prompts with a fixed seed sends the
        same first prompts in each run.

    Examples
    --------
    >>> traffic = Traffic(rate="4/s", prompt="lognormal(2000, 0.5)", output=300)
    >>> traffic.rate_per_s, traffic.num_requests, traffic.text()
    (4.0, 2000, 'rate=4/s prompt=lognormal(2000,0.5) output=300')
    """

    trace: str | None = Field(default=None, min_length=1)
    rate_per_s: Annotated[float | None, BeforeValidator(_rate)] = Field(
        default=None, gt=0, le=1e9, validation_alias=AliasChoices("rate_per_s", "rate")
    )
    concurrency: int | None = Field(default=None, ge=1, le=MOST_REQUESTS, validate_default=True)
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    burstiness: Annotated[float, Gt(0)] = Field(default=1.0, le=1e6)
    prompt_tokens: WrittenLengths = Field(
        default=None, validation_alias=AliasChoices("prompt_tokens", "prompt")
    )
    output_tokens: WrittenLengths = Field(
        default=None, validation_alias=AliasChoices("output_tokens", "output")
    )
    images: Images = ()
    shared_prefix_tokens: int = Field(
        default=0, ge=0, validation_alias=AliasChoices("shared_prefix_tokens", "shared_prefix")
    )
    shared_prefix_share: float = Field(default=1.0, ge=0, le=1)
    turns: int = Field(default=1, ge=1, le=10_000)
    pause_s: float = Field(default=0.0, ge=0)
    adapters: int = Field(default=0, ge=0, le=1_000_000)
    adapter_skew: Number = Field(default=0.0, ge=0, le=10)
    requests: int | None = Field(default=None, ge=1, le=MOST_REQUESTS)
    seed: int = Field(default=0, ge=0, le=2**63)
    prefix_hit_share: float | None = Field(
        default=None, ge=0, lt=1, validation_alias=AliasChoices("prefix_hit_share", "prefix_cache")
    )
    repeated_requests: int = Field(
        default=0, ge=0, le=MOST_REQUESTS, validation_alias=AliasChoices("repeated_requests", "repeated")
    )

    @field_validator("concurrency")
    @classmethod
    def _one_load(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Raise an error for a rate together with a concurrency, and for traffic without rate, concurrency
        and trace.
        """
        allowed = "exactly one of rate, concurrency and trace"
        rate = info.data.get("rate_per_s")
        if value is not None and rate is not None:
            because = "a rate and a concurrency both determine when requests arrive"
            raise NotAllowedError(allowed, because, "remove rate or concurrency")
        given = any(each is not None for each in (value, rate, info.data.get("trace")))
        if not given and {"rate_per_s", "trace"} <= set(info.data):  # else they are refused already
            because = "flopcast needs to know when requests arrive"
            raise NotAllowedError(allowed, because, write("4/s", "rate"))
        return value

    @field_validator("prompt_tokens", "output_tokens")
    @classmethod
    def _lengths_unless_traced(cls, value: WrittenLengths, info: ValidationInfo) -> WrittenLengths:
        """Raise an error if lengths are missing without a trace, or are stated in addition to a trace."""
        if "trace" not in info.data:
            return value
        traced, short = info.data["trace"] is not None, str(info.field_name).removesuffix("_tokens")
        if traced and value is not None:
            raise NotAllowedError("no value if a trace is given", _OF_A_TRACE, f"remove {short}")
        if not traced and value is None:
            because = "without a trace, flopcast does not know the lengths of requests"
            raise NotAllowedError(FORMS, because, write(2000 if short == "prompt" else 300, short))
        return value

    @field_validator("arrivals", "burstiness")
    @classmethod
    def _gaps_at_a_rate(cls, value: object, info: ValidationInfo) -> object:
        """Raise an error for `arrivals` without a rate, and for a `burstiness` that has no effect."""
        name = str(info.field_name)
        if value == cls.model_fields[name].default:
            return value
        if info.data.get("rate_per_s", 1.0) is None:
            because = "this field applies only if requests arrive at a rate"
            raise NotAllowedError("no value, unless rate_per_s is given", because, f"remove {name}")
        if name == "burstiness" and info.data.get("arrivals", "gamma") != "gamma":
            because = "this field is the shape parameter of a gamma distribution"
            raise NotAllowedError("1, unless arrivals is gamma", because, write("gamma", "arrivals"))
        return value

    @field_validator(
        "images", "shared_prefix_tokens", "shared_prefix_share", "turns", "pause_s", "adapter_skew"
    )
    @classmethod
    def _unless_traced(cls, value: object, info: ValidationInfo) -> object:
        """Raise an error for fields that a trace already determines, and for fields that have no effect."""
        name = str(info.field_name)
        if value == cls.model_fields[name].default:
            return value
        if info.data.get("trace") is not None and name != "adapter_skew":
            raise NotAllowedError("no value if a trace is given", _OF_A_TRACE, f"remove {name}")
        needed = {
            "shared_prefix_share": ("shared_prefix_tokens", 0),
            "pause_s": ("turns", 1),
            "adapter_skew": ("adapters", 0),
        }
        if name in needed and info.data.get(needed[name][0]) == needed[name][1]:
            other, unused = needed[name]
            because = f"this field has an effect only if {other} is above {unused}"
            raise NotAllowedError(f"no value, unless {other} is given", because, f"remove {name}")
        return value

    @field_validator("repeated_requests")
    @classmethod
    def _one_share_of_prompts(cls, value: int, info: ValidationInfo) -> int:
        """Refuse a number of repeated requests if `prefix_hit_share` is set."""
        if value and info.data.get("prefix_hit_share") is not None:
            because = "prefix_hit_share already states which part of each prompt is in the cache"
            raise NotAllowedError("0 if prefix_hit_share is set", because, "remove repeated_requests")
        return value

    @property
    def num_requests(self) -> int:
        """Return the largest number of simulated requests; a trace may contain fewer.

        By default, it is the number for a single engine that serves the whole traffic.
        """
        if self.requests or self.trace:
            return self.requests or MOST_REQUESTS
        return max(DEFAULT_REQUESTS, LEAST_TURNS * (self.concurrency or 0))

    def text(self) -> str:
        """Return the traffic in the short form of `--traffic`, without defaults."""
        words = []
        for name, field in Traffic.model_fields.items():
            value = getattr(self, name)
            if value == field.default:
                continue
            choices = field.validation_alias
            short = str(choices.choices[-1]) if isinstance(choices, AliasChoices) else name
            shown = (
                value
                if isinstance(value, (str, int))
                else f"{value:.12g}"
                if isinstance(value, float)
                else ""
            )
            if name == "images":
                shown = images_text(self.images)
            elif name == "rate_per_s":
                shown = f"{value:.12g}/s"
            elif name == "pause_s":
                shown = f"{value:.12g}s"
            words.append(f"{short}={shown or value.text().replace(' ', '')}")
        return " ".join(words)


class Slo(StrictModel):
    """Service-level objectives: latency limits, and the percentile of requests to which each limit applies.

    A request counts towards the goodput if it meets every limit.

    Attributes
    ----------
    ttft_s : float or None
        Longest time from the arrival of a request to its first token.
    ttft_percentile : float
        Percentile of requests that must meet `ttft_s`.
    tpot_s : float or None
        Longest mean time between two output tokens of a request, without the first token.
    tpot_percentile : float
        Percentile of requests that must meet `tpot_s`.
    end_to_end_s : float or None
        Longest time from the arrival of a request to its last token.
    end_to_end_percentile : float
        Percentile of requests that must meet `end_to_end_s`.

    Examples
    --------
    >>> Slo(ttft_s=2.0, tpot_s=0.05, tpot_percentile=95).text()
    'ttft_p99=2s tpot_p95=50ms'
    """

    ttft_s: float | None = Field(default=None, gt=0)
    ttft_percentile: Percentile = 99.0
    tpot_s: float | None = Field(default=None, gt=0)
    tpot_percentile: Percentile = 99.0
    end_to_end_s: float | None = Field(default=None, gt=0)
    end_to_end_percentile: Percentile = 99.0

    def text(self) -> str:
        """Return the objectives in the short form of `--slo`."""
        words = []
        for name in SLO_METRICS:
            limit_s, percentile = getattr(self, f"{name}_s"), getattr(self, f"{name}_percentile")
            if limit_s is not None:
                limit = f"{limit_s:.12g}s" if limit_s >= 1 else f"{limit_s * 1e3:.12g}ms"
                words.append(f"{name}_p{percentile:.12g}={limit}")
        return " ".join(words)


SLO_METRICS = ("ttft", "tpot", "end_to_end")
