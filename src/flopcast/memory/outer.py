"""States of the outer round of plans with peers: outer parameters, buffers and pseudo-gradients.

Answers: what does a rank keep for the outer optimizer, all the time and during an exchange?
Elsewhere: which states there are (spec/outer.py), the sizes of other states (categories.py).

Each rank keeps the states of the parameters that its own optimizer updates, so that ZeRO shards them too
(arXiv:2603.08163, section 3). All are in fp32.
"""

from flopcast.dtypes import ZERO, Floats
from flopcast.memory.outside import on_device
from flopcast.memory.sharded import trained_shard
from flopcast.spec.offload import OUTER
from flopcast.workload.program import Programs


def outer_states(programs: Programs) -> Floats:
    """Return outer parameters, their buffers, and pseudo-gradients whose exchange overlaps with steps."""
    return all_outer_states(programs) * on_device(programs, OUTER)


def all_outer_states(programs: Programs) -> Floats:
    """Return the same states, including offloaded ones."""
    plan = programs.plans.structure
    if plan.peers == 1:
        return ZERO
    overlapped_bytes = plan.outer.buffer_bytes * (plan.outer.overlap > 0)
    return trained_shard(programs) * (plan.outer.state_bytes + overlapped_bytes)


def pseudo_gradients(programs: Programs) -> Floats:
    """Return the pseudo-gradients of an exchange that training waits for, including those outside."""
    plan = programs.plans.structure
    if plan.peers == 1 or plan.outer.overlap > 0:
        return ZERO
    return trained_shard(programs) * plan.outer.buffer_bytes
