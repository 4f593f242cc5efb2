"""A prediction of serving and the result of a benchmark, as text and as JSON.

Answers: what does `flopcast predict --log` print about a measured run of an engine?
Elsewhere: the compared numbers (lab/benchmark_results/result.py), logs of training (log_comparison.py).
"""

from flopcast.lab.benchmark_results.result import BenchmarkResult, ComparedNumber
from flopcast.render.plain_data import unrounded
from flopcast.render.serving_text import NAMES
from flopcast.render.tables import aligned
from flopcast.render.terminal import caution, good
from flopcast.units import Number, show, show_seconds

RATES = {"output_tokens_per_s": ("output", "tokens/s"), "requests_per_s": ("requests", "requests/s")}


def marked_text(result: BenchmarkResult, rows: tuple[ComparedNumber, ...]) -> str:
    """Return a table of measured and predicted numbers, with marks for a terminal."""
    table = [["", "measured", "predicted", "ratio", "90 % interval"]]
    for row in rows:
        metric, statistic = row.measured.metric, row.measured.statistic
        name = RATES[metric][0] if metric in RATES else f"{NAMES[metric]} {statistic}"
        predicted = row.predicted
        numbers = (row.measured.value, predicted.value, predicted.low, predicted.high)
        measured, expected, low, high = (_shown(metric, number) for number in numbers)
        table.append([f"  {name}", measured, expected, f"{row.ratio:.2f}", f"{low} to {high}"])
    lines = aligned(table, "<>>><")
    inside = sum(row.inside for row in rows)
    verdict = f"{inside} of {len(rows)} measured numbers are inside the interval"
    notes = [f"note      {note}" for note in result.notes]
    mark = good if 2 * inside >= len(rows) else caution
    return "\n".join([f"measured  {result.name}: {result.program}", *lines, mark(verdict), *notes])


def _shown(metric: str, value: Number) -> str:
    return show(value, RATES[metric][1]) if metric in RATES else show_seconds(value)


def as_json(result: BenchmarkResult, rows: tuple[ComparedNumber, ...]) -> dict[str, object]:
    """Return the comparison as JSON data; latencies are in seconds, `ratio` is predicted over measured."""
    numbers = [
        {
            **unrounded(row.measured, "metric", "statistic"),
            "measured": row.measured.value,
            "predicted": row.predicted.value,
            **unrounded(row.predicted, "low", "high"),
            **unrounded(row, "ratio", "inside"),
        }
        for row in rows
    ]
    return {"name": result.name, "program": result.program, "notes": list(result.notes), "numbers": numbers}
