"""One measured run, and what it says of the factors: a Bayes update of a prediction.

Answers: which factors does this run move, by how much, how sure are they then, and is the run so far off
that wrong inputs are likelier than a slow machine?
Elsewhere: how a run is read (io/logs, io/traces), factors (cost/factors.py), their shares of a step
(timeline/uncertainty.py), the file that is written (cli/observing.py).

The model is linear and Gaussian in logarithms. A priori the logarithms of the factors are independent,
with mean 0 (the prediction as it stands) and sigma `log_sigma_factor`. An observation is
log(observed / predicted) = sum of share · log(factor) + noise, where a share is d log(seconds) / d
log(factor). So with H the shares, P the prior variances on a diagonal and R those of the noise,

    gain = P Hᵀ (H P Hᵀ + R)⁻¹,   mean = gain · log(observed / predicted),   covariance = P - gain H P

(Bishop, Pattern Recognition and Machine Learning, 2006, eq. 2.113 to 2.117). Observations of one run are
taken as independent given the factors. Shares hold for small changes: predict again with the site file,
and repeat where the step is still off by more than the noise.

Components are those of the busiest stage as the prediction sees it (report.breakdown): "gemm",
"attention" (fused, or its batched products), "memory_bound", "communication" (exposed) and "host". Jitter
scales the step only.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flopcast.calibration.kernel_names import COMMUNICATION, kind_of
from flopcast.cost.factors import HOST, NINETY_PERCENT
from flopcast.cost.prices import Priced
from flopcast.dtypes import Counts, Logs
from flopcast.errors import Problem, SpecError
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.spec.model import Source
from flopcast.spec.site import Site, SiteFactor

STEP = "step"
NOISE_LOG_SIGMA = 0.02  # estimate: means of quiet runs of one job repeat within one to three per cent
SURPRISING_SIGMAS = 3.0
LEAST_MOVE = 0.001  # of a ratio: smaller moves are not worth a line of a site file


class Sensitive(Protocol):
    """A factor of a report: timeline.uncertainty.Sensitivity."""

    @property
    def name(self) -> str:
        """Return the name as in a site file."""

    @property
    def log_sigma_factor(self) -> float:
        """Return the sigma of the logarithm."""

    @property
    def share(self) -> float:
        """Return d log(step) / d log(factor)."""


class Shared(Protocol):
    """Seconds of one item: timeline.shares.Share."""

    @property
    def item(self) -> Item | None:
        """Return the item, or None for launches that the device waits for."""

    @property
    def path_s(self) -> float:
        """Return the seconds in a step."""

    @property
    def scaled_s(self) -> float:
        """Return the seconds that the item's factors scale."""

    def factors(self, priced: Priced) -> tuple[str, ...]:
        """Return the names of the factors that scale these seconds."""


class Played(Protocol):
    """What the busiest stage does: timeline.step.Timeline."""

    @property
    def bottleneck_shares(self) -> Sequence[Shared]:
        """Return the shares of each item with its waiting, for the step without jitter."""


class Predicted(Protocol):
    """What is needed of a report (report.report.Report): calibration stands below it, and sees no more."""

    @property
    def step_time_s(self) -> float:
        """Return the step time with jitter."""

    @property
    def factors(self) -> Sequence[Sensitive]:
        """Return the factors that the step depends on."""

    @property
    def timeline(self) -> Played:
        """Return the simulated timeline."""

    @property
    def priced(self) -> Priced:
        """Return the priced programs, whose items name their factors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One measured time: of the step, or of a component in a step.

    `log_sigma_factor` is the noise of the measurement, about its relative error: the spread of the mean
    over repeated runs, not that of single steps.
    """

    name: str = STEP  # or a component
    observed_s: float
    log_sigma_factor: float = NOISE_LOG_SIGMA


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """All that was measured of one run, or of several of the same job."""

    observations: tuple[Observation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactorUpdate:
    """One factor, before and after. Ratios are relative to the prediction: before, every ratio is 1.

    `step_share` is d log(step) / d log(factor). `taken_share` is the part of the step's discrepancy (in
    logarithms) that the factor's move explains; of the step's change, where the step was not observed.
    """

    name: str
    step_share: float
    prior_log_sigma_factor: float
    ratio: float
    log_sigma_factor: float
    taken_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One observation beside its prediction, before and after the update.

    `surprise` is the discrepancy in sigmas, prediction and noise together, before: 1 is usual, above 3
    either the run was not what the job says, or the model misses something.
    """

    name: str
    observed_s: float
    predicted_s: float
    updated_s: float
    surprise_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """The factors after the run, the one that explains most first, and the step with its 90 % interval.

    `unexplained_ratio` is observed / updated step: what no factor could take, given how sure each was; 1
    where the step was not observed. The interval counts what factors share: each alone would make it wider.
    """

    factors: tuple[FactorUpdate, ...]
    checks: tuple[Check, ...]
    predicted_step_s: float
    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    unexplained_ratio: float
    warnings: tuple[str, ...]


def update(report: Predicted, observed: Observed) -> Posterior:
    """Return the factors of a report, given what was measured.

    Parameters
    ----------
    report : Report
        Of the job that ran, with the site that it was predicted with.
    observed : Observed
        In any order; several observations of one name are several measurements of it.

    Returns
    -------
    Posterior

    Raises
    ------
    SpecError
        An observation is of no time or no noise, or names what the prediction does not hold; all at once.
    """
    known = components(report)
    _refuse(observed, {STEP, *known})
    names, sigmas = _priors(report)
    rows = {STEP: _step_row(report, names)} | {name: _row(report, name, names) for name in known}
    predicted = {STEP: report.step_time_s} | known
    shares = np.array([rows[one.name] for one in observed.observations]).reshape(-1, len(names))
    gaps = np.array([math.log(one.observed_s / predicted[one.name]) for one in observed.observations])
    noise = np.array([one.log_sigma_factor for one in observed.observations])
    variance = shares * sigmas**2 @ shares.T + np.diag(noise**2)
    gain = np.linalg.solve(variance, shares * sigmas**2).T
    mean, covariance = gain @ gaps, np.diag(sigmas**2) - gain @ (shares * sigmas**2)
    surprises = np.abs(gaps) / np.sqrt(np.diag(variance))
    checks = tuple(
        Check(
            name=one.name,
            observed_s=one.observed_s,
            predicted_s=predicted[one.name],
            updated_s=predicted[one.name] * math.exp(float(rows[one.name] @ mean)),
            surprise_ratio=float(surprise),
        )
        for one, surprise in zip(observed.observations, surprises, strict=True)
    )
    return _posterior(report, names, sigmas, rows[STEP], (mean, covariance), checks)


def _posterior(
    report: Predicted,
    names: Sequence[str],
    sigmas: Logs,
    step_row: Counts,
    found: tuple[Logs, Logs],
    checks: tuple[Check, ...],
) -> Posterior:
    """Return the result for a mean and covariance of the factors' logarithms."""
    mean, covariance = found
    change = float(step_row @ mean)
    steps = [math.log(check.observed_s / check.predicted_s) for check in checks if check.name == STEP]
    gap = float(np.mean(steps)) if steps else change
    step_s = report.step_time_s * math.exp(change)
    reach = math.exp(NINETY_PERCENT * math.sqrt(max(0.0, float(step_row @ covariance @ step_row))))
    updates = [
        FactorUpdate(
            name=name,
            step_share=float(step_row[at]),
            prior_log_sigma_factor=float(sigmas[at]),
            ratio=math.exp(mean[at]),
            log_sigma_factor=math.sqrt(max(0.0, float(covariance[at, at]))),
            taken_share=float(step_row[at] * mean[at]) / gap if gap else 0.0,
        )
        for at, name in enumerate(names)
    ]
    return Posterior(
        factors=tuple(sorted(updates, key=lambda u: (-abs(u.step_share * math.log(u.ratio)), u.name))),
        checks=checks,
        predicted_step_s=report.step_time_s,
        step_time_s=step_s,
        step_time_low_s=step_s / reach,
        step_time_high_s=step_s * reach,
        unexplained_ratio=math.exp(gap - change) if steps else 1.0,
        warnings=tuple(_surprised(check) for check in checks if check.surprise_ratio > SURPRISING_SIGMAS),
    )


def components(report: Predicted) -> dict[str, float]:
    """Return predicted seconds of a step by component, on the busiest stage, largest first.

    Returns
    -------
    dict
        Waiting for other stages and jitter are in no component, nor is communication that compute hides.
    """
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_shares:
        seconds[component_of(share.item)] += share.path_s
    found = {name: value for name, value in seconds.items() if value > 0}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def component_of(item: Item | None) -> str:
    """Return the component of an item; launches that the device waits for belong to the host."""
    if item is None:
        return HOST
    if isinstance(item.work, AbstractOperator):
        return kind_of(item.work.kernel.removesuffix(".backward").partition(".")[0])
    return COMMUNICATION if isinstance(item.work, AbstractMessage) else HOST


def _priors(report: Predicted) -> tuple[tuple[str, ...], Logs]:
    """Return names and sigmas: those of the step, then those that scale only hidden parts of it."""
    sigmas = {factor.name: factor.log_sigma_factor for factor in report.factors}
    others = {name: factor.log_sigma_factor for name, factor in report.priced.factors.items()}
    joined = sigmas | {name: sigma for name, sigma in others.items() if name not in sigmas}
    return tuple(joined), np.array(list(joined.values()))


def _step_row(report: Predicted, names: Sequence[str]) -> Counts:
    """Return shares of the step, (factors,)."""
    shares: Mapping[str, float] = {factor.name: factor.share for factor in report.factors}
    return np.array([shares.get(name, 0.0) for name in names])


def _row(report: Predicted, component: str, names: Sequence[str]) -> Counts:
    """Return shares of a component, (factors,): the part of its seconds that each factor scales."""
    place = {name: at for at, name in enumerate(names)}
    row, total_s = np.zeros(len(names)), 0.0
    for share in report.timeline.bottleneck_shares:
        if component_of(share.item) == component:
            total_s += share.path_s
            for name in share.factors(report.priced):
                if name in place:
                    row[place[name]] += share.scaled_s
    return row / total_s


def _refuse(observed: Observed, known: set[str]) -> None:
    """Return all errors of the observations together."""
    problems = (
        [] if observed.observations else [_fault("observations", (), "at least one", "nothing else moves")]
    )
    for one in observed.observations:
        if one.name not in known:
            allowed, because = ", ".join(sorted(known)), "the prediction spends no time on anything else"
            problems.append(_fault("name", one.name, allowed, because))
        for field in ("observed_s", "log_sigma_factor"):
            value = getattr(one, field)
            if not (math.isfinite(value) and value > 0):
                problems.append(
                    _fault(field, value, "a finite number above 0", "its logarithm is compared")
                )
    if problems:
        raise SpecError(problems)


def _fault(field: str, value: object, allowed: str, because: str) -> Problem:
    """Return a fault of one observation."""
    fix = "observe another part of the run, or leave it out"
    return Problem(field=f"observed.{field}", value=value, allowed=allowed, because=because, fix=fix)


def _surprised(check: Check) -> str:
    """Return the first things to check if a run is far from its prediction."""
    ratio = check.observed_s / check.predicted_s
    return (
        f"{check.name}: observed is {ratio:.2f} times predicted, {check.surprise_ratio:.1f} sigmas off:"
        " wrong inputs (model, plan, batch, stack, units) are likelier than a machine that differs so much"
    )


def site_after(posterior: Posterior, site: Site, name: str, title: str) -> Site:
    """Return the site with every factor that moved by more than 0.1 %, combined with its previous values.

    Parameters
    ----------
    site : the one that the report was predicted with
    name : of the new site, where the old one has none
    title : where the measurement comes from, for its list of sources

    Returns
    -------
    Site
        Ratios are multiplied; sigmas are those after the update, each factor's alone. Factors of one run
        are not independent afterwards, which a site file cannot say: where a step was observed, errors
        cancel in it in part, and an interval predicted with the file is wider than the posterior's.
    """
    moved = {one.name: one for one in posterior.factors if abs(one.ratio - 1.0) > LEAST_MOVE}
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
    return Site(
        name=name if site.name == "none" else site.name,
        factors=(*factors, *added),
        source=(*site.source, Source(covers="factors", title=title)),
    )


def _six_digits(ratio: float) -> float:
    """Return a number rounded to six digits; more would exceed the measurement's precision."""
    return float(f"{ratio:.6g}")
