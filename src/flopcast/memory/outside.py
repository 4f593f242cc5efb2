"""The part of offloaded states that stays on the device.

Answers: which fraction of a state stays on the device, and which activations are on the device during a
backward pass?
Elsewhere: the other memories (tiers.py), the offload of a plan (spec/offload.py).
"""

import numpy as np

from flopcast.dtypes import ZERO, Floats
from flopcast.records import replace
from flopcast.spec.offload import Placement, fraction_in
from flopcast.workload.offload import with_activations_outside
from flopcast.workload.program import Programs


def with_placements_in_memory(programs: Programs, placements: tuple[Placement, ...]) -> Programs:
    """Return programs with the sizes of other placements, but without most of their copies.

    The memory of the result is exact, without realising the plan again, but its step time is not.

    Parameters
    ----------
    programs : programs of one layout, without any placement
    placements : of the result
    """
    own = programs.workload
    structure = own.plans.structure.model_copy(update={"offload": placements})
    plans = replace(own.plans, structure=structure)
    layers = tuple(with_activations_outside(layer, plans) for layer in programs.layers)
    return replace(programs, workload=replace(own, plans=plans), layers=layers)


def placements_of(programs: Programs) -> tuple[Placement, ...]:
    """Return the placements of a plan, and those of its blocks that have their own."""
    return tuple(one for leg in programs.legs or (programs,) for one in leg.plans.structure.offload)


def on_device(programs: Programs, kind: str) -> float:
    """Return the fraction of a kind of state that is on the device."""
    return 1.0 - fraction_in(programs.plans.structure.offload, kind)


def outside_of_chunks(programs: Programs) -> Floats:
    """Return the offloaded bytes of one micro-batch of a chunk, (plans, 1, chunk classes)."""
    held = programs.stages.chunk_counts[:, None]
    each = (held[..., part] * layer.outside_bytes[:, :, None] for part, layer in enumerate(programs.layers))
    return sum(each, ZERO[:, :, None])


def returned_activations(programs: Programs) -> Floats:
    """Return the activations of the few layers that are back on the device during a backward pass."""
    held = np.minimum(programs.stages.chunk_counts[:, None], 1.0)
    each = [held[..., part] * layer.outside_bytes[:, :, None] for part, layer in enumerate(programs.layers)]
    largest_bytes: Floats = np.max(np.broadcast_arrays(*each), axis=0)
    return np.minimum(largest_bytes * programs.stack.offload.window_layers, outside_of_chunks(programs))
