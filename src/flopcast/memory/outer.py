"""States of the outer round of plans with peers: outer parameters, buffers and pseudo-gradients.

Answers: which states does a rank keep for the outer optimizer, permanently and during an exchange?
Elsewhere: the settings of the exchange (spec/outer.py), the sizes of other states (categories.py).

Each rank keeps the states of the parameters that its own optimizer updates, so that ZeRO shards them too
(arXiv:2603.08163, section 3). All are in fp32.
"""

from flopcast.dtypes import ZERO, Floats
from flopcast.memory.outside import on_device
from flopcast.memory.sharded import trained_shard
from flopcast.spec.offload import OUTER
from flopcast.workload.program import Programs


def outer_states(programs: Programs) -> Floats:
    """Return the outer parameters, their buffers, and pseudo-gradients whose exchange overlaps with
    steps.
    """
    return all_outer_states(programs) * on_device(programs, OUTER)


def all_outer_states(programs: Programs) -> Floats:
    """Return all outer states, including offloaded states."""
    plan = programs.plans.structure
    if plan.peers == 1:
        return ZERO
    overlapped_bytes = plan.outer.buffer_bytes * (plan.outer.overlap > 0)
    return trained_shard(programs) * (plan.outer.state_bytes + overlapped_bytes)


def pseudo_gradients(programs: Programs) -> Floats:
    """Return the pseudo-gradients of an exchange for which training waits, including offloaded ones."""
    plan = programs.plans.structure
    if plan.peers == 1 or plan.outer.overlap > 0:
        return ZERO
    return trained_shard(programs) * plan.outer.buffer_bytes
