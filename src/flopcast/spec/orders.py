"""Properties of the rows of one batch besides numbers: orders of tasks, and lists of blocks.

Answers: which rows run interleaved, which list their blocks because chunks do not divide them?
Elsewhere: the batches (plan.py), the orders (schedules/), the lists (divisors.py).

The structure of a batch may leave its schedule at "auto", which is 1F1B for rows of one chunk a stage and
interleaved 1F1B for all others: both run the same programs. So do rows whose stages hold unequal numbers of
blocks.
"""

import numpy as np

from flopcast.spec.custom_schedule import OwnSchedule
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.plan import Plan, Plans


def interleaves(plans: Plans) -> np.ndarray:
    """Return rows that run interleaved 1F1B, (plans, 1)."""
    asked = plans.structure.schedule in ("auto", "interleaved_1f1b")
    rows: np.ndarray = (plans.virtual_stages > 1) & asked
    return rows


def order_of(structure: Plan, chunks: int) -> str | OwnSchedule:
    """Return the schedule of rows with this many chunks per stage.

    >>> [order_of(Plan(), chunks) for chunks in (1, 2)]
    ['1f1b', 'interleaved_1f1b']
    """
    return structure.model_copy(update={"virtual_stages": chunks}).pipeline_schedule


def uneven(plans: Plans) -> np.ndarray:
    """Return rows whose blocks are listed chunk by chunk, because they do not divide, (plans, 1)."""
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
