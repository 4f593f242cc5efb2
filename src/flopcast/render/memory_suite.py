"""Measured memory beside its prediction, as text, JSON and Markdown.

Answers: what does `flopcast validate --suite memory` print?
Elsewhere: how memory is compared (lab/validation/memory.py).
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from flopcast.lab.validation.memory import ComparedMemory, summary
from flopcast.render.report_json import fields_of, plain
from flopcast.units import show

Tables = dict[str, tuple[tuple[ComparedMemory, ...], dict[str, str]]]  # rows, and reasons of others


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
            "summary": plain(summary(rows)),
            "rows": [fields_of(row) for row in rows],
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
