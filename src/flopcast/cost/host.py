"""The host time of launching one item.

Answers: how long is the launching thread busy with an item, and which launches does a CUDA graph avoid?
Elsewhere: a stack's times (spec/stack.py, spec/expert_software.py), how they delay a program
(timeline/program.py).
"""

import numpy as np

from flopcast.dtypes import Flags, Floats, all_of, constant
from flopcast.layers.router import PARTS as ROUTER_PARTS
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.quantise import Quantise
from flopcast.spec.stack import Stack

# Host times of the loop that launches the GEMMs of experts one by one: of a launch, of each further kernel
# of a cast, and of all other work for one GEMM. In 16 bits, no operand is cast; the forward pass of 64
# experts (2 GEMMs each) then takes 1.2 ms, and the backward pass (4 GEMMs each) takes 2.1 ms
# (NVIDIA/TransformerEngine, issue 2897).
EXPERT_LAUNCH_S, EXPERT_CAST_S = 30e-6, 15e-6
EXPERT_LOOP_S = (1.2e-3 + 2.1e-3) / 64 / 6
# Host time of a function call that launches one kernel and does not belong to a module. Removing 41 such
# calls from the layers of DeepSeek-V3 raised its rate on GB200 from 529.6 to 540.0 TFLOP/s, which is 15 us
# for each call on Grace (NVIDIA/Megatron-LM, docs/discussions/deepseek-v3-gb200-optimization); the speed of
# Grace is 0.38 of that of the reference host.
SINGLE_CALL_S = 15e-6 * 0.38


def launch_seconds(item: Item, alone_s: Floats, stack: Stack) -> Floats:
    """Return the seconds in which a host of speed 1 launches an item; 0 if the item takes no time.

    The shape is (1, 1) or that of `alone_s`. Python launches forward and recomputed kernels, and C++ code
    of the framework launches backward kernels. If each expert has its own GEMM, a loop in C++ launches
    these GEMMs in every pass. Each kernel of a router takes the time of a single call (`SINGLE_CALL_S`).
    One call launches all chunks of a tensor-parallel product or message (`split_overlap_ag` and
    `split_overlap_rs` in Transformer Engine's `common/comm_gemm_overlap`): the first chunk takes as long as
    an undivided product, and each further chunk as long as a single call. Each kernel that computes the
    scale of a cast also takes as long as a single call.

    References
    ----------
    NVIDIA/TransformerEngine, pull request 3134: eight cuBLAS GEMMs of 128 rows that the loop over experts
    launches take 0.267 ms, which is 33 us for each.
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
    elif isinstance(work, FlashAttention):
        launch_s = launch_s * work.pieces
    launched = alone_s > 0
    if all_of(launched):
        return launch_s
    where_s: Floats = np.where(launched, launch_s, 0.0)
    return where_s


def _is_one_call(item: Item) -> bool:
    """Return whether one call of the framework launches a kernel, without a module around it."""
    work = item.work
    return item.is_further_chunk or (isinstance(work, MemoryBound) and KINDS[work.kind].is_one_call)


def _launches_of_an_expert(work: GroupedMatmul) -> float:
    """Return how many launches the GEMM of an expert needs: 2 with a cast to 8 or 4 bits, else 1.

    The GEMM of the weight gradient reads the operands that the other GEMMs have cast.
    """
    return 2.0 if work.narrow and not work.is_weight_gradient else 1.0


def several_experts(item: Item) -> Flags:
    """Return a mask of plans in which the host launches the GEMMs of a rank's experts one by one.

    The mask has the shape of the item's groups. The GEMM of a single expert is launched like any other
    kernel.
    """
    work = item.work
    if isinstance(work, GroupedMatmul) and work.separate:
        several: Flags = work.groups > 1
        return several
    return np.zeros((1, 1), dtype=bool)


def launches_experts(item: Item) -> bool:
    """Return whether an item represents one kernel for each expert, which the host launches one by one."""
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
