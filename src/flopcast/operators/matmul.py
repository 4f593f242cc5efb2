"""Dense matrix multiplication: the work of `out[m, n] = x[m, k] @ w[k, n]`.

Answers: how many FLOP and bytes does one GEMM need on one rank, and what does it keep?
Elsewhere: how long it takes (cost/kernels), which rank holds which slice (layers/).
"""

from dataclasses import dataclass

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Matmul(AbstractOperator):
    """`out[m, n] = x[m, k] @ w[k, n]`.

    `layout` says which operand is read transposed, as the passes of a linear layer differ:
    "forward", "input_gradient" (dx = dout @ w.T) or "weight_gradient" (dw = x.T @ dout).

    In a linear layer `m` counts tokens, `k` inputs and `n` outputs. `dtype` is that of all three
    matrices; the sum is kept in fp32 inside the kernel and costs nothing.

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

    @property
    def kernel(self) -> str:
        """One curve for all layouts; the curve holds a ratio for each."""
        return f"gemm.{self.layout}"

    def work(self) -> Work:
        """A multiply and an add per term; each operand moves once."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return Work(
            flop=2 * self.m * self.n * self.k,
            moved_bytes=elements * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Rows, columns, length of the sum."""
        return self.m, self.n, self.k

    def saves(self) -> tuple[Saved, ...]:
        """The input x, for the weight gradient, if there is one."""
        if not self.trained:
            return ()
        x_bytes = self.m * self.k * ELEMENT_BYTES[self.dtype]
        return (Saved(role="input:0", size_bytes=x_bytes),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """`dx = dout @ w.T` and `dw = x.T @ dout`: twice the forward's FLOP; dx alone of a frozen w."""
        m, n, k, dtype = self.m, self.n, self.k, self.dtype
        found: list[tuple[str, AbstractOperator]] = [
            ("dgrad", Matmul(m=m, n=k, k=n, dtype=dtype, layout="input_gradient")),
            ("wgrad", Matmul(m=n, n=k, k=m, dtype=dtype, layout="weight_gradient")),
        ]
        return tuple(found if self.trained else found[:1])
