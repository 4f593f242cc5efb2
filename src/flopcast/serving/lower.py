"""Conversion of passes to items: the work and the messages of one rank in an iteration of an engine.

Answers: which items does each layer of a model run in a pass, and how many layers are equal?
Elsewhere: the layers (layers/), the rewrites (rewrites/), the seconds of the items (pass_prices.py).

A layer states its forward pass once, for training and serving. This module lowers a layer for one sequence
with all tokens of the pass. The rewrites then replace the items that engines run differently.
"""

import numpy as np

from flopcast.dtypes import constant
from flopcast.layers.base import AbstractLayer, Split, Weight
from flopcast.layers.block import Block
from flopcast.layers.experts import Experts
from flopcast.layers.images import Images
from flopcast.layers.multi_token import MultiTokenPrediction
from flopcast.layers.tower import TowerLayer
from flopcast.operators.item import Item
from flopcast.records import Record, replace
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.latents import held_weights
from flopcast.serving.rewrites import SERVING_REWRITES
from flopcast.serving.seen import Seen
from flopcast.spec.deployment import Deployment
from flopcast.spec.engine import Engine
from flopcast.spec.model import Model


class ServedLayer(Record, eq=False):
    """`count` equal layers of one kind, as an engine runs each of them; sizes of shape (passes, 1)."""

    kind: str
    count: int
    items: tuple[Item, ...]
    weights: tuple[Weight, ...]


VISION = "vision"  # the component of a vision tower


def lower_passes(
    model: Model,
    deployment: Deployment,
    engine: Engine,
    run: EnginePass,
    images: Images = (),
    image_token_share: float = 0.0,
) -> tuple[ServedLayer, ...]:
    """Return the layers of a model in the passes of an engine, on one rank.

    Modules of multi-token prediction are left out: they run only if they draft tokens. For each prompt
    token, a vision tower processes `image_token_share` times the `images` of a request, so that a pass with
    a part of a prompt has the same part of its images.
    """
    split = split_of(deployment, run)
    layers = []
    for of_model, count in model.sequence():
        layer = _with_copies(of_model, deployment.redundant_experts)
        if isinstance(layer, MultiTokenPrediction):
            continue
        whole = engine.whole_vocabulary and not isinstance(layer, Block)
        cut = replace(split, tensor=constant(1)) if whole else split
        seen_images = isinstance(layer, TowerLayer) and images
        if seen_images:
            cut = replace(split, sequences=run.prompt_tokens * image_token_share, images=(images,))
        items = layer.forward(model.hidden, cut)
        seen = Seen(
            layer=layer, run=run, engine=engine, deployment=deployment, split=cut, hidden=model.hidden
        )
        for rewrite in SERVING_REWRITES.values():
            items = rewrite(items, seen)
        if seen_images:
            items = tuple(replace(item, component=VISION) for item in items)
        weights = held_weights(layer.weights(model.hidden, cut), deployment)
        layers.append(ServedLayer(kind=layer.kind, count=count, items=items, weights=weights))
    return tuple(layers)


def _with_copies(layer: AbstractLayer, copies: int) -> AbstractLayer:
    """Return a layer whose routed experts include copies of experts; tokens choose all of them evenly."""
    if not copies or not isinstance(layer, Block) or not isinstance(layer.feed_forward, Experts):
        return layer
    experts = layer.feed_forward
    more = experts.model_copy(update={"num_experts": experts.num_experts + copies})
    return layer.model_copy(update={"feed_forward": more})


def split_of(deployment: Deployment, run: EnginePass) -> Split:
    """Return a pass as layers read it: one sequence of all new tokens, and the division of the weights.

    Layers are the same as in training. A pass is one sequence whose length is its number of new tokens,
    because products and norms depend on nothing else; the rewrites replace attention. Expert weights are
    divided over the devices of a stage: `expert_parallel` ranks hold different experts, and the remaining
    ranks divide each expert.
    """
    experts = deployment.expert_parallel
    return Split(
        sequences=constant(1),
        length=np.asarray(run.new_tokens, dtype=np.float64),
        tensor=constant(deployment.tensor_parallel),
        sequence_parallel=False,
        dtype="bf16",
        expert=constant(experts),
        expert_tensor=constant(deployment.stage_devices / experts),
    )
