"""The time for which messages of a step, hidden or not, occupy the widest network of a cluster.

Elsewhere: the effect of several jobs on one network (shared_network.py), seconds of messages for which the
step waits (timeline/critical_path.py).
"""

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.dtypes import Counts
from flopcast.operators.item import Item
from flopcast.timeline.contention import executions
from flopcast.units import Number
from flopcast.workload.program import FIRST, LAST, MIDDLE, ONLY, POSITIONS


def network_seconds(priced: Priced, micro_batches: int) -> Number:
    """Return the seconds of a step in which the busiest stage's messages occupy the cluster's last tier.

    Latencies do not count, because the links are free for other messages during this time. If micro-batches
    differ, all of them count as micro-batches of the first kind.

    Parameters
    ----------
    priced : the programs of one plan
    micro_batches : micro-batches of a rank in a step
    """
    programs, stages = priced.programs, priced.programs.stages
    at = _positions(micro_batches)
    total_s = np.zeros(stages.chunks_of_class.shape[1])
    for segments in programs.passes:
        for segment in segments:
            held = (stages.chunks_of_class[0] * segment.repeat[0]).sum(axis=1)
            total_s += held * sum(_once_s(priced, item) * _times(item, at) for item in segment.items)
    chunks = stages.chunks_of_class[0].sum(axis=1)
    hops = (*programs.hop_across.forward, *programs.hop_across.backward)
    total_s += micro_batches * chunks * sum(_once_s(priced, item) for item in hops)
    for item in (*programs.reduce, *programs.synchronise, *programs.update):
        total_s += np.array([_once_s(priced, item, place) for place in range(len(total_s))])
    return float(total_s.max())


def _positions(micro_batches: int) -> Counts:
    """Return how many micro-batches of a step have each position (workload/program.py)."""
    counts = np.zeros(len(POSITIONS))
    if micro_batches == 1:
        counts[ONLY] = 1.0
    else:
        counts[[FIRST, MIDDLE, LAST]] = 1.0, micro_batches - 2.0, 1.0
    return counts


def _times(item: Item, at: Counts) -> Number:
    """Return how often a step runs an item of a layer."""
    often = executions(item)[:, 0, 0]
    return float((often * at).sum() if len(often) > 1 else often[0] * at.sum())


def _once_s(priced: Priced, item: Item, stage_class: int = 0) -> Number:
    """Return the seconds on the last tier of one execution; 0 for all that is no message on it."""
    price = priced.of(item)
    if price.link is None:
        return 0.0

    def here(values: Counts) -> Number:
        return float(values[0, min(stage_class, values.shape[1] - 1)])

    on_last = int(here(price.link.tier)) == len(priced.cluster.tiers) - 1
    return here(price.alone_s) * here(price.link.fraction) if on_last else 0.0
