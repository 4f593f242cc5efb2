"""Communicators: the number of groups in which a rank communicates.

Answers: which axes of a plan have their own communicator, whose buffers take device memory?
Elsewhere: where the ranks of an axis are (cost/placement.py), what is sent along it (workload/).

A library opens a communicator when it sends the first message, so only axes with messages count. Axes with
the same members count as one, although a framework may create a group for each. Examples are the ranks that
share a set of shards and all replicas, if there is only one set; replicas of experts and of all parameters,
if experts are not distributed; and neighbouring stages and the ends of a pipeline with two stages.
"""

import numpy as np

from flopcast.dtypes import ZERO, Counts
from flopcast.operators.base import AbstractMessage
from flopcast.spec.plan import Plans
from flopcast.spec.shard_groups import LEVEL_AXES, level_of, ranks_on
from flopcast.workload.program import Programs


def communicators_opened(programs: Programs) -> Counts:
    """Return the number of groups in which a rank sends; (plans, stage classes), or (plans, 1).

    The groups are "tp", "cp", "ep", "pp" and "stage"; "model" if both tensor parallelism and a pipeline
    divide it; "embedding" on stages that sum a tied table; "dp", or the groups of its shards and replicas;
    and the same groups for experts. The ranks that share an expert count as tensor-parallel ranks.
    """
    plans, sends = programs.plans, _axes(programs)

    def on(axis: str, *conditions: np.ndarray) -> Counts:
        """Return 1 if messages are sent along the axis and all conditions hold, otherwise 0."""
        opened = sends.get(axis, ZERO)
        for condition in conditions:
            opened = opened * condition
        return opened

    tensor, pipeline = plans.tensor_parallel > 1, plans.pipeline_parallel > 1
    several = plans.data_parallel > 1  # alone, ranks of one sequence are all that hold the same weights
    experts_apart = plans.expert_replicas != plans.replicas
    of_weights = _replicas("dp", plans.replicas, plans.state_shards, sends)
    of_experts = _replicas("expert_dp", plans.expert_replicas, plans.expert_state_shards, sends)
    total: Counts = (
        on("tp", tensor)
        + on("cp", plans.context_parallel * plans.shared_by.max() > 1, several)
        + on("ep", plans.expert_parallel > 1)
        + np.maximum(on("pp", pipeline), on("pp_inside", pipeline))
        + on("embedding", plans.pipeline_parallel > 2)
        + on("model", tensor, pipeline)
        + on("stage", tensor, plans.replicas > 1)
        + of_weights
        + of_experts * experts_apart
        + (_of_levels(plans, sends) if plans.structure.shards else ZERO)
    )
    return total


def _of_levels(plans: Plans, sends: dict[str, Counts]) -> Counts:
    """Return the groups of kinds of state with groups of their own; those of equal ranks are one."""
    total: Counts = ZERO
    counted: list[
        tuple[bool, Counts, Counts]
    ] = []  # whether its ranks hold equal parts, ranks, 1 if it sends
    for axis in LEVEL_AXES:
        ranks, apart = ranks_on(plans, axis), level_of(axis)[1]
        opened = sends.get(axis, ZERO) * (ranks > 1)
        for other_apart, other_ranks, other in counted:
            opened = opened * (1.0 - other * float(apart == other_apart) * (ranks == other_ranks))
        counted.append((apart, ranks, opened))
        total = total + opened
    return total


def _axes(programs: Programs) -> dict[str, Counts]:
    """Return, for each axis, 1 if a message along it has bytes: (plans, 1), or (plans, stage classes)."""
    found: dict[str, Counts] = {}
    known: set[str] = set()  # axes along which messages of all plans have bytes
    for item in programs.items():
        work = item.work
        if isinstance(work, AbstractMessage) and work.collective and work.axis not in known:
            sent = (work.message_bytes > 0).astype(np.float64)
            found[work.axis] = sent = np.maximum(found.get(work.axis, ZERO), sent)
            if sent.size == 1 and sent.item():
                known.add(work.axis)
    return found


def _replicas(axis: str, replicas: Counts, shards: Counts, sends: dict[str, Counts]) -> Counts:
    """Return the groups of ranks with the same parameters: all of them, or sharers and holders of a shard.

    One set of shards is shared by all; shards of one rank are whole parameters, held by all.
    """
    whole, sharing, holding = (
        sends.get(name, ZERO) for name in (axis, f"{axis}_shard", f"{axis}_replicate")
    )
    both = (shards > 1) & (shards < replicas)
    alike = np.maximum(sharing * (shards >= replicas), holding * (shards <= 1))
    counted: Counts = np.maximum(whole, alike * ~both) * (replicas > 1) + (sharing + holding) * both
    return counted
