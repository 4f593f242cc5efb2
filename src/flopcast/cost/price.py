"""The time of each item if nothing else runs, and the factors that scale it.

Answers: how long does every item of the programs take if nothing else runs?
Elsewhere: when it runs and what overlaps with it (timeline/). All items of one kernel class, of any layer
and plan, are priced in one evaluation of its curve.

Kernels of exported graphs are priced together (graph_prices.py). Any other kernel takes `launch + bound /
efficiency`, times its factors; the bound is the roofline's, the efficiency a curve's (kernels/unscaled.py).
A message takes its hops and its bytes (collectives/collective_time.py). The stack states the time of host
work. Prices contain no contention: each of two items that share a link is priced as if the other did not
use it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from flopcast.cost.collectives.collective_time import MessageCost, message_seconds
from flopcast.cost.constant_transfer import context_of
from flopcast.cost.deduplicate import PricedOnce, priced_once
from flopcast.cost.evidence_warnings import warnings_of
from flopcast.cost.factors import HOST, FactorBook
from flopcast.cost.graph_prices import price_graph, software_of
from flopcast.cost.item_prices import ItemPrice, LinkUse, Priced, Used
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.clocks import clock_warnings
from flopcast.cost.kernels.curve import Curve
from flopcast.cost.kernels.curve_book import CurveBook, CurveMatch
from flopcast.cost.kernels.generations import stack_that_runs
from flopcast.cost.kernels.kernel_factors import kernel_factors
from flopcast.cost.kernels.unscaled import UnscaledTimes, broadcast_flat, unscaled_times
from flopcast.cost.placement import Group
from flopcast.cost.pricing import (
    HOST_LOG_SIGMA,
    Partly,
    PricedGroup,
    PricedItem,
    Pricing,
    one_node,
    place_of,
    prices_of,
    split_flat,
    with_evidence,
)
from flopcast.cost.single_groups import Single, single_groups, to_price
from flopcast.dtypes import ZERO, Flags, Floats, any_of, constant, distinct
from flopcast.kept_results import NOTHING_KEPT, KeptResults, Same, content
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import HostWork, Item
from flopcast.operators.tier_copies import HostUpdate, TierCopy
from flopcast.records import replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.data_parallel import SingleTensors
from flopcast.workload.program import Programs

FABRIC_LOG_SIGMA = 0.08  # measured collectives between jobs and days
UNMEASURED_FABRIC_LOG_SIGMA = 0.2
OTHER_COLLECTIVE_LOG_SIGMA = 0.2  # an all-reduce's efficiency for a gather (data/collectives, Vista)
EXCHANGE_LOG_SIGMA = 0.15  # an estimate: calls in a benchmark against those in a training step
MESSAGE_EXTRAPOLATION_LOG_SIGMA = 0.33  # docs/accuracy/kernels.md: what the 30 % largest messages need

LIBRARY = {  # whose kernels exchange tokens of experts; of the others NCCL's
    "dispatch": "deepep",
    "combine": "deepep",
    "hybrid_dispatch": "hybridep",
    "hybrid_combine": "hybridep",
}


def price(
    programs: Programs,
    cluster: Cluster,
    book: CurveBook,
    factors: FactorBook,
    kept: KeptResults = NOTHING_KEPT,
) -> Priced:
    """Price every item of the programs on a cluster; prices in `kept` are used again.

    Returns
    -------
    Priced
        A price for every item of `programs.items()`, of any plan. Shapes are those of `ItemPrice`.

    Raises
    ------
    KeyError
        The device has no peak for the precision of the plan (spec/checks.py refuses it before).
    """
    precision = programs.plans.structure.precision
    factors = replace(factors, context=context_of(programs.workload.model, cluster, precision))
    graph = software_of(programs, cluster, book, factors)
    items = programs.items()
    stack = stack_that_runs(programs.stack, cluster.node.device, (item.work for item in items))
    place, of_node = (
        place_of(stack, machine, book, factors, kept, graph) if kept else None
        for machine in (cluster, one_node(cluster, factors.site))
    )
    state = Pricing(cluster, stack, book, factors, kept, place, graph, of_node)
    singles = single_groups(items, kept)
    wanted = to_price(items, singles)
    once = priced_once(wanted, programs.plans, cluster, kept)
    price_all(once, state)
    for item, priced, narrow in zip(wanted, once.items, once.narrowed, strict=True):
        if narrow:
            state.prices[item] = state.prices[priced].of_rows(once.rows.group)
    for single in singles:
        state.prices[single.item] = _of_one_or_several(single, state.prices)
    for factor in factors.of_whole_steps(stack, cluster):
        state.ratio_of(factor)
    used = tuple(state.used.values())
    return Priced(
        programs=programs,
        cluster=cluster,
        prices=state.prices,
        factors=state.found,
        used=used,
        warnings=(
            *warnings_of([(u.curve, u.calibrated) for u in used], cluster.node.device),
            *clock_warnings(factors.site, cluster.node.device),
        ),
        site=factors.site,
        levels=factors.levels,
        context=factors.context,
        kept=kept,
    )


def price_all(once: PricedOnce, state: Pricing) -> None:
    """Price items in groups: kernels of one class, messages of one collective over one axis, host work."""
    by_kernel: dict[str, list[Item]] = defaultdict(list)
    by_message: dict[tuple[str, str, bool], list[Item]] = defaultdict(list)
    ranks = {key: content(group) if state.kept else () for key, group in once.groups.items()}
    of_graph: list[Item] = []
    alone: list[PricedGroup] = []
    for item, narrow in zip(once.items, once.narrowed, strict=True):
        work = item.work
        if state.graph is not None and state.graph.prices(item):
            of_graph.append(item)
        elif isinstance(work, AbstractOperator):
            by_kernel[work.kernel].append(item)
        elif isinstance(work, AbstractMessage):
            by_message[work.collective, work.axis, narrow].append(item)
        elif isinstance(work, TierCopy | HostUpdate):
            from flopcast.cost.tier_copies import price_copies

            alone.append(([item], price_copies, ()))
        else:
            alone.append(([item], _price_host, ()))
    if state.graph is not None:
        alone.append((of_graph, partial(price_graph, state.graph), ()))
    kernels = [(group, partial(_price_kernels, kernel), ()) for kernel, group in by_kernel.items()]
    messages = [
        (group, partial(_price_messages, collective, once.groups[axis, narrow]), ranks[axis, narrow])
        for (collective, axis, narrow), group in by_message.items()
    ]
    state.price((*alone, *kernels, *messages))


def _price_kernels(kernel: str, items: list[Item], state: Pricing) -> list[PricedItem]:
    """Price all operators of one class together; the layouts of a product share one curve."""
    priced = class_of(kernel)
    works = tuple(item.work for item in items if isinstance(item.work, AbstractOperator))
    found, times = _unscaled(kernel, works, state)
    factors = kernel_factors(priced, found, state.cluster, state.stack, state.factors)
    names = tuple(factor.name for factor in factors)
    doubt = Partly(f"extrapolated[{priced.curve}]", priced.kind.extrapolation_log_sigma_factor, times.far)
    scaled_s = times.alone_s * math.prod(map(state.ratio_of, factors))
    prices = prices_of(items, times.shapes, scaled_s, times.least_s, names, (doubt,), state)
    used = _used((found.curve,), found.calibrated, times.far, times.shapes)
    return with_evidence(items, prices, used, state)


def _unscaled(
    kernel: str, works: tuple[AbstractOperator, ...], state: Pricing
) -> tuple[CurveMatch, UnscaledTimes]:
    """Return the curve of a kernel class and the times of operators by it, which no factor changes."""
    device = state.cluster.node.device

    def made() -> tuple[CurveMatch, UnscaledTimes]:
        engine_ratio = device.engine_ratio(works[0].work().unit)
        owner, name = device.curves or device.name, class_of(kernel).curve
        found = state.book.find(owner, name, device.kernel_launch_s, device.relatives, engine_ratio)
        return found, unscaled_times(works, found.curve, device)

    key = ("unscaled", kernel, device, Same(state.book.curves), works)
    return state.kept.of(key, made) if state.kept else made()


def _of_one_or_several(single: Single, prices: dict[Item, ItemPrice]) -> ItemPrice:
    """Return the price of a dense product in plans with one group, of grouped products in the others."""
    dense, several = prices[single.dense], prices.get(single.item)
    if several is None:
        return dense
    partly: dict[str, np.ndarray] = {}
    for price_of, here in ((several, ~single.where), (dense, single.where)):
        for name in price_of.names():
            held = np.asarray(here & price_of.partly.get(name, np.True_))
            partly[name] = partly.get(name, np.False_) | held
    free_s, least_s = (
        np.where(single.where, *(getattr(one, name) for one in (dense, several)))
        for name in ("free_s", "least_s")
    )
    return ItemPrice(
        alone_s=np.where(single.where, dense.alone_s, several.alone_s),
        host_s=np.where(single.where, dense.host_s, several.host_s),
        wholly=(),
        partly=partly,
        moves=np.where(single.where, dense.moves, several.moves),
        free_s=free_s,
        least_s=least_s,
    )


def _price_messages(collective: str, group: Group, items: list[Item], state: Pricing) -> list[PricedItem]:
    """Price the messages of one collective over one axis; those without a collective are free."""
    if not collective:
        return [PricedItem(ItemPrice(alone_s=ZERO, host_s=ZERO, wholly=()))] * len(items)
    messages = [item.work for item in items if isinstance(item.work, AbstractMessage)]
    shapes, flat = zip(*(broadcast_flat(_sizes(message, group)) for message in messages), strict=True)
    size, across, inside, nodes, depth = (np.concatenate(column) for column in zip(*flat, strict=True))
    ranks = Group(inside=inside, nodes=nodes, depth=depth)
    cost = message_seconds(collective, size, ranks, state.cluster, state.book, across)
    seconds, names = cost.alone_s, tuple[str, ...]()
    if messages[0].axis == "ep":
        names = (f"exchange[{LIBRARY.get(collective, collective)}]",)
        seconds = seconds * state.ratio_of(state.factors.get(names[0], EXCHANGE_LOG_SIGMA))
    partly = (
        *_fabrics(collective, cost, state),
        Partly(f"borrowed[{collective}]", OTHER_COLLECTIVE_LOG_SIGMA, cost.borrowed),
        Partly(f"extrapolated[{collective}]", MESSAGE_EXTRAPOLATION_LOG_SIGMA, cost.extrapolated),
    )
    prices = prices_of(items, shapes, seconds, cost.bound_s, names, partly, state)
    fractions = cost.on_link_s / np.where(cost.alone_s > 0, cost.alone_s, 1.0)
    uses = map(LinkUse, *(split_flat(each, shapes) for each in (cost.tier, fractions, cost.cards_ratio)))
    linked = [replace(price, link=use) for price, use in zip(prices, uses, strict=True)]
    used = _used(tuple(cost.curves.values()), True, cost.extrapolated, shapes)
    return with_evidence(items, linked, used, state)


def _used(
    curves: tuple[Curve, ...], calibrated: bool, far: Flags, shapes: Sequence[tuple[int, ...]]
) -> list[tuple[Used, ...]]:
    """Return the curves of each item, extrapolated if any of its rows is `far`, (rows of all items,)."""
    inside, beyond = (
        tuple(Used(curve=curve, extrapolated=outside, calibrated=calibrated) for curve in curves)
        for outside in (False, True)
    )
    if not any_of(far):
        return [inside] * len(shapes)
    return [beyond if any_of(each) else inside for each in split_flat(far, shapes)]


def _sizes(message: AbstractMessage, group: Group) -> tuple[Floats, ...]:
    """Return the bytes of a message, the bytes of one copy per domain, and the place of its ranks."""
    within_bytes = message.bytes_in_domains(group.nodes)
    across_bytes = message.bytes_to_domains(group.nodes)
    return within_bytes, across_bytes, group.inside, group.nodes, group.depth


def _fabrics(collective: str, cost: MessageCost, state: Pricing) -> tuple[Partly, ...]:
    """Return the factors of the tiers that messages use, which may differ between plans."""
    found = []
    for index in distinct(cost.tier[cost.alone_s > 0]):
        tier = state.cluster.tiers[index]
        measured = index in cost.curves or collective in tier.library_fraction
        sigma = FABRIC_LOG_SIGMA if measured else UNMEASURED_FABRIC_LOG_SIGMA
        rows = (cost.tier == index) & (cost.alone_s > 0)
        found.append(Partly(f"fabric[{tier.fabric or tier.name}]", sigma, rows))
    return tuple(found)


def _price_host(items: list[Item], state: Pricing) -> list[PricedItem]:
    """Price the framework's fixed work per step as a factor of its own; it launches no kernels."""
    return [_of_host(item.work.kind, state) for item in items if isinstance(item.work, HostWork)]


def _of_host(kind: str, state: Pricing) -> PricedItem:
    stack, fetch = state.stack, state.stack.sharding.single_tensors or SingleTensors()
    speed_ratio = state.cluster.node.host.speed_ratio
    name, seconds = {
        "synchronise": (HOST, stack.host.synchronise_s),
        "step": ("host_step", stack.optimizer.step_host_s),
        "transfer": (HOST, stack.pipeline.host_s),
        "piece": (HOST, fetch.piece_s),
        "message": (HOST, fetch.message_s),
        "element": (HOST, 1.0 / fetch.elements_per_s),
        "forward_layer": (HOST, stack.offload.forward_layer_s),
        "backward_layer": (HOST, stack.offload.backward_layer_s),
        "sharded_operator": (HOST, stack.host.sharded_operator_s / speed_ratio),
    }[kind]
    factor = state.factors.get(name, HOST_LOG_SIGMA)
    alone_s = constant(seconds * factor.ratio)
    return PricedItem(ItemPrice(alone_s=alone_s, host_s=ZERO, wholly=(name,)), (factor,))
