"""All-to-alls of experts that overlap with another micro-batch.

Answers: which items wait for an all-to-all if a stack runs the forward pass of one micro-batch together
with the backward pass of another, layer by layer?
Elsewhere: which stacks do this (spec/expert_software.py), how messages slow kernels down
(timeline/contention.py), exchanges beside shared experts of the same micro-batch
(rewrites/shared_expert_overlap.py).

While tokens of one micro-batch are sent, kernels of the other run. A pass of a layer therefore takes the
longer of the time of its kernels and the time of its all-to-alls. In reality, the kernels of one pass also
hide the exchanges of the other pass. The predicted time is therefore too long if the exchanges of a forward
pass take longer than its kernels.

The forward pass of the first micro-batch and the backward pass of the last one have no partner, so that
their layers wait for exchanges. On a pipeline stage, more passes have no partner, because they fill and
drain the pipeline. flopcast counts these passes only under schedules that state which passes run together
(`Order.paired` of schedules/base.py).

References
----------
Megatron-Core, `--overlap-moe-expert-parallel-comm` (core/models/common/model_chunk_schedule_plan.py). The
idea: arXiv:2412.19437, section 3.2.1.
"""

from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.records import replace

EXCHANGE = "ep"


def beside_other_micro_batch(items: tuple[Item, ...], phase: str) -> tuple[Item, ...]:
    """Return the items of one layer and `phase`, with exchanges that wait only for each other.

    The all-to-alls of a micro-batch without a partner run in the queue of kernels, so that all-to-alls and
    kernels wait for each other.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import blocking
    >>> from flopcast.operators.exchanges import Dispatch
    >>> sent = blocking("send", Dispatch(axis="ep", message_bytes=constant(1)), "x", "y")
    >>> [(one.when, one.stream, one.overlapped) for one in beside_other_micro_batch((sent,), "forward")]
    [('forward_beside_other', 'ep', True), ('forward_alone', 'compute', False)]
    """
    return tuple(one for item in items for one in _beside(item, phase))


def _beside(item: Item, phase: str) -> tuple[Item, ...]:
    """Return an exchange twice, hidden and not; any other item without waiting for a hidden one."""
    if item.stream == EXCHANGE and isinstance(item.work, AbstractMessage):
        hidden = replace(item, waits=(), overlapped=True, when=f"{phase}_beside_other")
        return hidden, replace(item, stream="compute", when=f"{phase}_alone")
    if EXCHANGE not in item.waits:
        return (item,)
    return (replace(item, waits=tuple(name for name in item.waits if name != EXCHANGE)),)
