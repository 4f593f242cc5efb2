"""Root-mean-square norm as a chain of framework kernels: norm, scale, divide, multiply (GPT-NeoX).

Each kernel reads and writes the whole tensor. One of the intermediate tensors is also kept.
"""

from flopcast.workload.rewrites.base import Items, change_kind


def unfused_rmsnorm(items: Items) -> Items:
    """Replace `rmsnorm` by `unfused_rmsnorm`: five passes forward, twenty-seven backward."""
    return change_kind(items, "rmsnorm", "unfused_rmsnorm")
