"""Memory compared with what runs logged: no prices, so no curves.

Answers: how far off are predicted bytes, row by row and in all?
Elsewhere: the rows (io/suites.py, io/megatron/functional_tests.py), the bytes (memory/peak.py).
"""

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from flopcast.memory.peak import Memory
from flopcast.nouns import Noun
from flopcast.report.as_json import nine_digits
from flopcast.spec.job import Job
from flopcast.units import show

Remember = Callable[[Job], tuple[Memory, tuple[int, ...]]]


class MemoryRow(Noun):
    """One run's memory on one rank.

    `quantity`: "allocated" at the peak, or "resident" between steps. `stage`: the one whose rank was read;
    "fullest" where the source gives the most of all ranks.
    """

    id: str
    job: Job
    quantity: Literal["allocated", "resident"] = "allocated"
    stage: Literal["fullest", "first", "last"] = "fullest"
    measured_bytes: float = Field(gt=0)


class MemorySuite(Noun):
    """Rows of one source; `fitted` says what was fitted on them, `remarks` what they leave open."""

    name: str
    source: str
    fitted: str
    peers: str = ""
    remarks: tuple[str, ...] = ()
    rows: tuple[MemoryRow, ...] = Field(min_length=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedMemory:
    """One row's bytes, measured and predicted."""

    id: str
    quantity: str
    measured_bytes: float
    predicted_bytes: float

    @property
    def relative_error(self) -> float:
        """Return predicted / measured - 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


Tables = dict[str, tuple[tuple[ComparedMemory, ...], dict[str, str]]]  # rows, and reasons of others


def compare_memory(rows: Sequence[MemoryRow], remember: Remember) -> tuple[ComparedMemory, ...]:
    """Return every row with its prediction.

    Parameters
    ----------
    remember : callable
        From a job to its memory and the class of each of its stages (prediction.py, `memory_by_class`).
    """
    found = []
    for row in rows:
        memory, stage_class = remember(row.job)
        sizes = memory.allocated_bytes if row.quantity == "allocated" else memory.resident_bytes
        each = [float(sizes[0, at if sizes.shape[1] > 1 else 0]) for at in stage_class]
        predicted = {"fullest": max(each), "first": each[0], "last": each[-1]}[row.stage]
        found.append(
            ComparedMemory(
                id=row.id,
                quantity=row.quantity,
                measured_bytes=row.measured_bytes,
                predicted_bytes=predicted,
            )
        )
    return tuple(found)


def summary(compared: Sequence[ComparedMemory]) -> dict[str, float]:
    """Return mean, median, 90th percentile, largest and bias of the relative errors.

    The percentile is the error that nine of ten rows do not exceed. Where there is no row, that
    is all it says.
    """
    if not compared:
        return {"rows": 0.0}
    errors = sorted(abs(row.relative_error) for row in compared)
    return {
        "rows": float(len(errors)),
        "mean": statistics.mean(errors),
        "median": statistics.median(errors),
        "p90": errors[min(len(errors) - 1, round(0.9 * len(errors)))],
        "largest": errors[-1],
        "bias": statistics.mean(row.relative_error for row in compared),
    }


def memory_as_text(name: str, rows: Sequence[ComparedMemory], left_out: Mapping[str, str]) -> str:
    """Return a line for every row, a summary line, and the rows that were left out by reason."""
    lines = [f"{name}: memory", f"  {'measured':>10} {'predicted':>10} {'error':>7}"]
    lines += [
        f"  {show(row.measured_bytes, 'B'):>10} {show(row.predicted_bytes, 'B'):>10}"
        f" {row.relative_error:>+7.1%}  {row.quantity}  {row.id}"
        for row in rows
    ]
    lines.append(_summary_text(rows))
    reasons = Counter(left_out.values())
    return "\n".join(lines + [f"left out, {number}: {reason}" for reason, number in reasons.items()])


def _summary_text(rows: Sequence[ComparedMemory]) -> str:
    """Return the errors of all rows in one line."""
    if not rows:
        return "no rows"
    found = summary(rows)
    return (
        f"{len(rows)} rows: mean {found['mean']:.2%}, median {found['median']:.2%}, p90 {found['p90']:.2%},"
        f" largest {found['largest']:.2%}, bias {found['bias']:+.2%}"
    )


def memory_as_json(tables: Tables) -> object:
    """Return, by name of a suite or file, all rows, their summary, and the rows left out with reasons."""
    return {
        name: {
            "summary": {key: nine_digits(value) for key, value in summary(rows).items()},
            "rows": [
                {
                    "id": row.id,
                    "quantity": row.quantity,
                    "measured_bytes": nine_digits(row.measured_bytes),
                    "predicted_bytes": nine_digits(row.predicted_bytes),
                }
                for row in rows
            ],
            "left_out": dict(left_out),
        }
        for name, (rows, left_out) in tables.items()
    }


def memory_as_markdown(tables: Tables) -> str:
    """Return a section of a page for every table."""
    lines: list[str] = []
    for name, (rows, _) in tables.items():
        lines += ["", f"## {name}: bytes, with nothing fitted on these rows", ""]
        if not rows:
            lines += ["No row could be compared."]
            continue
        found = summary(rows)
        lines += [
            f"Mean {found['mean']:.2%}, median {found['median']:.2%}, largest {found['largest']:.2%} of"
            f" {len(rows)} rows. Peaks are the most of all ranks.",
            "",
            "| run | what | measured | predicted | error |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {row.id} | {row.quantity} | {show(row.measured_bytes, 'B')} |"
            f" {show(row.predicted_bytes, 'B')} | {row.relative_error:+.1%} |"
            for row in rows
        ]
    return "\n".join(lines) + "\n" if lines else ""
