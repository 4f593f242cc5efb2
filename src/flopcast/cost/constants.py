"""Constants that were fitted on whole runs, as predictions use them.

Answers: what does a constant stand for, who supports it, in which contexts?
Elsewhere: the fit (lab/calibration/constant_fit.py), the file (library/constants.py), factors (factors.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flopcast.cost.constant_transfer import FittedLevel

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
class Constant:
    """One fitted constant.

    `rows` and `sources` count the runs in which it scales at least 2 % of the step; `seen` holds their
    contexts by kind (cost/constant_transfer.py). A constant with a single source may describe only that
    machine or software, so no claim about accuracy rests on it.
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
    def level(self) -> FittedLevel:
        """Return the level that a prediction uses."""
        seen = {distance: frozenset(contexts) for distance, contexts in self.seen.items()}
        return FittedLevel(ratio=self.ratio, log_sigma_factor=self.log_sigma_factor, seen=seen)


@dataclass(frozen=True, slots=True)
class Fitted:
    """All constants, the largest change first, and the noise by model family, as a log sigma."""

    constants: tuple[Constant, ...]
    noise_log_sigmas: Mapping[str, float]

    def levels(self) -> dict[str, FittedLevel]:
        """Return the levels by name, for a `FactorBook`."""
        return {constant.name: constant.level for constant in self.constants}
