"""How many micro-batches a stage holds: a count, whatever they weigh.

Answers: how many micro-batches of every chunk are in flight at the fullest moment of a stage class?
Elsewhere: in which order a stage runs its tasks (schedules/), what one micro-batch weighs (categories.py).
"""

import numpy as np

from flopcast.dtypes import ZERO, Counts, Floats
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import AbstractSplitSchedule
from flopcast.workload.program import Programs


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


def waiting_in_flight(programs: Programs) -> tuple[Counts, Floats]:
    """Micro-batches between their B and their W, and what one of them keeps; 0 without a split backward."""
    plans = programs.plans
    schedule = SCHEDULES[plans.structure.pipeline_schedule]
    if not isinstance(schedule, AbstractSplitSchedule):
        return ZERO, ZERO
    stage = _fullest_stage(programs)
    count = schedule.weights_waiting(stage, plans.pipeline_parallel, plans.num_micro_batches)
    return count, _waiting_bytes(programs)


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
