"""Attention that stores its scores, with keys and values that are sent around a ring of ranks.

Answers: which messages does ring self-attention send, forward and backward?
Elsewhere: rings of fused attention, which never stores all scores of a query (ring_attention.py), the sizes
of keys and values (layers/context.py), the kept scores (workload/backward.py).

A rank computes the scores of its own queries with the keys of all ranks, one rank's keys at a time, and
stores them: L / n rows of L scores for each head. The values are then sent around the same ring, for the
context. In the backward pass, keys and values are sent around the ring again. Each rank then has gradients
of all keys and values, and an all-reduce sums these gradients. With B sequences of L tokens on n ranks and
Z heads of A elements, a layer sends 8 (n - 1) · B · Z · (L / n) · A elements: four rings, and two
all-reduces of twice as much each.

Messages do not overlap with products, as in ColossalAI.

References
----------
arXiv:2105.13120 (ring self-attention, and its count of elements). hpcaitech/ColossalAI:
colossalai/nn/layer/parallel_sequence/_operation.py (`RingQK`, `RingAV`).
"""

from flopcast.dtypes import ZERO, Floats
from flopcast.operators.item import Item, blocking
from flopcast.operators.matmul import BatchedMatmul
from flopcast.operators.messages import Replicate, RingPass
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, beside


def ring_scores(items: Items) -> Items:
    """Send keys around a ring before the scores, and values before the context.

    Examples
    --------
    Four ranks of 1024 tokens, with one head of 64 elements in 16 bits, so that a token sends 128 bytes:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> one, size = constant(1), constant(64)
    >>> hops = Item(name="attention.pass_on", work=RingPass(axis="cp", message_bytes=constant(1024 * 256)),
    ...             component="cp_communication", inputs=("k",), stream="cp", count=constant(3),
    ...             kept_bytes=constant(1024 * 128))
    >>> scores = BatchedMatmul(role="scores", batch=one, kv_batch=one, queries=constant(1024),
    ...                        keys=constant(4096), head_size=size, dtype="bf16")
    >>> context = scores.gradients()[0][1]
    >>> [item.name for item in ring_scores((
    ...     hops, kernel("scores", scores, ("q", "k"), component="attention"),
    ...     kernel("context", context, ("scores", "v"), component="attention")))]
    ['attention.pass_k', 'attention.sum_k', 'scores', 'attention.pass_v', 'attention.sum_v', 'context']
    """
    result: list[Item] = []
    ring: Item | None = None
    for item in items:
        work = item.work
        if isinstance(work, RingPass):
            ring = item
            continue
        if ring is not None and isinstance(ring.work, RingPass) and isinstance(work, BatchedMatmul):
            keys_bytes = ZERO if ring.kept_bytes is None else ring.kept_bytes
            scores = work.role == "scores"
            own_bytes = keys_bytes if scores else ring.work.message_bytes - keys_bytes
            result += _round(ring, ring.work, item.inputs[1], own_bytes)
            ring = ring if scores else None
        result.append(item)
    return tuple(result)


def _round(ring: Item, work: RingPass, tensor: str, own_bytes: Floats) -> list[Item]:
    """Return the hops of a tensor of which every rank has a part, and the sum of its gradients.

    The rank's own part is kept. Its gradient is a view of the gradient of all parts, which therefore stays
    until the backward of the projections.
    """
    name = tensor.rpartition(".")[2]
    hop = replace(work, message_bytes=own_bytes, returns_gradients=False)
    hops = blocking(beside(ring, f"pass_{name}"), hop, tensor, tensor, own_bytes)
    whole = Replicate(axis=work.axis, message_bytes=own_bytes * (ring.count + 1.0))
    gradients = blocking(beside(ring, f"sum_{name}"), whole, tensor, tensor)
    return [replace(hops, group=ring.group, count=ring.count), replace(gradients, group=ring.group)]
