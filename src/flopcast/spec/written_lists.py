"""Lists that a user writes as words, as a mapping or as a list.

Answers: which entries does "optimizer:host,activations:nvme", or the corresponding YAML list, have, and how
does the schema describe such fields?
Elsewhere: the meaning of an entry (offload.py, slow_parts.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flopcast.fixes import edits_of, in_place
from flopcast.strict_model import NotAllowedError

Meaning = TypeVar("Meaning")


def entries_of(
    given: object,
    of_word: Callable[[str], object],
    of_mapping: Callable[[Mapping[object, object]], Iterable[object]],
) -> object:
    """Return the entries of a list as a tuple. Other values do not change.

    Parameters
    ----------
    given : words separated by commas, where "" and "none" are no entries, a mapping, or a list
    of_word, of_mapping : functions that return the entry of a word, and the entries of a mapping

    Examples
    --------
    >>> entries_of("host, nvme", str.upper, list), entries_of("none", str.upper, list)
    (('HOST', 'NVME'), ())
    >>> entries_of([{"kind": "host"}, "nvme"], str.upper, list), entries_of(3, str.upper, list)
    (({'kind': 'host'}, 'NVME'), 3)
    """
    if isinstance(given, str):
        words = [word.strip() for word in given.split(",")]
        return () if words in ([""], ["none"]) else tuple(meanings(words, of_word, given))
    if isinstance(given, Mapping):
        return tuple(of_mapping(given))
    if isinstance(given, (list, tuple)):
        return tuple(of_word(each) if isinstance(each, str) else each for each in given)
    return given


def meanings(
    words: Sequence[str], of_word: Callable[[str], Meaning], text: str, separator: str = ","
) -> list[Meaning]:
    """Return the meaning of each word of a text.

    Raises
    ------
    NotAllowedError
        Words are wrong. The fix is the whole text with all corrections.
    """
    found, faults = list[Meaning](), dict[str, NotAllowedError]()
    for word in words:
        try:
            found.append(of_word(word))
        except NotAllowedError as error:
            faults[word] = error
    if len(faults) > 1:
        parts = [corrected(word, faults[word].fix) if word in faults else word for word in words]
        right = separator.join(filter(None, parts))
        because = "; ".join(dict.fromkeys(fault.because for fault in faults.values()))
        fix = in_place(right, text) if right else f"remove {text}"
        raise NotAllowedError(next(iter(faults.values())).allowed, because, fix)
    for fault in faults.values():
        raise fault
    return found


def corrected(word: str, fix: str) -> str:
    """Return a word with the first value that a fix writes in place of it, or of a part of it.

    >>> corrected("nvme every=2x", in_place("every=2", "every=2x")), corrected("to nvme", "remove to")
    ('nvme every=2', 'nvme')
    """
    for value in (str(each) for edit in edits_of(fix) for each in edit.values()):
        part = getattr(fix, "part", "")
        return word.replace(part, value) if part in word and part else value
    removed = fix.removeprefix("remove ")
    return " ".join(each for each in word.split() if each != removed) if removed != fix else word


def or_text(example: str, *others: Mapping[str, object]) -> Callable[[dict[str, Any]], None]:
    """Return a function that makes the schema of a field accept a text and `others` as well."""
    text = {"type": "string", "examples": [example]}

    def accept(schema: dict[str, Any]) -> None:
        """Restrict the schema to the entries of a list, or to an object."""
        array = [{key: schema.pop(key) for key in ("type", "items")}] if "items" in schema else []
        schema["anyOf"] = [*array, text, *others, *schema.get("anyOf", [])]

    return accept


def by_kind(kinds: Iterable[str], description: str, *types: str) -> dict[str, object]:
    """Return the schema of a mapping from kinds to values of these types."""
    value = {"description": description, "anyOf": [{"type": each} for each in types]}
    properties = dict.fromkeys(kinds, value)
    return {"type": "object", "properties": properties, "additionalProperties": False}
