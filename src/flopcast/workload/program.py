"""The program of one rank: layers as forward and backward items, divided over stages.

Answers: which items make up the forward of a chunk, its backward, a hop between stages, and the end
of a step? Hardware is unknown here; arrays are over plans, and over chunk or stage classes where said.

A program is keyed by (rank class, chunk class, position of the micro-batch); there is one rank class
for now. All programs are segments: the items of one layer, repeated as often as a chunk holds it.

Words. A *chunk* is what a virtual stage holds; without interleaving a stage has one. Chunks with equal
layers form a *chunk class*, stages with equal chunks a *stage class*: eighty equal layers, or six equal
stages, are one entry. A *part* is one run of equal layers: embedding, runs of blocks, final norm, head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, Integers
from flopcast.layers.base import Split, Weight
from flopcast.operators.item import Item
from flopcast.spec.batch import Rows
from flopcast.spec.model import Model
from flopcast.spec.plan import Plans
from flopcast.spec.stack import Stack
from flopcast.workload.checkpoints import OWN
from flopcast.workload.stages import Stages

POSITIONS = ("first", "middle", "last", "only")  # of a micro-batch within a step
FIRST, MIDDLE, LAST, ONLY = range(len(POSITIONS))  # where each stands in arrays over positions
WHEN = {  # at which positions an item runs
    "every": (1.0, 1.0, 1.0, 1.0),
    "not_first": (0.0, 1.0, 1.0, 0.0),
    "not_last": (1.0, 1.0, 0.0, 0.0),
    "last": (0.0, 0.0, 1.0, 1.0),
    "first": (1.0, 0.0, 0.0, 1.0),
}


def positions(turn: Integers, count: int) -> Integers:
    """Return the position of each turn of a step of `count` micro-batches: an index into POSITIONS.

    A step of one micro-batch has it both first and last: "only".

    >>> [[POSITIONS[at] for at in positions(np.arange(count), count)] for count in (1, 4)]
    [['only'], ['first', 'middle', 'middle', 'last']]
    """
    if count == 1:
        return np.full(turn.shape, ONLY)
    return np.where(turn == 0, FIRST, np.where(turn == count - 1, LAST, MIDDLE))


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class LogicalLayer:
    """One layer of the model as lowered: what must be computed, sent and kept.

    `kind` is the layer's own word ("embedding", "block", "final_norm", "head"), `count` how many equal ones
    stand in a row. `forward` belongs to one micro-batch, `weights` to one rank. `checkpoint` tells blocks
    apart that full recompute treats differently (checkpoints.py); then a run stands here once for each
    kind. `wide` layers keep 16 bits under a recipe of narrow products (low_precision.py).
    """

    kind: str
    count: int
    forward: tuple[Item, ...]
    weights: tuple[Weight, ...]
    checkpoint: str = OWN
    wide: bool = False


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Workload:
    """A model under plans, before any stack: logical layers.

    `split` is what the layers saw of the plans: degrees and sizes, shape (plans, 1). Where micro-batches of
    the one plan differ, `rows` tells for each class of data-parallel ranks which kind each micro-batch is:
    arrays over plans then have a row for each kind wherever tokens matter, one elsewhere. Else it is empty.
    """

    model: Model
    plans: Plans
    split: Split
    layers: tuple[LogicalLayer, ...]
    rows: tuple[Rows, ...] = ()

    @property
    def num_kinds(self) -> int:
        """Return the kinds of micro-batches in a step: rows of whatever depends on tokens."""
        return int(self.split.length.shape[0]) if self.rows else 1

    @property
    def layers_at_end(self) -> int:
        """Return the entries of `layers` after the blocks, which share the last chunk of a pipeline."""
        return 3 if self.model.mtp else 2


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Layer:
    """One layer as a stack runs it; how many equal ones a chunk holds, `Segment.repeat` says.

    `forward` and `backward` belong to one micro-batch; items whose `when` is not "every" run in some of
    them. `kept_bytes` is counted for every micro-batch in flight, `working_bytes` once: tensors that are
    recomputed, gradients of the largest linear, and the layer's output and the gradients of both its ends.
    Where the plan's schedule splits the backward, `weight` holds the items that run later, and
    `waiting_bytes` what they still need (workload/split.py). Bytes have shape (plans, 1).
    """

    kind: str
    forward: tuple[Item, ...]
    backward: tuple[Item, ...]
    weights: tuple[Weight, ...]
    kept_bytes: Floats  # from the forward until the backward pass of one micro-batch
    working_bytes: Floats  # besides, while the layer's backward pass runs; see workload/backward.py
    weight: tuple[Item, ...] = ()
    waiting_bytes: Floats = field(default_factory=lambda: ZERO)
    low_precision_weight_bytes: Floats = field(
        default_factory=lambda: ZERO
    )  # copies beside the 16-bit weights
    spared_weight_bytes: Floats = field(default_factory=lambda: ZERO)  # 16-bit weights that nothing keeps


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Segment:
    """Items in a row, repeated `repeat` times; shape (plans, chunk classes).

    A chunk that does not hold the layer repeats it zero times.
    """

    items: tuple[Item, ...]
    repeat: Counts


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class StageTransfer:
    """Messages of one transfer between neighbouring stages: activations on, their gradients back.

    What one rank sends to the rank of its own position in the next stage.
    """

    forward: tuple[Item, ...]
    backward: tuple[Item, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Accounting:
    """What a rewrite changed in one layer's forward: FLOP must not change, bytes may.

    Counts the items that it took out and those that it put in, shape (plans, 1). The one exception is
    causal flash attention: it skips the masked half, which is never computed (realise.py).
    """

    rewrite: str
    layer: str
    before_flop: Floats
    after_flop: Floats
    before_bytes: Floats
    after_bytes: Floats


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Programs:
    """Everything that the ranks of a plan run in one step.

    `forward` and `backward` hold one segment a layer, in the order of their pass, behind the gather of what
    a neighbour has sent in shares; which chunk runs which, and how often, is in `Segment.repeat`. `weight`
    is the part of the backward that runs later, empty where the plan's schedule does not split it.
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

    @property
    def trained_parameters(self) -> Counts:
        """Return parameters with gradients and optimizer states, (plans, stage classes)."""
        return (
            self.parameters if self.frozen_parameters is None else self.parameters - self.frozen_parameters
        )

    @property
    def trained_experts(self) -> Counts | None:
        """Return the trained parameters of experts; none if weights are frozen (no adapters on experts)."""
        return self.expert_parameters if self.frozen_parameters is None else None

    @property
    def passes(self) -> tuple[tuple[Segment, ...], ...]:
        """Return segments by kind of task: forward, backward and, if it is split, weight gradients."""
        return (self.forward, self.backward, *([self.weight] if self.weight else []))

    @property
    def transfers(self) -> str:
        """Return how the stack's stages exchange messages (timeline/pipeline.py).

        With a split backward, and in a user's own order, messages never hold up their sender.
        """
        ahead = self.plans.structure.order_rule.blocks_because
        return "overlapped" if ahead else self.stack.pipeline.transfers

    @property
    def plans(self) -> Plans:
        """Return the plans that these programs belong to."""
        return self.workload.plans

    def items(self) -> tuple[Item, ...]:
        """Return every item once, in the order of the step; pricing iterates over these.

        Layers, chunks and micro-batches share items; `Segment.repeat` and the timeline count them.
        """
        runs = (segment.items for segments in self.passes for segment in segments)
        hops = [run for hop in (self.hop_across, self.hop_inside) for run in (hop.forward, hop.backward)]
        ends = (self.reduce, self.synchronise, self.update)
        return tuple(item for run in (*runs, *hops, *ends) for item in run)


def elements(weights: tuple[Weight, ...]) -> Counts:
    """Return elements of one instance on one rank, without tied tensors, which their owner counts."""
    return sum((weight.elements for weight in weights if not weight.tied), ZERO)


def tied_elements(weights: tuple[Weight, ...]) -> Counts:
    """Return elements of tensors that another layer owns, on one rank."""
    return sum((weight.elements for weight in weights if weight.tied), ZERO)


def only(layers: tuple[LogicalLayer, ...], wanted: Callable[[Weight], bool]) -> tuple[LogicalLayer, ...]:
    """Return the layers with some of their weights, so that counts over them cover only these."""
    return tuple(
        replace(layer, weights=tuple(weight for weight in layer.weights if wanted(weight)))
        for layer in layers
    )


def frozen_parameters(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> Counts | None:
    """Return parameters without gradients on a rank of each stage class, (plans, stage classes), or
    None.
    """
    if all(weight.trained for layer in layers for weight in layer.weights):
        return None
    return held_parameters(only(layers, lambda weight: not weight.trained), stage_counts)


def low_precision_parameters(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> dict[str, Counts]:
    """Return parameters stored in another dtype than the plan's, by dtype; (plans, stage classes)."""
    dtypes = {weight.stored for layer in layers for weight in layer.weights if weight.stored}
    return {
        dtype: held_parameters(only(layers, _stored_as(dtype)), stage_counts) for dtype in sorted(dtypes)
    }


def _stored_as(dtype: str) -> Callable[[Weight], bool]:
    """Return whether a weight is stored in this dtype of its own."""
    return lambda weight: weight.stored == dtype


def update_bytes(elements: Counts, narrow: Counts, plans: Plans) -> Counts:
    """Return mean bytes of an updated element as it is sent, since some may be in 8 bits."""
    wide, least = ELEMENT_BYTES[plans.structure.activations], ELEMENT_BYTES["fp8"]
    each: Counts = wide - (wide - least) * narrow / np.maximum(elements, 1.0)
    return each


def low_precision_updates(weights: tuple[Weight, ...], expert: bool) -> Counts:
    """Return elements of one instance on one rank that are gathered in 8 bits: of experts, or others."""
    return sum((w.elements for w in weights if w.update and w.expert == expert), ZERO)


def expert_elements(weights: tuple[Weight, ...]) -> Counts:
    """Return elements of experts of one instance on one rank."""
    return sum((weight.elements for weight in weights if weight.expert), ZERO)


def low_precision_updated(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> tuple[Counts, Counts]:
    """Return parameters of a rank that are gathered in 8 bits: others, and those of experts.

    Arrays of shape (plans, stage classes), or of one number where there are none.
    """
    dense, experts = (
        sum(
            (
                stage_counts[:, :, p] * low_precision_updates(each.weights, of)
                for p, each in enumerate(layers)
            ),
            ZERO,
        )
        for of in (False, True)
    )
    return dense, experts


def expert_parameters(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> Counts | None:
    """Return parameters of experts on a rank, (plans, stage classes); None without experts."""
    if not any(weight.expert for layer in layers for weight in layer.weights):
        return None
    held = np.zeros(stage_counts.shape[:2])
    for part, layer in enumerate(layers):
        held = held + stage_counts[:, :, part] * expert_elements(layer.weights)
    return held


def replicated_parameters(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> Counts:
    """Return parameters that every tensor-parallel rank holds in full: norms, biases after a sum.

    Experts are none of them: whole or cut, their gradients are summed over ranks of their own.
    """
    held = np.zeros(stage_counts.shape[:2])
    for part, layer in enumerate(layers):
        for weight in layer.weights:
            if weight.expert:
                continue
            held = held + stage_counts[:, :, part] * np.where(
                weight.elements == weight.total, weight.elements, 0.0
            )
    return held


def held_tensors(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> Counts:
    """Return tensors of a rank of each stage class, (plans, stage classes); a tied one counts with its
    owner.
    """
    held = np.zeros(stage_counts.shape[:2])
    for part, layer in enumerate(layers):
        held = held + stage_counts[:, :, part] * sum(not weight.tied for weight in layer.weights)
    return held


def held_parameters(layers: tuple[LogicalLayer, ...], stage_counts: Counts) -> Counts:
    """Return parameters of a rank of each stage class, (plans, stage classes).

    A tied tensor is stored again where its owner, the first layer, is on another stage.

    Parameters
    ----------
    stage_counts : array of shape (plans, stage classes, parts)
        How many of each layer a stage holds; zeros where a class pads the batch.

    Returns
    -------
    array of shape (plans, stage classes)
        Elements on one tensor-parallel rank, padding of the vocabulary included.
    """
    held = np.zeros(stage_counts.shape[:2])
    owner_elsewhere = stage_counts[:, :, 0] == 0
    for part, layer in enumerate(layers):
        here = elements(layer.weights) + np.where(owner_elsewhere, tied_elements(layer.weights), 0.0)
        held = held + stage_counts[:, :, part] * here
    return held
