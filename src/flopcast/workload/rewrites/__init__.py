"""The rewrites that a stack may name: one file and one line each.

A stack lists them in the order in which they apply. A rewrite changes nothing if a layer does not have its
pattern, or if an earlier rewrite has replaced the pattern. `Programs.accounting` lists the rewrites that
changed something. The file of a rewrite is imported when the rewrite first runs, because a stack uses only
a few of them.
"""

from functools import cache
from importlib import import_module

from flopcast.workload.rewrites.base import Items, Rewrite

_FILES = {  # file → its rewrites
    "flash_attention": "flash_attention",
    "fused_softmax": "fused_softmax",
    "fused_softmax_dropout": "fused_softmax_dropout",
    "fused_norm": "fused_layernorm",
    "bias_gelu": "bias_gelu",
    "bias_dropout_add": "bias_dropout_add",
    "epilogue_bias": "epilogue_bias",
    "linear_bias": "linear_bias",
    "loss_metrics": "loss_metrics",
    "unfused_norm": "unfused_rmsnorm",
    "unfused_rope": "unfused_rope unfused_scaled_rope",
    "layout_copies": "layout_copies",
    "shared_expert_overlap": "shared_expert_overlap",
    "eager": "wide_rmsnorm wide_scaled_rmsnorm wide_softmax wide_long_softmax unfused_gate"
    " unfused_dense_gate unfused_gelu unfused_relu2",
    "weighted_experts": "weighted_experts weighted_joined_experts chunked_gate",
    "separate_experts": "separate_experts",
    "fused_experts": "fused_experts",
    "window_gradients": "whole_window_gradients",
    "gathered_copies": "gathered_copies",
    "separate_projections": "separate_projections compiled_projections",
    "compiled_graph": "compiled_graph",
    "convolution_epilogues": "convolution_epilogues",
    "fp32_adapters": "fp32_adapters",
    "autocast": "autocast",
}


def _imported_late(file: str, name: str) -> Rewrite:
    """Return a rewrite whose file is imported when it first runs."""

    @cache
    def found() -> Rewrite:
        rewrite: Rewrite = getattr(import_module(f"{__name__}.{file}"), name)
        return rewrite

    def rewrite(items: Items) -> Items:
        return found()(items)

    return rewrite


REWRITES: dict[str, Rewrite] = {
    name: _imported_late(file, name) for file, names in _FILES.items() for name in names.split()
}
# may lower the FLOP: what a mask hides is not computed
SKIPS_WORK: tuple[Rewrite, ...] = (REWRITES["flash_attention"],)
