"""Dense products in serving engines: `out[m, n] = x[m, k] @ w[k, n]` with any number of rows.

Answers: how many FLOP and bytes does the product of one linear layer need in one iteration of an engine?
Elsewhere: products of training and their gradients (matmul.py), formats of weights (formats.py), the
experts of a layer (fused_experts.py), how long it takes (cost/kernels).

An iteration that generates one token for each of 8 sequences has 8 rows. The kernel then waits for its
weights, and engines run other kernels than training does.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.operators.formats import SERVED_FORMATS
from flopcast.records import replace

FEWEST_COLUMNS = 32.0  # of measured GEMMs


class ServedMatmul(AbstractWithoutBackward):
    """`out[m, n] = x[m, k] @ w[k, n]` in a serving engine.

    `weights` is the format of w (`SERVED_FORMATS`); "" means `dtype`. Results are in `dtype`. In formats
    for both operands, measured times include a cast of x before the GEMM. If `is_cast` is true, the kernel
    before the GEMM has already cast x, and the time of this cast is subtracted (`casts`).

    Examples
    --------
    The output projection of Llama 3.1 70B for 16 tokens, with 16-bit and with 4-bit weights:

    >>> from flopcast.dtypes import constant
    >>> rows, width = constant(16), constant(8192)
    >>> for weights in ("", "int4"):
    ...     product = ServedMatmul(m=rows, n=width, k=width, dtype="bf16", weights=weights)
    ...     print(product.kernel, round(product.work().moved_bytes.item() / 1e6, 1))
    served_gemm 134.7
    served_gemm.int4 35.1
    """

    m: Counts
    n: Counts
    k: Counts
    dtype: str
    weights: str = ""
    is_cast: bool = False

    @property
    def kernel(self) -> str:
        """Return one class for each format of the weights."""
        return f"served_gemm.{self.weights}" if self.weights else "served_gemm"

    @property
    def launches(self) -> int:
        """Return the number of kernels: the GEMM and, in formats for both operands, a cast of x."""
        return 1 if self.is_cast or SERVED_FORMATS[self.weights].input_bytes is None else 2

    def work(self) -> Work:
        """Return the work: a multiply and an add per term; each operand moves once in its own format.

        Without rows there is no product, and no weight is read.
        """
        served = SERVED_FORMATS[self.weights]
        inputs = self.m * self.k * served.bytes_of_input(self.dtype)
        read = np.where(self.m > 0, self.n * self.k, 0.0)
        weights = read * served.bytes_of_weight(self.dtype)
        return Work(
            flop=2 * self.m * self.n * self.k,
            moved_bytes=inputs + weights + self.m * self.n * ELEMENT_BYTES[self.dtype],
            unit=served.engine_of(self.dtype),
            after_cycles=served.shared_cycles(read),
        )

    def casts(self) -> tuple["ServedMatmul", "ServedMatmul"]:
        """Return two GEMMs whose times differ by the time of the cast of x.

        Both have so few columns that they take little longer than reading x. The first casts x and reads
        the result. The second reads x in 16 bits, so the difference is slightly shorter than the cast.
        """
        narrow = replace(self, n=np.full_like(self.n, FEWEST_COLUMNS), is_cast=False)
        return narrow, replace(narrow, weights="")

    def coordinates(self) -> tuple[Counts, ...]:
        """Return rows, columns, length of the sum."""
        return self.m, self.n, self.k
