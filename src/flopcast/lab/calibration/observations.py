"""The data of each run that fits of constants need, and the parts that these fits share.

Answers: which runs support a constant, and which sigma makes intervals contain the runs?
Elsewhere: the fits (constant_fit.py, plan_pairs.py), the file (library/constants.py), how a prediction uses
constants (cost/factors.py).
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence

from flopcast.cost.constant_transfer import FAMILY, Context, FittedLevel
from flopcast.cost.constants import Constant
from flopcast.cost.factors import SHARED_DERATE
from flopcast.records import Record

Levels = Mapping[str, FittedLevel]  # by factor, as Priors
INSIDE = 0.9  # share of the runs that 90 % intervals must hold
UNBOUND = -100.0  # a lower bound, of the logarithm of a level, that never takes effect
# Memory-bound kernels such as GELU reach 0.8 of the data sheet's bandwidth on A100 (data/operators), and no
# kernel reaches more than 0.93 (cost/kernels/roofline.py). So a lower level would change no prediction.
LEAST_MEMORY_LEVEL = 0.86


class ObservedStep(Record, eq=False):
    """One measured step and its prediction.

    `configuration` is equal for repeats of one configuration. `sweep` is equal for runs of one model on
    one machine, whose plans are compared, and None if the run is not compared with others.
    `log_gap_factor` is log(measured / predicted), and `shares` are d log(step) / d log(factor) by factor.
    `context` holds the generation, precision, family and scale (cost/constant_transfer.py); it holds at
    least the family. `model` is the name of the trained model; None means that no other run trains it.
    """

    id: str
    source: str
    configuration: Hashable
    log_gap_factor: float
    shares: Mapping[str, float]
    context: Context
    model: str | None = None
    sweep: Hashable = None

    @property
    def family(self) -> str:
        """Return "dense" or "experts"."""
        return self.context[FAMILY]


class Prior(Record):
    """The prior of a factor: its log sigma, and whether it is a derate that several stacks share."""

    log_sigma_factor: float
    shared: bool = False


Priors = Mapping[str, Prior]


def constant_of(
    name: str,
    runs: Sequence[ObservedStep],
    log_sigma_factor: float,
    *,
    ratio: float = 1.0,
    prior_log_sigma_factor: float = 0.0,
    seen: Mapping[str, tuple[str, ...]] | None = None,
) -> Constant:
    """Return a constant that these runs support, with numbers rounded to thousandths.

    Parameters
    ----------
    name : str
        Name of the factor.
    runs : sequence of ObservedStep
        Runs whose steps the factor scales.
    log_sigma_factor, prior_log_sigma_factor : float
        Sigma of the logarithm after the fit and before it.
    ratio : float
        The time with the constant divided by the time without it.
    seen : mapping or None
        Contexts of the runs by kind; in other contexts a prediction trusts the constant less.
    """
    return Constant(
        name=name,
        ratio=round(ratio, 3),
        log_sigma_factor=round(log_sigma_factor, 3),
        prior_log_sigma_factor=round(prior_log_sigma_factor, 3),
        rows=len(runs),
        sources=tuple(sorted({one.source for one in runs})),
        seen=seen or {},
    )


def log_of_level(name: str, prior: Prior, at: Levels) -> float:
    """Return the logarithm of the level of a factor with which a prediction was made."""
    level = at.get(name) or (at.get(SHARED_DERATE) if prior.shared else None)
    return math.log(level.ratio) if level is not None else 0.0


def moved(one: ObservedStep, priors: Priors, at: Levels) -> float:
    """Return the change of the logarithm of a run's step by the levels of its prediction."""
    return sum(
        share * log_of_level(name, priors[name], at) for name, share in one.shares.items() if name in priors
    )


def least_log(name: str) -> float:
    """Return the logarithm of a factor's lower bound: the sustained bandwidth limits its kernels."""
    bound_by_memory = name.startswith("memory_level") or name.endswith(": memory-bound]")
    return math.log(LEAST_MEMORY_LEVEL) if bound_by_memory else UNBOUND


def least_log_sigma(
    inside_share: Callable[[float], float], most_factor: float, enough_fraction: float = INSIDE
) -> float:
    """Return the smallest sigma, to 1e-4, with which intervals contain enough runs.

    The method is bisection.

    `inside_share` returns the share of the runs that the intervals of a sigma contain; it grows with the
    sigma. `enough_fraction` is the share that they must contain.
    """
    low, high = 0.0, most_factor
    while high - low > 1e-4:
        middle = (low + high) / 2.0
        low, high = (low, middle) if inside_share(middle) >= enough_fraction else (middle, high)
    return high
