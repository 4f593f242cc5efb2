"""The uncertainty about older releases of engines, fitted to measured times.

Answers: how much do releases differ from their predictions, per year of their age?
Elsewhere: the intervals that this uncertainty widens (serving/unknown_release.py).

The error of a measurement is the sum of two independent errors. The error of all other factors has the
sigmas of the predicted interval, and the error of the release has a variance in proportion to its age. Both
are normal distributions of logarithms with a separate sigma for each side. Each source has the same weight.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.lab.calibration.site_fit import log_density
from flopcast.lab.serving_runs.rows import ComparedServing, ServingRun
from flopcast.lab.serving_runs.score import score_runs
from flopcast.records import dataclass, replace
from flopcast.serving.unknown_release import release_age
from flopcast.spec.engine import UNKNOWN_RELEASE
from flopcast.spec.serving_job import ServingJob
from flopcast.units import Number

GRID = np.linspace(0.0, 2.0, 41).round(2)  # of the sigmas
PER_REQUEST = ("ttft", "power", "watts", "joules")  # quantities that say little of iterations
Sigmas = tuple[float, float]  # of faster and of slower releases


@dataclass(frozen=True, kw_only=True, slots=True)
class Deviation:
    """The difference between a measured time and its prediction.

    `log_ratio` is the logarithm of measured over predicted time. `faster` and `slower` are the sigmas of
    the other factors, and `age` is the age of the release in years.
    """

    source: str
    has_experts: bool = False
    age: Number
    log_ratio: float
    faster: Number
    slower: Number

    def sigmas(self, year: Sigmas) -> Sigmas:
        """Return the sigmas of both sides, including the uncertainty about the release."""
        root = math.sqrt(self.age)
        return math.hypot(self.faster, root * year[0]), math.hypot(self.slower, root * year[1])

    def is_inside(self, year: Sigmas) -> bool:
        """Return whether the measured time lies in its 90 % interval."""
        faster, slower = self.sigmas(year)
        return -NINETY_PERCENT * faster <= self.log_ratio <= NINETY_PERCENT * slower


def deviations(runs: Iterable[ServingRun]) -> list[Deviation]:
    """Return the differences from the prediction for runs of releases that are older than the fitted ones.

    Runs of unknown releases, and throughputs of requests that arrive at a fixed rate, are left out.
    """
    found = []
    for run in runs:
        job = run.job
        if job is None or job.engine.release == UNKNOWN_RELEASE or not release_age(job.engine):
            continue
        engine = job.engine.model_copy(update={"fitted_from": ""})  # without the doubt about its release
        certain = replace(run, job=job.model_copy(update={"engine": engine}))
        for row in score_runs([certain]).rows:
            name, is_rate = row.measured.quantity, row.measured.unit.endswith("/s")
            if any(word in name for word in PER_REQUEST) or (is_rate and job.traffic.rate_per_s):
                continue
            found.append(_deviation(row, job, is_rate=is_rate))
    return found


def _deviation(row: ComparedServing, job: ServingJob, *, is_rate: bool) -> Deviation:
    predicted, run = row.predicted, row.run
    ratio = math.log(row.measured.value / predicted.value)
    shorter = math.log(predicted.value / predicted.low) / NINETY_PERCENT
    longer = math.log(predicted.high / predicted.value) / NINETY_PERCENT
    if is_rate:  # the inverse of a time
        ratio, shorter, longer = -ratio, longer, shorter
    return Deviation(
        source=run.id.split("/")[0] if run.source == "deployments" else f"{run.source}, {job.engine.name}",
        has_experts=job.model.has_experts,
        age=release_age(job.engine),
        log_ratio=ratio,
        faster=shorter,
        slower=longer,
    )


def fit(found: Sequence[Deviation]) -> Sigmas:
    """Return the sigmas for an age of one year under which the differences are most likely.

    >>> one = Deviation(source="a", age=1.0, log_ratio=0.5, faster=0.1, slower=0.1)
    >>> [round(each, 2) for each in fit([one, replace(one, log_ratio=0.6)])]
    [0.0, 0.6]
    """
    counts = Counter(each.source for each in found)
    weights = np.array([1.0 / counts[each.source] for each in found])
    gaps, ages, faster, slower = np.array(
        [(each.log_ratio, each.age, each.faster, each.slower) for each in found]
    ).T
    below = faster**2 + ages * GRID[:, None, None] ** 2  # (faster, 1, deviations)
    above = slower**2 + ages * GRID[None, :, None] ** 2
    best = int(np.argmax(log_density(gaps, below, above) @ weights))
    one, other = divmod(best, GRID.size)
    return float(GRID[one]), float(GRID[other])


def without_each_source(found: Sequence[Deviation]) -> dict[str, Sigmas]:
    """Return the sigmas, fitted without each source in turn."""
    sources = dict.fromkeys(each.source for each in found)
    return {name: fit([each for each in found if each.source != name]) for name in sources}
