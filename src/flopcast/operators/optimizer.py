"""The optimizer's update of one rank's shard of the parameters.

Answers: how many bytes does an update move per parameter?
Elsewhere: the parameters that each rank updates (workload/gradient_reduction.py).
"""

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.records import field


class OptimizerUpdate(AbstractWithoutBackward):
    """An update of `parameters` elements, which moves `bytes_per_parameter` bytes for each.

    Adam in mixed precision reads the gradient, the fp32 master weight and two fp32 moments. It writes the
    last three and the 16-bit weight. With 16-bit gradients, it reads 2 + 12 bytes and writes 12 + 2, in
    total 28. A stack with additional casts, copies or checks moves more bytes. `tensors` is the number of
    tensors that contain the parameters: one flat buffer, or all tensors of the model. Small tensors do not
    use the whole device. `dtype` is the type of the states.
    """

    parameters: Counts
    bytes_per_parameter: Counts
    dtype: str
    tensors: Counts = field(default_factory=lambda: ONE)

    @property
    def kernel(self) -> str:
        """Return the curve of multi-tensor Adam: an update is a pass over memory.

        The measured kernel on 16-bit states takes longer than its bytes explain (39 % of the bandwidth of
        A100), so this efficiency is not used for fp32 states.
        """
        return "adam" if ELEMENT_BYTES[self.dtype] > 2 else "adam.16_bits"

    def work(self) -> Work:
        """Return the work: every byte of gradients, states and weights moves once."""
        moved_bytes = self.parameters * self.bytes_per_parameter
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the moved bytes, and those of one tensor."""
        moved_bytes = self.work().moved_bytes
        return moved_bytes, moved_bytes / self.tensors
