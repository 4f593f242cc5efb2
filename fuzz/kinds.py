"""Kinds of inputs: where the examples of each lie, and the command that reads them.

Answers: what does the fuzzer start from, and which words make flopcast read an input?
Elsewhere: how inputs are changed (mutate.py), what must hold (oracles.py).

Most examples are the files of the tests; `corpus/` holds what the tests build while they run. In a command
{file} and {folder} stand for the place of the input, {job} for a small job, {n} for a number of devices,
{text} for the input's first line, {lines} for one word a line, and + for a blank inside a word.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS, FOUND = ROOT / "fuzz" / "corpus", ROOT / "fuzz" / "found"
CONFIGS, RECORDS = ROOT / "tests" / "interop", ROOT / "tests" / "lab"
CATALOG = ROOT / "src" / "flopcast" / "catalog"
JOB = CORPUS / "job" / "chosen.yaml"
DEVICES = (8, 16, 32, 64, 128, 512, 1024)  # tried in turn, until an example is accepted
COMMANDS = {  # kind → syntax, folder of examples, those taken, command
    "hf": ("json", CONFIGS / "configs", slice(None), "import hf {file}"),
    "memory": ("yaml", CORPUS / "job", slice(None), "memory {file} --json"),
    "predict": ("yaml", CORPUS / "job", slice(None), "predict {file} --json"),
    "open": ("yaml", CORPUS / "open", slice(None), "predict {file} --json"),
    "catalogue": ("yaml", CATALOG / "jobs" / "paper", slice(None), "predict {file} --json"),
    "model": (
        "yaml", CATALOG / "models", slice(None, None, 4),
        "memory --model {file} --cluster dgx-h100:1 --plan dp=8+gbs=8 --json",
    ),
    "site": ("yaml", CORPUS / "site", slice(None), "predict {job} --site {file} --json"),
    "phases": ("yaml", CORPUS / "phases", slice(None), "run {job} --phases {file} --json"),
    "plan": ("text", CORPUS / "plan", slice(None), "memory {job} --json --plan={text}"),
    "changes": ("text", CORPUS / "changes", slice(None), "memory {job} --json -- {lines}"),
    "schedule": (
        "csv", CORPUS / "schedule", slice(None),
        "memory {job} --json --plan dp=2+tp=2+pp=4+mbs=1+gbs=16+schedule={file}",
    ),
    "log": ("text", RECORDS / "logs", slice(None), "predict {job} --json --log {file}"),
    "kineto": ("json", RECORDS / "traces", slice(2, None), "import kineto {file}"),
    "nccl-tests": ("text", RECORDS / "traces", slice(2), "import nccl-tests {file}"),
    "nsys": ("text", CORPUS / "nsys", slice(None), "import nsys {file}"),
    "runs": ("csv", CORPUS / "runs", slice(None), "validate --runs {file} --json"),
    "pack": (
        "csv", CORPUS / "pack", slice(None),
        "calibrate fit --data {folder} --device h100-sxm5-80gb --out {folder}/curves",
    ),
    "grid": ("yaml", CORPUS / "grid", slice(None), ""),
    "laws": ("yaml", CORPUS / "laws", slice(None), ""),
    "passes": ("yaml", CORPUS / "passes", slice(None), ""),
}  # fmt: skip
JOBS = ("laws", "passes")  # kinds that start from random jobs
ON_DEVICES = "--cluster dgx-h100 --gpus {n}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Examples, their syntax (json, yaml, shell, csv, text), and the command that reads such a file.

    `command` is empty for kinds that are called as functions (jobs.py). `is_import` says that a kind
    called "KIND-memory" predicts the memory of the same file.
    """

    syntax: str
    files: tuple[Path, ...]
    command: str
    is_import: bool = False

    def words(self, path: str, data: bytes, devices: int) -> list[str]:
        """The words of the command for an input at a place."""
        lines = [line for line in data.decode("utf-8", "replace").replace("\0", "").splitlines() if line]
        places = {
            "file": path,
            "folder": Path(path).parent,
            "job": JOB,
            "text": "".join(lines[:1]),
            "n": devices,
        }
        made: list[str] = []
        for word in self.command.split():
            made += lines if word == "{lines}" else [word.replace("+", " ").format(**places)]
        return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One file of a kind."""

    kind: str
    suffix: str
    data: bytes
    devices: int = 8

    @property
    def name(self) -> str:
        """A name for it that follows from its contents: "16-0123456789.yaml"."""
        return f"{self.devices}-{sha256(self.data).hexdigest()[:10]}{self.suffix}"


@cache
def kinds() -> dict[str, Kind]:
    """Every kind by its name."""
    found: dict[str, Kind] = {}
    for name, (syntax, folder, part, command) in COMMANDS.items():
        found[name] = Kind(syntax=syntax, files=_files(folder)[part], command=command)
    for folder in (CONFIGS / "scripts", *sorted((CONFIGS / "foreign").iterdir())):
        name, syntax = ("megatron", "shell") if folder.name == "scripts" else (folder.name, "yaml")
        on = f"{ON_DEVICES} --model llama-3-8b" if name == "deepspeed" else ON_DEVICES
        imports, reads = f"import {name} {{file}} {on}", f"memory {{file}} --kind {name} {on} --json"
        found[name] = Kind(syntax=syntax, files=_files(folder), command=imports, is_import=True)
        found[f"{name}-memory"] = Kind(syntax=syntax, files=(), command=reads)
    return found


def _files(folder: Path) -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.glob("*") if path.is_file()))


def examples() -> list[Input]:
    """Every file of every kind, for 8 devices."""
    return [
        Input(kind=name, suffix=path.suffix, data=path.read_bytes())
        for name, kind in kinds().items()
        for path in kind.files
    ]


def kept(folder: Path) -> list[Input]:
    """Inputs of a folder that `keep` wrote, in the order of their names."""
    return [
        Input(
            kind=path.parent.name,
            suffix=path.suffix,
            data=path.read_bytes(),
            devices=int(path.name.partition("-")[0]),
        )
        for path in sorted(folder.glob("*/*"))
        if path.parent.name in kinds()
    ]


def keep(folder: Path, one: Input, name: str = "") -> Path:
    """Write an input below a folder, and return its place."""
    place = folder / one.kind / (f"{one.devices}-{name}{one.suffix}" if name else one.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(one.data)
    return place
