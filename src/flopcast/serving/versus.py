"""Comparison of two predictions of serving, with the intervals of their ratios.

Answers: which of two deployments has the shorter latencies and the lower cost, and how certain is that?
Elsewhere: the same for steps of training (report/versus.py).

Factors of both iterations cancel in their ratio if their shares are equal. If requests wait, a latency
changes more than an iteration: in proportion to a power of the iteration's time, which follows from the
interval of the latency.
"""

import math
from collections.abc import Callable, Mapping

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.records import Record
from flopcast.serving.serving_report import Estimate, ServingReport
from flopcast.serving.time_shares import ITERATION
from flopcast.units import Number

# Of the ratio of the iterations of two deployments, beside shared factors. Residuals of two points of one
# model, engine and device differ by 13.5 % in the median (991 pairs of aiconfigurator's measured points).
LOG_SIGMA_BETWEEN_FACTOR = 0.20

Quantity = Callable[[ServingReport], Estimate | None]


def _mean(metric: str) -> Quantity:
    return lambda report: report.latencies[metric]["mean"]


QUANTITIES: Mapping[str, Quantity] = {
    "ttft": _mean("ttft"),
    "tpot": _mean("tpot"),
    "end_to_end": _mean("end_to_end"),
    "output_tokens_per_s_per_device": lambda report: report.output_tokens_per_s.times(
        1 / report.job.devices
    ),
    "usd_per_million_output_tokens": lambda report: report.usd_per_million_tokens,
    "joules_per_output_token": lambda report: report.joules_per_token,
}


class ServingComparison(Record, eq=False):
    """Two reports, and the ratio of each number of the second to that of the first; 0.9 means 10 % less."""

    first: ServingReport
    second: ServingReport
    ratios: Mapping[str, Estimate]

    def settled(self, name: str) -> bool:
        """Return whether the interval of a ratio excludes 1, so that the order is certain."""
        ratio = self.ratios[name]
        return not ratio.low <= 1.0 <= ratio.high


def serving_versus(first: ServingReport, second: ServingReport) -> ServingComparison:
    """Compare two reports, of any models, clusters, engines and traffic.

    Parameters
    ----------
    first, second : ServingReport

    Returns
    -------
    ServingComparison
        Ratios of all quantities that both reports have. Equal jobs have ratios without an interval. For
        different jobs, the interval contains the uncertainty that remains after shared factors cancel, and
        an additional sigma (`LOG_SIGMA_BETWEEN_FACTOR`) for errors that no factor describes.
    """
    same = first.job.model_copy(update={"assumptions": ()}) == second.job.model_copy(
        update={"assumptions": ()}
    )
    between = 0.0 if same else LOG_SIGMA_BETWEEN_FACTOR
    sigma = math.hypot(_log_sigma_of_ratio(first, second), between)
    ratios = {}
    for name, quantity in QUANTITIES.items():
        one, other = quantity(first), quantity(second)
        if one is None or other is None or not (one.value > 0 and other.value > 0):
            continue
        power = max(_power(one, first.log_sigma_factor), _power(other, second.log_sigma_factor))
        ratios[name] = Estimate.log_normal(other.value / one.value, sigma * power)
    return ServingComparison(first=first, second=second, ratios=ratios)


def _power(estimate: Estimate, log_sigma_factor: Number) -> float:
    """Return the power of an iteration's time with which a number grows, from its interval."""
    if log_sigma_factor <= 0 or estimate.low <= 0:
        return 0.0
    return math.log(estimate.high / estimate.low) / (2.0 * NINETY_PERCENT * log_sigma_factor)


def _log_sigma_of_ratio(first: ServingReport, second: ServingReport) -> float:
    """Return the sigma of the logarithm of the ratio of both iterations.

    A factor that both jobs depend on scales the part of each job that depends on it. The time that
    engines add to kernels is independent between engines.
    """
    same_engine = first.job.engine.name == second.job.engine.name
    parts = []
    for name in {**first.factors, **second.factors}:
        one, other = (_moved(report, name) for report in (first, second))
        apart = name == ITERATION and not same_engine
        parts.append(math.hypot(one, other) if apart else one - other)
    return math.hypot(*parts)


def _moved(report: ServingReport, name: str) -> float:
    """Return by how much the logarithm of an iteration's time changes with one sigma of a factor."""
    factor = report.factors.get(name)
    return report.factor_shares.get(name, 0.0) * factor.log_sigma_factor if factor else 0.0
