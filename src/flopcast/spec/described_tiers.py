"""The memory outside the devices that a cluster describes, by the names that plans and checkpoints use.

Answers: which memory of a cluster do "host", "nvme", "peer", "file_system" and "object_store" name?
Elsewhere: the properties of the memory (memory_tiers.py), what is stored there (offload.py,
checkpoints.py).
"""

from flopcast.spec.cluster import Cluster
from flopcast.spec.memory_tiers import HostMemory, Storage

FIELDS = {
    "host": "cluster.groups[0].node.memory",
    "nvme": "cluster.groups[0].node.nvme",
    "peer": "cluster.groups[0].node.peer",
    "file_system": "cluster.file_system",
    "object_store": "cluster.object_store",
}  # that describe the memory of a name


def storage_of(cluster: Cluster, name: str) -> Storage | None:
    """Return drives, peers, file system or object store; None for other names, or if not described."""
    stores = {
        "file_system": cluster.file_system,
        "object_store": cluster.object_store,
        "nvme": cluster.node.nvme,
        "peer": cluster.node.peer,
    }
    return stores.get(name)


def tier_of(cluster: Cluster, name: str) -> HostMemory | Storage | None:
    """Return the memory of a name; None if the cluster does not describe it."""
    return cluster.node.memory if name == "host" else storage_of(cluster, name)
