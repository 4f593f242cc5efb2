"""Parameters and gradients that data-parallel ranks shard (ZeRO-2, ZeRO-3, FSDP, HSDP), by category.

Answers: how large are the shards, the gathered units, the gradients before their reduction, and the model
before it is sharded?
Elsewhere: every other category (categories.py), when units are gathered (workload/sharded.py), optimizer
states, which ZeRO-1 shards already (workload/gradient_reduction.py, updated_parameters).

Arrays of permanent memory have shape (plans, stage classes). Arrays of gathered units have shape (plans,
stage classes, 1), because a unit is gathered once, whichever chunk is at work.

References
----------
What each ZeRO stage keeps: arXiv:1910.02054, section 5. Two gathered units at the same time:
arXiv:2304.11277, section 3.4.
"""

from functools import reduce

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts, Floats
from flopcast.memory.outside import on_device
from flopcast.operators.dequantise import STORED_BYTES
from flopcast.spec.shard_groups import ranks_of
from flopcast.spec.shards import group_of
from flopcast.workload.gradient_reduction import updated_parameters
from flopcast.workload.program import Layer, Programs
from flopcast.workload.reductions import reduction_times
from flopcast.workload.shard_levels import gathered_kind, narrow_bytes
from flopcast.workload.sharded import gather_times
from flopcast.workload.unit_sizes import UnitSize, trained_elements, whole_elements


def parameter_shards(programs: Programs) -> Floats:
    """Return the 16-bit shard of ZeRO-3, if it exists in addition to the fp32 shard in the optimizer
    states.

    Frozen weights have no optimizer states, so they have only the 16-bit shard.
    """
    return all_parameter_shards(programs) * on_device(programs, "parameters")


def all_parameter_shards(programs: Programs) -> Floats:
    """Return the shards of parameters, including those that are placed outside the device.

    `parameter_shards` counts those on the device. The shard is in the dtype of activations. Parameters
    whose 16-bit copy is not kept between steps (`sharding.keeps_low_precision`) count only while they are
    gathered, because the fp32 master weights of the optimizer take their place.
    """
    plans = programs.plans
    each_bytes = ELEMENT_BYTES[plans.structure.activations]
    kept = float(programs.stack.sharding.keeps_low_precision)
    if plans.structure.shards:
        shared = ranks_of(plans, "parameters")
        spared = programs.trained_parameters / shared * (shared == plans.state_shards) * (1.0 - kept)
        return np.asarray((_all_elements(programs) / shared - spared) * each_bytes)
    whole = updated_parameters(plans, _all_elements(programs), programs.expert_parameters)
    return (whole - trained_shard(programs) * (1.0 - kept)) * each_bytes


def _all_elements(programs: Programs) -> Counts:
    """Return how many elements of the activations' dtype are as large as all parameters."""
    each_bytes = ELEMENT_BYTES[programs.plans.structure.activations]
    narrow = programs.narrow_parameters.items()
    fewer = [held * max(1.0 - STORED_BYTES[dtype] / each_bytes, 0.0) for dtype, held in narrow]
    return programs.parameters - sum(fewer, ZERO)


def secondary_copy(programs: Programs) -> Floats:
    """Return the 16-bit shard of the second copy of parameters, from which backward passes gather."""
    plans = programs.plans
    if plans.structure.zero < 3 or group_of(plans.structure.shards, "secondary") is None:
        return ZERO
    shard = _all_elements(programs) / ranks_of(plans, "secondary")
    return shard * ELEMENT_BYTES[plans.structure.activations]


def gradient_shards(programs: Programs) -> Floats:
    """Return the gradients that are summed over micro-batches: shards if each micro-batch is reduced,
    otherwise whole gradients.

    Both have the dtype of `stack.sharding`: FSDP2 accumulates whole gradients in the dtype of their
    reduction (`to_accumulated_grad_if_needed`). For gradients that are copied to the host layer by layer,
    only the part that stays on the device counts.
    """
    stack, shard = programs.stack, trained_shard(programs)
    if programs.plans.structure.shards:
        shard = programs.trained_parameters / ranks_of(programs.plans, "gradients")
    if stack.offload.gradient_flush in ("blocking", "overlapped"):  # they leave layer by layer
        shard = shard * on_device(programs, "gradients")
    parameters = np.where(_reduced_at_once(programs) > 0, shard, programs.trained_parameters)
    held_bytes: Floats = parameters * ELEMENT_BYTES[stack.sharding.gradient_dtype]
    return held_bytes


def gathered_parameters(programs: Programs) -> Floats:
    """Return the parameters that are gathered during a backward pass, in 16 bits.

    If parameters are kept after the forward pass, these are all parameters of the stage. Otherwise, they
    are those of the running unit, of the units that are gathered in advance, and of the root unit, and of
    one unit in 8 or 4 bits if units are sent in this format. Below ZeRO-3, the result is 0, because ranks
    hold whole parameters.
    """
    plans, sharding = programs.plans, programs.stack.sharding
    if plans.structure.zero < 3:
        return ZERO[:, :, None]
    gathers_again = sum((mask for when, mask in gather_times(programs.stack, plans, True) if when), ZERO)
    largest, every = _largest_unit(programs, whole_elements), _all_elements(programs)
    few = largest * (1.0 + sharding.prefetch_units)
    if sharding.ends == "root":
        few = few + _at_the_ends(programs)
    held = np.where(gathers_again > 0, np.minimum(few, every), every)
    arriving_bytes = largest * narrow_bytes(plans, gathered_kind(plans, backward=True))
    wide_bytes = held * ELEMENT_BYTES[plans.structure.activations]
    size_bytes: Floats = (wide_bytes + arriving_bytes)[:, :, None]
    return size_bytes


def unreduced_gradients(programs: Programs) -> Floats:
    """Return the gradients of one unit, both in the 16 bits of the backward pass and in the dtype of the
    reduction.

    With ZeRO-2 and ZeRO-3, they exist for one unit at a time, until its reduction has ended. The largest
    unit counts. Below ZeRO-2, ranks keep whole gradients, and the result is 0.
    """
    plans = programs.plans
    if plans.structure.zero < 2:
        return ZERO[:, :, None]
    written = ELEMENT_BYTES[plans.structure.activations] * _reduced_at_once(programs)
    each_bytes = written + ELEMENT_BYTES[programs.stack.gradients.dtype]
    trained = np.minimum(_largest_unit(programs, trained_elements), programs.trained_parameters)
    size_bytes: Floats = (trained * each_bytes)[:, :, None]
    return size_bytes


def built_whole(programs: Programs) -> Floats:
    """Return the whole model in 16 bits, if it is on the device before its parameters are sharded."""
    plans, here = programs.plans, programs.stack.sharding.built_whole
    if plans.structure.zero < 3 or not here:
        return ZERO
    return _all_elements(programs) * ELEMENT_BYTES[plans.structure.activations]


def trained_shard(programs: Programs) -> Counts:
    """Return the trained parameters of the rank's shard."""
    return updated_parameters(programs.plans, programs.trained_parameters, programs.trained_experts)


def _reduced_at_once(programs: Programs) -> Counts:
    """Return 1 for plans that reduce the gradients of every micro-batch before the next; (plans, 1)."""
    times = reduction_times(programs.stack, programs.plans)
    often = sum((mask for when, mask in times if when == "every"), ZERO)
    return np.where(programs.plans.num_micro_batches == 1, ONE, often)


def _largest_unit(programs: Programs, size: UnitSize) -> Counts:
    """Return the elements of the largest unit of a stage class; without those of a root unit."""
    root = programs.stack.sharding.ends == "root" and programs.plans.structure.zero == 3
    held = programs.stages.stage_counts
    sizes = [
        np.minimum(held[:, :, part], 1.0) * _elements(layer, programs, size)
        for part, layer in enumerate(programs.layers)
        if layer.kind == "block" or not root
    ]
    return np.asarray(np.max(sizes, axis=0))


def _at_the_ends(programs: Programs) -> Counts:
    """Return the elements of all layers of a stage class that are not blocks."""
    held = programs.stages.stage_counts
    sizes = [
        held[:, :, part] * _elements(layer, programs, whole_elements)
        for part, layer in enumerate(programs.layers)
        if layer.kind != "block"
    ]
    return sum(sizes, ZERO)


def _elements(layer: Layer, programs: Programs, size: UnitSize) -> Counts:
    """Return the elements of one layer that are whole at once in its backward, (plans, 1)."""
    weights, by_weight = layer.read_backward, programs.stack.sharding.whole == "weight"
    groups = [(weight,) for weight in weights] if by_weight else [weights]
    sizes = (size(group, programs.stack, programs.plans) for group in groups)
    return reduce(np.maximum, sizes, ZERO)
