"""The one constant of a stack that no kernel benchmark shows, fitted on a suite.

Answers: by how much are the GEMMs of this stack slower in training than alone?
One number per stack: never one per run, model or cluster. It is fitted on the suite named in the stack's
file, and reported as fitted wherever that suite's error is shown.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.spec.job import Job
from flopcast.spec.stack import Derate
from flopcast.validation.compare import Comparison, Predict, compare
from flopcast.validation.suite import Suite

LOWEST, HIGHEST, STEP = 0.9, 1.6, 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedDerate:
    """What a fit found.

    Attributes
    ----------
    ratio : float
        Time in training over time alone, in hundredths.
    mean_error : float
        Mean absolute relative error of the suite's steps at that ratio.
    """

    ratio: float
    mean_error: float


def fit_derate(suite: Suite, predict: Predict) -> FittedDerate:
    """The derate under which a suite is predicted best.

    Every hundredth from 0.9 to 1.6 is tried, which needs no start and cannot miss the minimum; the search
    stops where the error has doubled past it.

    Parameters
    ----------
    suite : Suite
        All rows on one stack.
    predict : callable
        Job → Report.
    """
    best = FittedDerate(ratio=1.0, mean_error=np.inf)
    for ratio in np.arange(LOWEST, HIGHEST, STEP).round(2).tolist():
        error = _mean_error(compare(with_derate(suite, ratio), predict))
        if error < best.mean_error:
            best = FittedDerate(ratio=ratio, mean_error=error)
        elif error > 2 * best.mean_error:
            break
    return best


def with_derate(suite: Suite, ratio: float) -> Suite:
    """The suite with the derate of all its stacks replaced."""
    rows = tuple(row.model_copy(update={"job": _changed(row.job, ratio)}) for row in suite.rows)
    return suite.model_copy(update={"rows": rows})


def _changed(job: Job, ratio: float) -> Job:
    derate = Derate(ratio=ratio, log_sigma_factor=job.stack.derate.log_sigma_factor)
    return job.model_copy(update={"stack": job.stack.model_copy(update={"derate": derate})})


def _mean_error(comparison: Comparison) -> float:
    return float(np.mean([abs(row.relative_error) for row in comparison.rows]))
