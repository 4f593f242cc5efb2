"""Look-up of token embeddings, and its gradient.

Answers: how many bytes do look-up and gradient move? The gradient of an embedding is dense, so the whole
table is written once.
"""

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractOperator, Saved, Work
from flopcast.records import replace


class EmbeddingLookup(AbstractOperator):
    """`out[tokens, hidden] = table[ids]`, with this rank's `vocabulary` rows.

    Every rank processes all `tokens`. Tokens outside its rows become zeros, whose bytes also move.
    """

    tokens: Counts
    hidden: Counts
    vocabulary: Counts
    dtype: str
    is_gradient: bool = False
    trained: bool = True

    @property
    def kernel(self) -> str:
        """Return one curve per pass."""
        return "embedding.backward" if self.is_gradient else "embedding"

    def work(self) -> Work:
        """Return the work. The forward pass reads and writes rows.

        The backward pass reads rows and writes the dense gradient.
        """
        rows = 1.0 if self.is_gradient else 2.0
        table = self.vocabulary if self.is_gradient else 0.0
        elements = (rows * self.tokens + table) * self.hidden
        return Work(flop=ZERO, moved_bytes=elements * ELEMENT_BYTES[self.dtype], unit=self.dtype)

    def coordinates(self) -> tuple[Counts, ...]:
        """Return tokens, rows of the table and width, because the gradient sorts tokens and then adds
        rows.
        """
        return self.tokens, self.vocabulary, self.hidden

    def saves(self) -> tuple[Saved, ...]:
        """Return the token ids, for the gradient of the table, if there is one."""
        if not self.trained:
            return ()
        return (Saved(role="ids", size_bytes=self.tokens * ELEMENT_BYTES["int64"]),)

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return one scatter into the dense gradient; nothing if the table is frozen."""
        if not self.trained:
            return ()
        return (("wgrad", replace(self, is_gradient=True)),)
