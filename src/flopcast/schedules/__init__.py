"""The schedules that a plan may name: one file and one line each; and those that users write down."""

from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.eager import EagerOneForwardOneBackward
from flopcast.schedules.given import GivenOrder
from flopcast.schedules.gpipe import GPipe
from flopcast.schedules.interleaved import InterleavedOneForwardOneBackward
from flopcast.schedules.one_forward_one_backward import OneForwardOneBackward
from flopcast.schedules.zero_bubble import ZeroBubble
from flopcast.schedules.zero_bubble_v import ZeroBubbleV
from flopcast.spec.own_schedule import OwnSchedule

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
    """The schedule of a name of SCHEDULES, or a user's own."""
    return GivenOrder(asked) if isinstance(asked, OwnSchedule) else SCHEDULES[asked]
