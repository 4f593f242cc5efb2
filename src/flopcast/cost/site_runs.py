"""How measured runs of a site change its factors, and predictions of other steps on this site.

Answers: given some measured times, what are the factors at this site, and how much of the unexplained part
of a run does another step share?
Elsewhere: how a run is measured and written (lab/validation/from_run.py), factors (factors.py), the runs
as a noun (spec/site.py).

The model is linear and Gaussian in logarithms. Before any run, the logarithms of factors are independent,
with mean 0 and a sigma. A measured time has

    log(measured / predicted) = sum of share · log(factor) + what no factor explains + noise.

What no factor explains is alike for steps that spend their time alike: between two steps on one machine its
correlation is exp(-moved / 0.2), where `moved` is the share of factors that the two do not have in common.
0.2 is the share from which on the errors of two plans count as independent (between_plans.py), and the
sigma is at least that of the ratio of two plans. So with C the covariance of the measured times, noise
included, and k their covariance with anything else,

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
from flopcast.records import dataclass
from flopcast.spec.site import SiteRun

UNEXPLAINED = "unexplained["  # how the names of factors begin whose level differs between steps
DEGREES_OF_FREEDOM = 4.0


class Uncertain(Protocol):
    """A factor with its sigma: timeline.uncertainty.Sensitivity."""

    @property
    def name(self) -> str:
        """Return the name in the form of a site file."""

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


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class KnownRuns:
    """Measured times that condition a prediction. Shares are (times, names) or, of one step, (names,).

    `weights` is C⁻¹ gaps and `precision` C⁻¹ in the notation of the module.
    """

    names: tuple[str, ...]
    shares: Counts
    variances: Logs  # of the factors, before any run
    weights: Logs
    precision: Counts

    def row(self, shares: Mapping[str, float]) -> Counts:
        """Return the shares of a step as an array, (names,)."""
        return np.array([shares.get(name, 0.0) for name in self.names])

    @property
    def log_ratios(self) -> Logs:
        """Return the mean of each factor's logarithm, (names,); 0 for a part that no factor explains."""
        found: Logs = self.variances * ~_differing(self.names) * (self.weights @ self.shares)
        return found

    @property
    def after_variances(self) -> Logs:
        """Return the variance of the logarithm of each single factor, (names,)."""
        moves = self.shares * self.variances * ~_differing(self.names)
        found: Logs = self.variances - np.einsum("in,ij,jn->n", moves, self.precision, moves)
        return np.maximum(found, 0.0)

    def mean(self, row: Counts) -> float:
        """Return log(step / its prediction without runs), from factors and from the unexplained part."""
        return float(row @ self.log_ratios) + self.unexplained_mean(row)

    def unexplained_mean(self, row: Counts) -> float:
        """Return the part of `mean` that no factor explains."""
        found = _unexplained(self.names, self.variances, self.shares, row[None])[:, 0]
        return float(found @ self.weights)

    def variance(self, row: Counts) -> float:
        """Return the variance of log(step), including the covariance of factors."""
        across = _covariance(self.names, self.variances, self.shares, row[None])[:, 0]
        before = float(_covariance(self.names, self.variances, row[None], row[None])[0, 0])
        return max(0.0, before - float(across @ self.precision @ across))

    def unexplained_alone(self, row: Counts) -> float:
        """Return the variance of the part of log(step) that no factor explains."""
        across = _unexplained(self.names, self.variances, self.shares, row[None])[:, 0]
        before = float(_unexplained(self.names, self.variances, row[None], row[None])[0, 0])
        return max(0.0, before - float(across @ self.precision @ across))

    def alone_variance(self, row: Counts) -> float:
        """Return the sum of the variances of single factors, which are those in a site file."""
        return float((row**2 * self.after_variances)[~_differing(self.names)].sum())

    def unexplained_variance(self, row: Counts) -> float:
        """Return the part of `variance` that is not in `alone_variance`.

        If a step was measured, errors of factors cancel partly. The sum of their own variances ignores
        this, so a smaller variance (at least 0) is left for the unexplained part.
        """
        return max(0.0, self.variance(row) - self.alone_variance(row))


def condition(runs: Sequence[SiteRun], log_sigmas: Mapping[str, float]) -> KnownRuns:
    """Return the result of conditioning on these times.

    Parameters
    ----------
    runs : none: nothing is known beyond the sigmas
    log_sigmas : sigmas by factor, before any run; a run's own record of a factor takes precedence
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
    covariance = _covariance(names, variances, shares, shares)
    noise: Logs = np.array([run.log_sigma_factor**2 for run in runs])
    whole = np.diag(covariance) + noise
    surprise = np.maximum(gaps**2 / whole - 1.0, 0.0) * (shares @ _differing(names) > 0)
    noise = noise + whole * surprise / (DEGREES_OF_FREEDOM + 1.0)
    precision = np.linalg.inv(covariance + np.diag(noise)).astype(np.float64)
    return KnownRuns(
        names=names, shares=shares, variances=variances, weights=precision @ gaps, precision=precision
    )


@lru_cache(maxsize=64)
def _differing(names: tuple[str, ...]) -> Flags:
    """Return which names stand for what differs between steps, (names,)."""
    return np.array([name.startswith(UNEXPLAINED) for name in names], dtype=bool)


def _covariance(names: tuple[str, ...], variances: Logs, some: Counts, others: Counts) -> Counts:
    """Return the covariance of the logarithms of two sets of times, (some, others)."""
    found: Counts = (some * variances * ~_differing(names)) @ others.T
    return found + _unexplained(names, variances, some, others)


def _unexplained(names: tuple[str, ...], variances: Logs, some: Counts, others: Counts) -> Counts:
    """Return the part of the covariance that no factor explains: large where two steps are alike."""
    moved = np.abs(some[:, None, :] - others[None, :, :]).sum(axis=2) / 2.0
    together: Counts = (some * variances * _differing(names)) @ others.T
    found: Counts = together * np.exp(-moved / OWN_SHARE)
    return found
