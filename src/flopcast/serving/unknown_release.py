"""The uncertainty of a release of an engine that is older than those to which constants were fitted.

Answers: how uncertain are iterations of an older release, in addition to all other factors?
Elsewhere: the entries of releases (library/engine_releases.py), the interval (serve.py), the fit of the
sigmas (tests/release_fit.py).

An entry of older releases states the known differences, such as the time of the host and CUDA graphs.
Kernels of older releases were not measured, so the uncertainty grows with the age of a release. Differences
between successive releases add up like independent steps, so the variance is proportional to the age. An
unknown release counts as a year older.
"""

import math

from flopcast.cost.factors import Factor
from flopcast.spec.engine import UNKNOWN_RELEASE, Engine
from flopcast.spec.serving_job import ServingJob

# Sigmas of log(time) after a year, of faster and of slower releases: fitted to APEX, MLPerf and
# catalog/runs/deployments.yaml. Each is the largest of the fits that leave one source out.
DENSE, EXPERTS = (0.10, 0.30), (0.20, 0.80)


def release_age(engine: Engine) -> float:
    """Return the age of a release in years, before the oldest measurements of the fit; 0 if it is newer.

    >>> known = Engine(era="2024-10", fitted_from="2025-10")
    >>> [release_age(each) for each in (known, known.model_copy(update={"era": "2026-03"}), Engine())]
    [1.0, 0.0, 0.0]
    """
    if engine.release == UNKNOWN_RELEASE:
        return 1.0
    if not (engine.month and engine.fitted_from):
        return 0.0
    return max(_months(engine.fitted_from) - _months(engine.month), 0) / 12.0


def release_factor(job: ServingJob) -> Factor | None:
    """Return the factor that scales all iterations of an older release; None for other releases."""
    age = release_age(job.engine)
    if not age:
        return None
    faster, slower = (math.sqrt(age) * sigma for sigma in (EXPERTS if job.model.has_experts else DENSE))
    name = f"unknown_release[{job.engine.label}]"
    return Factor(name=name, log_sigma_factor=slower, below_log_sigma_factor=faster)


def _months(month: str) -> int:
    year, number = month.split("-")
    return 12 * int(year) + int(number)
