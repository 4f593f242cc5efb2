"""Conversion of a model and a plan to logical items: what every stack must compute, send and keep.

Answers: which operators and messages does a model need under a plan?
Elsewhere: layers and their sharding (layers/), the kernels that a stack runs (realise.py), the stages that
run them (stages.py). This module contains no architecture: each layer returns its own items.
"""

from flopcast.errors import InternalError
from flopcast.kept_results import NOTHING_KEPT, KeptResults, content
from flopcast.layers.base import AbstractLayer, Split
from flopcast.layers.tower import TowerLayer
from flopcast.records import replace
from flopcast.spec.batch import Batch
from flopcast.spec.mirrored import halved
from flopcast.spec.model import Model
from flopcast.spec.plan import Plans
from flopcast.spec.rows import distinct_splits, rows_of, taken
from flopcast.workload.companions import beside_reference, beside_teacher
from flopcast.workload.program import LogicalLayer, Workload

Layers = tuple[LogicalLayer, ...]


def lower(model: Model, plans: Plans, batch: Batch, kept: KeptResults = NOTHING_KEPT) -> Workload:
    """Lower every layer of the model under every plan of the batch.

    Parameters
    ----------
    model
        Its `sequence` lists layers, and the number of each.
    plans
        Plans of one structure; degrees have shape (plans, 1). If stages mirror each other, the workload has
        only the simulated half of the plan (spec/mirrored.py).
    batch
        States the tokens of a sequence. The plans state the number of sequences of a micro-batch.
    kept
        Layers of earlier workloads, which are used again if their split is the same.

    Returns
    -------
    Workload
        One entry per kind of layer. Sizes belong to one micro-batch on one rank and have shape (plans, 1).
        If the micro-batches of a single plan differ, each kind of micro-batch has a row instead.

    Raises
    ------
    InternalError
        There are several plans, and their micro-batches differ.

    Examples
    --------
    >>> from flopcast.layers.attention import Attention
    >>> from flopcast.layers.block import Block
    >>> from flopcast.layers.mlp import Mlp
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> block = Block(count=2, mixer=Attention(heads=4), feed_forward=Mlp(ffn_hidden=256))
    >>> model = Model(hidden=64, vocabulary=512, blocks=(block,))
    >>> workload = lower(model, one_plan(Plan(tp=2)), Batch(sequence_length=128))
    >>> [(layer.kind, layer.count) for layer in workload.layers]
    [('embedding', 1), ('block', 2), ('final_norm', 1), ('head', 1)]
    """
    if plans.size > 1 and len(batch.kinds) > 1:
        raise InternalError(
            f"a batch with {len(batch.kinds)} kinds of micro-batches was lowered for several plans at once"
        )
    plans = halved(plans)
    if batch.any_shared:
        plans = replace(plans, shared_by=batch.shared_by_kind)
    if not all(kind.offloads for kind in batch.kinds):
        plans = replace(plans, offloads=batch.offloads_by_kind)
    equal = None if kept else distinct_splits(plans)
    split = plans.split(batch)
    if equal is None:
        layers = lowered_layers(model, split, kept)
    else:
        layers = taken(lowered_layers(model, rows_of(plans, equal.first).split(batch)), equal.group)
    uneven = len({len(each) for each in batch.rows}) > 1
    rows = batch.rows if len(batch.kinds) > 1 or uneven else ()
    return Workload(
        model=model, plans=plans, split=split, layers=layers, rows=rows, forward_only=batch.forward_only
    )


def lowered_layers(model: Model, split: Split, kept: KeptResults = NOTHING_KEPT) -> Layers:
    """Return the layers of the model, with the layers of frozen models that run in addition."""
    own = tuple(_lowered(layer, count, model.hidden, split, kept) for layer, count in model.sequence())
    if model.reference != "none":
        alone = model.model_copy(update={"reference": "none", "teacher": None, "adapters": None})
        own = beside_reference(own, model, lowered_layers(alone, split, kept))
    if model.teacher is not None:
        own = beside_teacher(own, lowered_layers(model.teacher, split, kept))
    return own


def _lowered(
    layer: AbstractLayer, count: int, hidden: int, split: Split, kept: KeptResults
) -> LogicalLayer:

    def made() -> LogicalLayer:
        return LogicalLayer(
            kind=layer.kind,
            count=count,
            forward=layer.forward(hidden, split),
            weights=layer.weights(hidden, split),
            split=layer.split_of(split),
            hidden=layer.width_of(hidden),
            tower=isinstance(layer, TowerLayer),
            frozen=isinstance(layer, TowerLayer) and not layer.trained,
        )

    return kept.of(("lowered", layer, count, hidden, content(split)), made) if kept else made()
