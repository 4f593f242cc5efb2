"""The rewrites that a stack may name: one file and one line each.

A stack lists them in the order in which they apply. A rewrite changes nothing if a layer does not have its
pattern, or if an earlier rewrite has replaced the pattern. `Programs.accounting` lists the rewrites that
changed something.
"""

from flopcast.workload.rewrites.autocast import autocast
from flopcast.workload.rewrites.base import Rewrite
from flopcast.workload.rewrites.bias_dropout_add import bias_dropout_add
from flopcast.workload.rewrites.bias_gelu import bias_gelu
from flopcast.workload.rewrites.compiled_graph import compiled_graph
from flopcast.workload.rewrites.convolution_epilogues import convolution_epilogues
from flopcast.workload.rewrites.eager import (
    unfused_dense_gate,
    unfused_gate,
    unfused_gelu,
    unfused_relu2,
    wide_long_softmax,
    wide_rmsnorm,
    wide_scaled_rmsnorm,
    wide_softmax,
)
from flopcast.workload.rewrites.epilogue_bias import epilogue_bias
from flopcast.workload.rewrites.flash_attention import flash_attention
from flopcast.workload.rewrites.fp32_adapters import fp32_adapters
from flopcast.workload.rewrites.fused_experts import fused_experts
from flopcast.workload.rewrites.fused_norm import fused_layernorm
from flopcast.workload.rewrites.fused_softmax import fused_softmax
from flopcast.workload.rewrites.fused_softmax_dropout import fused_softmax_dropout
from flopcast.workload.rewrites.gathered_copies import gathered_copies
from flopcast.workload.rewrites.layout_copies import layout_copies
from flopcast.workload.rewrites.linear_bias import linear_bias
from flopcast.workload.rewrites.loss_metrics import loss_metrics
from flopcast.workload.rewrites.separate_experts import separate_experts
from flopcast.workload.rewrites.separate_projections import compiled_projections, separate_projections
from flopcast.workload.rewrites.shared_expert_overlap import shared_expert_overlap
from flopcast.workload.rewrites.unfused_norm import unfused_rmsnorm
from flopcast.workload.rewrites.unfused_rope import unfused_rope, unfused_scaled_rope
from flopcast.workload.rewrites.weighted_experts import (
    chunked_gate,
    weighted_experts,
    weighted_joined_experts,
)
from flopcast.workload.rewrites.window_gradients import whole_window_gradients

# may lower the FLOP: what a mask hides is not computed
SKIPS_WORK: tuple[Rewrite, ...] = (flash_attention,)
REWRITES: dict[str, Rewrite] = {
    "flash_attention": flash_attention,
    "fused_softmax": fused_softmax,
    "fused_softmax_dropout": fused_softmax_dropout,
    "fused_layernorm": fused_layernorm,
    "bias_gelu": bias_gelu,
    "bias_dropout_add": bias_dropout_add,
    "epilogue_bias": epilogue_bias,
    "linear_bias": linear_bias,
    "loss_metrics": loss_metrics,
    "unfused_rmsnorm": unfused_rmsnorm,
    "unfused_rope": unfused_rope,
    "unfused_scaled_rope": unfused_scaled_rope,
    "layout_copies": layout_copies,
    "shared_expert_overlap": shared_expert_overlap,
    "wide_rmsnorm": wide_rmsnorm,
    "wide_scaled_rmsnorm": wide_scaled_rmsnorm,
    "wide_softmax": wide_softmax,
    "wide_long_softmax": wide_long_softmax,
    "unfused_gate": unfused_gate,
    "unfused_dense_gate": unfused_dense_gate,
    "unfused_gelu": unfused_gelu,
    "unfused_relu2": unfused_relu2,
    "weighted_experts": weighted_experts,
    "weighted_joined_experts": weighted_joined_experts,
    "chunked_gate": chunked_gate,
    "separate_experts": separate_experts,
    "fused_experts": fused_experts,
    "whole_window_gradients": whole_window_gradients,
    "gathered_copies": gathered_copies,
    "separate_projections": separate_projections,
    "compiled_projections": compiled_projections,
    "compiled_graph": compiled_graph,
    "convolution_epilogues": convolution_epilogues,
    "fp32_adapters": fp32_adapters,
    "autocast": autocast,
}
