"""Which ranks form an axis, and which links join them.

Answers: how many ranks of a group share a node, over how many nodes does it reach? A node here is a
scale-up domain: all devices that the innermost tier joins, often one server.
Ranks are numbered along the plan's rank order, the first axis fastest; nodes take consecutive ranks.
Elsewhere: how long a collective over such a group takes (cost/collectives).

With order tp-cp-dp-pp, rank = tp + TP · (cp + CP · (dp + DP · pp)): the ranks of one axis lie a fixed
stride apart, the product of the degrees before it. Degrees and nodes are powers of two where groups
are exact.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ONE, Counts, Integers
from flopcast.errors import InternalError
from flopcast.spec.plan import Plans

EXPERT_AXES = ("etp", "ep", "expert_dp")  # the closest ranks first
SHARD_AXES = ("dp_shard", "dp_replicate", "expert_dp_shard", "expert_dp_replicate")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Group:
    """Ranks of one collective: `inside` on each node, on `nodes` nodes; arrays (plans, 1).

    Every rank inside drives its own network card, so `inside` is also the number of rails. Where ranks
    do not fill their nodes evenly, it is their mean: 9 ranks on 3 nodes of 4 are 3 inside.
    """

    inside: Counts
    nodes: Counts

    @property
    def ranks(self) -> Counts:
        """All ranks of the group: whole numbers, though `inside` may be a mean."""
        return np.rint(self.inside * self.nodes)


def axis_group(axis: str, plans: Plans, devices_per_node: int) -> Group:
    """The group of a rank along `axis`.

    "dp" joins the ranks that hold the same parameters: data- and context-parallel ones together.
    "pp" is a pair of neighbouring stages on two nodes, "pp_inside" one on the same node; "model"
    joins all tensor-parallel ranks and stages of one replica, "stage" all ranks of one stage, "embedding"
    the first and the last stage, "world" every rank.
    Which of the two pairs a hop is, `crossings` tells. Experts fold the ranks of a stage anew: neighbours
    share an expert ("etp"), then come those over which experts are spread ("ep"), then those that hold
    the same ("expert_dp"). Sharded, the ranks that hold the same are two axes: "dp_shard", which share one
    set of shards, and "dp_replicate", which hold the same shard; "expert_dp_shard" and
    "expert_dp_replicate" of experts.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> group = axis_group("dp", one_plan(Plan(tp=4, dp=8, gbs=8)), devices_per_node=8)
    >>> group.inside.item(), group.nodes.item()
    (2.0, 4.0)
    """
    order = {
        "tp": plans.tensor_parallel,
        "cp": plans.context_parallel,
        "dp": plans.data_parallel,
        "pp": plans.pipeline_parallel,
    }
    names = plans.structure.rank_order.split("-")
    before = {name: _product(order[n] for n in names[: names.index(name)]) for name in names}
    if axis in (*EXPERT_AXES, *SHARD_AXES):
        return _ranks_that_share(axis, plans, before, devices_per_node)
    if axis in ("pp", "pp_inside"):  # neighbours only
        pair = np.minimum(order["pp"], 2.0)
        alone = np.ones_like(pair)
        return Group(
            inside=pair if axis == "pp_inside" else alone, nodes=alone if axis == "pp_inside" else pair
        )
    if axis in order or axis == "model":
        members = {"dp": ("cp", "dp"), "model": ("tp", "pp")}.get(axis, (axis,))
        return _together([_group(order[n], before[n], devices_per_node) for n in members])
    if axis == "embedding":
        reach = before["pp"] * order["pp"]
        pair, together = np.minimum(order["pp"], 2.0), devices_per_node % reach == 0
        return Group(inside=np.where(together, pair, 1.0), nodes=np.where(together, 1.0, pair))
    if axis == "stage":  # neighbours inside one block of stages, and their like in all blocks
        outside, block = (
            _product(order[n] for n in names[names.index("pp") + 1 :]),
            before["pp"] * order["pp"],
        )
        within = _group(before["pp"], ONE, devices_per_node)
        return _together([within, _group(outside, block, devices_per_node)])
    if axis == "world":
        return _group(_product(order.values()), ONE, devices_per_node)
    raise InternalError(f"no axis {axis!r}")


def _ranks_that_share(
    axis: str, plans: Plans, before: Mapping[str, Counts], devices_per_node: int
) -> Group:
    """The group of an axis of experts or of shards.

    Experts fold the ranks of a stage, which follow each other in the one rank order that is built for them:
    rank = etp + ETP · (ep + EP · expert_dp). Of those that hold the same, neighbours share one set of
    shards. Of all other tensors, so do the ranks that share a sequence and neighbouring replicas; `before`
    are the strides.
    """
    folded = (plans.expert_tensor_parallel, plans.expert_parallel, plans.expert_replicas)
    if axis in EXPERT_AXES:
        place = EXPERT_AXES.index(axis)
        return _group(folded[place], _product(folded[:place]), devices_per_node)
    experts = axis.startswith("expert")
    shards = plans.expert_state_shards if experts else plans.state_shards / plans.context_parallel
    nearest = _product(folded[:2]) if experts else before["dp"]
    if not axis.endswith("shard"):
        return _group(plans.shard_groups, nearest * shards, devices_per_node)
    sharing = _group(shards, nearest, devices_per_node)
    if experts:
        return sharing
    return _together([_group(plans.context_parallel, before["cp"], devices_per_node), sharing])


def _together(groups: Sequence[Group]) -> Group:
    """Every combination of the ranks of these groups."""
    return Group(
        inside=_product(group.inside for group in groups), nodes=_product(group.nodes for group in groups)
    )


def crossings(plans: Plans, plan: int, stages: int, devices_per_node: int) -> Integers:
    """1 where the hop from stage s to s + 1 (from the last to the first) leaves a node, by any rank.

    Shape (stages,). The last stage's hop is that of interleaved schedules, whose chunks go round the
    stages. All ranks of a stage move on together, so the slowest of them decides.

    The ranks of all stages that lie next to each other form a block; with axes behind "pp" in the rank
    order there are several, which may begin anywhere on a node. Their places repeat, so that only blocks
    that begin at different places are looked at.
    """
    names = plans.structure.rank_order.split("-")
    order = {"tp": plans.tensor_parallel, "cp": plans.context_parallel, "dp": plans.data_parallel}
    axis = names.index("pp")
    stride, blocks = (
        int(_product(order[name] for name in part)[plan, 0]) if part else 1
        for part in (names[:axis], names[axis + 1 :])
    )
    distinct = devices_per_node // math.gcd(stride * stages, devices_per_node)
    first = np.arange(min(blocks, distinct)) * stride * stages
    ranks = first + np.arange(stages)[:, None, None] * stride + np.arange(stride)[:, None]
    nodes = (ranks // devices_per_node).reshape(stages, -1)
    leaves: Integers = (nodes != np.roll(nodes, -1, axis=0)).any(axis=1).astype(np.intp)
    return leaves


def _group(size: Counts, stride: Counts, devices_per_node: int) -> Group:
    """`size` ranks, every `stride`-th; how they fall on nodes of consecutive ranks."""
    nodes = np.ceil(size / np.clip(np.floor(devices_per_node / stride), 1.0, size))
    return Group(inside=size / nodes, nodes=nodes)


def _product(values: Iterable[Counts]) -> Counts:
    """Product of degrees, 1 for none: an axis that comes first in the order has stride 1."""
    result = ONE
    for value in values:
        result = result * value
    return result
