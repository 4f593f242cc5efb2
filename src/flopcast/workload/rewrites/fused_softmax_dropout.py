"""Mask, softmax and dropout of attention in one kernel (OneFlow's `fused_scale_tril_softmax_dropout`)."""

from flopcast.workload.rewrites.base import Items, fuse_runs


def fused_softmax_dropout(items: Items) -> Items:
    """Replace `mask_fill, softmax, dropout` by `softmax_dropout`, which keeps the softmax and the mask."""
    return fuse_runs(items, ("mask_fill", "softmax", "dropout"), "softmax_dropout")
