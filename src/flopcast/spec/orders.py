"""Properties in which plans of one batch may differ: their schedules, and their lists of blocks.

Answers: which schedule does each plan run, and which plans list the blocks of their chunks?
Elsewhere: the batches (plan.py), the schedules (schedules/), the lists (divisors.py).

The schedule of a batch may be "auto". It means 1F1B for plans with one chunk per stage, and interleaved
1F1B for all others. Both run the same programs, as do plans whose stages hold unequal numbers of blocks.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules import resolved, schedule_of
from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.plan import Plan, Plans


def rules_of_rows(plans: Plans) -> tuple[AbstractSchedule, AbstractSchedule]:
    """Return the schedules of rows with one chunk per stage, and of rows with several."""
    one, several = (schedule_of(order_of(plans.structure, chunks)) for chunks in (1, 2))
    return one, several


def order_of(structure: Plan, chunks: int) -> str | OwnSchedule:
    """Return the schedule of rows with this many chunks per stage.

    >>> [order_of(Plan(), chunks) for chunks in (1, 2)]
    ['1f1b', 'interleaved_1f1b']
    """
    return resolved(structure.schedule, chunks)


def filled_after(plans: Plans) -> Counts:
    """Return the number of micro-batches after which the memory of each plan's stages reaches its
    maximum, (plans, 1).
    """
    numbers = plans.pipeline_parallel, plans.num_micro_batches
    one, several = (rule.fills_after(*numbers) for rule in rules_of_rows(plans))
    return np.where(plans.virtual_stages > 1, several, one)


def uneven(plans: Plans) -> np.ndarray:
    """Return the rows with lists of blocks per chunk, because the blocks do not divide evenly, (plans,
    1).
    """
    if _listed(plans):
        return np.zeros(plans.virtual_stages.shape, dtype=bool)
    rows: np.ndarray = plans.uneven_blocks % (plans.pipeline_parallel * plans.virtual_stages) != 0
    return rows


def _listed(plans: Plans) -> bool:
    """Return whether all rows list the same blocks, or none."""
    return plans.uneven_blocks == 0 or bool(plans.structure.stage_layers)


def stage_layers(plans: Plans, row: int) -> tuple[int, ...]:
    """Return the blocks of every chunk that a row lists; () if the stack divides them."""
    chunks = int(plans.pipeline_parallel[row, 0] * plans.virtual_stages[row, 0])
    if _listed(plans) or plans.uneven_blocks % chunks == 0:
        return plans.structure.stage_layers
    return divided_over_chunks(plans.uneven_blocks, chunks)
