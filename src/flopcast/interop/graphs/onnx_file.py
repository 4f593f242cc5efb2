"""ONNX files: the graph of a model, read as data.

Answers: which operator graph does an ONNX file hold, for the sizes that a user states?
Elsewhere: the parts of a file (onnx_parts.py), the operators (onnx_operators.py, onnx_composites.py), sizes
with names (symbols.py).

No code runs. Values of weights are skipped, even if they are in a separate file, which is never opened.
The shape of every tensor must be in the file, as exporters of PyTorch write it.
"""

import mmap
from collections.abc import Iterator, Mapping
from itertools import dropwhile
from operator import not_
from pathlib import Path

from flopcast.errors import Problem, SpecError, shown, spec_error
from flopcast.files.inputs import opened
from flopcast.graph.operator_graph import FLOATS, GraphNode, GraphTensor, OperatorGraph, checked
from flopcast.interop.graphs.onnx_composites import operators_of
from flopcast.interop.graphs.onnx_operators import (
    CONSTANTS,
    NEWEST_OPSET,
    UNCOUNTED,
    inputs_without_gradient,
)
from flopcast.interop.graphs.onnx_parts import Parts, parts_of
from flopcast.interop.graphs.onnx_shapes import Infer, with_onnx, without_functions, without_weights
from flopcast.interop.graphs.protobuf import Message
from flopcast.interop.graphs.symbols import BATCH, Symbols
from flopcast.records import replace


def read_onnx(
    source: Path | bytes, name: str, sizes: Mapping[str, int], infer: Infer | None = None
) -> OperatorGraph:
    """Return the graph of an ONNX file.

    Parameters
    ----------
    source : path of the file, or its bytes
    name : name of the file in errors
    sizes : sizes of axes that the file leaves open, by name
    infer : adds missing shapes to a model without weights; by default, the onnx package does

    Raises
    ------
    SpecError
        The file is damaged or too large, has an unknown opset, lacks a shape, or a size is missing.
    """
    if isinstance(source, bytes):
        return _read(memoryview(source), name, sizes, infer)
    with opened(Path(source)) as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (ValueError, OSError) as error:  # an empty file
            raise _damaged(name, str(error)) from None
        with mapped, memoryview(mapped) as buffer:
            return _read(buffer, name, sizes, infer)


def _damaged(name: str, because: str) -> SpecError:
    allowed, fix = "a whole ONNX file", "export the model again, or copy the whole file"
    return spec_error("model", name, allowed, because, fix, fault=f"{shown(name)} cannot be read")


def _read(buffer: memoryview, name: str, sizes: Mapping[str, int], infer: Infer | None) -> OperatorGraph:
    model = Message(buffer=buffer, end=len(buffer))
    try:
        parts, opsets, producer = parts_of(model, name)
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        if isinstance(error, SpecError):
            raise
        raise _damaged(name, str(error)) from None
    if problems := list(_unknown_opsets(opsets, name)):
        raise SpecError(problems)
    if problems := [*_subgraphs(parts, name), *_uncounted(parts, name)]:
        raise SpecError(problems)
    if parts.functions:
        model = without_functions(model, name, min(parts.functions))
        parts, _, _ = parts_of(model, name)
    if (missing := _without_shape(parts)) is not None:
        given = _with_batch(parts, _given(parts), sizes)
        inferred = (infer or with_onnx(name, missing))(without_weights(model, given))
        copy, _, _ = parts_of(Message(buffer=memoryview(inferred), end=len(inferred)), name)
        parts = replace(parts, shapes=parts.shapes | copy.shapes)
    return _graph(parts, name, sizes, producer)


def _given(parts: Parts) -> list[str]:
    """Return the inputs of the graph that are not weights."""
    return [tensor for tensor in parts.inputs if tensor not in parts.weights]


def _without_shape(parts: Parts) -> str | None:
    """Return the first result whose shape is missing and does not follow from the inputs."""
    names = {axis for tensor in parts.inputs for axis in parts.shapes[tensor][0] if isinstance(axis, str)}
    for _, call, outputs in parts.calls:
        for output in outputs if call.operator not in CONSTANTS else ():
            axes = parts.shapes.get(output, (("?",), ""))[0]
            unnamed = (f"{output}.{place}" for place, axis in enumerate(axes) if axis not in names)
            if output and ("?" in axes or any(name in axes for name in unnamed)):
                return output
    return None


def _subgraphs(parts: Parts, name: str) -> Iterator[Problem]:
    """Yield an error for each operator that runs a subgraph with products: a loop, a scan or a branch."""
    for node, call, _ in parts.calls:
        if products := call.attributes.get("subgraph_products"):
            allowed = "a graph in which every operator runs once"
            because = (
                f"the operator {call.operator} decides at run time how often its subgraph runs, and the"
                f" subgraph contains {products} GEMMs, convolutions or recurrent operators"
            )
            fix = "export with torch.onnx.export(..., dynamo=True), which writes out loops of fixed length"
            yield Problem("graph.node", node or call.operator, allowed, because, fix, name)


def _uncounted(parts: Parts, name: str) -> Iterator[Problem]:
    """Yield an error for each operator that contains products which flopcast does not count."""
    for operator in sorted({call.operator for _, call, _ in parts.calls} & set(UNCOUNTED)):
        allowed = "operators whose products flopcast counts"
        because = "flopcast cannot read the sizes of the GEMMs that the operator contains"
        fix = "export the model without fused operators, for example without the optimizer of ONNX Runtime"
        yield Problem("graph.node", operator, allowed, because, fix, name)


def _unknown_opsets(opsets: Mapping[str, int], name: str) -> Iterator[Problem]:
    for domain, version in opsets.items():
        if domain in ("", "ai.onnx") and not 0 < version <= NEWEST_OPSET:
            allowed = f"an opset of 1 to {NEWEST_OPSET}"
            because = "operators may have a different meaning in other versions"
            fix = f"export the model with opset_version={NEWEST_OPSET - 6}"
            yield Problem("model.opset_import", version, allowed, because, fix, name)


def _graph(parts: Parts, name: str, sizes: Mapping[str, int], producer: str) -> OperatorGraph:
    given = _given(parts)
    symbols = Symbols(given=_with_batch(parts, given, sizes))
    tensors = {
        tensor: GraphTensor(name=tensor, shape=_shape(axes, symbols, tensor), dtype=dtype)
        for tensor, (axes, dtype) in parts.shapes.items()
    }
    symbols.require(name)
    places = ((call.inputs, inputs_without_gradient(call.operator)) for _, call, _ in parts.calls)
    frozen = {inputs[place] for inputs, listed in places for place in listed if place < len(inputs)}
    for weight, (shape, dtype) in parts.weights.items():
        trained = dtype in FLOATS and bool(shape) and weight not in frozen
        parameter = GraphTensor(name=weight, shape=shape, dtype=dtype, is_parameter=True)
        tensors[weight] = replace(parameter, is_trained=trained)
    nodes = tuple(_nodes(parts, tensors, name))
    first = tensors[given[0]].shape if given else ()
    samples = sizes.get(BATCH) or (first[0] if first else 1) or 1
    return checked(
        OperatorGraph(
            name=parts.name if len(parts.name) < 80 else Path(name).stem,
            tensors=tensors,
            nodes=nodes,
            inputs=tuple(given),
            outputs=tuple(tensor for tensor in parts.outputs if tensor not in parts.weights),
            samples=samples,
            notes=(f"graph: read from an ONNX file that {producer or 'an unnamed program'} wrote",),
        )
    )


def _with_batch(parts: Parts, inputs: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes with a value for the batch's name: the open first axis of all inputs."""
    given = dict(sizes)
    first = [parts.shapes[name][0][0] for name in inputs if parts.shapes[name][0]]
    names = {axis for axis in first if isinstance(axis, str)}
    if len(names) == 1:
        given.setdefault(names.pop(), sizes.get(BATCH, 2))
    return given


def _shape(axes: tuple[int | str, ...], symbols: Symbols, tensor: str) -> tuple[int, ...]:
    return tuple(
        axis if isinstance(axis, int) else symbols.named(axis, f"axis {place} of {tensor}")
        for place, axis in enumerate(axes)
    )


def _constant(name: str, shape: tuple[int, ...], dtype: str) -> GraphTensor:
    """Return a constant, which counts as a weight if it consists of several floats."""
    tensor = GraphTensor(name=name, shape=shape, dtype=dtype, is_parameter=True)
    return replace(tensor, is_trained=tensor.is_float and tensor.elements > 1)


def _nodes(parts: Parts, tensors: dict[str, GraphTensor], file: str) -> Iterator[GraphNode]:
    """Yield the operators of a graph, and add the tensors of constants to `tensors`."""
    missing = list[str]()
    used = {*parts.outputs, *(name for _, call, _ in parts.calls for name in call.inputs)}
    for place, (name, call, outputs) in enumerate(parts.calls):
        if call.operator in CONSTANTS:
            shape = next((v for v in call.attributes.values() if isinstance(v, tuple)), ())
            dtype = str(call.attributes.get("dtype", "int64"))
            for output in outputs:
                tensors[output] = _constant(output, shape, dtype)
            continue
        made = tuple(output if output in used or output in tensors else "" for output in outputs)
        made = tuple(dropwhile(not_, made))  # such as the last state of a recurrent network alone
        missing += [output for output in made if output and output not in tensors]
        if missing or not made:
            continue
        yield from operators_of(call, name or f"{call.operator}.{place}", made, tensors)
    if missing:
        allowed = "an ONNX file that contains the shape of every tensor"
        because = (
            f"the onnx package cannot infer the shapes of {len(missing)} tensors, such as {missing[0]!r}"
        )
        fix = "export with torch.onnx.export(..., dynamo=True), which writes the shape of every tensor"
        raise spec_error("model.value_info", missing[0], allowed, because, fix, file, "has no shape")
