"""Settings of a stack for experts: the exchange of tokens, and the work that overlaps with it.

Answers: which library exchanges tokens, and which work overlaps with the exchanges?
Elsewhere: the layer (layers/experts.py), how the stack changes its items (workload/expert_items.py,
workload/exchange_overlap.py), how fast libraries are (cost/collectives, tiers of clusters).
"""

from collections.abc import Collection
from typing import Literal

from pydantic import Field

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
    """The settings of a stack for experts; without effect on models without any.

    Attributes
    ----------
    dispatcher : str
        "all_to_all": rows are brought into the order of experts at home, and every row travels in NCCL's
        all-to-all, a token's copies for one rank too; "deepep" and "hybridep": those libraries' kernels
        read tokens where they lie, send one copy to each rank, and add up what comes back.
    exchange_overlap : str
        "none": a layer waits for its exchanges. "other_micro_batch": they run beside kernels of another
        micro-batch's opposite pass (`overlap_moe_expert_parallel_comm` of Megatron-Core).
    waits_for_counts : bool
        Whether the host reads back how many tokens each expert gets before it launches an exchange, as it
        must where no token is dropped and sizes are not padded (`cuda_sync_point` of Megatron-Core).
    router_kernels : str
        "stated": those of the model's router; "fused", "eager": also the small passes that Megatron-Core
        runs between the router's product and the exchange, with and without its fused kernels
        (`moe_router_fusion`).
    router_in_16_bits : bool
        Whether the product of a router whose scores are fp32 has 16-bit operands.
    """

    dispatcher: Library = Field(default="all_to_all", description="what carries tokens to experts")
    exchange_overlap: Literal["none", "other_micro_batch"] = Field(
        default="none", description="what exchanges run beside"
    )
    waits_for_counts: bool = Field(default=False, description="the host stops before each exchange")
    router_kernels: Literal["stated", "fused", "eager"] = Field(
        default="stated", description="small kernels between a router's product and the exchange"
    )
    router_in_16_bits: bool = Field(default=False, description="operands of a router with fp32 scores")

    @property
    def sends_every_row(self) -> bool:
        """Return whether rows are ordered at home and all of them travel, copies for one rank too."""
        return self.dispatcher == "all_to_all"

    def forward_router_kernels(self, parts: Collection[str]) -> int:
        """Return the kernels of a router with these parts in a forward pass; 0: those that it states."""
        kernels = ROUTER_KERNELS[self.router_kernels]
        if not kernels:
            return 0
        if self.router_kernels == "eager":
            kernels -= sum(number for part, number in EAGER_KERNELS_OF.items() if part not in parts)
        return kernels if self.sends_every_row else kernels - PREPARED_IN_ONE

    @property
    def counts_after_dispatch(self) -> bool:
        """Return whether the host reads back the number of rows after its dispatch, not before."""
        return self.dispatcher == "hybridep"

    @property
    def overlaps_exchanges(self) -> bool:
        """Return whether exchanges run beside another micro-batch's work."""
        return self.exchange_overlap == "other_micro_batch"
