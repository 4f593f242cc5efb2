"""Norms in kernels that read and write each element once (Apex, Transformer Engine, compiled chains)."""

from flopcast.workload.rewrites.base import Items, change_kind


def fused_layernorm(items: Items) -> Items:
    """Replace PyTorch's norms by fused norms, which move the same bytes but have another efficiency curve.

    References
    ----------
    Transformer Engine, transformer_engine/common/normalization: LayerNorm and RMSNorm share their kernels.
    """
    layers = change_kind(items, "layernorm", "fused_layernorm")
    return change_kind(layers, "rmsnorm", "fused_rmsnorm")
