"""Named factors: uncertain numbers that scale times.

Answers: on which factors does a prediction depend, and how uncertain is each of them? An item's time is
proportional to each of its factors; no other part of a prediction is uncertain. The critical path
determines `d log(step) / d log(factor)`, intervals, and intervals of differences.

A name states the device, fabric or stack of the factor in brackets: `gemm_level[a100-sxm4-80gb]`,
`fabric[vista-ndr]`. If two predictions have a factor of the same name, its error cancels in their
difference.
"""

import math
from collections.abc import Iterator, Mapping

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.constant_transfer import Context, FittedLevel, grown_log_sigma
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack

SHARED_DERATE = "in_training_derate"  # what stacks have in common: no curve of kernels shows it
HOST = "host"  # scales every launch and call that the host makes
EXPERT_LAUNCH = "expert_launch"  # launches of separate expert GEMMs, over one launch for each GEMM
FAMILIES = ("dense", "experts", "hybrids")  # of models
FASTER_SIDE = "faster_side"  # sigmas below a predicted step, over those above it
UNKNOWN_FAMILY = 2.0  # sigma of a family without fitted runs, over that of the least certain family
NINETY_PERCENT = 1.6449  # two-sided 90 % of a normal distribution, in sigmas


def unexplained(family: str) -> str:
    """Return the name of the factor for unexplained differences in the steps of a family."""
    return f"unexplained[{family}]"


def unexplained_on(family: str, stack: Stack, cluster: Cluster) -> str:
    """Return the name of the factor for unexplained differences between runs of one stack on one cluster.

    Each cluster has a factor of its own, which is independent of the factors of other clusters.
    """
    return f"unexplained[{family}: {stack.label}, {cluster.name}]"


class Factor(Record):
    """A multiplier of times, with the sigma of its logarithm. It is 1 unless a site states another value.

    A `log_sigma_factor` of 0.1 means that two thirds of machines lie within 10 % of `ratio`; it is the
    sigma of a log-normal distribution, in which half and double the ratio are equally probable.
    `below_log_sigma_factor` is the sigma below `ratio`; None means that it equals the sigma above `ratio`.
    `faster_side_ratio` multiplies the sigmas of all factors below a predicted step; only a factor of whole
    steps has a ratio other than 1.
    """

    name: str
    ratio: float = 1.0
    log_sigma_factor: float
    below_log_sigma_factor: float | None = None
    faster_side_ratio: float = 1.0

    @property
    def below(self) -> float:
        """Return the sigma below the ratio."""
        below = self.below_log_sigma_factor
        return self.log_sigma_factor if below is None else below


class FactorBook(Record, eq=False, kw_only=False):
    """The factors that are known before a prediction: fitted levels, then the values of the site.

    `context` is the context of the job: a level is less certain in a context that its runs do not have
    (constant_transfer.py). Pricing reports the factors that it used.

    Examples
    --------
    >>> FactorBook(Site()).get("host", 0.3).ratio
    1.0
    """

    site: Site
    levels: Mapping[str, FittedLevel] = field(default_factory=dict)
    context: Context = field(default_factory=dict)

    def get(
        self,
        name: str,
        log_sigma_factor: float,
        ratio: float = 1.0,
        below_log_sigma_factor: float | None = None,
    ) -> Factor:
        """Return the factor `name`; a fitted level and the site replace its sigma.

        `ratio` is the value of the stack or the device. The ratios of the level and the site multiply it.
        `below_log_sigma_factor` is the sigma below the ratio, if it differs. A sigma of the site replaces
        both sigmas.
        """
        level = self.levels.get(name)
        if level is not None:
            ratio, log_sigma_factor = ratio * level.ratio, self._sigma_of(level)
        for factor in self.site.factors:
            if factor.name == name:
                known = factor.log_sigma_factor
                ratio *= factor.ratio
                if known is not None:
                    log_sigma_factor, below_log_sigma_factor = known, None
        return Factor(
            name=name,
            ratio=ratio,
            log_sigma_factor=log_sigma_factor,
            below_log_sigma_factor=below_log_sigma_factor,
        )

    def with_level(self, factor: Factor, stack: Stack) -> Factor:
        """Return a factor that was found without levels, with the levels of this book.

        A sigma that the site states is kept.
        """
        name, level = factor.name, self.levels.get(factor.name)
        if name == f"{SHARED_DERATE}[{stack.label}]":
            return self.derate(stack)
        if level is None:
            return factor
        stated = any(each.name == name and each.log_sigma_factor is not None for each in self.site.factors)
        sigma = factor.log_sigma_factor if stated else self._sigma_of(level)
        return replace(factor, ratio=factor.ratio * level.ratio, log_sigma_factor=sigma)

    def _sigma_of(self, level: FittedLevel) -> float:
        return grown_log_sigma(level, self.levels, self.context)

    def derate(self, stack: Stack) -> Factor:
        """Return the factor by which GEMMs take longer in the training of this stack than in benchmarks.

        Without runs of a stack, only the part that all stacks share is known, and the stack's own part
        keeps its prior uncertainty.
        """
        name, own = f"{SHARED_DERATE}[{stack.label}]", stack.derate
        common = None if own.own or name in self.levels else self.levels.get(SHARED_DERATE)
        if common is None:
            return self.get(name, own.log_sigma_factor, own.ratio)
        doubt = math.hypot(own.log_sigma_factor, self._sigma_of(common))
        return self.get(name, doubt, own.ratio * common.ratio)

    def of_whole_steps(self, stack: Stack, cluster: Cluster) -> Iterator[Factor]:
        """Yield the factors that scale no single item but describe how much measured steps vary.

        The last factor is the uncertainty of the ratio of two plans; a site file cannot set its ratio.
        """
        sigmas = {
            family: self.levels[shared].log_sigma_factor
            for family in FAMILIES
            if (shared := unexplained(family)) in self.levels
        }
        narrowed = self.levels[FASTER_SIDE].ratio if FASTER_SIDE in self.levels else 1.0
        for family in FAMILIES if sigmas else ():
            sigma = sigmas.get(family, UNKNOWN_FAMILY * max(sigmas.values()))
            yield replace(
                self.get(unexplained_on(family, stack, cluster), sigma), faster_side_ratio=narrowed
            )
        if BETWEEN_PLANS in self.levels:
            sigma = self._sigma_of(self.levels[BETWEEN_PLANS])
            yield Factor(name=BETWEEN_PLANS, ratio=1.0, log_sigma_factor=sigma)
