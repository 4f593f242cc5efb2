"""The number of parameters of one layer, and of one rank of each kind of stage.

Answers: how many elements of each kind does a rank hold, and how many of them does it send?
Elsewhere: which weights a layer has (layers/), how layers are divided over stages (stages.py), gradients
and optimizer states (memory/categories.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts
from flopcast.layers.base import Weight
from flopcast.operators.dequantise import STORED_BYTES
from flopcast.records import Record
from flopcast.spec.plan import Plans
from flopcast.workload.program import LogicalLayer

Wanted = Callable[[Weight], bool]


def is_owned(weight: Weight) -> bool:
    """Return whether the layer owns a tensor; another layer owns a tied tensor."""
    return not weight.tied


def is_tied(weight: Weight) -> bool:
    """Return whether another layer owns a tensor."""
    return weight.tied


def is_frozen(weight: Weight) -> bool:
    """Return whether the layer owns a tensor that is not trained."""
    return not weight.trained and not weight.tied


def is_expert(weight: Weight) -> bool:
    """Return whether a tensor belongs to experts."""
    return weight.expert


def is_sent_low(expert: bool) -> Wanted:
    """Return whether ranks gather an updated tensor, of experts or of other layers, in 8 bits."""
    return lambda weight: bool(weight.update) and weight.expert == expert


def elements(weights: tuple[Weight, ...], wanted: Wanted = is_owned) -> Counts:
    """Return the elements of the chosen tensors of one layer on one rank, (plans, 1)."""
    return sum((weight.elements for weight in weights if wanted(weight)), ZERO)


def update_bytes(held: Counts, low_precision: Counts, plans: Plans) -> Counts:
    """Return the mean bytes of a sent updated element, because some elements may have 8 bits."""
    wide, least = ELEMENT_BYTES[plans.structure.activations], ELEMENT_BYTES["fp8"]
    each: Counts = wide - (wide - least) * low_precision / np.maximum(held, 1.0)
    return each


def spared_elements(weights: tuple[Weight, ...], plans: Plans) -> Counts:
    """Return the bytes that weights in fewer bits save, as a number of 16-bit elements, (plans, 1).

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


class Parameters(Record, eq=False):
    """Parameters of a rank of each kind of stage; counts have shape (plans, stage classes).

    `stage_counts`, (plans, stage classes, layers), states how many of each layer a stage holds. It is 0 for
    stage classes that only pad the batch of plans. Elements are those on one tensor-parallel rank,
    including the padding of the vocabulary.
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
        """Return the elements of the chosen tensors.

        A tied tensor is stored again if its owner, the first layer, is on another stage.
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
        """Return the number of parameters without gradients; None if all parameters have gradients."""
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
        """Return the trained elements that are gathered in 8 bits, outside experts and in experts."""

        def sent(expert: bool) -> Counts:
            wanted = is_sent_low(expert)
            return self.sum_of(lambda w: w.elements if w.trained and wanted(w) else ZERO)

        return sent(expert=False), sent(expert=True)

    @property
    def replicated(self) -> Counts:
        """Return the trained elements that each tensor-parallel rank holds whole: norms, biases after sums.

        Experts are not included, because their gradients are summed over other ranks.
        """

        def whole(weight: Weight) -> Counts:
            if weight.expert or not weight.trained:
                return ZERO
            return np.where(weight.elements == weight.total, weight.elements, 0.0)

        return self.sum_of(whole)

    @property
    def tensors(self) -> Counts:
        """Return the number of trained tensors; a tied tensor counts on the stage of its owner."""
        return self.sum_of(lambda weight: ONE if weight.trained and not weight.tied else ZERO)

    @property
    def tied(self) -> Counts:
        """Return the trained elements that the first and last stage sum; 0 if one stage has both layers."""
        ends = self.stage_counts[:, :, 0] > 0, self.stage_counts[:, :, -1] > 0
        tied = sum((elements(layer.weights, lambda w: w.tied and w.trained) for layer in self.layers), ZERO)
        return np.where(ends[0] != ends[1], tied, 0.0)
