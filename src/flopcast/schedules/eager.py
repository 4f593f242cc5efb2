"""Eager 1F1B: with twice the warm-up, stages do not wait for transfers (arXiv:2211.05322)."""

from typing import ClassVar

from flopcast.schedules.one_forward_one_backward import OneForwardOneBackward


class EagerOneForwardOneBackward(OneForwardOneBackward):
    """1F1B that runs ahead: stage s keeps at most `2 (stages - s) - 1` micro-batches in flight.

    Under 1F1B, a micro-batch must reach the last stage and return during the work on the micro-batches in
    flight, so stages wait for every transfer. Under this schedule, each stage has one more micro-batch
    ready for each later stage.
    """

    forwards_per_stage: ClassVar[int] = 2
    meets_one_neighbour: ClassVar[bool] = False
    blocks_because: ClassVar[str] = "a stage cannot run ahead of its neighbours if each transfer blocks"
