"""The program of one rank: layers as forward and backward items, divided over stages.

Answers: which items form a forward pass, a backward pass, a transfer between stages, and the end of a step?
Arrays are over plans, and over chunk or stage classes if documented.

The key of a program is (chunk class, position of the micro-batch), because all ranks of a stage have the
same programs. All programs consist of segments: the items of one layer, and how often a chunk repeats
this layer.

A *chunk* is the part of the model on one virtual stage; without interleaving, a stage has one chunk. Chunks
with equal layers form a *chunk class*, and stages with equal chunks form a *stage class*, so that eighty
equal layers or six equal stages are one entry. A *part* is one run of equal layers: the embedding, a run of
blocks, the final norm, or the head.
"""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats, Integers, all_of
from flopcast.kept_results import Same
from flopcast.layers.base import Split, Weight, activation_bytes
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item
from flopcast.records import Record, field
from flopcast.schedules.base import FORWARD, Order
from flopcast.spec.batch import Rows
from flopcast.spec.model import Model
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.checkpoints import OWN
from flopcast.workload.stages import Stages

ROUNDING = 1e-12  # of FLOP that are summed in another order
POSITIONS = ("first", "middle", "last", "only", "alone")  # of a micro-batch within a step
FIRST, MIDDLE, LAST, ONLY, ALONE = range(len(POSITIONS))  # the index of each in arrays over positions
WHEN = {  # at which positions an item runs
    "every": (1.0, 1.0, 1.0, 1.0, 1.0),
    "not_first": (0.0, 1.0, 1.0, 0.0, 1.0),
    "last": (0.0, 0.0, 1.0, 1.0, 0.0),
    "not_last": (1.0, 1.0, 0.0, 0.0, 1.0),
    "first": (1.0, 0.0, 0.0, 1.0, 0.0),
    "forward_beside_other": (0.0, 1.0, 1.0, 0.0, 0.0),
    "forward_alone": (1.0, 0.0, 0.0, 1.0, 1.0),
    "backward_beside_other": (1.0, 1.0, 0.0, 0.0, 0.0),
    "backward_alone": (0.0, 0.0, 1.0, 1.0, 1.0),
}


def positions(order: Order, count: int) -> Integers:
    """Return the position of each task of a step of `count` micro-batches: an index into POSITIONS.

    The position "only" means that the step has one micro-batch. If the schedule pairs forward passes with
    backward passes of other micro-batches, passes without a partner are "alone".

    >>> from flopcast.schedules import SCHEDULES
    >>> rows = (positions(SCHEDULES["1f1b"].order(1, 1, count), count)[0] for count in (1, 3))
    >>> [[POSITIONS[at] for at in row] for row in rows]
    [['only', 'only'], ['first', 'first', 'middle', 'middle', 'last', 'last']]
    """
    if count == 1:
        return np.full(order.kind.shape, ONLY)
    turn = order.turn
    at = np.where(turn == 0, FIRST, np.where(turn == count - 1, LAST, MIDDLE))
    without_partner = np.where(order.kind == FORWARD, FIRST, LAST)  # which run alone anyway
    placed: Integers = np.where(order.alone & (at != without_partner), ALONE, at)
    return placed


class LogicalLayer(Record, eq=False):
    """One layer of the model after lowering: the operators, messages and tensors that it needs.

    `kind` is "embedding", "block", "final_norm" or "head", `count` the number of equal layers in a row.
    `forward` belongs to one micro-batch, `weights` to one rank. `checkpoint` distinguishes blocks that full
    recompute treats differently (checkpoints.py); a run of blocks then has one entry for each kind. `wide`
    layers keep 16 bits under a low-precision recipe (low_precision.py). `companions` are the corresponding
    layers of frozen models, whose forward pass also runs, each `count` times (companions.py). `split` and
    `hidden` are the split and the width of the layer's input, which differ for an encoder or a vision
    tower. Layers of a `tower` come before the blocks. A `frozen` layer has no backward pass.
    """

    kind: str
    count: int
    forward: tuple[Item, ...]
    weights: tuple[Weight, ...]
    split: Split
    hidden: int
    checkpoint: str = OWN
    wide: bool = False
    companions: tuple["LogicalLayer", ...] = ()
    tower: bool = False
    frozen: bool = False

    @property
    def input_bytes(self) -> Floats:
        """Return the bytes of the activation that the layer reads, (plans, 1). Its output is as large."""
        return activation_bytes(self.hidden, self.split)


class Workload(Record, eq=False):
    """The logical layers of a model under plans, before a stack is applied.

    `split` is the part of the plans that layers read: degrees and sizes, shape (plans, 1). If the
    micro-batches of a single plan differ, `rows` states the kind of each micro-batch for each class of
    data-parallel ranks. Arrays that depend on tokens then have a row for each kind instead of each plan.
    Otherwise, `rows` is empty. `forward_only` steps have no backward pass (forward_only.py). `sent_width`,
    (plans, stages), holds the elements per token that each stage sends; None means the width of the model
    (cuts.py).
    """

    model: Model
    plans: Plans
    split: Split
    layers: tuple[LogicalLayer, ...]
    rows: tuple[Rows, ...] = ()
    forward_only: bool = False
    sent_width: Counts | None = None

    @property
    def num_kinds(self) -> int:
        """Return the number of kinds of micro-batches: the rows of arrays that depend on tokens."""
        return int(self.split.length.shape[0]) if self.rows else 1

    @property
    def boundary_bytes(self) -> Floats:
        """Return the largest number of bytes that one rank sends to the next stage, (plans, 1).

        Decoder stages also send the encoder's output. All messages of a pipeline have one size, so encoder
        stages are assumed to send as much.
        """
        widths = self.sent_width
        width = self.model.hidden if widths is None else widths.max(axis=1, keepdims=True)
        own = activation_bytes(width, self.split)
        if not self.model.has_encoder:
            return own
        return own + activation_bytes(self.model.hidden, self.split.of_source)

    @property
    def layers_at_start(self) -> int:
        """Return the number of entries before the blocks, which share the first chunk."""
        return self.model.first_block

    @property
    def layers_at_end(self) -> int:
        """Return the number of entries after the blocks, which share the last chunk of a pipeline."""
        return 3 if self.model.mtp else 2


class Layer(Record, eq=False):
    """One layer as a stack runs it; `Segment.repeat` is the number of equal layers in a chunk.

    `forward` and `backward` belong to one micro-batch; items whose `when` is not "every" run in some of
    them. `kept_bytes` counts for every micro-batch in flight. `working_bytes` counts once: recomputed
    tensors, gradients of the largest linear, the output of the layer, and the gradients of its input and
    output. If the schedule splits the backward pass, `weight` holds the items that run later, and
    `waiting_bytes` are the tensors that they still need (workload/split.py). `weight_casts` precede
    `forward`, and become a part of it after all passes have run (passes.py). Bytes have shape (plans, 1).
    """

    logical: LogicalLayer
    forward: tuple[Item, ...]
    backward: tuple[Item, ...] = ()
    weight: tuple[Item, ...] = ()
    weight_casts: tuple[Item, ...] = ()
    kept_bytes: Floats = field(default_factory=lambda: ZERO)  # from a micro-batch's forward to its backward
    working_bytes: Floats = field(default_factory=lambda: ZERO)  # in addition, while the backward pass runs
    waiting_bytes: Floats = field(default_factory=lambda: ZERO)
    outside_bytes: Floats = field(default_factory=lambda: ZERO)  # kept outside the device instead
    low_precision_weight_bytes: Floats = field(default_factory=lambda: ZERO)  # copies beside 16-bit weights
    spared_weight_bytes: Floats = field(default_factory=lambda: ZERO)  # 16-bit weights that nothing keeps

    @property
    def kind(self) -> str:
        """Return the kind of the layer, such as "block" or "head"."""
        return self.logical.kind

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Return the weights of the layer on one rank."""
        return self.logical.weights

    @property
    def read_backward(self) -> tuple[Weight, ...]:
        """Return the weights that the backward pass reads: all except those of frozen companions."""
        return tuple(weight for weight in self.logical.weights if not weight.forward_only)

    def items(self) -> tuple[Item, ...]:
        """Return the items of both passes."""
        return (*self.weight_casts, *self.forward, *self.backward, *self.weight)


class Segment(Record, eq=False):
    """Consecutive items that run `repeat` times; `repeat` has shape (plans, chunk classes).

    A chunk without the layer repeats it zero times.
    """

    items: tuple[Item, ...]
    repeat: Counts


class StageTransfer(Record, eq=False):
    """Messages of one transfer between neighbouring stages: activations forward, gradients back.

    A rank sends these bytes to the rank at the same position in the next stage.
    """

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]


class Accounting(Record, eq=False):
    """The changes of a pass in one layer: the items that it removed, and those that it added.

    `layer` is the kind of the layer, or the phase of a pass over whole chunks. FLOP and bytes are those of
    all runs of an operator, (plans, 1), or (plans, stage classes) for work on a whole rank.
    """

    rewrite: str
    layer: str
    taken: tuple[Item, ...]
    put: tuple[Item, ...]

    @property
    def keeps_flop(self) -> bool:
        """Return whether the items added have the FLOP of the items removed."""
        if _operators(self.taken) == _operators(self.put):  # only order, streams or messages changed
            return True
        before, after = self.before_flop, self.after_flop
        return all_of(abs(before - after) <= ROUNDING * abs(after))

    @property
    def before_flop(self) -> Floats:
        """Return the FLOP of the items removed by the pass."""
        return _totals(self.taken)[0]

    @property
    def after_flop(self) -> Floats:
        """Return the FLOP of the items added by the pass."""
        return _totals(self.put)[0]

    @property
    def before_bytes(self) -> Floats:
        """Return the bytes that the items removed by the pass move."""
        return _totals(self.taken)[1]

    @property
    def after_bytes(self) -> Floats:
        """Return the bytes that the items added by the pass move."""
        return _totals(self.put)[1]


def account_of(name: str, part: str, before: Iterable[Item], after: Iterable[Item]) -> Accounting | None:
    """Return the items that a pass removed and added, or None if it changed nothing.

    Items are compared by identity: a pass that returns the same item has not changed it.
    """
    old, new = dict.fromkeys(before), dict.fromkeys(after)
    taken = tuple(item for item in old if item not in new)
    put = tuple(item for item in new if item not in old)
    return Accounting(rewrite=name, layer=part, taken=taken, put=put) if taken or put else None


def _operators(items: tuple[Item, ...]) -> Counter[tuple[AbstractOperator, Same]]:
    """Return how often each operator occurs in items, by the identity of its work and of its count."""
    return Counter(
        (item.work, Same(item.count)) for item in items if isinstance(item.work, AbstractOperator)
    )


def _totals(items: tuple[Item, ...]) -> tuple[Floats, Floats]:
    """Return FLOP and moved bytes of the operators among `items`."""
    flop, moved_bytes = ZERO, ZERO
    for item in items:
        if isinstance(item.work, AbstractOperator):
            work = item.work.work()
            flop, moved_bytes = flop + work.flop * item.count, moved_bytes + work.moved_bytes * item.count
    return flop, moved_bytes


class Programs(Record, eq=False):
    """Everything that the ranks of a plan run in one step.

    `forward` and `backward` hold one segment for each layer, in the order of the pass. The gather of
    activations that a neighbour sends in shards comes first. `Segment.repeat` states which chunk runs a
    segment, and how often. `weight` is the part of the backward pass that runs later; it is empty if the
    plan's schedule does not split the backward pass.
    """

    workload: Workload
    stack: Stack
    layers: tuple[Layer, ...]
    stages: Stages
    forward: tuple[Segment, ...]
    backward: tuple[Segment, ...]
    hop_across: StageTransfer  # to a stage on another node
    hop_inside: StageTransfer  # to a stage on the same node
    reduce: tuple[Item, ...]  # after the last backward, per stage class
    synchronise: tuple[Item, ...]  # all stages of a pipeline together
    update: tuple[Item, ...]  # until the next step may begin, per stage class
    parameters: Counts  # per rank, (plans, stage classes)
    expert_parameters: Counts | None  # of these, experts'; None where the model has no experts
    accounting: tuple[Accounting, ...]
    weight: tuple[Segment, ...] = ()
    frozen_parameters: Counts | None = None  # of `parameters`, those without gradients; None: none
    narrow_parameters: dict[str, Counts] = field(default_factory=dict)  # of `parameters`, by other dtypes
    trained_experts: Counts | None = None  # of `expert_parameters`, those with gradients; None: none
    legs: tuple["Programs", ...] = ()  # of each layout, where blocks have strategies (layer_strategies.py)
    between: tuple["Programs", ...] = ()  # the messages between layouts

    @property
    def trained_parameters(self) -> Counts:
        """Return the number of parameters with gradients and optimizer states, (plans, stage classes)."""
        return (
            self.parameters if self.frozen_parameters is None else self.parameters - self.frozen_parameters
        )

    @property
    def passes(self) -> tuple[tuple[Segment, ...], ...]:
        """Return segments by kind of task: forward, backward and, if it is split, weight gradients."""
        return (self.forward, self.backward, *([self.weight] if self.weight else []))

    def transfers(self, *, interleaved: bool) -> str:
        """Return how stages exchange messages (timeline/pipeline.py).

        If the backward pass is split, or the user orders tasks, senders never wait for messages.
        """
        ahead = self.plans.structure.order_rule.blocks_because
        return "overlapped" if ahead else self.stack.pipeline.style(interleaved=interleaved)

    @property
    def plans(self) -> Plans:
        """Return the plans of these programs."""
        return self.workload.plans

    def items(self) -> tuple[Item, ...]:
        """Return every item once, in the order of the step; pricing iterates over these.

        Layers, chunks and micro-batches share items; `Segment.repeat` and the timeline count them.
        """
        runs = (segment.items for segments in self.passes for segment in segments)
        hops = [run for hop in (self.hop_across, self.hop_inside) for run in (hop.forward, hop.backward)]
        ends = (self.reduce, self.synchronise, self.update)
        return tuple(item for run in (*runs, *hops, *ends) for item in run)
