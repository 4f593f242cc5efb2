"""The schedules that a plan may name: one file and one line each."""

from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.interleaved import InterleavedOneForwardOneBackward
from flopcast.schedules.one_forward_one_backward import OneForwardOneBackward

SCHEDULES: dict[str, AbstractSchedule] = {
    "1f1b": OneForwardOneBackward(),
    "interleaved_1f1b": InterleavedOneForwardOneBackward(),
}
