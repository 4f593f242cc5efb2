"""Values with a typing error: which value was meant?

Answers: which allowed number or word do "4096 GB", [8], -64, "8,192" or "ture" mean?
Elsewhere: quantities (quantities.py), names of the catalogue (files/nearest_names.py).

A wrong value is compared with the text of the allowed values, which all errors state in the same words.
"""

import math
import re

from flopcast.meant_quantities import in_digits, is_rising
from flopcast.quantities import fraction_of, parse_length, without_separators

NEAR_RATIO = 0.7  # of letters in common, from which a word is a misspelling of an allowed one
_NUMBER = re.compile(
    r"a? ?(?:(whole) numbers?(?: of tokens)?(?=$|,|;| )"
    r"|(?:finite )?number(?=$| of at| from| above| below| or ))"
    r"|above|a (number of tokens)(?= \()|(at least)(?= -?\d+$)"
)
_LEAST = re.compile(r"(?:at least|from|(above)) (-?[\d.,]*\d)")
_MOST = re.compile(r"(?:at most|to|(below)) (-?[\d.,]*\d(?:e\+\d+)?)")
_EXAMPLE = re.compile(r"such as (\d+)(?=, | or |$)")
_MOST_BELOW_EXAMPLE = 256
_WITH_UNIT = re.compile(  # but no "8.5k" and no "7B", which are other numbers
    r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?![kKmMbBtT]$)(?:[A-Za-z]+(?:/\w+)?)?"
)
_LARGE = re.compile(
    r"(?<![\d.])\d{1,3}(?:\.\d+)?\s*[gGtTpP]i?[bB]$"
)  # the unit belongs to so small a number
_RATE = re.compile(r"-\d[\d.]*\s*/\s*\w+")
_WORDS = re.compile(r"'?[\w.+-]+'?(?:(?:,| or|, or) '?[\w.+-]+'?)+")
_MOST_DIGITS = 1e15  # larger numbers are no slips of the pen
_SWITCHES = {"yes": "true", "on": "true", "enabled": "true", "no": "false", "off": "false", "none": "false"}
OFF = ("false", *(word for word, meaning in _SWITCHES.items() if meaning == "false"))


def meant(value: object, allowed: str, fix: str = "", thousand: int = 1024) -> str:
    """Return the allowed number or word that a wrong value certainly means; "" if none is certain.

    Parameters
    ----------
    value : the wrong value, as a file or an option has it
    allowed, fix : the allowed values, and the present fix, in the words of an error
    thousand : the value of k

    Examples
    --------
    >>> whole = "a whole number of at least 1"
    >>> [meant(wrong, whole) for wrong in ("4096 GB", [8], -64, "8,192", 2.5, "fast", -1, True)]
    ['4096', '8', '64', '8192', '2', '', '', '']
    >>> meant(-0.5, "a number from 0 to 1"), meant(90, "a number above 0, at most 1")
    ('0.5', '')
    >>> meant("four", whole), meant("4.5k", whole), meant("90%", "a number above 0 and at most 1")
    ('4', '4608', '0.9')
    >>> [meant(wrong, "a whole number of tokens, such as 8192") for wrong in ("8 KiB", "4096 GB", "8 GB")]
    ['8192', '4096', '']
    >>> meant("8q", "a whole number of tokens, such as 8192, 8k or 1M")
    ''
    >>> meant("ture", "true or false"), meant("flota16", "float32, float16, auto"), meant("x", "a, b or c")
    ('true', 'float16', '')
    >>> meant("1 GB", "0, 1, 2 or 3"), meant("stage3", "0, 1 or 3"), meant("float6", "float16 or float64")
    ('1', '3', '')
    """
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], (list, dict)):
        value = value[0]
        if isinstance(value, bool):
            return str(value).lower() if allowed == "true or false" else ""
    if isinstance(value, bool) or value is None or isinstance(value, (list, dict, tuple)):
        return ""
    if (allowed.startswith("a quantity") and re.match(r"-\d", str(value))) or _RATE.fullmatch(str(value)):
        return str(value)[1:]
    if is_rising(str(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if number := _NUMBER.match(allowed):
        return _number(
            str(value).strip(" \"'[],;"),
            allowed,
            _EXAMPLE.search(allowed) or _EXAMPLE.search(fix),
            thousand,
            whole=any(number.groups()),
        )
    return _word(str(value).strip(" \"'"), allowed)


def whole_number(value: object, otherwise: int) -> int:
    """Return the whole number above 0 that a wrong count probably means.

    >>> [whole_number(wrong, 8) for wrong in ("16", 16.5, -4, "four", True)]
    [16, 16, 4, 4, 8]
    """
    return int(meant(value, "a whole number of at least 1") or otherwise)


def _number(text: str, allowed: str, usual: re.Match[str] | None, thousand: int, *, whole: bool) -> str:
    """Return the number in a text, without its sign, unit or fraction if these are not allowed."""
    text = re.sub(r"(?<=\d)\s*(?:[:/]|to)\s*1$", "", in_digits(text))  # "4:1" is the ratio 4
    if whole:
        text = re.sub(r"^(\d+[kKM]?)\s*(?:\.{2,3}|–|to)\s*\d.*$", r"\1", text)  # a range has no one value
    if whole and (product := re.fullmatch(r"(\d{1,6})[x*](\d{1,6})", text)):  # "2x8" devices
        text = str(int(product[1]) * int(product[2]))
    if not whole and text.endswith("%") and (fraction := fraction_of(text)) is not None:
        text = f"{fraction:g}"
    if not whole:  # a decimal comma
        text = re.sub(r"^(-?\d+),(\d\d?)$", r"\1.\2", text)
    try:
        text = str(parse_length(re.sub(r"(?<=\d)\s*([kKmM])i?[bB]$", r"\1", text), thousand))
    except ValueError:
        if re.fullmatch(r"-\d[\d.]* ?[kKmMbBtT]", text) and not whole:
            return text[1:]
        found = _WITH_UNIT.fullmatch(without_separators(text))
        if found is None or ((usual or "tokens" in allowed) and _LARGE.search(text)):
            return ""
        if usual and found[1] != text and float(found[1]) < float(usual[1]) / _MOST_BELOW_EXAMPLE:
            return ""  # of "8q" tokens, the letter is probably a slip, too
        text = found[1]
    number = float(text)
    if not math.isfinite(number):
        return ""
    least, most = _LEAST.search(allowed), _MOST.search(allowed)
    low = float(least[2].replace(",", "")) if least else -math.inf
    high = float(most[2].replace(",", "")) if most else math.inf
    # Far smaller numbers, such as -5 tokens, are no slips of a sign.
    is_usual = usual is None or -number >= float(usual[1]) / _MOST_BELOW_EXAMPLE
    if number < 0 <= (0 if whole and not least else low) and number != -1 and is_usual:
        number, text = -number, text.lstrip("-")
    is_mixed = whole and not number.is_integer() and number > 1
    too_small = is_mixed and usual and number < float(usual[1]) / _MOST_BELOW_EXAMPLE  # 4.5 tokens
    if is_mixed:
        number, text = math.floor(number), str(math.floor(number))
    outside = (
        too_small or not low <= number <= min(high, _MOST_DIGITS) or (least and least[1] and number == low)
    )
    if outside or (most and most[1] and number == high) or (whole and not float(number).is_integer()):
        return ""
    return str(int(number)) if whole else text


def _word(value: str, allowed: str) -> str:
    """Return the listed word that is most like a text; "" if none is near."""
    listed = _WORDS.fullmatch(allowed)
    if listed is None:
        return ""
    import difflib  # only a wrong word needs it

    words = re.findall(r"[\w.+-]+", allowed.replace(" or ", ", "))
    begun: list[str] = [word for word in words if "_" in word if word.replace("_", "").startswith(value)]
    others = [word for word in words if value in word.split("_")[1:]]
    if len(begun) == 1 < len(value) and not others:  # adamw_8bit of adamw8
        return begun[0]
    if all(map(str.isdecimal, words)):
        found = _WITH_UNIT.fullmatch(in_digits(re.sub(r"^[a-zA-Z]+[ _-]?(?=\d)", "", value.lstrip("-"))))
        return found[1] if found and found[1] in words else ""
    if set(words) == {"true", "false"} and value.lower() in _SWITCHES:
        return _SWITCHES[value.lower()]
    digits = re.search(r"\d*$", value)
    alike_words = [
        word
        for word in words
        if not digits or not digits[0] or re.search(rf"(?<!\d){digits[0]}$|\D$", word)
    ]
    near = difflib.get_close_matches(value.lower(), alike_words, n=2, cutoff=NEAR_RATIO)
    alike = [difflib.SequenceMatcher(None, word, value.lower()).ratio() for word in near]
    return near[0] if len(set(alike)) == len(alike) > 0 else ""
