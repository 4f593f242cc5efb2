"""The optimizer's update of one rank's shard of the parameters.

Answers: bytes moved per parameter. Elsewhere: which rank updates what (workload/gradient_reduction.py).
"""

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.records import dataclass, field


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class OptimizerUpdate(AbstractWithoutBackward):
    """An update of `parameters` elements, moving `bytes_per_parameter` bytes of each.

    Adam in mixed precision: gradient, fp32 master weight, two fp32 moments read; the last three and the
    16-bit weight written. That is 2 + 12 read and 12 + 2 written with 16-bit gradients, 28 bytes; a stack
    that casts, copies or checks on the way moves more. `tensors` is the number of tensors that contain the
    parameters: one flat buffer, or all tensors of the model. Small tensors do not use the whole device.
    `dtype` is the type of the states.
    """

    parameters: Counts
    bytes_per_parameter: Counts
    dtype: str
    tensors: Counts = field(default_factory=lambda: ONE)

    @property
    def kernel(self) -> str:
        """Return the curve of multi-tensor Adam: an update is a pass over memory.

        The measured kernel on 16-bit states takes longer than its bytes explain (39 % of the bandwidth of
        A100), so its efficiency is not used for states of 32 bits.
        """
        return "adam" if ELEMENT_BYTES[self.dtype] > 2 else "adam.16_bits"

    def work(self) -> Work:
        """Return the work: every byte of gradients, states and weights once."""
        moved_bytes = self.parameters * self.bytes_per_parameter
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return bytes moved, and those of one tensor."""
        moved_bytes = self.work().moved_bytes
        return moved_bytes, moved_bytes / self.tensors
