"""The rates of a machine outside its devices, fitted on some of its measured runs.

Answers: how much faster or slower than described are the host's updates, its pageable memory, its drives?
Elsewhere: constants of all machines (constants.py), the description (machines.py), scores with the fit
(score.py), factors (cost/factors.py).

A part of a step is what the rate scales, and a rest. The ratio of a rate is the geometric mean over
runs of (measured - rest) / scaled. Each factor is named as in a report, so that a site can hold it.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from flopcast.cost.tier_constants import (
    INTERLEAVED_ON_DEVICE,
    INTERLEAVED_ON_HOST,
    LOG_SIGMAS,
    fitted_ratio,
)
from flopcast.cost.tier_copies import interleaved_ratio
from flopcast.lab.calibration.observations import Levels
from flopcast.lab.offload_runs.measured import MILLISECONDS, OffloadRun, Part
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import dataclass, replace
from flopcast.report.report import Report
from flopcast.spec.offload import stride_of
from flopcast.spec.site import Site, SiteFactor
from flopcast.units import Number

SHARED = tuple(LOG_SIGMAS)  # constants of all machines, which constants.py fits
PARTS: tuple[Part, ...] = ("update", "backward")
LEAST_RATIO = 0.1
LEAST_SHARE = 0.2  # of a part that a rate scales: runs with less say little of it


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaled:
    """The seconds of one part of a step that one factor scales, and all of its seconds as predicted."""

    factor: str
    part: Part
    scaled_s: Number
    whole_s: Number


def scaled_parts(report: Report, seconds: dict[Part, float]) -> tuple[Scaled, ...]:
    """Return what rates outside the devices scale of the update, and of the backward pass.

    Parameters
    ----------
    report : Report
    seconds : dict
        Predicted seconds of each part of the step.

    Returns
    -------
    tuple of Scaled
        Factors that scale less than `LEAST_SHARE` of a part are left out, because its measurement says
        nothing of them.
    """
    found: dict[tuple[Part, str], float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        if share.item is None or not _is_outside(share.item):
            continue
        part: Part = "update" if share.item.phase == "step" else "backward"
        for name in share.factors(report.priced):
            found[part, name] += share.path_s
    return tuple(
        Scaled(factor=name, part=part, scaled_s=scaled_s, whole_s=seconds[part])
        for (part, name), scaled_s in found.items()
        if scaled_s > LEAST_SHARE * seconds[part]
    )


def _is_outside(item: Item) -> bool:
    """Return whether a fitted rate scales an item: an update, or a copy to memory that is not pinned."""
    work = item.work
    return isinstance(work, HostUpdate) or (isinstance(work, TierCopy) and not work.pinned)


def measured_ratio(run: OffloadRun, one: Scaled) -> float | None:
    """Return the ratio of a factor that a run measures; None if the run does not time that part."""
    measured_s = {each.part: each.value / MILLISECONDS for each in run.measured}
    if one.part not in measured_s:
        return None
    rest_s = one.whole_s - one.scaled_s
    return max(float((measured_s[one.part] - rest_s) / one.scaled_s), LEAST_RATIO)


def _interleaved(run: OffloadRun, one: Scaled, levels: Levels) -> Scaled:
    """Return the seconds of an update with the constants of interleaved updates in them."""
    stride = stride_of(run.job.plan.offload) if run.job is not None else 0
    constants = (fitted_ratio(levels, name) for name in (INTERLEAVED_ON_HOST, INTERLEAVED_ON_DEVICE))
    ratio = interleaved_ratio(stride, *constants) / interleaved_ratio(stride)
    more_s = one.scaled_s * (ratio - 1)
    return replace(one, scaled_s=one.scaled_s + more_s, whole_s=one.whole_s + more_s)


def fitted_site(runs: Iterable[tuple[OffloadRun, tuple[Scaled, ...]]], levels: Levels) -> Site:
    """Return the site of a machine by some of its runs, with the ratio of each factor that they measure.

    The runs were predicted without constants of interleaved updates; `levels` has those of the site's
    predictions.
    """
    ratios: dict[str, list[float]] = defaultdict(list)
    for run, parts in runs:
        for one in parts:
            ratio = measured_ratio(run, one if one.part != "update" else _interleaved(run, one, levels))
            if ratio is not None and one.factor not in SHARED:
                ratios[one.factor].append(ratio)
    found = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}
    return Site(factors=tuple(SiteFactor(name=name, ratio=ratio) for name, ratio in found.items()))
