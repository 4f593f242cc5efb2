"""Constants fitted on whole runs: what a constant is, and the data of each run that the fit needs.

Answers: what does a constant mean, which sources support it, in which contexts?
Elsewhere: the fit (constants.py), the file (io/constants.py), how a prediction uses them (cost/factors.py).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from flopcast.cost.carried import FAMILY, Context, Level

MEANINGS: Mapping[str, str] = {
    "gemm_level": "time of matrix products in training, relative to their curves for this device",
    "attention_level": "time of attention kernels in training, relative to their curves for this device",
    "memory_level": "time of memory-bound kernels in training, relative to their curves for this device",
    "in_training_derate": "time of products and unfused attention under a stack (clocks, cold caches,"
    " kernels), relative to the curves",
    "fabric": "time of collectives in a job, relative to the fabric's measurements or data sheet",
    "borrowed": "time of a kernel or collective without a curve, relative to the curve that it borrows",
    "uncalibrated": "time of a device's unmeasured kernels, relative to a fallback device or data sheet",
    "extrapolated": "time of kernels or messages outside their measured range, relative to the curve",
    "attention_generation": "time of an earlier attention kernel, relative to the ratio in its paper",
    "exchange": "time of the all-to-all of expert tokens, relative to the prediction",
    "expert_launch": "launch time of one product per expert, relative to one launch from Python each",
    "between_plans": "deviation of the ratio of two plans on one machine that no factor explains",
    "carried": "deviation of constants between contexts; widens a constant that is used in a new context",
    "unexplained": "deviation of whole steps that no factor explains; widens only the interval",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """One measured step beside its prediction.

    Attributes
    ----------
    configuration : Hashable
        Equal for repeats of one configuration.
    family : str
        "dense" or "experts".
    log_gap_factor : float
        log(measured / predicted).
    shares : mapping of str to float
        d log(step) / d log(factor), by factor.
    context : mapping of str to str
        Generation, precision, family and scale (cost/carried.py); the family at least.
    model : str or None
        Name of the model that is trained; None: no other run trains it.
    sweep : Hashable or None
        Equal for runs of one model on one machine, whose plans are compared; None if the run is compared
        with no other run.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """The prior of a factor: its log sigma, and whether it is a derate that several stacks share."""

    log_sigma_factor: float
    shared: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    """One fitted constant.

    `rows` and `sources` count the runs in which it scales at least 2 % of the step; `seen` holds their
    contexts by kind (cost/carried.py). A constant with a single source may describe only that machine or
    software, so no claim about accuracy rests on it.
    """

    name: str
    ratio: float
    log_sigma_factor: float
    prior_log_sigma_factor: float
    rows: int
    sources: tuple[str, ...]
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def meaning(self) -> str:
        """Return the meaning of the constant, or "" if its kind is unknown."""
        return MEANINGS.get(self.name.partition("[")[0], "")

    @property
    def of_one_source(self) -> bool:
        """Return whether fewer than two sources support the constant; it may then describe only a site."""
        return len(self.sources) < 2

    @property
    def level(self) -> Level:
        """Return the level that a prediction uses."""
        seen = {distance: frozenset(contexts) for distance, contexts in self.seen.items()}
        return Level(ratio=self.ratio, log_sigma_factor=self.log_sigma_factor, seen=seen)


@dataclass(frozen=True, slots=True)
class Fitted:
    """All constants, the largest change first, and the noise by model family, as a log sigma."""

    constants: tuple[Constant, ...]
    noise_log_sigmas: Mapping[str, float]

    def levels(self) -> dict[str, Level]:
        """Return the levels by name, for a `FactorBook`."""
        return {constant.name: constant.level for constant in self.constants}
