"""Values of a space as users write them: numbers, ranges, names and offload, as a text or a list.

Answers: which values does a text or a list mean?
Elsewhere: the fields themselves (space.py), the text of one plan (library/edits.py).
"""

import re
from collections.abc import Mapping

from flopcast.meant_quantities import in_digits, is_single_number
from flopcast.quantities import parse_length
from flopcast.slips import OFF
from flopcast.spec.offload import Placement
from flopcast.spec.shards import ShardGroup
from flopcast.strict_model import NotAllowedError

ALL = "all"
ONE = r"[0-9]+(\.\.[0-9]+(:[0-9]+)?)?"
NUMBERS = re.compile(f"{ONE}(,{ONE})*")
FALLING = re.compile(r"(\d+)\.\.(\d+)(?![\d:])")  # a range, which may fall
WRITTEN = 'whole numbers: 4, "1,2,4", "256..4096" (doubling), "256..1024:256" (in steps) or "all"'
ONLY_FORMS = "only these forms are supported"
ZERO_STAGES = ('ZeRO stages: 0, 1, 2 or 3, or several such as "0,1"', "other stages do not exist")
MOST_VALUES = 65_536
WORDS = (  # fields whose values are words
    "sequence_parallel",
    "recompute",
    "precision",
    "schedule",
    "context_exchange",
    "context_order",
    "tables",
)


def numbers(given: object) -> object:
    """Return whole numbers in a text as a tuple; anything else is returned unchanged.

    "all" is the empty tuple; "256..4096" doubles; "256..1024:256" goes in steps.

    Raises
    ------
    ValueError
        The value is not a number, a list or one of these words, or a range has too many steps.

    Examples
    --------
    >>> numbers("1,2,4"), numbers("256..2048"), numbers("256..1024:256"), numbers(8), numbers("all")
    ((1, 2, 4), (256, 512, 1024, 2048), (256, 512, 768, 1024), (8,), ())
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return (given,)
    if not isinstance(given, str):
        if isinstance(given, (tuple, list)):
            return given
        raise NotAllowedError(WRITTEN, ONLY_FORMS)
    found: list[int] = []
    if given != ALL and not NUMBERS.fullmatch(given.replace(" ", "")):
        raise NotAllowedError(WRITTEN, ONLY_FORMS)
    words = [] if given == ALL else given.replace(" ", "").split(",")
    _check_words(given, words)
    for word in words:
        first, dots, rest = word.partition("..")
        last, colon, step = rest.partition(":")
        if not dots:
            found.append(int(word))
        elif colon:
            steps = range(int(first), int(last) + 1, max(int(step), 1))
            if len(steps) > MOST_VALUES:
                because = f"the search would try {len(steps):,} values"
                raise NotAllowedError(f"at most {MOST_VALUES:,} values of a field", because)
            found += steps
        else:
            found += _doubled(int(first), int(last))
        if dots and not colon and int(first) == 0:
            raise NotAllowedError(f"a range from 1 or more, such as 1..{last}", "0 cannot be doubled")
        if dots and int(last) < int(first):
            raise NotAllowedError(
                f"an increasing range, such as {last}..{first}", f"the range {word} is empty"
            )
    return tuple(found)


def _check_words(given: str, words: list[str]) -> None:
    """Refuse a list that contains a number twice, or that may be one number with a separator."""
    if is_single_number(given):
        because = f"{given} may be one number; for several numbers, write {','.join(reversed(words))}"
        raise NotAllowedError(WRITTEN, because)
    if twice := next((word for word in words if words.count(word) > 1), ""):
        raise NotAllowedError(WRITTEN, f"the list contains {twice} twice")


def wrong_numbers(given: object, name: str, error: NotAllowedError) -> NotAllowedError:
    """Return the error of a field of numbers; its fix states the numbers that were meant."""
    allowed, because = error.allowed, error.because
    if name == "zero":
        allowed, because = ZERO_STAGES[0], ZERO_STAGES[1] if because == ONLY_FORMS else because
    return NotAllowedError(allowed, because, {name: _meant_numbers(given, allowed)})


def _meant_numbers(given: object, allowed: str) -> str:
    """Return the numbers that a wrong text probably means, in a form that is allowed.

    >>> [_meant_numbers(text, WRITTEN) for text in ("2-8", "<=8", "8,16,x", "8,sixteen", "any", "8,192")]
    ['2..8', '1..8', '8,16', '8,16', 'all', '8192']
    >>> _meant_numbers("on", ZERO_STAGES[0]), _meant_numbers("off", ZERO_STAGES[0])
    ('1', '0')
    """
    words = [re.sub(r"^\d+[kK]$", _thousands, in_digits(word.strip())) for word in str(given).split(",")]
    text = ",".join(dict.fromkeys(words))
    right = FALLING.sub(lambda ends: "..".join(sorted(ends.groups(), key=int)), text)
    right = right.replace(",", "") if is_single_number(right) else right
    if NUMBERS.fullmatch(right) and right != str(given).replace(" ", ""):
        return right
    if (below := re.fullmatch(r"\s*<(=?)\s*([2-9]|[1-9]\d+)\s*", text)) and "all" in allowed:
        return f"1..{int(below[2]) - (not below[1])}"
    if rising := re.search(r"(?<=, such as )\d+\.\.\d+", allowed):
        return rising[0]
    if ends := re.fullmatch(r"\s*([1-9]\d*)\s*(?:-|–|:|to|\.{2,3})\s*(\d+)\s*(?:(?:\.\.|:).*)?", text):
        return f"{ends[1]}..{ends[2]}"
    if text.lower() in OFF and "0" not in allowed[:30]:
        return "1"
    stated = re.findall(r"(?<![\w.-])[1-9]\d*", text) or re.findall(r"[1-9]\d*", text)[:1]
    return ",".join(stated) or (ALL if "all" in allowed else "0" if text.lower() in OFF else "1")


def _thousands(found: re.Match[str]) -> str:
    """Return the number in a text such as 1k."""
    return str(parse_length(found[0]))


def _doubled(first: int, last: int) -> list[int]:
    times = range((last // first).bit_length()) if first > 0 else ()
    return [first << time for time in times]


def placements(given: object) -> object:
    """Return placements, or groups of states, as a tuple of values. Each value may contain several of them.

    >>> placements("none optimizer:host,activations:host")
    ('none', 'optimizer:host,activations:host')
    """
    if isinstance(given, str):
        return tuple(re.sub(r",\s+", ",", given).split())
    if isinstance(given, tuple) and any(isinstance(each, (Placement, ShardGroup)) for each in given):
        return (given,)
    return given if isinstance(given, (tuple, list)) else (given,)


def space_values(words: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a space from a text in the form of a plan, whose values may be lists."""
    return {name: _several(name, value) for name, value in words.items()}


def _several(name: str, value: object) -> object:
    """Return the values of one field, separated as in "precision=bf16,fp8" or by bars; numbers stay a text.

    A comma inside a word of recompute ("selective:mlp,layernorm") separates its modules.

    >>> _several("recompute", "none,selective:mlp,layernorm"), _several("tensor_parallel", "2,4")
    (['none', 'selective:mlp,layernorm'], '2,4')
    """
    if name not in WORDS or not isinstance(value, str):
        return value
    several = re.split(r"[,|](?=none|selective|full)" if name == "recompute" else r"[,|]", value)
    return several if len(several) > 1 else value
