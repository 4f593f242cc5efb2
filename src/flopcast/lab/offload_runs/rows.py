"""Measured runs with states outside the devices, and the conversion of table rows to runs.

Answers: which quantity of a run was measured, and which job was it?
Elsewhere: the rows of each table (zero3.py, nvme.py), predicting them (score.py).
"""

from collections.abc import Mapping
from typing import Literal

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.lab.run_tables import Row
from flopcast.lab.scores import Compared, MeasuredNumber, MeasuredRun, Scores
from flopcast.requests.job_files import job_of
from flopcast.spec.job import Job

Part = Literal["iteration", "forward", "backward", "update"]
PARTS_OF_COLUMNS: Mapping[str, Part] = {
    "iteration_ms": "iteration",
    "fwd_ms": "forward",
    "bwd_ms": "backward",
    "update_ms": "update",
}
MILLISECONDS = 1e3  # of a second
KV_HEADS = 4  # of all models


class MeasuredPart(MeasuredNumber, slots=False):
    """One measured number, in milliseconds, and the part of a step that it times."""

    unit: str = "ms"
    part: Part


class OffloadRun(MeasuredRun[MeasuredPart], slots=False):
    """One row of a table: its job, or the reason why it cannot be predicted.

    `groups` holds the machine, the model, the folder of its logs and the method.
    """

    job: Job | None


ComparedPart = Compared[OffloadRun, MeasuredPart]
OffloadScores = Scores[OffloadRun, MeasuredPart]


def job_or_reason(name: str, described: dict[str, object]) -> tuple[Job | None, str]:
    """Return the job that a row describes, or None and the rules that it breaks."""
    try:
        return job_of(Document(name, described, {})), ""
    except SpecError as error:
        return None, "; ".join(f"{each.field} = {each.value}: {each.because}" for each in error.problems)


def model_of(row: Row, vocabulary: int, ffn_hidden: int, **of_block: object) -> dict[str, object]:
    """Return the model of a row, in the form of a job file, with gated MLPs and grouped heads."""
    block = {
        "count": int(row["layers"]),
        "mixer": {"heads": int(row["heads"]), "kv_heads": KV_HEADS},
        "feed_forward": {"ffn_hidden": ffn_hidden, "activation": "swiglu"},
    }
    return {"hidden": int(row["hidden"]), "vocabulary": vocabulary, "blocks": [block | of_block]}


def plan_of(row: Row, offload: list[dict[str, object]]) -> dict[str, object]:
    """Return the plan of a row, in the form of a job file: ZeRO-3 with full recompute."""
    return {
        "tensor_parallel": int(row["tp"]),
        "data_parallel": int(row["dp"]),
        "zero": 3,
        "micro_batch": int(row["micro_batch"]),
        "global_batch": int(row["global_batch"]),
        "recompute": "full",
        "offload": offload,
    }


def measured_parts(row: Row) -> tuple[MeasuredPart, ...]:
    """Return the measured numbers of a row."""
    return tuple(
        MeasuredPart(quantity=name, value=float(row[name]), part=part)
        for name, part in PARTS_OF_COLUMNS.items()
        if row.get(name)
    )
