"""The members of a group of ranks, one by one.

Answers: with which ranks does rank r share a collective along an axis?
Elsewhere: how many of these ranks share a node (placement.py, where a group is only a size and a stride).
Both modules follow the same rules, and tests compare their results.

A rank has a coordinate on each axis. The first axis of the plan's rank order varies fastest. For experts,
the ranks of a stage have other axes: rank = etp + ETP · (ep + EP · expert_dp).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

from flopcast.errors import InternalError
from flopcast.spec.node_groups import degrees
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.shard_groups import LEVEL_AXES, level_of, ranks_of

MEMBERS: dict[str, tuple[str, ...]] = {  # axis → the plan's axes along which its ranks differ
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("cp", "dp"),
    "model": ("tp", "pp"),
    "stage": ("tp", "cp", "dp"),
    "world": ("tp", "cp", "dp", "pp"),
}
# axis of experts → which of the places etp, ep, shard, group of shards differ
FOLDED: dict[str, tuple[int, ...]] = {
    "etp": (0,),
    "ep": (1,),
    "expert_dp": (2, 3),
    "expert_dp_shard": (2,),
    "expert_dp_replicate": (3,),
}
Place = dict[str, int]


def place_of(plan: Plan, rank: int) -> Place:
    """Return the coordinate of a rank on each axis.

    >>> place_of(Plan(tp=4, dp=2, pp=2, gbs=2), 13)
    {'tp': 1, 'cp': 0, 'dp': 1, 'pp': 1}
    """
    sizes = degrees(plan)
    return dict(zip(sizes, _digits(rank, list(sizes.values())), strict=True))


def rank_at(plan: Plan, place: Mapping[str, int]) -> int:
    """Return the rank at a coordinate; this inverts `place_of`."""
    rank, stride = 0, 1
    for name, size in degrees(plan).items():
        rank += place[name] * stride
        stride *= size
    return rank


def members(axis: str, plan: Plan, rank: int) -> tuple[int, ...]:
    """Return the ranks of the group of `rank` along an axis in increasing order, including itself.

    Parameters
    ----------
    axis : an axis of placement.axis_group, except "pp", whose messages connect two ranks

    Examples
    --------
    >>> members("dp", Plan(tp=4, dp=2, pp=2, gbs=2), 13), members("embedding", Plan(pp=4, gbs=4), 1)
    ((9, 13), (0, 3))
    """
    place = place_of(plan, rank)
    sizes = degrees(plan)
    if axis in FOLDED:
        return _folded(axis, plan, rank)
    if axis == "embedding":
        ends = sorted({0, plan.pipeline_parallel - 1})
        return tuple(sorted(rank_at(plan, place | {"pp": stage}) for stage in ends))
    if axis in LEVEL_AXES:
        return _sharers(axis, plan, place)
    if axis in ("dp_shard", "dp_replicate"):
        shard = int(ranks_of(one_plan(plan), "optimizer").item()) // plan.context_parallel
        group, inside = divmod(place["dp"], shard)
        near, far = range(group * shard, (group + 1) * shard), range(inside, sizes["dp"], shard)
        replicas = near if axis == "dp_shard" else far
        sharing: Iterable[int] = range(sizes["cp"]) if axis == "dp_shard" else (place["cp"],)
        return tuple(
            sorted(rank_at(plan, place | {"dp": dp, "cp": cp}) for dp, cp in product(replicas, sharing))
        )
    if axis not in MEMBERS:
        raise InternalError(f"no group along {axis!r}")
    varied = MEMBERS[axis]
    choices = product(*(range(sizes[name]) for name in varied))
    return tuple(sorted(rank_at(plan, place | dict(zip(varied, each, strict=True))) for each in choices))


def _sharers(axis: str, plan: Plan, place: Mapping[str, int]) -> tuple[int, ...]:
    """Return the members along one of LEVEL_AXES: neighbours that share states, or equal parts apart."""
    kind, apart = level_of(axis)
    plans = one_plan(plan)
    shared, owned = (
        int(ranks.item()) // plan.context_parallel for ranks in (ranks_of(plans, kind), plans.state_shards)
    )
    width, step = (owned, shared) if apart else (shared, 1)
    first = place["dp"] // width * width + (place["dp"] % shared if apart else 0)
    sharing = (place["cp"],) if apart else tuple(range(plan.context_parallel))
    replicas = range(first, place["dp"] // width * width + width, step)
    return tuple(
        sorted(rank_at(plan, {**place, "dp": dp, "cp": cp}) for dp, cp in product(replicas, sharing))
    )


def _folded(axis: str, plan: Plan, rank: int) -> tuple[int, ...]:
    """Return the members along an axis of experts, among the ranks of the stage."""
    stage = members("stage", plan, rank)
    plans = one_plan(plan)
    shards = int(plans.expert_state_shards.item())
    inner = (plan.expert_tensor_parallel, plan.expert_parallel, shards)
    sizes = (*inner, len(stage) // prod(inner))
    own = _digits(stage.index(rank), sizes)
    kept = [index for index in range(len(sizes)) if index not in FOLDED[axis]]
    return tuple(
        other
        for index, other in enumerate(stage)
        if all(_digits(index, sizes)[at] == own[at] for at in kept)
    )


def _digits(number: int, sizes: Sequence[int]) -> list[int]:
    """Return the digits of a number in mixed radix, the fastest first.

    >>> _digits(13, (4, 2, 2))
    [1, 1, 1]
    """
    found = []
    for size in sizes:
        number, digit = divmod(number, size)
        found.append(digit)
    return found
