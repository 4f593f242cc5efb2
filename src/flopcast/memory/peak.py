"""What must fit: bytes by category on every stage, and the fullest of two moments.

Answers: how much memory does a rank of each stage class need, when, and does it fit?
Elsewhere: what a layer keeps (workload/backward.py), how many micro-batches are in flight (schedules/).

Two moments can be the fullest: the start of a backward pass at full depth ("backward": states, gradients,
all activations in flight, one layer's recomputed tensors, logits), and the end of the step ("update":
activations are gone, gradients are copied and applied). All arrays: (plans, stage classes).

Conventions. Stages with equal layers form one class, and count as the fullest of them. Four sizes
of one thing: *resident* between steps, *allocated* at the peak (`torch.cuda.max_memory_allocated`),
*reserved* by the allocator with its cache, *used* as the driver sees it, with the context and the buffers
of communicators. A plan fits if the last one does.

References
----------
States: arXiv:1910.02054, section 3.1. Activations: arXiv:2205.05198, section 4.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats
from flopcast.operators.base import AbstractMessage
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import AbstractSplitSchedule
from flopcast.spec.cluster import Cluster
from flopcast.workload.gradients import updated_parameters
from flopcast.workload.program import Programs


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Memory:
    """Bytes of one rank, by stage class.

    `by_category` adds up to `allocated_bytes`; a category that is empty at the fullest moment is 0 there.
    `resident_bytes` leaves gradients out: PyTorch frees them between steps. A stack that keeps them in a
    buffer for good (Megatron-LM) has them resident as well.
    """

    by_category: dict[str, Floats]  # at the fullest moment
    allocated_bytes: Floats  # peak of what the framework has given out
    resident_bytes: Floats  # allocated between steps
    standing_bytes: Floats  # while nothing is in flight: what is resident, and gradients
    reserved_bytes: Floats  # allocated and cached
    device_used_bytes: Floats  # as the driver sees it
    at_update: np.ndarray  # whether the fullest moment is the update

    def worst(self) -> int:
        """The first plan's stage class that needs most: an index into the second axis of the arrays."""
        return int(np.argmax(self.device_used_bytes[0]))


def peak_memory(programs: Programs) -> Memory:
    """The memory of every stage class of every plan.

    The larger of the two moments, chosen for each stage by itself. What the software keeps besides is the
    stack's (spec/stack.py, Memory). Arrays of shape (plans, stage classes).
    """
    resident = _resident(programs)
    backward = resident | _in_flight(programs)
    update = resident | _updating(programs)
    totals = [sum(part.values(), ZERO) for part in (backward, update)]
    at_update = np.asarray(totals[1] > totals[0])
    categories = {
        name: np.where(at_update, update.get(name, ZERO), backward.get(name, ZERO))
        for name in (*backward, *(key for key in update if key not in backward))
    }
    allocated = np.maximum(*totals)
    stack = programs.stack.memory
    reserved = allocated * (1.0 + stack.fragmentation_fraction)
    used = reserved + stack.context_bytes + stack.communicator_bytes * _communicators(programs)
    states = ("parameters", "optimizer_states", "workspace")
    return Memory(
        by_category=categories,
        allocated_bytes=allocated,
        resident_bytes=sum((resident[name] for name in states), ZERO),
        standing_bytes=sum(resident.values(), ZERO),
        reserved_bytes=reserved,
        device_used_bytes=used,
        at_update=at_update,
    )


def fits(memory: Memory, cluster: Cluster) -> np.ndarray:
    """Whether every stage of a plan fits its device, shape (plans,).

    Compares what the driver sees with the data sheet's capacity; nothing is held back.
    """
    capacity = cluster.node.device.memory_bytes
    return np.asarray((memory.device_used_bytes <= capacity).all(axis=1))


def _resident(programs: Programs) -> dict[str, Floats]:
    """States, and the workspace of libraries: there at both moments.

    ZeRO-1 shards the optimizer's states (master weight and moments) and leaves weights and gradients whole;
    those of experts over the ranks that hold the same experts.
    """
    plans, stack = programs.plans, programs.stack
    parameters = programs.parameters
    updated = updated_parameters(plans, parameters, programs.expert_parameters)
    here = (programs.stages.multiplicity > 0).astype(np.float64)
    return {
        "parameters": parameters * ELEMENT_BYTES[plans.structure.precision],
        "gradients": parameters * ELEMENT_BYTES[stack.gradients.dtype],
        "optimizer_states": updated * stack.optimizer.state_bytes,
        "workspace": stack.memory.workspace_bytes * here,
    }


def _in_flight(programs: Programs) -> dict[str, Floats]:
    """What exists when a backward pass starts at full depth.

    Activations: for each chunk, what its layers keep of one micro-batch times the micro-batches in flight.
    The layer at work is the largest that the stage holds; logits exist once, on the head's stage.
    """
    stack = programs.stack
    flying = chunks_in_flight(programs)
    held = programs.stages.stage_chunk_counts
    kept = [
        sum(
            (held[:, :, chunk, part] * layer.kept_bytes for part, layer in enumerate(programs.layers)), ZERO
        )
        for chunk in range(held.shape[2])
    ]
    holds_head = np.minimum(programs.stages.stage_counts[:, :, -1], 1.0)
    working = np.max(
        [
            np.minimum(programs.stages.stage_counts[:, :, part], 1.0) * layer.working_bytes
            for part, layer in enumerate(programs.layers)
        ],
        axis=0,
    )
    logits = _logits(programs) * holds_head * stack.memory.logit_bytes
    return _weights_waiting(programs, kept[0], working + logits) | {
        "activations": sum((f * k for f, k in zip(flying, kept, strict=True)), ZERO),
        "stage_outputs": stack.memory.stage_outputs * _sent_bytes(programs) * sum(flying, ZERO),
        "layer_at_work": working,
        "logits": logits,
    }


def _updating(programs: Programs) -> dict[str, Floats]:
    """What exists while gradients are reduced and applied: flattened buckets, fp32 copies of the shard."""
    plans, stack = programs.plans, programs.stack
    parameters = programs.parameters
    updated = updated_parameters(plans, parameters, programs.expert_parameters)
    bucket = np.minimum(parameters, stack.gradients.bucket_elements)
    return {
        "gradient_buckets": stack.memory.bucket_copies * bucket * ELEMENT_BYTES[stack.gradients.dtype],
        "update": updated * stack.memory.update_bytes,
    }


def chunks_in_flight(programs: Programs) -> list[Counts]:
    """Micro-batches in flight at the fullest moment, for every chunk; (plans, stage classes) each.

    Asked for the fullest stage of every class. Chunks that a plan does not have count 0.
    """
    plans, stages = programs.plans, programs.stages
    schedule = SCHEDULES[plans.structure.pipeline_schedule]
    stage = _fullest_stage(programs)
    return [
        schedule.in_flight(
            stage, plans.pipeline_parallel, plans.virtual_stages, plans.num_micro_batches, chunk
        )
        for chunk in range(stages.stage_chunk_counts.shape[2])
    ]


def _waiting_bytes(programs: Programs) -> Floats:
    """What a stage keeps of one micro-batch between its B and its W (workload/split.py)."""
    held = programs.stages.stage_counts
    return sum((held[:, :, part] * layer.waiting_bytes for part, layer in enumerate(programs.layers)), ZERO)


def _fullest_stage(programs: Programs) -> Counts:
    """The stage of every class that keeps most, (plans, stage classes): the earliest.

    Later stages of zero bubble schedules keep as many micro-batches, but more of them for their W only.
    Where W needs more than the whole backward, the latest stage is fullest: with sequence parallelism W
    needs gradients that were gathered.
    """
    stages = programs.stages
    kept = sum(
        (stages.stage_counts[:, :, part] * layer.kept_bytes for part, layer in enumerate(programs.layers)),
        ZERO,
    )
    latest = stages.earliest_stage + np.maximum(stages.multiplicity - 1, 0)
    return np.where(_waiting_bytes(programs) > kept, latest, stages.earliest_stage)


def _weights_waiting(programs: Programs, kept_bytes: Floats, working_bytes: Floats) -> dict[str, Floats]:
    """What stays of micro-batches whose input gradients are done and whose weight gradients are not.

    Inputs of linears and gradients of their outputs. Where a micro-batch needs more of them than of all
    that it kept before (`kept_bytes`) and what exists during its B (`working_bytes`) together, the end of a
    B is fuller than its start, by the difference. Without a split backward there is no such category.
    """
    plans = programs.plans
    schedule = SCHEDULES[plans.structure.pipeline_schedule]
    if not isinstance(schedule, AbstractSplitSchedule):
        return {}
    stage = _fullest_stage(programs)
    waiting = schedule.weights_waiting(stage, plans.pipeline_parallel, plans.num_micro_batches)
    each_bytes = _waiting_bytes(programs)
    fuller = np.maximum(each_bytes - kept_bytes - working_bytes, 0.0)
    return {"weight_gradients_waiting": waiting * each_bytes + fuller}


def _logits(programs: Programs) -> Counts:
    """Logits of one micro-batch on one rank: tokens × this rank's rows of the head's table.

    All tokens, with sequence parallelism too: the head works on the gathered sequence.
    """
    workload = programs.workload
    rows = programs.layers[-1].weights[0].elements / workload.model.hidden
    return workload.split.tokens * rows


def _sent_bytes(programs: Programs) -> Floats:
    """What a rank sends to the next stage: all of the activation, or its share; (plans, stage classes)."""
    message = programs.hop_across.forward[0].work
    here = (programs.stages.multiplicity > 0).astype(np.float64)
    return message.message_bytes * here if isinstance(message, AbstractMessage) else ZERO


def _communicators(programs: Programs) -> Floats:
    """How many communicators a rank opens, (plans, 1): one for each axis of more than one rank.

    Experts have two of their own, but where their replicas are the data-parallel ranks. An axis of ranks
    that share an expert is the tensor-parallel one.
    """
    plans = programs.plans
    degrees = [plans.tensor_parallel, plans.data_parallel, plans.pipeline_parallel]
    if programs.expert_parameters is not None:
        replicas = plans.expert_replicas
        degrees += [plans.expert_parallel, np.where(replicas == plans.data_parallel, 1.0, replicas)]
    return sum(((degree > 1).astype(np.float64) for degree in degrees), ZERO)
