"""Units of fields, and numbers as text: "2.04 TB/s", "17.4 ms", "$2.50 M".

The core contains only SI floats.

Answers: which units does a field take, and how is a number shown?
Elsewhere: reading quantities (quantities.py). The name of a field determines its units (`units_of`), not a
schema.
"""

import math
import re
from functools import lru_cache

from flopcast.quantities import PREFIXES

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
_LENGTH = re.compile(r"(?i)len|seq|tok|position|context|window|document|prefill")  # in names of lengths


@lru_cache(maxsize=4096)
def units_of(field: str) -> tuple[str, ...]:
    """Return the units that the name of a field states. They are empty if it states none.

    >>> units_of("memory_bytes_per_s"), units_of("tensor_parallel")
    (('B/s', 'bit/s'), ())
    """
    for suffix, units in SUFFIXES.items():
        if f"_{field}".endswith(suffix):
            return () if suffix == "_s" and field.endswith("_per_s") else units
    return ()


def thousand_of(field: str) -> int:
    """Return the value of k in the numbers of a field: 1,024 if its name or its allowed values are lengths.

    >>> thousand_of("batch.sequence_length"), thousand_of("max_model_len"), thousand_of("plan.global_batch")
    (1024, 1024, 1000)
    """
    return 1024 if _LENGTH.search(field) else 1000


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


FAR_RATIO = 30.0  # of a bound to what it bounds, or of this to the bound: it has a unit of its own


def show_seconds(value: Number, like: Number | None = None) -> str:
    """Return seconds in a readable unit: "17.4 s", "385 ms", "12.1 µs", "34.2 d".

    The unit is seconds up to two minutes, minutes up to two hours, and hours up to two days. The bounds of
    an interval have the unit of the value `like` that they enclose, because "102 s to 2.93 min" is hard to
    compare. A bound far from this value has its usual unit.

    >>> show_seconds(0.0174), show_seconds(5400), show_seconds(102.0, like=134.0)
    ('17.4 ms', '90.0 min', '1.70 min')
    >>> show_seconds(0.972, like=242.0), show_seconds(37.4, like=0.375)
    ('972 ms', '37.4 s')
    """
    far = like is None or not abs(like) / FAR_RATIO <= abs(value) <= abs(like) * FAR_RATIO
    size = abs(value if far else like or 0.0)
    for limit, scale, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if size < limit:
            return _seconds(value, size) if unit == "s" else f"{_plain(value / scale)} {unit}"
    return f"{_plain(value / 86400)} d"


def _seconds(value: Number, size: Number) -> str:
    """Return a time below two minutes, with the prefix of another time."""
    if not value or not size:
        return show(value, "s")
    prefix = _LETTERS[_power(size, 3)]
    return f"{_plain(value / PREFIXES[prefix])} {prefix}s"


def _plain(value: Number) -> str:
    """Return three significant digits, thousands written out: 1330 d, not 1.33e+03 d."""
    return f"{float(f'{value:.2e}'):.0f}" if 1e3 <= abs(value) < 1e6 else _digits(value, 3)


def _digits(value: Number, digits: int) -> str:
    """Return a number rounded to significant digits, with trailing zeros, which are also rounded."""
    return f"{value:#.{digits}g}".rstrip(".")


def nine_digits(value: Number) -> float:
    """Return the number rounded so that equal predictions print equal bytes on every machine.

    Sums of floats differ in their last digits between processors and libraries. No prediction is accurate
    to nine digits.

    >>> nine_digits(0.1 + 0.2), nine_digits(123456789012.0)
    (0.3, 123456789000.0)
    """
    return float(f"{value:.9g}")


LARGE = {"T": 1e12, "B": 1e9, "M": 1e6}


def show_count(value: Number) -> str:
    """Return a number of parameters or tokens as text, such as "8.03 B".

    >>> show_count(8.03e9), show_count(999_960), show_count(1200)
    ('8.03 B', '1.00 M', '1,200')
    """
    rounded = float(f"{value:.3g}")
    for letter, scale in LARGE.items():
        if rounded >= scale:
            return f"{_digits(rounded / scale, 3)} {letter}"
    return f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, which is in the plural unless the number is 1.

    >>> counted(1, "rank"), counted(8, "rank"), counted(8, "micro-batch")
    ('1 rank', '8 ranks', '8 micro-batches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}{ending}"


def show_usd(value: Number) -> str:
    """Return dollars as text with three significant digits.

    M, B and T mean millions, billions and trillions, as in `--budget`.

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
