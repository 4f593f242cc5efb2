"""The two batched products of attention: scores `Q @ K.T` and context `P @ V`.

Answers: how many FLOP and bytes does attention need, and which tensors does it save, if its score matrix is
written to memory?
Elsewhere: attention that never writes the scores (operators/flash_attention.py).
"""

from flopcast.dtypes import ELEMENT_BYTES, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace


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
