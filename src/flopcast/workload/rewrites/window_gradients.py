"""Gradients of attention that ignore the window and compute all causal pairs, as cuDNN does in 8 bits.

References
----------
benchmark/sdpa_benchmark_training of NVIDIA/cudnn-frontend on GB300, four sequences of 4096 tokens, 64
heads of 64, a window of 128: the backward pass takes 1.88 ms under MXFP8 (four times as long at twice the
length) and 0.44 ms in bf16; the forward pass takes 0.18 and 0.19 ms.
"""

from flopcast.operators.flash_attention import FlashAttention
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items


def whole_window_gradients(items: Items) -> Items:
    """In the backward pass of a kernel with a window, skip only the pairs that a causal mask hides."""
    return tuple(
        replace(item, work=replace(item.work, gradient_skips=False))
        if isinstance(item.work, FlashAttention) and item.work.mean_keys is not None
        else item
        for item in items
    )
