"""The time of each item of a pass alone, and the factors that scale it.

Answers: how long does a batch of passes take on one rank, part by part, and on which factors does this time
depend?
Elsewhere: prices of single items (cost/price.py), how an engine's host adds to them (pass_times.py).

Kernels of one rank run one after another, from CUDA graphs that take launches off the host, and wait for
the messages between them: the seconds of a pass are the sum over its items.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from flopcast.cost.deduplicate import PricedOnce
from flopcast.cost.factors import Factor, FactorBook
from flopcast.cost.item_prices import ItemPrice, Used
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import group_on
from flopcast.cost.price import price_all
from flopcast.cost.pricing import Pricing
from flopcast.dtypes import Counts, Flags, Floats
from flopcast.kept_results import NOTHING_KEPT
from flopcast.operators.base import AbstractMessage
from flopcast.operators.decode_attention import DecodeAttention
from flopcast.operators.gated_delta import DeltaDecode
from flopcast.operators.item import Item
from flopcast.operators.latent_decode import LatentDecode
from flopcast.operators.served_matmul import ServedMatmul
from flopcast.records import Record, replace
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.lower import VISION, ServedLayer
from flopcast.serving.overlapped_kernels import overlapping_s
from flopcast.spec.cluster import Cluster
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.iteration_cost import EXPERTS, IterationCost
from flopcast.spec.plan import Plan, Plans, one_plan
from flopcast.spec.rows import of_equal_split
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack

MESSAGES = "communication"
ATTENTION = (DecodeAttention, LatentDecode, DeltaDecode)
EXPERT_MESSAGES = "expert_communication"  # between groups of ranks that share experts
LARGEST_NODE = 16  # devices; a fast network that joins more of them joins several nodes
ROUNDING = 1e-9  # of the new tokens of a mean pass: fewer tokens of prompts are none
Ratios = Callable[[str], Counts]  # of a component of the breakdown, (passes,)


def has_prompts(run: EnginePass) -> Flags:
    """Return a mask of passes that compute tokens of prompts, (passes,)."""
    found: Flags = run.prompt_tokens[:, 0] > ROUNDING * run.new_tokens[:, 0]
    return found


def ratios_of(cost: IterationCost, run: EnginePass, priced: "PricedPasses") -> Ratios:
    """Return a function that returns the time of a component in an engine, divided by its time in
    benchmarks, (passes,).

    In a pass that only decodes, each kernel is shorter by the time of its overlap with the previous kernel.
    """
    prompts = has_prompts(run)

    def alone(component: str) -> Counts:
        decoding, mixed = (cost.ratio_of(component, has_prompts=each) for each in (False, True))
        return np.where(prompts, mixed, decoding)

    total_s = np.zeros(priced.size)
    for name, part in priced.by_component().items():
        total_s = total_s + alone(name) * part
    overlapping = overlapping_s(total_s, cost.overlap_s * priced.launches())
    kept = np.where(prompts, 1.0, overlapping / np.maximum(total_s, 1e-12))
    return lambda component: kept * alone(component)


def component_of(item: Item) -> str:
    """Return the component of the breakdown that an item belongs to."""
    if not isinstance(item.work, AbstractMessage) or item.component == VISION:
        return item.component
    return EXPERT_MESSAGES if item.work.axis == "dp" else MESSAGES


class PricedPasses(Record, eq=False):
    """The prices of a batch of passes.

    `layers` are the priced layers. `prices` holds one entry for each of their items, with arrays of shape
    (passes, 1). `size` is the number of passes.
    """

    layers: tuple[ServedLayer, ...]
    prices: Mapping[Item, ItemPrice]
    factors: Mapping[str, Factor]
    used: tuple[Used, ...]
    size: int

    def by_component(self) -> dict[str, Floats]:
        """Return the seconds of all layers by component of the breakdown, each (passes,)."""
        found: dict[str, Floats] = defaultdict(lambda: np.zeros(self.size))
        for item, seconds in self.seconds():
            name = component_of(item)
            found[name] = found[name] + seconds
        return dict(found)

    def by_factor(self, ratios: Ratios) -> dict[str, Floats]:
        """Return the seconds that each factor scales.

        Parameters
        ----------
        ratios : function
            Ratio by which the engine scales the kernels of a component, an array of shape (passes,).

        Returns
        -------
        dict of arrays of shape (passes,)
            An item counts once for each of its factors, so that the sum exceeds the seconds of the pass. If
            a factor applies only to some rows of an item (`ItemPrice.partly`), only these rows count.
        """
        found: dict[str, Floats] = defaultdict(lambda: np.zeros(self.size))
        for item, seconds in self.seconds():
            price = self.prices[item]
            moved = (
                ratios(component_of(item)) * seconds * np.broadcast_to(price.moves, (self.size, 1))[:, 0]
            )
            for name in price.names():
                held = price.partly.get(name)
                here = moved if held is None else moved * np.broadcast_to(held, (self.size, 1))[:, 0]
                found[name] = found[name] + here
        return dict(found)

    def launches(self) -> Counts:
        """Return the kernels and messages of each pass that take time, (passes,)."""
        found = np.zeros(self.size)
        for layer in self.layers:
            for item in layer.items:
                kernels = item.work.launches if isinstance(item.work, ServedMatmul) else 1
                launched = (self.prices[item].alone_s > 0) * kernels * item.count * layer.count
                found = found + np.broadcast_to(launched, (self.size, 1))[:, 0]
        return found

    def prompt_host_s(self, cost: IterationCost) -> float:
        """Return the host time of the layers of a pass with prompts: of experts and of linear attention."""
        experts = self._layers_with(lambda item: item.component == EXPERTS)
        states = self._layers_with(lambda item: isinstance(item.work, DeltaDecode))
        return experts * cost.prompt_experts_s + states * cost.prompt_states_s

    def decode_host_s(self, cost: IterationCost) -> float:
        """Return the host time of the layers of a pass that only decodes."""
        return self._layers_with(lambda item: isinstance(item.work, ATTENTION)) * cost.decode_layer_s

    def _layers_with(self, wanted: Callable[[Item], bool]) -> int:
        """Return the number of layers that have an item of a kind."""
        return sum(layer.count for layer in self.layers if any(map(wanted, layer.items)))

    def seconds(self) -> list[tuple[Item, Floats]]:
        """Return every item with the seconds of all layers that run it, (passes,)."""
        return [
            (
                item,
                np.broadcast_to(self.prices[item].alone_s * item.count, (self.size, 1))[:, 0] * layer.count,
            )
            for layer in self.layers
            for item in layer.items
        ]


def price_passes(
    layers: tuple[ServedLayer, ...],
    size: int,
    deployment: Deployment,
    engine: Engine,
    cluster: Cluster,
    book: CurveBook,
    site: Site,
) -> PricedPasses:
    """Price every item of a batch of passes on a cluster.

    Parameters
    ----------
    layers : tuple of ServedLayer
        Items with sizes of shape (passes, 1).
    size : int
        Number of passes.
    deployment : Deployment
        Its degrees place the ranks on links.
    engine, cluster, book, site
        The software, the hardware, the curves, and measured speeds of this machine.

    Returns
    -------
    PricedPasses
        Kernels run in CUDA graphs, which the host launches as a whole, so no item waits for the host.
    """
    items = tuple(item for layer in layers for item in layer.items)
    plans = plan_of(deployment)
    axes = {item.work.axis for item in items if isinstance(item.work, AbstractMessage)}
    cluster = _of_instance(cluster, deployment.devices)
    groups = {(axis, False): group_on(cluster, axis, plans) for axis in axes}
    state = Pricing(cluster, _stack_of(engine), book, FactorBook(site, book.levels), NOTHING_KEPT, None)
    casts = _casts(items)
    priced = (*items, *(each for pair in casts.values() for each in pair))
    price_all(PricedOnce(priced, (False,) * len(priced), of_equal_split(plans), groups), state)
    for item, products in casts.items():
        price, seconds = state.prices[item], [state.prices[each].alone_s for each in products]
        cast_s = np.maximum(seconds[0] - seconds[1], 0.0)
        state.prices[item] = replace(price, alone_s=overlapping_s(price.alone_s, cast_s))
    return PricedPasses(
        layers=layers, prices=state.prices, factors=state.found, used=tuple(state.used.values()), size=size
    )


def _casts(items: Iterable[Item]) -> dict[Item, tuple[Item, ...]]:
    """Return the items whose times give that of the cast (`ServedMatmul.casts`) of each cast product."""
    return {
        item: tuple(replace(item, work=work) for work in item.work.casts())
        for item in items
        if isinstance(item.work, ServedMatmul) and item.work.is_cast
    }


def _of_instance(cluster: Cluster, devices: int) -> Cluster:
    """Return the nodes on which one instance runs, whole even if the cluster uses a part of a node.

    The clock of the slowest device of these nodes decides, so that other nodes and idle devices do not
    matter. An instance that is smaller than a node waits for fewer devices, but the constants of engines
    were fitted with whole nodes. The devices multiply in fp16 if they have no engine for bf16, as engines
    do.
    """
    group, domain = cluster.groups[0], cluster.scale_up_devices
    per_node = domain if domain <= LARGEST_NODE else group.node.devices
    changes = {"device": group.node.device.in_16_bits, "devices": per_node}
    node = group.node.model_copy(update=changes)
    part = group.model_copy(update={"node": node, "count": -(-devices // per_node)})
    return cluster.model_copy(update={"groups": (part,)})


def plan_of(deployment: Deployment) -> Plans:
    """Return the degrees of an instance as those of a plan, which places ranks on links."""
    groups, stages = deployment.data_parallel, deployment.pipeline_parallel
    return one_plan(Plan(tp=deployment.tensor_parallel, dp=groups, pp=stages, gbs=groups))


def _stack_of(engine: Engine) -> Stack:
    """Return the software of prices: kernels of graphs, which the host launches together."""
    return Stack(name=engine.name, host={"graphs": ("iteration",)})
