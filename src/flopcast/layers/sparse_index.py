"""The indexer of DeepSeek's sparse attention, which chooses the tokens that a query attends to.

Answers: weights and projections of the indexer of a layer.
Elsewhere: scores and choice while an engine serves (serving/rewrites/sparse_tokens.py), the layer
(layers/latent_attention.py).

Every rank of tensor parallelism holds the whole indexer. Each token has one key and `heads` queries, which
are projected from the latent of queries. The indexer scores all earlier keys with each query, and computes
a weighted sum of the scores.

References
----------
DeepSeek-V3.2, arXiv:2512.02556, section 2.1; `Indexer` in inference/model.py of DeepSeek-V3.2-Exp.
"""

from pydantic import Field

from flopcast.dtypes import constant
from flopcast.layers.base import Split, Weight, memory_pass, replicated, whole_matrix
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.strict_model import StrictModel


class SparseIndex(StrictModel):
    """Sizes of an indexer.

    Attributes
    ----------
    heads : int
        Number of queries of a token.
    size : int
        Number of elements of a query and of a key.
    top_k : int
        Number of tokens that a query attends to.

    Examples
    --------
    DeepSeek-V3.2 keeps 132 bytes of a token: a key in 8 bits, and its scale.

    >>> index = SparseIndex(heads=64, size=128, top_k=2048)
    >>> index.cached_bytes, index.linear_elements(hidden=7168, queried=1536)
    (132, 13959168)
    """

    heads: int = Field(ge=1)
    size: int = Field(default=128, ge=1)
    top_k: int = Field(default=2048, ge=1)

    @property
    def cached_bytes(self) -> int:
        """Return the bytes of a token in the cache: its key in 8 bits, and a scale in fp32."""
        return self.size + 4

    def linear_elements(self, hidden: int, queried: int) -> int:
        """Return elements of the projections; `queried` is the input width of the projection of queries."""
        return queried * self.heads * self.size + hidden * (self.size + self.heads)

    def weights(self, hidden: int, queried: int) -> tuple[Weight, ...]:
        """Return the projections and the norm of keys, which has a weight and a bias."""
        return (
            whole_matrix("attention.index_q", queried, self.heads * self.size),
            whole_matrix("attention.index_k", hidden, self.size),
            replicated("attention.index_norm", 2 * self.size),
            whole_matrix("attention.index_weights", hidden, self.heads),
        )

    def projections(self, hidden: int, queried: int, split: Split) -> tuple[Item, ...]:
        """Return the projections of own tokens, from "attention.in" and the normed latent of queries."""
        tokens, dtype = split.own_tokens, split.dtype

        def product(columns: int, length: int) -> Matmul:
            return Matmul(m=tokens, n=constant(columns), k=constant(length), dtype=dtype)

        norm = memory_pass("layernorm", tokens * self.size, split, constant(self.size))
        source = "in" if queried == hidden else "q_normed"
        works = {
            "q": (product(self.heads * self.size, queried), source),
            "k": (product(self.size, hidden), "in"),
            "norm": (norm, "index_k"),
            "weights": (product(self.heads, hidden), "in"),
        }
        return tuple(
            kernel(
                f"attention.index_{name}",
                work,
                (f"attention.{tensor}",),
                f"attention.index_{name}",
                component="attention",
            )
            for name, (work, tensor) in works.items()
        )
