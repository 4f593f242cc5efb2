"""Scores of measured serving, and of states outside the devices, as text and as JSON.

Elsewhere: the scores themselves (lab/serving_runs/score.py, lab/offload_runs/score.py), published training
(published_text.py).
"""

from collections import Counter

from flopcast.lab.scores import Scores, by_group
from flopcast.render.tables import aligned

HEADINGS = ("", "rows", "median error", "90 % of errors below", "bias", "inside")


def scores_as_text(scores: Scores) -> str:
    """Return a table for each measured quantity, and why rows were left out."""
    lines = [scores.constants]
    for quantity in dict.fromkeys(row.measured.quantity for row in scores.rows):
        lines += ["", quantity]
        table = [list(HEADINGS)]
        for name, found in by_group(scores, quantity):
            shares = [f"{found[key]:.1%}" for key in ("median", "p90")]
            bias, inside = f"{found['bias']:+.1%}", f"{found['inside']:.0%}"
            table.append([f"  {name}", f"{found['rows']:.0f}", *shares, bias, inside])
        lines += aligned(table, "<>>>>>")
    reasons = Counter(run.reason for run in scores.left_out)
    if reasons:
        lines += ["", f"left out: {len(scores.left_out)} rows"]
        lines += [f"  {count} because {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def scores_as_json(scores: Scores) -> dict[str, object]:
    """Return every row and every row that was left out as plain data."""
    return {
        "constants": scores.constants,
        "rows": [
            {
                "id": row.run.id,
                "source": row.run.source,
                "quantity": row.measured.quantity,
                "unit": row.measured.unit,
                "measured": row.measured.value,
                "predicted": row.predicted.value,
                "low": row.predicted.low,
                "high": row.predicted.high,
            }
            for row in scores.rows
        ],
        "left_out": [{"id": run.id, "reason": run.reason} for run in scores.left_out],
    }
