"""A number that depends on named factors: dollars, joules, seconds of a run, each with its interval.

Answers: how does a sum or a product of uncertain numbers depend on the factors that they share?
Elsewhere: factors of a step (timeline/uncertainty.py), of prices, powers and failures (step.py, run.py).

An amount contains `d amount / d log(factor)` for each factor. Slopes of a sum are added, and slopes of a
product follow the product rule, so common factors of two parts never count as independent. The interval is
that of a log-normal number.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.records import Record
from flopcast.timeline.uncertainty import Sensitivity, bounds_of, sigmas_of
from flopcast.units import Number


class Slope(NamedTuple):
    """The slope of an amount in one factor.

    `change` is d amount / d log(factor), in the unit of the amount.

    `log_sigma_factor` is the sigma of the factor's logarithm, so that their product is the share of the
    amount's sigma that this factor causes. `below_log_sigma_factor` is that of `Sensitivity`.
    """

    log_sigma_factor: float
    change: Number
    below_log_sigma_factor: float | None = None


class Amount(Record, kw_only=False):
    """A number in the unit of its field's name, with its slopes by the names of factors.

    Examples
    --------
    >>> hours = Amount(10.0).hanging_on("fabric", 0.1)
    >>> fee = Amount(3.0).hanging_on("price", 0.2, 3.0)
    >>> bill = hours * fee
    >>> bill.value, [(f.name, f.share) for f in bill.factors]
    (30.0, [('price', 1.0), ('fabric', 1.0)])
    >>> (bill + Amount(30.0)).factors[0].share
    0.5
    """

    value: Number
    slopes: Mapping[str, Slope] | None = None

    @property
    def by_factor(self) -> Mapping[str, Slope]:
        """Return the slopes by factor; empty for a certain number."""
        return self.slopes or {}

    @property
    def factors(self) -> tuple[Sensitivity, ...]:
        """Return the factors of the amount, ordered by descending contribution.

        The share of a factor is d log(amount) / d log(factor). It is negative if the amount falls while the
        factor rises.
        """
        found = (
            Sensitivity(
                name=name,
                log_sigma_factor=slope.log_sigma_factor,
                share=slope.change / self.value,
                below_log_sigma_factor=slope.below_log_sigma_factor,
            )
            for name, slope in self.by_factor.items()
            if self.value and slope.change
        )
        return tuple(sorted(found, key=lambda f: (-abs(f.share) * f.log_sigma_factor, f.name)))

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the 90 % interval."""
        value, slopes = self.value, self.by_factor.values()
        sides = [
            sigmas_of(change / value, sigma, below) for sigma, change, below in slopes if value and change
        ]
        return bounds_of(value, sides)

    @property
    def difference_bounds(self) -> tuple[float, float]:
        """Return the symmetric 90 % interval of an amount that may be negative."""
        changes = [slope.change * slope.log_sigma_factor for slope in self.by_factor.values()]
        reach = NINETY_PERCENT * math.hypot(*changes)
        return self.value - reach, self.value + reach

    @property
    def inverse(self) -> "Amount":
        """Return the inverse of the amount; factors that increase the amount decrease the inverse.

        By the chain rule, the slope of 1 / x is -slope / x². The amount must not be 0.
        """
        turned = {
            name: Slope(sigma, -change / self.value / self.value, below)
            for name, (sigma, change, below) in self.by_factor.items()
        }
        return Amount(1 / self.value, turned)

    def hanging_on(self, name: str, log_sigma_factor: float, change: Number | None = None) -> "Amount":
        """Return the amount with one more factor.

        The amount is proportional to the factor unless `change` is given.
        """
        moved = self.value if change is None else change
        slope = Slope(log_sigma_factor=log_sigma_factor, change=moved)
        if name in self.by_factor:
            return self + Amount(0.0, {name: slope})
        return Amount(self.value, {**self.by_factor, name: slope})

    def __add__(self, other: "Amount") -> "Amount":
        """Return the sum; the changes of a shared factor are added before they are squared."""
        return total((self, other))

    def __mul__(self, other: "Amount | Number") -> "Amount":
        """Return the product with another amount, or with a number that is certain."""
        if isinstance(other, Amount):
            return Amount(self.value * other.value, _merged([(other.value, self), (self.value, other)]))
        slopes = {
            n: Slope(sigma, change * other, below) for n, (sigma, change, below) in self.by_factor.items()
        }
        return Amount(self.value * other, slopes)


def _merged(parts: Iterable[tuple[Number, Amount]]) -> dict[str, Slope]:
    """Return the weighted sum of slopes; a factor keeps the largest of its sigmas."""
    merged: dict[str, Slope] = {}
    for weight, amount in parts:
        for name, slope in amount.by_factor.items():
            sigma, change, below = slope
            before = merged.get(name)
            if before is None:
                merged[name] = slope if weight == 1.0 else Slope(sigma, weight * change, below)
                continue
            if before.log_sigma_factor >= sigma:
                sigma, _, below = before
            merged[name] = Slope(sigma, before.change + weight * change, below)
    return merged


def total(parts: Sequence[Amount]) -> Amount:
    """Return the sum of any number of amounts."""
    return Amount(sum(part.value for part in parts), _merged([(1.0, part) for part in parts]))


def amount_of(value: Number, factors: Iterable[Sensitivity]) -> Amount:
    """Return an amount, given the share of the amount that each factor scales."""
    slopes = {f.name: Slope(f.log_sigma_factor, f.share * value, f.below_log_sigma_factor) for f in factors}
    return Amount(value, slopes)
