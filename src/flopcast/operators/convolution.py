"""Convolutions as products: each output position is a row, and each output channel a column (implicit
GEMM).

Answers: what are the FLOP, bytes, gradients and kept tensors of a convolution (also grouped, depthwise or
transposed)?
Elsewhere: products of plain matrices (matmul.py), the graph that contains convolutions (graph/).

No matrix of patches is written, because kernels read the input directly (cuDNN, arXiv:1410.0759, section
3). Bytes are therefore those of input, filters and output. Kernels with one input channel per group do not
use matrix engines, and have a separate class.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace


class Convolution(AbstractOperator):
    """`groups` products of [rows, terms] and [terms, columns / groups].

    Examples
    --------
    The first convolution of ResNet-50 has 64 filters of 7 · 7 pixels in 3 channels, at 112 · 112 positions:

    >>> from flopcast.dtypes import constant
    >>> first = Convolution(rows=constant(112 * 112), columns=constant(64), terms=constant(3 * 7 * 7),
    ...                     read=constant(3 * 224 * 224), dtype="bf16")
    >>> first.work().flop.item() / 1e6, first.kernel, [suffix for suffix, _ in first.gradients()]
    (236.027904, 'convolution.forward', ['dgrad', 'wgrad'])
    """

    rows: Counts  # images · places of the output; of a transposed one, of its input
    columns: Counts  # channels of the output, over all groups; of a transposed one, of its input
    terms: Counts  # of one sum: channels of one group · places of the filter
    read: Counts  # elements of the input; of a transposed one, of its output
    dtype: str
    groups: Counts | None = None
    is_depthwise: bool = False
    is_transposed: bool = False  # the input gradient of a convolution, run forward
    layout: str = "forward"
    trained: bool = True
    has_input_gradient: bool = True  # the images of a batch have none
    keeps_input: bool = True  # unless another operator of another layer keeps it
    window: int = 1  # places of the filter
    places: int = 1  # of one image that are rows
    stride: int = 1
    channels_last: bool = False  # all channels of a pixel lie beside each other in memory

    @property
    def kernel(self) -> str:
        """Return one curve for all layouts of GEMMs, and one for each layout of depthwise kernels."""
        return f"{'depthwise_' if self.is_depthwise else ''}convolution.{self.layout}"

    @property
    def _groups(self) -> Counts:
        return np.ones((1, 1)) if self.groups is None else self.groups

    @property
    def weight_elements(self) -> Counts:
        """Return the elements of all filters."""
        return self.columns * self.terms

    @property
    def output_bytes(self) -> Counts:
        """Return the bytes that the forward kernel writes."""
        written = self.read if self.is_transposed else self.rows * self.columns
        return written * ELEMENT_BYTES[self.dtype]

    @property
    def input_bytes(self) -> Counts:
        """Return the bytes that the forward kernel reads, without its filters."""
        entered = self.rows * self.columns if self.is_transposed else self.read
        return entered * ELEMENT_BYTES[self.dtype]

    def work(self) -> Work:
        """Return the work. Every layout has the same products and the same three tensors."""
        elements = self.read + self.weight_elements + self.rows * self.columns
        return Work(
            flop=2 * self.rows * self.columns * self.terms,
            moved_bytes=elements * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return rows of all groups, columns of one group, and terms, in the order of the layout.

        The coordinate of a depthwise kernel is its bytes, as for memory-bound kernels.
        """
        if self.is_depthwise:
            return (self.work().moved_bytes,)
        columns = self.columns / self._groups
        rows = self.rows * self._groups
        if self.layout == "weight_gradient":
            return self.columns, self.terms, self.rows
        if (self.layout == "input_gradient") != self.is_transposed:
            return rows, self.terms, columns
        return rows, columns, self.terms

    def saves(self) -> tuple[Saved, ...]:
        """Return the input, for the gradient of the filters."""
        if not (self.trained and self.keeps_input):
            return ()
        return (Saved(role="input:0", size_bytes=self.input_bytes),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return the gradients of the input, if it has one, and of the filters, if they are trained."""
        found: list[tuple[str, AbstractOperator]] = []
        if self.has_input_gradient:
            found.append(("dgrad", replace(self, layout="input_gradient")))
        if self.trained:
            found.append(("wgrad", replace(self, layout="weight_gradient")))
        return tuple(found)
