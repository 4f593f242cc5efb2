"""Conversion of weights that are stored in 4 bits to 16 bits for a product (QLoRA, arXiv:2305.14314,
section 3).

Answers: how many bytes does a 4-bit weight with its scales have, and how many bytes move before a GEMM
reads it?
Elsewhere: the weights that are stored in 4 bits (layers/adapters.py).
"""

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work

# scales of 64 weights in 8 bits, of 256 scales in 32
STORED_BYTES = {"fp32": 4.0, "nf4": (4 + 8 / 64 + 32 / (64 * 256)) / 8}


class Dequantise(AbstractOperator):
    """`elements` weights read as `stored` and written as `dtype`.

    The output is not saved, because the gradient of the GEMM's input dequantises the weight again.

    >>> from flopcast.dtypes import constant
    >>> Dequantise(elements=constant(1e6), stored="nf4", dtype="bf16").work().moved_bytes.item()
    2515869.140625
    """

    elements: Counts
    stored: str
    dtype: str

    @property
    def kernel(self) -> str:
        """Return the name of the curve."""
        return "dequantise"

    def work(self) -> Work:
        """Return the work: codes and scales are read, and weights are written."""
        each_bytes = STORED_BYTES[self.stored] + ELEMENT_BYTES[self.dtype]
        return Work(flop=ZERO, moved_bytes=self.elements * each_bytes, unit=self.dtype)

    def saves(self) -> tuple[Saved, ...]:
        """Return nothing."""
        return ()

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return another dequantisation, for the product of the backward pass."""
        return (("dgrad", self),)
