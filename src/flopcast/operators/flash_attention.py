"""Attention in one kernel that never writes its score matrix (FlashAttention, arXiv:2205.14135).

Answers: FLOP, bytes, what is kept.
Convention: a causal kernel skips the upper triangle, so it needs half of the FLOP.
"""

from dataclasses import dataclass, replace

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class FlashAttention(AbstractOperator):
    """`softmax(Q @ K.T) @ V` for every sequence and every head of this rank.

    Key/value heads that several query heads share are read once: with grouped queries the kernel moves
    fewer bytes, but multiplies as much.

    Examples
    --------
    Two products of 2 · s² · d FLOP for a head, half of that if causal; 2.5 times as much backward:

    >>> from flopcast.dtypes import constant
    >>> head = FlashAttention(batch=constant(1), kv_batch=constant(1), queries=constant(1024),
    ...                       head_size=constant(128), causal=True, dtype="bf16")
    >>> head.work().flop.item() == 2 * 2 * 1024**2 * 128 / 2
    True
    >>> (head.gradients()[0][1].work().flop / head.work().flop).item()
    2.5
    """

    batch: Counts  # sequences · query heads
    kv_batch: Counts  # sequences · key/value heads
    queries: Counts  # tokens of one sequence
    head_size: Counts
    causal: bool
    dtype: str
    is_gradient: bool = False

    @property
    def kernel(self) -> str:
        """One curve per pass."""
        return "flash_attention.backward" if self.is_gradient else "flash_attention"

    def work(self) -> Work:
        """Two products forward, five backward (the scores are computed again).

        Forward reads q, k, v and writes the output; backward reads these and the output's gradient and
        writes three gradients.

        References
        ----------
        arXiv:2205.14135, algorithms 1 and 4; the factor 2.5: arXiv:2307.08691, section 4.1.
        """
        products = 5.0 if self.is_gradient else 2.0
        triangle = 0.5 if self.causal else 1.0
        rows = (self.batch + self.kv_batch) * self.queries * self.head_size
        tensors = 4.0 if self.is_gradient else 2.0  # q, o (and their gradients); likewise k, v
        return Work(
            flop=products * 2 * self.batch * self.queries**2 * self.head_size * triangle,
            moved_bytes=tensors * rows * ELEMENT_BYTES[self.dtype],
            unit=self.dtype,
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Mean length of a query's keys, head size, number of heads over all sequences.

        A causal kernel works on ragged rows: its speed is that of a square of 0.7 of the length
        (the root of a half), as measured on A100 (docs/accuracy/kernels.md).
        """
        length = self.queries * (0.5**0.5 if self.causal else 1.0)
        return length, self.head_size, self.batch

    def saves(self) -> tuple[Saved, ...]:
        """q, k, v, the output and one fp32 log-sum per row."""
        size = self.queries * self.head_size * ELEMENT_BYTES[self.dtype]
        log_sums = self.batch * self.queries * ELEMENT_BYTES["fp32"]
        return (
            Saved(role="input:0", size_bytes=size * self.batch),
            Saved(role="input:1", size_bytes=size * self.kv_batch),
            Saved(role="input:2", size_bytes=size * self.kv_batch),
            Saved(role="output", size_bytes=size * self.batch),
            Saved(role="log_sum", size_bytes=log_sums),
        )

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """One kernel for dQ, dK and dV."""
        return (("dgrad", replace(self, is_gradient=True)),)
