"""One foreign file: its typed values by dotted key, their faults, and the job that it describes.

Answers: which value does `zero_optimization.stage` have, on which line is it, and is it allowed?
Elsewhere: the known keys (keys.py and each format's file), the format of a file (formats.py).

Readers return a default if a key is missing or its value is wrong. A wrong value is added to `problems`,
and reading continues, so that all faults are reported together. Nothing is executed and no other file is
opened. Of `${…}` references, only plain ones inside the file are followed.
"""

import re
from collections.abc import Mapping

from flopcast.errors import MISSING, Problem
from flopcast.files.field_examples import EXAMPLES
from flopcast.files.field_names import same_elsewhere, same_in_section
from flopcast.files.nearest_names import choice_fix, nearest
from flopcast.files.unknown_keys import UnknownKey, is_misspelt_switch
from flopcast.files.yaml_text import Document, Path, set_value
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.keys import MOST, Keys, covered, flattened, way_out, whole_number
from flopcast.interop.shell.parameters import FROM_OUTSIDE, from_outside
from flopcast.slips import meant

AUTO = "auto"
SLIP = 0.8  # of letters in common, from which an unknown key is a misspelling of a missing one
REFERENCE = re.compile(r"\$\{(\.{0,3})([A-Za-z_][\w.]*)\}")
LAUNCHER = "launcher"  # the section of a command that starts ranks
NO_SUCH_KEY = "{} has no such key"
SWITCHES = {"true": True, "false": False}
OF_COMMANDS = dict.fromkeys(("1", "yes", "y", "t"), True) | dict.fromkeys(("0", "no", "n", "f"), False)
POSITIVE = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
MOST_HOPS = 8  # references that lead to references


class ConfigReader:
    """The values of a file whose format has these keys; it also collects the job's document.

    Examples
    --------
    >>> keys = Keys(program="A trainer", read="parallel.tp batch", refused={"moe": "experts"})
    >>> reader = ConfigReader(Document("a.yaml", {"parallel": {"tp": 4}, "moe": False, "colour": 1}, {}),
    ...     keys)
    >>> reader.count("parallel.tp"), reader.count("batch", 8), reader.problems, reader.assumptions
    (4, 8, [], ['colour is not known and is ignored (a.yaml)'])
    """

    def __init__(self, document: Document, keys: Keys, options: ImportOptions | None = None) -> None:
        """Sort the keys, and report those that are not counted, not supported or unknown."""
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self.options: ImportOptions = options or ImportOptions()
        self.document = document
        self.keys = keys
        self.data: dict[str, object] = {}
        self.lines: dict[Path, int] = {}
        self.places: dict[Path, str] = {}
        self.names: dict[Path, str] = {}
        self._misspelt: set[str] = set()
        self._values: dict[str, tuple[Path, object]] = {
            ".".join(map(str, path)): (path, value) for path, value in flattened(document.data)
        }
        self._unread: list[str] = []
        for key, (_, value) in [*self._values.items()]:
            self._sort(key, value)
        if self._unread:
            few = ", ".join(sorted(self._unread)[:8]) + (", …" if len(self._unread) > 8 else "")
            self.assume(f"{len(self._unread)} other fields are ignored: {few}")

    def has(self, *keys: str) -> bool:
        """Return whether any of these keys or settings is given and not null."""
        return self._values.get(self.first(*keys), ((), None))[1] is not None

    def is_null(self, key: str) -> bool:
        """Return whether a key is given as null, which turns off a section that is on by default."""
        return key in self._values and self._values[key][1] is None

    def first(self, *keys: str) -> str:
        """Return the first given key of these keys, and of those of settings in the table, or the first."""
        names = [name for key in keys for name in self.keys.settings.get(key, "").split() or [key]]
        return next((name for name in names if self._values.get(name, ((), None))[1] is not None), names[0])

    def below(self, section: str) -> bool:
        """Return whether any key of a section is given."""
        return any(key.startswith(f"{section}.") for key in self._values)

    def section(self, name: str) -> dict[str, object]:
        """Return the keys of a section as in the file; references are not followed."""
        prefix = f"{name}."
        return {
            key.removeprefix(prefix): value
            for key, (_, value) in self._values.items()
            if key.startswith(prefix)
        }

    def part(self, name: str) -> dict[str, object]:
        """Return the values that a part of the job, such as "plan", has so far."""
        values = self.data.get(name)
        return values if isinstance(values, dict) else {}

    def degree(self, name: str) -> int:
        """Return a degree if the plan already has it, otherwise 1."""
        size = self.part("plan").get(name, 1)
        return size if isinstance(size, int) else 1

    def words(self, setting: str) -> Mapping[str, str]:
        """Return a map from the program's words for a setting, such as "dtypes", to those of flopcast."""
        return self.keys.words[setting]

    def where(self, key: str) -> str:
        """Return "file:line" of a key's value, or of the section in which it would be."""
        key = self.first(key)
        return self.document.where(self._values[key][0] if key in self._values else tuple(key.split(".")))

    def raw(self, key: str) -> object:
        """Return the value as in the file, None if it is missing; references are followed.

        A reference that only another program can resolve is a fault.
        """
        key = self.first(key)
        value = self._values[key][1] if key in self._values else None
        for _ in range(MOST_HOPS):
            if not isinstance(value, str) or "${" not in value:
                return value
            match = REFERENCE.fullmatch(value.strip())
            target = self._target(key, match[1], match[2]) if match else ""
            if target not in self._values:
                break
            key, value = target, self._values[target][1]
        allowed = "a plain value, or a reference ${section.key} to a value in the same file"
        because = "flopcast does not run code, and does not read other files or environment variables"
        if not self.faulty(key):
            self.fault(key, allowed, because, "write the value itself")
        return None

    def count(self, key: str, default: int = 1, least: int = 1, auto: str | None = None) -> int:
        """Return a whole number of `least` or more; `default` is the program's value if the key is missing.

        `auto` names the program that decides if the value is "auto", which then means the default; if
        `auto` is None, this value is a fault.
        """
        key = self.first(key)
        value = self.raw(key)
        if value is None or self._automatic(key, value, default, auto):
            return default
        number = whole_number(value)
        if number is None or not least <= number <= MOST:
            because = "the value is not a whole number" if number is None else "the value is out of range"
            name = key.rpartition(".")[2].replace("-", "_")
            usual = EXAMPLES.get(name) or EXAMPLES.get(same_elsewhere(name, EXAMPLES), "")
            allowed = f"a whole number of at least {least}" + f", such as {usual}" * bool(usual)
            right = usual if usual and default <= 1 else max(least, default)
            self.fault(key, allowed, because, f"write {right}")
            return default
        return number

    def required(self, *keys: str) -> int:
        """Return a whole number that the program also requires; the keys are alternative names."""
        key = self.first(*keys)
        if not self.has(key):
            because = f"{self.keys.program} would not start without it"
            example = EXAMPLES.get(key.rpartition(".")[2].replace("-", "_"), "")
            fix = f"add {key}, such as {key}: {example or 1}"
            self.fault(key, "a whole number", because, fix, "is missing")
        return self.count(key)

    def fraction(self, key: str, default_fraction: float) -> float:
        """Return a probability or share in [0, 1]."""
        value = self.raw(key)
        if value is None:
            return default_fraction
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            right = value / 100 if isinstance(value, (int, float)) and 1 < value <= 100 else 0.1
            self.fault(key, "a number from 0 to 1", "the setting is a fraction", f"write {right:g}")
            return default_fraction
        return float(value)

    def put_epochs(self, *keys: str) -> None:
        """Read the number of epochs, which belongs to the run if the command line states its samples."""
        value = self.raw(key := self.first(*keys))
        if value is None:
            return
        if isinstance(value, bool) or not POSITIVE.fullmatch(text := str(value)) or not float(text) > 0:
            allowed, because = "a number above 0", f"{self.keys.program} trains for this number of epochs"
            self.fault(key, allowed, because, f"write {meant(value, 'a whole number of at least 1') or 1}")
        elif self.options.samples:
            self.put(("run", "epochs"), float(text), key)

    def flag(self, key: str, default: bool = False, auto: str | None = None) -> bool:
        """Return a boolean. The parameters are those of `count`."""
        value = self.raw(key := self.first(key))
        if value is None or self._automatic(key, value, default, auto):
            return default
        words, text = SWITCHES | (OF_COMMANDS if self.below(LAUNCHER) else {}), str(value).lower()
        if text in words:
            return words[text]
        right = {"t": "true", "y": "true", "f": "false", "n": "false"}.get(text[:1], str(default).lower())
        self.fault(key, "true or false", "the setting is either on or off", f"write {right}")
        return default

    def choice(self, key: str, values: Mapping[str, str], default: str) -> str:
        """Return the meaning that a list gives to a word; upper and lower case are equal."""
        value = self.raw(key)
        if value is None:
            return default
        if (text := str(value).lower()) in values:
            return values[text]
        known, because = ", ".join(filter(None, values)), "flopcast does not support this value"
        self.fault(key, known, because, choice_fix(text, values, default))
        return default

    def text(self, key: str) -> str:
        """Return a text, "" if there is none."""
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value or ""
        self.fault(key, "a string", "the setting is a name", "write a name")
        return ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text becomes a list of its comma-separated parts."""
        value, right = self.raw(key) or [], "[name, name]"
        if isinstance(value, str) and value.startswith("["):  # names without quotes would have brackets
            right = f"{value.strip('[]')} in place of {value}"
        elif isinstance(value, str):
            value = value.split(",")
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(one.strip() for one in value if one.strip())
        self.fault(key, "a list of names", "each entry is a name", f"write {right}")
        return ()

    def faulty(self, *keys: str) -> bool:
        """Return whether any of these keys has a fault, so that its value must not affect others."""
        found = {problem.field for problem in self.problems} | self._misspelt
        return not found.isdisjoint(map(self.first, keys))

    def fault(self, key: str, allowed: str, because: str, fix: str, fault: str = "") -> None:
        """Record a fault of a key; `fault` describes the fault if the value alone does not show it.

        A key is not reported as missing if an unknown key of the file is a misspelling of it.
        """
        key = self.first(key)
        if fault == MISSING and (near := self._misspelling(key)):
            self._misspelt.add(key)
            self.problems = [each for each in self.problems if each.field != near]  # names another key
            because = NO_SUCH_KEY.format(self.keys.program)
            self._refuse_unknown(near, UnknownKey(near=key, because=because, slip=True))
            return
        value = self._values[key][1] if key in self._values else None
        if value is None and self.faulty(key):  # a check refuses what a misspelt key states
            return
        if self.below(LAUNCHER) and (unset := FROM_OUTSIDE.search(str(value))):
            because = f"only the shell that runs the script knows the value of {unset[0]}"
            number = fix.removeprefix("write ")
            fix = from_outside(unset[0], number if number.isdecimal() else "VALUE")
        problem = Problem(key, value, allowed, because, fix, self.where(key), fault)
        if not any(problem.field == key and not problem.fault for problem in self.problems):
            self.problems.append(problem)

    def refuse(self, key: str, what: str, fix: str = "") -> None:
        """Report a key that requests an unsupported feature."""
        key = self.first(key)
        fine = "another value" if fix else " or ".join(map(str, self.keys.fine.get(key, ())))
        fine = "false" if self.raw(key) is True else fine
        allowed = ", or ".join(filter(None, (fine, "a file without this key")))
        self.fault(key, allowed, f"flopcast does not yet support {what}", fix or way_out(key))

    def assume(self, text: str, key: str = "") -> None:
        """Report an assumption of the prediction, with the line of the key that it concerns."""
        place = f" ({self.where(key)})" if self.first(key) in self._values else ""
        self.assumptions.append(f"{text}{place}")

    def put(self, path: Path, value: object, *keys: str) -> None:
        """Set a value of the job. Its line is that of the first given key."""
        set_value(self.data, path, value)
        given = next((name for name in map(self.first, keys) if name in self._values), None)
        place = self._values[given][0] if given else ()
        if given:
            self.names[path] = given
        if place in self.document.places:  # the value stands in another file
            self.places[path] = self.document.places[place]
        elif given and place in self.document.lines:
            self.lines[path] = self.document.lines[place]

    def _target(self, key: str, dots: str, name: str) -> str:
        """Return the key that a reference means: one dot means its own section, two the section above."""
        return ".".join([*(key.split(".")[: -len(dots)] if dots else ()), name])

    def _automatic(self, key: str, value: object, default: object, auto: str | None) -> bool:
        """Return whether a value is chosen by another program; its default then becomes a note."""
        if value != AUTO or auto is None:
            return False
        self.assume(f"{key}=auto means {str(default).lower()}, {auto}", key)
        return True

    def _sort(self, key: str, value: object) -> None:
        """Report a key that is not counted, not supported or not known."""
        keys = self.keys
        if wrong := keys.wrong_shape(key, value):
            fault, section = wrong
            self.fault(*fault)
            self._values |= {f"{key}.{name}": (self._values[key][0], v) for name, v in section.items()}
            return
        if keys.sets(key):
            for inner, unknown in keys.weighty_in_list(key, value):
                self._refuse_unknown(inner, unknown)
            return
        refused, left_out = keys.named_in(key, keys.refused), keys.named_in(key, keys.left_out)
        if refused or left_out:
            if not keys.asks_for_nothing(key, value):
                if refused:
                    self.refuse(key, keys.refused[refused])
                else:
                    self.assume(f"{key}: {keys.left_out[str(left_out)]}", key)
            return
        lines = self.document.lines.keys() | self.document.places.keys()  # defaults have none
        given = [name for name, (path, _) in self._values.items() if not lines or path in lines]
        near = keys.misspelt(key, given)
        if keys.costs_nothing(key) and not near:
            if is_misspelt_switch(str(value).lower()):  # other values of such keys have no effect
                self.flag(key)
            return
        slip = UnknownKey(near=near, because=NO_SUCH_KEY.format(keys.program), slip=True)
        unknown = slip if near else keys.judged(key, value, given)
        if unknown.because or (unknown.near and self.below(LAUNCHER)):  # a command refuses unknown options
            self._refuse_unknown(key, unknown)
        elif covered(key, keys.listed.split()):
            self._unread += [] if keys.asks_for_nothing(key, value) else [key]
        else:
            hint = f"; did you mean {unknown.near}?" if unknown.near else ""
            self.assume(f"{key} is not known and is ignored{hint}", key)

    def _misspelling(self, key: str) -> str:
        """Return the unknown key of the file that is a misspelling of a missing one, or ""."""
        unknown = [each for each in self._values if not self.keys.knows(each)]
        return next(iter((*nearest(key, unknown, least_ratio=SLIP), *same_in_section(key, unknown))), "")

    def _refuse_unknown(self, key: str, unknown: UnknownKey) -> None:
        """Report an unknown key that may change time or memory; a misspelt section is reported once."""
        pairs = list(zip(key.split("."), (unknown.near or "").split("."), strict=False))
        wrong = [at for at, (part, right) in enumerate(pairs) if part != right]
        if len(wrong) == 1 and wrong[0] < key.count(".") == (unknown.near or "").count("."):
            section, right = (".".join(each[: wrong[0] + 1]) for each in zip(*pairs, strict=True))
            allowed, because = f"a section of {self.keys.program}", NO_SUCH_KEY.format(self.keys.program)
            return self.fault(section, allowed, because, f"did you mean {right}?", "is not known")
        self._misspelt |= {unknown.near} if unknown.near and unknown.slip else set()
        stated = f"remove {key}: {unknown.near} is given" if unknown.near in self._values else way_out(key)
        fix = f"did you mean {unknown.near}?" if unknown.near not in (None, *self._values) else stated
        because = unknown.because or NO_SUCH_KEY.format(self.keys.program)
        self.fault(key, f"a key of {self.keys.program}", because, fix, "is not known")
