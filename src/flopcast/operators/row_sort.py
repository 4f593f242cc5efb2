"""Rows sorted one after another: the vocabulary of each sequence, to sample from its most likely tokens.

Answers: how many bytes and kernels does it take to sort logits?
Elsewhere: which engines sort (spec/engine.py), what else sampling does (serving/rewrites/last_tokens.py).

PyTorch sorts long rows one by one with a radix sort of keys and places (aten/src/ATen/native/cuda/Sort.cu).
A key of fp32 has four digits of eight bits. For each digit, keys are counted, counts are added up, and keys
and places are moved: three kernels that wait for each other.
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractWithoutBackward, Work
from flopcast.records import dataclass

DIGITS = 4
KERNELS = 3.0 * DIGITS  # of a row
PLACE_BYTES = 8.0


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class RowSort(AbstractWithoutBackward):
    """`rows` rows of `columns` numbers in fp32, sorted with their places.

    It serves and does not train: nothing is kept, and there are no gradients.

    Examples
    --------
    The 151,936 tokens of Qwen3's vocabulary move 17 MB for one sequence:

    >>> from flopcast.dtypes import constant
    >>> sort = RowSort(rows=constant(1), columns=constant(151936), dtype="fp32")
    >>> sort.work().moved_bytes.item() / 1e6, sort.in_turn().item()
    (17.016832, 12.0)
    """

    rows: Counts
    columns: Counts
    dtype: str

    @property
    def kernel(self) -> str:
        """Return one curve."""
        return "row_sort"

    def work(self) -> Work:
        """Return the work: keys are read twice for each digit, keys and places moved once."""
        key_bytes = ELEMENT_BYTES["fp32"]
        each_bytes = DIGITS * (key_bytes + 2.0 * (key_bytes + PLACE_BYTES))
        return Work(flop=ZERO, moved_bytes=self.rows * self.columns * each_bytes, unit=self.dtype)

    def kernels(self) -> Counts:
        """Return the kernels of all rows; at least one, even if a pass has no row to sort."""
        return np.maximum(self.rows * KERNELS, 1.0)

    def in_turn(self) -> Counts:
        """Return the kernels of all rows, each of which waits for the one before."""
        return self.kernels()
