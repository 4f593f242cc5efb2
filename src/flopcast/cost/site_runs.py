"""How measured runs of a site change its factors, and predictions of other steps on this site.

Answers: given some measured times, what are the factors at this site, and how much of the unexplained part
of a run does another step share?
Elsewhere: how a run is measured and written (lab/validation/from_run.py), factors (factors.py), the runs
as a validated model (spec/site.py).

The model is linear and Gaussian in logarithms. Before any run, the logarithms of factors are independent,
with mean 0 and known sigmas. A measured time has

    log(measured / predicted) = sum of share · log(factor) + what no factor explains + noise.

The part that no factor explains is similar for steps that consist of similar work. Between two steps on one
machine, its correlation is exp(-moved / 0.2), where `moved` is the share of factors that the two do not
have in common. 0.2 is the share above which the errors of two plans count as independent
(between_plans.py), and the sigma is at least that of the ratio of two plans. The time of a step does not
show which of its factors caused an error, and the error of a curve differs from shape to shape. If only
whole steps were measured, half of the variance of each factor (`SPECIFIC_FRACTION`) is therefore specific
to similar steps, like the unexplained part. Measured parts of a step distinguish its factors. With C the
covariance of the measured times, noise included, and k their covariance with anything else,

    mean = kᵀ C⁻¹ gaps,   variance = prior variance - kᵀ C⁻¹ k.

A surprising step counts less: if it differs by more than one sigma, its noise is increased so that it has
the weight of a Student distribution with four degrees of freedom, as in the fit of constants
(lab/calibration/constant_fit.py). Parts of a step have no unexplained error and therefore always have full
weight.

References
----------
Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 2.7 (explicit basis
functions: the factors). Lange, Little and Taylor, Robust statistical modeling using the t distribution,
1989, section 2 (weights).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from flopcast.cost.between_plans import BETWEEN_PLANS, OWN_SHARE
from flopcast.dtypes import Counts, Flags, Logs
from flopcast.records import Record
from flopcast.spec.site import SiteRun

UNEXPLAINED = "unexplained["  # how the names of factors begin whose level differs between steps
DEGREES_OF_FREEDOM = 4.0
# Fraction of a factor's variance that steps share only if they are alike. Between published runs of one
# machine that differ in more than 30 % of their factors, half of the change that the whole variance implies
# is measured: 0.46 in dense models and 0.40 in mixtures of experts (docs/accuracy/journal.md).
SPECIFIC_FRACTION = 0.5


class Uncertain(Protocol):
    """A factor with its sigma: timeline.uncertainty.Sensitivity."""

    @property
    def name(self) -> str:
        """Return the name of the factor, as site files write it."""

    @property
    def log_sigma_factor(self) -> float:
        """Return the sigma of the logarithm."""


def prior_log_sigmas(factors: Iterable[Uncertain]) -> dict[str, float]:
    """Return the sigmas of factors by name.

    The sigma of the unexplained part is at least that of the ratio of two plans (`between_plans`), which
    scales no step and is left out.
    """
    found = {factor.name: factor.log_sigma_factor for factor in factors}
    of_plans = found.pop(BETWEEN_PLANS, 0.0)
    return {
        name: max(sigma, of_plans) if name.startswith(UNEXPLAINED) else sigma
        for name, sigma in found.items()
    }


class KnownRuns(Record, eq=False):
    """Measured times that condition a prediction. Shares are (times, names) or, of one step, (names,).

    `weights` is C⁻¹ gaps and `precision` C⁻¹ in the notation of the module. `specific` is the fraction of
    each variance that only similar steps share: 1 for the unexplained part.
    """

    names: tuple[str, ...]
    shares: Counts
    variances: Logs  # of the factors, before any run
    specific: Counts
    weights: Logs
    precision: Counts

    def row(self, shares: Mapping[str, float]) -> Counts:
        """Return the shares of a step as an array, (names,)."""
        return np.array([shares.get(name, 0.0) for name in self.names])

    @property
    def log_ratios(self) -> Logs:
        """Return the mean of each factor's logarithm, (names,), over all steps; 0 for unexplained parts."""
        found: Logs = self.variances * (1.0 - self.specific) * (self.weights @ self.shares)
        return found

    @property
    def after_variances(self) -> Logs:
        """Return the variance of the logarithm of each single factor, (names,).

        For a factor of these times, this is the variance of the part that all steps share.
        """
        moves = self.shares * self.variances * (1.0 - self.specific)
        is_split = (self.shares > 0.0).any(axis=0) & ~_differing(self.names)
        of_all_steps = self.variances * (1.0 - self.specific * is_split)
        found: Logs = of_all_steps - np.einsum("in,ij,jn->n", moves, self.precision, moves)
        return np.maximum(found, 0.0)

    def mean(self, row: Counts) -> float:
        """Return log(step / its prediction without runs), from factors and from the specific part."""
        return float(row @ self.log_ratios) + self.specific_mean(row)

    def specific_mean(self, row: Counts) -> float:
        """Return the part of `mean` that only similar steps share."""
        found = _specific(self.variances * self.specific, self.shares, row[None])[:, 0]
        return float(found @ self.weights)

    def variance(self, row: Counts) -> float:
        """Return the variance of log(step), including the covariance of factors."""
        across = _covariance(self.variances, self.specific, self.shares, row[None])[:, 0]
        before = float(self.variances @ row**2)
        return max(0.0, before - float(across @ self.precision @ across))

    def specific_alone(self, row: Counts) -> float:
        """Return the variance of the part of log(step) that only similar steps share."""
        variances = self.variances * self.specific
        across = _specific(variances, self.shares, row[None])[:, 0]
        return max(0.0, float(variances @ row**2) - float(across @ self.precision @ across))

    def alone_variance(self, row: Counts) -> float:
        """Return the sum of the variances of single factors, which are those in a site file."""
        return float((row**2 * self.after_variances)[~_differing(self.names)].sum())

    def specific_variance(self, row: Counts, log_sigma_factor: float) -> float:
        """Return the part of `variance` that is not in `alone_variance`.

        If a step was measured, errors of factors cancel partly. The sum of their single variances ignores
        this, so the variance of the specific part is smaller (but at least 0). No run makes a step less
        certain than it was without runs.
        """
        factors = float((self.variances * row**2)[~_differing(self.names)].sum())
        whole = min(self.variance(row), factors + log_sigma_factor**2)
        return max(0.0, whole - self.alone_variance(row))


def condition(runs: Sequence[SiteRun], log_sigmas: Mapping[str, float]) -> KnownRuns:
    """Return the result of conditioning on these times.

    Parameters
    ----------
    runs : measured runs; without any, only the sigmas are known
    log_sigmas : sigmas by factor, before any run; the record of a factor in a run takes precedence
    """
    recorded = {each.name: each.log_sigma_factor for run in runs for each in run.shares}
    sigmas = {**log_sigmas, **recorded}
    names = tuple(sigmas)
    variances = np.array([sigmas[name] ** 2 for name in names])
    shares = np.zeros((len(runs), len(names)))
    place = {name: at for at, name in enumerate(names)}
    for number, run in enumerate(runs):
        for each in run.shares:
            shares[number, place[each.name]] = each.share
    gaps = np.log([run.ratio for run in runs])
    of_steps: Flags = shares @ _differing(names) > 0
    of_factors = SPECIFIC_FRACTION if runs and of_steps.all() else 0.0
    specific = np.where(_differing(names), 1.0, of_factors)
    covariance = _covariance(variances, specific, shares, shares)
    noise: Logs = np.array([run.log_sigma_factor**2 for run in runs])
    whole = np.diag(covariance) + noise
    surprise = np.maximum(gaps**2 / whole - 1.0, 0.0) * of_steps
    noise = noise + whole * surprise / (DEGREES_OF_FREEDOM + 1.0)
    precision = np.linalg.inv(covariance + np.diag(noise)).astype(np.float64)
    return KnownRuns(
        names=names,
        shares=shares,
        variances=variances,
        specific=specific,
        weights=precision @ gaps,
        precision=precision,
    )


@lru_cache(maxsize=64)
def _differing(names: tuple[str, ...]) -> Flags:
    """Return which names stand for what differs between steps, (names,)."""
    return np.array([name.startswith(UNEXPLAINED) for name in names], dtype=bool)


def _covariance(variances: Logs, specific: Counts, some: Counts, others: Counts) -> Counts:
    """Return the covariance of the logarithms of two sets of times, (some, others)."""
    found: Counts = (some * variances * (1.0 - specific)) @ others.T
    return found + _specific(variances * specific, some, others)


def _specific(variances: Logs, some: Counts, others: Counts) -> Counts:
    """Return the part of the covariance that is large only where two steps are alike."""
    moved = np.abs(some[:, None, :] - others[None, :, :]).sum(axis=2) / 2.0
    found: Counts = ((some * variances) @ others.T) * np.exp(-moved / OWN_SHARE)
    return found
