"""The host time of launching one item.

Answers: how long is the launching thread busy with an item, and which launches does a graph spare it?
Elsewhere: a stack's times (spec/stack.py, spec/expert_software.py), what a program makes of them
(timeline/program.py).
"""

import numpy as np

from flopcast.dtypes import Flags, Floats, constant
from flopcast.layers.router import PARTS as ROUTER_PARTS
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.quantise import Quantise
from flopcast.spec.stack import Stack

# A launch from the loop over experts, and what this loop does beside launches, both for one GEMM. A forward
# and a backward pass of 64 experts take 1.2 and 2.1 ms where each GEMM is one kernel
# (NVIDIA/TransformerEngine, issue 2897).
EXPERT_LAUNCH_S, EXPERT_CAST_S = 30e-6, 15e-6
EXPERT_LOOP_S = (1.2e-3 + 2.1e-3) / 64 / 6
# A single call without a module around it: 41 fewer of them took DeepSeek-V3 on GB200 from 529.6 to 540.0
# TFLOP/s: 15 us each on Grace (NVIDIA/Megatron-LM, docs/discussions/deepseek-v3-gb200-optimization).
SINGLE_CALL_S = 15e-6 * 0.38


def launch_seconds(item: Item, alone_s: Floats, stack: Stack) -> Floats:
    """Return the seconds of launching an item on a host of speed 1; 0 if the item takes no time.

    The shape is (1, 1) or that of `alone_s`. Forward and recomputed kernels are launched from Python,
    backward kernels by the framework's C++ code. Separate expert GEMMs are launched by the same loop over
    experts in every pass, in C++. Passes of a router are single calls without a module around them. The
    chunks of a tensor-parallel product or message are launched by one call (`split_overlap_ag` and
    `split_overlap_rs` in Transformer Engine's `common/comm_gemm_overlap`): the first costs what the whole
    would, the others what a single call does. So do the kernels that find the scale of a cast.

    References
    ----------
    NVIDIA/TransformerEngine, pull request 3134: eight cuBLAS GEMMs of 128 rows, launched by that loop,
    take 0.267 ms, which is 33 us each.
    """
    if graphed(item, stack.host.graphs):
        return constant(0.0)
    work = item.work
    if isinstance(work, GroupedMatmul) and work.separate:
        launches = _launches_of_an_expert(work)
        each_s = EXPERT_LAUNCH_S * launches + EXPERT_LOOP_S
        each_s += EXPERT_CAST_S * (launches - 1) * (work.cast_kernels - 1)
        launch_s: Floats = work.groups * each_s
    elif _is_one_call(item):
        launch_s = constant(min(SINGLE_CALL_S, stack.host.backward_item_s))
    elif item.phase not in ("forward", "recompute"):
        launch_s = constant(stack.host.backward_item_s)
    else:
        launch_s = constant(stack.host.forward_item_s)
    if isinstance(work, Quantise):
        launch_s = launch_s + SINGLE_CALL_S * (work.launches - 1)
    launched = alone_s > 0
    if launched.all():
        return launch_s
    where_s: Floats = np.where(launched, launch_s, 0.0)
    return where_s


def _is_one_call(item: Item) -> bool:
    """Return whether one call of the framework launches a kernel, without a module around it."""
    work = item.work
    return item.is_further_chunk or (isinstance(work, MemoryBound) and KINDS[work.kind].is_one_call)


def _launches_of_an_expert(work: GroupedMatmul) -> float:
    """Return the kernels of one expert: its GEMM and, in 8 or 4 bits, the cast of what no GEMM read before.

    Both gradient GEMMs read the same cast of the output's gradient.
    """
    return 2.0 if work.narrow and not work.is_weight_gradient else 1.0


def several_experts(item: Item) -> Flags:
    """Return where a rank holds several experts whose products are launched one after another.

    The product of a single expert is launched like any other. The shape is that of the item's groups.
    """
    work = item.work
    if isinstance(work, GroupedMatmul) and work.separate:
        several: Flags = work.groups > 1
        return several
    return np.zeros((1, 1), dtype=bool)


def launches_experts(item: Item) -> bool:
    """Return whether an item stands for one kernel for each expert, each launched by the host."""
    return isinstance(item.work, GroupedMatmul) and item.work.separate


def graphed(item: Item, graphs: tuple[str, ...]) -> bool:
    """Return whether an item is replayed as part of a CUDA graph, so that the host does not launch it.

    >>> from flopcast.operators.item import host_work
    >>> item = host_work("step", "step")
    >>> graphed(item, ("iteration",)), graphed(item, ("attention",))
    (True, False)
    """
    part, _, name = item.name.partition(".")
    return (
        "iteration" in graphs
        or ("attention" in graphs and part == "attention")
        or ("router" in graphs and part == "experts" and name.partition(".")[0] in ROUTER_PARTS)
    )
