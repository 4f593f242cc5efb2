"""Bytes by category: one function each, in the dict of the moments at which it is there.

Answers: which categories are there, and how large is each on a rank of every stage class?
Elsewhere: which moment is the fullest (peak.py), how many micro-batches are in flight (in_flight.py), what
a layer keeps of a micro-batch and needs while it works (workload/backward.py, workload/realise.py).

A new category is one function and one line in a dict: STANDING where it is there all the time, BACKWARD
where it is there at the start of a backward pass, UPDATE at the end of a step, DRIVER where the framework's
allocator does not see it. All arrays: (plans, stage classes), or (plans, 1) where stages do not differ.

References
----------
States: arXiv:1910.02054, section 3.1. Activations: arXiv:2205.05198, section 4.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats
from flopcast.memory.in_flight import chunks_in_flight, waiting_in_flight
from flopcast.operators.base import AbstractMessage
from flopcast.workload.gradients import updated_parameters
from flopcast.workload.optimizer import main_gradient_bytes, optimizer_state_bytes
from flopcast.workload.program import Programs

Category = Callable[[Programs], Floats]


def parameters(programs: Programs) -> Floats:
    """Weights in the dtype that the model computes in; ZeRO-1 leaves them whole."""
    return programs.parameters * ELEMENT_BYTES[programs.plans.structure.precision]


def gradients(programs: Programs) -> Floats:
    """Gradients as they are summed over micro-batches, in the stack's dtype."""
    return programs.parameters * ELEMENT_BYTES[programs.stack.gradients.dtype]


def optimizer_states(programs: Programs) -> Floats:
    """Master weight and moments of the rank's shard; those of experts over the ranks that hold the same."""
    return optimizer_state_bytes(programs)


def workspace(programs: Programs) -> Floats:
    """What libraries have allocated for good; nothing where a class only pads the batch."""
    return programs.stack.memory.workspace_bytes * _holds_any(programs)


def activations(programs: Programs) -> Floats:
    """For each chunk, what its layers keep of one micro-batch times the micro-batches in flight."""
    return sum(
        (f * k for f, k in zip(chunks_in_flight(programs), _kept_by_chunk(programs), strict=True)), ZERO
    )


def weight_gradients_waiting(programs: Programs) -> Floats:
    """What stays of micro-batches whose input gradients are done and whose weight gradients are not.

    Inputs of linears and gradients of their outputs. Where a micro-batch needs more of them than of all
    that it kept before and what exists during its B together, the end of a B is fuller than its start, by
    the difference. Nothing without a split backward.
    """
    waiting, each_bytes = waiting_in_flight(programs)
    fuller = np.maximum(
        each_bytes - _kept_by_chunk(programs)[0] - layer_at_work(programs) - logits(programs), 0.0
    )
    needed_bytes: Floats = waiting * each_bytes + fuller * programs.plans.structure.splits_backward
    return needed_bytes


def stage_outputs(programs: Programs) -> Floats:
    """What a pipeline engine has sent and keeps until the micro-batch's backward."""
    copies = programs.stack.memory.stage_outputs
    return copies * _sent_bytes(programs) * sum(chunks_in_flight(programs), ZERO)


def layer_at_work(programs: Programs) -> Floats:
    """The largest layer that a stage holds, while its backward runs."""
    return np.asarray(
        np.max(
            [
                np.minimum(programs.stages.stage_counts[:, :, part], 1.0) * layer.working_bytes
                for part, layer in enumerate(programs.layers)
            ],
            axis=0,
        )
    )


def logits(programs: Programs) -> Floats:
    """Logits of one micro-batch on the head's stage: tokens × this rank's rows of the table.

    All tokens, with sequence parallelism too: the head works on the gathered sequence. Further predictions
    have logits of their own, all of them there when the first backward begins.
    """
    workload = programs.workload
    rows = programs.layers[-1].weights[0].elements / workload.model.hidden
    holds_head = np.minimum(programs.stages.stage_counts[:, :, -1], 1.0)
    predicted = (1 + workload.model.mtp) * workload.split.tokens
    return predicted * rows * holds_head * programs.stack.memory.logit_bytes


def gradient_buckets(programs: Programs) -> Floats:
    """Buckets that are copied while they are reduced."""
    stack = programs.stack
    bucket = np.minimum(programs.parameters, stack.gradients.bucket_elements)
    return stack.memory.bucket_copies * bucket * ELEMENT_BYTES[stack.gradients.dtype]


def update(programs: Programs) -> Floats:
    """Temporaries of the optimizer: copies of the rank's shard."""
    return _updated(programs) * programs.stack.memory.update_bytes


def main_gradients(programs: Programs) -> Floats:
    """Copies in fp32 of the shard's 16-bit gradients; there until the next step begins."""
    return main_gradient_bytes(programs)


def context(programs: Programs) -> Floats:
    """The driver's context: code and stacks of kernels, which no allocator of the framework sees."""
    return programs.stack.memory.context_bytes + ZERO


def communicators(programs: Programs) -> Floats:
    """Buffers of one communicator for each axis of more than one rank, (plans, 1).

    Experts have two of their own, but where their replicas are those of all parameters. An axis of ranks
    that share an expert is the tensor-parallel one.
    """
    plans = programs.plans
    degrees = [plans.tensor_parallel, plans.context_parallel, plans.replicas, plans.pipeline_parallel]
    if programs.expert_parameters is not None:
        replicas = plans.expert_replicas
        degrees += [plans.expert_parallel, np.where(replicas == plans.replicas, 1.0, replicas)]
    opened = sum(((degree > 1).astype(np.float64) for degree in degrees), ZERO)
    return programs.stack.memory.communicator_bytes * opened


STANDING: dict[str, Category] = {  # from the start of training on
    "parameters": parameters,
    "gradients": gradients,
    "optimizer_states": optimizer_states,
    "workspace": workspace,
}
BACKWARD: dict[str, Category] = {  # besides, when a backward pass starts at full depth
    "weight_gradients_waiting": weight_gradients_waiting,
    "activations": activations,
    "stage_outputs": stage_outputs,
    "layer_at_work": layer_at_work,
    "logits": logits,
}
UPDATE: dict[str, Category] = {  # besides, while gradients are reduced and applied
    "gradient_buckets": gradient_buckets,
    "main_gradients": main_gradients,
    "update": update,
}
DRIVER: dict[str, Category] = {  # as the driver sees it, beyond what the allocator has reserved
    "context": context,
    "communicators": communicators,
}


def sizes(categories: dict[str, Category], programs: Programs) -> dict[str, Floats]:
    """The categories of one dict, each with its bytes."""
    return {name: category(programs) for name, category in categories.items()}


def _updated(programs: Programs) -> Counts:
    """Parameters that this rank's optimizer updates, (plans, stage classes)."""
    return updated_parameters(programs.plans, programs.parameters, programs.expert_parameters)


def _holds_any(programs: Programs) -> Counts:
    """1 for a class of stages, 0 for one that pads the batch."""
    return (programs.stages.multiplicity > 0).astype(np.float64)


def _kept_by_chunk(programs: Programs) -> list[Floats]:
    """What the layers of every chunk keep of one micro-batch."""
    held = programs.stages.stage_chunk_counts
    return [
        sum(
            (held[:, :, chunk, part] * layer.kept_bytes for part, layer in enumerate(programs.layers)), ZERO
        )
        for chunk in range(held.shape[2])
    ]


def _sent_bytes(programs: Programs) -> Floats:
    """What a rank sends to the next stage: all of the activation, or its share; (plans, stage classes)."""
    message = programs.hop_across.forward[0].work
    return message.message_bytes * _holds_any(programs) if isinstance(message, AbstractMessage) else ZERO
