"""Kernels of models that are described only by their sizes.

Answers: which kernels do blocks of a transformer with these sizes run?
Elsewhere: counted facts (kernels.py), the models that are described by sizes (neusight.py, diffusion.py,
mlperf.py).
"""

import numpy as np

from flopcast.cost.graph_kernels.kernel_rows import KernelRows, joined, kernel_rows
from flopcast.cost.graph_kernels.priors import FLOP_OF_ELEMENT, FLOP_OF_INSTRUCTION
from flopcast.lab.graph_runs.kernels import PASSES_OF_GROUP_NORM
from flopcast.records import Record, field, replace
from flopcast.units import Number

ONE = np.zeros(1, dtype=np.intp)
HEAD_MULTIPLE = 32


class Sketch(Record, eq=False):
    """Collects the kernels of one model; each method adds one kind of kernels.

    `attention_time_ratio`: the time of attention relative to its newest kernels.

    >>> model = Sketch(element_bytes=2.0)
    >>> model.product(rows=4096, columns=1024, depth=1024, calls=4)
    >>> model.rows().flop.tolist()
    [8589934592.0]
    """

    element_bytes: Number
    attention_time_ratio: Number = 1.0
    parts: list[KernelRows] = field(default_factory=list)

    def rows(self) -> KernelRows:
        """Return the rows of all kernels."""
        return joined(self.parts)

    def product(
        self, *, rows: Number, columns: Number, depth: Number, calls: Number = 1.0, batch: Number = 0.0
    ) -> None:
        """Add matrix products.

        Parameters
        ----------
        rows, columns, depth : Number
            Sizes of one product: (rows, depth) times (depth, columns).
        calls : Number
            How often it runs.
        batch : Number
            The number of products in one kernel, for a batched product; 0 for a single one.
        """
        count = batch or 1.0
        elements = count * (rows * depth + depth * columns + rows * columns)
        self._add(
            "batched_product" if batch else "product",
            calls,
            2.0 * count * rows * columns * depth,
            elements * self.element_bytes,
            depth=depth,
            width=columns,
            rows=rows,
        )

    def attention(
        self, *, heads: Number, queries: Number, keys: Number, width: Number, calls: Number = 1.0
    ) -> None:
        """Add attention in one kernel; `heads` counts the heads of all sequences.

        FlashAttention-2 pads the width of a head to a multiple of 32.
        """
        elements = heads * width * 2.0 * (queries + keys)
        flop = 4.0 * heads * queries * keys * width
        moved = elements * self.element_bytes
        padded = HEAD_MULTIPLE * -(-width // HEAD_MULTIPLE)
        ratio = self.attention_time_ratio * padded / width
        self._add("attention", calls, flop, moved, time_ratio=ratio, depth=padded, rows=keys)

    def convolution(
        self,
        *,
        images: Number,
        channels: tuple[Number, Number],
        pixels: Number,
        window: Number,
        calls: Number = 1.0,
    ) -> None:
        """Add convolutions of images that store all channels of a pixel together.

        Parameters
        ----------
        images, pixels : Number
            Number of images, and output pixels of each.
        channels : tuple
            Numbers of input and output channels.
        window : Number
            Number of pixels in the filter; 1 for a product of pixels.
        """
        kind = "convolution.channels_last" if window > 1 else "pixel_convolution.channels_last"
        within, without = channels
        depth = within * window
        elements = images * pixels * (within + without) + depth * without
        flop = 2.0 * images * pixels * depth * without
        sizes = {"depth": depth, "width": without, "rows": pixels, "window": window}
        self._add(kind, calls, flop, elements * self.element_bytes, **sizes)

    def depthwise(self, elements: Number, *, window: Number, calls: Number = 1.0) -> None:
        """Add convolutions that each read one channel, and that write as many elements as they read."""
        flop, moved = 2.0 * elements * window, 2.0 * elements * self.element_bytes
        self._add("depthwise_convolution.channels_last", calls, flop, moved, window=window)

    def one_pass(
        self,
        kind: str,
        elements: Number,
        *,
        tensors: Number = 2.0,
        row: Number = 1.0,
        calls: Number = 1.0,
        instructions: Number = FLOP_OF_ELEMENT / FLOP_OF_INSTRUCTION,
    ) -> None:
        """Add passes over memory that read and write a number of tensors of a number of elements.

        `instructions` counts those of one element.
        """
        passes = PASSES_OF_GROUP_NORM if kind == "group_norm" else 1.0
        moved = elements * tensors * self.element_bytes * passes
        self._add(kind, calls, FLOP_OF_INSTRUCTION * instructions * elements, moved, width=row)

    def _add(
        self,
        kind: str,
        calls: Number,
        flop: Number,
        moved_bytes: Number,
        time_ratio: Number = 1.0,
        **sizes: Number,
    ) -> None:
        logs = {name: np.log2(np.array([float(value)])) for name, value in sizes.items()}
        moved = np.array([float(moved_bytes)])
        count = np.array([float(calls)])
        rows = kernel_rows(kind, ONE, count, float(flop), moved, **logs)
        self.parts.append(replace(rows, time_ratio=np.array([float(time_ratio)])))
