"""Steps of a graph: each operator that runs a kernel becomes an operator of a traced block.

Answers: which fields does the block operator of a node have, and which tensors does it read and keep?
Elsewhere: products (products.py), the work of nodes (canonical.py) and the tensors that they keep
(saved.py), how steps form blocks (model_of_graph.py), the classes with these fields
(layers/graph_operators.py).
"""

from collections.abc import Iterator, Mapping, Set
from itertools import groupby
from math import prod
from typing import Any

from flopcast.graph.canonical import canonical, flop_of, looked_up, moved_bytes_of
from flopcast.graph.lowering import ACTIVATION_BYTES, Fields, Lowering, Made, plain
from flopcast.graph.operator_graph import GraphNode, OperatorGraph
from flopcast.graph.products import CONVOLUTIONS, PRODUCTS
from flopcast.graph.saved import saved_tensors
from flopcast.records import Record, replace
from flopcast.units import Number


class Step(Record, eq=False):
    """An operator of a block, before its tensors have names in the block.

    Attributes
    ----------
    name, operator : str
        Name of the node, and of its operator.
    fields : mapping
        Fields of the operator of the block, without names of tensors.
    reads : tuple of str
        Tensors of the graph that it reads, without weights; views are replaced by the tensors that they
        view.
    writes : str
        Tensor that it writes.
    weights : tuple of str
        Weights that it reads.
    keeps : tuple
        The elements of each tensor that it keeps, by name; "" stands for memory of the operator itself.
    flop : float
        FLOP for the example batch.
    """

    name: str
    operator: str
    fields: Fields
    reads: tuple[str, ...]
    writes: str
    weights: tuple[str, ...] = ()
    keeps: tuple[tuple[str, Fields | Number], ...] = ()
    flop: Number = 0.0


def steps_of(known: Lowering) -> list[Step]:
    """Return the steps of a graph in order; views run no kernel.

    Some models run one attention kernel for each window of an image, and join the outputs. These kernels
    are one step in several pieces.
    """
    steps = [step for node in known.graph.nodes for step in _steps(known, node)]
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for name in step.reads:
            readers.setdefault(name, []).append(step)

    def alike(step: Step) -> tuple[object, ...]:
        joining = readers.get(step.writes, [])
        is_window = step.fields["kind"] == "graph_attention" and not step.keeps and len(joining) == 1
        if not is_window or joining[0].operator != "concatenate":
            return (step.name,)
        return (repr(step.fields), step.reads, step.weights, joining[0].name)

    groups = [list(group) for _, group in groupby(steps, key=alike)]
    pieces = {group[0].writes: len(group) for group in groups if len(group) > 1}
    further = {step.writes for group in groups for step in group[1:]}
    return [_with_pieces(group[0], pieces, further) for group in groups]


def _with_pieces(step: Step, pieces: Mapping[str, int], further: Set[str]) -> Step:
    """Return the first of several steps in place of all, or a step that reads the output of such a step.

    `pieces` are the numbers of steps by the output of the first step; `further` are the other outputs.
    """
    if number := pieces.get(step.writes):
        heads = {name: _times(step.fields[name], number) for name in ("heads", "kv_heads")}
        fields: Fields = {**step.fields, **heads, "pieces": number}
        return replace(step, fields=fields, flop=number * step.flop)
    if further.isdisjoint(step.reads):
        return step
    sizes: Any = step.fields["read"]
    kept = [(name, size) for name, size in zip(step.reads, sizes, strict=True) if name not in further]
    read = [_times(size, pieces.get(name, 1)) for name, size in kept]
    return replace(step, reads=tuple(name for name, _ in kept), fields={**step.fields, "read": read})


def _times(size: Any, number: int) -> object:  # noqa: ANN401  a size of a step
    """Return a size multiplied by a number."""
    if isinstance(size, dict):
        return {name: number * value for name, value in size.items()}
    return number * size


def _steps(known: Lowering, node: GraphNode) -> Iterator[Step]:
    if canonical(node).is_view or not node.outputs:
        return
    flop = flop_of(known.graph, node)
    make = PRODUCTS.get(node.operator) if flop else None
    reads = tuple(known.root(name) for name in node.inputs if name and not known.is_weight(name))
    weights = tuple(
        dict.fromkeys(known.root(name) for name in node.inputs if name and known.is_weight(name))
    )
    if make and not reads:  # of two constants, such as queries that are weights
        reads = (known.root(node.inputs[0]),)
    fields, keeps = (make or PASSES.get(node.operator, _pass))(known, node)
    if fields.get("keeps_input") is not False and make and reads:
        known.kept.update(reads[:1])
    yield Step(
        name=node.outputs[0],
        operator=node.operator,
        fields=fields,
        reads=reads,
        writes=known.root(node.outputs[0]),
        weights=weights,
        keeps=keeps,
        flop=flop,
    )
    if make:
        yield from _bias(known, node)
    yield from _fork(known, node)


def _bias(known: Lowering, node: GraphNode) -> Iterator[Step]:
    """Yield the separate kernels that the bias of a product needs: its gradient is a sum over rows.

    Products add a bias in their own kernel. After convolutions of images stored plane by plane, a separate
    kernel adds it.
    """
    biases = [name for name in node.inputs[2:] if name and known.is_weight(name)]
    if node.operator == "attention" or not biases:
        return
    is_trained = known.graph.tensors[known.root(biases[0])].is_trained
    is_added = node.operator in CONVOLUTIONS and known.graph.tensors[node.inputs[0]].order != "pixels"
    if not (is_trained or is_added):
        return
    output = known.root(node.outputs[0])
    size = known.size_of(node.outputs[0])
    moved = 2.0 * known.elements(known.graph.tensors[node.outputs[0]])
    fields: Fields = {
        "kind": "graph_pass", "family": "bias", "operator": "bias",
        "moved": known.size(moved, known.grows(node)) if is_added else 0,
        "moved_backward": size if is_trained else 0, "written": size, "read": [size],
    }  # fmt: skip
    if not is_trained:
        fields["gradient"] = False
    yield Step(
        name=f"{node.outputs[0]}.bias", operator="bias", fields=fields, reads=(output,), writes=output
    )


def _fork(known: Lowering, node: GraphNode) -> Iterator[Step]:
    """Yield the sum of the gradients of a tensor that several operators read.

    Parts of a tensor, such as queries, keys and values, are joined in one pass; whole tensors are added
    in pairs.
    """
    output = node.outputs[0]
    readers = known.readers.get(output, [])
    if len(readers) < 2 or known.root(output) != output:
        return
    whole = known.graph.tensors[output].elements
    parts = all(known.graph.tensors[name].elements < whole for _, name in readers)
    moved = (2.0 if parts else 3.0 * (len(readers) - 1)) * known.elements(known.graph.tensors[output])
    size = known.size_of(output)
    fields: Fields = {
        "kind": "graph_pass", "family": "fork", "operator": "fork", "moved": 0,
        "moved_backward": known.size(moved, output in known.of_batch), "written": size, "read": [size],
        "fusible": True,
    }  # fmt: skip
    yield Step(name=f"{output}.fork", operator="fork", fields=fields, reads=(output,), writes=output)


def _pass(known: Lowering, node: GraphNode) -> Made:
    """Return a memory-bound kernel."""
    graph, operator = known.graph, canonical(node)
    grows = known.grows(node)
    read = [name for name in node.inputs if name and not known.is_weight(name)]
    keeps = tuple(_keeps(known, node))
    returns = operator.has_gradient and any(name in known.with_gradient for name in node.outputs)
    passes_on = operator.passes_gradient_on and not _broadcasts(graph, node)
    fields: Fields = {
        "kind": "graph_pass",
        "family": operator.family if operator.family in FAMILIES else "elementwise",
        "operator": node.operator,
        "moved": known.size(moved_bytes_of_activations(known, node), grows),
        "read": [known.size_of(name) for name in read],
        "written": known.size(sum(known.elements(tensor) for tensor in graph.written(node)), grows),
    }
    if (row := _row(graph, node)) > 1:
        fields["row"] = row
    if operator.reads_table and known.is_weight(node.inputs[0]):
        fields["looked_up"] = known.size(looked_up(graph, node), grows)
        fields["table_elements"] = graph.tensors[node.inputs[0]].elements
    if _is_strided(graph, node):
        fields["strided"] = True
    if node.operator == "batch_norm" and graph.tensors[node.inputs[0]].order == "pixels":
        fields["channels_last"] = True
    if returns and not passes_on:
        table = _gradient_of_table(known, node)
        size = known.size(_moved_backward(known, node) - table, grows)
        of_rows = size if isinstance(size, dict) else {"constant": size}
        fields["moved_backward"] = {**of_rows, "constant": plain(table)} if table else size
    else:
        fields["gradient"] = False
    if operator.is_fusible:
        fields["fusible"] = True
    return fields, keeps


def _neighbour_attention(known: Lowering, node: GraphNode) -> Made:
    """Return attention over the edges of a graph in one kernel (mha_gat_n2n of cuGraph).

    The forward kernel reads the vector of the source of each edge for the score and again for the sum. The
    backward kernel reads it once more and adds its gradient by atomic operations, in a tensor that is set
    to zero before.
    """
    sources, targets, picked = known.graph.read(node)
    own, other = known.elements(sources), known.elements(targets)
    rows = picked.elements * own / sources.shape[0]
    keeps = tuple(_keeps(known, node))
    fields: Fields = {
        "kind": "graph_pass", "family": "gather", "operator": node.operator,
        "moved": known.size(2.0 * rows + 2.0 * other + known.elements(picked)),
        "moved_backward": known.size(3.0 * rows + own + 3.0 * other + known.elements(picked)),
        "read": [known.size(rows), known.size(other)], "written": known.size(other),
    }  # fmt: skip
    return fields, keeps


PASSES = {"neighbour_attention": _neighbour_attention}


def _row(graph: OperatorGraph, node: GraphNode) -> int:
    """Return the elements over which an operator sums, or normalises; 1 for all others."""
    family, read = canonical(node).family, graph.read(node)
    if family not in ("normalisation", "reduction") or not read:
        return 1
    shape, out = read[0].shape, sum(tensor.elements for tensor in graph.written(node))
    if family == "reduction":
        return max(1, round(read[0].elements / max(1, out)))
    return prod(shape[1:]) if canonical(node).passes > 1 else (shape or (1,))[-1]


def _is_strided(graph: OperatorGraph, node: GraphNode) -> bool:
    """Return whether an operator reads a large tensor in an order that differs from its order in memory."""
    written = max((tensor.elements for tensor in graph.written(node)), default=0)
    return any(tensor.order == "strided" and 2 * tensor.elements >= written for tensor in graph.read(node))


FAMILIES = ("reduction", "normalisation", "pooling", "movement", "gather", "scatter", "sort", "scan",
            "transform", "unknown")  # fmt: skip


def moved_bytes_of_activations(known: Lowering, node: GraphNode) -> float:
    """Return the elements that an operator moves: a float counts as one, other types by their bytes."""
    tensors = (*known.graph.read(node), *known.graph.written(node))
    whole = sum(tensor.size_bytes for tensor in tensors)
    narrow = sum(known.elements(tensor) for tensor in tensors)
    return moved_bytes_of(known.graph, node) * (narrow / whole if whole else 0.0)


def _moved_backward(known: Lowering, node: GraphNode) -> float:
    """Return the elements that the gradient moves: it reads the gradient of the output and the kept
    tensors, and writes the gradients of the inputs. The gradient of a looked-up table is a whole table.
    """
    graph, operator = known.graph, canonical(node)
    written = sum(known.elements(tensor) for tensor in graph.written(node) if tensor.is_float)
    saved = saved_tensors(graph, node, known.with_gradient)
    kept = sum(
        known.elements(graph.tensors[each.tensor]) if each.tensor else each.size_bytes / ACTIVATION_BYTES
        for each in saved
    )
    gradients = sum(
        known.elements(tensor) for tensor in graph.read(node) if tensor.name in known.with_gradient
    )
    if operator.family == "gather":
        rows = written
        return 2.0 * rows + gradients
    if node.operator in ("multiply", "divide") and len(node.inputs) > 1:
        return _moved_by_factors(known, node)
    if operator.family == "normalisation":  # sums over rows, then their use: what is read is read again
        return (2.0 * operator.passes - 1.0) * (written + kept) + gradients
    return operator.passes * (written + kept + gradients)


def _moved_by_factors(known: Lowering, node: GraphNode) -> float:
    """Return the elements that the gradients of two factors move: each reads the gradient of the output
    and the other factor. If a factor has fewer elements than the output, its gradient is first a whole
    tensor, which another kernel then sums.
    """
    graph = known.graph
    out = sum(known.elements(tensor) for tensor in graph.written(node))
    names = node.inputs[:2]
    moved = 0.0
    for name, other in zip(names, names[::-1], strict=True):
        if name not in known.with_gradient:
            continue
        own, partner = (known.elements(graph.tensors[each]) for each in (name, other))
        moved += out + partner + own + (2.0 * out if own < out else 0.0)
    return moved


def _gradient_of_table(known: Lowering, node: GraphNode) -> float:
    """Return the elements of the gradient of a looked-up table: a whole table for any batch."""
    if canonical(node).family != "gather":
        return 0.0
    read = known.graph.read(node)
    tables = [
        tensor for tensor in read if tensor.name in known.with_gradient and known.is_weight(tensor.name)
    ]
    return sum(known.elements(tensor) for tensor in tables)


def _broadcasts(graph: OperatorGraph, node: GraphNode) -> bool:
    """Return whether an input is smaller than the output, so that its gradient is a sum."""
    out = max(tensor.elements for tensor in graph.written(node))
    return node.operator != "concatenate" and any(1 < tensor.elements < out for tensor in graph.read(node))


def _keeps(known: Lowering, node: GraphNode) -> Iterator[tuple[str, Fields | Number]]:
    """Yield the tensors that this operator is the first to keep, with their sizes."""
    for saved in saved_tensors(known.graph, node, known.with_gradient):
        if not saved.tensor:
            elements = saved.size_bytes / ACTIVATION_BYTES
            yield "", known.size(elements, known.grows(node))
            continue
        root = known.root(saved.tensor)
        if root in known.kept or known.graph.tensors[root].is_parameter:
            continue
        known.kept.add(root)
        yield root, known.size_of(root)
