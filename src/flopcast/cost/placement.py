"""Placement of ranks: which ranks form an axis, and which links connect them.

Answers: how many ranks of a group share a node, and how many nodes does the group span? In this module, a
node is a scale-up domain: all devices that the innermost tier connects, often one server. Ranks are
numbered along the plan's rank order, the first axis fastest; nodes take consecutive ranks.
Elsewhere: how long a collective over such a group takes (cost/collectives).

With order tp-cp-dp-pp, rank = tp + TP · (cp + CP · (dp + DP · pp)): the numbers of neighbouring ranks of
one axis differ by a fixed stride, the product of the degrees of the earlier axes. The count is that of the
group that spans the most nodes. It is exact for a group with one stride. For two axes with other axes
between them, the counts are multiplied. The product is exact if degrees and nodes are powers of two, and
otherwise never too small.

If a job does not fill its domains, it uses equally many devices of each domain, if that is more than half
of a domain: 512 ranks on NVL72 use 64 devices in each of 8 domains (`ranks_per_domain`), as schedulers of
such machines place jobs (Slurm, topology/block and `--segment`). Otherwise, domains are filled in turn.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from flopcast.dtypes import ONE, ZERO, Counts, Integers, all_of, constant
from flopcast.errors import InternalError
from flopcast.records import Record, field, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.mirrored import is_half
from flopcast.spec.node_groups import AXES
from flopcast.spec.plan import Plans
from flopcast.spec.rows import EqualRows, equal_rows
from flopcast.spec.shard_groups import LEVEL_AXES, level_of, ranks_of, ranks_on

EXPERT_AXES = ("etp", "ep", "expert_dp")  # the closest ranks first
SHARD_AXES = ("dp_shard", "dp_replicate", "expert_dp_shard", "expert_dp_replicate")
MIRROR = "mirror"  # of the two halves of a pipeline that mirrors itself (spec/mirrored.py)


class Group(Record, eq=False):
    """Ranks of one collective: `inside` on each node, on `nodes` nodes; arrays (plans, 1).

    Every rank inside drives its own network card, so `inside` is also the number of rails. If ranks do not
    fill their nodes evenly, it is the mean: for 9 ranks on 3 nodes of 4, it is 3. `depth` counts the tiers
    below the node's tier that also connect all ranks, such as the tier of two dies in one package. It is
    negative if there are several networks between nodes and the nearest of them do not connect all ranks:
    minus the number of these tiers, counted from the node's tier.
    """

    inside: Counts
    nodes: Counts
    depth: Counts = field(default_factory=lambda: np.zeros(()))

    @property
    def ranks(self) -> Counts:
        """Return the number of ranks in the group: a whole number, although `inside` may be a mean."""
        return np.rint(self.inside * self.nodes)


def group_on(cluster: Cluster, axis: str, plans: Plans) -> Group:
    """Return the group of a rank along `axis` on a cluster, with the tiers that connect it.

    The widest tier that a transfer between stages crosses counts for all transfers between stages on
    different nodes.
    """
    group, first = axis_group(axis, plans, cluster.scale_up_devices), cluster.inner_tiers
    depth = ZERO
    if axis not in ("pp", "pp_inside"):  # stages next to each other: in any place
        for tier in cluster.tiers[:first]:
            depth = depth + (axis_group(axis, plans, tier.devices).nodes == 1)
    several = len(cluster.tiers) > first + 2 and not cluster.groups[0].tiers
    if several and axis != "pp_inside":
        whole = "model" if axis == "pp" else axis  # a pipeline that leaves a block has a pair that does
        for tier in cluster.tiers[first:-1]:
            depth = depth - (axis_group(whole, plans, tier.devices).nodes > 1)
    return replace(group, depth=depth)


def axis_group(axis: str, plans: Plans, devices_per_node: int) -> Group:
    """Return the group of a rank along `axis`.

    "dp" contains the ranks that hold the same parameters: data- and context-parallel ranks together. "pp"
    is a pair of neighbouring stages on two nodes, "pp_inside" one on the same node; "model" contains all
    tensor-parallel ranks and stages of one replica, "stage" all ranks of one stage, "embedding" the first
    and the last stage, "world" every rank. `crossings` states which of the two pairs a transfer uses.
    Experts use a second order of the ranks of a stage: first the ranks that share an expert ("etp"), then
    those over which experts are distributed ("ep"), then those with the same experts ("expert_dp"). With
    sharding, the ranks with the same parameters form two axes: "dp_shard", which share one set of shards,
    and "dp_replicate", which hold the same shard; "expert_dp_shard" and "expert_dp_replicate" of experts.
    LEVEL_AXES are the axes of kinds of state with shard groups of their own.

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> group = axis_group("dp", one_plan(Plan(tp=4, dp=8, gbs=8)), devices_per_node=8)
    >>> group.inside.item(), group.nodes.item()
    (2.0, 4.0)
    """
    order, names = _axes(plans)
    if axis == "cp":  # neighbouring replicas may share a sequence as well
        order |= {"cp": order["cp"] * plans.shared_by, "dp": order["dp"] / plans.shared_by}
    before = {name: _product(order[n] for n in names[: names.index(name)]) for name in names}
    world = _product(order.values())
    nodes = _Nodes(world, ranks_per_domain(world, devices_per_node))
    if axis in LEVEL_AXES:
        return _together(_sharers(axis, plans, before), nodes)
    if axis in (*EXPERT_AXES, *SHARD_AXES):
        return _together(_ranks_that_share(axis, plans, before), nodes)
    if axis in ("pp", "pp_inside"):  # neighbours only
        pair = np.minimum(order["pp"], 2.0)
        alone = np.ones_like(pair)
        return Group(
            inside=pair if axis == "pp_inside" else alone, nodes=alone if axis == "pp_inside" else pair
        )
    if axis == "embedding":
        pair, apart = np.minimum(order["pp"], 2.0), before["pp"] * (order["pp"] - 1.0)
        reach = before["pp"] * order["pp"]
        return _on_nodes(RankLevel(pair, apart), nodes, before["pp"], reach)
    members = {
        "dp": ("cp", "dp", MIRROR),
        "model": ("tp", "pp"),
        "stage": ("tp", "cp", "dp", MIRROR),
        "world": names,
    }
    if axis in order or axis in members:
        levels = [RankLevel(order[n], before[n]) for n in names if n in members.get(axis, (axis,))]
        return _together(levels, nodes)
    raise InternalError(f"no axis {axis!r}")


def _axes(plans: Plans) -> tuple[dict[str, Counts], list[str]]:
    """Return the degrees of all axes, and their names in the rank order, the fastest first.

    The two halves of a pipeline that mirrors itself follow each other.
    """
    order = {name: getattr(plans, degree) for name, degree in AXES.items()}
    names = plans.structure.rank_order.split("-")
    if is_half(plans):
        order |= {"dp": plans.data_parallel / 2.0, MIRROR: np.full_like(plans.data_parallel, 2.0)}
        names.insert(names.index("pp") + 1, MIRROR)
    return order, names


def ranks_per_domain(world: Counts, devices: int) -> Counts:
    """Return the number of ranks in each domain of this many devices, for a job of `world` ranks.

    This is the largest number above half of a domain that divides the job into equal domains, in steps of a
    divisor of the domain. A job without such a number, and a job inside one domain, fill the domain.

    Examples
    --------
    >>> ranks_per_domain(np.array([64.0, 512.0, 576.0, 76.0]), 72).tolist()
    [72.0, 64.0, 72.0, 72.0]
    """
    filled = (world % devices == 0) | (world <= devices)
    share = np.full(world.shape, float(devices))
    if all_of(filled):
        return share
    step = np.gcd(world.astype(np.int64), devices)
    for part in range(devices // 2 + 1, devices):
        share = np.where((world % part == 0) & (part % step == 0), float(part), share)
    ranks: Counts = np.where(filled, float(devices), share)
    return ranks


class RankLevel(Record, eq=False, kw_only=False):
    """A number of ranks, `size`, with the distance `stride`: one axis, or several consecutive axes of the
    rank order.

    The first rank of a level has neighbours at distance `stride`; the last is (size - 1) · stride away. A
    level is inside one node if size · stride is at most the number of ranks on a node.
    """

    size: Counts
    stride: Counts


class _Nodes(Record, eq=False, kw_only=False):
    """The number of ranks, and the number of ranks on each node."""

    world: Counts
    ranks: Counts


def _ranks_that_share(axis: str, plans: Plans, before: Mapping[str, Counts]) -> list[RankLevel]:
    """Return the levels of an axis of experts or of shards, the closest ranks first.

    Experts fold the ranks of a stage, which follow each other in the one rank order that is built for them:
    rank = etp + ETP · (ep + EP · expert_dp). Of those that hold the same, neighbours share one set of
    shards. Of all other tensors, so do the ranks that share a sequence and neighbouring replicas; `before`
    are the strides. Half of the ranks that hold the same are on the mirrored half of the stages, if there
    is one.
    """
    mirrored = 2.0 if MIRROR in before else 1.0
    shared = (plans.data_shard == 0) & (plans.structure.zero > 0)  # so are the shards of a group
    folded = (plans.expert_tensor_parallel, plans.expert_parallel, plans.expert_replicas)
    if axis in EXPERT_AXES:
        place = EXPERT_AXES.index(axis)
        copies = mirrored if place == len(EXPERT_AXES) - 1 else 1.0
        return [RankLevel(folded[place] / copies, _product(folded[:place])), *_mirrored(copies, before)]
    experts = axis.startswith("expert")
    shards = plans.expert_state_shards if experts else plans.state_shards / plans.context_parallel
    nearest = _product(folded[:2]) if experts else before["dp"]
    inside, across = (np.where(shared == own, mirrored, 1.0) for own in (True, False))
    if not axis.endswith("shard"):
        groups = RankLevel(plans.shard_groups / across, nearest * shards / inside)
        return [groups, *_mirrored(across, before)]
    sharing = [RankLevel(shards / inside, nearest)]
    if not experts:
        sharing.append(RankLevel(plans.context_parallel, before["cp"]))
    names = plans.structure.rank_order.split("-")
    ordered = sharing[::-1] if names.index("cp") < names.index("dp") else sharing
    return [*ordered, *_mirrored(inside, before)]


def _mirrored(copies: float | Counts, before: Mapping[str, Counts]) -> list[RankLevel]:
    """Return the level of the two halves of a pipeline that mirrors itself, if it does."""
    return [RankLevel(np.asarray(copies) * ONE, before[MIRROR])] if MIRROR in before else []


def _sharers(axis: str, plans: Plans, before: Mapping[str, Counts]) -> list[RankLevel]:
    """Return the levels of one of LEVEL_AXES: neighbours that share states, or equal parts apart."""
    kind, apart = level_of(axis)
    shards = ranks_of(plans, kind) / plans.context_parallel
    if apart:
        return [RankLevel(ranks_on(plans, axis), before["dp"] * shards)]
    sharing = [RankLevel(shards, before["dp"]), RankLevel(plans.context_parallel, before["cp"])]
    names = plans.structure.rank_order.split("-")
    return sharing[::-1] if names.index("cp") < names.index("dp") else sharing


def _together(levels: Sequence[RankLevel], nodes: _Nodes) -> Group:
    """Return all combinations of ranks of these levels, the closest first; adjacent levels are merged."""
    groups = []
    size, stride = levels[0].size, levels[0].stride
    for level in levels[1:]:
        joins = (level.stride == stride * size) | (level.size == 1) | (size == 1)
        groups.append(_at_one_distance(np.where(joins, 1.0, size), stride, nodes))
        stride = np.where(joins & (size > 1), stride, level.stride)
        size = np.where(joins, size, 1.0) * level.size
    groups.append(_at_one_distance(size, stride, nodes))
    return Group(
        inside=_product(group.inside for group in groups), nodes=_product(group.nodes for group in groups)
    )


def _at_one_distance(size: Counts, stride: Counts, nodes: _Nodes) -> Group:
    """Return the groups of a level, which begin at each rank of the first stride and then repeat."""
    return _on_nodes(RankLevel(size, stride), nodes, stride, stride * size)


def _on_nodes(level: RankLevel, nodes: _Nodes, starts: Counts, period: Counts) -> Group:
    """Return how the ranks of a level are spread over nodes, for the group that touches the most nodes.

    Groups begin at a + b · `period`, for every a below `starts` and every b with a group in the world.
    Ranks that are closer than a node is wide touch every node between the first and the last of them, so
    that only the first one's place on its node matters: the last place is the worst.
    """
    wide = nodes.ranks
    repeats = wide / np.gcd(period.astype(np.int64), wide.astype(np.int64))
    blocks = np.minimum(np.maximum(nodes.world / period, 1.0), repeats)
    last = np.zeros(blocks.shape)
    for block in range(int(blocks.max())):
        place = (block * period) % wide
        first_to_last = np.where(place + starts >= wide, wide - 1.0, place + starts - 1.0)
        last = np.where(block < blocks, np.maximum(last, first_to_last), last)
    touched = np.floor((last + (level.size - 1.0) * level.stride) / wide) + 1.0
    on = np.where(level.stride >= wide, level.size, np.minimum(touched, level.size))
    return Group(inside=level.size / on, nodes=on)


def crossings(plans: Plans, plan: int, stages: int, devices_per_node: int) -> Integers:
    """Return 1 if a rank's transfer from stage s to s + 1 (or from last to first) leaves a node, otherwise
    0.

    Shape (stages,). The last stage sends to the first stage only in interleaved schedules. All ranks of a
    stage continue together, so the slowest rank determines the time.

    Neighbouring ranks of all stages form a block. With axes after "pp" in the rank order, there are several
    blocks, which may begin anywhere on a node. Their positions repeat, so only blocks that begin at
    different positions are considered.
    """
    stride, blocks = (int(ranks[plan, 0]) for ranks in _around_stages(plans))
    return _crossings(stride, stages, blocks, devices_per_node)


def crossings_of_each(plans: Plans, devices_per_node: int) -> tuple[EqualRows, tuple[Integers, ...]]:
    """Return groups of plans with the same placement of stages, and the `crossings` of each group."""
    stride, blocks = _around_stages(plans)
    equal = equal_rows([stride[:, 0], plans.pipeline_parallel[:, 0], blocks[:, 0]])
    shapes = np.concatenate([stride, plans.pipeline_parallel, blocks], axis=1)[equal.first].astype(int)
    return equal, tuple(_crossings(*shape, devices_per_node) for shape in shapes.tolist())


def _around_stages(plans: Plans) -> tuple[Counts, Counts]:
    """Return the distance between adjacent stages in ranks, and the number of blocks; (plans, 1)."""
    order, names = _axes(plans)
    axis, every = names.index("pp"), np.ones_like(plans.pipeline_parallel)
    before, behind = names[:axis], names[axis + 1 :]
    return (
        every * _product(order[name] for name in before),
        every * _product(order[name] for name in behind),
    )


@lru_cache(maxsize=65_536)
def _crossings(stride: int, stages: int, blocks: int, devices_per_node: int) -> Integers:
    devices = int(ranks_per_domain(constant(stride * stages * blocks), devices_per_node).item())
    distinct = devices // math.gcd(stride * stages, devices)
    first = np.arange(min(blocks, distinct)) * stride * stages
    ranks = first + np.arange(stages)[:, None, None] * stride + np.arange(stride)[:, None]
    nodes = (ranks // devices).reshape(stages, -1)
    leaves: Integers = (nodes != np.roll(nodes, -1, axis=0)).any(axis=1).astype(np.intp)
    leaves.flags.writeable = False  # kept
    return leaves


def _product(values: Iterable[Counts]) -> Counts:
    """Return the product of degrees, 1 for none: an axis that comes first in the order has stride 1."""
    result = ONE
    for value in values:
        result = result * value
    return result
