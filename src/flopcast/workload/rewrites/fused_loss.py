"""Cross entropy in one kernel over 16-bit logits.

Answers: which kernel replaces the cast to fp32 and the chain of kernels after the logits?
Elsewhere: the stacks with this kernel (spec/stack.py, `fused_loss`). Divided logits need sums over ranks. A
stack whose kernel does not support these sums keeps the chain. A batch of plans has the items of both
variants, and the counts of items select one for each plan.
"""

from flopcast.dtypes import Counts
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items, kind_of

CAST, CHAIN, FUSED = "cast_to_fp32", "cross_entropy", "fused_cross_entropy"


def fused_loss(items: Items, cut: Counts) -> Items:
    """Replace the loss of a head by one kernel.

    Parameters
    ----------
    cut : 1 for plans whose logits are divided and keep the chain, otherwise 0; shape (plans, 1)

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import kernel
    >>> cast, loss = (MemoryBound(kind=kind, elements=constant(8), dtype="bf16") for kind in (CAST, CHAIN))
    >>> head = (kernel("cast", cast, ("logits",), "wide", component="head"),
    ...         kernel("loss", loss, ("wide",), "loss", component="head"))
    >>> [(item.name, item.count.item()) for item in fused_loss(head, constant(0))]
    [('cast', 0.0), ('loss', 0.0), ('loss.fused', 1.0)]
    """
    casts = {item.output: item.inputs for item in items if kind_of(item) == CAST}
    result: list[Item] = []
    for item in items:
        chained = kind_of(item) in (CAST, CHAIN)
        result.append(replace(item, count=item.count * cut) if chained else item)
        if isinstance(item.work, MemoryBound) and kind_of(item) == CHAIN:
            result.append(
                replace(
                    item,
                    name=f"{item.name}.fused",
                    work=replace(item.work, kind=FUSED),
                    inputs=casts.get(item.inputs[0], item.inputs),
                    count=item.count * (1.0 - cut),
                )
            )
    return tuple(result)
