"""Operators of exported graphs as rows of kernels.

Answers: which class, FLOP, bytes and coordinates do the forward and backward kernels of an operator have?
Elsewhere: the classes (kernel_classes.py), the seconds (efficiency.py), operators of benchmarked models
(lab/graph_runs/kernels.py).

Coordinates are those of the forward pass: gradients of a product have the coordinates of the product.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flopcast.cost.graph_kernels.kernel_classes import COORDINATES, GRAPH_KERNELS, NUMBERS
from flopcast.cost.graph_kernels.kernel_rows import KernelRows
from flopcast.cost.graph_kernels.priors import FLOP_OF_ELEMENT
from flopcast.cost.kernels.unscaled import broadcast_flat
from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts, Flags, Floats
from flopcast.operators.base import AbstractOperator
from flopcast.operators.convolution import Convolution
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.graph_kernel import GraphKernel
from flopcast.operators.item import Item
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.records import Record
from flopcast.units import Number

ALIGNMENT = 8  # elements of 16 bits that matrix engines load at once
PASSES_OF_PLANES = 3.0  # matrix engines read and write pixels: planes are transposed before and after
PASSES_OF_REORDERED_WEIGHTS = 3.0
"""On processors, oneDNN's convolutions read weights in blocks. Unless PyTorch freezes the weights, a kernel
before each convolution reads them, loads the cache lines of the blocks, and writes the blocks (intel/ideep
on GitHub, issue 7; pytorch, pull request 103642)."""
FEW_CHANNELS = 2  # of a group: no matrix engine helps
CLASSES: Mapping[str, str] = {  # canonical operators of graphs, or their families → classes
    **dict.fromkeys(("batch_norm", "batch_norm_inference"), "batch_norm"),
    **dict.fromkeys(("group_norm", "instance_norm"), "group_norm"),
    **dict.fromkeys(("softmax", "log_softmax"), "softmax"),
    "cast": "cast",
    "concatenate": "concatenate",
    "pad": "pad",
    **dict.fromkeys(("interpolate", "grid_sample"), "interpolate"),
    "roll": "gather",
    "bias": "bias",
    "normalisation": "layer_norm",
    "reduction": "reduce",
    "pooling": "pool",
    "movement": "copy",
    "gather": "gather",
    "scatter": "gather",
    **dict.fromkeys(("sort", "scan", "transform", "unknown"), "copy"),
    **dict.fromkeys(("elementwise", "fork"), "elementwise"),
}
WITHOUT_FLOP = ("bias",)  # classes whose instructions hide behind their bytes
FORWARD_PHASES: Mapping[str, str] = {"batch_norm": ".training", "fork": ".gradients"}
PASSES_OF_FAMILY: Mapping[str, Number] = {  # estimates: no table has such kernels
    "scatter": 2.0,  # rows are read, added to and written by atomic operations
    "sort": 3.0,  # keys and positions
    "scan": 2.0,
    "transform": 1.5,  # several kernels
    "unknown": 2.0,
}
UNMEASURED_LOG_SIGMA = 0.3  # of these families: an estimate


class _Described(Record, eq=False):
    """One kernel: its class, its phase if no gradient tells it, work, and coordinates before logarithms."""

    name: str
    flop: Floats
    moved_bytes: Floats
    sizes: Mapping[str, Counts]
    phase: str = ""


def rows_of_items(items: Sequence[Item]) -> tuple[KernelRows, list[tuple[int, ...]]]:
    """Return a row for each plan of each item, and the shape of the rows of each item."""
    names, shapes, columns = list[str](), list[tuple[int, ...]](), list[list[Floats]]()
    operators = ((item.work, item.phase) for item in items if isinstance(item.work, AbstractOperator))
    for work, pass_name in operators:
        is_gradient = pass_name not in FORWARD
        found = DESCRIBED[type(work)](work, is_gradient)
        name = f"{found.name}{found.phase or ('.gradients' if is_gradient else '')}"
        names.append(name if name in GRAPH_KERNELS else name.removeprefix("masked_"))
        sizes = (found.sizes.get(coordinate, NO_SIZE[coordinate]) for coordinate in COORDINATES)
        shape, flat = broadcast_flat((found.flop, found.moved_bytes, work.kernels(), *sizes))
        shapes.append(shape)
        columns.append(flat)
    flop, moved_bytes, calls, *values = map(np.concatenate, zip(*columns, strict=True))
    table = np.stack(values, axis=-1)
    are_sizes = np.array([coordinate not in FLAGS for coordinate in COORDINATES])
    table[:, are_sizes] = np.log2(np.maximum(table[:, are_sizes], 1.0))
    counts = [math.prod(shape) for shape in shapes]
    rows = KernelRows(
        graph=np.zeros(len(flop), dtype=np.intp),
        kernel=np.repeat([NUMBERS[name] for name in names], counts),
        calls=calls,
        flop=flop / calls,
        moved_bytes=moved_bytes / calls,
        coordinates=table,
        time_ratio=np.ones(len(flop)),
    )
    return rows, shapes


FORWARD = ("forward", "recompute")
FLAGS = ("misaligned", "strided")
NO_SIZE = {coordinate: np.full((1, 1), 0.0 if coordinate in FLAGS else 1.0) for coordinate in COORDINATES}


def is_of_graphs_alone(item: Item) -> bool:
    """Return whether only exported graphs have such an operator, so that no curve prices it."""
    return type(item.work) in (Convolution, GraphKernel)


def is_described(item: Item) -> bool:
    """Return whether rows describe an operator; GEMMs in 8 or 4 bits are priced only by curves."""
    return type(item.work) in DESCRIBED and not getattr(item.work, "narrow", "")


def unmeasured_family(item: Item) -> str:
    """Return the family of a kernel that no table contains; "" for all other kernels."""
    family = item.work.family if isinstance(item.work, GraphKernel) else ""
    return family if family in PASSES_OF_FAMILY else ""


def convolution_names(
    groups: Counts, within: Counts, without: Counts, window: Counts, last: Flags
) -> list[str]:
    """Return the class of each convolution.

    `within` and `without` are the input and output channels of one group.
    """
    is_depthwise = (groups > 1) & (within <= FEW_CHANNELS) & (without <= FEW_CHANNELS)
    base = np.where(window > 1, "convolution", "pixel_convolution")
    base = np.where(groups > 1, "grouped_convolution", base)
    base = np.where(is_depthwise, "depthwise_convolution", base)
    suffix = np.where(last, ".channels_last", "")
    return [f"{name}{end}" for name, end in zip(base.tolist(), suffix.tolist(), strict=True)]


def image_passes(
    groups: Counts, within: Counts, window: Counts, last: Flags, element_bytes: Number
) -> Counts:
    """Return how often a convolution moves its images: 16-bit images in NCHW layout are also transposed."""
    in_16_bits = element_bytes <= ELEMENT_BYTES["fp16"]
    is_transposed = ~last & in_16_bits & ((window > 1) | (groups > 1)) & (within > FEW_CHANNELS)
    return np.where(is_transposed, PASSES_OF_PLANES, 1.0)


def misaligned(first: Counts, second: Counts) -> Counts:
    """Return 1 if a size is not a multiple of what matrix engines load at once, and 0 otherwise."""
    return np.where((first % ALIGNMENT > 0) | (second % ALIGNMENT > 0), 1.0, 0.0)


def _convolution(work: Convolution, _is_gradient: bool) -> _Described:
    need, groups = work.work(), ONE if work.groups is None else work.groups
    whole = np.asarray(work.terms)
    width = work.columns / groups
    within = whole / work.window
    last = np.array([work.channels_last])
    window = np.full((1, 1), float(work.window))
    first = (np.ravel(each)[:1] for each in (groups, within, width, window, last))
    (name,) = convolution_names(*first)
    element_bytes = ELEMENT_BYTES[work.dtype]
    passes = image_passes(groups, within, window, last, element_bytes)
    weights = work.weight_elements * element_bytes
    return _Described(
        name=name,
        flop=need.flop,
        moved_bytes=passes * (need.moved_bytes - weights) + weights,
        sizes={
            "depth": whole,
            "width": width,
            "rows": np.full((1, 1), float(work.places)),
            "window": window,
            "stride": np.full((1, 1), float(work.stride)),
            "misaligned": misaligned(within, width),
        },
    )


def _product(work: Matmul, _is_gradient: bool) -> _Described:
    rows, width, depth = work.m, work.n, work.k
    if work.layout == "input_gradient":
        width, depth = depth, width
    elif work.layout == "weight_gradient":
        rows, width, depth = depth, rows, width
    return _of_sizes("product", work, rows, width, depth)


def _grouped_product(work: GroupedMatmul, _is_gradient: bool) -> _Described:
    width, depth = (work.k, work.n) if work.layout == "input_gradient" else (work.n, work.k)
    return _of_sizes("product", work, work.rows / np.maximum(work.groups, 1.0), width, depth)


def _batched_product(work: BatchedMatmul, _is_gradient: bool) -> _Described:
    sizes = (work.keys, work.head_size) if work.role == "scores" else (work.head_size, work.keys)
    return _of_sizes("batched_product", work, work.queries, *sizes)


def _of_sizes(name: str, work: AbstractOperator, rows: Counts, width: Counts, depth: Counts) -> _Described:
    need = work.work()
    sizes = {"depth": depth, "width": width, "rows": rows, "misaligned": misaligned(depth, width)}
    return _Described(name=name, flop=need.flop, moved_bytes=need.moved_bytes, sizes=sizes)


def _attention(work: FlashAttention, _is_gradient: bool) -> _Described:
    need, keys = work.work(), work.queries if work.keys is None else work.keys
    sizes = {"depth": work.head_size, "rows": keys}
    name = "masked_attention" if work.causal else "attention"
    return _Described(name=name, flop=need.flop, moved_bytes=need.moved_bytes, sizes=sizes)


def _pass(work: GraphKernel, is_gradient: bool) -> _Described:
    moved_bytes = work.work().moved_bytes * PASSES_OF_FAMILY.get(work.family, 1.0)
    elements = np.maximum(sum(work.read, np.zeros((1, 1))), work.written)
    name = CLASSES.get(work.operator) or CLASSES.get(work.family, "elementwise")
    if work.operator == "batch_norm" and not work.channels_last:
        name = "planar_batch_norm"
    if work.is_joined:
        name = "fused_reduction" if work.row > 1 else "fused_elementwise"
    phase = "" if is_gradient else FORWARD_PHASES.get(work.operator, "")
    each_flop = 0.0 if name in WITHOUT_FLOP else FLOP_OF_ELEMENT * (2.0 if is_gradient else 1.0)
    flop = np.where(moved_bytes > 0, each_flop * elements, 0.0)
    sizes = {"width": np.full((1, 1), float(work.row)), "strided": np.full((1, 1), float(work.is_strided))}
    return _Described(name=name, flop=flop, moved_bytes=moved_bytes, sizes=sizes, phase=phase)


DESCRIBED: Mapping[type, Callable[..., _Described]] = {
    Convolution: _convolution,
    Matmul: _product,
    GroupedMatmul: _grouped_product,
    BatchedMatmul: _batched_product,
    FlashAttention: _attention,
    GraphKernel: _pass,
}
