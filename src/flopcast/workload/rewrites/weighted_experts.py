"""Rows of experts weighed inside their activation, not when they are back home.

Megatron-Core does so since its experts take the router's probabilities (`permuted_probs` of
megatron/core/transformer/moe/experts.py, core v0.12). The output of experts is then no longer kept: what
the gradients of the weights need, the input of the activation, is kept anyway.
"""

from flopcast.workload.rewrites.base import Items, change_kind


def weighted_experts(items: Items) -> Items:
    """`unpermute` → `unpermute_sum`: rows are added at home, weighed before, by a number a row."""
    return change_kind(items, "unpermute", "unpermute_sum")
