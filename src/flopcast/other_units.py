"""Quantities in notations that flopcast does not read, rewritten in one that it reads: for fixes of errors.

Answers: how would "48 USD/day", "200 Gbps", "3 weeks" or "2 trillion" be written for flopcast?
Elsewhere: what flopcast reads (units.py).

A fix must not change the value that a user meant. Where a notation has no exact translation, such as
another currency, the functions return "", and the error says that the user must convert the value.
"""

import re

from flopcast.slips import in_digits, meant
from flopcast.units import parse_quantity, parse_tokens, without_separators

_TIMES = {
    "s": ("sec", "secs", "second", "seconds"),
    "min": ("m", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
    "week": ("w", "wk", "weeks"),
    "month": ("months",),
    "ms": ("msec", "millisecond", "milliseconds"),
    "us": ("usec", "microsecond", "microseconds"),
    "ns": ("nsec", "nanosecond", "nanoseconds"),
}
_TIME = {word: unit for unit, words in _TIMES.items() for word in (unit, *words)}
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 604800.0, "month": 2628000.0}
_DAYS = {"week": 7, "month": 30}
_PER = r"\s*(?:/|\bper\b)\s*"
_DOLLARS = re.compile(r"(?:us)?\$|usd|us dollars?|dollars?", flags=re.IGNORECASE)
_PRICE = re.compile(rf"({_DOLLARS.pattern})?{_PER}(?:(?:gpu|device)[\s/-]*)?(\w+)", flags=re.IGNORECASE)
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)")
_DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d\d?)(?!\d)")
_RATES = ((r"bps$|(?<=[kMGTP])b/s$", "bit/s"), (r"Bps$", "B/s"), (r"(?i)flops$", "FLOP/s"))
_PREFIXES = ("", *"kMGTP", *(f"{letter}i" for letter in "KMGTP"))
_COUNTS = {
    "k": ("thousand",),
    "M": ("million", "mio", "mn"),
    "B": ("billion", "bn", "g"),
    "T": ("trillion", "tn", "tb"),
}
_COUNT = {word: letter for letter, words in _COUNTS.items() for word in (letter.lower(), *words)}
_LARGE = {"B": "GB", "B/s": "GB/s", "FLOP": "TFLOP", "FLOP/s": "TFLOP/s"}  # of bare numbers in this range
_LEAST, _MOST = 16.0, 1e6  # smaller ones may be the bytes of one element


def rewritten(text: str, units: tuple[str, ...]) -> str:
    """Return the same quantity as `parse_quantity` reads it with one of `units`; "" if there is none.

    A bare number gets the unit that people use most.

    Examples
    --------
    >>> rewritten("48 USD per day", ("USD/h",)), rewritten("2 EUR/day", ("USD/h",))
    ('2 USD/h', '')
    >>> rewritten("200 Gbps", ("B/s", "bit/s")), rewritten("2 weeks", ("s", "min", "h", "d"))
    ('200 Gbit/s', '14 d')
    """
    text = _DECIMAL_COMMA.sub(r"\1.\2", without_separators(text.strip("; \t")))
    text = re.sub(rf"^({_DOLLARS.pattern})\s*([\d.]+)", r"\2 USD", text, flags=re.IGNORECASE)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return ""
    number, written = match.groups()
    if not written:
        unit = _LARGE.get(units[0], units[0]) if _LEAST <= float(number) < _MOST else units[0]
        same = [f"{number} {unit}"]
    elif "USD/h" in units:
        same = [_price(number, written)]
    elif "s" in units:
        same = [_time(number, written)]
    else:
        same = [f"{number} {unit}" for unit in _spellings(written, units)]
    shorter = f"{number} {written.rpartition('/')[0]}" if "/" in written else ""  # of "5 us/s"
    return next((one for one in same if _readable(one, units)), shorter and rewritten(shorter, units))


def rewritten_count(text: str) -> str:
    """Return the same number of tokens or dollars as `parse_tokens` reads it; "" if there is none.

    >>> [rewritten_count(text) for text in ("2 trillion", "$3m", "1,5T", "3M EUR")]
    ['2T', '3M', '1.5T', '']
    """
    text = _DOLLARS.sub("", re.sub(r"(?i)\btokens?\b|\bsamples?\b", "", without_separators(text))).strip()
    text = _DECIMAL_COMMA.sub(r"\1.\2", in_digits(text))
    match = _QUANTITY.fullmatch(text)
    word = match[2].strip().lower().removesuffix("s") if match else ""
    if match is None or (word and word not in _COUNT):
        return ""
    count = f"{match[1]}{_COUNT.get(word, '')}"
    return count if parse_tokens(count) > 0 else ""


def rewritten_whole(value: object, otherwise: int) -> int:
    """Return the whole number above 0 that a wrong count probably means.

    >>> [rewritten_whole(wrong, 8) for wrong in ("16", 16.5, -4, "four", True)]
    [16, 16, 4, 4, 8]
    """
    return int(meant(value, "a whole number of at least 1") or otherwise)


def _price(number: str, written: str) -> str:
    """Return a price in dollars per hour; "" for other currencies and times."""
    match = _PRICE.fullmatch(written)
    period_s = _SECONDS.get(_TIME.get(match[2].lower(), "")) if match else None
    if period_s is None:
        return "" if _DOLLARS.fullmatch(written) is None else f"{number} USD/h"
    return f"{float(number) * 3600.0 / period_s:.10g} USD/h"


def _time(number: str, written: str) -> str:
    """Return a time in one of the units that flopcast reads; "" if the unit is not known."""
    unit = _TIME.get(written.lower(), "")
    if unit in _DAYS:
        return f"{_DAYS[unit] * float(number):.10g} d"
    if not unit and written[:1] == "k":
        return _time(f"{float(number) * 1000:.10g}", written[1:])
    return f"{number} {unit}" if unit else ""


def _spellings(written: str, units: tuple[str, ...]) -> list[str]:
    """Return the units with a prefix that differ from what was written in case or abbreviation only."""
    written = re.sub(_PER + r"s(?:ec(?:ond)?s?)?$", "/s", written)
    for pattern, right in _RATES:
        written = re.sub(pattern, right, written)
    short = written.lower()
    every = [(f"{prefix}{unit}", prefix) for unit in units for prefix in _PREFIXES]
    return [unit for unit, prefix in every if short in (unit.lower(), prefix.lower())]


def _readable(text: str, units: tuple[str, ...]) -> bool:
    """Return whether flopcast reads a quantity."""
    try:
        parse_quantity(text, units)
    except ValueError:
        return False
    return True
