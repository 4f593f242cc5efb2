"""Cross-attention: queries of a decoder's tokens attend to the output of an encoder.

Answers: fields, weights, sharding and forward items of the second attention of a decoder block (T5, BART).
Elsewhere: attention over the block's own sequence (layers/attention.py), norms and residual sums
(layers/block.py).

Every decoder block reads SOURCE, the output of the encoder, and the gradients of all blocks are added
(`fork`). SOURCE enters the tensor-parallel region as the normed input does. No decoder block saves it,
because the last block of the encoder saves one copy for all. Other tensors have the prefix "cross.":
`in.full` (tokens, hidden) is projected to `q` (heads, tokens, head size), and the source to `kv` → `k`, `v`
(heads, source tokens, head size). Then follow `scores` → `weights` → `dropped` (heads, tokens, source
tokens) → `context` → `joined` → `partial` (tokens, hidden). Context-parallel ranks project their own part
of the source, and gather keys and values or exchange them for a share of the heads.
"""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.attention import CORE, core_items
from flopcast.layers.base import (
    SOURCE,
    AbstractLayer,
    Split,
    Weight,
    enter_tensor_parallel,
    linear_weights,
    memory_pass,
    row_parallel,
)
from flopcast.layers.context import Handed, enter_core, leave_core
from flopcast.operators.item import Item, in_part, kernel
from flopcast.operators.matmul import BatchedMatmul, Matmul

_item = partial(in_part, "cross", component="attention")


class CrossAttention(AbstractLayer):
    """Cross-attention of a decoder block to the output of the encoder, without a mask.

    Attributes
    ----------
    heads : int
        Number of heads. Queries, keys and values have equally many heads.
    head_size : int, optional
        Elements of one head; by default hidden / heads.
    qkv_bias : bool
        Whether the projections of queries, keys and values have a bias.
    out_bias : bool
        Whether the output projection has a bias, which is added after the all-reduce over tensor-parallel
        ranks.
    dropout : float
        Probability of dropout on the attention scores after the softmax.

    Examples
    --------
    >>> CrossAttention(heads=12).linear_elements(hidden=768, tokens=2, source_tokens=3) == (4 + 6) * 768**2
    True

    References
    ----------
    arXiv:1706.03762, section 3.2.3. Keys and values are divided by heads, as queries are: Megatron-LM,
    `CrossAttention`.
    """

    kind: Literal["cross_attention"] = "cross_attention"
    in_tensor_region: ClassVar[bool] = True  # the block gathers its input and sums its result
    heads: int = Field(ge=1)
    head_size: int | None = Field(default=None, ge=1)
    qkv_bias: bool = False
    out_bias: bool = False
    dropout: Probability = 0.0

    def size(self, hidden: int) -> int:
        """Return elements of one head."""
        return self.head_size or hidden // self.heads

    def linear_elements(self, hidden: int, tokens: int, source_tokens: int) -> int:
        """Return the matrix elements by which each token is multiplied, summed over a sequence."""
        inner = self.heads * self.size(hidden)
        return 2 * hidden * inner * (tokens + source_tokens)

    def pair_flop(self, hidden: int) -> int:
        """Return FLOP of scores and context for one query and one key, all heads together."""
        return 4 * self.heads * self.size(hidden)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the projections of queries, of keys and values, and of the output without its bias."""
        inner, tensor = self.heads * self.size(hidden), split.tensor
        return (
            *linear_weights("cross.q", hidden, inner, tensor, self.qkv_bias),
            *linear_weights("cross.kv", hidden, 2 * inner, tensor, self.qkv_bias),
            row_parallel("cross.out", inner, hidden, tensor),
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items from "cross.in.full" and SOURCE to "cross.partial", a rank's partial sum."""
        source, inner = split.of_source, self.heads * self.size(hidden) / split.tensor
        handed = Handed(queries=inner, keys=inner, values=inner, output=inner)
        fork = memory_pass("fork", source.own_tokens * hidden, split)
        return (
            kernel("cross.fork", fork, (SOURCE,), SOURCE, component="attention"),
            enter_tensor_parallel(SOURCE, "cross.enter_source", hidden, source),
            *self._project("q", ("cross.in.full",), split.tokens, inner, hidden, split),
            *self._project("kv", (f"{SOURCE}.full",), source.tokens, 2 * inner, hidden, split),
            *enter_core("cross", handed, split, CORE, source),
            *self._attend(hidden, split),
            *leave_core("cross", handed, split),
            *self._join(inner, hidden, split),
        )

    def _project(
        self, name: str, inputs: tuple[str, ...], tokens: Counts, width: Counts, hidden: int, split: Split
    ) -> list[Item]:
        """Return a projection of one of the two inputs, with its bias."""
        product = Matmul(m=tokens, n=width, k=constant(hidden), dtype=split.dtype)
        items = [kernel(f"cross.{name}", product, inputs, f"cross.{name}", component="attention")]
        if self.qkv_bias:
            bias = memory_pass("bias_add", tokens * width, split)
            items.append(_item(f"{name}_bias", bias, (name,), name))
        return items

    def _attend(self, hidden: int, split: Split) -> list[Item]:
        """Return scores, softmax, dropout and context; every token attends to the whole source."""
        heads = self.heads / split.tensor / split.head_shards
        scores = BatchedMatmul(
            role="scores",
            batch=split.sequences * heads,
            kv_batch=split.sequences * heads,
            queries=split.length * split.head_shards,
            keys=split.source_length * split.context,
            head_size=constant(self.size(hidden)),
            dtype=split.dtype,
        )
        context = scores.gradients()[0][1]  # the same shape in the other role
        return core_items(_item, scores, context, causal=False, dropout=self.dropout > 0)

    def _join(self, inner: Counts, hidden: int, split: Split) -> list[Item]:
        """Return items that join the heads, then the output GEMM."""
        copy = memory_pass("copy", split.tokens * inner, split)
        out = Matmul(m=split.tokens, n=constant(hidden), k=inner, dtype=split.dtype)
        return [
            _item("join_heads", copy, ("context",), "joined"),
            _item("out", out, ("joined",), "partial"),
        ]
