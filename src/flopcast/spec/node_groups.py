"""Groups of nodes with different devices, hosts or networks: which ranks run on each group.

Answers: on which group does each stage of each replica run, and which devices and networks does it have?
Elsewhere: the description of groups (cluster.py), which groups a plan can use (rules_node_groups.py), the
time of a stage on its group (cost/part_prices.py).

Ranks fill the groups in the order in which the cluster lists them.
"""

import numpy as np

from flopcast.dtypes import Integers
from flopcast.spec.cluster import Cluster, NodeGroup
from flopcast.spec.plan import Plan, Plans

AXES = {  # of a rank order → the degree
    "tp": "tensor_parallel", "cp": "context_parallel", "dp": "data_parallel", "pp": "pipeline_parallel",
}  # fmt: skip


def degrees(plan: Plan) -> dict[str, int]:
    """Return the number of ranks along each axis, in the plan's rank order, the fastest first.

    The axes of experts are not included, because they divide the ranks of a stage differently.
    """
    return {name: getattr(plan, AXES[name]) for name in plan.rank_order.split("-")}


def place_of_ranks(plan: Plan) -> Integers:
    """Return replica · stages + stage of every rank, in the plan's rank order, (ranks,).

    Replicas are numbered one peer after the other.

    >>> place_of_ranks(Plan(tp=2, dp=2, pp=2, gbs=2)).tolist()
    [0, 0, 2, 2, 1, 1, 3, 3]
    """
    rest, digit = np.arange(plan.devices), {}
    for name, size in degrees(plan).items():
        rest, digit[name] = np.divmod(rest, size)
    replica = rest * plan.data_parallel + digit["dp"]
    places: Integers = replica * plan.pipeline_parallel + digit["pp"]
    return places


def first_plan(plans: Plans) -> Plan:
    """Return the first plan of a batch, with the degrees that determine where ranks run."""
    sizes = {name: int(getattr(plans, name)[0, 0]) for name in AXES.values()}
    return plans.structure.model_copy(update=sizes)


def group_of_ranks(ranks: int, cluster: Cluster) -> Integers:
    """Return the group of nodes on which each rank runs, (ranks,)."""
    each = [group.count * group.node.devices for group in cluster.groups]
    groups: Integers = np.repeat(np.arange(len(each)), each)[:ranks]
    return groups


def groups_of_stages(plan: Plan, cluster: Cluster) -> list[set[int]]:
    """Return the groups of nodes on which each stage runs, over all replicas."""
    place, group = place_of_ranks(plan), group_of_ranks(plan.devices, cluster)
    stage = place % plan.pipeline_parallel
    return [set(group[stage == each].tolist()) for each in range(plan.pipeline_parallel)]


def replicas_of_groups(plan: Plan, cluster: Cluster) -> list[int] | None:
    """Return the number of replicas of all peers on each group; None if a replica is on several groups.

    Parameters
    ----------
    plan : Plan
    cluster : Cluster
        Ranks fill its groups in the listed order.

    Returns
    -------
    list of int or None
        None also if the plan uses more or fewer devices than the cluster has.
    """
    if plan.devices != cluster.num_devices:
        return None
    replica = place_of_ranks(plan) // plan.pipeline_parallel
    group = group_of_ranks(plan.devices, cluster)
    pairs = np.unique(np.stack([replica, group]), axis=1)
    if pairs.shape[1] != plan.peers * plan.data_parallel:
        return None
    return [int((pairs[1] == each).sum()) for each in range(len(cluster.groups))]


def whole_places(plan: Plan, cluster: Cluster) -> bool:
    """Return whether each stage of each replica lies inside one group."""
    place, group = place_of_ranks(plan), group_of_ranks(plan.devices, cluster)
    pairs = np.unique(np.stack([place, group]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(place)))


def as_cluster(cluster: Cluster, group: NodeGroup, *, inside: bool = True) -> Cluster:
    """Return the cluster as ranks of one group use it: the devices and tiers of the group, and the tier to
    other groups.

    It has as many nodes as all groups together, because the slowest of all devices determines the time.

    Parameters
    ----------
    inside : whether messages stay inside the group; otherwise those that leave a scale-up domain use the
        tier that joins all groups
    """
    tiers = cluster.tiers
    if group.tiers:
        described = cluster.model_copy(
            update={"groups": (group,), "tiers": (*group.tiers, cluster.tiers[-1])}
        )
        ends = group.count * group.node.devices if inside else described.scale_up_devices
        own = [
            tier
            if place <= described.inner_tiers
            else tier.model_copy(update={"devices": min(tier.devices or ends, ends)})
            for place, tier in enumerate(group.tiers)
        ]
        tiers = (*own, cluster.tiers[-1])
    whole = group.model_copy(update={"count": sum(each.count for each in cluster.groups)})
    return cluster.model_copy(update={"groups": (whole,), "tiers": tiers})


def least_memory_bytes(plan: Plan, cluster: Cluster) -> list[float]:
    """Return the memory of the smallest device that each stage runs on, (stages,)."""
    memory_bytes = [group.node.device.memory_bytes for group in cluster.groups]
    return [min(memory_bytes[each] for each in groups) for groups in groups_of_stages(plan, cluster)]
