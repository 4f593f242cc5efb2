"""Embedding tables of an exported graph that are sharded over ranks: their weights, look-ups and messages.

Answers: which part of the tables does a rank hold, what does it look up, and which vectors are exchanged?
Elsewhere: the blocks that contain look-ups (layers/traced.py), the degree and the way of sharding
(spec/plan.py), the rules for plans (spec/rules_shared_graphs.py).

The ranks of the expert axis share the tables, in one of three ways:

- "table": each rank holds whole tables. Ranks send the vectors of all samples to the ranks that have the
  samples (all-to-all).
- "column": each rank holds some columns of every table. The same vectors are sent, and every rank needs the
  indices of all samples.
- "row": each rank holds some rows of every table, and has a partial sum of each vector of all samples,
  which ranks sum and share (reduce-scatter).

Every rank may hold small tables whole (`is_shared`): their look-ups send nothing, and their gradients are
reduced like those of other weights.

Before a look-up, ranks exchange the indices. In the backward pass, the gradients of vectors travel in the
opposite direction. Sharded tables are in fp32 and are updated row by row in the backward pass, as
TorchRec's fused optimizers and HugeCTR do: only rows that were looked up are read and written, there are no
gradients of whole tables, and row-wise Adagrad keeps one number for each row.

References
----------
TorchRec: arXiv:2211.05239 (ways of sharding). DLRM: arXiv:2104.05158, section 3 (fused updates).
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


def is_shared(elements: int, split: Split) -> bool:
    """Return whether ranks share a table with this number of elements."""
    return bool(split.tables) and (not split.whole_tables or elements > split.whole_tables)


def fullest_share(sizes: Sequence[float], ranks: Counts) -> Counts:
    """Return the fraction of all elements that the fullest rank holds, if ranks hold whole tables.

    Tables are placed one by one, the largest first, each on the rank with the fewest elements so far.

    >>> fullest_share([40.0, 40.0, 20.0, 10.0], np.array([[1.0], [2.0], [8.0]])).ravel().round(3).tolist()
    [1.0, 0.545, 0.364]
    """
    found = []
    for number in ranks.ravel().astype(int).tolist():
        held = [0.0] * number
        for size in sorted(sizes, reverse=True):
            held[held.index(min(held))] += size
        found.append(max(held) / sum(sizes))
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


def sharded_lookup(item: Item, rows: Counts, split: Split) -> Iterator[Item]:
    """Yield a look-up of the samples of all ranks in the tables of this rank, with its messages.

    Parameters
    ----------
    item : the look-up of a rank that holds all tables
    rows : elements of the rows that it reads for one micro-batch
    split : how the layer is cut
    """
    work = item.work
    if not isinstance(work, GraphKernel):
        return
    ranks, wide = split.expert, ELEMENT_BYTES[STORED] / split.element_bytes
    indices = sum(work.read, ZERO) * (ranks if split.tables == "column" else 1.0)
    vectors = work.written * (ranks if split.tables == "row" else 1.0)
    send = IndexExchange(axis="ep", message_bytes=indices * split.element_bytes)
    yield blocking(f"{item.name}.indices", send, item.inputs[0], f"{item.name}.sent")
    lookup = replace(
        work,
        moved=wide * rows + vectors + indices,
        moved_backward=2.0 * wide * rows + vectors + indices,
        written=vectors,
    )
    partial = f"{item.output}.partial"
    yield replace(item, work=lookup, inputs=(f"{item.name}.sent", *item.inputs[1:]), output=partial)
    vectors_bytes = vectors * split.element_bytes
    kind = ReduceScatter if split.tables == "row" else AllToAll
    exchange = kind(axis="ep", message_bytes=vectors_bytes)
    yield blocking(f"{item.name}.vectors", exchange, partial, item.output)
