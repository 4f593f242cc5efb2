"""Activation functions of experts, and the following casts, fused into the GEMMs of experts.

One kernel multiplies the rows of all experts, applies the gate and writes 8 bits; another kernel does the
same for the input gradient of the second linear. Kept tensors do not change.

References
----------
Transformer Engine, `NVTE_CUTEDSL_FUSED_GROUPED_MLP`, by kernels of cuDNN's front end (grouped GEMM + GLU).
"""

from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items

GATES = {
    **dict.fromkeys(("swiglu", "geglu", "clamped_swiglu", "clamped_geglu"), "epilogue_gate"),
    **dict.fromkeys(("bias_add", "weighed_bias"), "epilogue_bias"),
}


def fused_experts(items: Items) -> Items:
    """Fuse gates, and the biases before them, with the grouped GEMM whose output they read."""
    made = {item.output for item in items if isinstance(item.work, GroupedMatmul)}
    return tuple(
        replace(item, work=replace(item.work, kind=GATES[item.work.kind]))
        if isinstance(item.work, MemoryBound) and item.work.kind in GATES and item.inputs[0] in made
        else item
        for item in items
    )
