"""Mask and softmax in one kernel (Megatron-LM's scaled masked softmax; it also scales the scores)."""

from flopcast.workload.rewrites.base import Items, fuse_runs


def fused_softmax(items: Items) -> Items:
    """Replace `mask_fill, softmax` by `scaled_masked_softmax`, which keeps its output, as softmax does."""
    return fuse_runs(items, ("mask_fill", "softmax"), "scaled_masked_softmax")
