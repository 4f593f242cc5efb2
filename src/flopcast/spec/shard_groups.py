"""Ranks and axes of the groups that share each kind of state.

Answers: how many ranks share parameters, gradients or optimizer states, and along which axis are their
messages sent?
Elsewhere: how groups are written (shards.py), where the ranks of an axis are (cost/placement.py).

Replicas are numbered so that neighbours share states. The group of optimizer states is the largest: it
consists of whole groups of every other kind. If a plan names no groups, all kinds have the same group
(`data_shard` ranks, or all) and the same two axes: "dp_shard" within a group, and "dp_replicate" across
groups. Otherwise, "dp_KIND" is the axis within the group of a kind, and "dp_KIND_apart" is the axis of the
ranks of an optimizer group that hold the same shard of this kind.
"""

import numpy as np

from flopcast.dtypes import Counts, any_of
from flopcast.spec.plan import Plans
from flopcast.spec.shards import KINDS, group_of

APART = "_apart"
LEVEL_AXES = tuple(f"dp_{kind}{end}" for kind in KINDS for end in ("", APART))


def ranks_of(plans: Plans, kind: str) -> Counts:
    """Return the number of ranks that shard a kind of state, context-parallel ranks included, (plans, 1).

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> plans = one_plan(Plan(dp=16, zero=3, shards="parameters:2"))
    >>> ranks_of(plans, "parameters").item(), ranks_of(plans, "gradients").item()
    (2.0, 16.0)
    """
    group = group_of(plans.structure.shards, kind)
    if group is None:
        size, whole = plans.data_shard, plans.data_parallel
        whole = np.where(size > 0, size, whole) if any_of(size) else whole
    else:
        whole = np.full_like(plans.data_parallel, group.ranks) if group.ranks else plans.data_parallel
    return np.asarray(whole * plans.context_parallel)


def axis_of(plans: Plans, kind: str, axis: str = "dp") -> str:
    """Return the axis of the ranks that share a kind of state; `axis` is "dp" or "expert_dp"."""
    return f"dp_{kind}" if plans.structure.shards else f"{axis}_shard"


def level_of(axis: str) -> tuple[str, bool]:
    """Return the kind of state of one of LEVEL_AXES, and whether the ranks of the axis hold the same shard.

    >>> level_of("dp_gradients_apart")
    ('gradients', True)
    """
    return axis.removeprefix("dp_").removesuffix(APART), axis.endswith(APART)


def ranks_on(plans: Plans, axis: str) -> Counts:
    """Return the number of ranks on one of LEVEL_AXES, (plans, 1).

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> plans = one_plan(Plan(dp=16, zero=3, shards="gradients:8"))
    >>> ranks_on(plans, "dp_gradients").item(), ranks_on(plans, "dp_gradients_apart").item()
    (8.0, 2.0)
    """
    kind, apart = level_of(axis)
    within = ranks_of(plans, kind)
    return np.asarray(plans.state_shards / within if apart else within)
