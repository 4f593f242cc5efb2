"""Division of a block of a graph by tensor parallelism.

Answers: which products are divided by columns and which by rows, which operators lie between them, and why
can the other products not be divided?
Elsewhere: the axis along which a tensor is divided (shards.py), the messages (layers/traced.py), the
division of decoders that were traced (interop/tracing/division.py).

The pattern is Megatron-LM's (arXiv:1909.08053, section 3). A linear layer or a convolution that is divided
by columns writes a part of its output on each rank. Operators on single elements, attention of whole heads
and convolutions of whole groups keep this part. A product that is divided by rows reads it and writes
partial sums, which the ranks add. The analysis first assumes that each product of a whole tensor and a
weight is divided by columns, and follows its output through the block. If an operator needs the parts of
several ranks, all columns that lead to it stay whole, and the analysis starts again without them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import gcd, prod

from flopcast.graph.canonical import canonical
from flopcast.graph.lowering import Lowering
from flopcast.graph.operator_graph import GraphNode, Shape
from flopcast.graph.products import COLUMNS
from flopcast.graph.shards import (
    Axes,
    CannotDivideError,
    ColumnProducts,
    Divided,
    Factor,
    columns,
    divided,
    divided_axis,
    reshaped,
    resized,
    viewed,
)
from flopcast.records import Record, field

BY_HEADS = ("attention", "matmul")
CORES = ("attention",)
CHANNELS, ELEMENTS, ROWS, STATED = "channels", "elements", "rows", "stated"  # as Canonical.alone lists them


class Division(Record):
    """How tensor parallelism divides a block of a graph; operators are named by their first outputs.

    Attributes
    ----------
    kinds : mapping
        "column", "row" or "within" for each operator that is divided.
    entering : mapping
        For an operator, tensors that every rank holds whole and whose gradients are partial sums.
    shared : mapping
        For an operator, the inputs that each rank reads whole.
    tensors : set
        Divided tensors, including weights; views are replaced by the tensors that they view.
    units : int
        The number of heads or columns that a tensor-parallel degree must divide; 1 if nothing is divided.
    whole : mapping
        The reason why a product is not divided, by the name of its weight.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    entering: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shared: dict[str, frozenset[str]] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()
    units: int = 1
    whole: Mapping[str, str] = field(default_factory=dict)


def uses_of_weights(known: Lowering) -> Counter[str]:
    """Return how many operators of the graph read each weight."""
    return Counter(
        root
        for node in known.graph.nodes
        if not canonical(node).is_view
        for root in {known.root(name) for name in node.inputs if name and known.is_weight(name)}
    )


def divide(
    known: Lowering, nodes: Sequence[GraphNode], leaving: Collection[str], uses: Mapping[str, int]
) -> Division:
    """Return the division of a block.

    Parameters
    ----------
    nodes : the operators of the block, including views
    leaving : tensors of the block that other blocks read
    uses : the result of `uses_of_weights`
    """
    return divided(lambda whole: _Attempt(known, uses, whole).result(nodes, leaving))


class _Attempt:
    """One pass through a block that leaves the products of `whole` weights undivided."""

    def __init__(self, known: Lowering, uses: Mapping[str, int], whole: Mapping[str, str]) -> None:
        self.known, self.uses, self.whole = known, uses, whole
        self.axes: dict[str, Axes] = {}
        self.roots: dict[str, frozenset[str]] = {}  # of a divided tensor: the weights of its columns
        self.kinds: dict[str, str] = {}
        self.entering: dict[str, tuple[str, ...]] = {}
        self.shared: dict[str, frozenset[str]] = {}
        self.weights: set[str] = set()  # that are divided
        self.products = ColumnProducts[str]()

    def result(self, nodes: Sequence[GraphNode], leaving: Collection[str]) -> Division:
        """Return the division.

        Raises
        ------
        CannotDivideError
            Some products must stay whole.
        """
        for node in nodes:
            self._visit(node)
        for name, roots in self.roots.items():
            if self.known.root(name) in leaving:
                raise CannotDivideError(roots, "other blocks read its output")
        degree, units = self.products.degree(), self.products.units
        if units and degree == 1:
            fewest = min(units, key=units.__getitem__)
            reason = f"its {units[fewest]} heads or columns cannot be divided like those of other GEMMs"
            raise CannotDivideError(self.products.joined[fewest], reason)
        return Division(
            kinds=self.kinds,
            entering=self.entering,
            shared=self.shared,
            tensors=frozenset({*map(self.known.root, self.axes), *self.weights}),
            units=degree,
            whole=self.whole,
        )

    def _visit(self, node: GraphNode) -> None:
        """Divide one operator, or leave it whole."""
        if not any(node.outputs):
            return
        parts = [name for name in node.inputs if name in self.axes]
        if canonical(node).is_view:
            if parts:
                self._view(node, parts[0])
        elif self._has_weight(node):
            self._product(node, parts)
        elif parts:
            is_pass = canonical(node).flop is None
            divide_operator = self._pass if is_pass else self._by_heads
            divide_operator(node, parts)

    def _has_weight(self, node: GraphNode) -> bool:
        """Return whether an operator is a product of data and a weight that could be divided."""
        if node.operator not in COLUMNS or not self.known.is_weight(node.inputs[1]):
            return False
        return COLUMNS[node.operator] > 0 or len(self._shape(node.inputs[1])) == 2

    def _shape(self, name: str) -> Shape:
        return self.known.graph.tensors[name].shape

    def _view(self, node: GraphNode, source: str) -> None:
        for name in filter(None, node.outputs):
            axes = viewed(node, self._shape(source), self._shape(name), self.axes[source])
            if axes is None:
                raise CannotDivideError(self.roots[source], "flopcast cannot follow a view of its output")
            self.axes[name], self.roots[name] = axes, self.roots[source]

    def _product(self, node: GraphNode, parts: Sequence[str]) -> None:
        """Divide a product with a weight by columns or by rows, or leave it whole."""
        data, weight = node.inputs[0], self.known.root(node.inputs[1])
        groups = node.attributes.get("groups", 1)
        out, shape = node.outputs[0], self._shape(node.outputs[0])
        along = (COLUMNS[node.operator] or len(shape) - 1) - len(shape)
        if data not in parts:
            if parts:
                raise CannotDivideError(self.roots[parts[0]], "a GEMM adds its output to another tensor")
            if weight in self.whole or data not in self.known.of_batch or groups != 1:
                return
            self._column(node, weight, along)
            return
        roots = self.roots[data]
        axis = self._axis(data)
        if axis.axis != along or axis.before > 1 or self.uses[weight] > 1:
            reason = f"the {node.operator} after it does not sum over the columns of its output"
            raise CannotDivideError(roots, reason)
        self.weights.add(weight)
        if isinstance(groups, int) and groups > 1:
            self.products.join(roots, gcd(axis.extent, groups))
            self.axes[out] = columns(shape, along, groups, shape[along] // groups)
            self.roots[out], self.kinds[out] = roots, "within"
            self.weights |= {self.known.root(name) for name in node.inputs[2:] if name}
            return
        self.products.join(roots, axis.extent)
        self.products.ended |= roots
        self.kinds[out] = "row"

    def _column(self, node: GraphNode, weight: str, along: int) -> None:
        out, shape = node.outputs[0], self._shape(node.outputs[0])
        if self.uses[weight] > 1:
            raise CannotDivideError({weight}, "more than one operator uses the weight")
        self.axes[out] = columns(shape, along, shape[along])
        self.roots[out], self.kinds[out] = self.products.add(weight, shape[along]), "column"
        if node.inputs[0] in self.known.with_gradient:
            self.entering[out] = (self.known.root(node.inputs[0]),)
        self.weights |= {weight, *(self.known.root(name) for name in node.inputs[2:] if name)}

    def _by_heads(self, node: GraphNode, parts: Sequence[str]) -> None:
        """Divide attention, or batched products, by heads, along the third axis from the last."""
        factors = node.inputs[: 3 if canonical(node).family in CORES else 2]
        roots = self._roots(parts)
        if node.operator not in BY_HEADS:
            raise CannotDivideError(roots, f"flopcast does not divide the {node.operator} after it")
        if any(name not in self.axes for name in factors):
            raise CannotDivideError(
                roots, f"the {node.operator} after it also reads a tensor that is not divided"
            )
        axes = [self._axis(name) for name in factors]
        if any(axis.axis != -3 for axis in axes):
            raise CannotDivideError(
                roots, f"the {node.operator} after it does not work on each head separately"
            )
        self._others(node, [name for name in node.inputs[len(factors) :] if name], -3, roots)
        self.products.join(roots, *(axis.extent for axis in axes))
        out = node.outputs[0]
        fewest = min(zip(axes, factors, strict=True), key=lambda each: each[0].extent)[1]
        made = self.axes[fewest]
        rows = ((self._shape(out)[-2], ()),)
        heads, last = _within(0, made[-3]), _within(1, self.axes[factors[-1]][-1])
        self.axes[out] = (*made[:-3], heads, rows, last)
        self.roots[out], self.kinds[out] = roots, "within"

    def _pass(self, node: GraphNode, parts: Sequence[str]) -> None:
        """Divide a memory-bound operator along the divided axis of its inputs."""
        roots, out = self._roots(parts), node.outputs[0]
        axes = [self._axis(name) for name in parts]
        axis = axes[0].axis
        if any((each.axis, each.before) != (axis, axes[0].before) for each in axes):
            raise CannotDivideError(roots, f"the {node.operator} after it combines different axes")
        fewest = min(zip(axes, parts, strict=True), key=lambda each: each[0].extent)[1]
        written = _written(node, self._shape(fewest), self._shape(out), self.axes[fewest], axis)
        sizes = {self._shape(name)[axis] for name in parts}
        differ = len(sizes) > 1 and not _joins(node)
        if written is None or differ or divided_axis(written) is None:
            reason = f"the {node.operator} after it combines several columns of its output"
            raise CannotDivideError(roots, reason)
        others = [name for name in node.inputs if name and name not in self.axes]
        if _joins(node) and others:
            raise CannotDivideError(roots, "its output is concatenated with a tensor that is not divided")
        self._others(node, others, None if canonical(node).alone == ROWS else axis, roots)
        self.products.join(roots, *(each.extent for each in axes))
        self.axes[out], self.roots[out], self.kinds[out] = written, roots, "within"

    def _others(
        self, node: GraphNode, others: Sequence[str], axis: int | None, roots: frozenset[str]
    ) -> None:
        """Record the undivided inputs that each rank reads whole, and those whose gradients it adds."""
        known, out = self.known, node.outputs[0]
        shared, entering = set[str](), list[str]()
        of_channels = canonical(node).alone == CHANNELS
        for name in others:
            shape = self._shape(name)
            is_cut = axis is not None and (shape[axis] > 1 if len(shape) >= -axis else False)
            is_cut = is_cut or (of_channels and known.is_weight(name))
            if is_cut and not (known.is_weight(name) and self.uses[known.root(name)] > 1):
                if known.is_weight(name):
                    self.weights.add(known.root(name))
                elif name in known.of_batch:
                    reason = f"the {node.operator} after it also reads a tensor that is not divided"
                    raise CannotDivideError(roots, reason)
            else:
                shared.add(known.root(name))
            if name in known.with_gradient and not known.is_weight(name):
                entering.append(known.root(name))
        if shared:
            self.shared[out] = frozenset(shared)
        if entering:
            self.entering[out] = tuple(dict.fromkeys(entering))

    def _axis(self, name: str) -> Divided:
        """Return the divided axis of a tensor."""
        axis = divided_axis(self.axes[name])
        if axis is None:
            raise CannotDivideError(
                self.roots[name], "an operator reads a single head or column of its output"
            )
        return axis

    def _roots(self, names: Sequence[str]) -> frozenset[str]:
        return frozenset[str]().union(*(self.roots[name] for name in names))


def _within(place: int, factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Return factors whose columns lie inside those of another tensor or, for place 0, outside them."""
    return tuple((size, (place, *key) if key else ()) for size, key in factors)


def _written(node: GraphNode, before: Shape, after: Shape, axes: Axes, axis: int) -> Axes | None:
    """Return the axes of a memory-bound operator's output, or None if it works across the divided axis."""
    known, place = canonical(node), len(before) + axis
    along = node.attributes.get("along", ())
    stated = along if isinstance(along, tuple) else (int(along),)
    over = {each % len(before) for each in stated}
    joins = _joins(node) and over == {place} and len(after) == len(before)
    if joins and all(key for _, key in axes[place]):  # each rank holds a part of each of the tensors
        return (*axes[:place], ((after[place], axes[place][0][1]),), *axes[place + 1 :])
    is_alone = {
        ELEMENTS: True,
        CHANNELS: place == 1,
        ROWS: place < min(over, default=len(before) - 1),
        STATED: bool(over) and place not in over,
    }
    if not is_alone.get(known.alone, False):
        return None
    if _joins(node) and len(after) == len(before) + 1:  # a stack
        new = stated[0] % len(after)
        return (*axes[:new], ((after[new], ()),), *axes[new:])
    if known.family == "movement" and after != before and prod(after) == prod(before):
        return reshaped(axes, after)
    if len(after) < len(before):
        return tuple(factors for each, factors in enumerate(axes) if each not in over)
    found = resized(before, after, axes)
    return found if found is not None and after[axis] == before[axis] else None


def _joins(node: GraphNode) -> bool:
    """Return whether an operator joins several tensors into one."""
    return len(node.inputs) > 1 and canonical(node).family == "movement"
