"""The schedules that a plan may name, each with one file and one line here, and schedules of users."""

from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.schedules.decoupled import Decoupled
from flopcast.schedules.dualpipe import DualPipe
from flopcast.schedules.dualpipe_v import DualPipeV
from flopcast.schedules.eager import EagerOneForwardOneBackward
from flopcast.schedules.gpipe import GPipe
from flopcast.schedules.interleaved import InterleavedOneForwardOneBackward
from flopcast.schedules.one_forward_one_backward import OneForwardOneBackward
from flopcast.schedules.zero_bubble import ZeroBubble
from flopcast.schedules.zero_bubble_v import ZeroBubbleV

SCHEDULES: dict[str, AbstractSchedule] = {
    "1f1b": OneForwardOneBackward(),
    "eager_1f1b": EagerOneForwardOneBackward(),
    "interleaved_1f1b": InterleavedOneForwardOneBackward(),
    "gpipe": GPipe(),
    "zb_h1": ZeroBubble(1),
    "zb_h2": ZeroBubble(2),
    "zb_v": ZeroBubbleV(),
    "dualpipe_v": DualPipeV(),
    "dualpipe": DualPipe(),
    "decoupled": Decoupled(),
}
AUTO, OF_ONE_CHUNK, OF_CHUNKS = "auto", "1f1b", "interleaved_1f1b"  # auto: 1F1B, interleaved with chunks


def resolved(schedule: str | OwnSchedule, chunks: int) -> str | OwnSchedule:
    """Return the schedule for stages with this number of chunks. Only "auto" depends on it.

    >>> resolved("auto", 1), resolved("auto", 2), resolved("gpipe", 1)
    ('1f1b', 'interleaved_1f1b', 'gpipe')
    """
    if schedule != AUTO:
        return schedule
    return OF_CHUNKS if chunks > 1 else OF_ONE_CHUNK


def schedule_of(schedule: str | OwnSchedule) -> AbstractSchedule:
    """Return the schedule with a name of SCHEDULES, or the schedule of a user."""
    return schedule if isinstance(schedule, OwnSchedule) else SCHEDULES[schedule]
