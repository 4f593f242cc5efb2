"""Exchanges of experts' tokens beside another micro-batch's work.

Answers: what waits for an exchange where a stack runs the forward of one micro-batch and the backward of
another together, layer by layer?
Elsewhere: which stack does (spec/expert_software.py), what messages take from compute
(timeline/contention.py), exchanges beside shared experts of the same micro-batch
(rewrites/shared_expert_overlap.py).

While tokens of one micro-batch travel, kernels of the other run; so a layer's pass lasts as long as its
kernels or its exchanges, whichever is longer. That holds pass by pass here, where in truth the two passes
that run together may hide each other's exchanges too: an overestimate where a forward's exchanges are
longer than its kernels. The first forwards and the last backwards of a pipeline have no partner, which is
left out.

References
----------
Megatron-Core, `--overlap-moe-expert-parallel-comm` (core/models/common/model_chunk_schedule_plan.py). The
idea: arXiv:2412.19437, section 3.2.1.
"""

from dataclasses import replace

from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item

EXCHANGE = "ep"


def beside_other_micro_batch(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Items of one layer and pass: exchanges wait for each other alone, and nothing waits for them.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import blocking
    >>> from flopcast.operators.exchanges import Dispatch
    >>> sent = blocking("send", Dispatch(axis="ep", message_bytes=constant(1)), "x", "y")
    >>> beside_other_micro_batch((sent,))[0].waits, beside_other_micro_batch((sent,))[0].overlapped
    ((), True)
    """
    return tuple(
        replace(item, waits=(), overlapped=True)
        if item.stream == EXCHANGE and isinstance(item.work, AbstractMessage)
        else replace(item, waits=tuple(name for name in item.waits if name != EXCHANGE))
        for item in items
    )
