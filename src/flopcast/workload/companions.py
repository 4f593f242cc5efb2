"""Frozen models in addition to the trained model: a reference of the same shape, and a teacher.

Answers: which additional forward passes do they run, and which weights do they add?
Elsewhere: how a model states them (spec/model.py), the rules about them (spec/rules_tuning.py), how their
items become those that a stack runs (passes.py).

A layer of the reference is on the same stage as this layer of the trained model, so that pipeline stages
divide both models alike. A stage sends on the activations of both models. A teacher has other layers, and
runs as a whole before the head of the trained model.

Frozen models keep nothing for a backward pass, have no gradients and no optimizer states, and run in 16
bits under every recipe. Under ZeRO-3, their weights are also sharded, and are gathered only for the forward
pass.

References
----------
huggingface/trl: trl/trainer/dpo_trainer.py (`compute_ref_log_probs`: the reference runs on the sequences of
the policy; without a reference of its own, adapters are switched off). arXiv:2305.18290, section 4.
"""

from collections.abc import Iterable

from flopcast.layers.adapters import frozen_item
from flopcast.layers.base import Weight
from flopcast.operators.item import Item
from flopcast.records import replace
from flopcast.spec.model import Model
from flopcast.workload.program import LogicalLayer

Layers = tuple[LogicalLayer, ...]


def frozen_passes(model: Model) -> int:
    """Return the number of forward passes of a reference for each pass of the trained model."""
    return 0 if model.reference == "none" else model.reference_passes


def beside_reference(layers: Layers, model: Model, reference: Layers) -> Layers:
    """Return the layers, accompanied by those of the reference.

    Parameters
    ----------
    layers, reference : Layers
        Equal in number: a reference has the shape of the trained model.
    model : Model
        Its `reference_passes` says how often the reference runs for each micro-batch. If its `reference` is
        "separate", the reference has weights of its own, which each rank also holds. Otherwise the trained
        model with its adapters switched off is the reference.
    """
    separate = model.reference == "separate"
    return tuple(
        replace(
            layer,
            weights=(*layer.weights, *(_weights(other, "reference", 1) if separate else ())),
            companions=(replace(other, count=model.reference_passes),),
        )
        for layer, other in zip(layers, reference, strict=True)
    )


def beside_teacher(layers: Layers, teacher: Layers) -> Layers:
    """Return the layers, with all layers of the teacher attached to the last one."""
    *first, last = layers
    weights = [
        weight for layer in teacher for weight in _weights(layer, "teacher", layer.count) if not weight.tied
    ]
    companions = (*last.companions, *teacher)
    return (*first, replace(last, weights=(*last.weights, *weights), companions=companions))


def _weights(layer: LogicalLayer, name: str, count: int) -> Iterable[Weight]:
    """Yield the weights of `count` equal layers of a frozen model."""
    for weight in layer.weights:
        yield replace(
            weight,
            name=f"{name}.{weight.name}",
            elements=weight.elements * count,
            total=weight.total * count,
            trained=False,
            forward_only=True,
        )


def run_forward(items: Iterable[Item], count: int, number: int) -> tuple[Item, ...]:
    """Return the items of a frozen layer, which saves no tensors.

    Parameters
    ----------
    items : iterable of Item
        Forward items of the layer.
    count : int
        How often it runs for each micro-batch.
    number : int
        Number of the companion. It begins the names of items and tensors, so that those of a layer and of
        its companions differ.
    """
    prefix = f"frozen{number}."

    def named(tensors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{prefix}{tensor}" for tensor in tensors)

    return tuple(
        replace(
            frozen_item(item),
            name=f"{prefix}{item.name}",
            inputs=named(item.inputs),
            output=f"{prefix}{item.output}",
            count=item.count * count,
            component=item.component if item.component.endswith("communication") else "frozen_forward",
            kept_bytes=None,
            group="",
        )
        for item in items
    )
