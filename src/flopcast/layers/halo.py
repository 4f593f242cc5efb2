"""Graph networks whose vertices ranks share: the vectors of neighbours on other ranks.

Answers: what do ranks exchange before a layer adds up vectors of neighbours, if each has a part of a graph?
Elsewhere: the operators of the layers (layers/traced.py), which plans may share a graph
(spec/rules_shared_graphs.py), pipelines, whose stages have different layers of the whole graph
(schedules/).

The samples of the batch are the vertices of one graph. All ranks of the expert axis have equally many of
them, with the edges that end at them, and all weights. Before an operator picks rows of a tensor, a rank
receives the rows of its neighbours on other ranks: the halo. The backward pass returns their gradients. The
size of the halo depends on the graph and its partition. If every rank reads every vertex, the halo is as
large as the rank's own rows times the number of other ranks, which is the maximum.

References
----------
Graph parallelism: DistDGL, arXiv:2010.05337. Comparison of its traffic with that of a pipeline: GNNPipe,
arXiv:2308.10087, abstract.
"""

from collections.abc import Mapping

import numpy as np

from flopcast.dtypes import Counts
from flopcast.layers.base import Split
from flopcast.operators.item import Item, blocking
from flopcast.operators.messages import AllToAll
from flopcast.records import replace


def with_halos(items: tuple[Item, ...], picked: Mapping[str, Counts], split: Split) -> tuple[Item, ...]:
    """Return the items of a block, with an exchange before the first operator that picks rows of a tensor.

    Parameters
    ----------
    items : items of the block, in order
    picked : by the name of an item that picks rows of its first input, the elements of that input on a rank
    split : how the vertices are divided
    """
    found: list[Item] = []
    exchanged: set[str] = set()
    for item in items:
        if item.name not in picked:
            found.append(item)
            continue
        tensor, *others = item.inputs
        if tensor not in exchanged:
            exchanged.add(tensor)
            sent_bytes = _sent(picked[item.name], split) * split.element_bytes
            message = AllToAll(axis="ep", message_bytes=sent_bytes)
            found.append(blocking(f"{tensor}.halo", message, tensor, f"{tensor}.halo"))
        found.append(replace(item, inputs=(f"{tensor}.halo", *others)))
    return tuple(found)


def _sent(elements: Counts, split: Split) -> Counts:
    """Return the elements of an all-to-all in which each rank receives its halo.

    A rank keeps the part of an all-to-all that it would send to itself, which a halo does not have.
    """
    others = np.maximum(split.expert - 1.0, 0.0)
    return split.halo * elements * split.expert / np.maximum(others, 1.0) * (others > 0)
