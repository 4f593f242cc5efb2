"""GEMMs of experts as separate dense GEMMs that run concurrently on a few streams.

Transformer Engine's `GroupedLinear`, which Megatron-Core uses for `--moe-grouped-gemm`, runs a cuBLAS
product for each expert on four streams (`te_multi_stream_cublas_gemm` of transformer_engine/common/gemm).
Kernels of serving engines instead compute all experts of a layer in one grid.
"""

from flopcast.operators.matmul import GroupedMatmul
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items


def separate_experts(items: Items) -> Items:
    """Replace every grouped product by one dense product per expert.

    FLOP and bytes stay the same, but the kernel differs.
    """
    return tuple(
        replace(item, work=replace(item.work, separate=True))
        if isinstance(item.work, GroupedMatmul)
        else item
        for item in items
    )
