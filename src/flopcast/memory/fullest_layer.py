"""The layer at which the backward pass of a chunk needs the most memory.

Answers: at which layer does the backward pass of a chunk need the most memory, and which memory is freed
and allocated until then?
Elsewhere: what a layer keeps (workload/backward.py) and needs (workload/backward_memory.py), the categories
made of these sizes (categories.py).

A backward pass frees activations and creates gradients. If a stack has no buffer for gradients and a step
has a single micro-batch, no gradients exist before the pass (`zero_grad` of PyTorch frees them), and all
gradients exist only at its end. In a run of equal layers, the fullest layer is the first layer if the
gradients of a layer are smaller than its kept tensors, and the last layer otherwise.

References
----------
Gradients that are freed between steps: `set_to_none` of `torch.optim.Optimizer.zero_grad`.
"""

from functools import lru_cache

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, any_of
from flopcast.memory.sharded import gradient_shards
from flopcast.records import Record
from flopcast.workload.program import Programs


class FullestLayer(Record, eq=False):
    """Bytes at the layer of each chunk's backward pass that needs the most memory, (plans, 1, chunk
    classes).

    `freed_bytes`: activations of layers whose backward pass has ended. `gradients_bytes`: gradients of
    these layers, for plans that are `born_late`.
    """

    freed_bytes: Floats
    gradients_bytes: Floats
    working_bytes: Floats
    logits_bytes: Floats


def all_gradients(programs: Programs) -> Floats:
    """Return all gradients of a stage, in the stack's dtype; sharded only with ZeRO-2 and 3."""
    if programs.plans.structure.zero >= 2:
        return gradient_shards(programs)
    return programs.trained_parameters * ELEMENT_BYTES[programs.stack.gradients.dtype]


def born_late(programs: Programs) -> Counts:
    """Return 1 for plans in which no gradient exists before the only backward pass, otherwise 0; (plans,
    1).
    """
    plans = programs.plans
    single = (plans.num_micro_batches == 1) & (plans.pipeline_parallel == 1)
    late: Counts = single * float(not programs.stack.memory.keeps_gradients)
    return late


@lru_cache(maxsize=1)  # four categories in turn ask for the same programs
def at_fullest(programs: Programs) -> FullestLayer:
    """Return the bytes that are freed, created and needed at the fullest moment of a chunk's backward pass.

    In a run of equal layers, only the first and the last layer of the backward pass are considered, because
    the layers between them never need more memory.
    """
    counts = programs.stages.chunk_counts[:, None]
    kept_bytes = _stacked([layer.kept_bytes[:, :, None] for layer in programs.layers])
    work = [_stacked(list(each)) for each in zip(*_work_by_layer(programs), strict=True)]
    held, kept, made, *work = np.broadcast_arrays(counts, kept_bytes, _gradients_by_layer(programs), *work)
    freed, born = _behind(kept * held), _behind(made * held)
    before = np.maximum(held - 1.0, 0.0)  # layers of the run whose backward precedes that of the last
    ends = [(freed, born, *work, held), (freed + before * kept, born + before * made, *work, held)]
    freed, born, working, logits, held = (np.concatenate(each, axis=-1) for each in zip(*ends, strict=True))
    there = held > 0
    level = np.where(there, working + logits - freed + born, -np.inf)
    fullest = level.argmax(axis=-1)[..., None]

    of_layers = np.stack((freed, born, working, logits))
    chosen = np.take_along_axis(of_layers, fullest[None], axis=-1)[..., 0]
    freed, born, working, logits = np.where(there.any(axis=-1), chosen, 0.0)
    return FullestLayer(freed_bytes=freed, gradients_bytes=born, working_bytes=working, logits_bytes=logits)


def _behind(of_runs_bytes: Floats) -> Floats:
    """Return, for each run, the sum over those whose backward precedes it; the last axis is of runs."""
    behind_bytes: Floats = of_runs_bytes[..., ::-1].cumsum(axis=-1)[..., ::-1] - of_runs_bytes
    return behind_bytes


def _gradients_by_layer(programs: Programs) -> Floats:
    """Return the gradients of one layer of each run, of plans that are `born_late`; else zeros."""
    late = born_late(programs)
    if not any_of(late):
        return ZERO[:, :, None, None]
    trained = np.maximum(programs.trained_parameters[:, :1], 1.0)
    each_bytes = all_gradients(programs)[:, :1] / trained * late
    counts = [
        sum((weight.elements for weight in layer.weights if weight.trained and not weight.tied), ZERO)
        for layer in programs.layers
    ]
    return _stacked([(count * each_bytes)[:, :, None] for count in counts])


def _work_by_layer(programs: Programs) -> list[tuple[Floats, Floats]]:
    """Return what each layer's backward needs, without logits and in logits; (plans, 1, 1) each.

    The head is at work in the loss, with logits as the stack keeps them, and in its products, with their
    gradient in the model's dtype; the one that needs more counts.
    """
    found = []
    for layer in programs.layers:
        working, logits_bytes = layer.working_bytes[:, :, None], ZERO[:, :, None]
        if layer.kind == "head":
            number = _logits(programs)[:, :, None]
            element_bytes = ELEMENT_BYTES[programs.plans.structure.activations]
            in_loss = number * _logit_bytes(programs)
            in_products = np.minimum(in_loss, number * element_bytes)
            working = working - number * element_bytes
            loss = in_loss > working + in_products
            working, logits_bytes = (np.where(loss, 0.0, working), np.where(loss, in_loss, in_products))
        found.append((working, logits_bytes))
    return found


def _logit_bytes(programs: Programs) -> Floats:
    """Return the bytes for each logit in the loss; (plans, 1, 1)."""
    memory, ranks = programs.stack.memory, programs.workload.plans.tensor_parallel[:, :, None]
    if memory.sharded_logit_bytes is None or memory.gathers_logits:
        return np.full(ranks.shape, memory.logit_bytes)
    return np.where(ranks > 1, memory.sharded_logit_bytes, memory.logit_bytes)


def _stacked(of_layers: list[Floats]) -> Floats:
    """Return the sizes of several layers in one array, whose last axis is the layers."""
    shapes = {each_bytes.shape for each_bytes in of_layers}
    return np.stack(of_layers if len(shapes) == 1 else np.broadcast_arrays(*of_layers), axis=-1)


def _logits(programs: Programs) -> Counts:
    """Return the logits of one micro-batch on the head's rank: tokens × this rank's rows of the table.

    All tokens, with sequence parallelism too: the head works on the gathered sequence. Further predictions
    have logits of their own, all of them there when the first backward begins.
    """
    workload = programs.workload
    rows = programs.layers[-1].weights[0].elements / workload.model.hidden
    if programs.stack.memory.gathers_logits:
        rows = rows * workload.plans.tensor_parallel
    return (1 + workload.model.mtp) * workload.split.tokens * rows
