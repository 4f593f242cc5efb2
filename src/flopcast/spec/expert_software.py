"""Settings of a stack for experts: the exchange of tokens, and the work that overlaps with it.

Answers: which library exchanges tokens, and which work overlaps with the exchanges?
Elsewhere: the layer (layers/experts.py), how the stack changes its items (workload/expert_items.py,
workload/exchange_overlap.py), how fast libraries are (cost/collectives, tiers of clusters).
"""

from collections.abc import Collection
from typing import Literal

from flopcast.strict_model import StrictModel

Library = Literal["all_to_all", "deepep", "hybridep"]

# Kernels of the router, and of what prepares an exchange, in a forward pass; DeepEP and HybridEP prepare
# theirs in one, which leaves 17 of 31: docs/discussions/deepseek-v3-gb200-optimization of
# NVIDIA/Megatron-LM, sections 2.1.4 and 2.2.1. They are DeepSeek-V3's. Without fused kernels, a router
# without limits of groups makes 9 calls fewer, and one of a softmax without a bias 6, by the code of
# topk_routing_with_score_function and group_limited_topk in megatron/core/transformer/moe/moe_utils.py.
ROUTER_KERNELS = {"stated": 0, "fused": 31, "eager": 72}
PREPARED_IN_ONE = 31 - 17
EAGER_KERNELS_OF = {"group_limit": 9, "selection_bias": 6}  # parts of DeepSeek-V3's router


class ExpertSoftware(StrictModel):
    """How a training framework runs mixtures of experts. These settings have no effect on dense models.

    Attributes
    ----------
    dispatcher : str
        Library that sends tokens to experts. "all_to_all" is NCCL's all-to-all: tokens are sorted by expert
        before they are sent, and a token for several experts of one rank is sent several times. The kernels
        of "deepep" and "hybridep" need no sorted copy, send a token only once to each rank, and add up the
        results of its experts.
    exchange_overlap : str
        What overlaps with the all-to-all of tokens. "none": each layer waits for its all-to-alls.
        "other_micro_batch": the all-to-alls of a forward pass overlap with the backward pass of another
        micro-batch, and vice versa (Megatron-Core's `overlap_moe_expert_parallel_comm`). Full recompute
        does not support this. "unless_full_recompute": "none" under full recompute, otherwise
        "other_micro_batch".
    waits_for_counts : bool
        Whether the host waits for the number of tokens of each expert before it launches an all-to-all.
        This is necessary if no token is dropped and the number of tokens of an expert is not padded
        (Megatron-Core's `cuda_sync_point`).
    router_kernels : str
        Which small kernels run between the router's GEMM and the all-to-all. "stated": only those that the
        model's router defines. "fused" and "eager": in addition, those of Megatron-Core with and without
        `moe_router_fusion`.
    router_in_16_bits : bool
        Whether the router's GEMM reads 16-bit operands even if the scores of the router are fp32.
    one_hot_masks : bool
        Whether experts with a padded capacity receive and return tokens by products with one-hot masks
        (GShard, MaxText's `dense_matmul`) instead of by permutations.
    checks_every_expert : bool
        Whether the kernels that permute tokens around an all-to-all check every expert of the layer for
        each token, instead of only the experts that the token chose (the fused kernels of Transformer
        Engine before July 2025).
    """

    dispatcher: Library = "all_to_all"
    exchange_overlap: Literal["none", "other_micro_batch", "unless_full_recompute"] = "none"
    waits_for_counts: bool = False
    router_kernels: Literal["stated", "fused", "eager"] = "stated"
    router_in_16_bits: bool = False
    one_hot_masks: bool = False
    checks_every_expert: bool = False

    @property
    def sends_every_row(self) -> bool:
        """Return whether rows are permuted before they are sent, including several copies to one rank."""
        return self.dispatcher == "all_to_all"

    def forward_router_kernels(self, parts: Collection[str]) -> int:
        """Return the number of kernels of a router with these parts in a forward pass."""
        kernels = ROUTER_KERNELS[self.router_kernels]
        if not kernels:
            return 0
        if self.router_kernels == "eager":
            kernels -= sum(number for part, number in EAGER_KERNELS_OF.items() if part not in parts)
        return kernels if self.sends_every_row else kernels - PREPARED_IN_ONE

    @property
    def counts_after_dispatch(self) -> bool:
        """Return whether the host reads the number of rows after the dispatch instead of before it."""
        return self.dispatcher == "hybridep"

    @property
    def looks_up_experts(self) -> bool:
        """Return whether its local permutation checks every local expert for each token (HybridEP)."""
        return self.dispatcher == "hybridep"

    def overlaps_exchanges(self, recompute: str) -> bool:
        """Return whether all-to-alls overlap with another micro-batch under this `recompute` of a plan."""
        if self.exchange_overlap == "unless_full_recompute":
            return recompute != "full"
        return self.exchange_overlap == "other_micro_batch"
