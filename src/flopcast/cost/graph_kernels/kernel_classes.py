"""Kernel classes of graphs that are not decoders, and the coordinates on which their efficiency depends.

Answers: which tables make up the efficiency of a class, and which class shares the tables of another?
Elsewhere: the rows that are priced (kernel_rows.py), the seconds (efficiency.py), the fitted numbers
(catalog/graphs/efficiencies.json), the fit (lab/graph_runs/fit.py).

Efficiency is a product: a level of the class, times one small table for each coordinate. A table is
interpolated linearly over log2 of its coordinate, and constant beyond its ends.
"""

from collections.abc import Mapping

import numpy as np

from flopcast.dtypes import Counts
from flopcast.records import Record

COORDINATES = ("depth", "width", "rows", "window", "stride", "misaligned", "strided")
"""depth: terms of each sum of a product. width: columns of a product, or elements of a row that is reduced.
rows: pixels of an image, or rows of a product. window: elements of a filter. misaligned: whether a size is
no multiple of 8. strided: whether a kernel changes the order of elements."""


class Table(Record):
    """The table of one coordinate, given by log2 of its nodes; flags have the nodes 0 and 1.

    Between two nodes the log-efficiency is interpolated linearly; outside of all nodes, it is that of the
    nearest node.
    """

    coordinate: str
    nodes: tuple[float, ...]


class GraphKernelClass(Record):
    """The tables of a class for the compute bound and for the memory bound.

    A class that is `like` another class uses the tables of that class, but has separate levels. `vector`:
    the FLOP of the class run at the rate of fp32, not on matrix engines.
    """

    name: str
    compute: tuple[Table, ...] = ()
    memory: tuple[Table, ...] = ()
    like: str = ""
    vector: bool = False

    @property
    def owner(self) -> str:
        """Return the class whose tables this class uses."""
        return self.like or self.name


def _tables(**nodes: tuple[float, ...]) -> tuple[Table, ...]:
    return tuple(Table(coordinate=name, nodes=values) for name, values in nodes.items())


FLAG = (0.0, 1.0)
DEPTH = (4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
WIDTH = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
PIXELS = (4.0, 6.0, 8.0, 10.0, 12.0, 14.0)
WINDOW = (3.17, 4.64, 6.0, 8.0)
ROW = (0.0, 4.0, 6.0, 8.0, 10.0, 12.0)
SMALL = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0)

_DENSE = _tables(depth=DEPTH, width=WIDTH, rows=PIXELS, misaligned=FLAG)
_WINDOWED = _DENSE + _tables(window=WINDOW, stride=(0.0, 1.0, 2.0))
_NARROW = _tables(width=(3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0))
_DEPTHWISE = _tables(window=(0.0, 3.17, 4.64, 5.6, 6.4, 10.0), stride=FLAG, rows=PIXELS)
_CONVOLUTIONS = {
    "convolution": (_WINDOWED, _NARROW),
    "pixel_convolution": (_DENSE, _NARROW),
    "grouped_convolution": (
        _tables(depth=DEPTH, width=SMALL, rows=PIXELS, stride=FLAG),
        _tables(width=SMALL),
    ),
    "depthwise_convolution": ((), _DEPTHWISE),
}
_PRODUCTS = {
    "product": (_tables(depth=DEPTH, width=WIDTH, rows=(5.0, 9.0, 13.0, 17.0), misaligned=FLAG), _NARROW),
    "batched_product": (
        _tables(depth=DEPTH, width=WIDTH, rows=(4.0, 5.0, 6.0, 7.0, 8.0, 10.0), misaligned=FLAG),
        _tables(depth=SMALL),
    ),
    "attention": (
        _tables(depth=(4.0, 5.0, 6.0, 7.0), rows=(4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0)),
        (),
    ),
}
_PASSES = {
    "batch_norm": (),
    "planar_batch_norm": (),  # in training, over images that are stored plane by plane
    "layer_norm": _tables(width=ROW, strided=FLAG),
    "group_norm": _tables(width=(8.0, 12.0, 16.0, 20.0)),
    "softmax": _tables(width=ROW, strided=FLAG),
    "elementwise": _tables(strided=FLAG),
    "cast": _tables(strided=FLAG),
    "weight_cast": (),
    "copy": (),
    "concatenate": (),
    "pool": (),
    "reduce": _tables(width=ROW, strided=FLAG),
    "gather": (),
    "pad": (),
    "interpolate": (),
    "bias": (),
    "optimizer": (),
    "fused_elementwise": (),
    "fused_reduction": _tables(width=ROW),
}


def _known() -> dict[str, GraphKernelClass]:
    found: list[GraphKernelClass] = []
    for name, (compute, memory) in (_CONVOLUTIONS | _PRODUCTS).items():
        on_vectors = not compute
        for each in (name, f"{name}.gradients"):
            found.append(GraphKernelClass(name=each, compute=compute, memory=memory, vector=on_vectors))
    for name, (compute, memory) in _CONVOLUTIONS.items():
        on_vectors = not compute
        last = f"{name}.channels_last"
        for each, like in (
            (last, name),
            (f"{last}.gradients", last if on_vectors else f"{name}.gradients"),
        ):
            found.append(
                GraphKernelClass(
                    name=each,
                    compute=compute,
                    memory=memory,
                    like="" if on_vectors and each == last else like,
                    vector=on_vectors,
                )
            )
    masked, _ = _PRODUCTS["attention"]
    found.append(GraphKernelClass(name="masked_attention", compute=masked, like="attention"))
    for name, memory in _PASSES.items():
        found.append(GraphKernelClass(name=name, memory=memory, vector=True))
        for phase in ("gradients", "training"):
            found.append(GraphKernelClass(name=f"{name}.{phase}", memory=memory, like=name, vector=True))
    return {each.name: each for each in found}


GRAPH_KERNELS: Mapping[str, GraphKernelClass] = _known()
IS_VECTOR = np.array([each.vector for each in GRAPH_KERNELS.values()])
NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(GRAPH_KERNELS)}


def coordinate_number(name: str) -> int:
    """Return the column of a coordinate.

    >>> coordinate_number("width")
    1
    """
    return COORDINATES.index(name)


Coordinates = Counts  # (rows, len(COORDINATES)); log2 of sizes, and flags
