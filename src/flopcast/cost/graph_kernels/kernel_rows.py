"""Kernels of graphs as arrays: a row for each distinct kernel of a graph.

Answers: which class, FLOP, bytes and coordinates does each kernel have?
Elsewhere: the classes (kernel_classes.py), the seconds (efficiency.py).
"""

from collections.abc import Iterable

import numpy as np

from flopcast.cost.graph_kernels.kernel_classes import COORDINATES, NUMBERS, Coordinates, coordinate_number
from flopcast.dtypes import Counts, Floats, Integers, concatenated
from flopcast.records import Record


class KernelRows(Record, eq=False):
    """Kernels of several graphs; all arrays have the shape (rows,), coordinates one column each.

    `graph` is the position of the row's graph, `kernel` is the position of its class in GRAPH_KERNELS, and
    `calls` is the number of times that the graph runs it. FLOP and bytes are those of one call.
    `time_ratio`: time of the FLOP in an older kernel, divided by their time in the newest kernel of the
    class.
    """

    graph: Integers
    kernel: Integers
    calls: Counts
    flop: Floats
    moved_bytes: Floats
    coordinates: Coordinates
    time_ratio: Counts


def kernel_rows(
    names: str | Iterable[str],
    graph: Integers,
    calls: Counts,
    flop: Floats | float,
    moved_bytes: Floats,
    **coordinates: Counts,
) -> KernelRows:
    """Return rows of kernels, all of one class or each with its class; omitted coordinates have log2 = 0.

    >>> rows = kernel_rows("copy", np.zeros(1, dtype=int), np.ones(1), 0.0, np.array([8e6]))
    >>> rows.moved_bytes.tolist(), rows.coordinates.shape
    ([8000000.0], (1, 7))
    """
    count = len(graph)
    kernel = (
        np.full(count, NUMBERS[names])
        if isinstance(names, str)
        else np.array([NUMBERS[name] for name in names], dtype=np.intp)
    )
    table = np.zeros((count, len(COORDINATES)))
    for name, values in coordinates.items():
        table[:, coordinate_number(name)] = values
    return KernelRows(
        graph=graph,
        kernel=kernel,
        calls=calls,
        flop=np.broadcast_to(np.asarray(flop, dtype=float), (count,)),
        moved_bytes=moved_bytes,
        coordinates=table,
        time_ratio=np.ones(count),
    )


def joined(parts: Iterable[KernelRows]) -> KernelRows:
    """Return the rows of all parts, in order.

    The numbers of graphs do not change, so the rows of one graph may come from several parts.
    """
    return concatenated(list(parts))
