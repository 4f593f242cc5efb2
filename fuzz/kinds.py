"""Kinds of inputs: where the examples of each lie, how a command reads them, how their text is made.

Answers: what does the fuzzer start from, and which command line reads an input?
Elsewhere: how inputs are changed (mutate.py), what must hold (oracles.py).

Most examples are the files of the tests; `corpus/` holds what the tests build while they run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "fuzz" / "corpus"
FOUND = ROOT / "fuzz" / "found"
JOB = CORPUS / "job" / "chosen.yaml"
EXAMPLES = ROOT / "tests" / "io"
CATALOG = ROOT / "src" / "flopcast" / "catalog"
DEVICES = (8, 16, 32, 64, 128, 512, 1024)  # tried in turn, until an example is accepted

Words = Callable[[str, int], list[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """Examples, and the words that make flopcast read a file of this kind on so many devices.

    `words` is empty for kinds that are called as functions (jobs.py).
    """

    files: tuple[Path, ...]
    syntax: str  # json, yaml, toml, shell, csv, text
    words: Words | None = None
    on_devices: bool = False


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


def _imported(kind: str, *more: str) -> Words:
    return lambda path, devices: [
        "import",
        kind,
        path,
        "--cluster",
        "dgx-h100",
        "--gpus",
        str(devices),
        *more,
    ]


def _needs(kind: str, *more: str) -> Words:
    return lambda path, devices: [
        "memory",
        path,
        "--kind",
        kind,
        "--cluster",
        "dgx-h100",
        "--gpus",
        str(devices),
        "--json",
        *more,
    ]


def _job(*words: str) -> Words:
    """A command that reads the small job, and the file where "FILE" stands."""
    return lambda path, _: [path if word == "FILE" else word for word in words]


def _text(*words: str) -> Words:
    """A command that takes the contents of the file as words of its own."""

    def made(path: str, _: int) -> list[str]:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        lines = [line for line in text.replace("\0", "").splitlines() if line]
        return [*words[:-1], *([words[-1] + "".join(lines[:1])] if words[-1] else lines)]

    return made


def _of(folder: Path, pattern: str = "*") -> tuple[Path, ...]:
    return tuple(sorted(path for path in folder.glob(pattern) if path.is_file()))


@cache
def kinds() -> dict[str, Kind]:
    """Every kind by its name."""
    small, on_h100 = str(JOB), ("--cluster", "dgx-h100:1", "--plan", "dp=8 gbs=8", "--json")
    found: dict[str, Kind] = {}
    for folder in (EXAMPLES / "scripts", *sorted((EXAMPLES / "foreign").iterdir())):
        name, syntax = ("megatron", "shell") if folder.name == "scripts" else (folder.name, "yaml")
        more = ("--model", "llama-3-8b") if name == "deepspeed" else ()
        found[name] = Kind(files=_of(folder), syntax=syntax, words=_imported(name, *more), on_devices=True)
        found[f"{name}-memory"] = Kind(files=(), syntax=syntax, words=_needs(name, *more))
    return found | {
        "hf": Kind(files=_of(EXAMPLES / "configs"), syntax="json", words=_job("import", "hf", "FILE")),
        "memory": Kind(
            files=(*_of(CORPUS / "job"), *_of(CATALOG / "jobs" / "paper")),
            syntax="yaml",
            words=_job("memory", "FILE", "--json"),
        ),
        "predict": Kind(
            files=(*_of(CORPUS / "job"), *_of(CATALOG / "jobs" / "paper")[:4]),
            syntax="yaml",
            words=_job("predict", "FILE", "--json"),
        ),
        "model": Kind(
            files=_of(CATALOG / "models")[::4],
            syntax="yaml",
            words=_job("memory", "--model", "FILE", *on_h100),
        ),
        "site": Kind(
            files=_of(CORPUS / "site"),
            syntax="yaml",
            words=_job("predict", small, "--site", "FILE", "--json"),
        ),
        "phases": Kind(
            files=_of(CORPUS / "phases"),
            syntax="yaml",
            words=_job("run", small, "--phases", "FILE", "--json"),
        ),
        "plan": Kind(
            files=_of(CORPUS / "plan"), syntax="text", words=_text("memory", small, "--json", "--plan=")
        ),
        "changes": Kind(
            files=_of(CORPUS / "changes"), syntax="text", words=_text("memory", small, "--json", "--", "")
        ),
        "schedule": Kind(
            files=_of(CORPUS / "schedule"),
            syntax="csv",
            words=lambda path, _: [
                "memory",
                small,
                "--json",
                "--plan",
                f"dp=2 tp=2 pp=4 mbs=1 gbs=16 schedule={path}",
            ],
        ),
        "log": Kind(
            files=_of(EXAMPLES / "logs"),
            syntax="text",
            words=_job("predict", small, "--json", "--log", "FILE"),
        ),
        "kineto": Kind(
            files=_of(EXAMPLES / "traces", "*.json"), syntax="json", words=_job("import", "kineto", "FILE")
        ),
        "nsys": Kind(files=_of(CORPUS / "nsys"), syntax="text", words=_job("import", "nsys", "FILE")),
        "nccl-tests": Kind(
            files=_of(EXAMPLES / "traces", "*.log"),
            syntax="text",
            words=_job("import", "nccl-tests", "FILE"),
        ),
        "runs": Kind(
            files=_of(CORPUS / "runs"), syntax="csv", words=_job("validate", "--runs", "FILE", "--json")
        ),
        "pack": Kind(
            files=_of(CORPUS / "pack"),
            syntax="csv",
            words=lambda path, _: [
                "calibrate",
                "fit",
                "--data",
                str(Path(path).parent),
                "--device",
                "h100-sxm5-80gb",
                "--out",
                str(Path(path).parent / "curves"),
            ],
        ),
        "laws": Kind(files=(), syntax="yaml"),
        "passes": Kind(files=(), syntax="yaml"),
    }


def examples() -> list[Input]:
    """Every file of every kind, for 8 devices."""
    return [
        Input(kind=name, suffix=path.suffix, data=path.read_bytes())
        for name, kind in kinds().items()
        for path in kind.files
    ]


def kept(folder: Path) -> list[Input]:
    """Inputs of a folder that `keep` wrote, in the order of their names."""
    paths = sorted(path for path in folder.glob("*/*") if path.parent.name in kinds())
    return [
        Input(
            kind=path.parent.name,
            suffix=path.suffix,
            data=path.read_bytes(),
            devices=int(path.name.partition("-")[0]),
        )
        for path in paths
    ]


def keep(folder: Path, one: Input, name: str = "") -> Path:
    """Write an input below a folder, and return its place."""
    place = folder / one.kind / (f"{one.devices}-{name}{one.suffix}" if name else one.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(one.data)
    return place
