"""Energy of devices during a step: the time of each kind of work, times the power during this work.

Answers: how many joules does a step take, and on which factors does this energy depend?
Elsewhere: the power of each kind (spec/operations.py), the timeline of the work (timeline/).

Energy is the integral of power over the step. Every second of a device is spent on matrix products,
attention, memory-bound kernels, exposed communication, or waiting for other stages or launches. Hidden
communication draws no additional power, because the board is at or near its limit.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache

from flopcast.cost.factors import Factor
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.classes import KINDS, class_of
from flopcast.cost.kernels.clocks import clock_ratio, limit_ratio, most_w, slowed_fraction
from flopcast.economics.amount import Amount, Slope, amount_of, total
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.spec.cluster import Cluster, Device
from flopcast.spec.operations import POWER_CLASSES, Draw
from flopcast.spec.site import Site
from flopcast.strict_model import cached_results
from flopcast.timeline.step import Timeline
from flopcast.timeline.uncertainty import sensitivities

WAITING, COMMUNICATION = "waiting", "communication"
CORE_BOUND = {kind.power_class for kind in KINDS if kind.is_core_bound}  # draw less at a lower core clock
SUSTAINED = {kind.power_class for kind in KINDS if kind.is_product}


@lru_cache(maxsize=4096)  # a report asks several times for each item, and jobs share most items
def power_class(item: Item | None) -> str:
    """Return the kind of work of an item, a name in spec.operations.POWER_CLASSES.

    Host work, and launches for which the device waits (`item` is None), count as waiting.
    """
    work = item.work if item is not None else None
    if isinstance(work, AbstractOperator):
        return class_of(work.kernel).kind.power_class
    return COMMUNICATION if isinstance(work, AbstractMessage) else WAITING


def drawn_w(kind: str, device: Device, site: Site) -> float:
    """Return the watts of a device at one kind of work, at most the site's limit; 0 without a board power.

    If a limit or a locked clock slows down GEMMs and attention, they draw less power.
    """
    draw: Draw = getattr(device.power, kind)
    fraction = draw.fraction
    if kind in CORE_BOUND:
        slowed = limit_ratio(site, device) * clock_ratio(site, device, sustained=kind in SUSTAINED)
        fraction = slowed_fraction(fraction, slowed)
    board_w = device.board_power_w or 0.0
    return min(fraction * board_w, most_w(site, device))


@cached_results(256)
def watts_by_class(device: Device, site: Site) -> Mapping[str, float]:
    """Return the watts of a device at each kind of work of POWER_CLASSES, as `drawn_w` does for one."""
    return {name: drawn_w(name, device, site) for name in POWER_CLASSES}


def device_energy(
    timeline: Timeline, priced: Priced, cluster: Cluster, site: Site, whole: Mapping[str, Factor]
) -> tuple[Amount, dict[str, float]]:
    """Return the joules of one device in one step, averaged over all stages, and how busy the device is.

    Parameters
    ----------
    whole : factors of the whole step: jitter and the unexplained difference

    Returns
    -------
    joules : Amount
        It depends on the factors of the items' times, on those of the step, which determine how long the
        device waits, and on `power_CLASS[DEVICE]`. Slopes are exact as long as the critical path does not
        change and the backward pass hides all reductions. Otherwise, the hidden part of a reduction is
        assumed to stay the same.
    busy : dict from kind of work to the share of the step that it takes
        The shares sum to 1 and are sorted, the largest first.
    """
    device = cluster.node.device
    each_w = watts_by_class(device, site)
    wait_w = each_w[WAITING]
    busy_s: dict[str, float] = defaultdict(float)
    extra_j: dict[str, float] = defaultdict(float)  # by factor of time: joules above waiting
    for share in timeline.mean_attribution:
        name = power_class(share.item)
        busy_s[name] += share.path_s
        more_j = (each_w[name] - wait_w) * share.scaled_s
        for hung_on in priced.of(share.item).names(share.row) if share.item is not None else ():
            extra_j[hung_on] += more_j
    left_s = timeline.step_time_s - sum(busy_s.values())
    busy_s[WAITING] += max(left_s, 0.0)
    if left_s < 0:  # kernels run beside messages of the critical path, which are exposed for the rest
        busy_s[COMMUNICATION] = max(busy_s[COMMUNICATION] + left_s, 0.0)
    parts = []
    for name, seconds in busy_s.items():
        draw = getattr(device.power, name)
        work = Amount(seconds * each_w[name])
        parts.append(work.hanging_on(f"power_{name}[{device.name}]", draw.log_sigma_factor))
    of_work = {
        name: Slope(priced.factors[name].log_sigma_factor, change) for name, change in extra_j.items()
    }
    waited = amount_of(wait_w * timeline.step_time_s, sensitivities(timeline, priced, {}))
    joules = total([*parts, Amount(0.0, of_work), Amount(0.0, waited.slopes)])
    longer = Amount(1.0)
    for name, factor in whole.items():
        longer = longer * Amount(factor.ratio).hanging_on(name, factor.log_sigma_factor)
    joules = joules * longer
    busy = {name: seconds / timeline.step_time_s for name, seconds in busy_s.items()}
    return joules, dict(sorted(busy.items(), key=lambda pair: (-pair[1], pair[0])))
