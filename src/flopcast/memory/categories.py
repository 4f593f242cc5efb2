"""Bytes by category. Each category is a function in a dict that states how long the memory is in use.

Answers: which categories are there, and how large is each on a rank of every stage class?
Elsewhere: when memory is fullest (peak.py), how many micro-batches are then in flight (in_flight.py), what
a layer keeps (workload/backward.py) and needs in its backward (workload/backward_memory.py).

A new category is one function and one line in a dict:

    STANDING    from the start of training on                         (plans, stage classes)
    IN_FLIGHT   of each micro-batch, from its F to its B              (plans, stage classes, chunk classes)
    WAITING     of each micro-batch, from its B to its W              (plans, stage classes, chunk classes)
    AT_WORK     once, while the backward of a chunk runs              (plans, stage classes, chunk classes)
    UPDATE      while gradients are reduced and applied               (plans, stage classes)
    DRIVER      what the framework's allocator does not see           (plans, stage classes)

An axis along which nothing varies may have length 1. A name may be in several dicts; its bytes add up.

References
----------
States: arXiv:1910.02054, section 3.1. Activations: arXiv:2205.05198, section 4.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, any_of
from flopcast.memory.communicators import communicators_opened
from flopcast.memory.fullest_layer import all_gradients, at_fullest, born_late
from flopcast.memory.layouts import size_of
from flopcast.memory.outer import outer_states, pseudo_gradients
from flopcast.memory.outside import on_device, returned_activations
from flopcast.memory.sharded import (
    gathered_parameters,
    parameter_shards,
    secondary_copy,
    trained_shard,
    unreduced_gradients,
)
from flopcast.operators.base import AbstractMessage
from flopcast.operators.dequantise import STORED_BYTES
from flopcast.operators.item import Item
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.spec.offload import OUTER
from flopcast.workload.optimizer import main_gradient_bytes, matrix_bytes, optimizer_state_bytes
from flopcast.workload.program import Programs
from flopcast.workload.reductions import bucket_elements

Category = Callable[[Programs], Floats]


def parameters(programs: Programs) -> Floats:
    """Return the weights in the precision of the plan, or in a separate dtype.

    They are sharded only with ZeRO-3.
    """
    if programs.plans.structure.zero == 3:
        return parameter_shards(programs)
    wide_bytes = ELEMENT_BYTES[programs.plans.structure.activations]
    narrow = programs.narrow_parameters.items()
    spared_bytes = sum((held * (wide_bytes - STORED_BYTES[dtype]) for dtype, held in narrow), ZERO)
    held = programs.stages.stage_counts
    replaced = (held[:, :, part] * each.spared_weight_bytes for part, each in enumerate(programs.layers))
    return programs.parameters * wide_bytes - spared_bytes - sum(replaced, ZERO)


def low_precision_weights(programs: Programs) -> Floats:
    """Return copies of weights in 8 or 4 bits, in each layout that products read, in addition to 16 bits.

    Under ZeRO-3, only one layer has these copies at a time: they are cast after the layer has been
    gathered, and are freed with it.
    """
    held, one_layer = programs.stages.stage_counts, programs.plans.structure.zero == 3
    held = np.minimum(held, 1.0) if one_layer else held
    copies = [
        held[:, :, part] * layer.low_precision_weight_bytes for part, layer in enumerate(programs.layers)
    ]
    return np.asarray(np.max(copies, axis=0)) if one_layer else sum(copies, ZERO)


def gradients(programs: Programs) -> Floats:
    """Return the gradients that exist during the whole step, in a buffer or as sums over micro-batches."""
    return all_gradients(programs) * (1.0 - born_late(programs))


def late_gradients(programs: Programs) -> Floats:
    """Return all gradients of plans with a single backward pass, which creates them (fullest_layer.py)."""
    return all_gradients(programs) * born_late(programs)


def born_gradients(programs: Programs) -> Floats:
    """Return the late gradients that exist when the backward pass is at the layer with the most memory."""
    return at_fullest(programs).gradients_bytes


def optimizer_states(programs: Programs) -> Floats:
    """Return main parameters and moments of the rank's shard; experts are sharded over their replicas."""
    return optimizer_state_bytes(programs) * on_device(programs, "optimizer")


def workspace(programs: Programs) -> Floats:
    """Return the bytes that libraries allocate permanently; 0 for a class that only pads the batch."""
    return programs.stack.memory.workspace_bytes * _holds_any(programs)


def placeholder_gradients(programs: Programs) -> Floats:
    """Return one tensor for each different shape of a stage's linear weights, if the stack keeps
    placeholders.

    Autograd requires a gradient of every weight, even if the GEMM has already added it to the sum. For
    this, Transformer Engine returns one tensor per shape that is never read; each expert has a separate
    tensor.
    """
    if programs.stack.memory.writes_weight_gradients:
        return ZERO
    # of each shape: its number in every plan, the smallest and the largest number, and which stages hold it
    shapes: list[tuple[Counts, float, float, Counts]] = []
    total_bytes = ZERO
    for part, layer in enumerate(programs.layers):
        held = np.minimum(programs.stages.stage_counts[:, :, part], 1.0)
        works = {(work.n * 2.0**26 + work.k).tobytes(): work for work in reversed(_linears(layer.forward))}
        for work in works.values():  # the first of each shape; no weight has 2 ** 26 columns
            shape = work.n * 2.0**26 + work.k
            least, most = float(shape.min()), float(shape.max())
            near = ((shape == other, h) for other, low, high, h in shapes if low <= most and high >= least)
            met = sum((h * same for same, h in near if any_of(same)), ZERO)
            new = held * (met == 0)
            if any_of(new):
                total_bytes = total_bytes + new * work.n * work.k * ELEMENT_BYTES[work.dtype]
                shapes.append((shape, least, most, new))
    return total_bytes


def buffers(programs: Programs) -> Floats:
    """Return buffers that are reused: scores of the largest attention, and activations from other
    stages.
    """
    memory = programs.stack.memory
    scores_bytes = ZERO
    for part, layer in enumerate(programs.layers):
        held = np.minimum(programs.stages.stage_counts[:, :, part], 1.0)
        squares = [size for item in layer.forward for size in _scores_bytes(item)]
        for size_bytes in squares if memory.score_buffer else ():
            scores_bytes = np.maximum(scores_bytes, held * size_bytes)
    several = (programs.plans.pipeline_parallel > 1).astype(np.float64)
    chunks = programs.stages.chunks_of_class.sum(axis=2)
    tensors = (memory.received_activations * chunks + 1.0) * (memory.received_activations > 0)
    received_bytes: Floats = tensors * _sent_bytes(programs) * several
    return scores_bytes + received_bytes


def activations(programs: Programs) -> Floats:
    """Return the activations that the layers of a chunk save for one micro-batch."""
    return _over_layers(programs, [layer.kept_bytes for layer in programs.layers])


def stage_outputs(programs: Programs) -> Floats:
    """Return the sent outputs that a pipeline engine keeps until the backward pass of the micro-batch."""
    sent_bytes = programs.stack.memory.stage_outputs * _sent_bytes(programs)
    outputs_bytes: Floats = sent_bytes[:, :, None]
    return outputs_bytes


def weight_gradients_waiting(programs: Programs) -> Floats:
    """Return the bytes that a chunk keeps of one micro-batch for weight gradients (workload/split.py)."""
    return _over_layers(programs, [layer.waiting_bytes for layer in programs.layers])


def freed_activations(programs: Programs) -> Floats:
    """Return the activations that the backward pass has already freed, as a negative number."""
    return -at_fullest(programs).freed_bytes


def layer_at_work(programs: Programs) -> Floats:
    """Return temporary tensors of one layer's backward pass: gradients, recomputed or gathered tensors."""
    return at_fullest(programs).working_bytes


def logits(programs: Programs) -> Floats:
    """Return the logits of one micro-batch: those saved for the loss, or their gradients."""
    return at_fullest(programs).logits_bytes


def gradient_buckets(programs: Programs) -> Floats:
    """Return the copies of gradient buckets during their reduction."""
    stack = programs.stack
    bucket = np.minimum(programs.trained_parameters, bucket_elements(stack, programs.plans))
    return stack.memory.bucket_copies * bucket * ELEMENT_BYTES[stack.gradients.dtype]


def update(programs: Programs) -> Floats:
    """Return temporary tensors of the optimizer: copies of the shard, and the matrix that Muon updates."""
    each_bytes = programs.stack.memory.update_bytes * on_device(programs, "optimizer")
    return trained_shard(programs) * each_bytes + matrix_bytes(programs)


def main_gradients(programs: Programs) -> Floats:
    """Return fp32 copies of the shard's 16-bit gradients, which exist until the next step begins."""
    return main_gradient_bytes(programs) * on_device(programs, "optimizer")


def exchanged(programs: Programs) -> Floats:
    """Return the memory of pseudo-gradients that peers exchange, in addition to the temporary tensors of
    the preceding update.
    """
    exchanged_bytes = pseudo_gradients(programs) * on_device(programs, OUTER)
    if not any_of(exchanged_bytes):
        return ZERO
    freed = (late_gradients, gradient_buckets, main_gradients, update)
    return np.maximum(exchanged_bytes - sum((size(programs) for size in freed), ZERO), 0.0)


def context(programs: Programs) -> Floats:
    """Return the driver's context: code and stacks of kernels, outside the framework's allocator."""
    return programs.stack.memory.context_bytes + ZERO


def communicators(programs: Programs) -> Floats:
    """Return the buffers of every communicator that a rank has opened (communicators.py)."""
    return programs.stack.memory.communicator_bytes * communicators_opened(programs)


STANDING: dict[str, Category] = {
    "parameters": parameters,
    "secondary_parameters": secondary_copy,
    "narrow_weights": low_precision_weights,
    "gradients": gradients,
    "optimizer_states": optimizer_states,
    "outer_states": outer_states,
    "workspace": workspace,
    "placeholder_gradients": placeholder_gradients,
    "buffers": buffers,
}
IN_FLIGHT: dict[str, Category] = {"activations": activations, "stage_outputs": stage_outputs}
WAITING: dict[str, Category] = {"weight_gradients_waiting": weight_gradients_waiting}
AT_WORK: dict[str, Category] = {
    "gathered_parameters": gathered_parameters,
    "unreduced_gradients": unreduced_gradients,
    "gradients": born_gradients,
    "activations": freed_activations,
    "returned_activations": returned_activations,
    "layer_at_work": layer_at_work,
    "logits": logits,
}
UPDATE: dict[str, Category] = {
    "gradients": late_gradients,
    "gradient_buckets": gradient_buckets,
    "main_gradients": main_gradients,
    "update": update,
    "pseudo_gradients": exchanged,
}
DRIVER: dict[str, Category] = {"context": context, "communicators": communicators}


def sizes(categories: dict[str, Category], programs: Programs) -> dict[str, Floats]:
    """Return the categories of one dict, each with its bytes.

    If micro-batches differ, permanent sizes are those of the largest micro-batch, and the sizes of a chunk
    have a column for every kind: (1, stage classes, chunk classes · kinds), with the columns of one class
    next to each other.
    """
    found = {name: size_of(name, category, programs) for name, category in categories.items()}
    return {name: _over_kinds(size, programs) for name, size in found.items()}


def _over_kinds(size_bytes: Floats, programs: Programs) -> Floats:
    """Return a size with a row for every kind of micro-batch, in the shape that `sizes` gives it."""
    kinds = programs.workload.num_kinds
    if kinds == 1:
        return size_bytes
    if size_bytes.ndim == 2:
        return np.asarray(size_bytes.max(axis=0, keepdims=True))
    classes, chunks = programs.stages.chunks_of_class.shape[1:]
    of_kinds = np.broadcast_to(size_bytes, (kinds, classes, chunks))
    return of_kinds.transpose(1, 2, 0).reshape(1, classes, chunks * kinds)


def _over_layers(programs: Programs, of_layers: list[Floats]) -> Floats:
    """Return the sum over a chunk's layers of a size of each, (plans, 1, chunk classes)."""
    held = programs.stages.chunk_counts[:, None]
    return sum(
        (held[..., part] * size[:, :, None] for part, size in enumerate(of_layers)), ZERO[:, :, None]
    )


def _holds_any(programs: Programs) -> Counts:
    """Return 1 for a class of stages, 0 for a class that pads the batch."""
    return (programs.stages.multiplicity > 0).astype(np.float64)


def _sent_bytes(programs: Programs) -> Floats:
    """Return what a rank sends to the next stage: the activation or its share; (plans, stage classes)."""
    message = programs.hop_across.forward[0].work
    return message.message_bytes * _holds_any(programs) if isinstance(message, AbstractMessage) else ZERO


def _linears(forward: tuple[Item, ...]) -> list[Matmul | GroupedMatmul]:
    """Return the products of a layer that have a weight."""
    return [item.work for item in forward if isinstance(item.work, (Matmul, GroupedMatmul))]


def _scores_bytes(item: Item) -> list[Floats]:
    """Return the bytes of the attention scores that an item writes, 0 for any other item."""
    work = item.work
    if not isinstance(work, BatchedMatmul) or work.role != "scores":
        return []
    return [work.batch * work.queries * work.keys * ELEMENT_BYTES[work.dtype]]
