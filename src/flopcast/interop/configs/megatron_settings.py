"""Settings of Megatron-Core in a YAML file, as the flags of an equivalent launch script.

Answers: which flags are equivalent to these keys, and on which line is each?
Elsewhere: the keys of a format (megatron_bridge.py, nemo.py), the meaning of the flags (interop/megatron/).

Bridge and NeMo fill the same TransformerConfig as Megatron-LM's flags, so the same reader reads their
values. Faults and assumptions then name the key in the file and not the flag.
"""

import re
from collections.abc import Mapping

from flopcast.errors import MISSING, Problem
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import line_in
from flopcast.interop.configs.job_reader import JobReader
from flopcast.interop.megatron.arguments import Arguments
from flopcast.interop.megatron.flags import LISTED
from flopcast.interop.megatron.job_builder import JobBuilder
from flopcast.interop.megatron.model import read_model
from flopcast.interop.megatron.offload import LAYERS, SWITCH
from flopcast.interop.megatron.plan import read_plan
from flopcast.interop.megatron.stack import switched
from flopcast.interop.shell.variables import Word
from flopcast.library import catalog
from flopcast.records import replace

Names = Mapping[str, Mapping[str, str]]  # a section, its field → the flag
SECTIONS = ("model", "train", "ddp", "optimizer", "dist", "mixed_precision")
_TABLE = read_table(__package__, "tables/megatron_core_fields.yaml")


def _flags(fields: Mapping[str, str]) -> Names:
    """Return the flag of each field of each section; a flag has its field's name unless it is renamed."""
    renamed: Mapping[str, str] = _TABLE["renamed"]
    return {
        section: {name: renamed.get(name, f"--{name.replace('_', '-')}") for name in words.split()}
        for section, words in (dict.fromkeys(SECTIONS, "") | dict(fields)).items()
    }


VALUES = _flags(_TABLE["values"])  # flags with the value of the field
ON = _flags(_TABLE["on"])  # flags that say that a field is true
OFF: Mapping[str, str] = _TABLE["off"]  # a field of the model that is false → its flag
DIVIDING = ("tensor_model", "pipeline_model", "context")  # degrees that divide a replica
TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.uint8": "fp8"}
SETTINGS = re.compile(r"(write|add)((?: --[\w-]+ \S+)+)")  # a fix on a command line
SETTING = re.compile(r"(--[\w-]+) (\S+)")
EXAMPLE = re.compile(r"such as --[\w-]+ ")
FLAG = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")


class TranslatedFlags:
    """The flags that correspond to a file's keys, each with its key."""

    def __init__(self, reader: JobReader) -> None:
        """Start without flags."""
        self._reader = reader
        self._flags: list[Word] = []
        self._keys: dict[str, str] = {}
        self._null: dict[str, str] = {}

    def section(self, name: str, fields: str = "", skipped: tuple[str, ...] = ()) -> None:
        """Add every field of a section that corresponds to a flag; null is ignored.

        Parameters
        ----------
        name : the section of the file
        fields : the section of the tables, if it has another name
        skipped : fields with another meaning in this section
        """
        fields = fields or name
        for field, flag in VALUES[fields].items():
            key, value = self._value(f"{name}.{field}")
            self._null.setdefault(flag, key)
            if field not in skipped and value is not None:
                self.add(flag, key, value if flag in LISTED or not isinstance(value, list) else str(value))
        switches = [(field, flag, True) for field, flag in ON[fields].items()]
        switches += [(field, flag, False) for field, flag in OFF.items() if fields == "model"]
        for field, flag, wanted in switches:
            key = f"{name}.{field}"
            given = field not in skipped and self._reader.has(key)
            if given and self._reader.flag(key, not wanted) is wanted:
                self.add(flag, key)

    def add(self, flag: str, key: str, value: object = None) -> None:
        """Add a flag, with the value of a key or without a value."""
        line = self._line(key)
        self._keys.setdefault(flag, self._reader.first(key))
        self._flags.append(Word(flag, line))
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                self._flags.append(Word(str(one), line))

    def add_value(self, word: str, key: str) -> None:
        """Add another value of the last flag."""
        self._flags.append(Word(word, self._line(key)))

    def offloading(self) -> None:
        """Add activations of layers on the host: `cpu_offloading` of TransformerConfig, and its number."""
        reader, on = self._reader, "model.cpu_offloading"
        if not reader.flag(on):
            return
        if reader.flag(f"{on}_weights"):
            reader.refuse(f"{on}_weights", "offload of weights one layer at a time", "write false")
        if not reader.flag(f"{on}_activations", True):
            return
        self.add(SWITCH, on)
        if reader.has(f"{on}_num_layers"):
            self.add(LAYERS, f"{on}_num_layers", reader.raw(f"{on}_num_layers"))

    def name_key(self, flag: str, key: str) -> None:
        """Set the key that faults name for a flag, even if the flag is not added."""
        self._keys.setdefault(flag, key)

    def read(self, ranks: int | None, base: str) -> dict[str, object]:
        """Read the job of all flags into the config reader; return its changes to the job's stack.

        Parameters
        ----------
        ranks : devices of the job; None if they are not stated, which is reported elsewhere
        base : the catalogue's stack of the program
        """
        reader = self._reader
        builder = JobBuilder(reader.document.name, self._flags, 1)
        read_model(builder)
        read_plan(builder, ranks)
        changes = switched(builder, catalog.stack(base))
        named = "--vocab-size" if reader.options.model else ""  # the model of the command line has its own
        self._report([problem for problem in builder.problems if problem.field != named], builder)
        own = reader.data.get("model")
        model = {} if reader.options.model else builder.data["model"]
        reader.data |= builder.data
        reader.data["model"] = (model if isinstance(model, dict) else {}) | (
            own if isinstance(own, dict) else {}
        )
        reader.lines = builder.lines | reader.lines
        self._name_keys(builder)
        return changes

    def read_plan(self, ranks: int) -> None:
        """Read the plan of all flags into the config reader, for the layers of the model that it names."""
        builder = JobBuilder(self._reader.document.name, self._flags, 1)
        base = str(self._reader.part("model").get("base", ""))
        builder.layers = catalog.model(base).num_blocks if base else 1
        read_plan(builder, ranks)
        self._report(builder.problems, builder)
        self._reader.data["plan"] = builder.data["plan"]
        self._reader.lines |= builder.lines
        self._name_keys(builder)

    def _name_keys(self, builder: JobBuilder) -> None:
        """Record the key of each value of the job, so that errors name it."""
        flags = {path: flag for path, flag in builder.flags.items() if flag in self._keys}
        self._reader.names |= {path: self._keys[flag] for path, flag in flags.items()}

    def _report(self, problems: list[Problem], arguments: Arguments) -> None:
        """Add the problems and assumptions about flags to those of the file, under its key names."""
        for each in map(self._with_keys, problems):
            if each.fault == MISSING:  # or misspelt
                self._reader.fault(each.field, each.allowed, each.because, each.fix, MISSING)
            else:
                self._reader.problems.append(each)
        self._reader.assumptions += [self._named(text) for text in arguments.assumptions]

    def _value(self, key: str) -> tuple[str, object]:
        """Return a field's key and value. A dump writes a type as an object, `_target_: torch.bfloat16`;

        overrides write it as text, torch.bfloat16.
        """
        target = f"{key}._target_"
        if self._reader.has(target):
            name = self._reader.text(target)
            return target, TYPES.get(name, name)
        value = self._reader.raw(key) if self._reader.has(key) else None
        return key, TYPES.get(value, value) if isinstance(value, str) else value

    def _line(self, key: str) -> int:
        return line_in(self._reader.where(key)) or 1

    def _named(self, text: str) -> str:
        """Return a text in which keys replace their flags."""
        return FLAG.sub(lambda found: (self._null | self._keys).get(found[0], found[0]), text)

    def _with_keys(self, problem: Problem) -> Problem:
        fix = problem.fix
        if found := SETTINGS.fullmatch(fix):
            fix = f"{found[1]} {' and '.join(': '.join(each) for each in SETTING.findall(found[2]))}"
        return replace(
            problem,
            field=self._named(problem.field),
            allowed=self._named(problem.allowed),
            because=self._named(problem.because).replace("Megatron-LM", self._reader.keys.program),
            fault=self._named(problem.fault),
            fix=self._named(EXAMPLE.sub("such as ", fix)),
        )
