"""Constants fitted on whole runs: what a constant is, and the data of each run that the fit needs.

Answers: what does a constant stand for, who supports it, in which contexts?
Elsewhere: the fit (constants.py), the file (io/constants.py), how a prediction uses them (cost/factors.py).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from flopcast.cost.carried import FAMILY, Context, Level

MEANINGS: Mapping[str, str] = {
    "gemm_level": "matrix products of a device in training, over those that its curves were measured on",
    "attention_level": "attention kernels of a device, likewise",
    "memory_level": "memory-bound kernels of a device, likewise",
    "in_training_derate": "products of a stack, unfused attention too: clocks, cold caches, its kernels",
    "fabric": "collectives on a fabric: what a job attains over what was measured, or the data sheet",
    "borrowed": "a kernel or collective without a curve, over the one whose curve it borrows",
    "uncalibrated": "kernels of a kind on a device without measurements, over a relative's or a data sheet",
    "extrapolated": "kernels or messages outside of their measured range",
    "attention_generation": "an earlier attention kernel, over the papers' ratio to the measured one",
    "exchange": "the exchange of experts' tokens",
    "expert_launch": "launches of one expert's products after another's, over one from Python each",
    "between_plans": "by how much ratios of two plans on one machine differ beyond factors",
    "carried": "by how much constants differ between contexts: widens a constant that is carried further",
    "unexplained": "by how much whole steps differ that no factor tells apart: widens the interval only",
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
        """ "dense" or "experts"."""
        return self.context[FAMILY]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """What is known of a factor before the fit: its sigma, and whether it is a derate that stacks share."""

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
        """The meaning of a constant of this name."""
        return MEANINGS.get(self.name.partition("[")[0], "")

    @property
    def of_one_source(self) -> bool:
        """Whether a single source supports it, so that it may describe only that site."""
        return len(self.sources) < 2

    @property
    def level(self) -> Level:
        """The level that a prediction uses."""
        seen = {distance: frozenset(contexts) for distance, contexts in self.seen.items()}
        return Level(ratio=self.ratio, log_sigma_factor=self.log_sigma_factor, seen=seen)


@dataclass(frozen=True, slots=True)
class Fitted:
    """All constants, the largest change first; noise by model family, as the sigma of a logarithm."""

    constants: tuple[Constant, ...]
    noise_log_sigmas: Mapping[str, float]

    def levels(self) -> dict[str, Level]:
        """Levels by name, for a `FactorBook`."""
        return {constant.name: constant.level for constant in self.constants}
