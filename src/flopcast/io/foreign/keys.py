"""What the keys of one foreign format are to a forecast.

Answers: does this key set something, cost nothing, cost something that is not counted, ask for what is not
built, or has nobody heard of it?
Elsewhere: reading the values of keys that set something (sheet.py), each format's own table (its file).

A key is written with dots, "zero_optimization.stage". A name that ends in ".*" stands for all
keys below it.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from flopcast.io.megatron.arguments import MANY_EDITS, edits

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


def under(section: str, names: str) -> str:
    """Names with their section in front.

    >>> under("fp16", "enabled loss_scale")
    'fp16.enabled fp16.loss_scale'
    """
    return " ".join(f"{section}.{name}" for name in names.split())


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
    fine : mapping
        Key → further values that ask for nothing, beside `NOTHING`.
    """

    program: str
    read: str
    free: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
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


def covered(key: str, names: Iterable[str]) -> bool:
    """Whether one of these names is the key's, or that of a section that it stands in.

    >>> covered("wandb.project", ["lr", "wandb.*"]), covered("wandb", ["wandb.*"]), covered("lrs", ["lr"])
    (True, True, False)
    """
    return any(
        key == name or (name.endswith(".*") and (key == name[:-2] or key.startswith(name[:-1])))
        for name in names
    )
