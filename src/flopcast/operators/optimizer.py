"""The optimizer's update of one rank's shard of the parameters.

Answers: bytes moved per parameter. Elsewhere: which rank updates what (workload/gradient_reduction.py).
"""

from flopcast.dtypes import ONE, ZERO, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.records import dataclass, field


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class OptimizerUpdate(AbstractWithoutBackward):
    """An update of `parameters` elements, moving `bytes_per_parameter` bytes of each.

    Adam in mixed precision: gradient, fp32 master weight, two fp32 moments read; the last three and the
    16-bit weight written. That is 2 + 12 read and 12 + 2 written with 16-bit gradients, 28 bytes; a stack
    that casts, copies or checks on the way moves more. `tensors` is the number of tensors that contain the
    parameters: one flat buffer, or all tensors of the model. Small tensors do not use the whole device.
    """

    parameters: Counts
    bytes_per_parameter: Counts
    dtype: str
    tensors: Counts = field(default_factory=lambda: ONE)

    @property
    def kernel(self) -> str:
        """Return one curve, that of multi-tensor Adam, because every update is a pass over memory."""
        return "adam"

    def work(self) -> Work:
        """Return the work: every byte of gradients, states and weights once."""
        moved_bytes = self.parameters * self.bytes_per_parameter
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return bytes moved, and those of one tensor."""
        moved_bytes = self.work().moved_bytes
        return moved_bytes, moved_bytes / self.tensors
