"""Step times of timm's CNNs and vision transformers in inference and training.

Source: data/graphs/timm_*.csv.gz; on GitHub huggingface/pytorch-image-models, results/. One row is one
model on one device; its batch was halved until it fitted. The name of a file states the setup:
`infer-amp-nchw-pt240-cu124-rtx3090` is inference under automatic mixed precision with images stored plane
by plane, PyTorch 2.4, on an RTX 3090; `-dynamo` at the end means that torch.compile compiled the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.package_table import read_table
from flopcast.lab.graph_runs.facts import GraphFacts, timm_facts
from flopcast.lab.graph_runs.kernels import Precision, Software
from flopcast.lab.graph_runs.machines import is_processor
from flopcast.lab.graph_runs.measured import GraphRun, MeasuredGraph, Setup
from flopcast.lab.run_tables import ReadOptions, RunTable
from flopcast.records import Record, replace
from flopcast.units import Number

DEVICES: Mapping[str, str] = read_table(__package__, "names.yaml")["timm"]
PRECISIONS: Mapping[str, Precision] = {"amp": "amp", "bf16": "half", "fp16": "half", "fp32": "fp32"}
FUSED_ATTENTION = 20  # PyTorch 2.0, in the digits of a file's name
CHANGED = 0.03  # of the parameters: the definition of a model has changed since it was measured
MILLIONS, BILLIONS = 1e6, 1e9
_NAME = re.compile(
    r"(?P<mode>infer|train)-(?P<precision>amp|bf16|fp16|fp32)-(?P<layout>nchw|nhwc)-pt(?P<torch>\d\d)\d*"
    r"(?:-cu\d+)?-(?P<device>[\w-]+?)(?P<dynamo>-dynamo)?(?:\.csv)?(?:\.gz)?$"
)
_ORIGINS = re.compile(r"^(tf|gluon|legacy|test|tv|ig|ssl|swsl|jx|adv|ens|dm)_")


class TableFacts(Record):
    """The facts that the user or the name of a file states."""

    device: str
    precision: Precision
    torch: int = FUSED_ATTENTION
    channels_last: bool = False
    compiled: bool = False


def table_facts(path: Path) -> TableFacts | None:
    """Return the facts that the name of a file states; None for another name.

    >>> table_facts(Path("timm_benchmark-infer-amp-nchw-pt113-cu117-rtx3090.csv.gz"))
    TableFacts(device='rtx-3090-24gb', precision='amp', torch=11, channels_last=False, compiled=False)
    """
    found = _NAME.search(path.name)
    if found is None or found["device"] not in DEVICES:
        return None
    return TableFacts(
        device=DEVICES[found["device"]],
        precision=PRECISIONS[found["precision"]],
        torch=int(found["torch"]),
        channels_last=found["layout"] == "nhwc",
        compiled=found["dynamo"] is not None,
    )


def family_of(model: str) -> str:
    """Return the family of a model: the first word of its name, without the origin of its weights.

    >>> family_of("tf_efficientnet_b0"), family_of("vit_base_patch16_224")
    ('efficientnet', 'vit')
    """
    found = re.match(r"[a-z]+", _ORIGINS.sub("", model))
    return found.group(0) if found else model


def _runs(path: Path, rows: Sequence[Mapping[str, str]], options: ReadOptions) -> Iterator[GraphRun]:
    """Yield the runs of a table; `options` replace what the name of the file states.

    Raises
    ------
    SpecError
        Neither the name of the file nor the user states the device and software of the runs.
    """
    given = options.measured_on
    table = given if isinstance(given, TableFacts) else table_facts(path)
    if table is None:
        devices = ", ".join(DEVICES)
        raise spec_error(
            "--runs",
            str(path),
            f"a name such as timm_benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv; devices: {devices}",
            "the columns of the table do not state device, precision and software",
            "change the name of the file, or add --device and --precision",
        )
    known, name = timm_facts(), path.name.split(".", 1)[0].removeprefix("timm_benchmark-")
    mode = "train" if rows and "train_step_time" in rows[0] else "infer"
    setup = _setup(table, trains=mode == "train")
    for row in rows:
        yield _with_facts(_run(row, mode, name, setup), known, _number(row, "param_count") * MILLIONS)


def _setup(table: TableFacts, trains: bool) -> Setup:
    software = Software(
        precision=table.precision,
        compiled=table.compiled,
        fuses_attention=table.torch >= FUSED_ATTENTION,
        channels_last=table.channels_last,
        trains=trains,
        reorders_weights=is_processor(table.device),
    )
    usual = "compiled" if table.compiled else "eager"
    kind = "training" if trains else "cpu" if is_processor(table.device) else usual
    return Setup(device=table.device, software=software, efficiencies=kind)


def _run(row: Mapping[str, str], mode: str, name: str, setup: Setup) -> GraphRun:
    batch = _number(row, f"{mode}_batch_size")
    measured = []
    if value := _number(row, f"{mode}_step_time"):
        measured.append(MeasuredGraph(quantity=f"{mode}_step_time", unit="ms", value=value))
    if value := _number(row, f"{mode}_samples_per_sec"):
        measured.append(
            MeasuredGraph(quantity=f"{mode}_samples_per_sec", unit="samples/s", value=value, samples=batch)
        )
    return GraphRun(
        id=f"{row['model']}/{row[f'{mode}_img_size']}/{name}",
        source="timm",
        setup=setup,
        facts=f"{row['model']}@{row[f'{mode}_img_size']}",
        batch=batch,
        measured=tuple(measured),
        groups={"device": setup.device, "table": name, "family": family_of(row["model"])},
        multiply_adds=_number(row, f"{mode}_gmacs") * BILLIONS,
        activations=_number(row, f"{mode}_macts") * MILLIONS,
    )


def _with_facts(run: GraphRun, known: GraphFacts, parameters: Number) -> GraphRun:
    """Return a run with its facts, or without them if they are unknown or of another definition."""
    facts = known.models.get(run.facts)
    if facts is not None and abs(facts.parameters / parameters - 1.0) <= CHANGED:
        return run
    why = (
        "flopcast does not know the operators of this model"
        if facts is None
        else "the definition of the model has changed since the benchmark"
    )
    if run.multiply_adds and run.activations:
        return replace(run, facts="", notes=(f"{why}, so flopcast uses the published counts",))
    return replace(run, facts="", reason=f"{why}, and the table does not print its multiply-adds")


def _number(row: Mapping[str, str], name: str) -> float:
    return float(row.get(name) or 0.0)


TABLES = tuple(
    RunTable(header=("model", f"{mode}_step_time", f"{mode}_batch_size", f"{mode}_img_size"), runs_of=_runs)
    for mode in ("infer", "train")
)
