"""A graph as a model: blocks of operators, with equal blocks counted once.

Answers: which model, as plain data, does an exported graph describe?
Elsewhere: its operators (steps.py), the borders of its blocks (segments.py), the work of blocks
(layers/traced.py).

A model of a graph has no separate embedding or head, and its batch counts samples. Inside a block,
tensors are named "x" (the input), "in.1" (a further input), "y" (the output) and "t3" (the output of its
third operator). Blocks form one entry with a count if their operators are equal and each operator reads
and keeps the same tensors as its counterpart.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import SpecError, spec_error
from flopcast.graph.canonical import canonical
from flopcast.graph.division import Division, divide, uses_of_weights
from flopcast.graph.lowering import ACTIVATION_BYTES, Fields, Lowering, lowering
from flopcast.graph.operator_graph import GraphTensor, OperatorGraph
from flopcast.graph.segments import Run, repeated_runs
from flopcast.graph.steps import Step, steps_of
from flopcast.records import Record

PARTS = 24  # kinds of blocks that are wanted at most: pipeline stages are made of them
MOST_OPERATORS = 20_000  # in all distinct blocks
QUANTISED = ("int8", "uint8", "int4", "uint4")  # weights; larger whole numbers are indices
DISTANT = 0.5  # of all steps: what lives longer is carried past the blocks


def model_of_graph(graph: OperatorGraph) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the model of a graph as plain data, and notes for its reader.

    Raises
    ------
    SpecError
        The graph runs no kernel, or has more distinct operators than flopcast predicts.
    """
    known = lowering(graph)
    steps = steps_of(known)
    if not steps:
        allowed = "a graph with operators"
        because = "all operators of the graph are views, which run no kernels"
        raise spec_error("model", graph.name, allowed, because, "export the model with its forward pass")
    crossing = _crossing_elements(known, steps)
    borders = _borders(steps, crossing)
    blocks = _blocks(known, steps, borders)
    if sum(len(block.operators) for block, _ in blocks) > MOST_OPERATORS:
        raise _too_many(graph, blocks)
    hidden = max((crossing[place] for place in borders[1:-1]), default=crossing.max()) / graph.samples
    mapping: dict[str, object] = {
        "name": graph.name,
        "hidden": max(1, round(float(hidden))),
        "vocabulary": 0,
        "blocks": [_block(block, count) for block, count in blocks],
        "source": [{"title": f"exported graph of {graph.name}"}],
    }
    return mapping, (*graph.notes, *_notes(graph, blocks))


def _too_many(graph: OperatorGraph, blocks: "Sequence[tuple[_Block, int]]") -> SpecError:
    count = sum(len(block.operators) for block, _ in blocks)
    because = f"the graph has {count} distinct operators, even if equal layers count only once"
    allowed, fix = f"at most {MOST_OPERATORS} distinct operators", "export a part of the model"
    return spec_error("model", graph.name, allowed, because, fix, fault="is too large")


class _Block(Record, eq=False):
    """The operators and weights of one block, under the block's own names, and its division over ranks."""

    operators: tuple[Fields, ...]
    weights: tuple[Fields, ...]
    division: Division = Division()


def _block(block: _Block, count: int) -> dict[str, object]:
    whole = [{"weight": name, "because": reason} for name, reason in block.division.whole.items()]
    mixer: Fields = {
        "kind": "traced",
        "batch_of": "samples",
        "units": block.division.units,
        **({"whole_products": whole} if whole else {}),
        "weights_of_block": list(block.weights),
        "operators": list(block.operators),
    }
    return {"count": count, "mixer": mixer, "feed_forward": {"kind": "none"}}


def _last_uses(known: Lowering, steps: Sequence[Step]) -> dict[str, int]:
    """Return the index of the last step that reads each tensor; outputs of the graph live to the end."""
    last: dict[str, int] = {}
    for place, step in enumerate(steps):
        last |= dict.fromkeys(step.reads, place)
    return last | {known.root(name): len(steps) for name in known.graph.outputs}


def _crossing_elements(known: Lowering, steps: Sequence[Step]) -> Counts:
    """Return the elements of the tensors that live across the border before each step; shape (steps + 1,).

    Constants, and tensors that live through most of the graph, are left out.
    """
    last, made = _last_uses(known, steps), {known.root(name): 0 for name in known.graph.inputs}
    for place, step in enumerate(steps):
        made.setdefault(step.writes, place + 1)
    change = np.zeros(len(steps) + 2)
    for name, first in made.items():
        end = last.get(name, first)
        is_carried = end - first > DISTANT * len(steps) and end < len(steps)
        if name in known.of_batch and end >= first and not is_carried:
            size = known.elements(known.graph.tensors[name])
            change[first] += size
            change[end + 1] -= size
    return np.cumsum(change)[:-1]


def _borders(steps: Sequence[Step], crossing: Counts) -> list[int]:
    """Return the indices of the steps before which blocks begin, followed by the end."""
    numbers: dict[str, int] = {}
    signs = [f"{each.operator} {each.fields} {len(each.reads)} {len(each.weights)}" for each in steps]
    signatures = np.array([numbers.setdefault(sign, len(numbers)) for sign in signs])
    runs = repeated_runs(signatures, crossing)
    borders = {0, len(steps)}
    for run in runs:
        borders.update(range(run.start, run.end + 1, run.period))
    flop = np.cumsum([0.0, *(step.flop for step in steps)])
    parts = PARTS - 2 * len(runs)
    for first, last in _between(runs, len(steps)):
        borders.update(_cuts(crossing, flop, parts, first, last))
    return sorted(borders)


def _between(runs: Sequence[Run], end: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches that do not repeat."""
    place = 0
    for run in runs:
        yield place, run.start
        place = run.end
    yield place, end


def _cuts(crossing: Counts, flop: Counts, parts: int, first: int, last: int) -> Iterator[int]:
    """Yield the places at which a stretch without repeats is cut: few elements cross, and FLOP are even."""
    quota, done = flop[-1] / parts, flop[first] if first < last else 0.0
    while quota and flop[last] - done > 1.5 * quota:
        begin = int(np.searchsorted(flop, done + quota))
        finish = min(last - 1, int(np.searchsorted(flop, done + 2.0 * quota)))
        begin = max(begin, first + 1)
        if begin >= last:
            return
        place = begin + int(np.argmin(crossing[begin : max(finish, begin + 1)]))
        yield place
        done = flop[place]


def _blocks(known: Lowering, steps: Sequence[Step], borders: Sequence[int]) -> list[tuple[_Block, int]]:
    """Return the blocks in order, each with the number of equal blocks in a row."""
    last, owned, uses = _last_uses(known, steps), set[str](), uses_of_weights(known)
    places = {name: place for place, node in enumerate(known.graph.nodes) for name in node.outputs[:1]}
    found, alone = list[tuple[_Block, int]](), _Block(operators=(), weights=())
    for first, end in pairwise(borders):
        within, before = steps[first:end], owned.copy()
        block = _named(known, within, end, last, owned, Division())
        if (alone.operators, alone.weights) == (block.operators, block.weights):
            found[-1] = (found[-1][0], found[-1][1] + 1)
            continue
        alone = block
        made = [places[step.name] for step in within if step.name in places]
        nodes = known.graph.nodes[min(made, default=0) : max(made, default=-1) + 1]
        leaving = {step.writes for step in within if last.get(step.writes, 0) >= end}
        division = divide(known, nodes, leaving, uses)
        found.append((_named(known, within, end, last, before, division), 1))
    return found


def _named(
    known: Lowering,
    steps: Sequence[Step],
    end: int,
    last: Mapping[str, int],
    owned: set[str],
    division: Division,
) -> _Block:
    """Return a block with its own names for tensors and weights; `owned` weights belong to other blocks."""
    made = {step.writes for step in steps}
    entering = dict.fromkeys(name for step in steps for name in step.reads if name not in made)
    order = sorted(entering, key=lambda name: -known.elements(known.graph.tensors[name]))
    names = {name: f"in.{place}" if place else "x" for place, name in enumerate(order)}
    leaving = [step.writes for step in steps if last.get(step.writes, 0) >= end]
    for place, step in enumerate(steps):
        names.setdefault(step.writes, f"t{place}")
    if leaving:
        names[max(leaving, key=lambda name: known.elements(known.graph.tensors[name]))] = "y"
    weights = dict.fromkeys(name for step in steps for name in step.weights if name not in owned)
    owned.update(weights)
    tables = {name for step in steps if "looked_up" in step.fields for name in step.weights}
    sizes = [known.graph.tensors[name] for name in weights]
    return _Block(
        operators=tuple(
            _operator(place, step, names, division) | _divided(known, step, names, division)
            for place, step in enumerate(steps)
        ),
        weights=tuple(
            {"name": f"w{place}", "elements": tensor.elements}
            | ({} if tensor.is_float else _packed(tensor))
            | ({} if tensor.is_trained else {"trained": False})
            | ({"row": tensor.shape[-1]} if tensor.name in tables else {})
            | ({"divided": True} if tensor.name in division.tensors else {})
            for place, tensor in enumerate(
                tensor for tensor in sizes if tensor.is_float or tensor.dtype in QUANTISED
            )
            if tensor.elements
        ),
        division=division,
    )


def _packed(tensor: GraphTensor) -> Fields:
    """Return the fields of a quantised weight, which counts one 16-bit element for each of its bytes."""
    elements = max(1, round(tensor.size_bytes / ACTIVATION_BYTES))
    return {"elements": elements, "parameters": tensor.elements}


def _divided(known: Lowering, step: Step, names: Mapping[str, str], division: Division) -> Fields:
    """Return the fields of an operator that state how tensor parallelism divides it."""
    base = step.name.removesuffix(".bias").removesuffix(".fork")
    kind = division.kinds.get(step.name, "")
    if base != step.name and known.root(base) in division.tensors:
        kind = "within"
    if not kind:
        return {}
    fields: Fields = {"division": kind}
    if enters := division.entering.get(step.name, ()):
        fields["enters"] = [{"name": names[name], "elements": known.size_of(name)} for name in enters]
    shared = division.shared.get(step.name)
    if shared and step.fields["kind"] == "graph_pass":
        fields["shared"] = [place for place, name in enumerate(step.reads) if name in shared]
    return fields


def _operator(place: int, step: Step, names: Mapping[str, str], division: Division) -> Fields:
    """Return the fields of an operator of a block, with the names of its tensors.

    Parts of one tensor, such as queries, keys and values, have separate names.
    """
    inputs, seen = list[str](), dict[str, int]()
    for name in step.reads:
        seen[name] = seen.get(name, 0) + 1
        inputs.append(names[name] if seen[name] == 1 else f"{names[name]}.{seen[name]}")
    fields: Fields = {
        "name": f"{step.operator}.{place}",
        "inputs": inputs,
        "output": names[step.writes],
        **step.fields,
    }
    if step.keeps:
        fields["keeps"] = [
            {
                "name": names.get(name, name) if name else f"{step.operator}.{place}.kept{number}",
                "elements": size,
                **({"divided": True} if (name or step.writes) in division.tensors else {}),
            }
            for number, (name, size) in enumerate(step.keeps)
        ]
    return fields


def _notes(graph: OperatorGraph, blocks: Sequence[tuple[_Block, int]]) -> Iterator[str]:
    """Yield the assumptions about the graph."""
    yield (
        f"graph: {len(graph.nodes)} operators in {sum(count for _, count in blocks)} blocks of "
        f"{len(blocks)} kinds; all sizes grow in proportion to the number of samples in a micro-batch"
    )
    unknown = sorted({node.operator for node in graph.nodes if canonical(node).family == "unknown"})
    if unknown:
        yield (
            f"graph: flopcast does not know {', '.join(unknown[:8])}, and estimates their time from the "
            "bytes that they read and write"
        )
