"""Frozen models in addition to the trained model: a reference of the same shape, and a teacher.

Answers: which forward passes and which weights do frozen models add?
Elsewhere: their description in a model (spec/model.py), their rules (spec/rules_tuning.py), the conversion
of their items to those that a stack runs (passes.py).

Each layer of the reference is on the same stage as the corresponding layer of the trained model. A stage
sends the activations of both models to the next stage. A teacher has other layers, and runs as a whole
before the head of the trained model.

Frozen models keep nothing for a backward pass, have no gradients and no optimizer states, and run in 16
bits under every recipe. Under ZeRO-3, their weights are also sharded, and are gathered only for the forward
pass.

References
----------
huggingface/trl: trl/trainer/dpo_trainer.py (`compute_ref_log_probs`: the reference runs on the sequences of
the policy; without a separate reference model, adapters are switched off). arXiv:2305.18290, section 4.
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
    """Return the layers, each with the corresponding layer of the reference.

    Parameters
    ----------
    layers, reference : Layers
        The layers of both models, whose numbers are equal, because a reference has the shape of the trained
        model.
    model : Model
        `reference_passes` states how often the reference runs for each micro-batch. If `reference` is
        "separate", each rank also holds the weights of the reference. Otherwise, the reference is the
        trained model with its adapters switched off.
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
        Number of the frozen layer. It is a prefix of the names of items and tensors, so that they differ
        from those of the trained layer.
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
