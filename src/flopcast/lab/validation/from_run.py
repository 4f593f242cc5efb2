"""Bayesian update of the factors of a prediction from one measured run.

Answers: which factors does this run change, by how much, how certain are they afterwards, and is the error
so large that wrong inputs are more likely than a slow machine?
Elsewhere: reading a run (lab/logs, lab/traces), factors (cost/factors.py), their shares of a step
(timeline/uncertainty.py), parts of a step (step_parts.py), the file that is written
(cli/import_measurements.py).

The model is that of cost/site_runs.py: linear and Gaussian in logarithms. Its mean is the current
prediction; similar steps have similar errors that no factor explains. With the shares H (d log(seconds) /
d log(factor)), the diagonal prior variances P and the noise variances R, the factors have

    gain = P Hᵀ (H P Hᵀ + R)⁻¹,   mean = gain · log(observed / predicted),   covariance = P - gain H P

(Bishop, Pattern Recognition and Machine Learning, 2006, eq. 2.113 to 2.117). Given the factors, the
observations of one run are assumed to be independent. Shares are valid for small changes: predict again
with the site file, and repeat the update if the step still differs by more than the noise. A site file
keeps its runs, so that a second run is combined with the first in any order.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.factors import NINETY_PERCENT
from flopcast.cost.site_runs import UNEXPLAINED, KnownRuns, condition, prior_log_sigmas
from flopcast.dtypes import Counts
from flopcast.errors import Problem, SpecError
from flopcast.lab.validation.step_parts import components, part_row, step_row
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.spec.site import RunShare, Site, SiteFactor, SiteRun
from flopcast.spec.source import Source
from flopcast.timeline.uncertainty import Sensitivity

STEP = "step"
NOISE_LOG_SIGMA = 0.02  # estimate: means of quiet runs of one job repeat within one to three per cent
SURPRISING_SIGMAS = 3.0
LEAST_MOVE = 0.001  # of a ratio or a share: smaller ones are not worth a line of a site file
SURER = 0.99  # of a sigma, likewise


class Observation(Record):
    """One measured time: of the step, or of a component in a step.

    `log_sigma_factor` is the noise of the measurement, which is about its relative error: the spread of
    the mean over repeated runs and not of single steps.
    """

    name: str = STEP  # or a component
    observed_s: float
    log_sigma_factor: float = NOISE_LOG_SIGMA


class FactorUpdate(Record):
    """One factor, before and after the update. Ratios are relative to the prediction: before the update,
    every ratio is 1.

    `step_share` is d log(step) / d log(factor). `taken_share` is the part of the step's discrepancy (in
    logarithms) that the change of the factor explains. If the step was not observed, it is the part of
    the step's change.
    """

    name: str
    step_share: float
    prior_log_sigma_factor: float
    ratio: float
    log_sigma_factor: float
    taken_share: float


class Check(Record):
    """One observation and its predictions before and after the update.

    `surprise` is the discrepancy before the update in sigmas of prediction and noise together. A value of
    1 is usual. Above 3, either the job does not describe the run, or the model lacks something.
    """

    name: str
    observed_s: float
    predicted_s: float
    updated_s: float
    surprise_ratio: float


class Posterior(Record):
    """The factors after the run, the one that explains the most first, and the step with its 90 % interval.

    The interval uses the covariance of the factors: with independent factors, it would be wider.
    """

    factors: tuple[FactorUpdate, ...]
    checks: tuple[Check, ...]
    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    warnings: tuple[str, ...]
    runs: tuple[SiteRun, ...]


def update(report: Report, observed: Sequence[Observation], known: Sequence[SiteRun] = ()) -> Posterior:
    """Return the factors of a report, given the measurements.

    Parameters
    ----------
    report : Report
        The report of the job that ran, predicted with its current site.
    observed : sequence of Observation
        All measurements of one run, or of several runs of the same job, in any order; several
        observations with one name are several measurements of one quantity.
    known : runs that this site already contains

    Returns
    -------
    Posterior

    Raises
    ------
    SpecError
        An observation has no time or no noise, or names a part that the prediction lacks. All such errors
        are reported together.
    """
    parts = components(report)
    _refuse(observed, {STEP, *parts})
    priors = _priors(report)
    before = condition(known, priors)
    rows = {STEP: step_row(report, before.names)} | {
        name: part_row(report, name, before.names) for name in parts
    }
    predicted = {STEP: report.step_time_s} | parts
    measured = [(one, rows[one.name], math.log(one.observed_s / predicted[one.name])) for one in observed]
    made = [
        SiteRun(
            name=one.name,
            ratio=math.exp(gap + before.mean(row)),
            log_sigma_factor=one.log_sigma_factor,
            shares=_recorded(before, row),
        )
        for one, row, gap in measured
    ]
    after = condition((*known, *made), priors)
    checks = tuple(
        Check(
            name=one.name,
            observed_s=one.observed_s,
            predicted_s=predicted[one.name],
            updated_s=predicted[one.name] * math.exp(after.mean(row) - before.mean(row)),
            surprise_ratio=abs(gap) / math.sqrt(one.log_sigma_factor**2 + before.variance(row)),
        )
        for one, row, gap in measured
    )
    return _posterior(report, (before, after), rows[STEP], checks, (*known, *made))


def step_run(factors: Iterable[Sensitivity], gap_ratio: float, log_sigma_factor: float) -> SiteRun:
    """Return a measured step as a site file stores it.

    Parameters
    ----------
    factors : those of the prediction that no run of the site has changed
    gap_ratio, log_sigma_factor
        The ratio of measured to predicted time, and the noise of the measurement.
    """
    listed = tuple(factors)
    blank = condition((), prior_log_sigmas(listed))
    row = blank.row({factor.name: factor.share for factor in listed})
    return SiteRun(ratio=gap_ratio, log_sigma_factor=log_sigma_factor, shares=_recorded(blank, row))


def _recorded(runs: KnownRuns, row: Counts) -> tuple[RunShare, ...]:
    """Return the shares of a time as a site stores them; those below a thousandth are left out."""
    sigmas = np.sqrt(runs.variances)
    return tuple(
        RunShare(name=name, share=float(share), log_sigma_factor=float(sigma))
        for name, share, sigma in zip(runs.names, row, sigmas, strict=True)
        if share > LEAST_MOVE
    )


def _posterior(
    report: Report,
    known: tuple[KnownRuns, KnownRuns],
    row: Counts,
    checks: tuple[Check, ...],
    runs: tuple[SiteRun, ...],
) -> Posterior:
    before, after = known
    names, sigmas, left = before.names, np.sqrt(before.after_variances), np.sqrt(after.after_variances)
    moves = after.log_ratios - before.log_ratios
    for at in np.flatnonzero([name.startswith(UNEXPLAINED) for name in names] & (row > 0)):
        moves[at] = after.specific_mean(row) - before.specific_mean(row)
        sigmas[at], left[at] = (math.sqrt(each.specific_alone(row)) for each in known)
    change = after.mean(row) - before.mean(row)
    steps = [math.log(check.observed_s / check.predicted_s) for check in checks if check.name == STEP]
    gap = float(np.mean(steps)) if steps else change
    step_s = report.step_time_s * math.exp(change)
    reach = math.exp(NINETY_PERCENT * math.sqrt(after.variance(row)))
    updates = [
        FactorUpdate(
            name=name,
            step_share=float(row[at]),
            prior_log_sigma_factor=float(sigmas[at]),
            ratio=math.exp(moves[at]),
            log_sigma_factor=float(left[at]),
            taken_share=float(row[at] * moves[at]) / gap if gap else 0.0,
        )
        for at, name in enumerate(names)
    ]
    return Posterior(
        factors=tuple(sorted(updates, key=lambda u: (-abs(u.step_share * math.log(u.ratio)), u.name))),
        checks=checks,
        step_time_s=step_s,
        step_time_low_s=step_s / reach,
        step_time_high_s=step_s * reach,
        warnings=tuple(_surprised(check) for check in checks if check.surprise_ratio > SURPRISING_SIGMAS),
        runs=runs,
    )


def _priors(report: Report) -> dict[str, float]:
    """Return the sigmas by name: those of the step, then those of factors of only hidden parts."""
    others = {name: factor.log_sigma_factor for name, factor in report.priced.factors.items()}
    priors = prior_log_sigmas(report.factors)
    return priors | {
        name: sigma for name, sigma in others.items() if name not in priors and name != BETWEEN_PLANS
    }


def _refuse(observed: Sequence[Observation], known: set[str]) -> None:
    problems = (
        []
        if observed
        else [_fault("observations", (), "at least one", "without an observation, no factor changes")]
    )
    for one in observed:
        if one.name not in known:
            allowed, because = ", ".join(sorted(known)), "the prediction has only these components"
            problems.append(_fault("name", one.name, allowed, because))
        for field in ("observed_s", "log_sigma_factor"):
            value = getattr(one, field)
            if not (math.isfinite(value) and value > 0):
                problems.append(
                    _fault(
                        field, value, "a finite number above 0", "flopcast compares the logarithms of times"
                    )
                )
    if problems:
        raise SpecError(problems)


def _fault(field: str, value: object, allowed: str, because: str) -> Problem:
    fix = "give another component of the run, or remove this one"
    return Problem(f"observed.{field}", value, allowed, because, fix)


def _surprised(check: Check) -> str:
    """Return the first things to check if a run differs much from its prediction."""
    ratio = check.observed_s / check.predicted_s
    return (
        f"{check.name}: the observed value is {ratio:.2f} times the predicted value, a difference of"
        f" {check.surprise_ratio:.1f} standard deviations."
        " Check the inputs (model, plan, batch, stack, units): a machine is unlikely to differ so much"
    )


def site_after(posterior: Posterior, site: Site, name: str, title: str) -> Site:
    """Return the site with these runs, and with every factor that changed or whose sigma became smaller.

    `site` is the site with which the report was predicted; `name` is the name of the new site if the old
    one has none; `title` states the source of the measurement. Ratios are multiplied; the sigmas are
    those of single factors after the update. A prediction computes the covariance of factors and the
    unexplained part from the runs (cost/site_runs.py).
    """
    moved = {one.name: one for one in posterior.factors if _worth_a_line(one)}
    kept = {factor.name: factor for factor in site.factors}
    made = {
        key: SiteFactor(
            name=key,
            ratio=_six_digits(one.ratio * (kept[key].ratio if key in kept else 1.0)),
            log_sigma_factor=_six_digits(one.log_sigma_factor),
        )
        for key, one in moved.items()
    }
    factors = tuple(made.get(factor.name, factor) for factor in site.factors)
    added = tuple(factor for key, factor in made.items() if key not in kept)
    return site.model_copy(
        update={
            "name": name if site.name == "none" else site.name,
            "factors": (*factors, *added),
            "runs": tuple(_rounded(run) for run in posterior.runs),
            "source": (*site.source, Source(covers="factors", title=title)),
        }
    )


def _worth_a_line(one: FactorUpdate) -> bool:
    """Return whether a factor changed or became more certain; unexplained errors have separate lines."""
    surer = one.log_sigma_factor < SURER * one.prior_log_sigma_factor
    return not one.name.startswith(UNEXPLAINED) and (abs(one.ratio - 1.0) > LEAST_MOVE or surer)


def _rounded(run: SiteRun) -> SiteRun:
    shares = [
        share.model_copy(
            update={
                "share": _six_digits(share.share),
                "log_sigma_factor": _six_digits(share.log_sigma_factor),
            }
        )
        for share in run.shares
    ]
    return run.model_copy(update={"ratio": _six_digits(run.ratio), "shares": tuple(shares)})


def _six_digits(ratio: float) -> float:
    """Return a number rounded to six digits; more would exceed the measurement's precision."""
    return float(f"{ratio:.6g}")
