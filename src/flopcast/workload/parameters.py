"""The number of parameters of one layer, and of a rank of each kind of stage.

Answers: how many elements does a rank hold, of which kinds, and how many of them does it send?
Elsewhere: which weights a layer has (layers/), how layers are divided over stages (stages.py), gradients
and optimizer states (memory/categories.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts
from flopcast.layers.base import Weight
from flopcast.operators.dequantise import STORED_BYTES
from flopcast.records import dataclass
from flopcast.spec.plan import Plans
from flopcast.workload.program import LogicalLayer

Wanted = Callable[[Weight], bool]


def is_owned(weight: Weight) -> bool:
    """Return whether a tensor counts here; a tied tensor counts with its owner."""
    return not weight.tied


def is_tied(weight: Weight) -> bool:
    """Return whether another layer owns a tensor."""
    return weight.tied


def is_frozen(weight: Weight) -> bool:
    """Return whether a tensor counts here and is not trained."""
    return not weight.trained and not weight.tied


def is_expert(weight: Weight) -> bool:
    """Return whether a tensor is one of experts."""
    return weight.expert


def is_sent_low(expert: bool) -> Wanted:
    """Return whether a tensor is gathered in 8 bits when it has been updated: of experts, or others."""
    return lambda weight: bool(weight.update) and weight.expert == expert


def elements(weights: tuple[Weight, ...], wanted: Wanted = is_owned) -> Counts:
    """Return the elements of some tensors of one instance of a layer on one rank, (plans, 1)."""
    return sum((weight.elements for weight in weights if wanted(weight)), ZERO)


def update_bytes(held: Counts, low_precision: Counts, plans: Plans) -> Counts:
    """Return mean bytes of an updated element as it is sent, since some may be in 8 bits."""
    wide, least = ELEMENT_BYTES[plans.structure.activations], ELEMENT_BYTES["fp8"]
    each: Counts = wide - (wide - least) * low_precision / np.maximum(held, 1.0)
    return each


def spared_elements(weights: tuple[Weight, ...], plans: Plans) -> Counts:
    """Return how many 16-bit elements have the bytes that weights in fewer bits do not need, (plans, 1).

    FSDP shards and gathers frozen 4-bit weights as they are stored, with their scales.
    """
    wide = ELEMENT_BYTES[plans.structure.activations]
    return sum(
        (
            weight.elements * max(1.0 - STORED_BYTES[weight.stored] / wide, 0.0)
            for weight in weights
            if weight.stored
        ),
        ZERO,
    )


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Parameters:
    """Parameters of a rank of each kind of stage; counts have shape (plans, stage classes).

    `stage_counts` says how many of each layer a stage holds, (plans, stage classes, layers); zeros where a
    class pads the batch. Elements are those on one tensor-parallel rank, the vocabulary's padding included.
    """

    layers: tuple[LogicalLayer, ...]
    stage_counts: Counts

    def sum_of(self, count: Callable[[Weight], Counts]) -> Counts:
        """Return the sum of a count of each tensor over all layers."""
        held = np.zeros(self.stage_counts.shape[:2])
        for part, layer in enumerate(self.layers):
            counts = sum((count(weight) for weight in layer.weights), ZERO)
            held = held + self.stage_counts[:, :, part] * counts
        return held

    def of(self, wanted: Wanted) -> Counts:
        """Return the elements of some tensors.

        A tied tensor is stored again where its owner, the first layer, is on another stage.
        """
        elsewhere = (self.stage_counts[:, :, 0] == 0).astype(np.float64)
        return self.sum_of(
            lambda weight: weight.elements * (elsewhere if weight.tied else ONE) if wanted(weight) else ZERO
        )

    def any(self, wanted: Wanted) -> bool:
        """Return whether any weight of the model satisfies this condition."""
        return any(wanted(weight) for layer in self.layers for weight in layer.weights)

    @property
    def all(self) -> Counts:
        """Return the number of all parameters."""
        return self.of(lambda _: True)

    @property
    def trained(self) -> Counts:
        """Return the number of parameters with gradients and optimizer states."""
        return self.of(lambda weight: weight.trained)

    @property
    def frozen(self) -> Counts | None:
        """Return the number of parameters without gradients; None if all have gradients."""
        is_frozen: Wanted = lambda weight: not weight.trained  # noqa: E731
        return self.of(is_frozen) if self.any(is_frozen) else None

    @property
    def experts(self) -> Counts | None:
        """Return the number of parameters in experts; None for models without experts."""
        return self.of(is_expert) if self.any(is_expert) else None

    @property
    def trained_experts(self) -> Counts | None:
        """Return the number of trained parameters in experts; None if there are none."""

        def wanted(weight: Weight) -> bool:
            return weight.expert and weight.trained

        return self.of(wanted) if self.any(wanted) else None

    @property
    def by_other_dtype(self) -> dict[str, Counts]:
        """Return the number of parameters stored in each dtype other than the plan's."""
        dtypes = {weight.stored for layer in self.layers for weight in layer.weights if weight.stored}

        def stored_as(dtype: str) -> Wanted:
            return lambda weight: weight.stored == dtype

        return {dtype: self.of(stored_as(dtype)) for dtype in sorted(dtypes)}

    @property
    def sent_low(self) -> tuple[Counts, Counts]:
        """Return trained elements that are gathered in 8 bits: those of others, and those of experts."""

        def sent(expert: bool) -> Counts:
            wanted = is_sent_low(expert)
            return self.sum_of(lambda w: w.elements if w.trained and wanted(w) else ZERO)

        return sent(expert=False), sent(expert=True)

    @property
    def replicated(self) -> Counts:
        """Return trained elements that every tensor-parallel rank holds in full: norms, biases after a sum.

        Experts are not included, because their gradients are summed over other ranks.
        """

        def whole(weight: Weight) -> Counts:
            if weight.expert or not weight.trained:
                return ZERO
            return np.where(weight.elements == weight.total, weight.elements, 0.0)

        return self.sum_of(whole)

    @property
    def tensors(self) -> Counts:
        """Return the number of trained tensors; a tied one counts with its owner."""
        return self.sum_of(lambda weight: ONE if weight.trained and not weight.tied else ZERO)

    @property
    def tied(self) -> Counts:
        """Return trained elements summed between first and last stage; 0 if one stage has both."""
        ends = self.stage_counts[:, :, 0] > 0, self.stage_counts[:, :, -1] > 0
        tied = sum((elements(layer.weights, lambda w: w.tied and w.trained) for layer in self.layers), ZERO)
        return np.where(ends[0] != ends[1], tied, 0.0)
