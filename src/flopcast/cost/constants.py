"""Constants that were fitted on whole runs, as predictions use them.

Answers: which sources support a constant, and in which contexts?
Elsewhere: its meaning (catalog/constants/meanings.yaml), the fit (lab/calibration/constant_fit.py), the
file (library/constants.py), factors (factors.py).
"""

from collections.abc import Mapping

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.unknown_site import NARROW
from flopcast.records import Record, field


class Constant(Record):
    """One fitted constant.

    `rows` and `sources` count the runs in which it scales at least 2 % of the step; `seen` holds their
    contexts by kind (cost/constant_transfer.py). A constant with a single source may describe only that
    machine or software, so no statement about accuracy is based on it.
    """

    name: str
    ratio: float
    log_sigma_factor: float
    prior_log_sigma_factor: float
    rows: int
    sources: tuple[str, ...]
    seen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def of_one_source(self) -> bool:
        """Return whether fewer than two sources support the constant.

        It may then describe only one site.
        """
        return len(self.sources) < 2

    @property
    def level(self) -> FittedLevel:
        """Return the level that a prediction uses."""
        seen = {distance: frozenset(contexts) for distance, contexts in self.seen.items()}
        return FittedLevel(ratio=self.ratio, log_sigma_factor=self.log_sigma_factor, seen=seen)


class SiteResiduals(Record):
    """The runs of one model family at one site with unknown properties (`cost/unknown_site.py`).

    `log_gap_factors` are log(measured / predicted), and `log_sigma_factors` are the sigmas of these
    predictions without the uncertainty of the site. `narrow_fractions` are the fractions of the sigma of
    narrow experts.
    """

    source: str
    family: str
    unknowns: tuple[str, ...]
    log_gap_factors: tuple[float, ...]
    log_sigma_factors: tuple[float, ...]
    narrow_fractions: tuple[float, ...]

    def fractions(self) -> tuple[dict[str, float], ...]:
        """Return the fraction of the sigma of each unknown property that applies to each run."""
        of_site = dict.fromkeys(self.unknowns, 1.0)
        return tuple(of_site | {NARROW: fraction} for fraction in self.narrow_fractions)


class Fitted(Record, kw_only=False):
    """All constants, ordered by descending change, and the log-sigma of the noise of each model family.

    The noise is the remaining difference between predicted and measured steps of a family after the fit of
    all constants. It is a separate factor in the interval of every prediction of that family. `sites`
    contains the residuals to which the constants `unknown_site[...]` were fitted.
    """

    constants: tuple[Constant, ...]
    noise_log_sigmas: Mapping[str, float]
    sites: tuple[SiteResiduals, ...] = ()

    def levels(self) -> dict[str, FittedLevel]:
        """Return the levels by name, for a `FactorBook`."""
        return {constant.name: constant.level for constant in self.constants}
