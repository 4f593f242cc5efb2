"""Gradients of attention with a window that go over all pairs: cuDNN's in 8 bits.

References
----------
benchmark/sdpa_benchmark_training of NVIDIA/cudnn-frontend on GB300, four sequences of 4096 tokens, 64
heads of 64, a window of 128: backward 1.88 ms under MXFP8, four times as long at twice the length, 0.44 in
bf16; forward 0.18 and 0.19 ms.
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
