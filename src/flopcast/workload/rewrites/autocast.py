"""Kernels of eager PyTorch under `torch.autocast` with fp32 weights: casts, and a residual stream in fp32.

Answers: which tensors of a layer are in fp32, and where are tensors cast to 16 bits and back?
Elsewhere: graphs that were exported without autocast (graph/autocast.py).

Autocast casts the inputs of matrix products and of attention to 16 bits, so their results have 16 bits.
Embeddings and norms have fp32 weights and return fp32, and an addition returns the wider format of its two
inputs. The residual stream is therefore in fp32:

- norms and positions read and write fp32. Norms that are chains of kernels (`unfused_rmsnorm`,
  `wide_rmsnorm`) run square, mean, product and scale in fp32 without casts. A norm casts 16-bit queries or
  keys to fp32, so that the following rotary embeddings also run in fp32;
- each GEMM casts its own input, because autocast caches only the casts of weights. If queries, keys and
  values, or both halves of a gated layer, are products of their own (`separate_projections`, which a stack
  lists before this rewrite), each of them casts it;
- a residual sum reads 16 bits and fp32, and writes fp32. Its backward pass adds two fp32 gradients and
  casts one to 16 bits;
- each weight is cast in every forward pass, and its gradient is cast back. The 16-bit copy is kept until
  the backward pass.

Without norms of queries and keys, rotary embeddings are predicted in 16 bits, although some models multiply
them in fp32. Messages between ranks are predicted in 16 bits, too.

References
----------
aten/src/ATen/autocast_mode.h of pytorch/pytorch: AT_FORALL_LOWER_PRECISION_FP (`linear`,
`scaled_dot_product_attention`), AT_FORALL_FP32 (`layer_norm`); autocast_mode.cpp, `cached_cast`: only fp32
leaf tensors that require gradients are cached. Additions: "Tensor Attributes" of PyTorch's documentation.
"""

import numpy as np

from flopcast.dtypes import ZERO, Counts
from flopcast.operators.base import AbstractMessage
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.records import replace
from flopcast.spec.precision import SIXTEEN_BITS, WIDE
from flopcast.workload.casts import sizes_of, weight_elements
from flopcast.workload.rewrites.base import Items
from flopcast.workload.rewrites.separate_projections import FORK, parts_of

STREAM = ("x", "source")  # what a layer reads: the residual stream, and the result of an encoder
IN_FP32 = {  # kind → what runs in fp32, counted in 16-bit passes
    "residual_add": "mixed_residual_add",
    "unfused_rmsnorm": "fp32_rmsnorm",
    "wide_rmsnorm": "fp32_rmsnorm",
    "wide_scaled_rmsnorm": "fp32_rmsnorm",
}
NORMS = ("layernorm", "rmsnorm", "fused_layernorm", "fused_rmsnorm", *list(IN_FP32)[1:])
GRADIENT_SUM = "fork"  # of the gradients of products that read one tensor, each in fp32 after its cast


def autocast(items: Items) -> Items:
    """Return the items of a layer as they run under autocast.

    A layer without weights, or without 16-bit products, does not change.
    """
    if not any(_has_weights(item) for item in items) or any(_is_wide_product(item) for item in items):
        return items
    wide: dict[str, Counts] = dict.fromkeys(STREAM, ZERO)  # fp32 tensors, and elements of those made here
    result: list[Item] = []
    for item in items:
        reads_wide = any(tensor in wide for tensor in item.inputs)
        found = _under_autocast(item, items, wide, reads_wide)
        result += found
        wide.pop(item.output, None)
        made = found[-1].work
        if _is_wide(made) or (isinstance(made, AbstractMessage) and reads_wide):
            wide[item.output] = made.elements if isinstance(made, MemoryBound) else ZERO
    return tuple(result)


def _has_weights(item: Item) -> bool:
    """Return whether an operator has weights, which autocast expects in fp32."""
    is_norm = isinstance(item.work, MemoryBound) and item.work.kind in NORMS
    return is_norm or isinstance(item.work, Matmul | GroupedMatmul | EmbeddingLookup)


def _is_wide_product(item: Item) -> bool:
    """Return whether an item is a product in fp32."""
    return isinstance(item.work, Matmul | GroupedMatmul) and item.work.dtype not in SIXTEEN_BITS


def _is_wide(work: object) -> bool:
    """Return whether the result of a kernel is in fp32."""
    if isinstance(work, MemoryBound):
        return work.dtype == WIDE or work.kind in IN_FP32.values()
    return isinstance(work, EmbeddingLookup) and work.dtype == WIDE


def _under_autocast(item: Item, items: Items, wide: dict[str, Counts], reads_wide: bool) -> list[Item]:
    """Return one item as it runs, after the casts of its inputs."""
    work = item.work
    if isinstance(work, Matmul | GroupedMatmul):
        return _product(item, items, item.inputs[0] in wide)
    if isinstance(work, EmbeddingLookup):
        return [replace(item, work=replace(work, dtype=WIDE))]
    if isinstance(work, MemoryBound):
        return _memory_bound(item, work, reads_wide)
    if reads_wide and not isinstance(work, AbstractMessage):
        return [*_inputs(item, wide), item]
    return [item]


def _memory_bound(item: Item, work: MemoryBound, reads_wide: bool) -> list[Item]:
    """Return a memory-bound kernel in fp32 if it reads fp32, is a norm, or adds gradients of casts."""
    is_norm = work.kind in NORMS
    if KINDS[work.kind].is_loss or not (reads_wide or is_norm or work.kind == GRADIENT_SUM):
        return [item]
    kind = IN_FP32.get(work.kind)
    wider = replace(work, kind=kind) if kind else replace(work, dtype=WIDE)
    result = replace(item, work=wider)
    if reads_wide or not is_norm:
        return [result]
    cast = replace(work, kind="autocast", width=np.ones_like(work.width))
    return [_cast(item, "input_cast", cast, item.inputs[:1]), result]


def _inputs(item: Item, wide: dict[str, Counts]) -> list[Item]:
    """Return the casts of the fp32 inputs of attention and of other operators that run in 16 bits."""
    casts = []
    for tensor in dict.fromkeys(item.inputs):
        if tensor in wide and np.any(wide[tensor] > 0.0):
            cast = MemoryBound(kind="autocast", elements=wide[tensor], dtype=SIXTEEN_BITS[-1])
            casts.append(_cast(item, f"{tensor.rpartition('.')[2]}_cast", cast, (tensor,)))
    return casts


def _product(product: Item, items: Items, reads_wide: bool) -> list[Item]:
    """Return the casts of a product's weight and input, and the product."""
    work, found = product.work, list[Item]()
    if not isinstance(work, Matmul | GroupedMatmul):
        return [product]
    if work.trained:
        weight = MemoryBound(kind="autocast_weight", elements=weight_elements(work), dtype=work.dtype)
        found.append(_cast(product, "weight_cast", weight, ()))
    if not reads_wide:
        return [*found, product]
    apart = any(item.name == f"{product.name}{FORK}" for item in items)
    elements = sizes_of(work)[0] * (parts_of(product, items) if apart else 1)
    cast = MemoryBound(kind="autocast", elements=elements, dtype=work.dtype)
    found.append(_cast(product, "input_cast", cast, product.inputs[:1]))
    return [*found, replace(product, inputs=(found[-1].output, *product.inputs[1:]))]


def _cast(item: Item, word: str, work: MemoryBound, inputs: tuple[str, ...]) -> Item:
    """Return a cast for one operator, with its own line in the breakdown."""
    name = f"{item.name}_{word}"
    made = kernel(name, work, inputs, name, component="casts", group=item.group)
    return replace(made, count=item.count)
