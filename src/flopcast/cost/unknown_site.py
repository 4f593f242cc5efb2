"""The uncertainty of a site without fitted runs of its framework.

Answers: what is unknown about a stack on a device, and how much do the step times of such sites differ from
predictions?
Elsewhere: the fit of these constants (lab/calibration/site_fit.py), the factor in a report
(report/report.py).

A stack describes the kernels, overlaps and launches of a framework. If published runs of the framework were
among those that constants were fitted on, they have shown whether the description is complete. Otherwise,
sites differ from the prediction by more than its factors imply. Such a site is more often slower than
faster, because most effects that a description omits make a step longer. Both sides therefore have separate
sigmas.

The model code of a job may be unknown, such as that of a user's script or of Transformers. The job then has
the stack of similar code (`Stack.stands_in`), and two more sigmas, which were fitted once.

At such sites, steps of models with narrow experts differ most from their predictions: GEMMs of such experts
are short, so the work around each GEMM, such as launches, casts and permutations of tokens, decides the
speed. This work depends on details of the software, but hardly on the number of elements of an expert's
matrices, to which the time of a GEMM is proportional.
"""

import math
from collections.abc import Mapping

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import Factor, FactorBook
from flopcast.layers.experts import Experts
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.stack import Stack

Levels = Mapping[str, FittedLevel]

UNKNOWN_SITE = "unknown_site"
# No fitted run of this framework on this device; none of its library on this device; none of its library;
# and, if one of these holds, how long the work around the GEMMs of narrow experts takes.
FRAMEWORK, DEVICE, SOFTWARE, NARROW = "framework", "device", "software", "narrow"
UNKNOWNS = (FRAMEWORK, DEVICE, SOFTWARE, NARROW)
CODE = "code"  # model code that nobody has described (`Stack.stands_in`)
FASTER, SLOWER = "faster", "slower"
SIDES = (FASTER, SLOWER)
# Without constants. Releases of one framework differ in speed by up to 30 % (docs/accuracy/residuals.md),
# and 1.3 = exp(1.645 · 0.16). Nothing else adds doubt without constants.
PRIOR_LOG_SIGMAS = {FRAMEWORK: 0.16, DEVICE: 0.0, SOFTWARE: 0.0, NARROW: 0.0, CODE: 0.0}
# Kernels, masks and host work of such code make steps up to 1.5 times as long, and hardly ever shorter.
# Fitted once, as the most likely sigmas for 48 sources of the development set and the collections, and not
# fitted again with the constants or without a source (docs/accuracy/residuals.md).
CODE_LOG_SIGMAS = {FASTER: 0.05, SLOWER: 0.26}
# Elements of a matrix of Qwen3-30B-A3B's experts, the narrowest of common models. The whole sigma of narrow
# experts applies to experts that are as narrow, and a part to wider ones.
NARROW_ELEMENTS = 768 * 2048
WIDEST_FAMILY = "experts"  # stands for families without such runs


def site_constant(family: str, unknown: str, side: str) -> str:
    """Return the name of the constant for one side of the differences between sites.

    >>> site_constant("dense", SOFTWARE, SLOWER)
    'unknown_site[dense: software, slower]'
    """
    return f"{UNKNOWN_SITE}[{family}: {unknown}, {side}]"


def unknowns(stack: Stack, device: str) -> tuple[str, ...]:
    """Return the unknown properties of a stack on a device, which no fitted run shows.

    >>> known = Stack(name="mine", fitted_on=("a100",), library_fitted_on=("a100", "h100"))
    >>> [unknowns(known, device) for device in ("a100", "h100", "v100")]
    [(), ('framework',), ('framework', 'device')]
    >>> unknowns(Stack(name="new"), "v100")
    ('framework', 'device', 'software')
    >>> unknowns(Stack(name="mine", library_fitted_on=("a100",), stands_in=True), "a100")
    ('framework', 'code')
    """
    if device in stack.fitted_on:
        return (CODE,) if stack.stands_in else ()
    of_library = {*stack.fitted_on, *stack.library_fitted_on}
    found: tuple[str, ...] = (FRAMEWORK,)
    if device not in of_library:
        found = (FRAMEWORK, DEVICE) if of_library else (FRAMEWORK, DEVICE, SOFTWARE)
    return (*found, CODE) if stack.stands_in else found


def unknown_fractions(job: Job) -> dict[str, float]:
    """Return the unknown properties of a job's site, and the fraction of the sigma of each that applies."""
    fractions = dict.fromkeys(unknowns(job.stack, job.cluster.node.device.name), 1.0)
    narrow_fraction = _narrow_fraction(job.model) if fractions else 0.0
    return fractions | {NARROW: narrow_fraction} if narrow_fraction else fractions


def _narrow_fraction(model: Model) -> float:
    """Return the fraction of the sigma of narrow experts, by the elements of the matrix of one expert.

    For hybrids, of which no run at an unknown site is known, the whole sigma applies.
    """
    if model.family == "hybrids":
        return 1.0
    elements = [
        layer.expert_hidden * layer.inner_hidden(model.hidden)
        for layer in (block.feed_forward for block in model.blocks)
        if isinstance(layer, Experts)
    ]
    return min(1.0, NARROW_ELEMENTS / min(elements)) if elements else 0.0


def site_factors(job: Job, book: FactorBook) -> dict[str, Factor]:
    """Return the factor of all steps at a job's site, by name; empty if nothing is unknown."""
    sigmas = site_log_sigmas(unknown_fractions(job), job.model.family, book.levels)
    if not any(sigmas):
        return {}
    name = f"{UNKNOWN_SITE}[{job.stack.label}, {job.cluster.name}]"
    return {name: book.get(name, sigmas[1], below_log_sigma_factor=sigmas[0])}


def site_log_sigmas(fractions: Mapping[str, float], family: str, levels: Levels) -> tuple[float, float]:
    """Return the sigmas of log(step) between sites, for sites that are faster and slower than predicted.

    Parameters
    ----------
    fractions : the fraction of the sigma of each unknown property that applies; they are added in
        quadrature
    family : of the model
    levels : levels of factors; without constants of this kind, the prior applies
    """
    known = bool(fractions) and any(name.startswith(UNKNOWN_SITE) for name in levels)

    def log_sigma(unknown: str, side: str) -> float:
        return _log_sigma(family, unknown, side, levels) if known else PRIOR_LOG_SIGMAS[unknown]

    faster, slower = (
        math.hypot(*(share * log_sigma(unknown, side) for unknown, share in fractions.items()))
        for side in SIDES
    )
    return faster, slower


def _log_sigma(family: str, unknown: str, side: str, levels: Levels) -> float:
    if unknown == CODE:
        return CODE_LOG_SIGMAS[side]
    own = family if family != "hybrids" else WIDEST_FAMILY
    level = levels.get(site_constant(own, unknown, side))
    return level.log_sigma_factor if level else 0.0
