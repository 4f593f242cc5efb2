"""Named factors: the few uncertain things that scale times.

Answers: which factors does a prediction rest on, how uncertain is each?
An item's time is proportional to each of its factors; nothing else carries uncertainty. From the
critical path follow `d log(step) / d log(factor)`, intervals, and intervals of differences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flopcast.spec.site import Site


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A multiplier of times, 1 unless a site says otherwise, with the sigma of its logarithm."""

    name: str
    ratio: float = 1.0
    log_sigma_factor: float


@dataclass(frozen=True, eq=False, slots=True)
class FactorBook:
    """Factors of one prediction by name; a site's values take precedence."""

    site: Site
    found: dict[str, Factor] = field(default_factory=dict)

    def get(self, name: str, log_sigma_factor: float, ratio: float = 1.0) -> Factor:
        """The factor `name`, made on first use with this sigma and ratio."""
        if name not in self.found:
            self.found[name] = self._made(name, log_sigma_factor, ratio)
        return self.found[name]

    def _made(self, name: str, log_sigma_factor: float, ratio: float) -> Factor:
        for factor in self.site.factors:
            if factor.name == name:
                known = factor.log_sigma_factor
                sigma = log_sigma_factor if known is None else known
                return Factor(name=name, ratio=ratio * factor.ratio, log_sigma_factor=sigma)
        return Factor(name=name, ratio=ratio, log_sigma_factor=log_sigma_factor)

    def all(self) -> Mapping[str, Factor]:
        """Every factor that was used."""
        return dict(self.found)
