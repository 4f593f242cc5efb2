"""Lengths of prompts and outputs: one number, or a distribution.

Answers: which distributions can a user write, in which form, and what is their mean?
Elsewhere: drawing lengths from them (serving/arrivals.py), lengths of recorded requests
(interop/request_traces/).
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from flopcast.fixes import write
from flopcast.quantities import parse_length, parse_tokens
from flopcast.strict_model import NotAllowedError, StrictModel
from flopcast.units import Number

FORMS = (
    "a number of tokens (2000, or 2k for 2,048), uniform(LOW, HIGH), lognormal(MEAN, SIGMA),"
    " lognormal(MEAN, SIGMA, LONGEST), or TOKENS:WEIGHT,TOKENS:WEIGHT"
)
MOST_TOKENS = 10**9  # of one prompt or output: more is no length
MOST_SIGMA = 5.0
_ENDS = r"(\d[\d.]*[kKM]?)(?:-|\.\.|to)(\d[\d.]*[kKM]?)"  # of a range in another notation
_PARAMETER = r"\d+(?:\.\d+)?[kKM]?"
_CALL = re.compile(r"(uniform)\(([^,]*),([^,]*)\)|(lognormal)\(([^,]*),([^,]*)(?:,([^,]*))?\)")


class Lengths(StrictModel):
    """Numbers of tokens, each at least 1: a constant, or a distribution from which lengths are drawn.

    Attributes
    ----------
    distribution : str
        Kind of the distribution.
    mean_tokens : float
        The length if it is constant, or the mean of a lognormal distribution (after longer lengths are cut
        to `most_tokens`, and before lengths are rounded).
    log_sigma_factor : float
        Standard deviation of the logarithm of lengths, for "lognormal".
    least_tokens, most_tokens : int
        Shortest and longest length. With "uniform", all lengths between them are equally likely. With
        "lognormal", longer lengths are cut to `most_tokens`, as engines and benchmarks do.
    tokens : tuple of int
        The lengths of a histogram.
    weights : tuple of float
        Relative frequency of each length in `tokens`.

    Examples
    --------
    >>> lengths("lognormal(2000, 0.5)").text(), lengths([[128, 3], [1024, 1]]).mean
    ('lognormal(2000, 0.5)', 352.0)
    """

    distribution: Literal["constant", "uniform", "lognormal", "histogram"] = "constant"
    mean_tokens: float = Field(default=1.0, ge=1, le=MOST_TOKENS)
    log_sigma_factor: float = Field(default=0.0, ge=0, le=MOST_SIGMA)
    least_tokens: int = Field(default=1, ge=1, le=MOST_TOKENS)
    most_tokens: int = Field(default=MOST_TOKENS, ge=1, le=MOST_TOKENS)
    tokens: tuple[Annotated[int, Field(ge=1, le=MOST_TOKENS)], ...] = ()
    weights: tuple[Annotated[float, Field(ge=0)], ...] = ()

    @property
    def mean(self) -> float:
        """Return the mean length in tokens."""
        if self.distribution == "uniform":
            return (self.least_tokens + self.most_tokens) / 2
        if self.distribution == "histogram":
            pairs = zip(self.tokens, self.weights, strict=True)
            return sum(tokens * weight for tokens, weight in pairs) / sum(self.weights)
        return self.mean_tokens

    @property
    def longest_tokens(self) -> float:
        """Return the largest possible length in tokens."""
        if self.distribution == "histogram":
            return max(self.tokens)
        return self.mean_tokens if self.distribution == "constant" else self.most_tokens

    @property
    def median_tokens(self) -> float:
        """Return the median of a lognormal distribution whose mean after the cut is `mean_tokens`.

        >>> round(lengths("lognormal(9400, 0.6)").median_tokens)
        7852
        >>> round(lengths("lognormal(9400, 0.6, 20000)").median_tokens)
        8255
        """
        sigma = self.log_sigma_factor
        low, high = self.mean_tokens * math.exp(-(sigma**2) / 2), self.most_tokens * math.exp(8 * sigma)
        if sigma == 0 or self.most_tokens == MOST_TOKENS:
            return low
        while high > low * (1 + 1e-9):
            median = math.sqrt(low * high)
            cut = math.log(self.most_tokens / median) / sigma
            below = median * math.exp(sigma**2 / 2) * _below(cut - sigma)
            is_short = below + self.most_tokens * (1 - _below(cut)) < self.mean_tokens
            low, high = (median, high) if is_short else (low, median)
        return low

    def text(self) -> str:
        """Return the lengths in the form in which a user writes them."""
        if self.distribution == "uniform":
            return f"uniform({self.least_tokens}, {self.most_tokens})"
        if self.distribution == "lognormal":
            longest = "" if self.most_tokens == MOST_TOKENS else f", {self.most_tokens}"
            return f"lognormal({self.mean_tokens:.12g}, {self.log_sigma_factor:.12g}{longest})"
        if self.distribution == "histogram":
            pairs = zip(self.tokens, self.weights, strict=True)
            return ",".join(f"{tokens}:{weight:.12g}" for tokens, weight in pairs)
        return f"{self.mean_tokens:.12g}"


def _below(deviations: Number) -> float:
    """Return the fraction of a normal distribution that lies below this number of standard deviations."""
    return (1 + math.erf(deviations / math.sqrt(2))) / 2


def lengths(given: object) -> object:
    """Return the lengths that a user wrote in one of `FORMS`. Lengths and None are returned unchanged.

    Raises
    ------
    ValueError
        The form does not exist, or numbers are out of range. The message states the allowed values, the
        reason and the fix.

    Examples
    --------
    >>> lengths("4k:90%,64k:10%").text()
    '4096:90,65536:10'
    """
    if given is None or isinstance(given, Lengths):
        return given
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return Lengths(mean_tokens=_count(given))
    if isinstance(given, str):
        call = _CALL.fullmatch(given.replace(" ", ""))
        if call:
            return _drawn(*(part for part in call.groups() if part is not None))
        if ":" in given:
            return _histogram([pair.split(":") for pair in given.split(",")])
        with suppress(ValueError):
            parse_tokens(given)
            return Lengths(mean_tokens=_count(given))
    if isinstance(given, Sequence) and not isinstance(given, str):
        return _histogram(given)
    text = str(given).replace(" ", "")
    ends, call = re.fullmatch(_ENDS, text), re.fullmatch(r"([A-Za-z]+)\W.*", text)
    if isinstance(given, dict) and given and all(re.fullmatch(r"\d+[kM]?", str(key)) for key in given):
        pairs = ",".join(f"{key}:{weight}" for key, weight in given.items())
        raise _fault(FORMS, "only these forms are supported", pairs)
    number = re.search(r"[1-9]\d*", text)
    right = number[0] if number else "2000"
    right = (
        f"uniform({_tokens(ends[1])}, {_tokens(ends[2])})"
        if ends
        else _call(call[1].lower(), re.findall(_PARAMETER, text), right)
        if call
        else right
    )
    raise _fault(FORMS, "only these forms are supported", right)


def _call(name: str, numbers: Sequence[str], otherwise: str) -> str:
    """Return the distribution that a name and its arguments mean in another notation.

    >>> _call("unif", ["1k", "2k"], ""), _call("lognorm", ["1500", "0.6"], ""), _call("x", [], "2000")
    ('uniform(1k, 2k)', 'lognormal(1500, 0.6)', '2000')
    """
    if name.startswith("unif") and len(numbers) == 2:
        return f"uniform({numbers[0]}, {numbers[1]})"
    return f"lognormal({numbers[0]}, {_log_sigma(*numbers[:2])})" if numbers else otherwise


def _log_sigma(mean: str, spread: str = "") -> str:
    """Return the standard deviation of the logarithm of lengths, from itself or from a standard deviation
    in tokens.

    >>> _log_sigma("1500", "0.6"), _log_sigma("2000", "100"), _log_sigma("2000")
    ('0.6', '0.05', '0.5')
    """
    try:
        value, ratio = float(spread), parse_tokens(spread) / parse_tokens(mean)
    except (ValueError, ZeroDivisionError):
        return "0.5"
    return spread if value <= MOST_SIGMA else f"{ratio:.2g}" if ratio <= MOST_SIGMA else "0.5"


def _tokens(text: str) -> str:
    return f"{parse_length(text)}"


def _fault(allowed: str, because: str, written: str) -> NotAllowedError:
    """Return the error of a text that should have the form `written`."""
    return NotAllowedError(allowed, because, write(written))


def _drawn(name: str, first: str, second: str, longest: str = "") -> Lengths:
    """Return a distribution with two parameters; a lognormal one may have a longest length."""
    if name == "uniform":
        least, most = _count(first), _count(second)
        if least > most:
            raise _fault(
                "uniform(LOW, HIGH) with LOW up to HIGH",
                "the two numbers are the smallest and the largest length",
                f"uniform({most}, {least})",
            )
        return Lengths(distribution="uniform", least_tokens=least, most_tokens=most)
    sigma = _number(second)
    if not 0 <= sigma <= MOST_SIGMA:
        allowed = f"lognormal(MEAN, SIGMA) with SIGMA from 0 to {MOST_SIGMA:g}"
        because = "SIGMA is the standard deviation of the logarithm of lengths"
        raise _fault(allowed, because, f"lognormal({first}, {_log_sigma(first, second.lstrip('-'))})")
    mean, most = _count(first), _count(longest) if longest else MOST_TOKENS
    if mean >= most:
        allowed = "lognormal(MEAN, SIGMA, LONGEST) with MEAN below LONGEST"
        because = (
            "the mean of the lengths must be below the longest length; if all lengths are equal, write "
            "one number"
        )
        raise _fault(allowed, because, f"{most}")
    return Lengths(distribution="lognormal", mean_tokens=mean, log_sigma_factor=sigma, most_tokens=most)


def _histogram(pairs: Sequence[Any]) -> Lengths:
    """Return a histogram, given pairs of a length and a weight."""
    rows = [tuple(pair) if isinstance(pair, (list, tuple)) else (pair,) for pair in pairs]
    if not rows or any(len(row) != 2 for row in rows):
        raise _fault(FORMS, "a histogram needs a weight for each length", _with_weights(rows))
    tokens = tuple(_count(row[0]) for row in rows)
    weights = tuple(_number(str(row[1]).removesuffix("%")) for row in rows)
    if min(weights) < 0 or sum(weights) <= 0:
        because = "a weight is the relative frequency of a length, and at least one length must occur"
        raise _fault("weights of at least 0, of which at least one is above 0", because, f"{tokens[0]}:1")
    return Lengths(distribution="histogram", tokens=tokens, weights=weights)


def _with_weights(rows: Sequence[Sequence[object]]) -> str:
    """Return a histogram in which lengths without a weight share the remainder up to 100.

    >>> _with_weights([("1k", "50"), ("2k",)]), _with_weights([("1k", "3;2k", "1")]), _with_weights([])
    ('1k:50,2k:50', '1k:3,2k:1', '128:3,1024:1')
    """
    words = ",".join(":".join(map(str, row)) for row in rows).replace(";", ",").split(",")
    given = [float(number[0]) for word in words if (number := re.search(r"(?<=:)[\d.]+", word))]
    missing = sum(":" not in word for word in words)
    rest = (100 - sum(given)) / missing if missing and sum(given) < 100 and given else 1
    return ",".join(word if ":" in word else f"{word}:{rest:g}" for word in words if word) or "128:3,1024:1"


def _number(given: object, thousand: int = 1000) -> float:
    """Return a number that a user wrote."""
    try:
        return parse_tokens(str(given), thousand=thousand)
    except ValueError:
        raise _fault(FORMS, f"{given!r} is no number", "2000") from None


def _count(given: object) -> int:
    """Return a number of tokens."""
    count_tokens = _number(given, thousand=1024)
    if not 1 <= count_tokens <= MOST_TOKENS or count_tokens != int(count_tokens):
        because = "a request has a prompt and an output of at least one token"
        near = max(1, round(count_tokens)) if count_tokens <= MOST_TOKENS else 2000
        raise _fault(f"whole numbers of tokens from 1 to {MOST_TOKENS:,}", because, str(near))
    return int(count_tokens)


def _as_written(schema: dict[str, Any]) -> None:
    """Make the schema accept all forms in which lengths can be written."""
    pair = {"type": "array", "prefixItems": [{"type": "integer", "minimum": 1}, {"type": "number"}]}
    schema["anyOf"] = [
        {"type": "integer", "minimum": 1, "maximum": MOST_TOKENS},
        {"type": "string", "description": FORMS, "examples": ["lognormal(2000, 0.5)", "128:3,1024:1"]},
        {
            "type": "array",
            "items": pair,
            "minItems": 1,
            "description": "A list of lengths in tokens, with their weights.",
        },
        {"type": "null"},
    ]


WrittenLengths = Annotated[
    Lengths | None,
    BeforeValidator(lengths),
    PlainSerializer(lambda given: None if given is None else given.text()),
    Field(json_schema_extra=_as_written, validate_default=True),
]
