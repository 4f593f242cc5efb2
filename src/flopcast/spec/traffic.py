"""The traffic of a serving engine: when requests arrive, how long they are, which latencies they need.

Answers: which load and which limits of latency does a user state?
Elsewhere: distributions of lengths (lengths.py), the text forms (library/traffic_text.py), requests drawn
from a traffic (serving/arrivals.py), files of recorded requests (interop/request_traces/).
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
    """Return a rate per second that is written as a text; other values unchanged."""
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
    """Requests that reach a serving engine. Most fields also have a short name.

    A rate, a concurrency or the times of a trace determine when requests arrive. Together with a rate or a
    concurrency, only the lengths and the shared prefixes of a trace are used.

    Attributes
    ----------
    trace : str or None
        Name of a file with recorded requests: their times, lengths and shared beginnings.
    rate_per_s : float or None
        Average number of requests that arrive in a second ("rate" for short): a number, or a text such as
        "4/s" and "240/min". Each turn of a conversation counts as a request.
    concurrency : int or None
        Number of conversations that are open at any time, each with one request at most. When one ends, the
        next begins. A conversation has one request unless `turns` is larger.
    arrivals : str
        How arrivals at a rate are spread: at random ("poisson"), evenly ("constant"), or with gaps from a
        gamma distribution ("gamma").
    burstiness : float
        Shape of the gamma distribution of gaps: 1 is "poisson", less is burstier, more is more even.
    prompt_tokens : Lengths or None
        New tokens of a prompt ("prompt" for short), without the turns before. A number,
        "uniform(LOW, HIGH)", "lognormal(MEAN, SIGMA)" where SIGMA is the deviation of the logarithm,
        "lognormal(MEAN, SIGMA, LONGEST)" if longer ones are cut, or a histogram:
        "TOKENS:WEIGHT,TOKENS:WEIGHT" or a list of pairs.
    output_tokens : Lengths or None
        Tokens of an answer ("output" for short), in the same forms.
    images : tuple of Image
        Images of each request, as text number x width x height: "2x1024x768 + 336x336" is two images of
        1024 · 768 pixels and one of 336 · 336. Their tokens are additional to those of `prompt_tokens`.
    shared_prefix_tokens : int
        Tokens at the beginning of the first prompt of a conversation, included in `prompt_tokens`, that are
        the same for many conversations, such as a system prompt ("shared_prefix" for short).
    shared_prefix_share : float
        Share of conversations, from 0 to 1, that begin with them.
    turns : int
        Requests of a conversation. The prompt of a turn holds the turns before with their answers.
    pause_s : float
        Time from an answer to the next turn of its conversation.
    adapters : int
        Number of low-rank adapters that requests use, each request (or conversation) one of them; 0 if they
        use the model alone.
    adapter_skew : float
        How unevenly adapters are used: the share of adapter number i is proportional to i to the power of
        minus this number (Zipf's law). With 0, all are used equally.
    requests : int or None
        Number of requests that are simulated, divided over all engines. By default all of a trace, and else
        2,000 for each engine, so that the 99th percentile of a latency has twenty requests above it. With a
        `concurrency`, each engine has at least 16 for each of its concurrent ones.
    seed : int
        Seed of the random numbers; the same seed gives the same requests.
    prefix_hit_share : float or None
        Share of every prompt, from 0 to below 1, that is found in the prefix cache ("prefix_cache" for
        short). By default, the cache is simulated.
    repeated_requests : int
        Number of requests at the beginning whose prompts were sent before, so that the prefix cache holds
        them ("repeated" for short). A benchmark that draws its prompts with a fixed seed sends the same
        first prompts in each run.

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
        """Refuse a rate beside a concurrency, and traffic without a rate, a concurrency and a trace."""
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
        """Ask for lengths where there is no trace, and refuse them where there is one."""
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
        """Refuse a spread of arrivals where no rate is given, and a burstiness that changes nothing."""
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
        """Refuse what a trace says itself, and what changes nothing."""
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

        Where none is stated, it is that of one engine which serves the whole traffic.
        """
        if self.requests or self.trace:
            return self.requests or MOST_REQUESTS
        return max(DEFAULT_REQUESTS, LEAST_TURNS * (self.concurrency or 0))

    def text(self) -> str:
        """Return the traffic in short form without defaults; `--traffic` reads it back as this traffic."""
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
    """Service-level objectives: the latencies that a share of requests must keep.

    A request counts as good if it keeps every limit; the percentile says how many requests must keep one.

    Attributes
    ----------
    ttft_s : float or None
        Longest time from the arrival of a request to its first token.
    ttft_percentile : float
        Percentile of requests that must keep `ttft_s`.
    tpot_s : float or None
        Longest mean time between the tokens of a request, the first one aside.
    tpot_percentile : float
        Percentile of requests that must keep `tpot_s`.
    end_to_end_s : float or None
        Longest time from the arrival of a request to its last token.
    end_to_end_percentile : float
        Percentile of requests that must keep `end_to_end_s`.

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
        """Return the objectives in short form; `--slo` reads them back as these."""
        words = []
        for name in SLO_METRICS:
            limit_s, percentile = getattr(self, f"{name}_s"), getattr(self, f"{name}_percentile")
            if limit_s is not None:
                limit = f"{limit_s:.12g}s" if limit_s >= 1 else f"{limit_s * 1e3:.12g}ms"
                words.append(f"{name}_p{percentile:.12g}={limit}")
        return " ".join(words)


SLO_METRICS = ("ttft", "tpot", "end_to_end")
