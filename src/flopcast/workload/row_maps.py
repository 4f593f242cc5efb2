"""The cost of permutations beside the bytes of rows: some kernels check every expert for each token.

Answers: how many cycles of a multiprocessor do such kernels of HybridEP and of Transformer Engine need?
Elsewhere: the bytes of rows (layers/experts.py), the time of cycles (cost/kernels/unscaled.py).

For each received token, HybridEP's kernels read one number per local expert: the position of the token's
row, or a mark that there is none. The kernel that copies rows reads these numbers once for each token and
once for its probability. The kernel that sums rows reads them once for every 1024 elements of a row. With
few experts or wide rows, moving the bytes takes longer.

Before July 2025, each of Transformer Engine's four fused kernels (two permutations and their gradients) ran
the same loop as HybridEP's sum, over all experts of the layer: 128 threads read one number per expert for
every 1024 elements of a row. The times of these kernels are not published, so flopcast assumes the cycles
of HybridEP's sum. Waits for the L2 cache are not counted. They add at most 22 cycles for each token and
expert: 350 cycles for the first read of each number, shared by the 16 programs that a multiprocessor runs
at once.

References
----------
DeepEP, branch hybrid-ep: csrc/hybrid_ep/extension/permute.cu, `permute_kernel` and `unpermute_kernel`. The
constants solve the times of both kernels on 8 B200 (148 multiprocessors at 1.965 GHz, 8192 tokens a rank,
rows of 512 elements in bf16; "hybrid-ep-sparse-opt Performance Comparison", column of commit 1b8f467):
393.6 and 267.3 us with 32 local experts and 36 chosen experts per token, 257.2 and 127.3 us with 32 and 8,
153.8 and 103.5 us with 16 and 8.
Transformer Engine 2.2: transformer_engine/pytorch/triton/permutation.py, `_permute_kernel` and
`_unpermute_kernel`; pull request 1927 replaced the loop over experts by one over a token's chosen experts.
"""

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.exchanges import Dispatch
from flopcast.operators.item import Item
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace

COPY_CYCLES, COPY_EXPERT_CYCLES, COPY_ROW_CYCLES = 305.0, 43.9, 10.6  # for a token, an expert, a row
SUM_CYCLES, SUM_EXPERT_CYCLES, SUM_ROW_CYCLES = 356.0, 10.2, 112.5  # the last two for 1024 elements
SUMMED_ELEMENTS = 1024  # of a row at once: 128 threads, 8 elements of 16 bits each


def copy_cycles(tokens: Counts, experts: Counts, rows: Counts) -> Counts:
    """Return the cycles of the kernel that copies the received tokens to `rows` rows.

    >>> import numpy as np
    >>> cycles = copy_cycles(np.array([43740.0]), np.array([16.0]), np.array([65536.0]))
    >>> (cycles / (148 * 1.965e9) * 1e6).round().tolist()
    [154.0]
    """
    cycles: Counts = tokens * (COPY_CYCLES + COPY_EXPERT_CYCLES * experts) + COPY_ROW_CYCLES * rows
    return cycles


def sum_cycles(tokens: Counts, experts: Counts, rows: Counts, hidden: Counts) -> Counts:
    """Return the cycles of the kernel that sums the rows of each received token."""
    turns = -(-hidden // SUMMED_ELEMENTS)
    cycles: Counts = tokens * (SUM_CYCLES + turns * SUM_EXPERT_CYCLES * experts)
    return cycles + turns * SUM_ROW_CYCLES * rows


def with_row_maps(items: tuple[Item, ...], ordering: tuple[str, ...]) -> tuple[Item, ...]:
    """Return the items of experts, with these cycles in the passes over received rows.

    `ordering` names the pass that copies rows and the pass that sums them, each of which is the gradient of
    the other.
    """
    sent = next((item.work for item in items if isinstance(item.work, Dispatch)), None)
    product = next((item.work for item in items if isinstance(item.work, GroupedMatmul)), None)
    if sent is None or product is None:
        return items
    tokens = sent.message_bytes / (product.k * ELEMENT_BYTES[product.dtype])
    copied = copy_cycles(tokens, product.groups, product.rows)
    summed = sum_cycles(tokens, product.groups, product.rows, product.k)
    by_name = {ordering[0]: (copied, summed), ordering[1]: (summed, copied)}
    result: list[Item] = []
    for item in items:
        cycles = by_name.get(item.name.rpartition(".")[2])
        if cycles and isinstance(item.work, MemoryBound):
            work = replace(item.work, cycles=cycles[0], gradient_cycles=cycles[1])
            result.append(replace(item, work=work))
        else:
            result.append(item)
    return tuple(result)


def with_every_expert_checked(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items of experts, with these cycles in the passes over a rank's own rows.

    The pass that chooses experts tells the tokens and the experts: it has an element for each of both.
    """
    works = {item.name: item.work for item in items}
    choice, product = works.get("experts.pick"), works.get("experts.up")
    if not isinstance(choice, MemoryBound) or not isinstance(product, GroupedMatmul):
        return items
    result = list(items)
    for place, item in enumerate(items):
        work = item.work
        if item.name in ("experts.permute", "experts.unpermute") and isinstance(work, MemoryBound):
            tokens, rows = choice.elements / choice.width, work.elements / product.k
            cycles = sum_cycles(tokens, choice.width, rows, product.k)
            result[place] = replace(item, work=replace(work, cycles=cycles, gradient_cycles=cycles))
    return tuple(result)
