"""The names that a user may have meant, for errors about unknown names.

Answers: which known names are most similar to an unknown name?
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

MOST_NAMES = 24  # that an error lists
MOST_LETTERS = 200  # of a name that misspells another
LEAST_RATIO = 0.55  # of letters in common, below which a name is no suggestion


def nearest(
    written: str, known: Iterable[str], most: int = 1, least_ratio: float = LEAST_RATIO
) -> list[str]:
    """Return the most similar known names, the nearest first; empty if none is similar.

    Case, separators and the folder of a hub's name do not count. Names that contain `written` as a word
    come first, and then names that begin with it. Both groups begin with the shortest name. Names that are
    only similar follow.

    Parameters
    ----------
    written, known
        The unknown name, and the known names.
    most : int
        The largest number of names.
    least_ratio : float
        Of `difflib`: 1 for equal texts, 0 for texts with nothing in common.

    Examples
    --------
    >>> nearest("h100", ["h100-pcie-8", "dgx-h100", "dgx-a100"], 2)
    ['dgx-h100', 'h100-pcie-8']
    >>> nearest("meta-llama/Llama-3-8B", ["llama-3-70b", "llama-3-8b"])
    ['llama-3-8b']
    >>> nearest("dpp", ["dp", "pp", "tp"]), nearest("xyz", ["dp"]), nearest("H1OO", ["h100-pcie", "h200"])
    (['dp'], [], ['h100-pcie'])
    """
    written = re.sub(r"(?<=\d)[oO]+(?![a-zA-Z])", lambda found: "0" * len(found[0]), written)  # "H1OO"
    plain, short = _plain(written), _squeezed(written)
    if not short or len(short) > MOST_LETTERS:
        return []
    names = {name: _squeezed(name) for name in known}
    with_words = [name for name in names if f"-{plain}-" in f"-{_plain(name)}-"]
    begun = [name for name, text in names.items() if text.startswith(short) and name not in with_words]
    if with_words or begun:
        longer = re.compile("-?".join(map(re.escape, short)) + r"\d")  # llama-30b is not llama3
        ends = [name for name in begun if not longer.match(_plain(name))]
        some = (with_words, ends, [name for name in begun if name not in ends])
        return [name for names in some for name in sorted(names, key=_by_length)][:most]
    import difflib  # only a wrong name needs it

    alike = {name: difflib.SequenceMatcher(None, text, short).ratio() for name, text in names.items()}
    near = [name for name, ratio in alike.items() if ratio >= least_ratio]
    return sorted(near, key=lambda name: (-alike[name], -_in_common(names[name], short), name))[:most]


def with_other_numbers(written: str, known: Iterable[str]) -> list[str]:
    """Return the known names that differ from `written` only in the number at the end, the nearest first.

    >>> with_other_numbers("fp6", ["fp16", "fp32", "fp8", "bf16"])
    ['fp8', 'fp16', 'fp32']
    """
    letters = written.rstrip("0123456789")
    if letters in ("", written) or not (number := int(written[len(letters) :])):
        return []
    numbers = {
        name: int(name[len(letters) :]) for name in known if re.fullmatch(rf"{re.escape(letters)}\d+", name)
    }
    return sorted(numbers, key=lambda name: max(numbers[name], number) / max(min(numbers[name], number), 1))


def letters(name: str) -> str:
    """Return the letters and numbers of a name, including a decimal point, because 1.3 is not 13."""
    return re.sub(r"[^a-z0-9.]|(?<![0-9])\.|\.(?![0-9])", "", name.lower())


def has_words(name: str, written: str, *, whole: bool = False) -> bool:
    """Return whether each written word begins a word of a name or, with `whole`, equals a word of the name.

    >>> has_words("a100-sxm4-80gb", "A100 80GB", whole=True), has_words("rtx-4090-24gb", "rtx4090")
    (True, True)
    >>> has_words("l40-48gb", "l4", whole=True), has_words("gb200-192gb", "b200"), has_words("t4-16gb", "")
    (False, False, False)
    """
    words, own = words_of(written), set(words_of(name))
    if whole or len(_squeezed(written)) < 2:
        return bool(words) and set(words) <= own
    begun = all(any(each.startswith(word) for each in own) for word in words)
    return begun or _squeezed(name).startswith(_squeezed(written))


def words_of(name: str) -> list[str]:
    """Return the words of a name in small letters.

    >>> words_of("NVIDIA A100-SXM4-80GB")
    ['nvidia', 'a100', 'sxm4', '80gb']
    """
    return [word for word in _plain(name).split("-") if word]


def begun_words(written: str, found: Collection[str]) -> list[str]:
    """Return the words of `written` with which one of the names, or a word of a name, begins."""
    return [word for word in words_of(written) if any(has_words(name, word) for name in found)]


def counted_name(name: str, devices: Collection[str] = ()) -> tuple[int, str]:
    """Return a number next to the name of a cluster or a device, and the name without the size of an
    instance.

    A number that is the memory of one of `devices`, which the name may mean, is part of the name.

    >>> counted_name("16xH100"), counted_name("dgx-h100 x 2"), counted_name("p5.48xlarge")
    ((16, 'H100'), (2, 'dgx-h100'), (0, 'p5'))
    >>> counted_name("a100-40", ["a100-sxm4-40gb"]), counted_name("a100-4", ["a100-sxm4-40gb"])
    ((0, 'a100-40'), (4, 'a100'))
    """
    found = re.fullmatch(r"(?:(\d+) ?[x*×] ?)?([^.]+?)(?:(?<=[\d ])[x*×] ?(\d+)|-(\d\d?))?(?:\.\w+)?", name)
    if found is None or any(f"{found[4]}gb" in words_of(device) for device in devices):
        return 0, name
    return int(found[1] or found[3] or found[4] or 0), found[2].strip()


def _by_length(name: str) -> tuple[int, str]:
    """Return a sort key: the shortest first."""
    return len(name), name


def _plain(name: str) -> str:
    """Return a name as the catalogue would write it."""
    return name.rstrip("/").rpartition("/")[2].strip().lower().replace("_", "-").replace(" ", "-")


def _squeezed(name: str) -> str:
    """Return a name without separators, so that "llama3" matches "llama-3"."""
    return _plain(name).replace("-", "")


def _in_common(name: str, other: str) -> int:
    """Return how many first letters two names share."""
    return next((i for i, (one, two) in enumerate(zip(name, other, strict=False)) if one != two), len(name))


def some_of(names: Sequence[str], shown: Sequence[str] = ()) -> str:
    """Return names as a list; of more than 24 names, only those in `shown` or, without these, the first 24.

    >>> some_of(["dp", "tp"]), some_of([str(number) for number in range(30)])[-21:]
    ('dp, tp', '22, 23, … (30 in all)')
    >>> some_of([str(number) for number in range(30)], ["7"])
    '7, … (30 in all)'
    """
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(shown or names[:MOST_NAMES])}, … ({len(names)} in all)"


def alternatives(names: Sequence[str]) -> str:
    """Return names as alternatives.

    >>> alternatives(["dp"]), alternatives(["dp", "tp", "pp"])
    ('dp', 'dp, tp or pp')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def choice_fix(text: str, values: Mapping[str, str], default: str, option: str = "") -> str:
    """Return the fix of a word that is not in `values`: the most similar value or, without one, the
    default.

    Parameters
    ----------
    values : maps each allowed word to its meaning
    option : the text before the word on a command line

    Examples
    --------
    >>> dtypes = {"fp16": "fp16", "bf16": "bf16"}
    >>> choice_fix("bf15", dtypes, "fp16"), choice_fix("int8", {"auto": "", "fp8": ""}, "")
    ('did you mean bf16?', 'did you mean fp8?')
    >>> choice_fix("x", dtypes, "bf16")
    'choose one of these values, such as bf16'
    """
    import difflib  # only a wrong word needs it

    from flopcast.files.other_forms import OTHER_VALUES

    others = {word: same for same, word in OTHER_VALUES.items() if same in values} | OTHER_VALUES
    begun = (word for word in values if text and re.match(rf"{re.escape(text)}[_.-]", word))
    if (same := others.get(text) or next(begun, None)) in values:
        return f"did you mean {same}?"
    digits = {word: word[len(word.rstrip("0123456789")) :] for word in (text, *values)}
    alike = [  # float32 is no slip of the pen for float16
        word for word in values if sum(map(str.__ne__, digits[word], digits[text])) < 2
    ]
    near = difflib.get_close_matches(text, alike, n=1) or with_other_numbers(text, values)
    near = near or [word for word in values if digits[text] and re.fullmatch(rf"\D+{digits[text]}", word)]
    if near:
        return f"did you mean {near[0]}?"
    usual = next((word for word, meaning in values.items() if meaning == default and word), "")
    word = f"{option} {usual or next(filter(None, values))}".strip()
    return f"choose one of these values, such as {word}" if len(values) > 1 else f"write {word}"
