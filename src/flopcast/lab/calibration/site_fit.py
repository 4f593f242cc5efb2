"""The constants `unknown_site[...]` and `faster_side`: how sites with software or a device that no fitted
run has differ from their predictions.

Answers: how much more does the measured step of a new site differ from its prediction than the factors of
the prediction imply, and is it more often slower?
Elsewhere: when a prediction uses these constants (cost/unknown_site.py), the file with the residuals
(library/constants.py), the residuals of runs (lab/validation/site_residuals.py).

All runs of a source are one site. The constants were not fitted to these runs, or were fitted again
without them. The model is hierarchical: log(measured / predicted) of a run is the sum of two errors. The
error of its factors has the variance of the prediction and is shared by the runs of a site. The error of
the site has one variance for each unknown and side. The variances of several unknowns add up. Only a
fraction of the sigma of narrow experts applies to wider experts. The variances maximise the likelihood
under a normal distribution with two sides, whose density is continuous at 0. Each source counts once,
however many runs it has.

Most effects that a prediction omits make a step longer, so a measured step that is shorter than predicted
is nearer to its prediction than the sigmas of factors say. `faster_side` is the ratio of the sigmas below
the prediction to those above it with which 95 % of the runs, each source counted once, are above the lower
bound of their 90 % interval.

A scored run is never predicted with its own source: the residuals are stored by source, so the constants
without a source can be computed directly (`without`).

References
----------
Gelman and Hill, Data Analysis Using Regression and Multilevel/Hierarchical Models, 2007, chapter 12.
Wallis, The two-piece normal, binormal, or double Gaussian distribution, Statistical Science 29, 2014.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from flopcast.cost.constants import Constant, SiteResiduals
from flopcast.cost.factors import FASTER_SIDE, NINETY_PERCENT
from flopcast.cost.unknown_site import FASTER, PRIOR_LOG_SIGMAS, SIDES, UNKNOWNS, site_constant
from flopcast.dtypes import Counts, Logs
from flopcast.lab.calibration.observations import least_log_sigma

GRID = np.arange(0.0, 1.0, 0.01)  # sigmas among which the likeliest is chosen
ROUNDS = 6  # over the sigmas of a family; each is chosen with the others held
LEAST = 0.005  # smaller sigmas change no interval and are left out
ABOVE_LOWER_BOUND = 0.95  # share of the runs: 90 % intervals leave out as many on either side
FEWEST_SITES = 20  # of a family: the 5 % of fewer sites are less than one


def fit_sites(residuals: Iterable[SiteResiduals]) -> tuple[Constant, ...]:
    """Return the constants of each family, unknown and side whose sigma is not 0."""
    found = []
    by_family: dict[str, list[SiteResiduals]] = {}
    for each in residuals:
        by_family.setdefault(each.family, []).append(each)
    narrowed: list[float] = []
    for family, sites in sorted(by_family.items()):
        likeliest = _likeliest(sites)
        if len(sites) >= FEWEST_SITES:
            narrowed.append(_faster_side(sites, {name: likeliest[name, FASTER] for name in UNKNOWNS}))
        for (unknown, side), sigma in likeliest.items():
            behind = [site for site in sites if any(run.get(unknown) for run in site.fractions())]
            if sigma >= LEAST:
                constant = Constant(
                    name=site_constant(family, unknown, side),
                    ratio=1.0,
                    log_sigma_factor=round(sigma, 3),
                    prior_log_sigma_factor=PRIOR_LOG_SIGMAS[unknown],
                    rows=sum(len(site.log_gap_factors) for site in behind),
                    sources=tuple(sorted({site.source for site in behind})),
                )
                found.append(constant)
    if narrowed:
        every = [site for sites in by_family.values() for site in sites]
        found.append(
            Constant(
                name=FASTER_SIDE,
                ratio=round(max(narrowed), 3),
                log_sigma_factor=0.0,
                prior_log_sigma_factor=0.0,
                rows=sum(len(site.log_gap_factors) for site in every),
                sources=tuple(sorted({site.source for site in every})),
            )
        )
    return tuple(found)


def _faster_side(sites: Sequence[SiteResiduals], of_unknowns: Mapping[str, float]) -> float:
    """Return the ratio of sigmas, at most 1, with which enough runs are above their lower bounds.

    `of_unknowns` holds the sigmas of sites that are faster than predicted, by what is unknown about them.
    """
    weights, gaps, own = _runs_of(sites)
    added = np.sqrt(sum((_held(sites, unknown) * sigma) ** 2 for unknown, sigma in of_unknowns.items()))

    def above_share(ratio: float) -> float:
        return float(np.average(gaps >= -NINETY_PERCENT * np.hypot(ratio * own, added), weights=weights))

    return least_log_sigma(above_share, 1.0, ABOVE_LOWER_BOUND)


def _runs_of(sites: Sequence[SiteResiduals]) -> tuple[Counts, Logs, Logs]:
    """Return the weight, the gap and the own sigma of each run; the weights of a site add up to 1."""
    counts = [len(site.log_gap_factors) for site in sites]
    weights = np.repeat([1.0 / count for count in counts], counts)
    gaps = np.concatenate([site.log_gap_factors for site in sites])
    return weights, gaps, np.concatenate([site.log_sigma_factors for site in sites])


def _held(sites: Sequence[SiteResiduals], unknown: str) -> Counts:
    """Return the fraction of the sigma of an unknown that applies to each run."""
    return np.array([run.get(unknown, 0.0) for site in sites for run in site.fractions()])


def _likeliest(sites: Sequence[SiteResiduals]) -> dict[tuple[str, str], float]:
    """Return the most likely sigma of each unknown and side, for sites of one family."""
    weights, gaps, own = _runs_of(sites)
    gaps, own = gaps[:, None], own[:, None] ** 2
    holds = {unknown: _held(sites, unknown)[:, None] ** 2 for unknown in UNKNOWNS}
    sigmas = {(unknown, side): np.zeros(1) for unknown in UNKNOWNS for side in SIDES}
    for _ in range(ROUNDS):
        before = dict(sigmas)
        for key in sigmas:
            tried = sigmas | {key: GRID}
            below, above = (
                own + sum(holds[unknown] * tried[unknown, side] ** 2 for unknown in UNKNOWNS)
                for side in SIDES
            )
            sigmas[key] = GRID[[np.argmax(weights @ log_density(gaps, below, above))]]
        if sigmas == before:  # further rounds would choose the same
            break
    return {key: float(sigma[0]) for key, sigma in sigmas.items()}


def log_density(gaps: Logs, below: Counts, above: Counts) -> Logs:
    """Return the logarithm, up to a constant, of the density of a normal distribution with two sides.

    Parameters
    ----------
    gaps : logarithms of measured / predicted
    below, above : variances of the two sides, in shapes that broadcast with `gaps`
    """
    scale = np.log(np.sqrt(below) + np.sqrt(above))
    found: Logs = -(gaps**2) / (2.0 * np.where(gaps > 0.0, above, below)) - scale
    return found
