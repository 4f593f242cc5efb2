"""The constants of engines, fitted on measured times per output token.

Answers: what does an iteration of an engine take beyond its kernels in benchmarks?
Elsewhere: the constants (spec/engine.py, IterationCost), scoring with them (score.py).

The time of an iteration is `kernel_ratio` times that of its kernels, plus `host_s`, plus `sequence_s` for
each sequence. The measured time per token is that of a mean iteration times a number that the scheduler
gives, which small changes of the constants leave as it is. So constants follow from a linear fit of
relative errors; absolute errors count, not their squares, so that a few odd rows do not decide. None is
below its least value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts
from flopcast.lab.serving_runs.measured import ComparedServing
from flopcast.lab.serving_runs.quantities import PER_UNIT
from flopcast.serving.serving_report import ServingReport
from flopcast.spec.engine import IterationCost

ROUNDS = 30  # of reweighting
SMALLEST_ERROR = 0.01  # smaller errors weigh no more
FEWEST_ROWS = 12
LEAST = (0.7, 0.0, 0.0)  # of kernel_ratio, host_s, sequence_s
PRIOR = (1.0, 1e-3, 5e-6)
PRIOR_ROWS = 2.0  # the weight of the prior, in rows


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Observed:
    """One measured time per token, and the mean iteration of its prediction; scalars."""

    measured_s: float
    iterations_ratio: float  # predicted time per token over the time of a mean iteration
    kernels_s: float  # of a mean iteration, at a ratio of 1
    sequences: Counts  # of a mean iteration


def observed(row: ComparedServing, report: ServingReport) -> Observed:
    """Return what a measured row says of the constants of its engine."""
    cost = report.job.engine.iteration
    host_s = report.iteration_s * report.shares["host"]
    kernels_s = (report.iteration_s - host_s) / cost.kernel_ratio
    tpot_s = report.latencies["tpot"]["mean"].value
    return Observed(
        measured_s=row.measured.value / PER_UNIT[row.measured.unit],
        iterations_ratio=tpot_s / report.iteration_s,
        kernels_s=kernels_s,
        sequences=np.array(report.decoding),
    )


def fit(rows: Iterable[Observed]) -> IterationCost | None:
    """Return the constants that fit best; None of too few rows."""
    known = list(rows)
    if len(known) < FEWEST_ROWS:
        return None
    parts = [np.array([each.kernels_s, 1.0, each.sequences.item()]) for each in known]
    ratios = [each.iterations_ratio / each.measured_s for each in known]
    matrix = np.array(parts) * np.array(ratios)[:, None]
    scale = np.array(PRIOR)
    found = _least_absolute(matrix * scale, np.ones(len(known)))
    kernel_ratio, host_s, sequence_s = (found * scale).tolist()
    left = np.abs(np.log(matrix @ (found * scale)))
    return IterationCost(
        kernel_ratio=round(kernel_ratio, 3),
        host_s=float(f"{host_s:.3g}"),
        sequence_s=float(f"{sequence_s:.3g}"),
        log_sigma_factor=round(float(np.quantile(left, 0.9)) / 1.6449, 3),
    )


def _least_absolute(matrix: Counts, wanted: Counts) -> Counts:
    """Return non-negative coefficients of least absolute errors, by reweighted least squares.

    Each coefficient is drawn to 1, its prior; those at their least value are held there.
    """
    least = np.array(LEAST) / np.array(PRIOR)
    found = np.ones(matrix.shape[1])
    for _ in range(ROUNDS):
        weights = 1.0 / np.maximum(np.abs(matrix @ found - wanted), SMALLEST_ERROR)
        prior = np.eye(len(found)) * PRIOR_ROWS * weights.mean() * 0.01
        left = matrix * weights[:, None]
        found = np.linalg.solve(matrix.T @ left + prior, left.T @ wanted + prior @ np.ones(len(found)))
        found = np.maximum(found, least)
    return found


def by_engine(pairs: Iterable[tuple[ComparedServing, ServingReport]]) -> dict[str, IterationCost]:
    """Return the constants of each engine that has rows enough."""
    groups: dict[str, list[Observed]] = {}
    for row, report in pairs:
        groups.setdefault(row.run.groups["engine"], []).append(observed(row, report))
    fitted: Mapping[str, IterationCost | None] = {name: fit(rows) for name, rows in groups.items()}
    return {name: cost for name, cost in fitted.items() if cost is not None}
