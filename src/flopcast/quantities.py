"""Quantities as people write them: "80 GB", "2 trillion", "8k tokens", "4/hour", "80 %".

Answers: which number does a text mean?
Elsewhere: which units a field takes, and how numbers are shown (units.py), texts that cannot be read
(meant_quantities.py).

All interfaces use this module to read quantities: options, plans, files, requests and Python. A quantity is
a number, which may have thousands separators, and a prefix with a unit, which may be spelled out. Decimal
prefixes are powers of ten, binary ones ("GiB") of two, and bits are eighths of bytes. In lengths of
sequences, k is 1,024 tokens, as in the names of models; in all other counts it is 1,000. The core contains
only SI floats.
"""

import math
import re
from contextlib import suppress
from itertools import product

PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
PREFIXES |= {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3}
PREFIXES |= {f"{name}i": 1024.0 ** (power + 1) for power, name in enumerate("KMGTP")}
_BELOW_ONE = ("n", "u", "µ", "m")
_WHOLE = ("B", "B/s", "bit/s", "FLOP", "FLOP/s")  # counted in whole ones, so "80 mB" is a slip
WITHOUT_PREFIX = ("min", "h", "d", "week", "month", "year", "USD/h")  # take no prefix
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 604800.0, "month": 2628000.0}
_SECONDS["year"] = 12 * _SECONDS["month"]
_SCALE = _SECONDS | {"bit/s": 1 / 8, "Wh": 3600.0}
_PREFIX_WORDS = {
    "kilo": "k", "mega": "M", "giga": "G", "tera": "T", "peta": "P", "milli": "m", "micro": "u",
    "nano": "n", "kibi": "Ki", "mebi": "Mi", "gibi": "Gi", "tebi": "Ti",
}  # fmt: skip
_UNIT_WORDS = {
    "s": "sec secs second seconds", "min": "mins minute minutes", "h": "hr hrs hour hours", "d": "day days",
    "week": "weeks wk", "month": "months mo", "year": "years yr yrs",
    "B": "byte bytes", "bit": "bits", "W": "watt watts",
    "J": "joule joules", "Hz": "hertz", "Wh": "watt-hours", "USD": "$ us$ dollar dollars",
}  # fmt: skip
_SYMBOL = {word: symbol for symbol, words in _UNIT_WORDS.items() for word in words.split()}
_SPELLED = re.compile(
    rf"((?i:{'|'.join(_PREFIX_WORDS)})|[kMGTPnuµm]i?)?((?i:{'|'.join(map(re.escape, _SYMBOL))}))(?=/|$)"
)
PER = re.compile(r"\s*(?:/|\bper\b)\s*(?:(?i:gpu|device)[\s/-]*)?")
_PERIOD = re.compile(r"(?:[a-z]*\s*/(\S+)|[rq]p([smh]))?")
UNIT_FIRST = re.compile(r"(?i)^\s*(?:us)?\$\s*([\d.,]+)|^\s*usd\s*([\d.,]+)")  # a unit before its number
NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*?)\s*")
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_MULTIPLES = {
    "k": "thousand",
    "M": "million mil mio mln mn",
    "B": "billion bn g mrd",
    "T": "trillion tn tb",
}
MULTIPLES_OF_WORDS = {
    word: letter for letter, words in _MULTIPLES.items() for word in (letter.lower(), *words.split())
}
_COUNTS = ("step_tokens", "requests", "concurrency", "every_steps")  # fields, in which k is 1,000
_SLIPS = ("g", "tb")  # multiples of bytes, not of tokens
_POWER = {"": 0, "k": 1, "M": 2, "B": 3, "T": 4}
_AFTER_NUMBER = re.compile(
    r"(?<=\d)([kKMBT]?)\s+("
    rf"[kKMBT]\b(?:\s+tokens?)?|[kKMGTPnuµm]?i?(?:B|bit|W|s|{'|'.join(map(re.escape, _SYMBOL))})|%|min|h|d"
    r"|tok(?:en)?s?|(?:sample|request|step)s?|[rq]p[smh])(?![\w=-])"
)


def parse_quantity(text: str, units: tuple[str, ...]) -> float:
    """Return the SI value of `text`, which must have one of `units`.

    Parameters
    ----------
    text : a number, a prefix and a unit; spaces may surround the number and the unit
    units : the units that are allowed, as `units.units_of` returns them

    Returns
    -------
    float
        Bytes, FLOP, seconds, watts, joules, dollars, or one of them per second or hour.

    Raises
    ------
    ValueError
        The text is not a number with such a unit. The message contains a valid example.

    Examples
    --------
    >>> parse_quantity("80 GB", ("B",)), parse_quantity("80 GiB", ("B",))
    (80000000000.0, 85899345920.0)
    >>> parse_quantity("0.4 kilowatts", ("W",)), parse_quantity("$48 per day", ("USD/h",))
    (400.0, 2.0)
    """
    if "," in text or not text[:1].isdecimal():  # only these texts need it
        text = without_separators(UNIT_FIRST.sub(r"\1\2 USD", text))
    match = NUMBER.fullmatch(text)
    if match:
        known = (*units, "week", "month", "year") if "d" in units else units
        for read, unit in product((_scale, _scale_in_words), known):
            value = float(match[1]) * read(match[2], unit)
            if math.isfinite(value):
                return value
    examples = "5 us, 1.5 s or 2 h" if "s" in units else " or ".join(f"1.5 {_usual(u)}" for u in units)
    raise ValueError(f"a number and a unit, such as {examples}")


def _scale(written: str, unit: str) -> float:
    """Return the SI value of one of a written unit; infinite if that is not `unit` with a prefix."""
    prefix = written.removesuffix(unit)
    is_unit = written.endswith(unit) and _may_stand(prefix, unit)
    return PREFIXES[prefix] * _SCALE.get(unit, 1.0) if is_unit else math.inf


def _scale_in_words(written: str, unit: str) -> float:
    """Return the same for a unit that is spelled out or per another time: "GBps", "USD per day"."""
    symbol = re.sub(r"Bps$", "B/s", re.sub(r"\b([kMGTP]?i?)bps$", r"\1bit/s", PER.sub("/", written)))
    symbol = re.sub(r"(?i:flops)$", "FLOP/s", symbol) if unit == "FLOP/s" else symbol
    symbol = re.sub(r"(?i:flops?)(?=/|$)", "FLOP", symbol)
    amount, per, period = unit_symbol(symbol).partition("/")
    if not per:
        return _scale(amount, unit)
    time = unit.partition("/")[2]
    factor = _SECONDS.get(time, math.nan) / _SECONDS.get(unit_symbol(period), math.nan)
    return _scale(f"{amount}/{time}", unit) * factor


def seconds_of(written: str) -> float | None:
    """Return the seconds of a unit of time, which may be misspelt, or None for another word.

    >>> seconds_of("years"), seconds_of("wekks"), seconds_of("fortnights")
    (31536000.0, 604800.0, None)
    """
    symbol = unit_symbol(written.lower())
    if symbol in _SECONDS or len(symbol) < 4:
        return _SECONDS.get(symbol)
    from difflib import get_close_matches  # only a wrong word needs it

    words = [word for word, unit in _SYMBOL.items() if unit in _SECONDS and len(word) > 3]
    near = get_close_matches(symbol, words, n=1, cutoff=0.75)
    return _SECONDS[_SYMBOL[near[0]]] if near else None


def unit_symbol(written: str) -> str:
    """Return the symbol of a unit that is spelled out. Other words do not change.

    >>> unit_symbol("kilowatts"), unit_symbol("Gbits/s"), unit_symbol("hours")
    ('kW', 'Gbit/s', 'h')
    """
    match = _SPELLED.match(written)
    if match is None:
        return written
    prefix = match[1] or ""
    return f"{_PREFIX_WORDS.get(prefix.lower(), prefix)}{_SYMBOL[match[2].lower()]}{written[match.end() :]}"


def _may_stand(prefix: str, unit: str) -> bool:
    """Return whether a unit is ever written with this prefix."""
    if prefix not in PREFIXES or (prefix and unit in WITHOUT_PREFIX):
        return False
    if prefix.endswith("i"):
        return unit in ("B", "B/s", "bit/s")
    return not (prefix in _BELOW_ONE and unit in _WHOLE)


def _usual(unit: str) -> str:
    """Return the unit with the prefix that people write most, for examples in messages."""
    return {"B": "GB", "B/s": "GB/s", "bit/s": "Gbit/s", "FLOP/s": "TFLOP/s"}.get(unit, unit)


def without_separators(text: str) -> str:
    """Return a number without thousands separators, which are commas before every third digit.

    Other commas are kept, so that a list or a decimal comma is not read as another number.

    >>> without_separators("52,000"), without_separators("1,234.5 M"), without_separators("5,2")
    ('52000', '1234.5 M', '5,2')
    """
    match = _GROUPED.match(text)
    return text if match is None else match[0].replace(",", "") + text[match.end() :]


def parse_tokens(text: str, noun: str = "tok(?:en)?s?", thousand: int = 1000) -> float:
    """Return a count that is written as 2e12, 2T, 300B, 1.5 M, 2 trillion or 52,000.

    Parameters
    ----------
    noun : a pattern of the words that may follow the number
    thousand : the value of k

    Raises
    ------
    ValueError
        The text is not a finite number, with or without one of these letters or words.

    Examples
    --------
    >>> parse_tokens("2T"), parse_tokens("300 B tokens"), parse_tokens("2e12"), parse_tokens("52,000")
    (2000000000000.0, 300000000000.0, 2000000000000.0, 52000.0)
    """
    match = NUMBER.fullmatch(without_separators(text))
    word = re.sub(rf"(?:\b|(?<=^[kKMBT]))(?:{noun})$", "", match[2]).strip().lower() if match else ""
    letter = MULTIPLES_OF_WORDS.get(word.removesuffix("i"), None if word else "")
    count = math.inf
    if match and letter is not None and word not in _SLIPS:
        count = float(match[1]) * (1024 if word.endswith("i") else thousand) ** _POWER[letter]
    if not math.isfinite(count):
        raise ValueError("a number of tokens, such as 2e12, 2T or 300B")
    return count


def parse_length(text: str, thousand: int = 1024) -> int:
    """Return the number of tokens of a sequence, as people write context lengths: 32k is 32,768.

    `thousand` is the value of k.

    Raises
    ------
    ValueError
        The text is not a whole number, with or without a k (1,024) or an M (1,048,576).

    Examples
    --------
    >>> parse_length("4096"), parse_length("4,096"), parse_length("32k tokens"), parse_length("1M")
    (4096, 4096, 32768, 1048576)
    """
    with suppress(ValueError):
        if (count := parse_tokens(text, thousand=thousand)).is_integer() and 0 <= count < 1e12:
            return int(count)
    raise ValueError("a whole number of tokens, such as 8192, 8k or 1M")


def fraction_of(text: str) -> float | None:
    """Return a fraction that is written as a number or in percent; None for another text.

    >>> fraction_of("80 %"), fraction_of("0.8"), fraction_of("most")
    (0.8, 0.8, None)
    """
    number = text.strip()
    try:
        return float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
    except ValueError:
        return None


def number_of(text: str, field: str) -> object:
    """Return the number that a text means in a field, or the text if it is no number.

    The name of the field states the unit.

    >>> number_of("8k", "rank_tokens"), number_of("10k", "requests"), number_of("50 %", "memory_fraction")
    (8192, 10000, 0.5)
    """
    with suppress(ValueError):
        if field in _COUNTS:
            return int(parse_tokens(text, r"tokens?|requests?|steps?|users?"))
        if field.endswith(("_tokens", "_length")):
            return parse_length(text)
    is_share = "%" in text and field.endswith(("fraction", "share", "ratio"))
    return fraction_of(text) or text if is_share else text


def parse_rate(text: str) -> float:
    """Return a rate as a number per second: "4/s", "240 requests per minute", "4 rps", or "4".

    Raises
    ------
    ValueError
        The text is not a finite number, with or without a unit of time.

    Examples
    --------
    >>> parse_rate("240/min"), parse_rate("3600 requests per hour"), parse_rate("4 qps"), parse_rate("4")
    (4.0, 1.0, 4.0, 4.0)
    """
    match = NUMBER.fullmatch(without_separators(text))
    per = _PERIOD.fullmatch(PER.sub("/", match[2]).lower()) if match else None
    time = unit_symbol(per[1] or per[2] or "s") if per else ""
    period = _SECONDS.get("min" if time == "m" else time)
    if match is None or period is None:
        raise ValueError("a rate such as 4/s or 240/min")
    return float(match[1]) / period


def parse_usd(text: str) -> float:
    """Return an amount of dollars, with or without its unit; raise ValueError for other texts.

    >>> parse_usd("2.5M USD"), parse_usd("$40,000"), parse_usd("1.5 million dollars")
    (2500000.0, 40000.0, 1500000.0)
    """
    return parse_tokens(text.strip().removeprefix("$"), r"USD|(?:US )?dollars?|\$")


def joined_units(text: str) -> str:
    """Return settings in one line without spaces inside their quantities: "every=10 min" is "every=10min".

    >>> joined_units("rate=4 requests per second prompt=2k tokens sp"), joined_units("a=50 % tp=2 pp=4")
    ('rate=4requests/second prompt=2ktokens sp', 'a=50% tp=2 pp=4')
    """
    text = re.sub(r"\s+per\s+|\s+/\s*(?=[a-z]+\b(?!/))|(?<=\w)/\s+", "/", text)
    return _AFTER_NUMBER.sub(lambda found: found[1] + found[2].replace(" ", ""), text)


def exactly(value: int | float, unit: str) -> str:
    """Return the shortest text that `parse_quantity` reads as this exact value; `unit` is an SI unit.

    >>> exactly(85899345920.0, "B"), exactly(2.039e12, "B/s"), exactly(1 / 3, "s")
    ('80 GiB', '2039 GB/s', '0.3333333333333333 s')
    """
    texts = [f"{value!r} {unit}"]
    for prefix, scale in PREFIXES.items():
        if _may_stand(prefix, unit):
            text = f"{value / scale:.15g} {prefix}{unit}"
            texts += [text] if parse_quantity(text, (unit,)) == value else []
    return min(texts, key=len)
