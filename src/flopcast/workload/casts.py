"""Costs of a precision recipe on one stack: bytes of a cast, and the casts of weights.

Answers: which GEMMs does a recipe change, how many bytes does the cast of an element move, when are weights
cast, and how much memory do their low-precision copies need?
Elsewhere: the recipes (spec/precision.py), the casts of activations and gradients (rewrites/quantise.py).
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts, constant
from flopcast.operators.formats import FORMATS
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.quantise import Quantise
from flopcast.records import Record, replace
from flopcast.spec.precision import BOTH_PASSES, NarrowProducts, Recipe

Product = Matmul | GroupedMatmul


class Casts(Record, eq=False, kw_only=False):
    """The casts of one recipe on one stack, as bytes moved for each element.

    `ranks` is the tensor-parallel degree, (plans, 1): a rank casts its own part of a gathered tensor. If
    weights are `frozen`, there is no weight gradient: one GEMM reads the inputs and one the output
    gradients, so each needs only one layout. With `together`, one kernel casts the rows of all experts;
    otherwise, each expert has a separate kernel.
    """

    recipe: Recipe
    stack: NarrowProducts
    ranks: Counts
    frozen: bool = False
    together: bool = False

    def of(self, product: Item) -> "Casts":
        """Return the casts around one GEMM."""
        work = product.work
        return replace(self, frozen=isinstance(work, Product) and not work.trained)

    def groups_of(self, product: Item) -> Counts:
        """Return the number of kernels that cast the operand of one GEMM: one for each separate expert."""
        work = product.work
        apart = isinstance(work, GroupedMatmul) and work.separate and not self.together
        return work.groups if apart and isinstance(work, GroupedMatmul) else ONE

    def spares_wide_weights(self, product: Item) -> bool:
        """Return whether the weight of one GEMM is stored only in low precision, without a 16-bit copy."""
        trains = self.stack.narrow_parameters and FORMATS[self.recipe.format].may_be_parameters
        return trains or (self.stack.frozen_parameters and self.of(product).frozen)

    def transposes_each_pass(self, product: Item) -> bool:
        """Return whether each backward pass transposes the weight of one GEMM again.

        This happens if a weight is kept only in 8 bits, the device needs a transposed copy, and the stack
        does not cache this copy.
        """
        turns = self.stack.transposes and not self.recipe.both_layouts
        return turns and not self.stack.weight_caching and self.spares_wide_weights(product)

    def kept_layouts(self, product: Item) -> int:
        """Return the number of low-precision copies of the weight of one GEMM that are kept."""
        return 1 if self.transposes_each_pass(product) else self.weight_layouts

    @property
    def size_bytes(self) -> float:
        """Return the bytes of a low-precision element."""
        return FORMATS[self.recipe.format].size_bytes

    @property
    def layouts(self) -> int:
        """Return the number of copies of a tensor that two products read along different dimensions."""
        return 1 if self.frozen else self.weight_layouts

    @property
    def weight_layouts(self) -> int:
        """Return the number of copies of a weight.

        The forward pass and the input gradient need different layouts.
        """
        return 2 if self.recipe.both_layouts or self.stack.transposes else 1

    @property
    def gathered_layouts(self) -> int:
        """Return the number of copies that are cast before an all-gather, one per layout that is sent."""
        return 2 if self.recipe.both_layouts and not self.frozen else 1

    @property
    def norm_passes(self) -> int:
        """Return the passes over a 16-bit tensor that are saved if the norm does part of the cast."""
        writes_blocks = FORMATS[self.recipe.format].norms_write and self.stack.block_scaled_norms
        return BOTH_PASSES if writes_blocks else self.recipe.norm_passes

    def weight_bytes_of(self, wide_bytes: float, layouts: int) -> float:
        """Return the bytes that the cast of one element of a weight moves, in each layout."""
        return self.recipe.reads * wide_bytes + layouts * self.size_bytes

    def cycles_of(self, tensors: Literal["inputs", "gradients", "weights"]) -> float:
        """Return the minimum number of cycles of a multiprocessor for the cast of an element."""
        return float(getattr(self.stack.nvfp4_cast_cycles, tensors)) if self.recipe.transforms else 0.0

    def bytes_of(self, wide_bytes: float, layouts: int, after_norm: bool = False) -> float:
        """Return the bytes per element that the cast of an input or gradient moves, less those of a
        norm.
        """
        apart = self.recipe.transforms and not self.stack.fused_transform and not self.frozen
        passes = self.recipe.reads + int(apart) - (self.norm_passes if after_norm else 0)
        return max(passes * wide_bytes + layouts * self.size_bytes, 0.0)


def is_low_precision(item: Item) -> bool:
    """Return whether a recipe applies to this item: a linear layer's product that is not marked wide."""
    return isinstance(item.work, Product) and not item.wide


def weight_casts(items: Iterable[Item], recipe: Recipe, stack: NarrowProducts) -> tuple[Item, ...]:
    """Return the casts of the weights of a layer's low-precision GEMMs, before its forward pass.

    Each weight is read as often as the recipe reads a tensor, and written in each layout. Weights that are
    kept only in low precision (`spared_weight_bytes`) are cast once for each update. If they are frozen,
    they were cast before training began.
    """
    cast = Casts(recipe, stack, ONE)
    return tuple(
        replace(
            kernel(f"{item.name}_weight_cast", work, component="casts"),
            when="first" if stack.weight_caching or cast.spares_wide_weights(item) else "every",
        )
        for item in items
        for work in _weights(item, cast)
        if not (cast.of(item).frozen and cast.spares_wide_weights(item))
    )


def low_precision_weight_bytes(items: Iterable[Item], recipe: Recipe, stack: NarrowProducts) -> Counts:
    """Return the bytes of low-precision copies of a layer's weights, (plans, 1)."""
    cast = Casts(recipe, stack, ONE)
    sizes = [
        work.elements * cast.kept_layouts(item) * cast.size_bytes
        for item in items
        for work in _weights(item, cast)
    ]
    return sum(sizes, constant(0.0))


def spared_weight_bytes(items: Iterable[Item], recipe: Recipe, stack: NarrowProducts) -> Counts:
    """Return the bytes of the 16-bit weights of one layer that the stack does not keep.

    They are 0 unless the stack keeps parameters only in low precision. Megatron-Core keeps 16-bit copies of
    trained parameters in 4-bit recipes.
    """
    cast = Casts(recipe, stack, ONE)
    sizes = [
        work.elements * ELEMENT_BYTES[work.dtype]
        for item in items
        if cast.spares_wide_weights(item)
        for work in _weights(item, cast)
    ]
    return sum(sizes, constant(0.0))


def _weights(item: Item, cast: Casts) -> Iterator[Quantise]:
    """Yield the cast of the weight of a low-precision product; none for other items."""
    work = item.work
    if not is_low_precision(item) or not isinstance(work, Product):
        return
    elements = weight_elements(work)
    yield Quantise(
        elements=elements,
        each_bytes=cast.weight_bytes_of(ELEMENT_BYTES[work.dtype], cast.kept_layouts(item)),
        cycles=elements * cast.cycles_of("weights"),
        dtype=work.dtype,
    )


def weight_elements(work: Product) -> Counts:
    """Return the elements of a GEMM's weight, or of the weights of all its groups."""
    groups = work.groups if isinstance(work, GroupedMatmul) else ONE
    return groups * work.n * work.k


def sizes_of(work: object) -> tuple[Counts, Counts, str]:
    """Return the elements of the input and of the output of a product, and their dtype."""
    if isinstance(work, GroupedMatmul):
        return work.rows * work.k, work.rows * work.n, work.dtype
    if isinstance(work, Matmul):
        return work.m * work.k, work.m * work.n, work.dtype
    return ONE, ONE, "bf16"
