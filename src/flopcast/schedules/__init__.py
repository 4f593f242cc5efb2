"""The schedules that a plan may name: one file and one line each; and those that users write down."""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import CustomSchedule
from flopcast.schedules.eager import EagerOneForwardOneBackward
from flopcast.schedules.gpipe import GPipe
from flopcast.schedules.interleaved import InterleavedOneForwardOneBackward
from flopcast.schedules.one_forward_one_backward import OneForwardOneBackward
from flopcast.schedules.zero_bubble import ZeroBubble
from flopcast.schedules.zero_bubble_v import ZeroBubbleV
from flopcast.spec.custom_schedule import OwnSchedule
from flopcast.spec.orders import interleaves
from flopcast.spec.plan import Plans

SCHEDULES: dict[str, AbstractSchedule] = {
    "1f1b": OneForwardOneBackward(),
    "eager_1f1b": EagerOneForwardOneBackward(),
    "interleaved_1f1b": InterleavedOneForwardOneBackward(),
    "gpipe": GPipe(),
    "zb_h1": ZeroBubble(1),
    "zb_h2": ZeroBubble(2),
    "zb_v": ZeroBubbleV(),
}


def schedule_of(asked: str | OwnSchedule) -> AbstractSchedule:
    """Return the schedule with a name of SCHEDULES, or a user's own schedule."""
    return CustomSchedule(asked) if isinstance(asked, OwnSchedule) else SCHEDULES[asked]


def filled_after(plans: Plans) -> Counts:
    """Return after how many micro-batches the stages of each plan hold the most, (plans, 1)."""
    stages, micro_batches = plans.pipeline_parallel, plans.num_micro_batches
    rule = schedule_of(plans.structure.pipeline_schedule)
    interleaved = SCHEDULES["interleaved_1f1b"]
    return np.where(
        interleaves(plans),
        interleaved.fills_after(stages, micro_batches),
        rule.fills_after(stages, micro_batches),
    )
