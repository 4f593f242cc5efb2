"""DualPipe (arXiv:2412.19437, section 3.2.1): a name that plans may write, and a rule refuses."""

from typing import ClassVar

from flopcast.dtypes import Counts
from flopcast.errors import InternalError
from flopcast.schedules.base import AbstractSchedule, Order


class DualPipe(AbstractSchedule):
    """Two micro-batches that enter at both ends of the pipeline; its order is not supported yet."""

    unsupported_because: ClassVar[str] = (
        "expert exchanges that overlap with another micro-batch (DualPipe) are not supported yet"
    )

    def order(self, stages: int, virtual: int, micro_batches: int) -> Order:
        """Raise InternalError: spec/rules_experts.py refuses plans with this schedule."""
        raise InternalError(self.unsupported_because)

    def in_flight(
        self, stage: Counts, stages: Counts, virtual: Counts, micro_batches: Counts, chunk: int
    ) -> Counts:
        """Raise InternalError: spec/rules_experts.py refuses plans with this schedule."""
        raise InternalError(self.unsupported_because)
