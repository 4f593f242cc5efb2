"""Constants fitted on whole runs: what a constant is, and the data of each run that the fit needs.

Answers: what does a constant mean, which sources support it, in which contexts?
Elsewhere: the fit (constant_fit.py), the file (library/constants.py), how a prediction uses them
(cost/factors.py).
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from flopcast.cost.constant_transfer import FAMILY, Context


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ObservedStep:
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
        Generation, precision, family and scale (cost/constant_transfer.py); the family at least.
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
