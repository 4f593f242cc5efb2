"""Quantities as people write them: "80 GB", "312 TFLOP/s", "5 us". The core sees SI floats only.

Answers: what number does a text mean, and how is a number shown? Decimal prefixes are powers of ten,
binary ones ("GiB") of two. A bare number is refused where a unit is expected. Bits are eighths of bytes:
"200 Gbit/s" is 25e9 bytes per second.
Elsewhere: which field takes a quantity follows from its name (`units_of`), not from a schema.
"""

import math
import re

Number = int | float
Hertz = float  # of a clock

SUFFIXES: dict[str, tuple[str, ...]] = {
    "_flop_per_s": ("FLOP/s",),
    "_bytes_per_s": ("B/s", "bit/s"),
    "_usd_per_hour": ("USD/h",),
    "_bytes": ("B",),
    "_flop": ("FLOP",),
    "_s": ("s", "min", "h", "d"),
    "_w": ("W",),
    "_j": ("J", "Wh"),
    "_hz": ("Hz",),
}  # longest first: the first that ends a field's name gives the units it takes

_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_PREFIXES |= {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3}
_PREFIXES |= {f"{name}i": 1024.0 ** (power + 1) for power, name in enumerate("KMGTP")}
_BELOW_ONE = ("n", "u", "µ", "m")
_WHOLE = ("B", "B/s", "bit/s", "FLOP", "FLOP/s")  # counted in whole ones: "80 mB" is a slip of the pen
_PLAIN = ("min", "h", "d", "USD/h")  # take no prefix
_SCALE = {"bit/s": 1 / 8, "min": 60.0, "h": 3600.0, "d": 86400.0, "Wh": 3600.0}
_DIGITS = r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
_NUMBER = re.compile(_DIGITS + r"(\S.*?)\s*")
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_TOKENS = re.compile(_DIGITS + r"([kKMBT]?)\s*")
_LENGTH = re.compile(r"\s*(\d{1,12})\s*([kKmM]?)\s*")
_OF_TOKENS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def units_of(field: str) -> tuple[str, ...]:
    """Return units that the field's name states; empty if it states none.

    >>> units_of("memory_bytes_per_s"), units_of("tensor_parallel")
    (('B/s', 'bit/s'), ())
    """
    for suffix, units in SUFFIXES.items():
        if f"_{field}".endswith(suffix):
            return () if suffix == "_s" and field.endswith("_per_s") else units
    return ()


def parse_quantity(text: str, units: tuple[str, ...]) -> float:
    """Return the SI value of `text`, which must have one of `units`.

    Parameters
    ----------
    text : a number, a prefix and a unit; blanks may stand around and between number and unit
    units : what may be written, as `units_of` gives it

    Returns
    -------
    float
        Bytes, FLOP, seconds, watts, joules, dollars, or one of them per second or hour.

    Raises
    ------
    ValueError
        Not a number with such a unit; the message gives an example that would pass.

    Examples
    --------
    >>> parse_quantity("80 GB", ("B",)), parse_quantity("80 GiB", ("B",))
    (80000000000.0, 85899345920.0)
    """
    match = _NUMBER.fullmatch(text)
    if match:
        number, written = match.groups()
        for unit in units:
            prefix = written.removesuffix(unit)
            if written.endswith(unit) and _may_stand(prefix, unit):
                value = float(number) * _PREFIXES[prefix] * _SCALE.get(unit, 1.0)
                if math.isfinite(value):
                    return value
    examples = "5 us, 1.5 s or 2 h" if "s" in units else " or ".join(f"1.5 {_usual(u)}" for u in units)
    raise ValueError(f"a number and a unit, such as {examples}")


def without_separators(text: str) -> str:
    """Return a number without thousands separators: commas at every third digit, as `show_count` writes.

    Other commas stay, so that a list or a decimal comma is not taken for another number.

    >>> without_separators("52,000"), without_separators("1,234.5 M"), without_separators("5,2")
    ('52000', '1234.5 M', '5,2')
    """
    match = _GROUPED.match(text)
    return text if match is None else match[0].replace(",", "") + text[match.end() :]


def parse_tokens(text: str) -> float:
    """Return how many tokens a text means, as people write them: 2e12, 2T, 300B, 1.5 M, 52,000.

    Raises
    ------
    ValueError
        No finite number, with or without one of these letters.

    Examples
    --------
    >>> parse_tokens("2T"), parse_tokens("300 B"), parse_tokens("2e12"), parse_tokens("52,000")
    (2000000000000.0, 300000000000.0, 2000000000000.0, 52000.0)
    """
    match = _TOKENS.fullmatch(without_separators(text))
    tokens = math.inf if match is None else float(match.group(1)) * _OF_TOKENS[match.group(2)]
    if not math.isfinite(tokens):
        raise ValueError("a number of tokens, such as 2e12, 2T or 300B")
    return tokens


def parse_length(text: str) -> int:
    """Return the number of tokens of a sequence, as people write context lengths: 32k is 32,768.

    Raises
    ------
    ValueError
        No whole number, with or without a k (1,024) or an M (1,048,576).

    Examples
    --------
    >>> parse_length("4096"), parse_length("4,096"), parse_length("32k"), parse_length("1M")
    (4096, 4096, 32768, 1048576)
    """
    match = _LENGTH.fullmatch(without_separators(text))
    if match is None:
        raise ValueError("a whole number of tokens, such as 8192, 8k or 1M")
    thousands = ("", "k", "m").index(match.group(2).lower())
    return int(match.group(1)) * (1, 1024, 1024**2)[thousands]


def _may_stand(prefix: str, unit: str) -> bool:
    """Return whether people write this prefix before this unit."""
    if prefix not in _PREFIXES or (prefix and unit in _PLAIN):
        return False
    if prefix.endswith("i"):
        return unit in ("B", "B/s", "bit/s")
    return not (prefix in _BELOW_ONE and unit in _WHOLE)


def _usual(unit: str) -> str:
    """Return the unit with the prefix that people write most, for examples in messages."""
    return {"B": "GB", "B/s": "GB/s", "bit/s": "Gbit/s", "FLOP/s": "TFLOP/s"}.get(unit, unit)


def show(value: Number, unit: str, digits: int = 3) -> str:
    """Return `value` with the decimal prefix that leaves one to three digits before the point.

    >>> show(2.039e12, "B/s")
    '2.04 TB/s'
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    power = _power(value, digits)
    if unit in ("B", "B/s", "FLOP", "FLOP/s"):
        power = max(0, power)
    return f"{_digits(value / 1000.0**power, digits)} {_LETTERS[power]}{unit}"


_LETTERS = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E"}


def _power(value: Number, digits: int) -> int:
    """Return the power of a thousand whose prefix a finite number other than 0 is shown with."""
    exponent = f"{value:.{digits - 1}e}".rpartition("e")[2]  # 999.9 is shown with three digits as 1.00 k
    return min(6, max(-3, int(exponent) // 3))


def show_memory(size_bytes: Number) -> str:
    """Return the size of memory with a binary prefix and three digits.

    Devices are sold by binary units: a card of "80 GB" has 80 GiB.

    >>> show_memory(85899345920), show_memory(64e6), show_memory(0)
    ('80.0 GiB', '61.0 MiB', '0 B')
    """
    size, prefix = float(size_bytes), ""
    for larger in ("Ki", "Mi", "Gi", "Ti", "Pi"):
        if abs(size) < 999.5:
            break
        size, prefix = size / 1024.0, larger
    return f"{_digits(size, 3)} {prefix}B" if prefix else f"{size:g} B"


def exactly(value: Number, unit: str) -> str:
    """Return the shortest text that `parse_quantity` reads as this exact value; `unit` is an SI unit.

    >>> exactly(85899345920.0, "B"), exactly(2.039e12, "B/s"), exactly(1 / 3, "s")
    ('80 GiB', '2039 GB/s', '0.3333333333333333 s')
    """
    texts = [f"{value!r} {unit}"]
    for prefix, scale in _PREFIXES.items():
        if _may_stand(prefix, unit):
            text = f"{value / scale:.15g} {prefix}{unit}"
            texts += [text] if parse_quantity(text, (unit,)) == value else []
    return min(texts, key=len)


FAR_RATIO = 100.0  # of a bound to what it bounds: in the same unit it would have too many digits


def show_seconds(value: Number, like: Number | None = None) -> str:
    """Return seconds in a readable unit: "17.4 s", "385 ms", "12.1 µs", "34.2 d".

    Seconds up to two minutes, minutes up to two hours, hours up to two days. Bounds have the unit of what
    they bound, `like`: "102 s to 2.93 min" is hard to compare. A bound far above has a unit of its own.

    >>> show_seconds(0.0174), show_seconds(5400), show_seconds(102.0, like=134.0)
    ('17.4 ms', '90.0 min', '1.70 min')
    """
    size = abs(value if like is None or abs(value) > FAR_RATIO * abs(like) else like)
    for limit, scale, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if size < limit:
            return _seconds(value, size) if unit == "s" else f"{_plain(value / scale)} {unit}"
    return f"{_plain(value / 86400)} d"


def _seconds(value: Number, size: Number) -> str:
    """Return a time below two minutes, with the prefix of another time."""
    if not value or not size:
        return show(value, "s")
    prefix = _LETTERS[_power(size, 3)]
    return f"{_plain(value / _PREFIXES[prefix])} {prefix}s"


def _plain(value: Number) -> str:
    """Return three significant digits, thousands written out: 1330 d, not 1.33e+03 d."""
    return f"{float(f'{value:.2e}'):.0f}" if 1e3 <= abs(value) < 1e6 else _digits(value, 3)


def _digits(value: Number, digits: int) -> str:
    """Return a number rounded to significant digits, with trailing zeros, which are also rounded."""
    return f"{value:#.{digits}g}".rstrip(".")


def nine_digits(value: Number) -> float:
    """Return the number rounded so that equal predictions print equal bytes on every machine.

    Sums of floats differ in their last digits between processors and libraries; nine digits are far more
    than any prediction is good for.

    >>> nine_digits(0.1 + 0.2), nine_digits(123456789012.0)
    (0.3, 123456789000.0)
    """
    return float(f"{value:.9g}")


LARGE = {"T": 1e12, "B": 1e9, "M": 1e6}


def show_count(value: Number) -> str:
    """Return a number of parameters or tokens as people say it.

    >>> show_count(8.03e9), show_count(999_960), show_count(1200)
    ('8.03 B', '1.00 M', '1,200')
    """
    rounded = float(f"{value:.3g}")
    for letter, scale in LARGE.items():
        if rounded >= scale:
            return f"{_digits(rounded / scale, 3)} {letter}"
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "rank"), counted(8, "rank"), counted(8, "micro-batch")
    ('1 rank', '8 ranks', '8 micro-batches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def show_usd(value: Number) -> str:
    """Return dollars as text with three significant digits.

    M, B and T stand for millions, billions and trillions, as in `--budget`.

    >>> show_usd(0.0123), show_usd(4.5), show_usd(91437.2), show_usd(2.5e6), show_usd(1e9)
    ('$0.0123', '$4.50', '$91,400', '$2.50 M', '$1.00 B')
    >>> show_usd(999_960), show_usd(2.5e16), show_usd(6.351e-5), show_usd(0)
    ('$1.00 M', '$25,000 T', '$0.0000635', '$0')
    """
    for letter, scale in LARGE.items():
        if math.isfinite(value) and (scaled := float(f"{value:.3g}") / scale) >= 1:
            return f"${scaled:,.{2 - min(2, int(math.log10(scaled)))}f} {letter}"
    if value >= 100:
        return f"${float(f'{value:.3g}'):,.0f}"
    if value >= 0.995:
        return f"${value:.2f}"
    places = 2 - math.floor(math.log10(value)) if 0 < value < 1e-4 else 0  # no exponent
    return f"${value:.{places}f}" if places else f"${value:.3g}"
