"""Grouped matrix multiplication: the products of several experts in one kernel.

Answers: how many FLOP and bytes does one rank need to multiply rows by `groups` weights of one shape, each
row by the weight of its group?
Elsewhere: how many rows a rank receives and which experts it holds (layers/), how long it takes
(cost/kernels), products with one weight (operators/matmul.py).

FLOP and bytes do not depend on the distribution of rows over groups as long as no group is empty. The time
depends on this distribution: `imbalance` states how uneven it is, and the curve has a term for it.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.operators.formats import FORMATS
from flopcast.operators.matmul import Matmul
from flopcast.records import replace


class GroupedMatmul(AbstractOperator):
    """`out[g][m_g, n] = x[g][m_g, k] @ w[g][k, n]` for every group g, where the m_g add up to `rows`.

    `layout` names the pass of a linear layer: "forward", "input_gradient" (dx = dout @ w.T, so n and k are
    exchanged) or "weight_gradient" (dw = x.T @ dout). A weight gradient keeps the n and k of the forward
    product: its result has the weight's shape and its sum runs over the rows of a group. All three layouts
    read or write the same three tensors, so they need the same FLOP and bytes.

    `imbalance` is the rows of the fullest group, divided by the mean rows of a group: 1 if all groups are
    equal, and at most `groups`. `narrow` is the format of both operands, as of a `Matmul`, and
    `cast_kernels` the number of kernels that cast the operand of a group. `separate` products are dense
    GEMMs with one kernel for each group, on a few concurrent streams. The speed of each GEMM depends on its
    rows.

    A weight gradient that is added to a sum with `sum_bytes` per element reads and writes this sum after
    its products, which do not hide this time. The measured time of 36 kernels on B200 with 128 to 9832 rows
    for each group (data/peers/simumax) is the time of the products at 0.48 of the peak, plus 1.1 times the
    time to read and write the sum in fp32 or bf16, with a median error of 4 %.

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
    narrow: str = ""
    cast_kernels: int = 1
    separate: bool = False  # a kernel for each group
    sum_bytes: float = 0.0  # an element of the sum that weight gradients are added to; 0: to none

    @property
    def kernel(self) -> str:
        """Return one curve for all layouts; the curve holds a ratio for each.

        Separate GEMMs are dense GEMMs with their own kernel class, because many run concurrently.
        """
        name = "expert_gemm" if self.separate else "grouped_gemm"
        return f"narrow_{name}.{self.narrow}.{self.layout}" if self.narrow else f"{name}.{self.layout}"

    def work(self) -> Work:
        """Return the work: every row is multiplied by one weight, and every weight moves once.

        The forward and the input gradient read rows and weights and write rows. The GEMM of the weight
        gradient reads two sets of rows and writes weights. If its result is added to the sum of earlier
        micro-batches (`sum_bytes` per element), this sum is read and written after the GEMM. Separate
        kernels in 8 bits write their 16-bit results after the products on some devices (`result_bytes`).
        """
        wide, narrow = ELEMENT_BYTES[self.dtype], self.operand_bytes
        weights = self.groups * self.n * self.k
        operands, result = self.rows * self.k * narrow + weights * narrow, self.rows * self.n * wide
        if self.is_weight_gradient:
            operands, result = self.rows * (self.k + self.n) * narrow, weights * wide
        adds = self.is_weight_gradient and self.sum_bytes > 0
        return Work(
            flop=2 * self.rows * self.n * self.k,
            moved_bytes=operands + result,
            unit=FORMATS[self.narrow].engine if self.narrow else self.dtype,
            after_bytes=2 * self.sum_bytes * weights if adds else ZERO,
            result_bytes=result if self.narrow and self.separate and not adds else ZERO,
        )

    @property
    def is_weight_gradient(self) -> bool:
        """Return whether the result has the shape of the weights."""
        return self.layout == "weight_gradient"

    @property
    def operand_bytes(self) -> float:
        """Return the bytes of one element of x or w."""
        return FORMATS[self.narrow].size_bytes if self.narrow else ELEMENT_BYTES[self.dtype]

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the coordinates: all rows, columns, length of the sum, groups, and imbalance.

        The first three coordinates are those of a dense GEMM of all rows, whose curve is used if the class
        was not measured. For separate products, they are those of the mean group, as for any dense product.
        """
        if self.separate:
            rows = self.rows / np.maximum(self.groups, 1.0)
            return replace(self, rows=rows).as_one_product().coordinates()
        return self.rows, self.n, self.k, self.groups, self.imbalance

    def kernels(self) -> Counts:
        """Return the number of kernels: one for each group if the products are separate, otherwise one."""
        return np.maximum(self.groups, 1.0) if self.separate else ONE

    def as_one_product(self) -> Matmul:
        """Return a dense product of all rows and one weight, for a single group.

        A weight gradient sums over rows.
        """
        m, n, k = self.rows, self.n, self.k
        if self.layout == "weight_gradient":
            m, n, k = n, k, m
        return Matmul(m=m, n=n, k=k, dtype=self.dtype, layout=self.layout, narrow=self.narrow)

    def saves(self) -> tuple[Saved, ...]:
        """Return the rows of all groups, for the weight gradients, if there are any."""
        if not self.trained:
            return ()
        x_bytes = self.rows * self.k * self.operand_bytes
        return (Saved(role="input:0", size_bytes=x_bytes),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return the operators of the backward pass, the input gradient first.

        Both have the FLOP of the forward product.
        """
        products: list[tuple[str, AbstractOperator]] = [
            ("dgrad", replace(self, n=self.k, k=self.n, layout="input_gradient")),
            ("wgrad", replace(self, layout="weight_gradient")),
        ]
        return tuple(products if self.trained else products[:1])
