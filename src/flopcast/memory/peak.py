"""What must fit: the fullest of two moments on every stage, and whether its bytes fit.

Answers: how much memory does a rank of each stage class need, when, and does it fit?
Elsewhere: each category by itself (categories.py: a new one is added there), how many micro-batches are in
flight (in_flight.py), what a layer keeps (workload/backward.py).

Two moments can be the fullest: the start of a backward pass at full depth ("backward": states, gradients,
all activations in flight, one layer's recomputed tensors, logits), and the end of the step ("update":
activations are gone, gradients are copied and applied). All arrays: (plans, stage classes).

Conventions. Stages with equal layers form one class, and count as the fullest of them. Four sizes
of one thing: *resident* between steps, *allocated* at the peak (`torch.cuda.max_memory_allocated`),
*reserved* by the allocator with its cache, *used* as the driver sees it, with the context and the buffers
of communicators. A plan fits if the last one does.
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import ZERO, Floats
from flopcast.memory.categories import BACKWARD, DRIVER, STANDING, UPDATE, sizes
from flopcast.memory.in_flight import chunks_in_flight
from flopcast.spec.cluster import Cluster
from flopcast.workload.program import Programs

__all__ = ["Memory", "chunks_in_flight", "fits", "peak_memory"]


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
    standing = sizes(STANDING, programs)
    backward = standing | sizes(BACKWARD, programs)
    update = standing | sizes(UPDATE, programs)
    totals = [sum(part.values(), ZERO) for part in (backward, update)]
    at_update = np.asarray(totals[1] > totals[0])
    categories = {
        name: np.where(at_update, update.get(name, ZERO), backward.get(name, ZERO))
        for name in (*backward, *(key for key in update if key not in backward))
    }
    allocated = np.maximum(*totals)
    reserved = allocated * (1.0 + programs.stack.memory.fragmentation_fraction)
    used = reserved + sum(sizes(DRIVER, programs).values(), ZERO)
    states = ("parameters", "optimizer_states", "workspace")
    return Memory(
        by_category=categories,
        allocated_bytes=allocated,
        resident_bytes=sum((standing[name] for name in states), ZERO),
        standing_bytes=sum(standing.values(), ZERO),
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
