"""A cluster with another number of devices.

Answers: how does a cluster with this many devices look, and which numbers are possible?
Elsewhere: the sizes that a search tries (space.py), predictions on several sizes (scaled.py).
"""

from flopcast.errors import spec_error
from flopcast.fixes import set_to
from flopcast.spec.cluster import Cluster


def sized(cluster: Cluster, num_devices: int) -> Cluster:
    """Return the cluster with this many devices: whole nodes, or a part of one.

    Raises
    ------
    SpecError
        The cluster has several groups of nodes, or would use only a part of its last node.
    """
    (group, *others), per_node = cluster.groups, cluster.node.devices
    if num_devices == cluster.num_devices:
        return cluster
    if others or (num_devices > per_node and num_devices % per_node):
        allowed = f"a multiple of {per_node} (a node has {per_node} devices), or fewer than {per_node}"
        because = "jobs on several nodes use whole nodes"
        fix = set_to({"gpus": max(1, round(num_devices / per_node)) * per_node})
        raise spec_error("gpus", num_devices, allowed, because, fix)
    node = group.node.model_copy(update={"devices": min(num_devices, per_node)})
    group = group.model_copy(update={"node": node, "count": max(1, num_devices // per_node)})
    return cluster.model_copy(update={"groups": (group,)})
