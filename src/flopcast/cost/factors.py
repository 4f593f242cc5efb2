"""Named factors: the few uncertain things that scale times.

Answers: which factors does a prediction rest on, how uncertain is each?
An item's time is proportional to each of its factors; nothing else carries uncertainty. From the
critical path follow `d log(step) / d log(factor)`, intervals, and intervals of differences.

A name holds what it belongs to in brackets: `gemm_level[a100-sxm4-80gb]`, `fabric[vista-ndr]`. Two
predictions that share a name share the error, which cancels in their difference.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.constant_transfer import Context, FittedLevel, grown_log_sigma
from flopcast.spec.cluster import Cluster
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack

SHARED_DERATE = "in_training_derate"  # what stacks have in common: no curve of kernels shows it
HOST = "host"  # scales every launch and call that the host makes
EXPERT_LAUNCH = "expert_launch"  # launches of separate expert GEMMs, over one launch for each GEMM
FAMILIES = ("dense", "experts")  # of models
NINETY_PERCENT = 1.6449  # two-sided 90 % of a normal distribution, in sigmas


def unexplained(family: str) -> str:
    """Return the name of the factor for deviations of a family's steps that no other factor explains."""
    return f"unexplained[{family}]"


def unexplained_on(family: str, stack: Stack, cluster: Cluster) -> str:
    """Return the name of the same factor for one stack on one cluster, independent of other machines."""
    return f"unexplained[{family}: {stack.label}, {cluster.name}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A multiplier of times, 1 unless a site says otherwise, with the sigma of its logarithm.

    A `log_sigma_factor` of 0.1 means that two thirds of machines lie within 10 % of `ratio`; it is the
    sigma of a log-normal distribution, so half and double are equally far.
    """

    name: str
    ratio: float = 1.0
    log_sigma_factor: float


@dataclass(frozen=True, eq=False, slots=True)
class FactorBook:
    """Factors of one prediction by name: fitted levels (`levels`), then the site's own values.

    `context` is the job's: a level is less sure in a context that its runs do not have
    (constant_transfer.py).

    This is the only mutable object of the core: pricing requests factors as it needs them, and only
    requested factors are reported.

    Examples
    --------
    >>> book = FactorBook(Site())
    >>> book.get("host", 0.3).ratio
    1.0
    >>> sorted(book.all())
    ['host']
    """

    site: Site
    levels: Mapping[str, FittedLevel] = field(default_factory=dict)
    found: dict[str, Factor] = field(default_factory=dict)
    context: Context = field(default_factory=dict)

    def get(self, name: str, log_sigma_factor: float, ratio: float = 1.0) -> Factor:
        """Return the factor `name`, which is created on first use with this sigma and ratio.

        `ratio` is the stack's or the device's word; the level's and the site's multiply it. Later calls get
        the same ratio; the largest sigma that anyone asks for holds for all of them, so that the order of
        asking changes nothing.
        """
        level = self.levels.get(name)
        if level is not None:
            ratio, log_sigma_factor = ratio * level.ratio, self._sigma_of(level)
        made = self._made(name, log_sigma_factor, ratio)
        before = self.found.setdefault(name, made)
        if made.log_sigma_factor > before.log_sigma_factor:
            self.found[name] = replace(before, log_sigma_factor=made.log_sigma_factor)
        return self.found[name]

    def _made(self, name: str, log_sigma_factor: float, ratio: float) -> Factor:
        """Return a new factor: the site replaces the given sigma, and its ratio multiplies the given
        one.
        """
        for factor in self.site.factors:
            if factor.name == name:
                known = factor.log_sigma_factor
                sigma = log_sigma_factor if known is None else known
                return Factor(name=name, ratio=ratio * factor.ratio, log_sigma_factor=sigma)
        return Factor(name=name, ratio=ratio, log_sigma_factor=log_sigma_factor)

    def _sigma_of(self, level: FittedLevel) -> float:
        """Return the sigma of a level in the context of the job."""
        return grown_log_sigma(level, self.levels, self.context)

    def derate(self, stack: Stack) -> Factor:
        """Return the factor by which matrix products are slower in the training of this stack than alone.

        Of a stack that no run taught anything of, what stacks share is known, and its own doubt stays.
        """
        name, own = f"{SHARED_DERATE}[{stack.label}]", stack.derate
        common = None if own.own or name in self.levels else self.levels.get(SHARED_DERATE)
        if common is None:
            return self.get(name, own.log_sigma_factor, own.ratio)
        doubt = math.hypot(own.log_sigma_factor, self._sigma_of(common))
        return self.get(name, doubt, own.ratio * common.ratio)

    def ask_unexplained(self, stack: Stack, cluster: Cluster) -> None:
        """Make the factors of whole steps, where runs have shown how far those lie apart."""
        for family in FAMILIES:
            shared = unexplained(family)
            if shared in self.levels:
                sigma = self.levels[shared].log_sigma_factor
                self.get(unexplained_on(family, stack, cluster), sigma)

    def ask_between_plans(self) -> None:
        """Add the doubt about the ratio of two plans, if a constant gives its sigma.

        It scales no step, so a site cannot set its ratio.
        """
        if BETWEEN_PLANS in self.levels:
            sigma = self._sigma_of(self.levels[BETWEEN_PLANS])
            self.found[BETWEEN_PLANS] = Factor(name=BETWEEN_PLANS, ratio=1.0, log_sigma_factor=sigma)

    def all(self) -> Mapping[str, Factor]:
        """Return all factors used so far, in the order of first use, as a copy."""
        return dict(self.found)
