"""Tensor-parallel messages that overlap with their products, in chunks or tile by tile.

Answers: which items replace a gather and a GEMM, or a GEMM and a scatter, if a stack sends one part while
it multiplies another?
Elsewhere: the stacks with this overlap (spec/stack.py, `tensor_overlap`), the time of chunks (cost/), the
exposed time (timeline/). FLOP and bytes do not change.

There are four patterns over t ranks, which correspond to the methods of Transformer Engine ("user
buffers"):

    gather → product           t chunks of rows; a rank begins with its own while the next arrives; so for
                               a gradient that is gathered before the input gradient (`ring_exchange`)
    product → scatter          4 chunks; a chunk is summed while the next is multiplied (`pipeline`)
    gather ∥ input gradient    of an input that was kept in shards: whole (`bulk`; workload/backward.py)
    weight gradient ∥ scatter  of the input's gradient: whole (`bulk`)

Each chunk is a smaller GEMM, and has the lower efficiency of its size. Copy engines move the gathered
chunks. Scatters are kernels on 16 multiprocessors by default, and on 8 to 32 in NeMo's recipes, so they
slow the products beside them as collectives slow other compute (timeline/contention.py). The few
multiprocessors of the gather beside an input gradient, 2 to 8 in these recipes, are not counted.

Tile by tile, a product stays one kernel with the efficiency of the whole. With G seconds for the product, M
for the message and f for the share of a band of tiles in the rows of the product, each pair takes

    gather → product           max((1 - f) G, M) + f G: the last band waits for the last rows
    product → scatter          f G + max((1 - f) G, M): the first band is alone

The undivided gather and scatter of a backward pass run concurrently with GEMMs of gradients, as described
above. Messages use no multiprocessors. flopcast ignores their share of the memory bandwidth, which does not
slow compute-bound products. The hardware of T3 does not change gathers.

References
----------
Transformer Engine, `pytorch/module/base.py`, `initialize_ub`: which product has which method, 4 splits,
and the multiprocessors of a scatter. NeMo's recipes of these:
`collections/llm/recipes/tp_overlap_configs/userbuffers.py`.
Decomposed collectives: Wang et al., ASPLOS 2023, doi:10.1145/3567955.3567959. Tiles: Flux,
arXiv:2406.06858 (gathers and scatters fused with products); T3, arXiv:2401.16677 (tracking and triggering
in hardware).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ZERO, Counts
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item
from flopcast.operators.low_precision_messages import LowPrecisionMessage
from flopcast.operators.matmul import Matmul
from flopcast.operators.messages import ReduceScatter, Replicate
from flopcast.records import replace
from flopcast.workload.message_order import without_waiting

SPLITS = 4.0  # chunks of a product whose result is scattered
TILE_ROWS = 128.0  # of the tiles of a product
CHUNKS = "chunks"  # of `stack.tensor_overlap`


def under_products(items: tuple[Item, ...], ranks: Counts, how: str = CHUNKS) -> tuple[Item, ...]:
    """Return the items of one layer and pass, with tensor-parallel messages that overlap with products.

    Parameters
    ----------
    items : in the order of the pass; a backward pass may contain recomputed forward items
    ranks : tensor-parallel degree, shape (plans, 1)
        One rank sends nothing, and multiplies in one piece.
    how : "chunks", "tiles" or "scatter_tiles", a setting of the stack

    Examples
    --------
    Four ranks, with one second to gather the shard of a rank and two seconds for a chunk of the product:

    >>> from flopcast.dtypes import constant
    >>> from flopcast.operators.item import blocking, kernel
    >>> from flopcast.operators.messages import AllGather
    >>> gather = blocking("enter", AllGather(axis="tp", message_bytes=constant(64)), "x", "x.full")
    >>> work = Matmul(m=constant(64), n=constant(8), k=constant(8), dtype="bf16")
    >>> product = kernel("up", work, ("x.full",), component="mlp")
    >>> [(i.name, i.count.item()) for i in under_products((gather, product), constant(4))]
    [('enter', 1.0), ('up', 3.0), ('up.last', 1.0)]
    """
    result: list[Item] = []
    place = 0
    while place < len(items):
        found, taken = _pattern(items[place : place + 3], ranks, how)
        result += found or items[place : place + 1]
        place += taken or 1
    return tuple(result)


def _pattern(items: tuple[Item, ...], ranks: Counts, how: str) -> tuple[list[Item], int]:
    """Return the items that replace the first of these and some after it, and how many; empty if none."""
    first, *others = items
    if not others or any(item.beside for item in items[:2]):
        return [], 0
    second = others[0]
    if _gathers(first) and _is_product(second) and "tp" in second.waits and how in GATHERED:
        return GATHERED[how](first, second, ranks), 2
    if _is_product(first) and _scatters(second) and (how != CHUNKS or first.phase != "backward"):
        return SCATTERED[how](first, second, ranks), 2
    if len(items) == 3 and _are_gradients(first, second) and _scatters(items[2]):
        return _beside_weight_gradient(first, second, replace(items[2], overlapped=how == CHUNKS)), 3
    return [], 0


def _collective(item: Item) -> str:
    """Return the collective of a message, of 8-bit or 16-bit elements; "" for a kernel."""
    return item.work.collective if isinstance(item.work, AbstractMessage) else ""


def _gathers(item: Item) -> bool:
    return _collective(item) == "all_gather" and item.stream == "tp"


def _scatters(item: Item) -> bool:
    return _collective(item) == "reduce_scatter" and item.stream == "tp"


def _is_product(item: Item) -> bool:
    """Return whether an item is a forward product or an input gradient; the rows of both are tokens."""
    return isinstance(item.work, Matmul) and not item.name.endswith(".wgrad")


def _are_gradients(first: Item, second: Item) -> bool:
    """Return whether two items are both gradients of one linear layer."""
    return (
        isinstance(first.work, Matmul)
        and first.name.endswith(".dgrad")
        and second.name == f"{first.name.removesuffix('.dgrad')}.wgrad"
    )


def _chunk(item: Item, chunks: Counts, count: Counts, word: str = "") -> Item:
    """Return this many of the equal chunks of an item, a product's rows or a message's bytes.

    An item that runs in only some of the blocks, such as every second product that is recomputed, keeps its
    share.
    """
    name, count = f"{item.name}.{word}" if word else item.name, item.count * count
    if isinstance(item.work, Matmul):
        return replace(item, name=name, work=replace(item.work, m=item.work.m / chunks), count=count)
    if isinstance(item.work, (ReduceScatter, LowPrecisionMessage)):
        size_bytes = item.work.message_bytes / chunks
        return replace(item, name=name, work=replace(item.work, message_bytes=size_bytes), count=count)
    return item


def _further_chunks(item: Item, chunks: Counts, word: str = "") -> Item:
    """Return all chunks but one, which are launched by the call that launches that one."""
    return replace(_chunk(item, chunks, chunks - 1.0, word), is_further_chunk=True)


def _gathered(gather: Item, product: Item, ranks: Counts) -> list[Item]:
    """Return items in which all chunks but the last are multiplied while others arrive."""
    ahead = without_waiting(_further_chunks(product, ranks), "tp")
    return [gather, ahead, _chunk(product, ranks, np.ones_like(ranks), "last")]


def _scattered(product: Item, scatter: Item, ranks: Counts) -> list[Item]:
    """Return the first chunk alone; each later one overlaps the previous sum; the last sum is alone."""
    chunks = np.where(ranks > 1, SPLITS, 1.0)
    one = np.ones_like(ranks)
    return [
        _chunk(product, chunks, one),
        replace(_further_chunks(scatter, chunks), overlapped=True),
        without_waiting(_further_chunks(product, chunks, "rest"), "tp"),
        _chunk(scatter, chunks, one, "last"),
    ]


def _parts(product: Item) -> tuple[Item, Item]:
    """Return a product as the share of a band of tiles, and the rest, which waits for no message.

    Both are the whole product, run for a share of it: one kernel, launched once.
    """
    work = product.work
    rows = work.m if isinstance(work, Matmul) else ZERO
    share = np.minimum(TILE_ROWS / np.maximum(rows, 1.0), 1.0)
    band = replace(product, name=f"{product.name}.band", count=product.count * share)
    return band, without_waiting(replace(product, count=product.count * (1.0 - share)), "tp")


def _gathered_tiles(gather: Item, product: Item, _ranks: Counts) -> list[Item]:
    """Return items in which all tiles but the last band are multiplied while rows arrive."""
    band, rest = _parts(product)
    return [gather, rest, band]


def _scattered_tiles(product: Item, scatter: Item, _ranks: Counts) -> list[Item]:
    """Return items in which all tiles but the first band are multiplied while others leave."""
    band, rest = _parts(product)
    return [band, scatter, rest]


Pair = Callable[[Item, Item, Counts], list[Item]]
GATHERED: dict[str, Pair] = {CHUNKS: _gathered, "tiles": _gathered_tiles}
SCATTERED: dict[str, Pair] = {
    CHUNKS: _scattered,
    "tiles": _scattered_tiles,
    "scatter_tiles": _scattered_tiles,
}


def _beside_weight_gradient(dgrad: Item, wgrad: Item, scatter: Item) -> list[Item]:
    """Return items in which the scatter of the input's gradient starts with the weight gradient.

    The weight gradient waits for what was sent before the scatter (its gathered input), not for the
    scatter: an item that sends nothing stands for that moment.
    """
    ready = replace(
        wgrad,
        name=f"{wgrad.name}.ready",
        work=Replicate(axis="tp", message_bytes=ZERO),
        component=scatter.component,
    )
    return [dgrad, ready, scatter, without_waiting(wgrad, "tp")]
