"""The best order of nodes for a plan on a cluster whose links were measured.

Answers: on which node should each group of consecutive ranks run, and how much faster is the step then?
Elsewhere: the matrix (spec/link_matrix.py), which pairs of nodes messages cross (cost/crossed_links.py).

The estimate of an order uses the seconds for which the messages of each axis occupy links in the simulated
step. These seconds are inversely proportional to the speed of the slowest ring of a stage, or of a transfer
between stages. A longer reduction costs no time while its stage would wait for the last stage. The method
begins with the default order and with chains of fast links, and exchanges two nodes or moves one as long as
the estimate falls. It simulates the best few orders exactly. The default order is one of them, so the
result is never slower.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from flopcast.cost.crossed_links import node_of_ranks
from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.part_prices import axes_of, with_parts
from flopcast.cost.parts import layout_of
from flopcast.cost.price import price
from flopcast.cost.ranks import members, place_of, rank_at
from flopcast.dtypes import Counts, Floats, Integers
from flopcast.errors import spec_error
from flopcast.operators.base import AbstractMessage
from flopcast.prediction import programs_of
from flopcast.records import Record
from flopcast.report.loader import loaded_step
from flopcast.spec.job import Job
from flopcast.spec.link_matrix import LinkMatrix
from flopcast.spec.node_groups import degrees
from flopcast.timeline.step import Timeline, run_step, simulated_seconds

SIMULATED = 6  # orders that are simulated exactly, beside the default one
MOST_STARTS = 16
MEAN_WEIGHT = 1e-3  # of the mean link in the estimate, which orders with equal slowest links differ in
Order = tuple[int, ...]


class NodeOrder(Record):
    """The best order of nodes that was found, with its step time and that of the default order.

    Attributes
    ----------
    order : Order
        The number of the node of each group of consecutive ranks.
    step_time_s : float
        Simulated step with this order, without jitter, with the loader of the job.
    default_step_time_s : float
        Simulated step with nodes in the order of the matrix, without jitter; never below `step_time_s`.
    """

    order: Order
    step_time_s: float
    default_step_time_s: float

    @property
    def speedup_ratio(self) -> float:
        """Return the step with the default order divided by the step with this order."""
        return self.default_step_time_s / self.step_time_s


def best_node_order(job: Job, book: CurveBook) -> NodeOrder:
    """Return the best order of nodes for the plan of a job.

    Raises
    ------
    SpecError
        The cluster has no matrix of links, or the job contradicts itself.
    """
    tier = len(job.cluster.tiers) - 1
    links = job.cluster.tiers[tier].links
    if links is None:
        because = "the order of nodes has no effect if all links between them are equal"
        fix = f"set cluster.tiers[{tier}].links.file to a matrix of measured bandwidths"
        field, allowed = f"cluster.tiers[{tier}].links", "a matrix of measured bandwidths"
        raise spec_error(field, None, allowed, because, fix, fault="is missing")
    programs, factors = programs_of(job), FactorBook(job.site, book.levels)
    equal = price(programs, job.cluster, book, factors)
    axes = axes_of(programs)

    def step_s(order: Order) -> float:
        ordered = with_order(job, order)
        step_s = simulated_seconds(
            with_parts((equal,), layout_of(job.plan, ordered.cluster, job.site, axes), ordered.cluster)
        )
        loaded = loaded_step(job, factors, step_s)
        return step_s if loaded is None else loaded.step_time_s

    default = links.order or tuple(range(links.size))
    estimate = _estimate(job, equal, sorted(axes), links)
    starts = [default, *_chains(links)]
    found = list(dict.fromkeys(_improved(start, estimate) for start in starts))
    best = [found[place] for place in estimate(np.array(found)).argsort(kind="stable")[:SIMULATED]]
    default_s = step_s(default)
    times = {default: default_s} | {order: step_s(order) for order in best}
    order = min(times, key=lambda each: times[each])
    return NodeOrder(order=order, step_time_s=times[order], default_step_time_s=default_s)


def with_order(job: Job, order: Order) -> Job:
    """Return the job with another order of nodes."""
    tiers = list(job.cluster.tiers)
    if tiers[-1].links is not None:
        tiers[-1] = tiers[-1].with_part("links", order=order)
    return job.with_part("cluster", tiers=tuple(tiers))


class _Estimate(Record, eq=False, kw_only=False):
    """Seconds on links of an order, from the pairs of nodes that messages cross, by position in an order.

    `rings` has, for each axis, the seconds of its messages on mean links, and for each stage the pairs of
    its rings, (pairs, 2), with the seconds that the stage may lose; `transfers` are the pairs of transfers
    between stages, with their seconds.
    """

    relative: Counts
    rings: tuple[tuple[float, tuple[tuple[Integers, float], ...]], ...]
    transfers: Integers
    transfers_s: float

    def __call__(self, orders: Integers) -> Floats:
        """Return the estimated seconds of messages in the step with each of these orders, (orders, nodes).

        Each ring takes the time of its slowest link on the stage where that exceeds the stage's slack. A
        part of the mean over stages is added, so that an order with fewer slow rings is preferred among
        equal ones.
        """
        inverse, total_s = 1.0 / self.relative, np.zeros(len(orders))

        def of_pairs(pairs: Integers) -> Counts:
            slow: Counts = inverse[orders[:, pairs[:, 0]], orders[:, pairs[:, 1]]]
            return slow

        for spent_s, stages in self.rings:
            slowest = [(of_pairs(pairs).max(axis=1), slack_s) for pairs, slack_s in stages]
            total_s += np.max([spent_s * each - slack_s for each, slack_s in slowest], axis=0)
            total_s += MEAN_WEIGHT * spent_s * sum(each for each, _ in slowest) / len(slowest)
        if len(self.transfers):
            total_s += self.transfers_s * of_pairs(self.transfers).mean(axis=1)
        return total_s


def _estimate(job: Job, equal: Priced, axes: Sequence[str], links: LinkMatrix) -> _Estimate:
    """Return the estimate for a plan, from its step with mean links."""
    plain = links.model_copy(update={"order": ()})
    nodes, timeline = node_of_ranks(job.plan.devices, job.cluster), run_step(equal)
    spent = _seconds_by_axis(timeline, equal, len(job.cluster.tiers) - 1)
    slack_s = timeline.reduce_start_s.max() - timeline.reduce_start_s
    reduced = {item.work.axis for item in equal.programs.reduce if isinstance(item.work, AbstractMessage)}
    rings = []
    for axis in axes:
        stages = _ring_pairs(axis, job, nodes)
        late = slack_s if axis in reduced else np.zeros_like(slack_s)
        found = tuple((pairs, float(late[stage])) for stage, pairs in stages.items() if len(pairs))
        if found and spent.get(axis, 0.0) > 0:
            rings.append((spent[axis], found))
    relative = plain.bytes_per_s / plain.mean_bytes_per_s
    return _Estimate(relative, tuple(rings), _transfer_pairs(job, nodes), spent.get("pp", 0.0))


def _seconds_by_axis(timeline: Timeline, equal: Priced, tier: int) -> dict[str, float]:
    """Return the seconds of the critical path in which messages of each axis occupy links of a tier."""
    found: dict[str, float] = {}
    for share in timeline.shares:
        work = None if share.item is None else share.item.work
        if isinstance(work, AbstractMessage) and share.item is not None:
            use = equal.of(share.item).link
            if use is not None and int(use.tier.max()) == tier:
                on_link_s = share.path_s * float(use.fraction.max())
                found[work.axis] = found.get(work.axis, 0.0) + on_link_s
    return found


def _ring_pairs(axis: str, job: Job, nodes: Integers) -> dict[int, Integers]:
    """Return the distinct pairs of nodes that the rings of an axis cross, (pairs, 2), for each stage."""
    pairs: dict[int, set[tuple[int, int]]] = {}
    for rank in range(len(nodes)):
        on = nodes[list(members(axis, job.plan, rank))]
        passed = on[np.flatnonzero(np.diff(on, prepend=-1))]
        of_stage = pairs.setdefault(place_of(job.plan, rank)["pp"], set())
        of_stage.update(zip(passed.tolist(), np.roll(passed, -1).tolist(), strict=True))
    return {
        stage: np.array(sorted(pair for pair in some if pair[0] != pair[1]), dtype=np.intp).reshape(-1, 2)
        for stage, some in pairs.items()
    }


def _transfer_pairs(job: Job, nodes: Integers) -> Integers:
    """Return the pairs of nodes of transfers between neighbouring stages, both ways, (pairs, 2)."""
    sizes = degrees(job.plan)
    stride = rank_at(job.plan, dict.fromkeys(sizes, 0) | {"pp": 1}) if sizes["pp"] > 1 else 1
    ranks = np.arange(len(nodes))
    inner = ranks[(ranks // stride) % sizes["pp"] < sizes["pp"] - 1]
    there = np.stack([nodes[inner], nodes[inner + stride]], axis=1)
    there = there[there[:, 0] != there[:, 1]]
    pairs: Integers = np.concatenate([there, there[:, ::-1]])
    return pairs


def _chains(links: LinkMatrix) -> Iterator[Order]:
    """Yield orders in which each node is followed by the one with the fastest link, from several starts."""
    speeds = links.model_copy(update={"order": ()}).bytes_per_s.copy()
    np.fill_diagonal(speeds, 0.0)
    step = max(1, links.size // MOST_STARTS)
    for start in range(0, links.size, step):
        chain, left = [start], np.ones(links.size, dtype=bool)
        left[start] = False
        while left.any():
            chain.append(int(np.argmax(np.where(left, speeds[chain[-1]], -1.0))))
            left[chain[-1]] = False
        yield tuple(chain)


def _improved(order: Order, estimate: _Estimate) -> Order:
    """Return an order that no exchange of two nodes and no move of one node improves."""
    best, best_s = order, float(estimate(np.array([order]))[0])
    while True:
        candidates = np.array(list(_neighbours(best)))
        seconds = estimate(candidates)
        first = int(seconds.argmin())
        if seconds[first] >= best_s * (1.0 - 1e-12):
            return best
        best, best_s = tuple(candidates[first].tolist()), float(seconds[first])


def _neighbours(order: Order) -> Iterator[Order]:
    """Yield all orders with two nodes exchanged, or one node moved."""
    size = len(order)
    for first in range(size):
        for second in range(size):
            if first < second:
                changed = list(order)
                changed[first], changed[second] = changed[second], changed[first]
                yield tuple(changed)
            if abs(first - second) > 1:
                changed = list(order)
                changed.insert(second, changed.pop(first))
                yield tuple(changed)
