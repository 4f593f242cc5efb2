"""Model × plan → logical items: what must be computed, sent and kept, whatever the stack."""

from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plans
from flopcast.workload.program import LogicalLayer, Workload


def lower(model: Model, plans: Plans, batch: Batch) -> Workload:
    """Lower every layer of the model under every plan of the batch.

    Parameters
    ----------
    plans : plans of one structure, degrees of shape (plans, 1)

    Returns
    -------
    Workload
        One entry per run of equal layers; sizes of shape (plans, 1).
    """
    split = plans.split(batch)
    layers = tuple(
        LogicalLayer(
            kind=str(getattr(layer, "kind", "layer")),
            count=count,
            forward=layer.forward(model.hidden, split),
            weights=layer.weights(model.hidden, split),
        )
        for layer, count in model.sequence()
    )
    return Workload(model=model, plans=plans, split=split, layers=layers)
