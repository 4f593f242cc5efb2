"""Attention in one kernel that never writes its score matrix (FlashAttention, arXiv:2205.14135).

Answers: how many FLOP and bytes does the kernel need, and which tensors does it save? A causal kernel skips
the upper triangle, so it needs half of the FLOP. A kernel with a window also skips the scores outside the
window. The time of such a band is that of causal squares whose queries have the same mean number of keys.
These squares have as many tiles of queries, and as many tiles of keys for each tile of queries. The partly
filled tiles at the second edge of the band are ignored. They take 4 to 8 % of the time for windows of 1024
and 128 tokens, according to the growth of speed with length on H100. No kernel with a window was measured,
so these kernels have a separate class.

Latent attention (arXiv:2405.04434, section 2.1) also uses this kernel for training and prefill, after the
keys and values of every head have been computed from the latents. Its queries and keys have more elements
than its values, because rotated elements are added (DeepSeek: 128 + 64, and 128). Such kernels have a
separate class. In decoding, queries are multiplied by the latents directly (latent_decode.py).
"""

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts, constant, is_wide
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace


class FlashAttention(AbstractOperator):
    """The kernel computes `softmax(Q @ K.T) @ V` for every sequence and every head of this rank.

    Key/value heads that several query heads share are read once, so grouped queries move fewer bytes but
    need as many FLOP.

    Examples
    --------
    A head needs two products of 2 · s² · d FLOP, or half of this if causal, and 2.5 times as many FLOP in
    the backward pass:

    >>> from flopcast.dtypes import constant
    >>> head = FlashAttention(batch=constant(1), kv_batch=constant(1), queries=constant(1024),
    ...                       head_size=constant(128), causal=True, dtype="bf16")
    >>> head.work().flop.item() == 2 * 2 * 1024**2 * 128 / 2
    True
    >>> (head.gradients()[0][1].work().flop / head.work().flop).item()
    2.5

    Heads of 192 and 128 elements take as long as heads of 160 elements in the forward pass, and slightly
    longer in the backward pass:

    >>> latent = replace(head, head_size=constant(192), value_head_size=constant(128))
    >>> (latent.work().flop / head.work().flop).item(), latent.kernel
    (1.25, 'flash_attention.latent')
    >>> (latent.gradients()[0][1].work().flop / latent.work().flop).item()
    2.6

    A window of 128 tokens in 1024, 120 keys on average:

    >>> local = replace(head, mean_keys=constant(120))
    >>> (local.work().flop / head.work().flop).item(), local.kernel
    (0.234375, 'flash_attention.window')

    A block of another rank's keys, half as many as queries, costs as much as the rank's own causal block:

    >>> block = replace(head, causal=False, keys=constant(512), partial=True)
    >>> (block.work().flop / head.work().flop).item()
    1.0
    """

    batch: Counts  # sequences · query heads
    kv_batch: Counts  # sequences · key/value heads
    queries: Counts  # tokens of one sequence
    head_size: Counts  # of queries and keys
    causal: bool
    dtype: str
    is_gradient: bool = False
    value_head_size: Counts | None = None  # of values and the output; None: that of queries and keys
    mean_keys: Counts | None = None  # of a query inside its window; None: all, half of them if causal
    keys: Counts | None = None  # tokens that each query may meet; None: those of the queries' sequence
    partial: bool = False  # one block of a longer row, whose log-sums are merged into the row's
    gradient_skips: bool = True  # whether the backward skips what is outside of a window too
    narrow: str = ""  # format of the products, if they have 8 bits: fp8 or mxfp8
    pieces: int = 1  # kernels one after another, each of which computes an equal part of the batch

    @property
    def kernel(self) -> str:
        """Return the name of the curve.

        Each pass has separate curves for equal head sizes, for different head sizes and for windows, and
        for products in 8 bits. In 8 bits, kernels with a window take as long as in 16 bits
        (rewrites/window_gradients.py). In fp32, all kernels share one curve.
        """
        latent = "" if self.value_head_size is None else ".latent"
        window = "" if self.mean_keys is None else ".window"
        narrow = f".{self.narrow}" if self.narrow and not window else ""
        kind = ".fp32" if is_wide(self.dtype) else f"{latent or window}{narrow}"
        return f"flash_attention{kind}{'.backward' if self.is_gradient else ''}"

    @property
    def output_size(self) -> Counts:
        """Return elements of one head of values and of the output."""
        return self.head_size if self.value_head_size is None else self.value_head_size

    @property
    def _num_keys(self) -> Counts:
        return self.queries if self.keys is None else self.keys

    @property
    def _pairs(self) -> Counts:
        """Return pairs of a query and a key of one head, before a mask halves them; or its window's."""
        return self.queries * (self._num_keys if self.mean_keys is None else 2.0 * self.mean_keys)

    @property
    def _square(self) -> Counts:
        """Return the side of the squares that hold this rank's pairs of queries and keys; one for each
        sequence and head, more with a window.
        """
        if self.mean_keys is not None:
            return 2.0 * self.mean_keys
        return self.queries if self.keys is None else (self.queries * self.keys) ** 0.5

    def work(self) -> Work:
        """Return the work: two products forward, five backward (the scores are recomputed).

        Scores and, in the backward pass, gradients of queries and keys have products over elements of
        queries and keys. The output and, in the backward pass, gradients of values and attention weights
        have products over elements of values. Forward reads q, k, v and writes the output; backward reads
        these and the output's gradient and writes three gradients.

        References
        ----------
        arXiv:2205.14135, algorithms 1 and 4; the factor 2.5: arXiv:2307.08691, section 4.1.
        """
        wide, narrow = self.head_size, self.output_size
        elements = 3.0 * wide + 2.0 * narrow if self.is_gradient else wide + narrow
        triangle = 0.5 if self.causal else 1.0
        tokens = self.batch * self.queries + self.kv_batch * self._num_keys
        rows = tokens * (wide + narrow)  # q, o and k, v
        passes = 2.0 if self.is_gradient else 1.0  # each tensor, and its gradient
        return Work(
            flop=2 * self.batch * self._pairs * elements * triangle,
            moved_bytes=passes * rows * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
            narrow_side=0.5 * (wide + narrow),
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the side of a square with as many pairs, the head size, and the heads over all sequences
        of one kernel.

        The head size is the mean of both sizes, to which the forward work is proportional.

        The rows of a causal kernel have different lengths. Its speed is that of a square with 0.7 of the
        length (the square root of a half), as measured on A100 (docs/accuracy/kernels.md). A window divides
        it into several smaller squares.
        """
        length = self._square * (0.5**0.5 if self.causal else 1.0)
        squares = self.batch / self.pieces
        if self.mean_keys is not None:
            squares = squares * (self._pairs / np.maximum(self._square, 1.0) ** 2)
        return length, 0.5 * (self.head_size + self.output_size), squares

    def kernels(self) -> Counts:
        """Return the number of kernels."""
        return constant(self.pieces)

    def in_turn(self) -> Counts:
        """Return the number of kernels, each of which has its own launch."""
        return self.kernels()

    def saves(self) -> tuple[Saved, ...]:
        """Return q, k, v, the output, and one fp32 log-sum for each row.

        The backward kernel computes the scores again from these tensors. A kernel over one block of a ring
        (`partial`) keeps no log-sums of its own, because the blocks of a row share theirs. Keys and values
        are those of the heads that the rank holds, which are fewer than the heads of queries with grouped
        queries.
        """
        size = ELEMENT_BYTES[self.dtype]
        query_bytes, key_bytes = self.batch * self.queries * size, self.kv_batch * self._num_keys * size
        log_sums = self.batch * self.queries * ELEMENT_BYTES["fp32"]
        kept = (
            Saved(role="input:0", size_bytes=query_bytes * self.head_size),
            Saved(role="input:1", size_bytes=key_bytes * self.head_size),
            Saved(role="input:2", size_bytes=key_bytes * self.output_size),
            Saved(role="output", size_bytes=query_bytes * self.output_size),
        )
        return kept if self.partial else (*kept, Saved(role="log_sum", size_bytes=log_sums))

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return one kernel for dQ, dK and dV."""
        mean_keys = self.mean_keys if self.gradient_skips else None
        return (("dgrad", replace(self, is_gradient=True, mean_keys=mean_keys)),)
