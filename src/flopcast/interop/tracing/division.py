"""Division of one traced layer by tensor parallelism.

Answers: which products are divided by columns and which by rows, which tensors lie between them, and why
can the other products not be divided?
Elsewhere: the recording (recorder.py), the kernels (fusing.py), the messages (layers/traced.py).

The pattern is Megatron-LM's (arXiv:1909.08053, section 3). A product that is divided by columns writes a
part of its output on each rank. Passes over single elements, and attention of whole heads, keep this
part. A product that is divided by rows reads the part and writes partial sums, which the ranks add. The
analysis first assumes that each product of a whole tensor and a weight is divided by columns, and follows
its output through the layer. If an operator needs the parts of several ranks, all columns that lead to it
stay whole, and the analysis starts again without them.

The parts of a tensor are described by their memory: byte `o` of a storage belongs to part `(o // inner) %
extent`. Views therefore need no separate rules.
"""

from collections.abc import Mapping, Sequence

from flopcast.graph.shards import CannotDivideError, ColumnProducts, divided
from flopcast.interop.tracing.products import Shape
from flopcast.interop.tracing.recorder import Call, Operand, Recording
from flopcast.records import Record, field

Kind = str  # "column", "row" or "within"
WITH_WEIGHTS = ("mm", "addmm", "bmm", "baddbmm", "_grouped_mm")
OVER_LAST = ("_softmax", "native_layer_norm", "_fused_rms_norm")  # operators across the last axis
WITH_SHAPE = ("cat", "mean", "sum", "amax", "constant_pad_nd")  # operators that change the size of an axis
ELEMENTWISE = frozenset(
    """abs add clamp clamp_max clamp_min clone copy div eq erf exp fill ge gelu gt hardtanh le leaky_relu
    log logical_and logical_not lt masked_fill maximum minimum mul ne neg pow reciprocal relu rsqrt rsub
    sigmoid silu softplus sqrt square sub tanh threshold where _to_copy""".split()  # noqa: SIM905  a long list
)


class TensorDivision(Record):
    """The division of one layer by tensor parallelism; indices refer to `calls`.

    `units` is the number of heads or columns that a degree must divide, 1 if nothing is divided.
    `entering` names, for a call, the storages that are whole on every rank and whose gradients are
    partial sums. `whole` gives the reason for each weight of a product that is not divided.
    """

    kinds: dict[int, Kind] = field(default_factory=dict)
    entering: dict[int, tuple[int, ...]] = field(default_factory=dict)
    storages: frozenset[int] = frozenset()  # divided storages, including weights
    units: int = 1
    whole: Mapping[int, str] = field(default_factory=dict)


class _Shard(Record):
    """The layout of the shards of a storage (`inner` in bytes), and the weights of their columns."""

    inner: int
    extent: int
    roots: frozenset[int]


class _Axis(Record):
    """The axis of a view that is divided into shards, counted from the last, which is -1."""

    axis: int
    inner: int
    extent: int


def divide(recording: Recording, index: int, calls: Sequence[Call]) -> TensorDivision:
    """Return the division of layer `index`, whose forward pass runs `calls` (without views)."""
    return divided(lambda whole: _Attempt(recording, index, calls, whole).result())


def _axis_of(operand: Operand, shard: _Shard) -> _Axis | None:
    """Return the outermost axis of a view that crosses shards, or None if the view is in one shard."""
    spans = [
        (stride, axis - len(operand.shape), size)
        for axis, (stride, size) in enumerate(zip(_strides_bytes(operand), operand.shape, strict=True))
        if size > 1 and 0 < stride < shard.inner * shard.extent and stride * size > shard.inner
    ]
    if not spans:
        return None
    stride, axis, size = max(spans)
    if stride >= shard.inner:
        return _Axis(axis=axis, inner=1, extent=min(size, shard.inner * shard.extent // stride))
    if shard.inner % stride:
        return None
    extent = min(shard.extent, size * stride // shard.inner)
    return _Axis(axis=axis, inner=shard.inner // stride, extent=extent)


def _strides_bytes(operand: Operand) -> list[int]:
    """Return the stride of each axis in bytes; elements of views as complex numbers are larger."""
    return [stride * operand.element_bytes for stride in operand.strides]


def _size(shape: Shape, axis: int) -> int:
    """Return the size of an axis counted from the last; 1 if the shape is broadcast along it."""
    return shape[axis] if len(shape) >= -axis else 1


class _Attempt:
    """One pass through the layer that leaves the products of `whole` weights undivided."""

    def __init__(
        self, recording: Recording, index: int, calls: Sequence[Call], whole: Mapping[int, str]
    ) -> None:
        self.calls, self.whole, self.y = calls, whole, recording.outputs[index]
        self.weights = {p.storage for p in recording.parameters}
        own = {p.storage for p in recording.parameters if p.layer == index}
        uses = [s for c in calls for s in {o.storage for o in c.reads} & own]
        self.once = {storage for storage in own if uses.count(storage) == 1}
        self.shards: dict[int, _Shard] = {}
        self.kinds: dict[int, Kind] = {}
        self.entering: dict[int, tuple[int, ...]] = {}
        self.divided: set[int] = set()  # weights and constants
        self.moving = {recording.inputs[index]}  # storages that depend on the input of the layer
        self.learned = set(self.weights)  # storages that depend on a weight or on the input
        self.products = ColumnProducts[int]()

    def result(self) -> TensorDivision:
        """Return the division.

        Raises
        ------
        CannotDivideError
            Some products must stay whole.
        """
        for place, call in enumerate(self.calls):
            self._visit(place, call)
            read = {operand.storage for operand in call.reads}
            written = {operand.storage for operand in call.writes}
            self.moving |= written if read & self.moving else set()
            self.learned |= written if read & (self.learned | self.moving) else set()
        if self.y in self.shards:
            reason = "its output leaves the block before a row-parallel GEMM reads it"
            raise CannotDivideError(self.shards[self.y].roots, reason)
        return TensorDivision(
            kinds=self.kinds,
            entering=self.entering,
            storages=frozenset({*self.shards, *self.divided}),
            units=self.products.degree(),
            whole=self.whole,
        )

    def _visit(self, place: int, call: Call) -> None:
        """Divide one call, or leave it whole."""
        name = call.name.removesuffix("_")
        operands = call.reads[-2:] if call.name in WITH_WEIGHTS and name != "_grouped_mm" else call.reads
        if call.name in WITH_WEIGHTS and operands[1].storage in self.weights:
            self._product(place, call, operands[0], operands[1])
            return
        if not any(operand.storage in self.shards for operand in call.reads):
            return
        if call.name == "fused_attention":
            self._by_heads(place, call, call.reads)
        elif call.name in ("bmm", "baddbmm"):
            self._by_heads(place, call, operands)
        else:
            self._pass(place, call, name)

    def _product(self, place: int, call: Call, data: Operand, weight: Operand) -> None:
        """Divide a product with a weight by columns or rows, or leave it whole."""
        shard = self.shards.get(data.storage)
        bias = [o.storage for o in call.reads[:-2] if call.name in ("addmm", "baddbmm")]
        if shard is None:
            if weight.storage in self.whole or data.storage not in self.moving:
                return
            if weight.storage not in self.once:
                raise CannotDivideError({weight.storage}, "more than one operator or layer uses the weight")
            extent = weight.shape[-1]
            axis, root = _Axis(axis=-1, inner=1, extent=extent), self.products.add(weight.storage, extent)
            self._write(call.writes[0], axis, root)
            self.kinds[place], self.entering[place] = "column", (data.storage,)
            self.divided |= {weight.storage, *bias}
            return
        axis = self._axis(data, shard, call)
        if axis.axis != -1 or weight.storage not in self.once:
            raise CannotDivideError(
                shard.roots, f"the GEMM {call.name} does not sum over the divided dimension"
            )
        self.products.join(shard.roots, axis.extent)
        self.products.ended |= shard.roots
        self.kinds[place] = "row"
        self.divided.add(weight.storage)

    def _by_heads(self, place: int, call: Call, operands: Sequence[Operand]) -> None:
        """Divide products of tensors by heads, along the third axis from the last."""
        roots = self._roots(operands)
        if any(operand.storage not in self.shards for operand in operands):
            raise CannotDivideError(roots, f"{call.name} also reads a tensor that is not divided")
        axes = [self._axis(o, self.shards[o.storage], call) for o in operands]
        if any(axis.axis != -3 for axis in axes):
            raise CannotDivideError(roots, f"{call.name} does not work on each head separately")
        for other in call.reads[: len(call.reads) - len(operands)]:
            self._enters(call, other, -3, roots)
        self.products.join(roots, *(axis.extent for axis in axes))
        fewest = min(axes, key=lambda axis: axis.extent)
        for written in call.writes:
            at = -2 if call.name == "fused_attention" else -3  # as attention.py lays it out
            self._write(written, _Axis(axis=at, inner=fewest.inner, extent=fewest.extent), roots)
        self.kinds[place] = "within"

    def _pass(self, place: int, call: Call, name: str) -> None:
        """Divide a pass along the axis of its inputs."""
        parts = [o for o in call.reads if o.storage in self.shards]
        roots = self._roots(parts)
        axes = [self._axis(o, self.shards[o.storage], call) for o in parts]
        axis = axes[0].axis
        if any(known_axis.axis != axis for known_axis in axes):
            raise CannotDivideError(roots, f"{call.name} combines different axes of divided tensors")
        self._check(call, name, axis, parts, roots)
        others = [o for o in call.reads if o.storage not in self.shards]
        entering = tuple(o.storage for o in others if self._enters(call, o, axis, roots))
        if entering:
            self.entering[place] = tuple(dict.fromkeys(entering))
        self.products.join(roots, *(known_axis.extent for known_axis in axes))
        fewest = min(axes, key=lambda known_axis: known_axis.extent)
        for written in call.writes:
            self._write(written, fewest, roots)
        self.kinds[place] = "within"

    def _check(
        self, call: Call, name: str, axis: int, parts: Sequence[Operand], roots: frozenset[int]
    ) -> None:
        """Raise an error if an operator works, or may work, across the divided axis."""
        known = name in ELEMENTWISE or name in WITH_SHAPE or (name in OVER_LAST and axis != -1)
        sizes = {_size(o.shape, axis) for o in (*parts, *call.writes)}
        axes = {len(o.shape) for o in (*parts, *call.writes)}
        if not known or len(sizes) > 1 or (name not in ELEMENTWISE and len(axes) > 1):
            raise CannotDivideError(roots, f"the operator {call.name} works across the divided dimension")

    def _enters(self, call: Call, operand: Operand, axis: int, roots: frozenset[int]) -> bool:
        """Return whether the gradient of an undivided operand is a partial sum on every rank."""
        there = _size(operand.shape, axis) > 1 and operand.strides[axis] > 0
        weight, moving = operand.storage in self.weights, operand.storage in self.moving
        if there and (moving or (operand.storage in self.learned and not weight)):
            raise CannotDivideError(
                roots, f"{call.name} combines its output with a tensor that is not divided"
            )
        if there:
            self.divided.add(operand.storage)
        return moving

    def _axis(self, operand: Operand, shard: _Shard, call: Call) -> _Axis:
        """Return the axis of a view along which it is divided."""
        axis = _axis_of(operand, shard)
        if axis is None:
            raise CannotDivideError(shard.roots, f"{call.name} reads a single head or column of its output")
        return axis

    def _write(self, operand: Operand, axis: _Axis, roots: frozenset[int]) -> None:
        """Record the axis along which an output is divided into shards."""
        inner = _strides_bytes(operand)[axis.axis] * axis.inner
        shard = _Shard(inner=inner, extent=axis.extent, roots=roots)
        before = self.shards.get(operand.storage, shard)
        if (before.inner, before.extent) != (inner, axis.extent):
            raise CannotDivideError(roots | before.roots, "another operator overwrites parts of its memory")
        self.shards[operand.storage] = shard

    def _roots(self, operands: Sequence[Operand]) -> frozenset[int]:
        """Return the weights of whose columns operands are parts."""
        shards = [self.shards[o.storage] for o in operands if o.storage in self.shards]
        return frozenset[int]().union(*(shard.roots for shard in shards))
