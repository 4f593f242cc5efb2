"""Predictions of measured serving, and how far they are from what was measured.

Answers: how large are the errors, by engine, model and device?
Elsewhere: the tables (tables.py), a prediction (serving/serve.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from flopcast.errors import SpecError
from flopcast.lab.serving_runs.measured import ComparedServing, Measured, ServingRun, ServingScores
from flopcast.library.curves import load_serving_book
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import Estimate, ServingReport

PER_UNIT = {"s": 1.0, "ms": 1e3, "us": 1e6}


def score_runs(runs: Iterable[ServingRun]) -> ServingScores:
    """Predict every run that has a job; runs of equal jobs are predicted once."""
    rows: list[ComparedServing] = []
    left_out: list[ServingRun] = []
    known: dict[str, ServingReport] = {}
    for run in runs:
        if run.job is None:
            left_out.append(run)
            continue
        key = run.job.model_dump_json()
        try:
            if key not in known:
                known[key] = serve(run.job, load_serving_book(run.job.cluster), leave_out_share=0.0)
        except SpecError as error:
            problem = error.problems[0]
            left_out.append(_left_out(run, f"{problem.field} = {problem.value}: {problem.because}"))
            continue
        rows += [
            ComparedServing(run=run, measured=each, predicted=_predicted(known[key], each))
            for each in run.measured
        ]
    return ServingScores(rows=tuple(rows), left_out=tuple(left_out))


def _left_out(run: ServingRun, reason: str) -> ServingRun:
    return ServingRun(
        id=run.id, source=run.source, job=None, reason=reason, measured=run.measured, groups=run.groups
    )


def _predicted(report: ServingReport, measured: Measured) -> Estimate:
    """Return what a report says of a measured number, in its unit."""
    if measured.of == "output_tokens_per_s":
        return report.output_tokens_per_s
    return report.latencies[measured.of]["mean"].times(PER_UNIT[measured.unit])


def statistics(rows: Sequence[ComparedServing]) -> dict[str, float]:
    """Return count, median and 90th percentile of the absolute error, median ratio, share inside.

    The bias is the median of predicted over measured, less 1.
    """
    errors = np.array([row.relative_error for row in rows])
    return {
        "rows": float(len(rows)),
        "median": float(np.median(np.abs(errors))),
        "p90": float(np.quantile(np.abs(errors), 0.9)),
        "bias": float(np.median(errors)),
        "inside": float(np.mean([row.is_inside for row in rows])),
    }


def by_group(scores: ServingScores, quantity: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield statistics of one quantity over all rows, then by engine, by model and by device."""
    rows = [row for row in scores.rows if row.measured.quantity == quantity]
    if not rows:
        return
    yield "all", statistics(rows)
    for group in _groups(rows):
        names = sorted({row.run.groups[group] for row in rows})
        for name in names:
            yield f"{group} {name}", statistics([row for row in rows if row.run.groups[group] == name])


def _groups(rows: Sequence[ComparedServing]) -> Sequence[str]:
    first: Mapping[str, str] = rows[0].run.groups
    return tuple(first)
