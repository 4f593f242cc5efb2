"""A traced model: blocks of operators whose sizes are polynomials, found from several traces.

Answers: which model does the code of transformers describe, if flopcast has no layer for it?
Elsewhere: kernels of one traced layer (fusing.py), the layer that the result becomes (layers/traced.py).

A size is a polynomial of the number of sequences b and their length s, in {1, b} × {1, s, s²}. Six
micro-batches determine its six coefficients; a seventh must agree with the result. All micro-batches have
several sequences, because some code copies a tensor only then. The whole model runs for one micro-batch;
for the others, only one layer of each kind runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import SpecError, spec_error
from flopcast.interop.tracing.division import TensorDivision
from flopcast.interop.tracing.fusing import FusedKernel, division_of, kernels, name_in_layer
from flopcast.interop.tracing.recorder import ENDS, Recording
from flopcast.interop.tracing.weightless import Config, Libraries, attentions, run
from flopcast.records import Record

POINTS = ((2, 512), (3, 256), (2, 256), (3, 512), (3, 768), (2, 768))  # the first is of the whole model
PROOF = (4, 384)
TERMS = ("constant", "sequences", "length", "tokens", "square", "pairs")
INTEGERS = ("heads", "kv_heads", "head_size", "value_head_size", "groups")  # fields that are no polynomials
UNIT = 256.0  # tokens; lengths in it keep the six equations well apart


class _Kind(Record):
    """Equal layers of the traced model: one of them, and their places."""

    layer: int
    places: tuple[int, ...]


def traced_model(libraries: Libraries, config: Config) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the model of a config as plain data, and notes for its reader.

    Raises
    ------
    SpecError
        Sizes are not such polynomials, parts outside the layers are unknown to flopcast, or the code
        cannot run without weights.
    """
    attention = attentions(libraries, config)[-1]
    whole = run(libraries, config, *POINTS[0], attention)
    kinds = _kinds(whole)
    only = tuple(kind.layer for kind in kinds)
    more = [run(libraries, config, *point, attention, only) for point in (*POINTS[1:], PROOF)]
    blocks: list[dict[str, Any]] = []
    for order, kind in enumerate(kinds):
        recordings = ((whole, kind.layer), *((recording, order) for recording in more))
        division, traces = _traces(recordings)
        mixer = {
            "kind": "traced",
            **division,
            "weights_of_block": _weights(whole, kind.layer, traces[0], bool(division["units"] != 1)),
            "operators": _operators(config, traces),
        }
        blocks.append({"count": len(kind.places), "mixer": mixer, "feed_forward": {"kind": "none"}})
    ends = _ends(whole, config)
    norm = {key: ends.pop(key) for key in ("norm", "norm_bias", "norm_scale") if key in ends}
    mapping = {
        "name": str(config.model_type),
        "context_length": int(getattr(config, "max_position_embeddings", 0) or 0),
        **ends,
        "blocks": [block | norm for block in blocks],
        **_pattern(kinds),
        "source": [{"title": _title(libraries, config)}],
    }
    return mapping, (*_notes(attention), *_notes_on_division(blocks))


def _title(libraries: Libraries, config: Config) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in libraries.versions.items())
    return f"trace of {config.model_type}: {versions}"


def _notes(attention: str) -> tuple[str, ...]:
    kernel = "one causal kernel" if attention == "fused" else "GEMMs that write the scores to memory"
    return (
        f"traced: attention runs as {kernel}; attention windows count as full attention",
        "traced: between two GEMMs, each memory-bound operator is one kernel; all experts have the same"
        " load; dropout is off",
        "traced: the blocks support neither context parallelism nor sequence parallelism",
    )


def _notes_on_division(blocks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield notes on how tensor parallelism divides each kind of block, and which products stay whole."""
    for place, block in enumerate(blocks):
        mixer = block["mixer"]
        degrees = f"divisors of {mixer['units']}" if mixer["units"] > 1 else "1"
        yield f"traced: blocks[{place}] supports these tensor_parallel degrees: {degrees}"
        for product in mixer.get("whole_products", ()):
            whole = f"tensor parallelism does not divide {product['weight']}"
            yield f"traced: blocks[{place}]: {whole}, because {product['because']}"


def _traces(
    recordings: Sequence[tuple[Recording, int]],
) -> tuple[dict[str, object], list[tuple[FusedKernel, ...]]]:
    """Return how a layer is divided, as fields of the block, and its kernels in each recording.

    If the recordings would be divided in different ways, the layer stays whole.
    """
    (recording, layer), *_ = recordings
    traces = [kernels(*each) for each in recordings]
    division = division_of(recording, layer)
    names = {p.storage: name_in_layer(p.name, layer) for p in recording.parameters}
    reasons = {names[storage]: because for storage, because in division.whole.items()}
    if len({tuple(kernel.structure for kernel in trace) for trace in traces}) > 1:
        traces = [kernels(*each, is_divided=False) for each in recordings]
        because = "the weight would be divided differently in different micro-batches"
        reasons = {kernel.weight: because for kernel in traces[0] if kernel.weight}
        division = TensorDivision()
    whole = [{"weight": weight, "because": because} for weight, because in reasons.items()]
    return {"units": division.units, **({"whole_products": whole} if whole else {})}, traces


def _kinds(recording: Recording) -> list[_Kind]:
    """Return groups of layers with operators and tensors of equal shapes, ordered by first layer."""
    places_of: dict[tuple[object, ...], list[int]] = {}
    signatures: dict[int, list[object]] = {place: [] for place in range(len(recording.inputs))}
    for call in recording.calls:
        if call.layer != ENDS and not call.backward and not call.is_view:
            shapes = tuple(operand.shape for operand in (*call.reads, *call.writes))
            signatures[call.layer].append((call.name, shapes))
    for place, signature in signatures.items():
        places_of.setdefault(tuple(signature), []).append(place)
    return [_Kind(layer=places[0], places=tuple(places)) for places in places_of.values()]


def _pattern(kinds: Sequence[_Kind]) -> dict[str, object]:
    """Return the kind of each layer; empty if the layers of each kind are consecutive."""
    order = {place: index for index, kind in enumerate(kinds) for place in kind.places}
    listed = [order[place] for place in sorted(order)]
    if all(one <= other for one, other in pairwise(listed)):
        return {}
    period = next(
        n for n in range(1, len(listed) + 1) if all(listed[i] == listed[i % n] for i in range(len(listed)))
    )
    return {"pattern": listed[:period]}


def _weights(
    recording: Recording, layer: int, layer_kernels: Sequence[FusedKernel], is_divided: bool
) -> list[dict[str, object]]:
    """Return the weights of one layer; from a stack of experts, only the part that a token uses."""
    divided = division_of(recording, layer).storages if is_divided else frozenset()
    grouped = [kernel.sizes for kernel in layer_kernels if kernel.kind == "grouped_matmul"]
    rows = {sizes["groups"]: sizes["rows"] for sizes in grouped}
    tokens = prod(POINTS[0])
    weights = []
    for parameter in recording.parameters:
        if parameter.layer == layer:
            name = name_in_layer(parameter.name, layer)
            weight: dict[str, object] = {"name": name, "elements": parameter.elements}
            if len(parameter.shape) == 3 and parameter.shape[0] in rows:
                share = rows[parameter.shape[0]] / tokens / parameter.shape[0]
                weight["active"] = max(1, round(parameter.elements * min(1.0, share)))
            if parameter.storage in divided:
                weight["divided"] = True
            weights.append(weight)
    return weights


def _operators(config: Config, traces: Sequence[Sequence[FusedKernel]]) -> list[dict[str, object]]:
    """Return the operators of a block, whose sizes are polynomials through those of all traces.

    Raises
    ------
    SpecError
        The kernels differ between micro-batches, or a size is not such a polynomial.
    """
    if len({tuple(kernel.structure for kernel in trace) for trace in traces}) > 1:
        raise _unsteady(config, "the model runs different operators for different micro-batches")
    operators = []
    for place, same in enumerate(zip(*traces, strict=True)):
        first = same[0]
        operator: dict[str, object] = {
            "kind": first.kind,
            "name": f"{place}.{first.kind}",
            "inputs": list(first.inputs),
            "output": first.output,
        }
        for name in first.sizes:
            values = [kernel.sizes[name] for kernel in same]
            operator[name] = int(values[0]) if name in INTEGERS else _polynomial(config, values)
        if first.keeps:
            operator["keeps"] = [
                {"name": name, "elements": _polynomial(config, [kernel.keeps[name] for kernel in same])}
                | ({"divided": True} if name in first.divided else {})
                for name in first.keeps
            ]
        if first.weight:
            operator["weight"] = first.weight
        if first.division != "whole":
            operator["division"] = first.division
        if first.enters:
            operator["enters"] = [
                {"name": name, "elements": _polynomial(config, [kernel.enters[name] for kernel in same])}
                for name in first.enters
            ]
        if first.kind == "batched_matmul":
            operator["scores"] = first.sizes["n"] >= first.sizes["k"]
        operators.append(operator)
    return operators


def _polynomial(config: Config, values: Sequence[float]) -> float | dict[str, float]:
    """Return the polynomial through values at POINTS, which PROOF must confirm; a constant is a number."""
    rows = np.array([_terms(*point) for point in POINTS])
    solution = np.linalg.solve(rows, np.array(values[:-1]))
    expected = float(_terms(*PROOF) @ solution)
    if abs(expected - values[-1]) > 1e-6 * max(1.0, abs(values[-1])):
        raise _unsteady(config, "a size is not a polynomial of the number of sequences and their length")
    units = np.array([1.0, 1.0, UNIT, UNIT, UNIT**2, UNIT**2])
    polynomial = {
        name: round(float(value), 6)
        for name, value in zip(TERMS, solution / units, strict=True)
        if abs(value) > 1e-6 * max(np.abs(solution))
    }
    return polynomial.get("constant", 0.0) if not polynomial.keys() - {"constant"} else polynomial


def _terms(sequences: int, length: int) -> Counts:
    """Return the six terms at one micro-batch, with lengths in UNIT."""
    s = length / UNIT
    terms: Counts = np.array([1.0, sequences, s, sequences * s, s**2, sequences * s**2])
    return terms


def _unsteady(config: Config, because: str) -> SpecError:
    allowed = "a model that runs the same operators for every micro-batch"
    return spec_error("model_type", config.model_type, allowed, because, "describe the model by hand")


def _ends(recording: Recording, config: Config) -> dict[str, Any]:
    """Return the parts outside the layers: tables, positions, the last norm, the head.

    Raises
    ------
    SpecError
        Other parts make up more than a thousandth of the model.
    """
    hidden, vocabulary = int(config.hidden_size), int(config.vocab_size)
    shapes = [parameter.shape for parameter in recording.parameters if parameter.layer == ENDS]
    tables = shapes.count((vocabulary, hidden))
    vectors = shapes.count((hidden,))
    positions = [shape[0] for shape in shapes if len(shape) == 2 and shape[1:] == (hidden,)]
    positions = [rows for rows in positions if rows != vocabulary]
    biased = (vocabulary,) in shapes
    named = tables * vocabulary * hidden + vectors * hidden + sum(positions) * hidden + biased * vocabulary
    held = sum(parameter.elements for parameter in recording.parameters if parameter.layer == ENDS)
    total = sum(parameter.elements for parameter in recording.parameters)
    if abs(held - named) > 1e-3 * total or not 1 <= tables <= 2 or len(positions) > 1 or vectors > 4:
        allowed = (
            "outside of the layers: one or two embedding tables, learned positions, one norm and a head"
        )
        because = f"the parameters outside of the layers have the shapes {sorted(set(shapes))}"
        raise spec_error("model_type", config.model_type, allowed, because, "describe the model by hand")
    ends: Mapping[str, Any] = {
        "hidden": hidden,
        "vocabulary": vocabulary,
        "tied_embeddings": tables == 1,
        "head_bias": biased,
        "norm": "layernorm" if vectors in (2, 4) else "rmsnorm",
        "norm_scale": vectors > 0,
        "embedding_norm": vectors > 2,
        "learned_positions": sum(positions),
    }
    return {key: value for key, value in ends.items() if value or key == "norm_scale"}
