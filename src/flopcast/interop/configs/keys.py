"""The keys of one foreign format: which are read, ignored, or refused.

Answers: does flopcast read this key, does it cost nothing, or is it left out, unsupported or unknown?
Elsewhere: reading the values of keys (config_reader.py), each format's own table (its file).

A key is written with dots, "zero_optimization.stage". A name that ends in ".*" stands for all keys below
it. Tables are data, tables/*.yaml, with names separated by blanks; a table may include the names of
another.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache

from flopcast.files.package_table import meanings, read_table
from flopcast.files.unknown_keys import MANY_EDITS, NOTHING, UnknownKey, costly_part, edits, unknown_key
from flopcast.files.yaml_text import Path
from flopcast.fixes import in_place
from flopcast.records import Record, field

MOST = 10**12  # of a whole number in such a file
LETTERS_OF_EDIT = 4  # of a name, for each letter in which a misspelling differs


class Keys(Record, slots=False):
    """The keys of a format.

    Attributes
    ----------
    program : str
        The program that reads such a file, as error messages name it.
    program_of_scripts : str
        The program that reads these settings as arguments of a Python script, "" if it is the same.
    with_file : bool
        Whether DeepSpeed's settings can be given as a second file of the same job.
    deepspeed_name : str
        A name of DeepSpeed's settings that the program itself contains; "" if it contains none.
    read : str
        Keys that the reader uses, separated by blanks.
    free : mapping
        Maps a reason why keys change neither the time nor the memory of a step to these keys.
    left_out : mapping
        Maps a key to a note about what is counted instead; the note is shown if the key is switched on.
    refused : mapping
        Maps a key to the unsupported feature that it switches on.
    listed : str
        Sections whose fields are all in a dump; switched-on fields that are not read give one note.
    fine : mapping
        Maps a key to values, besides `NOTHING`, that switch nothing on.
    settings : mapping
        Maps the reader's name of a setting to its keys, separated by blanks; the first given key counts.
    words : mapping
        Maps the name of a setting to what each word of the program means in flopcast. A table lists the
        words of each meaning, separated by blanks.
    """

    program: str
    program_of_scripts: str = ""
    with_file: bool = False
    deepspeed_name: str = ""
    read: str = ""
    free: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    listed: str = ""
    fine: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def asks_for_nothing(self, key: str, value: object) -> bool:
        """Return whether a value switches nothing on."""
        return any(value is nothing or value == nothing for nothing in (*NOTHING, *self.fine.get(key, ())))

    def sets(self, key: str) -> bool:
        """Return whether the reader uses a key."""
        return covered(key, _names(self.read))

    def value_above(self, key: str) -> str:
        """Return the known key with a plain value below which this key is written; "" if there is none."""
        parts, read = key.split("."), _names(self.read)
        above = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        return next((name for name in above if name in read and not self.is_section(name)), "")

    def is_section(self, key: str) -> bool:
        """Return whether the table has a key below this one."""
        return key in self._sections

    @cached_property
    def _sections(self) -> frozenset[str]:
        parts = [name.split(".") for name in self._named]
        return frozenset(".".join(each[:depth]) for each in parts for depth in range(1, len(each)))

    def wrong_shape(self, key: str, value: object) -> tuple[Sequence[str], Mapping[str, object]] | None:
        """Return the fault of a section in place of one value, or of a value in place of a section.

        The fault consists of the arguments of `ConfigReader.fault`. With it comes the section that
        the value means. None if the key has the right shape.

        >>> keys_of("deepspeed").wrong_shape("bf16", True)[1], keys_of("deepspeed").wrong_shape("bf16", 2)
        ({'enabled': True}, None)
        """
        because = f"{self.program} expects no section here"
        if value_key := self.value_above(key):
            fix = f"write one value for {value_key}, in place of the section"
            return (value_key, "a single value", because, fix, "is a mapping"), {}
        meant = {"true": True, "false": False}.get(str(value).lower(), value)
        words = [("device", meant), ("type", meant)] if isinstance(meant, str) else [("stage", meant)]
        if isinstance(meant, bool) or not re.fullmatch(r"\w+|[\d.]+", str(meant)):  # no name, no number
            words = [("enabled", meant is not False), ("device", "cpu")]
        known = _names(self.read)
        section = next(({name: inner} for name, inner in words if f"{key}.{name}" in known), {})
        if not section or self.sets(key):
            return None
        fix = in_place(json.dumps(section), json.dumps(value))
        return (key, f"a section with {next(iter(section))}", because.replace("no", "a"), fix), section

    def costs_nothing(self, key: str) -> bool:
        """Return whether a key is known to cost neither time nor memory.

        A wildcard does not cover a name with a word for a size or a degree (`unknown_keys.costly_part`).
        """
        covering = self._free & _covering(key)
        return key in covering or any(not costly_part(key.removeprefix(name[:-1])) for name in covering)

    def knows(self, key: str) -> bool:
        """Return whether a table of the format has a key, or the section that contains it."""
        return covered(key, self._named) or covered(key, _names(self.listed))

    @cached_property
    def _free(self) -> frozenset[str]:
        return frozenset[str]().union(*map(_names, self.free.values()))

    @cached_property
    def _named(self) -> frozenset[str]:
        """The keys that the reader uses, and those of the tables of keys that it does not use."""
        return _names(self.read).union(self._free, self.left_out, self.refused)

    def named_in(self, key: str, table: Mapping[str, str]) -> str | None:
        """Return the entry of `left_out` or `refused` that covers a key."""
        covering = _covering(key)
        return next((name for name in table if name in covering), None)

    def weighty_in_list(self, key: str, value: object) -> Iterator[tuple[str, UnknownKey]]:
        """Yield the keys of mappings in a list whose name contains a word for a size or a degree.

        No known key in such a list has a name of this kind.

        >>> [key for key, _ in Keys(program="A trainer", read="parts").weighty_in_list(
        ...     "parts", [{"name": "a", "num_expert_layers": 3}])]
        ['parts.num_expert_layers']
        """
        for entry in value if isinstance(value, list) else ():
            for path, inner in flattened(entry):
                judged = self.judged(".".join((key, *map(str, path))), inner, ())
                if judged.because:
                    yield ".".join((key, *map(str, path))), judged

    def weighty(self) -> list[str]:
        """Return the keys that change a prediction or are refused, of which others may be misspellings."""
        return [*self.read.split(), *self.refused]

    def misspelt(self, key: str, given: Collection[str]) -> str:
        """Return the key, which a file lacks, of which a key that only a wildcard covers is a misspelling.

        "" if there is none: keys that the tables name are not misspelt.

        >>> keys_of("nemo").misspelt("trainer.num_nodse", ["trainer.devices"])
        'trainer.num_nodes'
        """
        section, _, name = key.rpartition(".")
        is_in_wildcard = self.costs_nothing(key) or covered(key, _names(self.listed))
        if not is_in_wildcard or key in self._named:
            return ""
        for each in self.weighty():
            own, _, right = each.rpartition(".")
            most = len(right) // LETTERS_OF_EDIT
            is_near = own == section and abs(len(right) - len(name)) <= most
            if is_near and each not in given and edits(name, right) <= min(most, MANY_EDITS - 1):
                return each
        return ""

    def judged(self, key: str, value: object, given: Collection[str]) -> UnknownKey:
        """Return whether an unknown key of a file with these keys is an error or a note.

        Fields of a dump are never misspelt, so they are errors only if their name contains a word for a
        size or a degree.
        """
        weighty = [name for name in self.weighty() if not name.endswith("*")]
        others = [name for names in self.free.values() for name in names.split()]
        if covered(key, self.listed.split()):
            weighty, others = [], [*weighty, *others]
        value = None if self.asks_for_nothing(key, value) else value
        others += self.left_out
        return unknown_key(key, value, program=self.program, weighty=weighty, others=others, given=given)


@cache
def keys_of(name: str) -> Keys:
    """Return the table of a format.

    >>> keys_of("axolotl").program, keys_of("axolotl").costs_nothing("learning_rate")
    ('Axolotl', True)
    """
    table = read_table(__package__, f"tables/{name}.yaml")
    included = table.pop("includes", None)
    own = table.get("read", "").split()
    other = keys_of(included) if included else Keys(program="")
    fine = {key: tuple(values) for key, values in table.get("fine", {}).items()}
    free = {
        reason: " ".join(name for name in names.split() if name not in own)
        for reason, names in other.free.items()
    }
    words = {setting: meanings(named) for setting, named in table.get("words", {}).items()}
    return Keys(
        **table
        | {"free": free | table.get("free", {}), "fine": {**other.fine, **fine}}
        | {"words": {**other.words, **words}, "settings": {**other.settings, **table.get("settings", {})}}
        | {
            name: {key: text for key, text in getattr(other, name).items() if not covered(key, own)}
            | table.get(name, {})
            for name in ("left_out", "refused")
        }
    )


def covered(key: str, names: Iterable[str]) -> bool:
    """Return whether the names include the key, or a section that contains it.

    >>> covered("wandb.project", ["lr", "wandb.*"]), covered("wandb", ["wandb.*"]), covered("lrs", ["lr"])
    (True, True, False)
    """
    return not _covering(key).isdisjoint(names)


@lru_cache(maxsize=4096)  # files of one format hold the same keys
def _covering(key: str) -> frozenset[str]:
    """Return the names that cover a key: its own, and those of the sections that contain it.

    >>> sorted(_covering("wandb.project"))
    ['wandb.*', 'wandb.project', 'wandb.project.*']
    """
    parts = key.split(".")
    return frozenset((key, *(".".join((*parts[:depth], "*")) for depth in range(1, len(parts) + 1))))


@cache
def _names(text: str) -> frozenset[str]:
    """Return the names of a table's text, which are separated by blanks."""
    return frozenset(text.split())


def flattened(data: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield every value of plain data with its path; an empty mapping and a list are values.

    >>> list(flattened({"a": {"b": 1}, "c": [2]}))
    [(('a', 'b'), 1), (('c',), [2])]
    """
    if isinstance(data, dict) and (data or path):
        if not data:
            yield path, data
        for key, value in data.items():
            yield from flattened(value, (*path, str(key)))
    elif path:
        yield path, data


def whole_number(value: object) -> int | None:
    """Return a whole number as JSON, YAML and TOML write it, including 5e8 and "8"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,13}", value) else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= MOST else None
    return value if isinstance(value, int) else None


def way_out(key: str) -> str:
    """Return what a user can do about a key that requests an unsupported feature.

    >>> way_out("profile"), way_out("model.ffn_config.ffn_type")[-33:]
    ('remove profile to predict the job without it', 'predict another model, without it')
    """
    predicted = "another model, " if key.startswith("model.") else "the job "
    return f"remove {key} to predict {predicted}without it"
