"""Casts for low-precision products: a tensor is read, scaled, and written in 8 or 4 bits.

Answers: how many bytes does a cast, or a transpose of a cast tensor, move, and in which pass?
Elsewhere: the tensors that are cast, and the numbers of reads and copies (workload/rewrites/quantise.py).
"""

import numpy as np

from flopcast.dtypes import ONE, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import field, replace


class Quantise(AbstractOperator):
    """A pass over `elements` elements, which moves `each_bytes` bytes for each.

    For example, reading 16 bits and writing two copies of 8 bits moves 4 bytes. `of_gradient`: the gradient
    of the tensor is cast, so the forward pass does nothing. The gradient of a cast is the gradient of its
    input, without a kernel. The cast keeps nothing, because the GEMM that reads the result keeps it.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> cast = Quantise(elements=constant(1e6), each_bytes=4.0, dtype="bf16", of_gradient=True)
    >>> cast.work().moved_bytes.item(), [(s, g.work().moved_bytes.item()) for s, g in cast.gradients()]
    (0.0, [('dgrad', 4000000.0)])
    """

    elements: Counts
    each_bytes: float
    dtype: str  # of the tensor that is read
    of_gradient: bool = False
    in_blocks: bool = False  # a scale for each block of a row, and of a column
    groups: Counts = field(default_factory=lambda: ONE)  # parts that are cast by a kernel each, in turn
    launches: int = 1  # of one cast, if other kernels find the scale first
    cycles: Counts = field(default_factory=lambda: ZERO)  # of one multiprocessor, for all elements

    @property
    def kernel(self) -> str:
        """Return the curve for tensors with one scale, or for scales of blocks. Both are memory-bound."""
        return "quantise.blocks" if self.in_blocks else "quantise"

    def work(self) -> Work:
        """Return the work: no matrix product; nothing in the forward pass if a gradient is cast."""
        moved_bytes = ZERO if self.of_gradient else self.elements * self.each_bytes
        cycles = ZERO if self.of_gradient else self.cycles
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype, cycles=cycles)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the bytes that one kernel moves."""
        return (self.work().moved_bytes / self.kernels(),)

    def kernels(self) -> Counts:
        """Return how many kernels read a tensor: the cast and, if it needs one, a search for the maximum.

        A third kernel, which computes the scale from one number, has no time of its own.
        """
        return np.maximum(self.groups, 1.0) * min(self.launches, 2)

    def in_turn(self) -> Counts:
        """Return the number of kernels, because all of them run on one stream."""
        return self.kernels()

    def saves(self) -> tuple[Saved, ...]:
        """Return nothing."""
        return ()

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return the cast itself if it casts a gradient."""
        return (("dgrad", replace(self, of_gradient=False)),) if self.of_gradient else ()
