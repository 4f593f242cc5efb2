"""Shared experts that are computed while tokens of the other experts are sent
(`--moe-shared-expert-overlap`).

Their first linear overlaps with the dispatch and their second with the combine, each together with its
tensor-parallel message. In the backward pass, it is the other way round (workload/message_order.py). If an
exchange takes longer than these kernels, the rest is exposed.

Exchanges that overlap with another micro-batch (DualPipe, arXiv:2412.19437, section 3.2.1) are in
exchange_overlap.py.

References
----------
Megatron-Core, `transformer/moe/shared_experts.py`: which part overlaps with which exchange.
"""

import re

from flopcast.operators.item import Item
from flopcast.records import replace
from flopcast.workload.rewrites.base import Items

_SHARED = re.compile(r"(^|\.)shared\.(?!join$)")  # all of them but the sum with the others
_EXCHANGE = re.compile(r"(^|\.)experts\.(dispatch|combine)$")  # whatever its message is: casts replace it


def shared_expert_overlap(items: Items) -> Items:
    """Return items in which shared experts run after the launch of an exchange, and do not wait for it.

    A layer without shared experts or without exchanges does not change.
    """
    shared = [item for item in items if _SHARED.search(item.name)]
    found = {match[2] for item in items if (match := _EXCHANGE.search(item.name))}
    last = next((n for n, item in enumerate(shared) if item.output.endswith("shared.partial")), 0)
    beside = {"dispatch": shared[:last], "combine": shared[last:]}
    if not shared or found != beside.keys():
        return items
    result: list[Item] = []
    for item in items:
        if _SHARED.search(item.name):
            continue
        result.append(item)
        if exchange := _EXCHANGE.search(item.name):
            result += [_not_waiting(part, item.stream) for part in beside[exchange[2]]]
    return tuple(result)


def _not_waiting(item: Item, stream: str) -> Item:
    return replace(item, waits=tuple(name for name in item.waits if name != stream), beside=stream)
