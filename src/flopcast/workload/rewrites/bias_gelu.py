"""Bias and GELU in one kernel (Megatron-LM's and GPT-NeoX's `bias_gelu_fusion`)."""

from flopcast.workload.rewrites.base import Items, fuse_runs


def bias_gelu(items: Items) -> Items:
    """Replace `bias_add, gelu` by `bias_gelu`, which keeps its input. Its gradient adds the bias again."""
    return fuse_runs(items, ("bias_add", "gelu"), "bias_gelu")
