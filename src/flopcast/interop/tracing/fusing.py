"""Kernels of a traced layer: each GEMM is one kernel, and passes between GEMMs are fused.

Answers: which kernels would an optimised stack run for the operators of a layer, what do they move, and
which tensors are kept?
Elsewhere: the dispatched operators (recorder.py), the block that these kernels form (blocks.py).

Passes wait until a product needs their results, and then run as one kernel with all passes on which they
depend. A tensor stays inside its kernel if no other kernel reads it. If autograd kept a tensor that stays
inside a kernel, the nearest tensors outside are kept instead, and the backward pass recomputes the rest,
as fused kernels do. A tensor that a product keeps as an operand belongs to the product.
"""

from collections.abc import Iterable, Sequence
from math import prod

from flopcast.errors import InternalError
from flopcast.interop.tracing.division import TensorDivision, divide
from flopcast.interop.tracing.products import RULES
from flopcast.interop.tracing.recorder import Operand, Recording
from flopcast.records import Record, field

ELEMENT_BYTES = 2  # of the traced dtype
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "fused_attention", "convolution")


class FusedKernel(Record):
    """One kernel of a layer; `sizes` holds its numbers on the traced micro-batch, by field name."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    sizes: dict[str, float]
    keeps: dict[str, float] = field(default_factory=dict)  # tensor → elements
    divided: frozenset[str] = frozenset()  # saved tensors of which each rank holds a part
    division: str = "whole"  # division.py
    enters: dict[str, float] = field(default_factory=dict)  # whole tensors that a divided kernel reads
    weight: str = ""  # of a product

    @property
    def structure(self) -> tuple[object, ...]:
        """Return the properties that must be equal for every micro-batch."""
        names = tuple(self.sizes), tuple(self.keeps), tuple(self.enters)
        return self.kind, self.inputs, self.output, *names, self.divided, self.division


class _Layer:
    """The forward pass of one layer, and the flow of its tensors."""

    def __init__(self, recording: Recording, index: int, is_divided: bool) -> None:
        forward = (call for call in recording.calls if call.layer == index and not call.backward)
        self.calls = [call for call in forward if call.writes and not call.is_view]
        self.weights = {parameter.storage for parameter in recording.parameters}
        self.x, self.y = recording.inputs[index], recording.outputs[index]
        self.kept = {memory.storage for memory in recording.kept}
        operands = (operand for call in self.calls for operand in (*call.reads, *call.writes))
        self.bytes = {operand.storage: operand.storage_bytes for operand in operands}
        last: dict[int, int] = {}
        self.needs: list[dict[int, int]] = []  # of each call: storage → the call that wrote it
        for place, call in enumerate(self.calls):
            self.needs.append({o.storage: last[o.storage] for o in call.reads if o.storage in last})
            last |= {operand.storage: place for operand in call.writes}
        self.multiplied = {o.storage for c in self.calls if c.name in PRODUCTS for o in c.reads}
        self.weight_names = {
            p.storage: name_in_layer(p.name, index) for p in recording.parameters if p.layer == index
        }
        self.division = divide(recording, index, self.calls) if is_divided else TensorDivision()
        self.names = {self.x: "x"}
        for call in self.calls:
            for operand in call.writes:
                self.names.setdefault(operand.storage, f"t{len(self.names)}")
        self.names[self.y] = "y"

    def is_own(self, storage: int) -> bool:
        """Return whether a tensor belongs to the layer: it is an input, or written here."""
        return storage in self.names

    def elements(self, storage: int) -> float:
        """Return the number of elements of the traced dtype that fit into a storage."""
        return self.bytes[storage] / ELEMENT_BYTES

    def enters(self, places: Iterable[int]) -> dict[str, float]:
        """Return the elements of tensors that are whole on every rank and that divided calls read."""
        return {
            self.names[operand.storage]: operand.size_bytes / ELEMENT_BYTES
            for place in places
            for operand in self.calls[place].reads
            if operand.storage in self.division.entering.get(place, ())
        }


def name_in_layer(name: str, index: int) -> str:
    """Return the name of a weight within its layer.

    >>> name_in_layer("model.layers.3.mlp.up_proj.weight", 3)
    'mlp.up_proj.weight'
    """
    return name.partition(f".{index}.")[2] or name


def kernels(recording: Recording, index: int, is_divided: bool = True) -> tuple[FusedKernel, ...]:
    """Return the kernels of one layer's forward pass in order, with their division if `is_divided`."""
    layer = _Layer(recording, index, is_divided)
    fused: list[FusedKernel] = []
    pending: list[int] = []
    for place, call in enumerate(layer.calls):
        if call.name not in PRODUCTS:
            pending.append(place)
            continue
        needed = _closure(layer, place, set(pending))
        pending = [other for other in pending if other not in needed]
        fused += [*_joined(layer, sorted(needed)), _product(layer, place)]
    return (*fused, *_joined(layer, pending))


def division_of(recording: Recording, index: int) -> TensorDivision:
    """Return how tensor parallelism divides one layer."""
    return _Layer(recording, index, is_divided=True).division


def _closure(layer: _Layer, place: int, among: set[int]) -> set[int]:
    """Return the calls in `among` on which a call depends, directly or indirectly."""
    closure: set[int] = set()
    ahead = [place]
    while ahead:
        new = {writer for writer in layer.needs[ahead.pop()].values() if writer in among} - closure
        closure |= new
        ahead += new
    return closure


def _joined(layer: _Layer, run: Sequence[int]) -> list[FusedKernel]:
    if not run:
        return []
    inside = set(run)
    written = {operand.storage for place in run for operand in layer.calls[place].writes}
    seen = _seen(layer, inside, written)
    read = _read(layer, run, inside)
    moved = sum(read.values()) + sum(layer.elements(storage) for storage in seen)
    kept: dict[int, None] = dict.fromkeys(s for s in read if s in layer.kept and layer.is_own(s))
    for place in run:
        for operand in layer.calls[place].writes:
            if operand.storage in layer.kept:
                kept |= dict.fromkeys(_nearest(layer, operand.storage, place, inside, seen))
    kept = {storage: None for storage in kept if storage not in written or storage not in layer.multiplied}
    outputs = sorted(seen or written, key=lambda storage: -layer.elements(storage))
    parts = layer.division.storages
    divided = sum(size for storage, size in read.items() if storage in parts)
    divided += sum(layer.elements(storage) for storage in seen if storage in parts)
    return [
        FusedKernel(
            kind="pass",
            inputs=tuple(layer.names[storage] for storage in read if layer.is_own(storage)),
            output=layer.names[outputs[0]],
            sizes={"moved": moved} | ({"divided": divided} if divided else {}),
            keeps={layer.names[storage]: layer.elements(storage) for storage in kept},
            divided=frozenset(layer.names[storage] for storage in kept if storage in parts),
            enters=layer.enters(run),
        )
    ]


def _seen(layer: _Layer, inside: set[int], written: Iterable[int]) -> list[int]:
    """Return storages that are written inside and read outside or leave the layer, in writing order."""
    outside = {
        storage
        for place, needs in enumerate(layer.needs)
        if place not in inside
        for storage, writer in needs.items()
        if writer in inside
    }
    return [storage for storage in layer.names if storage in written and storage in {*outside, layer.y}]


def _read(layer: _Layer, run: Sequence[int], inside: set[int]) -> dict[int, float]:
    """Return the elements that a run reads from every outside tensor and weight; each part counts once."""
    read: dict[int, float] = {}
    for place in run:
        for operand in layer.calls[place].reads:
            if layer.needs[place].get(operand.storage) not in inside:
                size = read.get(operand.storage, 0.0) + operand.size_bytes / ELEMENT_BYTES
                read[operand.storage] = min(size, layer.elements(operand.storage))
    return read


def _nearest(layer: _Layer, storage: int, place: int, inside: set[int], seen: Sequence[int]) -> list[int]:
    """Return the tensors at the border of a kernel from which an inner tensor is recomputed."""
    if storage in seen:
        return [storage]
    nearest: list[int] = []
    for operand in layer.calls[place].reads:
        writer = layer.needs[place].get(operand.storage)
        if writer in inside and writer is not None and writer != place:
            nearest += _nearest(layer, operand.storage, writer, inside, seen)
        elif layer.is_own(operand.storage):
            nearest.append(operand.storage)
    return nearest


def _product(layer: _Layer, place: int) -> FusedKernel:
    """Return a matrix product with its sizes; the operands that are not weights are its inputs."""
    call = layer.calls[place]
    reads = call.reads[-2:] if call.name in ("mm", "addmm", "bmm", "baddbmm") else call.reads
    kind, sizes = _sizes(call.name, reads, [operand.storage in layer.weights for operand in reads])
    return FusedKernel(
        kind=kind,
        inputs=tuple(layer.names[operand.storage] for operand in reads if layer.is_own(operand.storage)),
        output=layer.names[call.writes[0].storage],
        sizes=sizes,
        division=layer.division.kinds.get(place, "whole"),
        enters=layer.enters([place]),
        weight=next((layer.weight_names[o.storage] for o in reads if o.storage in layer.weight_names), ""),
    )


def _sizes(name: str, reads: Sequence[Operand], weights: Sequence[bool]) -> tuple[str, dict[str, float]]:
    """Return the kind of a product and its numbers, from the shapes of its operands.

    A batch of products with a batch of weights is a product of groups with equally many rows.
    """
    left, right = reads[0].shape, reads[1].shape
    if name == "fused_attention":
        value = reads[2].shape
        own = {} if value[-1] == left[-1] else {"value_head_size": value[-1]}
        return "attention", {"heads": left[1], "kv_heads": right[1], "head_size": left[-1], **own}
    if name == "_grouped_mm" or (name in ("bmm", "baddbmm") and any(weights)):
        rows = prod(left[:-1])
        return "grouped_matmul", {"groups": right[0], "rows": rows, "n": right[-1], "k": right[-2]}
    if name in ("bmm", "baddbmm"):
        return "batched_matmul", {"batch": left[0], "m": left[1], "n": right[-1], "k": left[-1]}
    if name == "convolution":
        terms = prod(right[1:])
        return "matmul", {"m": left[0] * prod(left[2:]), "n": right[0], "k": terms}
    if name in RULES:
        return "matmul", {"m": left[0], "n": right[-1], "k": left[-1]}
    raise InternalError(f"no sizes of a product named {name}")
