"""Generations of attention kernels: faster implementations of the same GEMMs on the same device.

Answers: how much longer does the kernel of a stack take than the kernel of a curve, and which kernel trains
heads that cuDNN does not support?
Elsewhere: the kernel of a stack (spec/stack.py), the curves (curve_book.py). A curve belongs to one kernel.
The time of another generation follows from the ratio of both kernels, which their papers measured on one
device.
"""

from collections.abc import Iterable

import numpy as np

from flopcast.cost.kernels.classes import class_of
from flopcast.operators.flash_attention import FlashAttention
from flopcast.records import Record
from flopcast.spec.cluster import Device
from flopcast.spec.stack import Stack

NEWEST = "newest"
FLASH_2_OR_CUDNN = "flash-2-or-cudnn"  # of a stack: FlashAttention-2, but cuDNN's kernel on Blackwell

# On Blackwell, cuDNN computes no gradient of heads with more elements, if queries and values have heads of
# equal size. Source: nvte_get_fused_attn_backend in transformer_engine/common/fused_attn/fused_attn.cpp
# (NVIDIA/TransformerEngine, pull request 1504). cuDNN still lacks heads of 192 in May 2026 (issue 242 of
# NVIDIA/cudnn-frontend), and has had heads of 256 since version 9.23 (pull request 3056 of
# NVIDIA/TransformerEngine, merged in July 2026), which no stack of the catalogue contains.
LARGEST_HEAD = 128


class Generation(Record):
    """Times divided by those of FlashAttention-2 on the same device, and the sigma of their logarithm.

    A ratio below 1 means a faster kernel. Forward and backward pass have separate ratios, as in the papers.
    """

    forward_time_ratio: float
    backward_time_ratio: float
    log_sigma_factor: float


# Means are geometric; sigmas take a printed range as the middle 90 %.
GENERATIONS: dict[str, Generation] = {
    # arXiv:2307.08691, section 4.1: version 2 is 1.3 to 1.5 times as fast forward and about twice as fast
    # backward as the first one in Triton (both passes, section 4: 1.3 to 2.5), about twice as the first in
    # CUDA (1.7 to 3.0)
    "triton": Generation(forward_time_ratio=1.40, backward_time_ratio=2.0, log_sigma_factor=0.15),
    "flash-1": Generation(forward_time_ratio=2.0, backward_time_ratio=2.0, log_sigma_factor=0.17),
    "flash-2": Generation(forward_time_ratio=1.0, backward_time_ratio=1.0, log_sigma_factor=0.0),
    # arXiv:2407.08608, section 4.1: on H100, 1.5 to 2.0 times as fast as version 2 forward, 1.5 to 1.75
    # backward
    "flash-3": Generation(forward_time_ratio=1 / 1.73, backward_time_ratio=1 / 1.62, log_sigma_factor=0.09),
    # Version 2 uses instructions of Ampere, which Blackwell runs at Hopper's speed: on B200, it reaches 352
    # to 362 TFLOP/s forward (2,048 to 8,192 tokens, heads of 128: meta-pytorch/tritonbench, pull request
    # 171) and 302 to 329 TFLOP/s backward (heads of 64: Dao-AILab/flash-attention, issue 1589). The curves
    # of B200 give 766 to 1,214 and 888 to 923 TFLOP/s for these shapes.
    "blackwell": Generation(forward_time_ratio=1 / 2.8, backward_time_ratio=1 / 2.9, log_sigma_factor=0.16),
}

# Owner of curves of attention → the kernel that was measured: data/README.md (flash-attn 2.5 on Perlmutter
# and Vista), column kernel_source of data/peers/aiconfigurator. What InferSim ran on H20 and H800
# (FlashAttention 3) and AMD's assembly kernels (op_tests/cpp/mha in ROCm/aiter) count as the third. Splash
# attention on TPU counts as the second, and no stack of TPU runs another kernel.
MEASURED: dict[str, str] = {
    **dict.fromkeys(
        ("a100-sxm4-80gb", "gh200-96gb", "l40s-48gb", "rtx-pro-6000-96gb", "arc-pro-b60-24gb"), "flash-2"
    ),
    "tpu-v5p-95gb": "flash-2",
    **dict.fromkeys(("h100-sxm5-80gb", "h200-sxm-141gb", "h20-96gb", "h800-sxm-80gb"), "flash-3"),
    **dict.fromkeys(
        ("b200-sxm-180gb", "b200-simumax-180gb", "b300-sxm-288gb", "gb200-192gb", "gb300-288gb"),
        "blackwell",
    ),
    **dict.fromkeys(("mi300x-192gb", "mi355x-288gb"), "flash-3"),
}


def stack_that_runs(stack: Stack, device: Device, works: Iterable[object]) -> Stack:
    """Return the stack with FlashAttention-2 if cuDNN cannot train the heads of these operators.

    This happens on Blackwell. If cuDNN has no kernel for the gradient, Transformer Engine selects
    FlashAttention-2 for the forward pass too, which supports heads of up to 256 elements
    (get_attention_backend in transformer_engine/pytorch/attention/dot_product_attention/utils.py).
    """
    runs = stack.attention_generation in (NEWEST, FLASH_2_OR_CUDNN)
    if not runs or MEASURED.get(device.curves or device.name) != "blackwell":
        return stack
    trained = (work for work in works if isinstance(work, FlashAttention) and work.is_gradient)
    if any(work.value_head_size is None and np.max(work.head_size) > LARGEST_HEAD for work in trained):
        return stack.model_copy(update={"attention_generation": "flash-2"})
    return stack


def kernel_that_runs(stated: str, owner: str) -> str:
    """Return the generation, a key of GENERATIONS, that a stack runs on the device of a curve.

    PyTorch and Transformer Engine select cuDNN's kernel on Blackwell (pytorch/torchtitan, pull request
    1196).

    >>> [kernel_that_runs("flash-2-or-cudnn", owner) for owner in ("h100-sxm5-80gb", "b200-sxm-180gb")]
    ['flash-2', 'newest']
    """
    if stated != FLASH_2_OR_CUDNN:
        return stated
    return NEWEST if MEASURED.get(owner) == "blackwell" else "flash-2"


def generation_ratio(runs: str, curve: str, owner: str) -> tuple[float, float]:
    """Return the time of the stack's kernel divided by that of the measured one, and its log sigma.

    Parameters
    ----------
    runs : the stack's `attention_generation`; "newest" is the kernel of the curve
    curve, owner : class and device of the curve that prices the kernel

    Returns
    -------
    tuple of float
        (1, 0) for classes other than fused attention, and if the kernel of the stack was measured.

    Examples
    --------
    >>> generation_ratio("triton", "flash_attention.backward", "a100-sxm4-80gb")
    (2.0, 0.15)
    >>> round(generation_ratio("flash-2", "flash_attention", "h100-sxm5-80gb")[0], 2)
    1.73
    >>> generation_ratio("triton", "gemm", "a100-sxm4-80gb")
    (1.0, 0.0)
    """
    runs, measured = kernel_that_runs(runs, owner), MEASURED.get(owner, "flash-2")
    if runs in (NEWEST, measured) or not class_of(curve).base.is_fused_attention:
        return 1.0, 0.0
    mine, theirs = GENERATIONS[runs], GENERATIONS[measured]
    sigma = float(np.hypot(mine.log_sigma_factor, theirs.log_sigma_factor))
    if curve.endswith(".backward"):
        return mine.backward_time_ratio / theirs.backward_time_ratio, sigma
    return mine.forward_time_ratio / theirs.forward_time_ratio, sigma
