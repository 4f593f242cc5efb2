"""The kernels that software runs for models with known facts.

Answers: which kernels do eager or compiled inference and training of a model run, and how large are they?
Elsewhere: the facts (facts.py), the seconds (cost/graph_kernels/), kernels of gradients (gradients.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from flopcast.cost.graph_kernels.kernel_rows import KernelRows, joined, kernel_rows
from flopcast.cost.graph_kernels.operator_rows import (
    PASSES_OF_REORDERED_WEIGHTS,
    convolution_names,
    image_passes,
    misaligned,
)
from flopcast.cost.graph_kernels.priors import FLOP_OF_ELEMENT
from flopcast.dtypes import Counts, Floats, Integers
from flopcast.files.package_table import meanings, read_table
from flopcast.lab.graph_runs.facts import KINDS, GraphFacts
from flopcast.records import Record

Precision = Literal["amp", "half", "fp32"]
ELEMENT_BYTES: Mapping[Precision, float] = {"amp": 2.0, "half": 2.0, "fp32": 4.0}
PASSES = meanings(read_table(__package__, "names.yaml")["operators"])
COPIED_IN_PLACE = ("silu", "hardswish", "mish", "elu")
"""Activations that timm runs in place. Their gradients need their input, so that autograd copies it first
in training (tools/autograd/gen_variable_type.py of PyTorch)."""
PASSES_OF_GROUP_NORM = 1.5  # its sums need a pass of their own
USUAL_PASSES = 5.0  # over the results of products between them: a norm, an activation, half a sum
USUAL_SHAPE = {"depth": 8.0, "width": 7.0, "rows": 8.0, "window": 3.17}  # log2


class Software(Record):
    """How a framework runs a model.

    `fuses_attention`: scaled_dot_product_attention is one kernel (PyTorch 2.0 and later). `channels_last`:
    all images are stored channel by channel in each pixel. `reorders_weights`: every convolution first
    brings its weights to the order of its kernel (operator_rows.py).
    """

    precision: Precision = "amp"
    compiled: bool = False
    fuses_attention: bool = True
    channels_last: bool = False
    trains: bool = False
    reorders_weights: bool = False


class Selected(Record, eq=False):
    """Rows of one kind of operators: columns by name, the graph, the calls, and the batch of the graph."""

    graph: Integers
    calls: Counts
    batch: Counts
    columns: Mapping[str, Counts]

    def __getitem__(self, name: str) -> Counts:
        """Return a column by its name."""
        return self.columns[name]

    def where(self, chosen: Counts) -> "Selected":
        """Return the rows that a flag chooses."""
        own = np.flatnonzero(chosen)
        columns = {name: values[own] for name, values in self.columns.items()}
        return Selected(
            graph=self.graph[own], calls=self.calls[own], batch=self.batch[own], columns=columns
        )


def graph_kernels(
    facts: GraphFacts, models: Sequence[str], batches: Sequence[float], software: Software
) -> KernelRows:
    """Return the kernels of one forward pass of each model on its batch, or of a training step.

    Parameters
    ----------
    facts : GraphFacts
    models : sequence of str
        Names of models in the facts, one for each graph.
    batches : sequence of float
        Samples of each graph.
    software : Software
        Eager or compiled, precision, memory format, and whether it trains; training adds gradients and the
        optimizer.
    """
    from flopcast.lab.graph_runs.gradients import optimizer_rows, with_gradients

    lists = [facts.models[name].fused if software.compiled else facts.models[name].eager for name in models]
    position = np.concatenate([positions for positions, _ in lists])
    calls = np.concatenate([counts for _, counts in lists])
    graph = np.repeat(np.arange(len(models)), [len(counts) for _, counts in lists])
    batch = np.array(batches, dtype=float)[graph]
    chosen: dict[str, Selected] = {}
    for kind, columns in KINDS.items():
        own = facts.own(kind, position)
        table = facts.tables[kind][position[own] - facts.first[kind]]
        named = {name: table[:, place] for place, name in enumerate(columns)}
        chosen[kind] = Selected(graph=graph[own], calls=calls[own], batch=batch[own], columns=named)
    forward = joined(
        [
            *convolutions(chosen["convolution"], software),
            products(chosen["product"], software),
            *attention(chosen["attention"], software),
            fused(chosen["fused"], software),
        ]
    )
    moves, times = passes(chosen["pass"], facts.operators, software)
    if not software.trains:
        return joined([forward, moves])
    parameters = np.array([facts.models[name].parameters for name in models])
    biases = bias_gradients(chosen["product"], software)
    return joined(
        [*with_gradients(forward), *with_gradients(moves, times), biases, optimizer_rows(parameters)]
    )


def counted_kernels(
    sums: Sequence[tuple[float, float]], batches: Sequence[float], software: Software
) -> KernelRows:
    """Return the kernels of models for which only the multiply-adds and activations of a sample are known.

    All products count as one product of a usual shape. Activations, the results of products, are written
    and read USUAL_PASSES times between products.
    """
    multiply_adds, activations = np.array(sums).T * np.array(batches)
    graph, calls = np.arange(len(sums)), np.ones(len(sums))
    size = ELEMENT_BYTES[software.precision]
    logs = {name: np.full(len(sums), value) for name, value in USUAL_SHAPE.items()}
    passes_name = "fused_elementwise" if software.compiled else "elementwise"
    forward = joined(
        [
            kernel_rows("convolution", graph, calls, 2.0 * multiply_adds, 2.0 * size * activations, **logs),
            kernel_rows(passes_name, graph, calls, 0.0, USUAL_PASSES * size * activations),
        ]
    )
    if not software.trains:
        return forward
    from flopcast.lab.graph_runs.gradients import with_gradients

    return joined(with_gradients(forward))


def convolutions(own: Selected, software: Software) -> list[KernelRows]:
    """Return rows of convolutions, as products of gathered pixels, and of separate kernels that add biases
    or reorder weights.

    A convolution has 2 · pixels · depth · width FLOP for each group, where depth is the number of terms
    in a sum and width is the number of output channels of a group. Convolutions in 16 bits over images
    that are stored plane by plane move their data several times (`PASSES_OF_PLANES`), because they are
    transposed before and after.
    """
    size = ELEMENT_BYTES[software.precision]
    groups = own["groups"]
    images = own["images"] * np.where(own["of_samples"] > 0, own.batch, 1.0)
    within, without = own["in_channels"] / groups, own["out_channels"] / groups
    window = own["filter_height"] * own["filter_width"]
    is_upsampling = own["transposed"] > 0
    in_pixels, out_pixels = own["in_height"] * own["in_width"], own["out_height"] * own["out_width"]
    pixels = np.where(is_upsampling, in_pixels, out_pixels)
    depth = np.where(is_upsampling, within, within * window)
    width = np.where(is_upsampling, without * window, without)
    written = images * own["out_channels"] * out_pixels
    last = (own["channels_last"] > 0) | software.channels_last | software.compiled
    moved = image_passes(groups, within, window, last, size) * (
        images * own["in_channels"] * in_pixels + written
    )
    weights = own["in_channels"] * without * window
    moved += weights
    names = convolution_names(groups, within, without, window, last)
    rows = kernel_rows(
        names,
        own.graph,
        own.calls,
        2.0 * images * pixels * depth * width * groups,
        moved * size,
        depth=np.log2(depth),
        width=np.log2(width),
        rows=np.log2(pixels),
        window=np.log2(window),
        stride=np.log2(own["stride"]),
        misaligned=misaligned(within, without),
    )
    biased = np.flatnonzero((own["bias"] > 0) & ~last)
    added = kernel_rows("bias", own.graph[biased], own.calls[biased], 0.0, 2.0 * size * written[biased])
    if not software.reorders_weights:
        return [rows, added]
    reordered = kernel_rows("copy", own.graph, own.calls, 0.0, PASSES_OF_REORDERED_WEIGHTS * size * weights)
    return [rows, added, reordered]


def products(own: Selected, software: Software) -> KernelRows:
    """Return rows of matrix products; products of two activations are batched."""
    scales = own["scales"]
    rows = own["rows"] * np.where(scales == 1, own.batch, 1.0)
    batch = own["batch"] * np.where(scales == 2, own.batch, 1.0)
    columns = own["columns"] * np.where(scales == 3, own.batch, 1.0)
    names = np.where(scales == 2, "batched_product", "product").tolist()
    size = ELEMENT_BYTES[software.precision]
    return _product_rows(names, (own.graph, own.calls), (batch, rows, columns, own["depth"]), size)


def bias_gradients(own: Selected, software: Software) -> KernelRows:
    """Return the gradients of the biases of linear layers; in the forward pass, the products add these
    biases themselves.

    The facts do not state which products have a bias; almost all of timm's products have one.
    """
    linear = own.where(np.where(own["scales"] < 2, 1.0, 0.0))
    rows = linear["rows"] * np.where(linear["scales"] == 1, linear.batch, 1.0) * linear["batch"]
    moved_bytes = ELEMENT_BYTES[software.precision] * rows * linear["columns"]
    return kernel_rows("bias.gradients", linear.graph, linear.calls, 0.0, moved_bytes)


def _product_rows(
    names: str | list[str],
    who: tuple[Integers, Counts],
    sizes: tuple[Counts, Counts, Counts, Counts],
    element_bytes: float,
) -> KernelRows:
    batch, rows, columns, depth = sizes
    return kernel_rows(
        names,
        *who,
        2.0 * batch * rows * columns * depth,
        batch * (rows * depth + depth * columns + rows * columns) * element_bytes,
        depth=np.log2(depth),
        width=np.log2(columns),
        rows=np.log2(rows),
        misaligned=misaligned(depth, columns),
    )


def attention(own: Selected, software: Software) -> list[KernelRows]:
    """Return rows of attention: one kernel, or products, a softmax and the passes between them.

    Older releases of PyTorch write the scores to memory; their softmax reads and writes fp32 under mixed
    precision and casts its result.
    """
    size = ELEMENT_BYTES[software.precision]
    heads = own["heads"] * own.batch
    queries, keys, width, value_width = (own[name] for name in ("queries", "keys", "width", "value_width"))
    who = own.graph, own.calls
    if software.fuses_attention:
        moved = heads * (queries * width + keys * (width + value_width) + queries * value_width)
        names = np.where(own["masked"] > 0, "masked_attention", "attention").tolist()
        flop = 2.0 * heads * queries * keys * (width + value_width)
        logs = {"depth": np.log2(width), "rows": np.log2(keys)}
        return [kernel_rows(names, *who, flop, moved * size, **logs)]
    scores = heads * queries * keys
    wide_bytes = 4.0  # of the softmax's output under mixed precision, which is cast afterwards
    rows = [
        _product_rows("batched_product", who, (heads, queries, keys, width), size),
        _product_rows("batched_product", who, (heads, queries, value_width, keys), size),
        kernel_rows("elementwise", *who, 0.0, 2.0 * size * scores),
        kernel_rows("softmax", *who, 0.0, (size + wide_bytes) * scores, width=np.log2(keys)),
    ]
    if software.precision == "amp":
        rows.append(kernel_rows("cast", *who, 0.0, (size + wide_bytes) * scores))
    return rows


def passes(own: Selected, operators: Sequence[str], software: Software) -> tuple[KernelRows, Counts]:
    """Return rows of memory-bound operators, and the bytes of their gradients divided by their own bytes.

    Only mixed precision has casts. The bytes under mixed precision were counted for each operator, because
    some tensors have fp32 and some 16 bits. For other precisions, the number of elements is multiplied by
    the size of one element. Casts of weights do not depend on the batch and form a separate class.
    """
    classes = np.array([PASSES.get(name, "elementwise") for name in operators])
    names = classes[own["operator"].astype(int)]
    is_cast = names == "cast"
    names = np.where(is_cast & (own["read"] == 0), "weight_cast", names)
    if software.precision == "amp":
        moved_bytes: Floats = (own["read_bytes"] + own["written_bytes"]) * own.batch + own["fixed_bytes"]
        chosen = moved_bytes > 0
    else:
        moved_bytes = (own["read"] + own["written"]) * own.batch * ELEMENT_BYTES[software.precision]
        chosen = (moved_bytes > 0) & ~is_cast
    elements = np.maximum(own["read"], own["written"]) * own.batch
    moved_bytes = moved_bytes * np.where(names == "group_norm", PASSES_OF_GROUP_NORM, 1.0)
    if software.trains:
        called = np.array(operators)[own["operator"].astype(int)]
        moved_bytes = moved_bytes * np.where(np.isin(called, COPIED_IN_PLACE), 2.0, 1.0)
        if not software.channels_last:
            names = np.where(names == "batch_norm", "planar_batch_norm", names)
    kept = np.flatnonzero(chosen)
    rows = kernel_rows(
        names[kept].tolist(),
        own.graph[kept],
        own.calls[kept],
        FLOP_OF_ELEMENT * elements[kept],
        moved_bytes[kept],
        width=np.log2(own["row"][kept]),
        strided=own["strided"][kept],
    )
    return rows, _times_of_gradients(own, names, operators)[kept]


def _times_of_gradients(own: Selected, names: Iterable[str], operators: Sequence[str]) -> Counts:
    """Return the bytes that the gradient of each operator moves, divided by those of the operator."""
    from flopcast.lab.graph_runs.gradients import times_of_classes, times_of_multiplications, times_of_sums

    called = np.array(operators)[own["operator"].astype(int)]
    sizes = own["read"], own["written"], own["fixed_bytes"] > 0
    times = times_of_classes(names)
    times = np.where(np.isin(called, ("add", "sub")), times_of_sums(*sizes), times)
    times = np.where(np.isin(called, ("mul", "div")), times_of_multiplications(*sizes), times)
    return times / np.where(np.isin(called, COPIED_IN_PLACE), 2.0, 1.0)


def fused(own: Selected, software: Software) -> KernelRows:
    """Return rows of passes that a compiler fused."""
    elements = (own["read"] + own["written"]) * own.batch + own["fixed"]
    names = np.where(own["reduces"] > 0, "fused_reduction", "fused_elementwise").tolist()
    moved_bytes = elements * ELEMENT_BYTES[software.precision]
    flop = FLOP_OF_ELEMENT * np.maximum(own["read"], own["written"]) * own.batch
    return kernel_rows(names, own.graph, own.calls, flop, moved_bytes, width=np.log2(own["row"]))
