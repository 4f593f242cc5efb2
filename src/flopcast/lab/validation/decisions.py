"""Decisions compared with measurements: is the recommended plan the fastest one?

Answers: how well does a model order the plans of one sweep, how much time is lost by following its advice,
and are plans called equal if measurements cannot distinguish them?
Elsewhere: the runs that are plans of one sweep (sweeps.py), statistics over sources
(decision_statistics.py).

All times are in device-seconds per token, so that different batches and numbers of devices can be
compared. Each choice of a sweep has three times: the measured one, the predicted one, and that of the
trivial model (FLOP × bubble, without an efficiency, which would not change the order).
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.records import Record
from flopcast.timeline.uncertainty import Sensitivity, difference, holds_one
from flopcast.units import nine_digits


class Choice(Record):
    """One plan of a sweep, with all times in device-seconds per token.

    `name` is the name of the run, and `plan` its short form. A plan that is predicted not to fit (`fits`)
    is not recommended. Common `factors` of two predictions cancel; the `breakdown` adds up to the
    prediction.
    """

    name: str
    plan: str
    measured_s: float
    predicted_s: float
    trivial_s: float
    fits: bool = True
    factors: tuple[Sensitivity, ...] = ()
    breakdown: Mapping[str, float]


class Pairs(Record):
    """All pairs of choices, counted.

    Pairs are `apart` if their measured times differ by more than repeated measurements do. All other pairs
    are tied. `right_share` is the fraction of the `apart` pairs that are predicted in the measured order. A
    pair that is predicted to be equal counts as one half. The fraction is 1 if no pair is `apart`. Of the
    tied pairs, `tied_equal` are called equal: the 90 % interval of their ratio contains 1. The interval of
    `settled` pairs excludes 1. Of these pairs, `settled_wrong` are `apart` and were measured in the
    opposite order. For `covered` pairs, the measured ratio lies in the interval, extended by the scatter of
    repeats.
    """

    number: int
    apart: int
    right_share: float
    tied_equal: int
    settled: int
    settled_wrong: int
    covered: int

    @property
    def tied(self) -> int:
        """Return the number of pairs whose measured times count as equal."""
        return self.number - self.apart


class Sweep(Record, eq=False, kw_only=False, slots=False):
    """At least two choices that one source measured, from which one plan is chosen.

    `free` states what may differ in addition to the plan: "plan" (nothing), "batch", "precision",
    "devices". `fixed` describes the common properties of all choices for readers.
    """

    source: str
    free: str
    fixed: Mapping[str, str]
    choices: tuple[Choice, ...]

    @cached_property
    def spearman(self) -> float | None:
        """Return the rank correlation of predicted and measured times; None if all measurements tie."""
        return self._rank_correlation([choice.predicted_s for choice in self.choices])

    @cached_property
    def trivial_spearman(self) -> float | None:
        """Return the rank correlation of the trivial model with the measurements."""
        return self._rank_correlation([choice.trivial_s for choice in self.choices])

    def _rank_correlation(self, predicted_s: Sequence[float]) -> float | None:
        measured_s = [choice.measured_s for choice in self.choices]
        if max(measured_s) <= TIED_RATIO * min(measured_s):
            return None
        return rank_correlation(predicted_s, measured_s)

    @cached_property
    def fastest(self) -> Choice:
        """Return the choice with the shortest measured time."""
        return min(self.choices, key=lambda choice: choice.measured_s)

    @cached_property
    def recommended(self) -> tuple[Choice, ...]:
        """Return the choices with the shortest predicted time among those that fit; several if they tie."""
        fitting = [choice for choice in self.choices if choice.fits] or self.choices
        return _shortest(fitting, lambda choice: choice.predicted_s)

    @cached_property
    def regret_ratio(self) -> float:
        """Return the recommended choice's measured time over the fastest, minus 1; the mean of ties."""
        return self._regret_ratio(self.recommended)

    @cached_property
    def trivial_regret_ratio(self) -> float:
        """Return the regret of the plan that the trivial model recommends."""
        return self._regret_ratio(_shortest(self.choices, lambda choice: choice.trivial_s))

    def _regret_ratio(self, taken: Sequence[Choice]) -> float:
        return statistics.mean(choice.measured_s for choice in taken) / self.fastest.measured_s - 1.0

    @cached_property
    def fastest_is_called_equal(self) -> bool:
        """Return whether the fastest plan is among those predicted to be as fast as the recommended one."""
        return any(
            choice is self.fastest or holds_one(*_bounds(choice, self.fastest))
            for choice in self.recommended
        )

    @cached_property
    def pairs(self) -> Pairs:
        """Return the number of pairs of choices that the prediction orders correctly.

        Pairs are *apart* if their measured times differ by more than repeats of one run do; `right_share`
        is the share of these in the right order. A pair is *settled* if the interval of its predicted
        ratio excludes 1, and *covered* if that interval holds the measured ratio.
        """
        pairs = [_pair(one, other) for one, other in combinations(self.choices, 2)]
        apart = [pair for pair in pairs if pair.apart]
        settled = [pair for pair in pairs if not pair.equal]
        return Pairs(
            number=len(pairs),
            apart=len(apart),
            right_share=statistics.mean(pair.right_share for pair in apart) if apart else 1.0,
            tied_equal=sum(pair.equal for pair in pairs if not pair.apart),
            settled=len(settled),
            settled_wrong=sum(pair.apart and pair.right_share == 0.0 for pair in settled),
            covered=sum(pair.covered for pair in pairs),
        )


class _Pair(NamedTuple):
    """Two choices: the measured and the predicted difference between them.

    They are `apart` if their measured times differ by more than repeats do. `right_share` is 1 if the
    measured order is predicted, 0 if the other one is, and 0.5 if neither is. They are `equal` if the
    predictions leave their order open, and `covered` if the interval holds the measured ratio, up to the
    scatter of repeats.
    """

    apart: bool
    right_share: float
    equal: bool
    covered: bool


def _pair(one: Choice, other: Choice) -> _Pair:
    measured = math.log(one.measured_s / other.measured_s)
    predicted = math.log(nine_digits(one.predicted_s) / nine_digits(other.predicted_s))
    low, high = _bounds(one, other)
    product = measured * predicted
    return _Pair(
        apart=nine_digits(abs(measured)) > nine_digits(math.log(TIED_RATIO)),
        right_share=0.5 if product == 0.0 else float(product > 0.0),
        equal=holds_one(low, high),
        covered=low / TIED_RATIO <= math.exp(measured) <= high * TIED_RATIO,
    )


def rank_correlation(predicted: Sequence[float], measured: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation of two arrays of numbers; equal numbers share their mean rank.

    None if all numbers of one array are equal, because they have no order.

    References
    ----------
    Spearman, The American Journal of Psychology 15(1), 1904.

    Examples
    --------
    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 40.0, 90.0])
    1.0
    >>> rank_correlation([1.0, 1.0], [10.0, 40.0]) is None
    True
    """
    ours, theirs = _ranks(predicted), _ranks(measured)
    if len(set(ours)) == 1 or len(set(theirs)) == 1:
        return None
    return statistics.correlation(ours, theirs)


def _ranks(values: Iterable[float]) -> list[float]:
    """Return ranks, beginning with 1; numbers that are equal to nine digits share their mean rank."""
    rounded = [nine_digits(value) for value in values]
    return [
        (sum(other < value for other in rounded) + sum(other <= value for other in rounded) + 1) / 2
        for value in rounded
    ]


def _shortest(choices: Iterable[Choice], time_s: Callable[[Choice], float]) -> tuple[Choice, ...]:
    """Return the choices with the shortest time, including all that are equal to it."""
    times = [(nine_digits(time_s(choice)), choice) for choice in choices]
    least_s = min(time for time, _ in times)
    return tuple(choice for time, choice in times if time == least_s)


def _bounds(one: Choice, other: Choice) -> tuple[float, float]:
    log_ratio = math.log(nine_digits(one.predicted_s) / nine_digits(other.predicted_s))
    return difference(one.factors, other.factors, log_ratio)
