"""Self-attention: multi-head, grouped-query and multi-query, with or without rotary positions.

Answers: fields, weights, sharding and forward items of softmax attention over one sequence.
Elsewhere: fused attention, which never writes the score matrix (workload/rewrites/flash_attention.py).
Heads are divided over tensor-parallel ranks. If there are fewer key/value heads than ranks, they are
repeated.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `qkv` → `q`, `k`, `v` (heads, tokens, head
size) → `scores`, `capped`, `weights`, `dropped` (heads, tokens, tokens) → `context` → `joined` (tokens,
inner) → `partial` (tokens, hidden). `k`, `v` and `gates` are views of `qkv`: no item writes them. If
queries and keys have norms, `unnormed` is between `qkv` and `q`. If a gate multiplies `joined`, `gated`
follows `joined`.
"""

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.base import Split, Weight, linear_weights, memory_pass, row_parallel
from flopcast.layers.context import Handed, enter_core, leave_core
from flopcast.layers.head_norms import QkNorm, norm_heads, norms_of_heads
from flopcast.layers.mixer import AbstractMixer
from flopcast.layers.windows import WindowKind, mean_keys
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import BatchedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound

CORE = "core_attention"  # the group that selective recompute runs again
_item = partial(in_part, "attention")


class Attention(AbstractMixer):
    """Softmax attention with `heads` query heads and `kv_heads` key/value heads.

    If the two numbers are equal, this is multi-head attention. With one key/value head, it is multi-query
    attention (arXiv:1911.02150), and otherwise grouped-query attention (arXiv:2305.13245).

    Attributes
    ----------
    heads : int
        Number of query heads.
    kv_heads : int, optional
        Number of key/value heads; by default as many as query heads.
    head_size : int, optional
        Number of elements of one head; by default hidden / heads. Set it for models such as Gemma, which
        has 16 heads of 256 elements and a hidden size of 3072.
    qkv_bias : bool
        Whether the projections of queries, keys and values have a bias.
    out_bias : bool
        Whether the output projection has a bias, which is added after the all-reduce over tensor-parallel
        ranks.
    rotary_fraction : float
        Fraction of the elements of each head to which rotary position embeddings (RoPE) apply: 1 for Llama,
        0.25 for GPT-NeoX, 0 for models without rotary embeddings.
    rotary_scaled : bool
        Whether rotary embeddings also multiply the elements that they rotate by a number, as YaRN does.
    causal : bool
        Whether a token attends only to itself and earlier tokens.
    dropout : float
        Probability of dropout on the attention scores after the softmax.
    qk_norm : str
        RMS norms of queries and keys. "none": queries and keys have no norms. "per_head": each head is
        normalised, and all heads share one scale (Qwen3, Gemma 3). "unscaled": each head is normalised,
        without a scale (Llama 4). "whole": one norm covers all heads (OLMo 2); tensor-parallel ranks add up
        their sums of squares.
    alibi : bool
        Whether a bias that depends on the relative position is added to the attention scores, as in ALiBi
        and T5. It costs time only if attention is not fused.
    softcap : bool
        Whether attention scores are limited by c · tanh(scores / c). It costs time only if attention is not
        fused.
    window : int, optional
        Attention window: largest number of tokens that a query attends to, its own token included. By
        default, a query attends to all tokens. A fused kernel skips the scores of all other tokens; if
        attention is not fused, their scores are computed and masked.
    window_kind : str
        Which tokens are in the attention window of a query. "sliding": its own token and those just before
        it. "chunked": the tokens of its chunk, if the sequence is cut into chunks of `window` tokens.
    sinks : bool
        Whether the softmax of every head has an attention sink: a learned logit that belongs to no token
        (GPT-OSS). It counts as a weight and costs no time.
    out_gate : bool
        Whether the output of attention is multiplied by a gate before the output projection (Qwen3-Next,
        Qwen3.5). The gate is the sigmoid of a projection of the layer's input and has as many elements as
        the queries.

    References
    ----------
    Division by heads: arXiv:1909.08053, section 3. Saved tensors: arXiv:2205.05198, section 4.1. Norms of
    queries and keys: arXiv:2302.05442, section 2. ALiBi: arXiv:2108.12409. Caps: arXiv:2408.00118, section
    2. Windows: arXiv:2310.06825, section 2. Sinks: arXiv:2508.10925, section 2. Scaled rotary positions:
    arXiv:2309.00071, section 3.4. Gates: arXiv:2505.06708, section 2.
    """

    kind: Literal["attention"] = "attention"
    in_tensor_region: ClassVar[bool] = True  # the block gathers its input and sums its result
    heads: int = Field(ge=1)
    kv_heads: int | None = Field(default=None, ge=1)
    head_size: int | None = Field(default=None, ge=1)
    qkv_bias: bool = False
    out_bias: bool = False
    rotary_fraction: float = Field(default=1.0, ge=0, le=1)
    rotary_scaled: bool = False
    causal: bool = True
    dropout: Probability = 0.0
    qk_norm: QkNorm = "none"
    alibi: bool = False
    softcap: bool = False
    window: int | None = Field(default=None, ge=1)
    window_kind: WindowKind = "sliding"
    sinks: bool = False
    out_gate: bool = False

    @model_validator(mode="after")
    def _windows_are_causal(self) -> "Attention":
        if self.window is not None and not self.causal:
            raise ValueError(f"causal: true, if window is set (here {self.window})")
        return self

    @model_validator(mode="after")
    def _what_is_scaled_is_turned(self) -> "Attention":
        if self.rotary_scaled and not self.rotary_fraction:
            raise ValueError("rotary_fraction: a number above 0, if rotary_scaled is true")
        return self

    @property
    def groups(self) -> int:
        """Return key/value heads of the whole layer; each serves heads / groups query heads.

        >>> Attention(heads=32, kv_heads=8).groups, Attention(heads=32).groups
        (8, 32)
        """
        return self.kv_heads or self.heads

    def size(self, hidden: int) -> int:
        """Return elements of one head.

        >>> Attention(heads=32).size(hidden=4096), Attention(heads=16, head_size=256).size(hidden=3072)
        (128, 256)
        """
        return self.head_size or hidden // self.heads

    def has_whole_heads(self, hidden: int) -> bool:
        """Return whether a head has a whole number of elements: hidden / heads, unless a size is given."""
        return self.head_size is not None or hidden % self.heads == 0

    def linear_elements(self, hidden: int) -> int:
        """Return elements of the projections of queries, keys, values, gates and the output."""
        return hidden * (2 * self.heads + 2 * self.groups + self._gates) * self.size(hidden)

    @property
    def _gates(self) -> int:
        """Return the heads of the gate that the first projection makes beside queries."""
        return self.heads if self.out_gate else 0

    def pair_flop(self, hidden: int) -> int:
        """Return the FLOP for each pair of query and key: two multiply-adds for each element and head."""
        return 4 * self.heads * self.size(hidden)

    def square(self, length: int) -> float:
        """Return length² or, with a window, twice the number of pairs in the causal band.

        >>> [Attention(heads=1, window=window).square(8192) / 8192 for window in (None, 1024)]
        [8192.0, 1920.0]
        """
        if self.window is None:
            return float(length) ** 2
        return float(2.0 * length * mean_keys(constant(length), self.window, self.window_kind).item())

    def local_heads(self, split: Split) -> tuple[Counts, Counts]:
        """Return query heads and key/value heads of one rank.

        If there are more ranks than key/value heads, each rank holds one head, and several ranks hold the
        same head: its projection is stored and computed more than once.

        Returns
        -------
        pair of arrays of shape (plans, 1)
            Counts of heads. The number of key/value heads is at least 1.
        """
        return self.heads / split.tensor, np.maximum(self.groups / split.tensor, 1.0)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the fused q, k, v projection, norms of q and k, and the output projection without its
        bias.

        The first is divided along its output (whole heads) and the second along its input, so that no
        message is needed between them.
        """
        size, inner = self.size(hidden), self.heads * self.size(hidden)
        heads, groups = self.local_heads(split)
        gates = self._gates / split.tensor
        columns = (self.heads + 2 * self.groups + self._gates) * size
        cut = columns / ((heads + 2 * groups + gates) * size)
        out = row_parallel("attention.out", inner, hidden, split.tensor)
        qkv = linear_weights("attention.qkv", hidden, columns, cut, self.qkv_bias)
        sinks = Weight(name="attention.sinks", elements=heads, total=self.heads)
        norms = norms_of_heads(self.qk_norm, heads, groups, size, (self.heads, self.groups))
        return (*qkv, *norms, *((sinks,) if self.sinks else ()), out)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "attention.in.full" to "attention.partial", one rank's share of the sum.

        Parameters
        ----------
        hidden : width of the residual stream, elements
        split : how the layer is cut; lengths count the tokens of one whole sequence

        Returns
        -------
        tuple of Item
            Logical items: mask, softmax and dropout are separate items, and the scores are written to
            memory. The rewrites of a stack fuse items later (workload/rewrites).
        """
        handed = self._handed(hidden, split)
        return (
            *self._project(hidden, split),
            *enter_core("attention", handed, split, CORE),
            *self._attend(hidden, split),
            *leave_core("attention", handed, split),
            *self._join(hidden, split),
        )

    def _handed(self, hidden: int, split: Split) -> Handed:
        """Return the widths of q, k, v and the core's result on this rank."""
        heads, groups = self.local_heads(split)
        size = self.size(hidden)
        return Handed(queries=heads * size, keys=groups * size, values=groups * size, output=heads * size)

    def _project(self, hidden: int, split: Split) -> list[Item]:
        """Return queries, keys and values of this rank's heads, from one GEMM over the normed input.

        "split_heads" costs nothing forward (views), but its backward joins the three gradients.
        """
        heads, groups = self.local_heads(split)
        size, tokens, dtype = self.size(hidden), split.tokens, split.dtype
        width = (heads + 2 * groups + self._gates / split.tensor) * size
        project = Matmul(m=tokens, n=width, k=constant(hidden), dtype=dtype)
        items = [_item("qkv", project, ("in.full",), "qkv")]
        if self.qkv_bias:
            bias = memory_pass("bias_add", tokens * width, split)
            items.append(_item("qkv_bias", bias, ("qkv",), "qkv"))
        split_heads = memory_pass("split_heads", tokens * width, split)
        items.append(_item("split_heads", split_heads, ("qkv",), "unnormed" if self._norms else "q"))
        items += norm_heads(self.qk_norm, heads, groups, size, split)
        if self.rotary_fraction:
            turned = tokens * (heads + groups) * size * self.rotary_fraction
            kind = "scaled_rope" if self.rotary_scaled else "rope"
            items.append(_item("rope", memory_pass(kind, turned, split), ("q",), "q"))
        return items

    @property
    def _norms(self) -> bool:
        """Return whether queries and keys are normalised."""
        return self.qk_norm != "none"

    def _attend(self, hidden: int, split: Split) -> list[Item]:
        """Return scores, mask, softmax, dropout, context: the part that selective recompute repeats.

        All square tensors count every pair of tokens, masked or not: a kernel that writes the scores
        computes the upper triangle too.
        """
        heads, groups = self.local_heads(split)
        scores = BatchedMatmul(
            role="scores",
            batch=split.attended * heads / split.head_shards,
            kv_batch=split.attended * groups / split.head_shards,
            queries=split.queries,
            keys=split.keys,
            head_size=constant(self.size(hidden)),
            dtype=split.dtype,
            mean_keys=self._mean_keys(split),
        )
        context = scores.gradients()[0][1]  # the same shape in the other role
        return core_items(
            _item,
            scores,
            context,
            alibi=self.alibi,
            softcap=self.softcap,
            causal=self.causal,
            dropout=self.dropout > 0,
        )

    def _mean_keys(self, split: Split) -> Counts | None:
        """Return the mean keys per query inside the window; None if windows hold whole sequences."""
        if self.window is None or np.all(split.keys <= self.window):
            return None
        return mean_keys(split.keys, self.window, self.window_kind)

    def _join(self, hidden: int, split: Split) -> list[Item]:
        """Return items that join the heads (by a copy: batched products write them apart), then the output
        GEMM.
        """
        heads, _ = self.local_heads(split)
        inner = heads * self.size(hidden)
        copy = memory_pass("copy", split.tokens * inner, split, split.keys)
        out = Matmul(m=split.tokens, n=constant(hidden), k=inner, dtype=split.dtype)
        gate = memory_pass("sigmoid_gate", split.tokens * inner, split, split.keys)
        gated = [_item("gate", gate, ("joined", "gates"), "gated")] if self.out_gate else []
        return [
            _item("join_heads", copy, ("context",), "joined"),
            *gated,
            _item("out", out, ("gated" if self.out_gate else "joined",), "partial"),
        ]


def core_items(
    item: Callable[..., Item],
    scores: BatchedMatmul,
    context: AbstractOperator,
    *,
    alibi: bool = False,
    softcap: bool = False,
    causal: bool,
    dropout: bool,
) -> list[Item]:
    """Return the items of the attention core: scores, the passes over them, and context.

    `item` makes an item of this part. The passes of ALiBi and of the soft cap come before the mask, because
    the softmax may fuse the mask. Each row of a pass holds the scores of one query.
    """
    square, kept = "capped" if softcap else "scores", "dropped" if dropout else "weights"
    steps = (
        (alibi, "alibi", "alibi", "scores", "scores"),
        (softcap, "softcap", "softcap", "scores", square),
        (causal, "mask", "mask_fill", square, square),
        (True, "softmax", "softmax", square, "weights"),
        (dropout, "dropout", "dropout", "weights", kept),
    )
    pairs = scores.batch * scores.queries * scores.keys
    items = [item("scores", scores, ("q", "k"), "scores", CORE)]
    for wanted, name, kind, source, output in steps:
        if wanted:
            work = MemoryBound(kind=kind, elements=pairs, width=scores.keys, dtype=scores.dtype)
            items.append(item(name, work, (source,), output, CORE))
    return [*items, item("context", context, (kept, "v"), "context", CORE)]
