"""Settings of a stack applied to items of experts: exchanges, host waits, and router engines.

Answers: which rows and copies does each library send, where does the host wait for the device, and in which
precision does the router's GEMM run?
Elsewhere: the stack's fields (spec/expert_software.py), exchanges beside other work (exchange_overlap.py),
products of experts (rewrites/separate_experts.py, rewrites/fused_experts.py).

The items of a layer sort rows in the order of ranks, send copies of tokens to each rank, and sort the
received rows in the order of the rank's experts. After the experts, they do the same in reverse. NCCL sends
whole arrays, whose rows must be in order. DeepEP and HybridEP read tokens where they are stored, so that
the sending rank permutes nothing. They sum the results as these arrive. Before the exchange, HybridEP's
ranks gather the routes of all tokens.

References
----------
- Exchanges and waits of Megatron-Core are in `transformer/moe/token_dispatcher.py`
  (MoEAlltoAllTokenDispatcher, MoEFlexTokenDispatcher, `cuda_sync_point`).
- Megatron-Core computes fp32 scores with a GEMM on 16-bit operands (RouterGatingLinearFunction in
  `transformer/moe/moe_utils.py`).
- DeepEP and its branch Hybrid-EP are published on https://github.com/deepseek-ai/DeepEP.
- Hybrid-EP reads numbers back in `dispatch_postprocess` and gathers routes in `allgather_routing_map`
  (csrc/hybrid_ep/executor/executor.cu).
- Each copy contains the scores (`S2G_warp_group_device_function` in
  csrc/hybrid_ep/backend/hybrid_ep_backend.cuh).
- On 8 B200, a dispatch of rows of 512 elements takes 185 us with 256 scores and 96 us without scores
  ("hybrid-ep-sparse-opt Performance Comparison").
"""

import numpy as np

from flopcast.dtypes import constant, is_wide
from flopcast.layers.router import PARTS as ROUTER_PARTS
from flopcast.operators.exchanges import AbstractExchange, Dispatch
from flopcast.operators.item import Item, blocking, host_work, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import RouteGather
from flopcast.records import replace
from flopcast.spec.expert_software import ExpertSoftware

ORDERING = ("sort", "unsort")  # rows of several ranks brought into the order of experts, and back


def with_expert_software(items: tuple[Item, ...], software: ExpertSoftware) -> tuple[Item, ...]:
    """Return forward items of one layer as the software of experts runs them.

    Parameters
    ----------
    items : tuple of Item
        Logical items of a layer. Those that are not items of experts stay the same.
    software : ExpertSoftware
        The library of exchanges, whether rows are permuted before they are sent, whether the router runs on
        16-bit operands, and where the host waits for the numbers of rows.
    """
    result = items
    if software.sends_every_row:
        result = tuple(_every_row(item) for item in result)
    else:
        result = _without_home(result, software.dispatcher)
    if software.looks_up_experts:
        from flopcast.workload.row_maps import with_row_maps

        result = _with_routes(with_row_maps(result, ORDERING))
    if software.checks_every_expert and software.sends_every_row:
        from flopcast.workload.row_maps import with_every_expert_checked

        result = with_every_expert_checked(result)
    if software.router_in_16_bits:
        result = tuple(_in_16_bits(item) for item in result)
    result = _with_small_passes(result, software)
    return _waiting(result, software.counts_after_dispatch) if software.waits_for_counts else result


def _with_small_passes(items: tuple[Item, ...], software: ExpertSoftware) -> tuple[Item, ...]:
    """Return items with the kernels behind a router's choice that the layer does not state by themselves.

    Each reads and writes a number for every token and expert: masks, counts, sums for the loss.
    """
    stated = [item for item in items if item.name.removeprefix("experts.") in ROUTER_PARTS]
    choice = next((item for item in stated if _name(item) == "pick"), None)
    kernels = software.forward_router_kernels([_name(item) for item in stated])
    if choice is None or not isinstance(choice.work, MemoryBound) or not kernels:
        return items
    passes = replace(
        choice,
        name="experts.pick.others",
        work=replace(choice.work, kind="router_pass"),
        inputs=(choice.output,),
        count=constant(kernels - len(stated)),
    )
    place = items.index(choice) + 1
    return (*items[:place], passes, *items[place:])


def _every_row(item: Item) -> Item:
    """Return exchanges that also send copies of a token to ranks that already have one."""
    work = item.work
    if not isinstance(work, AbstractExchange):
        return item
    return replace(item, work=replace(work, library="all_to_all", message_bytes=work.rows_bytes))


def _without_home(items: tuple[Item, ...], library: str) -> tuple[Item, ...]:
    """Return exchanges by a library; passes over local rows disappear unless all experts are local."""
    orders = [_elements(item) for item in items if _name(item) in ORDERING]

    def without(item: Item) -> Item:
        work = item.work
        if isinstance(work, AbstractExchange):
            return replace(item, work=replace(work, library=library))
        if (
            isinstance(work, MemoryBound)
            and KINDS[work.kind].permutes
            and _name(item) not in ORDERING
            and orders
        ):
            return replace(item, work=replace(work, elements=np.where(orders[0] > 0, 0.0, work.elements)))
        return item

    return tuple(without(item) for item in items)


def _with_routes(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return items in which ranks exchange all routes before a dispatch that also sends scores (HybridEP).

    A route is one byte for each token of any rank and each expert. The kernel that finds the tokens for
    this rank reads all of them. The scores of a token go with each of its copies, as do their gradients.
    """
    result: list[Item] = []
    for item in items:
        work = item.work
        if isinstance(work, Dispatch) and work.routing is not None:
            routes = work.routing.tokens * work.routing.ranks * work.routing.experts
            gather = RouteGather(axis=work.axis, message_bytes=routes)
            scan = MemoryBound(kind="route_scan", elements=routes, dtype="bool")
            result += [
                blocking("experts.gather_routes", gather, item.inputs[0], "experts.routes"),
                kernel("experts.scan_routes", scan, ("experts.routes",), component="experts"),
                replace(item, work=replace(work, with_scores=True)),
            ]
        else:
            result.append(item)
    return tuple(result)


def _name(item: Item) -> str:
    return item.name.rpartition(".")[2]


def _elements(item: Item) -> np.ndarray:
    """Return the elements of a memory-bound item; none on a single rank, whose rows are in order."""
    return item.work.elements if isinstance(item.work, MemoryBound) else np.zeros((1, 1))


def _in_16_bits(item: Item) -> Item:
    """Return a router's product of fp32 operands as one of bf16: the same FLOP on another engine."""
    work = item.work
    if isinstance(work, Matmul) and item.wide and is_wide(work.dtype):
        return replace(item, work=replace(work, dtype="bf16"))
    return item


def _waiting(items: tuple[Item, ...], after: bool) -> tuple[Item, ...]:
    """Return items in which the host waits for the device to learn the number of rows.

    NCCL and DeepEP need the number before a dispatch. HybridEP reads it back after its dispatch kernel, so
    the host launches nothing of the experts while tokens travel.
    """
    result: list[Item] = []
    for item in items:
        if isinstance(item.work, Dispatch):
            wait = host_work("synchronise", item.phase)
            result += [item, wait] if after else [wait, item]
        else:
            result.append(item)
    return tuple(result)
