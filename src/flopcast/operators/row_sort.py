"""The sort of logits for top-p sampling, which sorts all rows together.

Answers: how many bytes and kernels does the sort of logits need?
Elsewhere: the engines that sort (spec/engine.py), other kernels of sampling
(serving/rewrites/last_tokens.py).

PyTorch sorts all rows of a batch together (aten/src/ATen/native/cuda/SortStable.cu). With fewer than 128
rows, it sorts all keys of all rows with a radix sort, whose values are the row and the position of each
key, and then sorts these values by row. With more rows, one block of threads sorts each row. vLLM then
masks the unlikely tokens and scatters the logits back to their positions
(vllm/v1/sample/ops/topk_topp_sampler.py). Pull requests 33538 and 40376 of vLLM state the time of both
steps: 1.07 ms for 64 rows of 131,072 tokens, 2.3 ms for 128 rows, 4.2 ms for 1,024 rows of 32,768 tokens
and 6.2 ms for 512 rows of 131,072 tokens. The time per number is therefore nearly equal on both sides of
128 rows, and one count of bytes describes both methods.
"""

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, constant
from flopcast.operators.base import AbstractWithoutBackward, Work

DIGITS = 4  # of eight bits, of a key of fp32
PAIR_BYTES = 8.0  # the row and the place of a key
KEY_BYTES = ELEMENT_BYTES["fp32"]
SORT_BYTES = (
    PAIR_BYTES  # pairs are filled in
    + KEY_BYTES  # keys are counted by digit
    + DIGITS * 2.0 * (KEY_BYTES + PAIR_BYTES)  # keys and pairs are read and written for each digit
    + 3.0 * PAIR_BYTES  # pairs are counted by row, and read and written once
    + 2.0 * PAIR_BYTES  # pairs are read, and places written
    + 2.0 * KEY_BYTES  # keys are read at their places, and written in order
)
CUT_BYTES = (
    2.0 * 2.0 * KEY_BYTES  # probabilities, and their sums
    + KEY_BYTES + 1.0  # a comparison
    + 1.0 + 2.0 * KEY_BYTES  # the mask
    + 2.0 * KEY_BYTES + PAIR_BYTES  # the scatter
)  # fmt: skip
KERNELS = 21.0  # twelve of the sort, and nine of the mask and the scatter


class RowSort(AbstractWithoutBackward):
    """The sort of `rows` rows of `columns` fp32 numbers with their indices.

    It runs only in serving, so it keeps no tensors and has no gradients.

    Examples
    --------
    The 151,936 tokens of Qwen3's vocabulary move 31 MB for one sequence. More sequences need no more
    kernels:

    >>> sort = RowSort(rows=constant(1), columns=constant(151936), dtype="fp32")
    >>> sort.work().moved_bytes.item() / 1e6, sort.in_turn().item()
    (30.691072, 21.0)
    """

    rows: Counts
    columns: Counts
    dtype: str

    @property
    def kernel(self) -> str:
        """Return one curve."""
        return "row_sort"

    def work(self) -> Work:
        """Return the bytes of both steps; no FLOP are counted."""
        moved_bytes = self.rows * self.columns * (SORT_BYTES + CUT_BYTES)
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype)

    def kernels(self) -> Counts:
        """Return the number of kernels for all rows together."""
        return constant(KERNELS)

    def in_turn(self) -> Counts:
        """Return the number of kernels, each of which waits for the previous one."""
        return self.kernels()
