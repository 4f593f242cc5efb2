"""Clusters and states for tests of checkpoints."""

import numpy as np

from flopcast.library import catalog
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.workload.saved_states import SavedStates

STORE = Storage(capacity_bytes=1e16, read_bytes_per_s=400e9, write_bytes_per_s=200e9, node_bytes_per_s=10e9)


def cluster_with(nodes=2, devices=4, host_bytes_per_s=25e9, **changes):
    """A cluster of A100 with described memories; `changes` are fields of it."""
    base = catalog.cluster("dgx-a100")
    group = base.groups[0]
    device = catalog.device("a100-sxm4-40gb").model_copy(update={"host_bytes_per_s": host_bytes_per_s})
    parts = {
        "device": device,
        "devices": devices,
        "memory": HostMemory(capacity_bytes=512e9, bytes_per_s=400e9),
        "nvme": STORE.model_copy(update={"write_bytes_per_s": 4e9, "node_bytes_per_s": None}),
    }
    node = group.node.model_copy(update=parts)
    return base.model_copy(
        update={
            "groups": (group.model_copy(update={"node": node, "nodes": nodes}),),
            "file_system": STORE,
            **changes,
        }
    )


def even_states(total_bytes, nodes=2, devices=4, num_files=None):
    """A checkpoint that all ranks write in equal parts, and read so."""
    ranks = nodes * devices
    each = np.full(ranks, total_bytes / ranks)
    return SavedStates(
        written_bytes=each,
        copied_bytes=each,
        read_bytes=each,
        node_ranks=devices,
        num_files=num_files or ranks,
    )
