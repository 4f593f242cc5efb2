"""The layers of a vision tower: patches of images, blocks over them, and projections to a decoder's tokens.

Answers: weights, sharding and forward items of each layer.
Elsewhere: the description of a tower (layers/vision.py), sizes of images and grids of patches
(layers/images.py), what a block runs (layers/block.py).

The tower has its own width and processes the patches of all images of a micro-batch. A patch attends to the
patches of its image, or of a window of its image. At the end, projections turn patches into tokens of the
decoder's width, which replace the image tokens of the sequence. Every rank of a tensor-parallel group
computes all patches with its share of the heads and of the inner widths, without sequence parallelism. With
context parallelism, each rank that shares a sequence runs the tower over all images of the sequence.

Tensors: `pixels` → `x` (patches, width) → blocks → `x` → `merged` (tokens, width · merge²) → `hidden1` … →
`y` (tokens, hidden). Items have the component "vision".
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.adapters import frozen_item
from flopcast.layers.attention import Attention
from flopcast.layers.base import (
    AbstractLayer,
    Norm,
    Split,
    Weight,
    enter_tensor_parallel,
    leave_tensor_parallel,
    linear_weights,
    memory_pass,
    norm_weights,
    replicated,
    row_parallel,
    whole_matrix,
)
from flopcast.layers.block import Block
from flopcast.layers.images import Patching
from flopcast.layers.mlp import Mlp
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.records import replace
from flopcast.strict_model import StrictModel

COLORS = 3  # red, green and blue


class TowerBlock(Block):
    """A block of a vision tower: attention without a mask inside each image, then an MLP.

    Attributes
    ----------
    window_pixels : int, optional
        Side of the square windows inside which patches attend to each other (Qwen2.5-VL); by default, all
        patches of an image do.
    layer_scale : bool
        Whether the results of attention and MLP are multiplied by a vector each before they are added to
        the residual stream (InternVL).
    """

    window_pixels: int | None = Field(default=None, ge=1)
    layer_scale: bool = False

    @model_validator(mode="after")
    def _sees_images(self) -> "TowerBlock":
        if not isinstance(self.mixer, Attention) or not isinstance(self.feed_forward, Mlp):
            raise ValueError(
                "a mixer of kind attention and a feed_forward of kind mlp in blocks of a vision tower"
            )
        if self.mixer.causal:
            raise ValueError(
                "mixer.causal: false in blocks of a vision tower, because patches attend to each other in"
                " both directions"
            )
        if self.reads != "sequence" or self.cross:
            raise ValueError("no value of reads and cross in blocks of a vision tower")
        return self


class Projection(StrictModel):
    """A projection from the patches of a tower to tokens of the decoder.

    Attributes
    ----------
    widths : tuple of int
        Output widths of the matrices of the projection, in order. An activation function follows each
        matrix except the last. The last width is the hidden size of the decoder.
    norm : str or None
        Kind of the norm before the first matrix of the projection; null if there is none.
    norm_merged : bool
        Whether the norm has the width of merged patches instead of the width of a single patch.
    bias : bool
        Whether the matrices, and the norm if it is a layer norm, have biases.
    pooled : bool
        Whether patches that are merged into one token are averaged (Gemma 3) instead of concatenated.
    count : int
        Number of equal projections; Qwen3-VL has additional ones for the outputs of inner layers of the
        tower.
    """

    widths: tuple[int, ...] = Field(min_length=1, max_length=8)
    norm: Norm | None = None
    norm_merged: bool = False
    bias: bool = True
    pooled: bool = False
    count: int = Field(default=1, ge=1)


class TowerLayer(AbstractLayer):
    """A layer of a tower, which processes patches at the width of the tower.

    `width` is the width of the tower, and `patching` describes how images are divided into patches. A layer
    that is not `trained` runs only the forward pass.
    """

    width: int
    patching: Patching
    trained: bool = True

    def width_of(self, hidden: int) -> int:
        """Return the width of the tower."""
        return self.width

    def split_of(self, split: Split) -> Split:
        """Return the split of all patches of a micro-batch, which are not divided over ranks."""
        patches = [[float(self.patching.patches(images))] for images in split.images] or [[0.0]]
        return replace(
            split, length=np.array(patches), context=ONE, context_exchange="none", documents=ONE,
            sequence_parallel=False,
        )  # fmt: skip

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the tensors of the layer, which have no gradient if it is frozen."""
        return tuple(
            replace(
                weight,
                name=f"vision.{weight.name}",
                active=0,  # no token of text uses it
                trained=self.trained,
                forward_only=not self.trained,
            )
            for weight in self.own_weights(hidden, self.split_of(split))
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items from tensor "x" to tensor "y"; none if no sequence has images."""
        if not split.images:
            return ()
        return tuple(map(self._named, self.own_items(hidden, self.split_of(split))))

    def own_weights(self, hidden: int, split: Split) -> Iterable[Weight]:
        """Return the weights of the layer if it is trained."""
        raise NotImplementedError

    def own_items(self, hidden: int, split: Split) -> Iterable[Item]:
        """Return the items of the layer if it is trained."""
        raise NotImplementedError

    def _named(self, item: Item) -> Item:
        """Return an item under the name of the tower, without gradients of frozen weights."""
        component = item.component if item.component.endswith("communication") else "vision"
        named = replace(item, name=f"vision.{item.name}", component=component, wide=True)
        return named if self.trained else frozen_item(named)


class Patches(TowerLayer):
    """The patches of images, each multiplied by one matrix, with positions and norms outside of blocks."""

    kind: Literal["patches"] = "patches"
    frames: int = 1
    bias: bool = False
    positions: int = 0
    norms: int = 0
    norm: Norm = "layernorm"

    def own_weights(self, hidden: int, split: Split) -> Iterator[Weight]:
        """Yield the matrix, of which every rank holds all elements, the class token, the positions and the
        norms.
        """
        yield whole_matrix("patches", self._pixels, self.width)
        if self.bias:
            yield replicated("patches_bias", self.width)
        if self.patching.class_token:
            yield replicated("class_token", self.width)
        if self.positions:
            yield whole_matrix("positions", self.positions, self.width)
        for number in range(self.norms):
            yield from norm_weights(f"norm{number}", self.norm, self.width, True)

    @property
    def _pixels(self) -> int:
        """Return the numbers of a patch."""
        return COLORS * self.frames * self.patching.patch**2

    def own_items(self, hidden: int, split: Split) -> Iterator[Item]:
        """Yield items from "pixels" to "y"."""
        extra = [
            sum(number for *_, number in self.patching.grids(images)) * float(self.patching.class_token)
            for images in split.images
        ]
        rows = split.tokens - split.sequences * np.array(extra)[:, None]
        product = Matmul(
            m=rows, n=constant(self.width), k=constant(self._pixels), dtype=split.dtype, reads_data=True
        )
        yield kernel("patches", product, ("pixels",), "y", component="vision")
        passes = ((self.bias, "bias_add"), (self.positions, "position_add"))
        for kind in (*(kind for wanted, kind in passes if wanted), *(self.norm,) * self.norms):
            work = memory_pass(kind, split.tokens * self.width, split, constant(self.width))
            yield kernel(kind, work, ("y",), "y", component="vision")


class SeenBlock(TowerLayer):
    """A block of the tower. It has the kind of other blocks, so that recompute and sharding apply to it."""

    kind: Literal["block"] = "block"
    block: TowerBlock

    def split_of(self, split: Split) -> Split:
        """Return the division of the sequence into documents: one for each image, or each window of the
        mean size.
        """
        whole = super().split_of(split)
        window = self.block.window_pixels
        mean = [[self.patching.attended(images, window) if images else 1.0] for images in split.images]
        documents = whole.length / np.array(mean or [[1.0]])
        return replace(whole, documents=np.maximum(documents, 1.0))

    def own_weights(self, hidden: int, split: Split) -> Iterable[Weight]:
        """Return the tensors of the block."""
        names = ("attention.scale", "mlp.scale") if self.block.layer_scale else ()
        scales = [replicated(name, self.width) for name in names]
        return (*self.block.weights(self.width, split), *scales)

    def own_items(self, hidden: int, split: Split) -> Iterable[Item]:
        """Yield the items of the block. With `layer_scale`, another pass reads and writes each result."""
        for item in self.block.forward(self.width, split):
            if self.block.layer_scale and item.name.endswith(".residual"):
                source, output = item.inputs[0], f"{item.inputs[0]}.scaled"
                work = memory_pass("scale_rows", split.tokens * self.width, split, constant(self.width))
                name = f"{item.name.partition('.')[0]}.scale"
                yield kernel(name, work, (source,), output, component="vision")
                yield replace(item, inputs=(output, *item.inputs[1:]))
            else:
                yield item


class Projector(TowerLayer):
    """The layer of a projection.

    Of each pair of matrices, the first is divided along its output and the second along its input. If the
    last matrix has no partner, every rank holds all of it.
    """

    kind: Literal["projector"] = "projector"
    projection: Projection
    reads_data: bool = False  # the tower before it is frozen

    @property
    def _inputs(self) -> int:
        return self.width * (1 if self.projection.pooled else self.patching.merge**2)

    @property
    def _matrices(self) -> list[tuple[str, int, int, str]]:
        """Return name, rows, columns and cut of each matrix."""
        sizes = [*pairwise((self._inputs, *self.projection.widths))]
        paired = len(sizes) // 2 * 2
        return [
            (f"projector{place}", *size, "none" if place >= paired else ("output", "input")[place % 2])
            for place, size in enumerate(sizes)
        ]

    def own_weights(self, hidden: int, split: Split) -> Iterator[Weight]:
        """Yield the norm and the matrices, with their biases."""
        own = self.projection
        if own.norm:
            width = self._inputs if own.norm_merged else self.width
            yield from norm_weights("projector_norm", own.norm, width, own.bias)
        for name, rows, columns, cut in self._matrices:
            if cut == "output":
                yield from linear_weights(name, rows, columns, split.tensor, own.bias)
                continue
            ranks = split.tensor if cut == "input" else ONE
            yield row_parallel(name, rows, columns, ranks)
            if own.bias:
                yield replicated(f"{name}_bias", columns)

    def own_items(self, hidden: int, split: Split) -> Iterator[Item]:
        """Yield items from "x" to "y": norm, merged patches, products and the copy into the sequence."""
        own, dtype = self.projection, split.dtype
        per_sequence = np.array([[float(self.patching.tokens(images))] for images in split.images])
        tokens = split.sequences * per_sequence
        at_tokens = replace(split, length=per_sequence)

        def over(kind: str, name: str, elements: Counts, width: int, source: str, output: str) -> Item:
            work = memory_pass(kind, elements, split, constant(width))
            return kernel(name, work, (source,), output, component="vision")

        last = "x"
        if own.norm:
            width = self._inputs if own.norm_merged else self.width
            yield over(own.norm, "projector_norm", split.tokens * self.width, width, last, "normed")
            last = "normed"
        yield over("copy", "merge", split.tokens * self.width, self.width, last, "merged")
        last = "merged"
        for place, (name, rows, columns, cut) in enumerate(self._matrices):
            output = f"hidden{place + 1}"
            if cut == "output":
                yield enter_tensor_parallel(last, f"{name}.enter", rows, at_tokens)
                last = f"{last}.full"
            n = columns / split.tensor if cut == "output" else constant(columns)
            k = rows / split.tensor if cut == "input" else constant(rows)
            product = Matmul(m=tokens, n=n, k=k, dtype=dtype, reads_data=self.reads_data and not place)
            yield kernel(name, product, (last,), output, component="vision")
            last = output
            if cut == "input":
                yield leave_tensor_parallel(last, f"{last}.sum", f"{name}.leave", columns, at_tokens)
                last = f"{last}.sum"
            if own.bias:
                yield over("bias_add", f"{name}_bias", tokens * n, columns, last, last)
            if place + 1 < len(own.widths):
                yield over("gelu", f"{name}_gelu", tokens * n, columns, last, f"active{place + 1}")
                last = f"active{place + 1}"
        yield over("copy", "scatter", tokens * own.widths[-1], own.widths[-1], last, "y")
