"""The residuals of sites without fitted constants, and intervals of runs that were computed without the
residuals of their own source.

Answers: to which residuals are the constants `unknown_site[...]` fitted, and what is the interval of a
measured run of one of these sources?
Elsewhere: the fit (lab/calibration/site_fit.py), what is unknown about a site (cost/unknown_site.py).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.constants import SiteResiduals
from flopcast.cost.factors import FASTER_SIDE
from flopcast.cost.unknown_site import CODE, NARROW, UNKNOWN_SITE, site_log_sigmas, unknown_fractions
from flopcast.lab.calibration.site_fit import fit_sites
from flopcast.lab.validation.published import ComparedRun
from flopcast.records import replace
from flopcast.timeline.uncertainty import Sensitivity, interval, log_sigmas

MOST_LEVELS = 256  # more than there are sources
FAMILIES = ("dense", "experts")  # of hybrids, no run of an unknown site is known


def residuals_of(rows: Iterable[ComparedRun]) -> tuple[SiteResiduals, ...]:
    """Return the residuals of the runs on unknown sites, by source, family and the unknown property.

    The rows must be predicted with constants that were fitted without their sources.
    """
    found: dict[tuple[str, str, tuple[str, ...]], list[tuple[float, float, float]]] = {}
    for row in rows:
        fractions = unknown_fractions(row.job)
        unknown = tuple(each for each in fractions if each not in (CODE, NARROW))
        if unknown and row.family in FAMILIES:
            sigma = max(log_sigmas(tuple(f for f in row.factors if not _of_site(f))))
            gap = -math.log1p(row.relative_error)
            key = row.run.source, row.family, unknown
            narrow_fraction = fractions.get(NARROW, 0.0)
            found.setdefault(key, []).append((round(gap, 3), round(sigma, 3), round(narrow_fraction, 3)))
    return tuple(
        SiteResiduals(
            source=source,
            family=family,
            unknowns=unknown,
            log_gap_factors=tuple(gap for gap, _, _ in runs),
            log_sigma_factors=tuple(sigma for _, sigma, _ in runs),
            narrow_fractions=tuple(fraction for _, _, fraction in runs),
        )
        for (source, family, unknown), runs in sorted(found.items())
    )


def without_own_source(
    rows: Sequence[ComparedRun], residuals: Sequence[SiteResiduals]
) -> tuple[ComparedRun, ...]:
    """Return the rows with intervals whose site uncertainty comes from sites of other sources."""
    sources = {each.source for each in residuals} & {row.run.source for row in rows}
    levels = {source: levels_without(source, tuple(residuals)) for source in sources}
    return tuple(_judged(row, levels[row.run.source]) if row.run.source in levels else row for row in rows)


@lru_cache(MOST_LEVELS)  # every table and choice of constants asks for the same sources
def levels_without(source: str, residuals: tuple[SiteResiduals, ...]) -> Mapping[str, FittedLevel]:
    """Return the levels of `unknown_site[...]` that are fitted to the sites of all other sources."""
    constants = fit_sites(each for each in residuals if each.source != source)
    return MappingProxyType({one.name: one.level for one in constants})


def _judged(row: ComparedRun, levels: Mapping[str, FittedLevel]) -> ComparedRun:
    faster, slower = site_log_sigmas(unknown_fractions(row.job), row.family, levels)
    narrowed = levels[FASTER_SIDE].ratio if FASTER_SIDE in levels else 1.0
    factors = tuple(
        replace(each, log_sigma_factor=slower, below_log_sigma_factor=faster)
        if _of_site(each)
        else replace(each, below_log_sigma_factor=narrowed * each.log_sigma_factor)
        for each in row.factors
    )
    low_s, high_s = interval(row.predicted_step_time_s, factors)
    return replace(row, factors=factors, low_s=low_s, high_s=high_s)


def _of_site(factor: Sensitivity) -> bool:
    return factor.name.startswith(UNKNOWN_SITE)
