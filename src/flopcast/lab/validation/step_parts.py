"""The parts of a predicted step: their seconds, and the factors that scale them.

Answers: how long is each predicted part of a step, and which factors scale it?
Elsewhere: the update of factors from a measured run (from_run.py), the report itself (report/report.py).

Parts belong to the stage that is busiest in the prediction (report.breakdown): "gemm", "attention"
(fused, or its batched products), "memory_bound", "communication" (exposed) and "host". Jitter scales only
the whole step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from flopcast.cost.factors import HOST
from flopcast.dtypes import Counts
from flopcast.lab.calibration.kernel_names import COMMUNICATION, kind_of
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.report.report import Report


def components(report: Report) -> dict[str, float]:
    """Return the predicted seconds of a step by component, on the busiest stage, the largest first.

    No component includes waiting for other stages, jitter, or communication that compute hides.
    """
    seconds: dict[str, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        seconds[component_of(share.item)] += share.path_s
    positive = {name: value for name, value in seconds.items() if value > 0}
    return dict(sorted(positive.items(), key=lambda pair: (-pair[1], pair[0])))


def component_of(item: Item | None) -> str:
    """Return the component of an item; launches for which the device waits belong to the host."""
    if item is None:
        return HOST
    if isinstance(item.work, AbstractOperator):
        return kind_of(item.work.kernel.removesuffix(".backward").partition(".")[0])
    return COMMUNICATION if isinstance(item.work, AbstractMessage) else HOST


def step_row(report: Report, names: Sequence[str]) -> Counts:
    """Return the share of the step that each factor scales, (factors,)."""
    shares: Mapping[str, float] = {factor.name: factor.share for factor in report.factors}
    return np.array([shares.get(name, 0.0) for name in names])


def part_row(report: Report, component: str, names: Sequence[str]) -> Counts:
    """Return the share of a component's seconds that each factor scales, (factors,)."""
    place = {name: at for at, name in enumerate(names)}
    row, total_s = np.zeros(len(names)), 0.0
    for share in report.timeline.bottleneck_attribution:
        if component_of(share.item) == component:
            total_s += share.path_s
            for name in share.factors(report.priced):
                if name in place:
                    row[place[name]] += share.scaled_s
    return row / total_s
