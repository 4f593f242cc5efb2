"""Grouped matrix multiplication: the products of several experts in one kernel.

Answers: how many FLOP and bytes do the products of `groups` weights of one shape need on one rank, when
every row is multiplied by the weight of its own group?
Elsewhere: how many rows a rank receives and which experts it holds (layers/), how long it takes
(cost/kernels), products with one weight (operators/matmul.py).

FLOP and bytes do not depend on how the rows are spread over the groups, as long as no group is empty;
time does: `imbalance` says how uneven they are, and the curve has a term for it.
"""

from dataclasses import dataclass, replace

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.operators.matmul import Matmul


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupedMatmul(AbstractOperator):
    """`out[g][m_g, n] = x[g][m_g, k] @ w[g][k, n]` for every group g, where the m_g add up to `rows`.

    `layout` is that of a linear layer's passes: "forward", "input_gradient" (dx = dout @ w.T, so n and k
    are exchanged) or "weight_gradient" (dw = x.T @ dout). A weight gradient keeps the n and k of the
    forward product: its result has the weight's shape and its sum runs over the rows of a group. All
    three read or write the same three tensors, so they need the same FLOP and bytes.

    `imbalance` is the rows of the fullest group over those of the mean group: 1 where all are equal, at
    most `groups`.

    Examples
    --------
    Eight experts of Mixtral, whose gate and up projections are one product (arXiv:2401.04088, table 1):

    >>> from flopcast.dtypes import constant
    >>> up = GroupedMatmul(groups=constant(8), rows=constant(8192), n=constant(28672), k=constant(4096),
    ...                    imbalance=constant(1), dtype="bf16")
    >>> up.work().flop.item() / 1e12, up.coordinates()[0].item()
    (1.924145348608, 8192.0)
    """

    groups: Counts
    rows: Counts  # of all groups together
    n: Counts
    k: Counts
    imbalance: Counts
    dtype: str
    layout: str = "forward"
    trained: bool = True  # whether w has gradients

    @property
    def kernel(self) -> str:
        """One curve for all layouts; the curve holds a ratio for each."""
        return f"grouped_gemm.{self.layout}"

    def work(self) -> Work:
        """Every row meets one weight; every weight moves once, however few rows its group has."""
        elements = self.rows * (self.n + self.k) + self.groups * self.n * self.k
        return Work(
            flop=2 * self.rows * self.n * self.k,
            moved_bytes=elements * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """All rows, columns, length of the sum, groups, imbalance.

        The first three are those of a dense product of all rows, whose curve stands in where the class
        was not measured.
        """
        return self.rows, self.n, self.k, self.groups, self.imbalance

    def as_one_product(self) -> Matmul:
        """All rows times one weight: what a group alone is. A weight gradient sums over rows."""
        m, n, k = self.rows, self.n, self.k
        if self.layout == "weight_gradient":
            m, n, k = n, k, m
        return Matmul(m=m, n=n, k=k, dtype=self.dtype, layout=self.layout)

    def saves(self) -> tuple[Saved, ...]:
        """The rows of all groups, for the weight gradients, if there are any."""
        if not self.trained:
            return ()
        x_bytes = self.rows * self.k * ELEMENT_BYTES[self.dtype]
        return (Saved(role="input:0", size_bytes=x_bytes),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """`dx = dout @ w.T` over the same groups; of trained weights, one `dw = x.T @ dout` a group."""
        found: list[tuple[str, AbstractOperator]] = [
            ("dgrad", replace(self, n=self.k, k=self.n, layout="input_gradient")),
            ("wgrad", replace(self, layout="weight_gradient")),
        ]
        return tuple(found if self.trained else found[:1])
