"""Dense matrix multiplication: the work of `out[m, n] = x[m, k] @ w[k, n]`.

Answers: how many FLOP and bytes does one GEMM need on one rank, and which tensors does it keep?
Elsewhere: how long a GEMM takes (cost/kernels), the division over ranks (layers/).

Tensor cores are fastest with matrices whose rows start at multiples of 16 bytes, which are 8 elements of
16 bits. For other matrices, such as logits of a vocabulary that is not padded, cuBLAS runs kernels that
load fewer elements at a time. Measurements on three devices give the number of products that a
multiprocessor completes in a cycle.

References
----------
Alignment: NVIDIA, Matrix Multiplication Background User's Guide (DU-09798-001), section 2.1.
Rows of an odd number of elements: pytorch/pytorch, issue 181718 (107 to 116 TFLOP/s on RTX 4090, where 289
tiles fill 0.75 of three waves). Rows of an even number: pytorch/pytorch, issue 83272 (86 TFLOP/s on A100),
and m87-labs/kestrel, pull request 143 (98 TFLOP/s on Hopper at 1.2 GHz).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, is_wide
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.operators.formats import FORMATS
from flopcast.records import replace

ALIGNED = 8.0  # elements of 16 bits at the start of a multiple of which rows are read fast
ODD_FLOP_PER_CYCLE = 460.0  # of a multiprocessor, for rows of an odd number of elements
EVEN_FLOP_PER_CYCLE = 590.0  # for rows of an even number of elements that is no multiple of ALIGNED


class Matmul(AbstractOperator):
    """`out[m, n] = x[m, k] @ w[k, n]`.

    `layout` states which operand is read transposed, which depends on the pass of a linear layer:
    "forward", "input_gradient" (dx = dout @ w.T) or "weight_gradient" (dw = x.T @ dout).

    In a linear layer `m` counts tokens, `k` inputs and `n` outputs. `dtype` is the type of all three
    matrices; the kernel accumulates in fp32 at no cost. With a `narrow` format (operators/formats.py), both
    operands were already cast to this format, and only the result is in `dtype`.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> up = Matmul(m=constant(2048), n=constant(16384), k=constant(4096), dtype="bf16")
    >>> up.work().flop.item() / 1e9, up.saves()[0].size_bytes.item() / 2**20
    (274.877906944, 16.0)
    """

    m: Counts
    n: Counts
    k: Counts
    dtype: str
    layout: str = "forward"
    trained: bool = True  # whether w has a gradient
    reads_data: bool = False  # x is data, such as pixels, and has no gradient
    narrow: str = ""  # format of both operands, in all three passes; "": they are in `dtype`

    @property
    def kernel(self) -> str:
        """Return a curve for all layouts; in 8 or 4 bits, training and serving have different curves."""
        if self.narrow:
            return f"narrow_gemm.{self.narrow}.{self.layout}"
        return f"wide_gemm.{self.layout}" if is_wide(self.dtype) else f"gemm.{self.layout}"

    def work(self) -> Work:
        """Return the work: a multiply and an add for each term. Each operand moves once."""
        operands = (self.m + self.n) * self.k
        return Work(
            flop=2 * self.m * self.n * self.k,
            moved_bytes=operands * self.operand_bytes + self.m * self.n * ELEMENT_BYTES[self.dtype],
            unit=FORMATS[self.narrow].engine if self.narrow else self.dtype,
            cycles=ZERO if self.narrow or is_wide(self.dtype) else self._unaligned_cycles(),
        )

    def _unaligned_cycles(self) -> Counts:
        """Return the cycles of a multiprocessor for products whose rows are not aligned; 0 if they are.

        Sizes that are no whole numbers, such as mean sizes of uneven shards, count as aligned.
        """
        lengths = (self.n, self.m if self.layout == "weight_gradient" else self.k)
        parts = [length % ALIGNED for length in lengths]
        odd = np.logical_or(*(part % 2 == 1 for part in parts))
        even = np.logical_or(*((part > 0) & (part % 2 == 0) for part in parts))
        flop_per_cycle = np.where(odd, ODD_FLOP_PER_CYCLE, np.where(even, EVEN_FLOP_PER_CYCLE, np.inf))
        cycles: Counts = 2 * self.m * self.n * self.k / flop_per_cycle
        return cycles

    @property
    def operand_bytes(self) -> float:
        """Return the bytes of one element of x or w."""
        return FORMATS[self.narrow].size_bytes if self.narrow else ELEMENT_BYTES[self.dtype]

    def coordinates(self) -> tuple[Counts, ...]:
        """Return rows, columns, length of the sum."""
        return self.m, self.n, self.k

    def saves(self) -> tuple[Saved, ...]:
        """Return the input x in the format of the product, for the weight gradient, if there is one."""
        if not self.trained:
            return ()
        x_bytes = self.m * self.k * self.operand_bytes
        return (Saved(role="input:0", size_bytes=x_bytes),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return `dx = dout @ w.T`, unless x is data, and, if w is trained, `dw = x.T @ dout`."""
        m, n, k = self.m, self.n, self.k
        products: list[tuple[str, AbstractOperator]] = [
            ("dgrad", replace(self, n=k, k=n, layout="input_gradient", trained=True)),
            ("wgrad", replace(self, m=n, n=k, k=m, layout="weight_gradient")),
        ]
        return tuple(products[self.reads_data : 1 + self.trained])
