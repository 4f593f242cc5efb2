"""Values of a Hugging Face config.json, read by kind under each family's names.

Answers: which value does this config give to a fact, is it possible, and which of its keys were never read?
Elsewhere: the facts that a family takes from its config (families.py), the resulting model (config.py).

Configs use many keys for one fact: `hidden_size`, `n_embd`, `d_model`. facts.yaml lists them; if several
are given, the first counts, and sizes must agree. A key inside a mapping has a dot, `attn_config.alibi`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from flopcast.errors import Problem
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_paths import dotted
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import Document, Path
from flopcast.fixes import Fix
from flopcast.records import Record
from flopcast.spec.rules_size import MOST_LAYERS

NESTED = ("attn_config", "ffn_config", "linear_attn_config")  # mappings whose entries are keys
ROPE = "rope_parameters"  # transformers 5 saves rope_theta, rotary_pct and their like in this mapping
ROTARY_PART = f"{ROPE}.partial_rotary_factor"
ALLOWED = {  # kind of value → what would pass
    "count": "a whole number of at least 1",
    "layers": f"a whole number from 1 to {MOST_LAYERS}",
    "share": "a number of at least 0 and below 1",
    "part": "a number above 0 and at most 1",
    "factor": "a number above 0",
    "weight": "a number of at least 0",
    "flag": "true or false",
    "text": "a string",
}
EXPECTED = "the code of the model in transformers expects such a value"
RIGHT_VALUE = "copy {} from the original config.json of the model"
NOTHING = ("none", "null", "off", "false", "~")  # texts and flags that mean that there is no such part
ZERO = {"share": "0", "weight": "0"}  # how numbers of these kinds say the same
SAFE: dict[str, object] = {  # what stands in for a faulty value, so that the rest is still checked
    "count": 1, "layers": 1, "share": 0.0, "part": 1.0, "factor": 1.0, "weight": 0.0,
    "flag": False, "text": "",
}  # fmt: skip


class Fact(Record):
    """A fact that configs give: the kind of its value, and its keys.

    `optional` values may be null, which means "follows from other facts" or "none"; with `zero_is_none`, 0
    means the same. With `agree`, keys must not contradict each other.
    """

    kind: str
    keys: tuple[str, ...] = ()
    optional: bool = False
    agree: bool = False
    zero_is_none: bool = False


FACTS = {
    name: Fact(**entry | {"keys": tuple(entry.get("keys", "").split())})
    for name, entry in read_table(__package__, "facts.yaml").items()
}


class Reader:
    """One config, and the findings in it.

    Each key has at most one fault, and each fact at most one default, so that reading a value twice
    changes nothing.

    Examples
    --------
    >>> reader = Reader(Document("config.json", {}, {}), {"n_embd": (("n_embd",), 768)})
    >>> reader.fact("hidden", 1024), reader.fact("layers", 12), reader.defaults
    (768, 12, {'num_hidden_layers': 12})
    """

    def __init__(self, document: Document, values: dict[str, tuple[Path, object]]) -> None:
        """Store the values by key, each with its path."""
        self.document = document
        self.values = values
        self.problems: dict[str, Problem] = {}
        self.defaults: dict[str, object] = {}
        self.used: set[str] = set()

    def fact(self, name: str, default: object, keys: tuple[str, ...] = ()) -> object:
        """Return the value of a fact, under its usual keys or the family's own keys, or the default."""
        fact = FACTS[name]
        keys = keys or fact.keys
        if name == "rotary_fraction":
            keys = (*keys, ROTARY_PART)
        return self.value(fact.kind, keys, default, fact.optional, fact.agree, fact.zero_is_none)

    def value(
        self,
        kind: str,
        keys: tuple[str, ...],
        default: object,
        optional: bool = False,
        agree: bool = False,
        zero_is_none: bool = False,
    ) -> object:
        """Return the value of the first given key.

        Parameters
        ----------
        kind : one of ALLOWED
        keys : the keys of the value, which all count as used
        default : used, and recorded as an assumption, if no key is given; None is not recorded. Of several
            for one fact, the first counts.
        optional : whether null is a value
        zero_is_none : whether 0 means the same as null
        agree : whether further keys must have the same value

        Returns
        -------
        object
            The value, or None; a harmless value of the same kind if the given one is wrong.
        """
        given = [key for key in keys if key in self.values]
        self.used.update(given)
        if not given:
            return default if default is None else self.defaults.setdefault(keys[0], default)
        key = next((key for key in given if self.values[key][1] is not None), given[0])
        value = self.values[key][1]
        if optional and (value is None or (zero_is_none and value == 0 and not isinstance(value, bool))):
            return None
        if not _passes(kind, value):
            null = " or null" if optional else ""
            many = kind == "layers" and type(value) is int and value > MOST_LAYERS
            because = "no known model has so many layers" if many else EXPECTED
            fix = _of_nothing(key, value, "null" if optional else ZERO.get(kind)) or original_value(key)
            self.fault(key, ALLOWED[kind] + null, *_quoted(value, because, fix))
            return SAFE[kind]
        others = [other for other in given if self.values[other][1] not in (None, value)]
        if agree and others:
            because = f"{key} is another name of this setting, and its value is {value!r}"
            self.fault(others[0], repr(value), because, f"remove {others[0]} or {key}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean key of one family."""
        return bool(self.value("flag", (key,), default))

    def count(self, key: str, default: int) -> int:
        """Return a key of one family that is a whole number of at least 1; null counts as missing."""
        number = self.value("count", (key,), default, optional=True)
        return number if isinstance(number, int) else default

    def size(self, name: str, default: int) -> int:
        """Return a fact that is a number, for calculations; null counts as missing."""
        number = self.fact(name, default)
        return number if isinstance(number, int) else default

    def whole(self, key: str, default: int) -> int:
        """Return a key of one family that is a whole number of at least 0; null counts as missing."""
        number = self.raw(key)
        if number is None or (type(number) is int and number >= 0):
            return default if number is None else number
        because = _quoted(number, "this is a number of layers", RIGHT_VALUE.format(key))
        self.fault(key, "a whole number of at least 0", *because)
        return default

    def entries(
        self, key: str, passes: Callable[[Any], bool], allowed: str, number: int | None = None
    ) -> list[Any] | None:
        """Return the list under a key, None if it is missing or faulty.

        Parameters
        ----------
        key : the key; null means a missing value
        passes : tests whether an entry is valid
        allowed : the description of the list in faults: "a list of numbers of layers"
        number : the number of entries, if the model determines it
        """
        entries = self.raw(key)
        if isinstance(entries, list) and number in (None, len(entries)) and all(map(passes, entries)):
            return entries
        if entries is not None:
            self.fault(key, allowed, EXPECTED, RIGHT_VALUE.format(key))
        return None

    def raw(self, key: str) -> object:
        """Return the value of a key, None if it is absent; the key counts as used."""
        self.used.add(key)
        return self.values[key][1] if key in self.values else None

    def fault(self, key: str, allowed: str, because: str, fix: str, fault: str = "") -> None:
        """Record that a key's value is wrong; the first fault of a key is kept."""
        path, value = self.values.get(key, ((key,), None))
        problem = Problem(
            dotted(path), value, allowed, because, fix, where=self.document.where(path), fault=fault
        )
        self.problems.setdefault(key, problem)

    def key_of(self, name: str) -> str:
        """Return the key under which a fact is given, or its usual key, for error messages."""
        keys = FACTS[name].keys
        return next((key for key in keys if key in self.values), keys[0])

    def unused(self, silent: Iterable[str]) -> list[str]:
        """Return the keys that were not read, except cost-free keys and keys with null."""
        known = self.used.union(silent)
        return [key for key, (_, value) in self.values.items() if key not in known and value is not None]


def flattened(data: dict[str, object], path: Path = ()) -> dict[str, tuple[Path, object]]:
    """Return keys with the paths of their values; entries of NESTED mappings have keys with a dot.

    >>> flattened({"d_model": 8, "attn_config": {"alibi": True}})
    {'d_model': (('d_model',), 8), 'attn_config.alibi': (('attn_config', 'alibi'), True)}
    """
    values: dict[str, tuple[Path, object]] = {}
    for key, value in data.items():
        if key in NESTED and isinstance(value, dict):
            inner = flattened(value, (*path, key))
            values |= {f"{key}.{name}": entry for name, entry in inner.items()}
            continue
        values[key] = ((*path, key), value)
        if key == ROPE and isinstance(value, dict):
            values |= _rotary_part(value, (*path, key))
    return values


def _rotary_part(rope: dict[str, object], path: Path) -> dict[str, tuple[Path, object]]:
    """Return the fraction of a head that is rotated, if `rope_parameters` gives it.

    If kinds of layers differ in their rotary positions, there is one mapping for each kind (transformers 5,
    `modeling_rope_utils.py`); the first fraction that is given counts.
    """
    key = "partial_rotary_factor"
    if key in rope:
        return {ROTARY_PART: ((*path, key), rope[key])}
    for kind, part in rope.items():
        if isinstance(part, dict) and key in part:
            return {ROTARY_PART: ((*path, kind, key), part[key])}
    return {}


def original_value(key: str) -> Fix:
    """Return the fix "copy KEY from the original config.json of the model".

    If EXAMPLES has a value of the key, the fix also contains an edit that sets this value as an example,
    so that the other values of the file can be checked.
    """
    example = EXAMPLES.get(key, "")
    edits = ({key: int(example)},) if example.isdecimal() else ()
    such = f", such as {example}" if example else ""
    return Fix(RIGHT_VALUE.format(key) + such, edits, is_example=True)


def _quoted(value: object, because: str, fix: str) -> tuple[str, str]:
    """Return the reason and the fix for a wrong value; a number in quotes has its own reason and fix.

    >>> _quoted("3", "this is a number of layers", "copy it")
    ('the value is a text', 'write 3 without quotes')
    """
    is_number = isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value)
    return ("the value is a text", f"write {value} without quotes") if is_number else (because, fix)


def _of_nothing(key: str, value: object, allowed: str | None) -> str:
    """Return the fix for a value such as "off" if the key expects 0 or null, and "" for other values.

    >>> _of_nothing("attention_dropout", "none", "0")
    'set attention_dropout to 0, which means none'
    """
    is_nothing = value is None or (isinstance(value, (str, bool)) and str(value).lower() in NOTHING)
    return f"set {key} to {allowed}, which means none" if allowed and is_nothing else ""


def _passes(kind: str, value: object) -> bool:
    """Return whether a value is of a kind; true and false are not numbers."""
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "text":
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if kind in ("count", "layers"):
        return isinstance(value, int) and 1 <= value <= (MOST_LAYERS if kind == "layers" else value)
    limits = {"share": 0 <= value < 1, "part": 0 < value <= 1, "weight": value >= 0}
    return limits.get(kind, value > 0)
