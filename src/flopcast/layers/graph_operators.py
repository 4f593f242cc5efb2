"""Operators of an exported graph in a traced block: convolutions, attention, memory-bound kernels.

Answers: how large are these operators for the samples of a micro-batch?
Elsewhere: operators of traced decoders (traced_operators.py), the graphs (graph/), which operators tensor
parallelism divides (graph/division.py).
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag

from flopcast.dtypes import ZERO, Counts, constant
from flopcast.layers.base import Split
from flopcast.layers.tables import is_shared
from flopcast.layers.traced_operators import (
    AbstractTracedOperator,
    Size,
    TracedAttention,
    TracedBatchedMatmul,
    TracedGroupedMatmul,
    TracedMatmul,
    TracedPass,
    TracedTensor,
)
from flopcast.operators.base import AbstractOperator
from flopcast.operators.convolution import Convolution
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.graph_kernel import GraphKernel

Family = Literal[
    "elementwise",
    "reduction",
    "normalisation",
    "pooling",
    "movement",
    "gather",
    "scatter",
    "sort",
    "scan",
    "transform",
    "bias",
    "fork",
    "unknown",
]


class GraphConvolution(AbstractTracedOperator):
    """A convolution, grouped, depthwise or transposed.

    Attributes
    ----------
    rows : Size
        Number of images times the number of output positions of one image. For a transposed convolution, of
        input positions.
    columns : int
        Number of output channels; a transposed convolution counts its input channels here.
    terms : int
        Number of input channels of one group times the number of positions that the filter covers.
    read : Size
        Number of elements of the input. For a transposed convolution, of the output.
    groups : int
        Number of groups of a grouped convolution; 1 for an ordinary convolution.
    transposed : bool
        Whether the convolution is transposed. Its forward pass is then the input gradient of an ordinary
        convolution.
    trained : bool
        Whether the filters have a gradient.
    input_gradient : bool
        Whether the input has a gradient.
    keeps_input : bool
        Whether this operator keeps its input for the backward pass. If several operators read the same
        tensor, only the first one keeps it.
    window : int
        Kernel size of the convolution: number of positions that the filter covers.
    places : int
        Number of positions of the filter on one image.
    stride : int
        Stride of the filter, in pixels of the input.
    channels_last : bool
        Whether tensors have the channels-last memory layout (NHWC).
    """

    kind: Literal["convolution"] = "convolution"
    rows: Size
    columns: int = Field(ge=1)
    terms: int = Field(ge=1)
    read: Size
    groups: int = Field(default=1, ge=1)
    transposed: bool = False
    trained: bool = True
    input_gradient: bool = True
    keeps_input: bool = True
    window: int = Field(default=1, ge=1)
    places: int = Field(default=1, ge=1)
    stride: int = Field(default=1, ge=1)
    channels_last: bool = False

    def work(self, split: Split) -> AbstractOperator:
        """Return the convolution on one micro-batch as a product over its patches.

        `rows` counts output positions and grows with the samples; `terms` is the length of the sum for one
        output element, input channels of a group times the kernel's size. A convolution with one input
        channel for each group is depthwise and has its own kernel class.
        """
        return Convolution(
            rows=self.rows.of(split),
            columns=self.columns / self.cut("column", "within", split=split),
            terms=self.terms / self.cut("row", split=split),
            read=self.read.of(split) / self.cut("row", "within", split=split),
            groups=self.groups / self.cut("within", split=split),
            is_depthwise=self.groups > 1 and self.groups == self.columns,
            is_transposed=self.transposed,
            trained=self.trained,
            has_input_gradient=self.input_gradient,
            keeps_input=self.keeps_input,
            window=self.window,
            places=self.places,
            stride=self.stride,
            channels_last=self.channels_last,
            dtype=split.dtype,
        )

    def summed(self, split: Split) -> Counts | None:
        """Return the whole output of a convolution of which each rank computes a partial sum."""
        return self.rows.of(split) * self.columns if self.division == "row" else None


class GraphAttention(AbstractTracedOperator):
    """Softmax attention with any number of queries and keys.

    Attributes
    ----------
    heads : Size
        Number of query heads, summed over all samples and kernels.
    kv_heads : Size
        Number of key/value heads, summed over all samples and kernels.
    queries : int
        Number of queries of each head.
    keys : int
        Number of keys of each head; cross-attention may have another number of keys than of queries.
    head_size : int
        Number of elements of one query and of one key.
    value_head_size : int, optional
        Number of elements of one value; by default `head_size`.
    causal : bool
        Whether a query attends only to keys up to its own position.
    pieces : int
        Number of kernels that run one after another, each with an equal part of the heads. Models with
        attention windows may run one kernel for each window.
    """

    kind: Literal["graph_attention"] = "graph_attention"
    heads: Size
    kv_heads: Size
    queries: int = Field(ge=1)
    keys: int = Field(ge=1)
    head_size: int = Field(ge=1)
    value_head_size: int | None = Field(default=None, ge=1)
    causal: bool = False
    pieces: int = Field(default=1, ge=1)

    def work(self, split: Split) -> AbstractOperator:
        """Return the kernels on one micro-batch.

        `heads` and `kv_heads` are summed over all samples and kernels. In cross-attention, the number of
        keys differs from the number of queries.
        """
        values, ranks = self.value_head_size, self.cut("within", split=split)
        return FlashAttention(
            batch=self.heads.of(split) / ranks,
            kv_batch=self.kv_heads.of(split) / ranks,
            queries=constant(self.queries),
            keys=None if self.keys == self.queries else constant(self.keys),
            head_size=constant(self.head_size),
            value_head_size=None if values in (None, self.head_size) else constant(values or 0),
            causal=self.causal,
            pieces=self.pieces,
            dtype=split.dtype,
        )


class GraphPass(AbstractTracedOperator):
    """A memory-bound kernel.

    Attributes
    ----------
    family : str
        Kind of the kernel. Its efficiency curve determines the memory bandwidth that the kernel reaches.
    operator : str
        Name of the operator in reports.
    moved : Size
        Number of elements that the kernel reads and writes in the forward pass.
    moved_backward : Size
        Number of elements that the kernel of the backward pass reads and writes.
    read : tuple of Size
        Number of elements of each input.
    written : Size
        Number of elements of the output.
    row : int
        Number of elements in one row of a sum or a norm.
    strided : bool
        Whether the kernel reads elements in an order that differs from their order in memory, as a
        transpose does.
    keeps : tuple of TracedTensor
        Tensors that are kept for the backward pass.
    fusible : bool
        Whether a compiler fuses the kernel with adjacent operators.
    gradient : bool
        Whether the operator also has a kernel in the backward pass.
    looked_up : Size or None
        Number of elements of the rows that the operator reads, if it looks them up in an embedding table
        that is a weight of the block.
    table_elements : int
        Number of elements of this table.
    channels_last : bool
        Whether a batch norm reads images with all channels of a pixel beside each other.
    shared : tuple of int
        Indices in `read` of the inputs that every tensor-parallel rank reads whole, if the operator is
        divided.
    """

    kind: Literal["graph_pass"] = "graph_pass"
    family: Family
    operator: str = ""
    moved: Size
    moved_backward: Size = Size()
    read: tuple[Size, ...] = ()
    written: Size
    row: int = Field(default=1, ge=1)
    strided: bool = False
    keeps: tuple[TracedTensor, ...] = ()
    fusible: bool = False
    gradient: bool = True
    looked_up: Size | None = None
    table_elements: int = Field(default=0, ge=0)
    channels_last: bool = False
    shared: tuple[int, ...] = ()

    def rows_elsewhere(self, split: Split) -> Size | None:
        """Return the rows that the operator looks up in a table that ranks share; otherwise None."""
        return self.looked_up if is_shared(self.table_elements, split) else None

    @property
    def picks_rows(self) -> bool:
        """Return whether the operator picks rows of its first input, which is not a table of weights."""
        return self.family == "gather" and self.looked_up is None and bool(self.read)

    def work(self, split: Split) -> AbstractOperator:
        """Return the memory-bound kernel on one micro-batch."""
        ranks = self.cut("within", split=split)
        read = tuple(size.of(split) for size in self.read)
        whole = sum((read[place] for place in self.shared), ZERO) * (1.0 - 1.0 / ranks)
        return GraphKernel(
            family=self.family,
            operator=self.operator,
            row=self.row,
            is_strided=self.strided,
            channels_last=self.channels_last,
            moved=self._share(self.moved, whole, ranks, split),
            moved_backward=self._share(self.moved_backward, whole, ranks, split),
            written=self.written.of(split) / ranks,
            kept=tuple((tensor.name, tensor.of(split)) for tensor in self.keeps),
            read=tuple(size if place in self.shared else size / ranks for place, size in enumerate(read)),
            is_fusible=self.fusible,
            has_gradient=self.gradient,
            dtype=split.dtype,
        )

    def _share(self, size: Size, whole: Counts, ranks: Counts, split: Split) -> Counts:
        """Return what one rank moves: its part of divided tensors, and `whole` more of all others."""
        moved = size.of(split)
        return moved / ranks + np.minimum(whole, moved * (1.0 - 1.0 / ranks))


def _kind_of_operator(value: object) -> str:
    """Return the field `kind`, by which pydantic chooses the class of an operator."""
    return str(value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", ""))


TracedOperator = Annotated[
    Annotated[TracedPass, Tag("pass")]
    | Annotated[TracedMatmul, Tag("matmul")]
    | Annotated[TracedBatchedMatmul, Tag("batched_matmul")]
    | Annotated[TracedAttention, Tag("attention")]
    | Annotated[TracedGroupedMatmul, Tag("grouped_matmul")]
    | Annotated[GraphConvolution, Tag("convolution")]
    | Annotated[GraphAttention, Tag("graph_attention")]
    | Annotated[GraphPass, Tag("graph_pass")],
    Discriminator(_kind_of_operator),
]
