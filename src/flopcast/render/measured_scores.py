"""Scores of measured quantities, such as those of serving, as text and as JSON.

Elsewhere: the scores themselves (lab/measured_tables.py), published training (published_text.py).
"""

from collections import Counter
from collections.abc import Mapping

from flopcast.lab.scores import AnyScores, by_group
from flopcast.render.plain_data import unrounded
from flopcast.render.tables import aligned

HEADINGS = ("median error", "90 % of errors below", "bias", "inside")


def scores_as_text(scores: AnyScores, beside: AnyScores | None = None) -> str:
    """Return a table for each measured quantity, and why rows were left out.

    `beside` are scores of the same runs with constants that were fitted without them; each number of the
    table is then followed by the corresponding score.
    """
    both = [scores] if beside is None else [scores, beside]
    lines = [each.constants for each in both]
    if beside is not None:
        lines.append("The first number of each pair is a fitted score, and the second is a left-out score.")
    for quantity in dict.fromkeys(row.measured.quantity for row in scores.rows):
        lines += ["", quantity]
        table = [["", "rows", *HEADINGS]]
        found = [dict(by_group(each, quantity)) for each in both]
        for name, first in found[0].items():
            cells = [_cells(each[name]) for each in found if name in each]
            table.append([f"  {name}", f"{first['rows']:.0f}", *map(" / ".join, zip(*cells, strict=True))])
        lines += aligned(table, "<>>>>>")
    reasons = Counter(run.reason for run in scores.left_out)
    if reasons:
        lines += ["", f"left out: {len(scores.left_out)} rows"]
        lines += [f"  {count} because {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _cells(found: Mapping[str, float]) -> list[str]:
    """Return the numbers of one line of a table, as HEADINGS."""
    shares = [f"{found[key]:.1%}" for key in ("median", "p90")]
    return [*shares, f"{found['bias']:+.1%}", f"{found['inside']:.0%}"]


def scores_as_json(scores: AnyScores) -> dict[str, object]:
    """Return every row and every row that was left out as plain data."""
    return {
        "constants": scores.constants,
        "rows": [
            {
                **unrounded(row.run, "id", "source"),
                **unrounded(row.measured, "quantity", "unit"),
                "measured": row.measured.value,
                "predicted": row.predicted.value,
                **unrounded(row.predicted, "low", "high"),
            }
            for row in scores.rows
        ],
        "left_out": [unrounded(run, "id", "reason") for run in scores.left_out],
    }
