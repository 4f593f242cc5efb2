"""Embedding tables of an exported graph that are sharded over ranks: their weights, look-ups and messages.

Answers: which part of the tables does a rank hold, what does it look up, and which vectors are exchanged?
Elsewhere: the blocks that contain look-ups (layers/traced.py), the degree and the way of sharding
(spec/plan.py), the rules for plans (spec/rules_shared_graphs.py).

The expert-parallel ranks divide the tables among themselves in one of four ways:

- "table": each rank holds whole tables. The numbers of tables differ by at most one, so some ranks look up
  more vectors than others, and all ranks wait for the rank with the most. Ranks send the vectors of all
  samples to the ranks that have the samples (all-to-all).
- "balanced": a planner divides tables into parts until all ranks look up equally many vectors.
- "column": each rank holds some columns of every table. The same vectors are sent, and every rank needs the
  indices of all samples.
- "row": each rank holds some rows of every table, and has a partial sum of each vector of all samples,
  which ranks sum and share (reduce-scatter).

With "table" and "column", a rank copies the vectors of its tables into one array before the all-to-all. In
the backward pass, it copies the gradients out of this array. HugeCTR's kernels use this array directly.

Every rank may hold small tables whole (`is_shared`): their look-ups send nothing, and their gradients are
reduced like those of other weights.

Before a look-up, ranks exchange the indices. In the backward pass, the gradients of vectors travel in the
opposite direction. Sharded tables are in fp32 and are updated row by row in the backward pass, as
TorchRec's fused optimizers and HugeCTR do: only rows that were looked up are read and written, there are no
gradients of whole tables, and row-wise Adagrad keeps one number for each row.

References
----------
TorchRec: arXiv:2211.05239 (ways of sharding). DLRM: arXiv:2104.05158, section 3 (fused updates). Merlin
Distributed Embeddings, dist_model_parallel.py (strategy memory_balanced, and copies beside the all-to-all).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.layers.base import Split, Weight
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.item import Item, blocking
from flopcast.operators.messages import AllToAll, IndexExchange, ReduceScatter
from flopcast.records import replace

STORED = "fp32"
COPIED = ("table", "column")  # ways of sharding whose vectors are copied to one array


def is_shared(elements: int, split: Split) -> bool:
    """Return whether ranks share a table with this number of elements."""
    return bool(split.tables) and (not split.whole_tables or elements > split.whole_tables)


def fullest_share(sizes: Sequence[float], ranks: Counts, amounts: Sequence[float] = ()) -> Counts:
    """Return the largest fraction of `amounts` on one rank, if ranks hold whole tables.

    Parameters
    ----------
    sizes : elements of each table
    ranks : numbers of ranks
    amounts : an amount for each table; by default, its elements

    Tables are dealt from the largest to the smallest, in turns from the first rank to the last and back.

    >>> fullest_share([40.0, 40.0, 20.0, 10.0], np.array([[1.0], [2.0], [8.0]])).ravel().round(3).tolist()
    [1.0, 0.545, 0.364]
    """
    order = np.argsort(sizes, kind="stable")[::-1]
    dealt = np.array(amounts or sizes)[order]
    found = []
    for number in ranks.ravel().astype(int).tolist():
        turn, place = np.divmod(np.arange(len(dealt)), number)
        rank = np.where(turn % 2, number - 1 - place, place)
        found.append(np.bincount(rank, weights=dealt).max() / dealt.sum())
    return np.array(found).reshape(ranks.shape)


def sharded_table(name: str, elements: int, row: int, share: Counts) -> Weight:
    """Return the part of a table that a rank holds, with the optimizer state of one number per row."""
    return Weight(
        name=name,
        elements=(elements + elements / row) * share,
        total=elements,
        trained=False,
        stored=STORED,
    )


def sharded_lookup(item: Item, rows: Counts, split: Split, uneven: tuple[Counts, Counts]) -> Iterator[Item]:
    """Yield a look-up of the samples of all ranks in the tables of this rank, with its messages.

    Parameters
    ----------
    item : the look-up of a rank that holds all tables
    rows : elements of the rows that it reads for one micro-batch
    split : how the layer is cut
    uneven : rows, and vectors, of the rank that has the most, divided by the mean of all ranks
    """
    work = item.work
    if not isinstance(work, GraphKernel):
        return
    ranks, wide = split.expert, ELEMENT_BYTES[STORED] / split.element_bytes
    rows = rows * uneven[0]
    indices = sum(work.read, ZERO) * (ranks if split.tables == "column" else uneven[0])
    vectors = work.written * (ranks if split.tables == "row" else uneven[1])
    send = IndexExchange(axis="ep", message_bytes=indices * split.element_bytes)
    yield blocking(f"{item.name}.indices", send, item.inputs[0], f"{item.name}.sent")
    copied = np.where(ranks > 1, 2.0 * vectors, 0.0) if split.tables in COPIED else 0.0
    lookup = replace(
        work,
        moved=wide * rows + vectors + indices + copied,
        moved_backward=2.0 * wide * rows + vectors + indices + copied,
        written=vectors,
    )
    partial = f"{item.output}.partial"
    yield replace(item, work=lookup, inputs=(f"{item.name}.sent", *item.inputs[1:]), output=partial)
    vectors_bytes = vectors * split.element_bytes
    kind = ReduceScatter if split.tables == "row" else AllToAll
    exchange = kind(axis="ep", message_bytes=vectors_bytes)
    yield blocking(f"{item.name}.vectors", exchange, partial, item.output)
