"""A recording of a model's code: its operators in order, and the tensors that they read, write and keep.

Answers: which operators do a forward and a backward pass dispatch, on which tensors, in which decoder
layer, and which memory does autograd hold between the two?
Elsewhere: the model (weightless.py), FLOP (products.py), sums (counts.py).

Tensors are fakes, which have shapes and storages but no numbers and no memory. Two views of one storage
share its memory. The backward pass of a layer starts when the gradient of its output is ready, and ends
when the gradient of its input is ready.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from math import prod
from typing import Any

from flopcast.interop.tracing.products import Shape, flop_of
from flopcast.records import Record, field

Torch = Any  # the module: it is imported when a trace is asked for
Module = Any
Tensor = Any
Hook = Any  # what torch calls, or what takes a hook away again
Result = Any  # whatever a module, or an operator, returns
ENDS = -1  # the place of what lies in no decoder layer: embedding, last norm, head
WITHOUT_DATA = ("device", "size", "stride", "sym_size", "sym_stride", "sym_numel", "numel")


class Operand(Record):
    """A tensor that an operator reads or writes; `storage` is the number of the memory that it views.

    `storage_bytes` is the size of this memory; a view may cover a part of it, or repeat elements.
    `strides` are those of each axis, in elements.
    """

    storage: int
    shape: Shape
    element_bytes: int
    storage_bytes: int
    strides: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes that a view covers."""
        return min(prod(self.shape) * self.element_bytes, self.storage_bytes)


class Call(Record):
    """One operator of ATen as it was dispatched; `layer` is the number of the decoder layer, or ENDS."""

    name: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    layer: int
    backward: bool

    @property
    def is_view(self) -> bool:
        """Return whether nothing is computed because the output shares the memory of an input."""
        read = {operand.storage for operand in self.reads}
        in_place = self.name.endswith("_")
        return not in_place and all(operand.storage in read for operand in self.writes)

    @property
    def flop(self) -> float:
        """Return the FLOP of matrix products; other operators count 0."""
        return flop_of(self.name, [operand.shape for operand in self.reads])


class Kept(Record):
    """Memory that autograd holds between forward and backward, and the first layer that saved it."""

    storage: int
    size_bytes: int
    layer: int


class Parameter(Record, kw_only=False):
    """A weight of the model; tied weights count once. `layer` is ENDS outside of all decoder layers."""

    name: str
    storage: int
    shape: Shape
    layer: int

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)


class _Notes(Record, eq=False, frozen=False):
    """The recording so far, the only mutable object of this module."""

    calls: list[Call] = field(default_factory=list)
    kept: dict[int, Kept] = field(default_factory=dict)
    storages: dict[int, int] = field(default_factory=dict)  # address → number
    alive: list[Tensor] = field(default_factory=list)  # so that no address is used twice
    layer: int = ENDS
    backward: bool = False

    def number(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.storages:
            self.storages[address] = len(self.storages)
            self.alive.append(storage)
        return self.storages[address]

    def operand(self, tensor: Tensor) -> Operand:
        """Return the record of a tensor."""
        return Operand(
            storage=self.number(tensor),
            shape=tuple(tensor.shape),
            element_bytes=tensor.element_size(),
            storage_bytes=int(tensor.untyped_storage().nbytes()),
            strides=tuple(tensor.stride()),
        )


class Recording(Record):
    """A forward and a backward pass.

    `inputs[i]` is the storage of the input of decoder layer i, and `outputs[i]` that of its result.
    """

    calls: tuple[Call, ...]
    kept: tuple[Kept, ...]
    parameters: tuple[Parameter, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def record(torch: Torch, model: Module, layers: list[Module], ids: Tensor) -> Recording:
    """Run the model forward and backward on token ids, and record its operators.

    Parameters
    ----------
    torch : the torch package
    model : a model of fake tensors in training mode, whose call returns `logits`
    layers : the decoder layers among its modules, in order
    ids : token ids of shape (sequences, tokens)
    """
    notes = _Notes()
    parameters = _parameters(model, layers, notes)
    weights = frozenset(parameter.storage for parameter in parameters)
    ends: dict[int, list[int]] = {index: [ENDS, ENDS] for index in range(len(layers))}
    with ExitStack() as stack:
        for index, layer in enumerate(layers):
            for handle in _borders(layer, index, notes, ends[index]):
                stack.callback(handle.remove)
        stack.enter_context(_dispatching(torch, notes))
        with torch.autograd.graph.saved_tensors_hooks(_keeping(notes, weights), lambda kept: kept):
            logits = model(input_ids=ids, use_cache=False).logits
        notes.layer, notes.backward = ENDS, True
        logits.backward(torch.ones_like(logits))
    return Recording(
        calls=tuple(notes.calls),
        kept=tuple(notes.kept.values()),
        parameters=parameters,
        inputs=tuple(pair[0] for pair in ends.values()),
        outputs=tuple(pair[1] for pair in ends.values()),
    )


def _parameters(model: Module, layers: list[Module], notes: _Notes) -> tuple[Parameter, ...]:
    """Return every weight once, with the layer that holds it."""
    inside = {id(weight): index for index, layer in enumerate(layers) for weight in layer.parameters()}
    return tuple(
        Parameter(name, notes.number(weight), tuple(weight.shape), inside.get(id(weight), ENDS))
        for name, weight in model.named_parameters()
    )


def _keeping(notes: _Notes, weights: frozenset[int]) -> Hook:
    """Return the hook that autograd calls for every tensor that it saves, except weights."""

    def keep(tensor: Tensor) -> Tensor:
        storage = notes.number(tensor)
        if storage not in weights and storage not in notes.kept:
            size_bytes = int(tensor.untyped_storage().nbytes())
            notes.kept[storage] = Kept(storage=storage, size_bytes=size_bytes, layer=notes.layer)
        return tensor

    return keep


def _borders(layer: Module, index: int, notes: _Notes, ends: list[int]) -> Iterator[Hook]:
    """Add hooks that mark the beginning and the end of each layer, in both passes."""

    def begin(_: Module, arguments: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        x = arguments[0] if arguments else named["hidden_states"]
        notes.layer, ends[0] = index, notes.number(x)
        if index == 0 and x.requires_grad:
            x.register_hook(_enter(notes, ENDS))

    def end(_: Module, __: tuple[Tensor, ...], output: Result) -> None:
        y = output[0] if isinstance(output, tuple) else output
        notes.layer, ends[1] = ENDS, notes.number(y)
        y.register_hook(_enter(notes, index))

    yield layer.register_forward_pre_hook(begin, with_kwargs=True)
    yield layer.register_forward_hook(end)


def _enter(notes: _Notes, layer: int) -> Hook:
    """Return a hook on a gradient after which operators belong to `layer`."""

    def enter(_: Tensor) -> None:
        notes.layer = layer

    return enter


@contextmanager
def _dispatching(torch: Torch, notes: _Notes) -> Iterator[None]:
    """Yield the mode that records every operator that torch dispatches, except queries for shapes."""
    base = import_module("torch.utils._python_dispatch").TorchDispatchMode

    def dispatch(
        _: Hook, function: Hook, __: object, arguments: Result = (), named: Result = None
    ) -> Result:
        result = function(*arguments, **(named or {}))
        name = function._schema.name.rpartition("::")[2]
        if name not in WITHOUT_DATA:
            leaves = (torch.utils._pytree.tree_leaves(part) for part in ((arguments, named), result))
            reads, writes = (
                tuple(notes.operand(leaf) for leaf in part if isinstance(leaf, torch.Tensor))
                for part in leaves
            )
            call = Call(name=name, reads=reads, writes=writes, layer=notes.layer, backward=notes.backward)
            notes.calls.append(call)
        return result

    mode = type("Recorder", (base,), {"__torch_dispatch__": dispatch})
    with mode():
        yield
