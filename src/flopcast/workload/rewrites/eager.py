"""Kernels of eager PyTorch in place of fused ones, as in the models of Hugging Face transformers.

Answers: which chains of framework kernels compute a norm, a softmax, or a gated or plain activation, and
which tensors do they keep?
Elsewhere: the chains of GPT-NeoX (unfused_norm.py, unfused_rope.py).

Norms and softmax run in fp32 between two casts, so that they keep tensors of twice the bytes. The kernels
of every chain were counted in a trace of the model's code (docs/accuracy/traces.md).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.workload.rewrites.base import Items, change_kind

MOST_FUSED_KEYS = 2048


def wide_rmsnorm(items: Items) -> Items:
    """Replace `rmsnorm` by casts, square, mean, divide, scale, which keep fp32 input and 16-bit output."""
    return change_kind(items, "rmsnorm", "wide_rmsnorm")


def wide_scaled_rmsnorm(items: Items) -> Items:
    """Replace `rmsnorm` as `wide_rmsnorm` does, but scale before the last cast (Gemma, OLMo 2).

    Both kept tensors are fp32.
    """
    return change_kind(items, "rmsnorm", "wide_scaled_rmsnorm")


def wide_softmax(items: Items) -> Items:
    """Replace `softmax` of 16 bits by cast, softmax and cast, which keep the result in fp32.

    The softmax of a router stays one kernel, because its input is already in fp32.
    """
    return tuple(
        item
        if isinstance(item.work, MemoryBound) and ELEMENT_BYTES[item.work.dtype] > 2.0
        else change_kind((item,), "softmax", "wide_softmax")[0]
        for item in items
    )


def wide_long_softmax(items: Items) -> Items:
    """Replace `softmax` over more than 2048 keys as `wide_softmax` does.

    References
    ----------
    NVIDIA/Megatron-LM, v2.5, megatron/model/fused_softmax.py: the fused kernel takes at most 2048 keys.
    with `--apply-query-key-layer-scaling`, a default, the unfused path computes in fp32.
    """
    return tuple(
        wide_softmax((item,))[0]
        if isinstance(item.work, MemoryBound) and np.any(item.work.width > MOST_FUSED_KEYS)
        else item
        for item in items
    )


def unfused_gate(items: Items) -> Items:
    """Replace `swiglu` and `geglu` by activation and product, which keep the activated half.

    Clamps cost nothing.
    """
    for gate in ("swiglu", "geglu"):
        for kind in (gate, f"clamped_{gate}"):
            items = change_kind(items, kind, f"unfused_{gate}")
    return items


def unfused_dense_gate(items: Items) -> Items:
    """Replace gates as `unfused_gate` does, except the gates of experts, which stay one kernel with clamp.

    References
    ----------
    nemo_automodel/components/moe: `weighted_bias_swiglu_impl`, `quick_geglu_deepep`, both compiled; a dense
    MLP is F.silu of a product, times another.
    """
    made = {item.output for item in items if isinstance(item.work, GroupedMatmul)}
    return tuple(item if made.intersection(item.inputs) else unfused_gate((item,))[0] for item in items)


def unfused_gelu(items: Items) -> Items:
    """Replace `gelu` by elementwise kernels (transformers' "gelu_new"), which keep four tensors."""
    return change_kind(items, "gelu", "unfused_gelu")


def unfused_relu2(items: Items) -> Items:
    """Replace `relu2` by ReLU and power, which keep the output of ReLU for both of their gradients.

    References
    ----------
    NVIDIA/NeMo, nemo/collections/llm/fn/activation.py: `squared_relu` without `torch.jit.script`.
    """
    return change_kind(items, "relu2", "unfused_relu2")
