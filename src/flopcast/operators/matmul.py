"""Matrix multiplication: dense products, grouped products of experts, and batched products of attention.

Answers: how many FLOP and bytes does one product need on one rank, and which tensors does it keep?
Elsewhere: how long a product takes (cost/kernels), the division over ranks and the rows of experts
(layers/), attention that never writes its score matrix (flash_attention.py).

Rows of a grouped product are multiplied by the weight of their group. FLOP and bytes do not depend on the
distribution of rows over groups as long as no group is empty, but the time does: `imbalance` states how
uneven the distribution is, and the curve has a term for it.

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

from flopcast.dtypes import ELEMENT_BYTES, ONE, ZERO, Counts, any_of, is_wide
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
        if not any(map(any_of, parts)):
            return ZERO
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


class BatchedMatmul(AbstractOperator):
    """`batch` independent products, one per sequence and head.

    Role "scores" is `Q[s, d] @ K[t, d].T` (large output, short sum), and role "context" is `P[s, t] @ V[t,
    d]` (small output, long sum). These two shapes have different speeds. The gradients of either role
    consist of the same two shapes.

    If there are fewer key/value heads than query heads, K and V are first repeated, so `batch` counts query
    heads for all three matrices.

    Examples
    --------
    Both gradients together need twice the FLOP of the product:

    >>> from flopcast.dtypes import constant
    >>> scores = BatchedMatmul(role="scores", batch=constant(96), kv_batch=constant(96), dtype="fp16",
    ...                        queries=constant(2048), keys=constant(2048), head_size=constant(128))
    >>> sum(g.work().flop for _, g in scores.gradients()) == 2 * scores.work().flop
    array([[ True]])
    """

    role: str
    batch: Counts  # sequences · query heads
    kv_batch: Counts  # sequences · key/value heads: a fused kernel reads each only once
    queries: Counts  # s
    keys: Counts  # t
    head_size: Counts  # d
    dtype: str
    mean_keys: Counts | None = None  # inside a window; all are computed here, a fused kernel skips the rest

    @property
    def kernel(self) -> str:
        """Return one curve per role."""
        return f"batched_gemm.{self.role}"

    def work(self) -> Work:
        """Return the work, which is the same for both roles."""
        s, t, d = self.queries, self.keys, self.head_size
        return Work(
            flop=2 * self.batch * s * t * d,
            moved_bytes=self.batch * (s * d + t * d + s * t) * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the number of keys, the head size and the number of products."""
        return self.keys, self.head_size, self.batch

    def saves(self) -> tuple[Saved, ...]:
        """Return both factors; each is needed for the gradient of the other."""
        size = self.batch * ELEMENT_BYTES[self.dtype]
        width = self.head_size if self.role == "scores" else self.keys
        return (
            Saved(role="input:0", size_bytes=size * self.queries * width),
            Saved(role="input:1", size_bytes=size * self.keys * self.head_size),
        )

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return dQ = dS @ K and dK = dS.T @ Q, or dP = dO @ V.T and dV = P.T @ dO."""
        over_keys = replace(self, role="context")
        over_queries = replace(over_keys, queries=self.keys, keys=self.queries)
        if self.role == "scores":
            return ("dgrad_query", over_keys), ("dgrad_key", over_queries)
        return ("dgrad_probabilities", replace(self, role="scores")), ("dgrad_value", over_queries)
