"""The doubt about a site where no fitted run shows how fast a framework is.

Answers: what is unknown about a stack on a device, and how far apart do the steps of such sites lie?
Elsewhere: the fit of these constants (lab/calibration/site_fit.py), the factor in a report
(report/report.py).

A stack describes the kernels, overlaps and launches of a framework. If published runs of the framework were
among those that constants were fitted on, they have shown whether the description is complete. Otherwise
sites differ from the prediction by more than its factors say. Such a site is more often slower than faster,
because most effects that a description omits make a step longer, so both sides have their own sigma.
"""

import math
from collections.abc import Mapping, Sequence

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import Factor, FactorBook
from flopcast.spec.cluster import Cluster
from flopcast.spec.stack import Stack

Levels = Mapping[str, FittedLevel]

UNKNOWN_SITE = "unknown_site"
# No fitted run of this framework on this device; none of its library on this device; none of its library.
FRAMEWORK, DEVICE, SOFTWARE = "framework", "device", "software"
UNKNOWNS = (FRAMEWORK, DEVICE, SOFTWARE)
FASTER, SLOWER = "faster", "slower"
SIDES = (FASTER, SLOWER)
# Without constants. Releases of one framework differ in speed by up to 30 % (docs/accuracy/residuals.md),
# and 1.3 = exp(1.645 · 0.16). Without constants, a new device or library adds no doubt.
PRIOR_LOG_SIGMAS = {FRAMEWORK: 0.16, DEVICE: 0.0, SOFTWARE: 0.0}
WIDEST_FAMILY = "experts"  # stands for families without such runs


def site_constant(family: str, unknown: str, side: str) -> str:
    """Return the name of the constant for one side of the differences between sites.

    >>> site_constant("dense", SOFTWARE, SLOWER)
    'unknown_site[dense: software, slower]'
    """
    return f"{UNKNOWN_SITE}[{family}: {unknown}, {side}]"


def unknowns(stack: Stack, device: str) -> tuple[str, ...]:
    """Return what is unknown about a stack on a device because no fitted run shows it; empty if nothing is.

    >>> known = Stack(name="mine", fitted_on=("a100",), library_fitted_on=("a100", "h100"))
    >>> [unknowns(known, device) for device in ("a100", "h100", "v100")]
    [(), ('framework',), ('framework', 'device')]
    >>> unknowns(Stack(name="new"), "v100")
    ('framework', 'device', 'software')
    """
    if stack.derate.own or device in stack.fitted_on:
        return ()
    of_library = {*stack.fitted_on, *stack.library_fitted_on}
    if device in of_library:
        return (FRAMEWORK,)
    return (FRAMEWORK, DEVICE) if of_library else UNKNOWNS


def site_factors(stack: Stack, cluster: Cluster, family: str, book: FactorBook) -> dict[str, Factor]:
    """Return the factor of all steps of a stack on a cluster, by name; empty if nothing is unknown."""
    sigmas = site_log_sigmas(unknowns(stack, cluster.node.device.name), family, book.levels)
    if not any(sigmas):
        return {}
    name = f"{UNKNOWN_SITE}[{stack.label}, {cluster.name}]"
    return {name: book.get(name, sigmas[1], below_log_sigma_factor=sigmas[0])}


def site_log_sigmas(unknown: Sequence[str], family: str, levels: Levels) -> tuple[float, float]:
    """Return the sigmas of log(step) between sites: of those that are faster than predicted, and of slower.

    Independent unknowns add in quadrature. `levels` without such constants give the prior.
    """
    faster, slower = (
        math.hypot(*(_log_sigma(family, one, side, levels) for one in unknown)) for side in SIDES
    )
    return faster, slower


def _log_sigma(family: str, unknown: str, side: str, levels: Levels) -> float:
    if not any(name.startswith(UNKNOWN_SITE) for name in levels):
        return PRIOR_LOG_SIGMAS[unknown]
    own = family if family != "hybrids" else WIDEST_FAMILY
    level = levels.get(site_constant(own, unknown, side))
    return level.log_sigma_factor if level else 0.0
