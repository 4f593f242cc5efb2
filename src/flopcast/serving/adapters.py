"""Low-rank adapters of an engine: their bytes, and the GEMMs that they add to a pass.

Answers: how large is an adapter on a device, how long does it take to load, what does it compute?
Elsewhere: which adapters are loaded (adapter_cache.py), adapters in training (layers/adapters.py).

Every linear of attention and of dense feed-forward layers has an adapter, as in engines. Tensor-parallel
ranks divide the same side of an adapter as of its linear. Each rank holds the other side whole.
"""

from flopcast.dtypes import ELEMENT_BYTES
from flopcast.layers.adapted_linears import FUSED, Linear, linears
from flopcast.layers.block import Block
from flopcast.spec.serving_job import ServingJob


def adapted(block: Block, hidden: int) -> list[Linear]:
    """Return the linear layers of a block that have adapters: each separate matrix outside experts."""
    known = linears(block, hidden).items()
    return [linear for name, linear in known if name not in FUSED and not linear.experts]


def cut_sides(linear: Linear, ranks: int) -> tuple[float, float]:
    """Return the length of the inputs and of the outputs of an adapter on one of several ranks.

    >>> wide = Linear(item="mlp.up", rows=64, columns=256)
    >>> cut_sides(wide, 4), cut_sides(Linear(item="mlp.down", rows=256, columns=64), 4)
    ((64, 64.0), (64.0, 64))
    """
    if linear.leaves_region:
        return linear.rows / ranks, linear.columns
    return linear.rows, linear.columns / ranks


def adapter_bytes(job: ServingJob) -> float:
    """Return the bytes of one adapter on one device, in 16 bits; 0 without adapters."""
    rank, ranks = job.plan.adapter_rank or 0, job.plan.tensor_parallel
    sides = sum(
        block.count * sum(sum(cut_sides(linear, ranks)) for linear in adapted(block, job.model.hidden))
        for block in job.model.blocks
    )
    return ELEMENT_BYTES["bf16"] * rank * sides / job.plan.pipeline_parallel


def load_s(job: ServingJob) -> float:
    """Return the seconds in which every device copies its part of an adapter from the host's memory."""
    return adapter_bytes(job) / job.cluster.node.device.host_bytes_per_s
