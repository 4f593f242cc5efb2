"""Operators of PyTorch's ATen library by the canonical names of flopcast.

Answers: which canonical operator is `aten.native_layer_norm`, and which of its arguments does it read?
Elsewhere: the names (operators.yaml), the canonical operators (graph/canonical.py), the archive that holds
the calls (archive.py). An operator that this table lacks is unknown and is priced by its bytes.
"""

from collections.abc import Callable, Mapping

from flopcast.files.package_table import meanings, read_table
from flopcast.graph.operator_graph import Attribute, GraphTensor
from flopcast.interop.graphs.axes import along, of_view
from flopcast.records import Record, field, replace

_TABLE = read_table(__package__, "operators.yaml")
VIEWS, MAY_COPY, WITHOUT_DATA = (
    frozenset(_TABLE["aten"][name].split()) for name in ("views", "may_copy", "without_data")
)
CANONICAL_NAMES = meanings({name: words.get("aten", "") for name, words in _TABLE["canonical"].items()})


class Call(Record):
    """A call of an operator of ATen.

    Attributes
    ----------
    name : str
        Library and operator, without overload: "aten.add_".
    tensors, results : tuple of GraphTensor
        The tensors that it reads and writes, in order.
    arguments : mapping
        Its other arguments by name.
    is_view_by_strides : bool
        Whether its result may share the memory of its first tensor.
    """

    name: str
    tensors: tuple[GraphTensor, ...]
    results: tuple[GraphTensor, ...]
    arguments: Mapping[str, object] = field(default_factory=dict)
    is_view_by_strides: bool = True

    @property
    def is_in_place(self) -> bool:
        """Return whether it writes into its first tensor."""
        return self.name.endswith("_") and not self.name.endswith("__")

    @property
    def base(self) -> str:
        """Return the operator without its library and without the mark of writing in place."""
        word = self.name.rpartition(".")[2]
        return word.removesuffix("_") if self.is_in_place else word

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the names of the tensors that it reads."""
        return tuple(tensor.name for tensor in self.tensors)


class Translated(Record):
    """A canonical operator, and the names of the tensors that it reads."""

    operator: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


def translate(call: Call) -> Translated:
    """Return the canonical operator of a call.

    Examples
    --------
    >>> x, y = GraphTensor(name="x", shape=(2, 8)), GraphTensor(name="y", shape=(2, 8))
    >>> translate(Call(name="aten.relu_", tensors=(x,), results=(y,))).operator
    'relu'
    """
    base, shape = call.base, call.tensors[0].shape if call.tensors else ()
    if base in SPECIAL:
        made = SPECIAL[base](call)
    elif base in VIEWS or (base in MAY_COPY and call.is_view_by_strides):
        axes = of_view(base, shape, call.arguments)
        made = Translated(operator="view", inputs=call.inputs[:1], attributes=axes)
    elif base in MAY_COPY:
        made = Translated(operator="copy", inputs=call.inputs[:1])
    else:
        unknown = f"{call.name.rpartition('.')[0]}.{base}".strip(".")
        operator = CANONICAL_NAMES.get(base, unknown)
        made = Translated(operator=operator, inputs=call.inputs, attributes=along(base, call.arguments))
    return replace(made, attributes={**made.attributes, "in_place": True}) if call.is_in_place else made


def _convolution(call: Call) -> Translated:
    """Return a convolution; an argument of `aten.convolution` states whether it is transposed."""
    transposed = call.base.startswith("conv_transpose") or bool(call.arguments.get("transposed"))
    groups = call.arguments.get("groups", 1)
    operator = "transposed_convolution" if transposed else "convolution"
    attributes: dict[str, Attribute] = {"groups": groups if isinstance(groups, int) else 1}
    return Translated(operator=operator, inputs=call.inputs, attributes=attributes)


def _added_product(call: Call) -> Translated:
    """Return the product of `bias + a @ b`, whose bias is the first argument."""
    bias, *factors = call.inputs
    return Translated(operator="matmul", inputs=(*factors, bias))


def _attention(call: Call) -> Translated:
    """Return attention as one kernel."""
    causal = bool(call.arguments.get("is_causal"))
    return Translated(operator="attention", inputs=call.inputs, attributes={"causal": causal})


def _batch_norm(call: Call) -> Translated:
    """Return batch norm, with the statistics of the batch in training and with stored ones otherwise."""
    training = bool(call.arguments.get("training", call.base in TRAINING_NORMS))
    operator = "batch_norm" if training else "batch_norm_inference"
    return Translated(operator=operator, inputs=call.inputs)


def _dropout(call: Call) -> Translated:
    """Return dropout, or a view if it drops nothing."""
    drops = call.arguments.get("p") and call.arguments.get("train", call.arguments.get("training", True))
    return Translated(operator="dropout" if drops else "view", inputs=call.inputs[:1])


def _cast(call: Call) -> Translated:
    """Return a cast, or a view if the dtype does not change."""
    before, after = call.tensors[:1], call.results[:1]
    if not before:
        return Translated(operator="constant", inputs=())
    changes = bool(after) and before[0].dtype != after[0].dtype
    return Translated(operator="cast" if changes else "view", inputs=call.inputs[:1])


def _einsum(call: Call) -> Translated:
    """Return an einsum with its equation."""
    equation = str(call.arguments.get("equation", ""))
    return Translated(operator="einsum", inputs=call.inputs, attributes={"equation": equation})


def _extreme(call: Call) -> Translated:
    """Return the larger of two tensors element by element, or the largest element along an axis."""
    return Translated(operator=f"{call.base}imum" if len(call.tensors) > 1 else "amax", inputs=call.inputs)


TRAINING_NORMS = ("_native_batch_norm_legit_functional", "_batch_norm_with_update")
RULES: dict[str, Callable[[Call], Translated]] = {  # of canonical operators that need more than a new name
    "convolution": _convolution,
    "attention": _attention,
    "batch_norm": _batch_norm,
    "dropout": _dropout,
    "cast": _cast,
    "einsum": _einsum,
}
SPECIAL: dict[str, Callable[[Call], Translated]] = {
    **{name: rule for of, rule in RULES.items() for name in _TABLE["canonical"][of]["aten"].split()},
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv"), _added_product),
    **dict.fromkeys(("max", "min"), _extreme),
}
