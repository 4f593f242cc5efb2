"""The constants of engines, fitted to measured times per output token and times to first token.

Answers: how much time do iterations and requests of an engine take in benchmarks in addition to the
kernels?
Elsewhere: the constants (spec/engine.py, IterationCost), scoring with them (score.py).

The time of an iteration is the time of its kernels, less `overlap_s` for each kernel, with a ratio for
kernels of experts, plus `host_s`, plus `sequence_s` for each sequence. The measured time per token is the
time of a mean iteration times a number that follows from the scheduling, and which small changes of the
constants do not affect. The constants therefore follow from a linear fit of relative errors. Twice and
half the measured time count equally. The fit minimises absolute errors and not their squares, so that a
few outliers do not determine the result. Each constant has a lower bound. The time that a request waits
in addition to its passes is fitted to times to first token in the same way. The time of launches
(`prompt_launch_s`) is not fitted here, because it determines which passes take exactly as long as their
kernels. The time to send single tokens (`streamed_s`) is not fitted either, because the servers of these
rows send several tokens at once.

All engines are first fitted together, and each engine is then fitted alone, starting from that result: an
engine that was measured only with experts contains no information about other kernels.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.dtypes import Counts
from flopcast.lab.serving_runs.quantities import PER_UNIT
from flopcast.lab.serving_runs.rows import ComparedServing
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.records import Record
from flopcast.serving.serving_report import ServingReport
from flopcast.spec.iteration_cost import IterationCost
from flopcast.spec.model import Model

ROUNDS = 60  # of reweighting
SMALLEST_ERROR = 0.01  # smaller errors weigh no more
USUAL_ERROR = 0.1  # of a row that weighs as much as one row of the prior
FEWEST_ROWS = 12
OF_ITERATIONS = ("overlap_s", "expert_ratio", "host_s", "sequence_s")
OF_REQUESTS = ("request_s", "prompt_token_s", "handover_s", "prompt_experts_s", "prompt_states_s")
LEAST = {"expert_ratio": 0.5}  # 0 for all others
PRIOR = IterationCost(
    overlap_s=1e-6,
    host_s=5e-4,
    sequence_s=5e-6,
    prompt_experts_s=0.42e-3,
    prompt_states_s=1.5e-3,
    request_s=0.01,
    prompt_token_s=2e-6,
    handover_s=0.1,
)  # A kernel starts in about two microseconds. Python launches one in 60 (prompt_launch_s): benchmarks of
# experts have seven kernels less than layers (top-k, two for the alignment, two quantisations, activation,
# sum). A layer with a delta rule launches eleven Triton kernels with a grid that the host computes, which
# takes 139 microseconds (pull request 10680 of SGLang).
# How many rows the prior of a constant weighs: engines run kernels of experts almost as in benchmarks, and
# web servers answer in some milliseconds.
PRIOR_ROWS = dict.fromkeys(("expert_ratio", "prompt_experts_s", "prompt_states_s", "request_s"), 3.0)
FEW_PRIOR_ROWS = 0.5  # of the others
LEAST_RATIO = 0.05  # of predicted over measured: smaller ones count as this
KEPT = ("streamed_s", "prompt_launch_s")  # constants of an engine that are not fitted here
SPREADS: dict[tuple[str, ...], str] = {
    OF_ITERATIONS: "log_sigma_factor",
    OF_REQUESTS: "request_log_sigma_factor",
}


class Observed(Record, eq=False):
    """The equation of a row: its seconds are the sum of `parts` times the constants, plus `known_s`."""

    names: tuple[str, ...]  # of the constants
    parts: Counts  # (constants,)
    known_s: float
    measured_s: float


def observed(row: ComparedServing, report: ServingReport) -> Observed:
    """Return the equation that a measured row gives for the constants of its engine.

    A time per output token gives an equation for the overlap of kernels, the ratio of experts, the host's
    seconds per iteration, and the seconds per sequence. A time to first token gives an equation for the
    seconds of a request, of each token of its prompt, and of its move between pools, and for the seconds of
    each layer of experts and of linear attention, because most prompts are computed in one iteration.
    """
    measured_s = row.measured.value / PER_UNIT[row.measured.unit]
    tpot_s = report.latencies["tpot"]["mean"].value
    cost = report.job.engine.iteration
    if row.measured.teaches == "iterations":
        ratio, job = tpot_s / report.iteration_s, report.job.kinds[-1]
        experts_s = report.experts_s * job.scales_experts
        parts = ratio * np.array([-report.decode_kernels, experts_s, 1.0, report.decoding])
        known_s = tpot_s - float(parts @ np.array([getattr(cost, name) for name in OF_ITERATIONS]))
        return Observed(names=OF_ITERATIONS, parts=parts, known_s=known_s, measured_s=measured_s)
    has_pools = float(bool(report.job.plan.pools))
    parts = np.array([1.0, _prompt_tokens(report), has_pools, *_layers(report.job.model)])
    constants_s = float(parts @ np.array([getattr(cost, name) for name in OF_REQUESTS]))
    known_s = report.latencies["ttft"]["mean"].value - constants_s
    return Observed(names=OF_REQUESTS, parts=parts, known_s=known_s, measured_s=measured_s)


def _prompt_tokens(report: ServingReport) -> float:
    """Return the mean length of prompts; 0 if a trace states them, because no constant is fitted to one."""
    lengths = report.job.traffic.prompt_tokens
    return 0.0 if lengths is None else lengths.mean


def _layers(model: Model) -> tuple[float, float]:
    """Return the numbers of layers with routed experts and with linear attention."""
    blocks = [(layer, count) for layer, count in model.sequence() if isinstance(layer, Block)]
    experts = sum(count for block, count in blocks if isinstance(block.feed_forward, Experts))
    return float(experts), float(sum(count for block, count in blocks if block.mixer.is_recurrent))


def fit(rows: Iterable[Observed], prior: IterationCost = PRIOR) -> IterationCost | None:
    """Return the constants that fit best; None if there are too few rows."""
    known = list(rows)
    found: dict[str, float] = {}
    for names in (OF_ITERATIONS, OF_REQUESTS):
        own = [row for row in known if row.names == names]
        if len(own) >= FEWEST_ROWS:
            found |= _fit(own, names, prior)
    return prior.model_copy(update=found) if "overlap_s" in found else None


def _fit(rows: Sequence[Observed], names: tuple[str, ...], prior: IterationCost) -> dict[str, float]:
    """Return the constants with these names, and the remaining spread of times."""
    measured_s = np.array([row.measured_s for row in rows])
    matrix = np.array([row.parts for row in rows]) / measured_s[:, None]
    known = np.array([row.known_s for row in rows]) / measured_s
    usual = np.array([max(getattr(prior, name), 1e-9) for name in names])
    weights = np.array([PRIOR_ROWS.get(name, FEW_PRIOR_ROWS) for name in names])
    least = np.array([LEAST.get(name, 0.0) for name in names])
    values = _least_absolute(matrix * usual, 1.0 - known, least / usual, weights) * usual
    found = {name: float(f"{value:.3g}") for name, value in zip(names, values.tolist(), strict=True)}
    left = np.abs(np.log(np.maximum(matrix @ values + known, LEAST_RATIO)))
    found[SPREADS[names]] = round(float(np.quantile(left, 0.9)) / NINETY_PERCENT, 3)
    return found


def _least_absolute(matrix: Counts, wanted: Counts, least: Counts, prior_rows: Counts) -> Counts:
    """Return the coefficients with the least absolute errors, by reweighted least squares.

    For a ratio r of predicted over measured, the error is the distance of r from 1, divided by the square
    root of r. A prior, which weighs as much as a number of rows, pulls each coefficient towards 1, and
    each coefficient has a lower bound.
    """
    found: Counts = np.ones(matrix.shape[1])
    drawn = prior_rows / USUAL_ERROR
    for _ in range(ROUNDS):
        error = matrix @ found - wanted
        scale = 1.0 / np.maximum(1.0 + error, LEAST_RATIO)
        weights = scale / np.maximum(np.abs(error) * np.sqrt(scale), SMALLEST_ERROR)
        left = matrix * weights[:, None]
        solved = np.linalg.solve(matrix.T @ left + np.diag(drawn), left.T @ wanted + drawn)
        found = np.maximum(solved, least)
    return found


def by_engine(pairs: Iterable[tuple[ComparedServing, ServingReport]]) -> dict[str, IterationCost]:
    """Return the constants of each engine that has enough rows."""
    groups: dict[str, list[Observed]] = {}
    kept: dict[str, dict[str, float]] = {}
    for row, report in pairs:
        engine = row.run.groups["engine"]
        groups.setdefault(engine, []).append(observed(row, report))
        cost = report.job.engine.iteration
        kept[engine] = {name: getattr(cost, name) for name in KEPT}
    together = fit(row for rows in groups.values() for row in rows)
    if together is None:
        return {}
    fitted = {name: fit(rows, together) for name, rows in groups.items()}
    return {name: (cost or together).model_copy(update=kept[name]) for name, cost in fitted.items()}
