"""Names in tables of runs: hardware, models and software, as the catalogue's tables define them.

Answers: which cluster, model and stack of the catalogue does a run name, and which defaults does its
software have?
Elsewhere: the tables themselves (catalog/runs), the job that results from them (job.py). The first matching
entry of a table is used, so specific entries precede general ones.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, TypeVar

from pydantic import Field

from flopcast.errors import Problem
from flopcast.lab.published.cells import plain_device
from flopcast.lab.validation.run import Run
from flopcast.library import catalog
from flopcast.strict_model import StrictModel

ENDS = r"(?:gi?b?)?(?: |$)"  # of a device's name, or of its memory
Changes = Mapping[str, Any]
Entry = TypeVar("Entry", bound=StrictModel)


class KnownCluster(StrictModel):
    """Hardware by its printed name; `replaces` names a device that replaces the device of the cluster.

    `source`: the publisher of the runs, which identifies a single machine whose own kernels were measured.
    `per_node`: the number of devices in a node, if this number identifies the node.
    """

    device: str = Field(description="a regular expression for the name that `plain_device` returns")
    source: str = Field(default="", description="a regular expression for the source of the row")
    per_node: int = 0
    cluster: str
    replaces: str = ""
    because: str


class KnownModel(StrictModel):
    """A model by its printed name.

    `sized`: the row's sizes replace those of `base`. `positions`: the model learns as many positions as
    the sequences of the run are long. `experts`: the row must state the number of experts of a block.
    `refused`: an unsupported part of the model. `software`: the software to which the model belongs, if
    other software has a model of the same name.
    """

    name: str = Field(description="a regular expression for the small letters and digits of the name")
    software: str = Field(default="", description="a regular expression for the framework")
    base: str = ""
    refused: str = ""
    gated: bool | None = None
    sized: bool = False
    positions: bool = False
    experts: bool = False
    changes: Changes = Field(default_factory=dict)
    because: str = ""


class Default(StrictModel):
    """A default of the software for rows that match `where`, with its documentation.

    `plan`: fields that the row omits. `model`, `stack` and `experts` contain changes to the model, to the
    stack and to the model's experts, and `adapters` contains the trained adapters. `document_tokens`: mean
    length of the documents that the data loader packs into a sequence; 0 if a sequence is one document.
    """

    where: Mapping[str, str] = Field(default_factory=dict)
    plan: Changes = Field(default_factory=dict)
    model: Changes = Field(default_factory=dict)
    stack: Changes = Field(default_factory=dict)
    experts: Changes = Field(default_factory=dict)
    adapters: Changes = Field(default_factory=dict)
    document_tokens: int = 0
    because: str
    url: str = ""


class KnownSoftware(StrictModel):
    """A framework with its versions and years, and the stack that describes it."""

    software: str = Field(description="a regular expression for the framework, a blank and the version")
    device: str = Field(default="", description="a regular expression for the printed device")
    first_year: int = 2012
    last_year: int = 2099
    stack: str
    because: str
    defaults: tuple[Default, ...] = ()


class Unfitted(StrictModel):
    """Runs that are scored but left out of fits, because they would distort shared constants."""

    source: str = Field(description="a regular expression")
    where: Mapping[str, str] = Field(description="facts of the run, in the form of an entry of defaults")
    because: str


@lru_cache(maxsize=8)
def _entries(name: str, noun: type[Entry]) -> tuple[Entry, ...]:
    """Return a table of the catalogue. Texts with units stay unchanged; the job parses them."""
    data = catalog.document("runs", name).data
    entries = data["entries"] if isinstance(data, dict) else []
    return tuple(noun.model_validate(entry) for entry in entries)


# Known hardware, models and software (the last of which matches everything), and runs of no constant.
clusters: Callable[[], tuple[KnownCluster, ...]] = partial(_entries, "clusters", KnownCluster)
models: Callable[[], tuple[KnownModel, ...]] = partial(_entries, "models", KnownModel)
software: Callable[[], tuple[KnownSoftware, ...]] = partial(_entries, "stacks", KnownSoftware)
unfitted: Callable[[], tuple[Unfitted, ...]] = partial(_entries, "unfitted", Unfitted)


def judged_only(run: Run) -> str:
    """Return why no constant may be fitted to a run; "" if constants may be fitted to it."""
    facts = _facts(run)
    matching = (known for known in unfitted() if re.search(known.source, run.source))
    return next((known.because for known in matching if _holds(known.where, facts)), "")


def cluster_of(run: Run) -> KnownCluster | None:
    """Return the hardware that a run names, if it is known."""
    device = plain_device(run.machine.device)
    named = ((known, rf"(?:{known.device}){ENDS}") for known in clusters())
    matching = (known for known, name in named if re.search(name, device, re.IGNORECASE))
    sized = (known for known in matching if known.per_node in (0, run.machine.devices_per_node))
    return next((known for known in sized if re.search(known.source, run.source)), None)


def model_of(run: Run) -> KnownModel | None:
    """Return the model that a run names.

    If the row has no sizes, only a model of the catalogue is returned.

    A model needs no line in the table if an entry of the catalogue has the same sizes, and the same name
    except for spaces and dashes. Otherwise, the row's sizes are used in a common type of block.
    """
    known = models()
    named = (entry for entry in known if entry.name)
    blocks = (entry for entry in known if not entry.name)
    return next((entry for entry in (*named, *_alike(run), *blocks) if _describes(entry, run)), None)


def _describes(known: KnownModel, run: Run) -> bool:
    """Return whether an entry matches the run's name, software, and required sizes."""
    sizes = run.architecture
    if known.gated is not None and known.gated != sizes.gated:
        return False
    if known.sized and (sizes.num_layers is None or sizes.hidden is None):
        return False
    if known.experts and not sizes.num_experts:
        return False
    named = re.search(known.name, _plain(run.model))
    return bool(named and re.search(known.software, run.software.framework))


def _plain(name: str) -> str:
    """Return the lower-case letters and the digits of a name, as the patterns of the table match them."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _alike(run: Run) -> tuple[KnownModel, ...]:
    """Return the catalogue's entry with exactly this name, if its width and heads are those of the row."""
    base, sizes = catalog.known("models", run.model), run.architecture
    if base is None:
        return ()
    own = catalog.model(base)
    agree = sizes.hidden in (None, own.hidden) and sizes.heads in (None, own.blocks[-1].mixer.heads)
    return (KnownModel(name=f"^{_plain(run.model)}$", base=base),) if agree else ()


def software_of(run: Run) -> KnownSoftware | None:
    """Return the software that a run names; if a row has no year, any year of a software matches."""
    name, year = f"{run.software.framework} {run.software.version}", run.software.year
    for known in software():
        named = re.search(known.software, name) and re.search(known.device, run.machine.device)
        if named and (year is None or known.first_year <= year <= known.last_year):
            return known
    return None


def unknown_year(run: Run) -> Problem:
    """Return the fault of a row whose year belongs to no software."""
    first = min(each.first_year for each in software())
    last = max(each.last_year for each in software())
    digits = str(run.software.year)
    right = f"20{digits}" if len(digits) < 3 else digits[:4]
    is_likely = right.isdecimal() and first <= int(right) <= last
    fix = f"write {right} in place of {digits}" if is_likely else "leave the cell empty"
    because = "the year of the run determines the release of the software"
    return run.fault("year", run.software.year, f"a year from {first} to {last}", because, fix)


def defaults_of(run: Run, known: KnownSoftware) -> tuple[Default, ...]:
    """Return the defaults of a software that apply to a run."""
    facts = _facts(run)
    return tuple(default for default in known.defaults if _holds(default.where, facts))


def _facts(run: Run) -> dict[str, str]:
    """Return the facts of a run that an entry may test, as texts; facts that the row omits are empty."""
    return {
        "model": run.model.lower(),
        "device": run.machine.device,
        "precision": run.mapping.precision,
        "recompute": run.mapping.recompute,
        "framework": run.software.framework,
        "fsdp": run.mapping.fsdp,
        "zero": "" if run.mapping.zero is None else str(run.mapping.zero),
        "tensor": str(run.mapping.tensor_parallel or ""),
        "pipeline": str(run.mapping.pipeline_parallel or ""),
        "context": str(run.mapping.context_parallel or ""),
        "expert": str(run.mapping.expert_parallel or ""),
        "devices": str(run.machine.num_devices or ""),
        "version": run.software.version,
        "year": str(run.software.year or ""),
        "notes": run.notes,
    }


def _holds(where: Mapping[str, str], facts: Mapping[str, str]) -> bool:
    return all(re.search(pattern, facts[name]) for name, pattern in where.items())
