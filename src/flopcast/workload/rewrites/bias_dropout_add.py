"""Bias, dropout and residual sum in one kernel (Megatron-LM's JIT-fused `bias_dropout_add`)."""

from flopcast.workload.rewrites.base import Items, fuse_runs


def bias_dropout_add(items: Items) -> Items:
    """Replace `bias_add, dropout, residual_add` by one kernel; without dropout, `bias_add, residual_add`.

    The kernel reads the partial result and the residual, writes one tensor and one byte of mask for each
    element, and keeps only the mask.
    """
    items = fuse_runs(items, ("bias_add", "dropout", "residual_add"), "bias_dropout_add")
    return fuse_runs(items, ("bias_add", "residual_add"), "bias_add_residual")
