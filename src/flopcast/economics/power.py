"""Power during a step: the time at the power limit, the peak in a short window, and the limit with the
least energy.

Answers: how much power does a device draw at most, and with which power limit does a step take the least
energy?
Elsewhere: watts of one kind of work and joules of a step (energy.py), how a limit slows kernels
(cost/kernels/clocks.py).

Boards and meters average over about a tenth of a second, in which many kernels run. A task of the pipeline
therefore draws the mean power of its parts, and a waiting stage draws the power of waiting.
"""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.clocks import limit_ratio, most_w
from flopcast.dtypes import Floats
from flopcast.economics.energy import CORE_BOUND, WAITING, drawn_w, power_class, watts_by_class
from flopcast.operators.item import Item
from flopcast.records import Record
from flopcast.spec.cluster import Cluster, Device
from flopcast.spec.site import LEAST_LIMIT_FRACTION, Site
from flopcast.strict_model import cached_results
from flopcast.timeline.step import Timeline

WINDOW_S = 0.1  # over which boards and meters average: data/power reads its sensor every 100 ms
AT_LIMIT_FRACTION = 0.97  # of the limit: at it, as data/power counts
LIMIT_FRACTIONS = tuple(np.arange(1.0, LEAST_LIMIT_FRACTION - 0.001, -0.05).round(2).tolist())


class PowerDraw(Record):
    """Peak power of a device, time at its power limit, and the limit of least energy.

    Attributes
    ----------
    peak_w : float
        The highest mean power in any window of `WINDOW_S`, on the stage that draws most.
    limit_w : float
        Largest power of a device: the limit of the site, at most the board power.
    at_limit_fraction : float
        The part of the step in which a device runs at its power limit.
    least_energy_limit_w : float
        The limit, in steps of a twentieth of the board power, at which a step takes the least energy,
        including the rest of the node; and the time and energy of the step at this limit, divided by those
        at full power. These are estimates, which assume that the critical path does not change.
    least_energy_time_ratio, least_energy_ratio : float
    """

    peak_w: float
    limit_w: float
    at_limit_fraction: float
    least_energy_limit_w: float
    least_energy_time_ratio: float
    least_energy_ratio: float


def power_draw(
    timeline: Timeline, priced: Priced, cluster: Cluster, site: Site, busy: Mapping[str, float]
) -> PowerDraw:
    """Return the power of a device during a simulated step.

    Parameters
    ----------
    timeline : Timeline
    priced : Priced
    cluster : Cluster
    site : Site
        May set a power limit below the board's.
    busy : mapping of float
        Share of the step by kind of work.

    Returns
    -------
    PowerDraw
        Peak power over windows of a tenth of a second, the share of the step at the limit, and the limit at
        which a step takes the least energy, with its time and energy relative to those of the step. This
        energy includes the power of the other parts of the node, because they run longer in a longer step.
    """
    device = cluster.node.device
    beside_w = cluster.facility.node_overhead_fraction * (device.board_power_w or 0.0)
    limit_w = most_w(site, device)
    at_limit = [kind for kind in busy if drawn_w(kind, device, site) >= AT_LIMIT_FRACTION * limit_w]
    limit, time_ratio, energy_ratio = _least_energy(timeline, device, site, busy, beside_w)
    return PowerDraw(
        peak_w=_peak_w(timeline, priced, device, site),
        limit_w=limit_w,
        at_limit_fraction=sum(busy[kind] for kind in at_limit),
        least_energy_limit_w=limit * (device.board_power_w or 0.0),
        least_energy_time_ratio=time_ratio,
        least_energy_ratio=energy_ratio,
    )


def _least_energy(
    timeline: Timeline, device: Device, site: Site, busy: Mapping[str, float], beside_w: float
) -> tuple[float, float, float]:
    """Return the limit as a share of the board power, and time and joules relative to no limit."""
    shares = [(share.slope_s, power_class(share.item)) for share in timeline.shares]
    on_path = sum(seconds for seconds, kind in shares if kind in CORE_BOUND) / timeline.step_time_s
    now_ratio = limit_ratio(site, device)
    free = {kind: share / (now_ratio if kind in CORE_BOUND else 1.0) for kind, share in busy.items()}
    runs = []
    for limit, ratio, each_w in _limits(device, site):
        step = 1.0 + on_path / now_ratio * (ratio - now_ratio)
        lasting = {kind: share * (ratio if kind in CORE_BOUND else 1.0) for kind, share in free.items()}
        lasting[WAITING] = max(0.0, step - sum(lasting.values()) + lasting.get(WAITING, 0.0))
        joules = sum(share * each_w[kind] for kind, share in lasting.items())
        runs.append((joules + beside_w * step, step, limit))
    (plain, plain_step, _), (least, step, limit) = runs[0], min(runs)
    return limit, step / plain_step, least / plain


@cached_results(64)
def _limits(device: Device, site: Site) -> tuple[tuple[float, float, Mapping[str, float]], ...]:
    """Return each limit as a share of the board power, with the time of kernels and the watts under it."""
    there = [
        site.model_copy(update={"power_limit_w": limit * (device.board_power_w or 0.0)})
        for limit in LIMIT_FRACTIONS
    ]
    ratios = (limit_ratio(each, device) for each in there)
    watts = (watts_by_class(device, each) for each in there)
    return tuple(zip(LIMIT_FRACTIONS, ratios, watts, strict=True))


def _peak_w(timeline: Timeline, priced: Priced, device: Device, site: Site) -> float:
    """Return the most watts in any window, of all stages."""
    kinds_w = watts_of_tasks(timeline, priced, device, site)
    wait_w = drawn_w(WAITING, device, site)
    part, steady = timeline, timeline.steady
    if steady is not None and steady.repeated_s >= WINDOW_S:  # it has every window of the whole step
        part = Timeline(play=lambda: steady.longer)
    shape = len(part.update_s), -1
    tasks = (each.reshape(shape) for each in (part.kind, part.start_s, part.end_s))
    extra_w = kinds_w - wait_w
    hottest = int(extra_w.argmax())
    lasts_s = (part.end_s - part.start_s)[part.kind == hottest].max(initial=0.0)
    if extra_w[hottest] > 0.0 and lasts_s >= min(WINDOW_S, part.step_time_s):  # a window of nothing else
        return float(kinds_w[hottest])
    return max(
        _stage_peak_w(extra_w[kind], begin_s, end_s, wait_w, part.step_time_s)
        for kind, begin_s, end_s in zip(*tasks, strict=True)
    )


def watts_of_tasks(timeline: Timeline, priced: Priced, device: Device, site: Site) -> Floats:
    """Return the mean watts of a task of each pass, from the executions of the mean stage.

    Returns
    -------
    array of shape (passes,)
        The power of waiting plus, for each item, its additional power times its share of the task.
    """
    kind_of: dict[Item | None, int] = {
        item: number
        for number, segments in enumerate(priced.programs.passes)
        for segment in segments
        for item in segment.items
    }
    stages = len(timeline.update_s)
    each_w = watts_by_class(device, site)
    wait_w = each_w[WAITING]
    extra_j: dict[int, float] = defaultdict(float)
    for share in timeline.mean_attribution:
        number = kind_of.get(share.item, -1)
        extra_j[number] += share.path_s * (each_w[power_class(share.item)] - wait_w)
    watts = []
    for number in range(len(priced.programs.passes)):
        seconds = float(timeline.pass_seconds[number]) / stages
        watts.append(wait_w + (extra_j[number] / seconds if seconds > 0 else 0.0))
    return np.array(watts)


def _stage_peak_w(extra_w: Floats, begin_s: Floats, end_s: Floats, wait_w: float, step_s: float) -> float:
    """Return the most watts of one stage, whose tasks draw their mean power one after the other.

    Parameters
    ----------
    extra_w : array of shape (tasks,)
        The watts of each task above those of waiting.
    """
    times = np.empty(2 * len(begin_s) + 2)
    times[0], times[1:-1:2], times[2:-1:2], times[-1] = 0.0, begin_s, end_s, step_s
    drawn = np.full(len(times) - 1, wait_w)
    drawn[1::2] += extra_w
    joules = np.zeros(len(times))
    np.cumsum(drawn * np.diff(times), out=joules[1:])
    window_s = min(WINDOW_S, step_s)
    edges = times[np.append(True, times[1:] > times[:-1])]  # where a task begins as another ends, only once
    starts = np.clip(np.concatenate([edges, edges - window_s]), 0.0, step_s - window_s)
    inside = np.interp(starts + window_s, times, joules) - np.interp(starts, times, joules)
    return float(inside.max() / window_s)
