"""What calibration sees of a prediction: its factors, and the seconds of the parts of its step.

Answers: how long does each part of a step take as predicted, and which factors scale it?
Elsewhere: what a measured run says of the factors (from_run.py), the report itself (report/report.py).

Parts are those of the busiest stage as the prediction sees it (report.breakdown): "gemm", "attention"
(fused, or its batched products), "memory_bound", "communication" (exposed) and "host". Jitter scales the
step only.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from flopcast.cost.factors import HOST
from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts
from flopcast.lab.calibration.kernel_names import COMMUNICATION, kind_of
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item


class SensitivityLike(Protocol):
    """A factor of a report: timeline.uncertainty.Sensitivity."""

    @property
    def name(self) -> str:
        """Return the name as in a site file."""

    @property
    def log_sigma_factor(self) -> float:
        """Return the sigma of the logarithm."""

    @property
    def share(self) -> float:
        """Return d log(step) / d log(factor)."""


class ItemTimeLike(Protocol):
    """Seconds of one item: timeline.critical_path.TimeAttribution."""

    @property
    def item(self) -> Item | None:
        """Return the item, or None for launches that the device waits for."""

    @property
    def path_s(self) -> float:
        """Return the seconds in a step."""

    @property
    def scaled_s(self) -> float:
        """Return the seconds that the item's factors scale."""

    def factors(self, priced: Priced) -> tuple[str, ...]:
        """Return the names of the factors that scale these seconds."""


class TimelineLike(Protocol):
    """What the busiest stage does: timeline.step.Timeline."""

    @property
    def bottleneck_attribution(self) -> Sequence[ItemTimeLike]:
        """Return the shares of each item with its waiting, for the step without jitter."""


class Predicted(Protocol):
    """What is needed of a report (report.report.Report): calibration stands below it, and sees no more."""

    @property
    def step_time_s(self) -> float:
        """Return the step time with jitter."""

    @property
    def factors(self) -> Sequence[SensitivityLike]:
        """Return the factors that the step depends on."""

    @property
    def timeline(self) -> TimelineLike:
        """Return the simulated timeline."""

    @property
    def priced(self) -> Priced:
        """Return the priced programs, whose items name their factors."""


def components(report: Predicted) -> dict[str, float]:
    """Return predicted seconds of a step by component, on the busiest stage, largest first.

    Returns
    -------
    dict
        Waiting for other stages and jitter are in no component, nor is communication that compute hides.
    """
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        seconds[component_of(share.item)] += share.path_s
    found = {name: value for name, value in seconds.items() if value > 0}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def component_of(item: Item | None) -> str:
    """Return the component of an item; launches that the device waits for belong to the host."""
    if item is None:
        return HOST
    if isinstance(item.work, AbstractOperator):
        return kind_of(item.work.kernel.removesuffix(".backward").partition(".")[0])
    return COMMUNICATION if isinstance(item.work, AbstractMessage) else HOST


def step_row(report: Predicted, names: Sequence[str]) -> Counts:
    """Return shares of the step, (factors,)."""
    shares: Mapping[str, float] = {factor.name: factor.share for factor in report.factors}
    return np.array([shares.get(name, 0.0) for name in names])


def part_row(report: Predicted, component: str, names: Sequence[str]) -> Counts:
    """Return shares of a component, (factors,): the part of its seconds that each factor scales."""
    place = {name: at for at, name in enumerate(names)}
    row, total_s = np.zeros(len(names)), 0.0
    for share in report.timeline.bottleneck_attribution:
        if component_of(share.item) == component:
            total_s += share.path_s
            for name in share.factors(report.priced):
                if name in place:
                    row[place[name]] += share.scaled_s
    return row / total_s
