"""One kernel over several tensors, which fuses consecutive elementwise operators of a trace.

Answers: how many bytes do consecutive norms, sums, activations and copies move if they are one kernel?
Elsewhere: passes of known kinds (memory_bound.py), the search for such operators
(interop/tracing/fusing.py).

Intermediate results of its passes are never written to memory. The backward pass reads the gradients of the
outputs and the kept tensors, and writes the gradients of the inputs.
"""

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace


class FusedPass(AbstractOperator):
    """A kernel that moves `moved` elements and keeps the named tensors, each with its elements.

    Examples
    --------
    A norm of a million elements reads x and writes y; its backward reads x and dy and writes dx:

    >>> from flopcast.dtypes import constant
    >>> norm = FusedPass(moved=constant(2e6), kept=(("x", constant(1e6)),), dtype="bf16")
    >>> (_, backward), = norm.gradients()
    >>> norm.work().moved_bytes.item(), backward.work().moved_bytes.item()
    (4000000.0, 6000000.0)
    """

    moved: Counts  # elements, read and written
    kept: tuple[tuple[str, Counts], ...]  # names of tensors in the layer, and their elements
    dtype: str
    is_gradient: bool = False

    @property
    def kernel(self) -> str:
        """Return one curve per pass."""
        return "fused_pass.backward" if self.is_gradient else "fused_pass"

    def work(self) -> Work:
        """Return the work: no matrix product, and each tensor moves once."""
        again = sum((elements for _, elements in self.kept), ZERO) if self.is_gradient else ZERO
        return Work(
            flop=ZERO, moved_bytes=(self.moved + again) * ELEMENT_BYTES[self.dtype], unit=self.dtype
        )

    def saves(self) -> tuple[Saved, ...]:
        """Return the named tensors."""
        size_bytes = ELEMENT_BYTES[self.dtype]
        return tuple(
            Saved(role=f"tensor:{name}", size_bytes=elements * size_bytes) for name, elements in self.kept
        )

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return one kernel."""
        return (("dgrad", replace(self, is_gradient=True)),)
