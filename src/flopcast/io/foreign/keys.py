"""What the keys of one foreign format are to a forecast.

Answers: does this key set something, cost nothing, cost something that is not counted, ask for what is not
built, or has nobody heard of it?
Elsewhere: reading the values of keys that set something (sheet.py), each format's own table (its file).

A key is written with dots, "zero_optimization.stage". A name that ends in ".*" stands for all
keys below it. Tables are data, tables/*.yaml: names apart by blanks; one may include those of another.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from flopcast.io.megatron.arguments import MANY_EDITS, edits
from flopcast.io.yaml_text import read_yaml

NOTHING: tuple[object, ...] = (
    None,
    False,
    0,
    "",
    "none",
    "None",
    "no",
    "off",
    "false",
    [],
    {},
)  # values that ask for nothing
SHORTEST = 6  # of a last part that is told from a slip


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The keys of a format.

    Attributes
    ----------
    program : str
        Who reads such a file otherwise, as faults name it.
    read : str
        Keys that set something, apart by blanks.
    free : mapping
        Why they cost neither time nor memory of a step → the keys.
    left_out : mapping
        Key → what is counted in spite of it: told, where it asks for something.
    refused : mapping
        Key → what it asks for that is not built.
    listed : str
        Sections of which a dump has all fields: those that are not read and ask for something are told in
        one line.
    fine : mapping
        Key → further values that ask for nothing, beside `NOTHING`.
    """

    program: str
    read: str = ""
    free: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    listed: str = ""
    fine: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    def asks_for_nothing(self, key: str, value: object) -> bool:
        """Whether a value switches nothing on."""
        return any(value is nothing or value == nothing for nothing in (*NOTHING, *self.fine.get(key, ())))

    def sets(self, key: str) -> bool:
        """Whether a key is read."""
        return covered(key, self.read.split())

    def costs_nothing(self, key: str) -> bool:
        """Whether a key is known to cost neither time nor memory."""
        return any(covered(key, names.split()) for names in self.free.values())

    def named_in(self, key: str, table: Mapping[str, str]) -> str | None:
        """The entry of `left_out` or `refused` that covers a key."""
        return next((name for name in table if covered(key, (name,))), None)

    def near(self, key: str) -> tuple[str | None, bool]:
        """The known key that an unknown one is nearest to, and whether it is surely a slip of it."""
        weighty = [name for name in (*self.read.split(), *self.refused) if not name.endswith("*")]
        others = [name for names in self.free.values() for name in names.split()]
        near = difflib.get_close_matches(key, [*weighty, *others, *self.left_out], n=1, cutoff=0.8)
        if not near:
            return None, False
        long = len(key.rpartition(".")[2]) >= SHORTEST
        return near[0], near[0] in weighty and long and edits(key, near[0]) < MANY_EDITS


@cache
def keys_of(name: str) -> Keys:
    """The table of a format.

    >>> keys_of("axolotl").program, keys_of("axolotl").costs_nothing("learning_rate")
    ('Axolotl', True)
    """
    place = files(__package__).joinpath("tables", f"{name}.yaml")
    data = read_yaml(place.read_bytes(), f"{name}.yaml").data
    table: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
    included = table.pop("includes", None)
    free = (keys_of(included).free if included else {}) | table.get("free", {})
    fine = {key: tuple(values) for key, values in table.get("fine", {}).items()}
    return Keys(**table | {"free": free, "fine": fine})


def covered(key: str, names: Iterable[str]) -> bool:
    """Whether one of these names is the key's, or that of a section that it stands in.

    >>> covered("wandb.project", ["lr", "wandb.*"]), covered("wandb", ["wandb.*"]), covered("lrs", ["lr"])
    (True, True, False)
    """
    return any(
        key == name or (name.endswith(".*") and (key == name[:-2] or key.startswith(name[:-1])))
        for name in names
    )
