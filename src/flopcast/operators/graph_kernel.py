"""Memory-bound kernels of an exported graph: passes, norms, pooling, look-ups, sorts, scans.

Answers: how many bytes does such a kernel move in both passes, and which tensors does it keep?
Elsewhere: the kernels of each operator (graph/steps.py), their bandwidth
(cost/kernels/fallback_classes.py), their fusion by a compiler (workload/rewrites/compiled_graph.py).

Sizes count elements of the activation dtype; a mask of one byte per element counts half of its elements.
"""

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace

JOINED = "fused"  # the family of kernels that a compiler made of several operators


class GraphKernel(AbstractOperator):
    """A kernel that moves `moved` elements forward and `moved_backward` backward.

    Examples
    --------
    A GELU of a million elements reads x and writes y; backward it reads x and dy and writes dx:

    >>> from flopcast.dtypes import constant
    >>> gelu = GraphKernel(family="elementwise", moved=constant(2e6), moved_backward=constant(3e6),
    ...                    written=constant(1e6), kept=(("x", constant(1e6)),), dtype="bf16")
    >>> (_, backward), = gelu.gradients()
    >>> gelu.work().moved_bytes.item(), backward.work().moved_bytes.item(), backward.kernel
    (4000000.0, 6000000.0, 'graph_elementwise.backward')
    """

    family: str
    moved: Counts
    moved_backward: Counts  # 0: no kernel runs backward
    written: Counts  # elements of the output
    kept: tuple[tuple[str, Counts], ...]  # names of tensors in the layer, and their elements
    dtype: str
    read: tuple[Counts, ...] = ()  # elements of each input, in their order
    operator: str = ""  # canonical name; "" of several that a compiler joined
    row: int = 1  # elements over which it sums, or normalises
    is_strided: bool = False  # whether it reads elements in another order than they lie in memory
    channels_last: bool = False  # of a batch norm: whether all channels of a pixel lie beside each other
    is_fusible: bool = False
    has_gradient: bool = True
    is_gradient: bool = False

    @property
    def kernel(self) -> str:
        """Return one curve for each family and pass."""
        return f"graph_{self.family}.backward" if self.is_gradient else f"graph_{self.family}"

    @property
    def is_joined(self) -> bool:
        """Return whether a compiler fused several operators to this kernel."""
        return self.family == JOINED

    @property
    def output_bytes(self) -> Counts:
        """Return the number of bytes that the forward kernel writes."""
        return self.written * ELEMENT_BYTES[self.dtype]

    def work(self) -> Work:
        """Return the work: no matrix product."""
        elements = self.moved_backward if self.is_gradient else self.moved
        return Work(flop=ZERO, moved_bytes=elements * ELEMENT_BYTES[self.dtype], unit=self.dtype)

    def saves(self) -> tuple[Saved, ...]:
        """Return the named tensors."""
        element_bytes = ELEMENT_BYTES[self.dtype]
        return tuple(
            Saved(role=f"tensor:{name}", size_bytes=elements * element_bytes)
            for name, elements in self.kept
        )

    def in_inference(self) -> "GraphKernel":
        """Return the kernel of inference: a batch norm reads its input once, because its statistics are
        stored. All other kernels stay the same.
        """
        if self.operator != "batch_norm":
            return self
        return replace(self, operator="batch_norm_inference", moved=sum(self.read, ZERO) + self.written)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return one kernel, if the operator has a gradient."""
        return (("dgrad", replace(self, is_gradient=True)),) if self.has_gradient else ()
