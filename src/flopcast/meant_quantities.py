"""The quantity that a user means by a text that flopcast cannot read, such as "80 gb" or "two trilion".

Answers: which quantity, in a notation that flopcast reads, does the fix of an error propose?
Elsewhere: the notations that can be read (quantities.py), values of other kinds (slips.py).
"""

import math
import re
from itertools import pairwise, product

from flopcast.quantities import (
    MULTIPLES_OF_WORDS,
    NUMBER,
    PER,
    PREFIXES,
    UNIT_FIRST,
    WITHOUT_PREFIX,
    parse_quantity,
    seconds_of,
    unit_symbol,
    without_separators,
)

_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d\d?)(?!\d)")
_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_LARGE = {"B": "GB", "B/s": "GB/s", "FLOP": "TFLOP", "FLOP/s": "TFLOP/s"}  # of bare numbers in this range
_LEAST, _MOST = 16.0, 1e6  # smaller ones may be the bytes of one element
_TIMES = re.compile(
    r"(\d[\d.]*)\s*(d(?:ays?)?|h(?:ou)?r?s?|m(?:in)?(?:ute)?s?|s(?:ec)?(?:ond)?s?)(?![a-z])"
)
_CENTS = re.compile(r"(?i)(?:us\s*)?(?:cents?|ct|¢)\s*(.*)")
_OTHER_TIMES = {"m": (1, "min"), "w": (7, "d")}


def meant_quantity(text: str, units: tuple[str, ...], example: str = "") -> str:
    """Return the quantity that a wrong text means, as `parse_quantity` reads it; "" if none is certain.

    A fix must not change the value that a user meant, so texts in other currencies have no fix. A bare
    number gets the unit of an example of similar size, or the one that people use most.

    >>> meant_quantity("2 USD", ("USD/h",)), meant_quantity("2 EUR/day", ("USD/h",))
    ('2 USD/h', '')
    >>> meant_quantity("20 cents per hour", ("USD/h",)), meant_quantity("20 ct", ("USD/h",))
    ('0.2 USD/hour', '0.2 USD/h')
    >>> meant_quantity("80 gb", ("B",)), meant_quantity("1,5 s", ("s",)), meant_quantity("80", ("B",))
    ('80 GB', '1.5 s', '80 GB')
    >>> meant_quantity("5", ("s",), "3 us"), meant_quantity("1h30m", ("s", "min", "h"))
    ('5 us', '5400 s')
    >>> meant_quantity("2 yers", ("s", "min", "h", "d")), meant_quantity("3 weeks", ("s", "min"))
    ('730 d', '30240 min')
    >>> [meant_quantity(text, ("B/s", "bit/s")) for text in ("50 GB", "400 Gbit", "400 Gb")]
    ['50 GB/s', '400 Gbit/s', '400 Gbit/s']
    """
    text = without_separators(UNIT_FIRST.sub(r"\1\2 USD", text.strip("; \t")))
    match = NUMBER.fullmatch(in_digits(_DECIMAL_COMMA.sub(r"\1.\2", text)))
    if match is None:
        return ""
    number, written = match.groups()
    if "USD/h" in units and (cents := _CENTS.fullmatch(written)):
        number, written = f"{float(number) / 100:.10g}", f"USD{PER.sub('/', cents[1]) or '/h'}"
    if "s" in units and (parts := _TIMES.findall(text))[1:]:  # 5min30s
        summands = [meant_quantity(f"{each} {unit}", units) for each, unit in parts]
        return f"{sum(parse_quantity(each, units) for each in summands):.10g} s" if all(summands) else ""
    if not written:
        return _with_unit(number, units[0], example)
    written = re.sub(r"(?i)^usd", "USD", written)
    written = re.sub(r"(?i)^(k|m|g|t)(?:ilo|eg|ig|era)s?$", r"\1", written)  # "96 gigs"
    times, unit = _OTHER_TIMES.get(written, (1000, unit_symbol(written.removeprefix("k").strip())))
    if (written in _OTHER_TIMES or written[:1] == "k") and unit in WITHOUT_PREFIX and unit in units:
        return f"{times * float(number):.10g} {unit}"
    scale_s = seconds_of(written) if "s" in units and math.isfinite(float(number)) else None
    if scale_s and not _is_readable(text, units):
        total_s, large = scale_s * float(number), [unit for unit in ("d", "h", "min") if unit in units]
        sizes = {unit: parse_quantity(f"1 {unit}", units) for unit in (*large, "s")}
        unit = next((unit for unit, size_s in sizes.items() if total_s >= size_s), "s")
        return f"{total_s / sizes[unit]:.10g} {unit}"
    time = units[0].partition("/")[2]
    plain = PER.sub("/", written)
    plain = re.sub(r"(?<=[kMGTP])b(?:/s)?$", "bit/s", plain) if "bit/s" in units else plain
    short = unit_symbol(plain).lower()
    every = [(f"{prefix}{unit}", prefix) for unit, prefix in product(units, PREFIXES)]
    alike = (
        unit
        for unit, prefix in every
        if {short, f"{short}/{time}"} & {unit.lower(), prefix.lower() or unit}
    )
    others = (f"{written}/{time}", f"USD{PER.sub('/', written)}", written.rpartition("/")[0])
    texts = [f"{number} {unit}" for unit in (written, *alike, *others)]
    return next((each for each in texts if _is_readable(each, units)), "")


def _with_unit(number: str, unit: str, example: str) -> str:
    """Return a bare number with the unit of an example of similar size, or the one that is used most."""
    usual = NUMBER.fullmatch(example)
    if usual and 0.01 < float(number) / float(usual[1]) < 100:
        return f"{number} {usual[2]}"
    return f"{number} {_LARGE.get(unit, unit) if _LEAST <= float(number) < _MOST else unit}"


def _is_readable(text: str, units: tuple[str, ...]) -> bool:
    """Return whether a text is a quantity with one of the units."""
    try:
        parse_quantity(text, units)
    except ValueError:
        return False
    return True


def meant_count(text: str) -> str:
    """Return the number of tokens or dollars that a wrong text means; "" if none is certain.

    `parse_tokens` can read the returned text.

    >>> [meant_count(text) for text in ("two trillion", "$3m", "1,5T", "3M EUR", "100 GB", "8 KiB")]
    ['2T', '3M', '1.5T', '', '100B', '8k']
    """
    text = re.sub(
        r"(?i)(?:us)?\$|\b(?:usd|us dollars?|dollars?|samples?)\b|tokens?\b", "", without_separators(text)
    )
    match = NUMBER.fullmatch(_DECIMAL_COMMA.sub(r"\1.\2", in_digits(text.strip())))
    word = match[2].lower().removesuffix("s") if match else ""
    word = re.sub(r"^([kmgt])(?:i|ilo|ega|iga|era)?\s*(?:b|byte)?$", r"\1", word)  # "100 GB" of tokens
    if len(word) > 4:  # a misspelling
        from difflib import get_close_matches

        word = next(iter(get_close_matches(word, MULTIPLES_OF_WORDS, n=1, cutoff=0.8)), word)
    if match is None or (word and word not in MULTIPLES_OF_WORDS) or float(match[1]) <= 0:
        return ""
    return f"{match[1]}{MULTIPLES_OF_WORDS.get(word, '')}"


def is_single_number(text: str) -> bool:
    """Return whether a text is one number with separators of thousands, and not a list of numbers.

    Numbers of a list are seldom more than eight times as large as the number before them, and large counts
    of devices, tokens and sequences are seldom odd.

    >>> [is_single_number(text) for text in ("256,512", "8,128", "52,000", "1,024", "8,192")]
    [False, False, True, True, True]
    """
    parts = text.split(",") if re.fullmatch(r"[1-9]\d{0,2}(,\d{3})+", text) else []
    padded = any(part.startswith("0") for part in parts)
    return bool(parts) and (padded or (not is_rising(text) and int("".join(parts)) % 256 == 0))


def is_rising(text: str) -> bool:
    """Return whether a text is a list of numbers, each at most eight times as large as the one before it.

    >>> [is_rising(text) for text in ("64,128", "8,16,x", "1,024", "8")]
    [True, False, False, False]
    """
    parts = text.split(",") if re.fullmatch(r"[1-9]\d*(,[1-9]\d*)+", text) else []
    return bool(parts) and all(int(one) < int(other) <= 8 * int(one) for one, other in pairwise(parts))


def in_digits(text: str) -> str:
    """Return a number in digits in place of its name, and with a single letter after the digits.

    >>> in_digits("three million"), in_digits("thirty-two"), in_digits("8kk"), in_digits("8k5")
    ('3 million', '32', '8k', '8.5k')
    """
    first, blank, rest = text.partition(" ")
    names, tens = _NAMES.split(), _TENS.split()
    values = {name: number for number, name in enumerate(names)}
    values |= {name: 10 * number for number, name in enumerate(tens, 2)}
    pairs = [(ten, name) for ten in tens for name in names[1:10]]
    values |= {
        f"{ten}{mark}{name}": values[ten] + values[name] for ten, name in pairs for mark in ("-", "")
    }
    text = f"{values.get(first.lower(), first)}{blank}{rest}"
    return re.sub(r"(?<=\d)([kKmMbBtT])\1+$", r"\1", re.sub(r"^(\d+)([kKM])(\d+)$", r"\1.\3\2", text))


def with_unit_factor(written: str, meant: str) -> str:
    """Return what to do with values in seconds that have another unit, by the names of their columns.

    >>> with_unit_factor("step_time_ms", "step_time_s"), with_unit_factor("step_times", "step_time_s")
    (', and divide its values by 1,000', '')
    """
    (name, _, unit), (right, _, _) = written.rpartition("_"), meant.rpartition("_")
    divisor = {"ms": 1_000, "us": 1_000_000}.get(unit) if name == right and meant.endswith("_s") else None
    return f", and divide its values by {divisor:,}" if divisor else ""
