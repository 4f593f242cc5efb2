"""Self-attention: multi-head, grouped-query and multi-query, with or without rotary positions.

Answers: fields, weights, sharding and forward items of softmax attention over one sequence.
Elsewhere: the score matrix that is never written (workload/rewrites/flash_attention.py).
Heads are cut over tensor-parallel ranks; fewer key/value heads than ranks are repeated.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `qkv` → `q`, `k`, `v` (heads, tokens,
head size) → `scores`, `weights`, `dropped` (heads, tokens, tokens) → `context` → `joined` (tokens,
inner) → `partial` (tokens, hidden). `k` and `v` are views of `qkv`: no item writes them.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.base import AbstractLayer, Split, Weight, linear_weights
from flopcast.operators.base import AbstractOperator
from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound

CORE = "core_attention"  # the group that selective recompute runs again


class Attention(AbstractLayer):
    """Softmax attention with `heads` query heads and `kv_heads` key/value heads.

    Equal numbers make multi-head attention, one key/value head multi-query (arXiv:1911.02150),
    anything between grouped-query attention (arXiv:2305.13245).

    `head_size` frees the inner width, heads · head size, from the hidden width (Gemma: 16 · 256 inside
    3072). `rotary_fraction` is the part of each head that rotary positions turn: 1 for Llama, 0.25 for
    GPT-NeoX, 0 for learned or no positions. `dropout` acts on the softmax output; dropout on the
    layer's result belongs to the block, as does the add of `out_bias`: both follow the sum over ranks.

    References
    ----------
    Cut by heads: arXiv:1909.08053, section 3. What is kept: arXiv:2205.05198, section 4.1.
    """

    kind: Literal["attention"] = "attention"
    heads: int = Field(ge=1)
    kv_heads: int | None = Field(default=None, ge=1, description="default: as many as heads")
    head_size: int | None = Field(default=None, ge=1, description="default: hidden / heads")
    qkv_bias: bool = False
    out_bias: bool = False
    rotary_fraction: float = Field(default=1.0, ge=0, le=1, description="of each head; 0: none")
    causal: bool = True
    dropout: Probability = 0.0

    @property
    def groups(self) -> int:
        """Key/value heads of the whole layer: each serves heads / groups query heads.

        >>> Attention(heads=32, kv_heads=8).groups, Attention(heads=32).groups
        (8, 32)
        """
        return self.kv_heads or self.heads

    def size(self, hidden: int) -> int:
        """Elements of one head.

        >>> Attention(heads=32).size(hidden=4096), Attention(heads=16, head_size=256).size(hidden=3072)
        (128, 256)
        """
        return self.head_size or hidden // self.heads

    def local_heads(self, split: Split) -> tuple[Counts, Counts]:
        """Query heads and key/value heads of one rank.

        Where ranks outnumber key/value heads, each rank holds one head and some hold the same one:
        its projection is stored and computed more than once.

        Returns
        -------
        pair of arrays of shape (plans, 1)
            Counts of heads, at least one key/value head each.
        """
        return self.heads / split.tensor, np.maximum(self.groups / split.tensor, 1.0)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """One fused q, k, v projection, and the output projection (its bias is the block's).

        The first is cut along its output (whole heads), the second along its input, so that no
        message stands between them.
        """
        size, inner = self.size(hidden), self.heads * self.size(hidden)
        heads, groups = self.local_heads(split)
        columns = (self.heads + 2 * self.groups) * size
        cut = columns / ((heads + 2 * groups) * size)
        out = Weight(name="attention.out", elements=inner * hidden / split.tensor, total=inner * hidden)
        return (*linear_weights("attention.qkv", hidden, columns, cut, self.qkv_bias), out)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """From "attention.in.full" to "attention.partial", one rank's share of the sum.

        Parameters
        ----------
        hidden : width of the residual stream, elements
        split : how the layer is cut; lengths count the tokens of one whole sequence

        Returns
        -------
        tuple of Item
            Logical items: mask, softmax and dropout stand alone, the scores are written. What a stack
            fuses is decided later (workload/rewrites).
        """
        return (*self._project(hidden, split), *self._attend(hidden, split), *self._join(hidden, split))

    def _project(self, hidden: int, split: Split) -> list[Item]:
        """Queries, keys and values of this rank's heads, from one GEMM over the normed input.

        "split_heads" costs nothing forward (views), but its backward joins the three gradients.
        """
        heads, groups = self.local_heads(split)
        size, tokens, dtype = self.size(hidden), split.tokens, split.dtype
        width = (heads + 2 * groups) * size
        project = Matmul(m=tokens, n=width, k=constant(hidden), dtype=dtype)
        items = [_item("qkv", project, ("in.full",), "qkv")]
        if self.qkv_bias:
            bias = MemoryBound(kind="bias_add", elements=tokens * width, dtype=dtype)
            items.append(_item("qkv_bias", bias, ("qkv",), "qkv"))
        split_heads = MemoryBound(kind="split_heads", elements=tokens * width, dtype=dtype)
        items.append(_item("split_heads", split_heads, ("qkv",), "q"))
        if self.rotary_fraction:
            turned = tokens * (heads + groups) * size * self.rotary_fraction
            rope = MemoryBound(kind="rope", elements=turned, dtype=dtype)
            items.append(_item("rope", rope, ("q",), "q"))
        return items

    def _attend(self, hidden: int, split: Split) -> list[Item]:
        """Scores, mask, softmax, dropout, context: the part that selective recompute runs again.

        All square tensors count every pair of tokens, masked or not: a kernel that writes the scores
        computes the upper triangle too.
        """
        heads, groups = self.local_heads(split)
        scores = BatchedMatmul(
            role="scores",
            batch=split.sequences * heads,
            kv_batch=split.sequences * groups,
            queries=split.length,
            keys=split.length,
            head_size=constant(self.size(hidden)),
            dtype=split.dtype,
        )
        context = scores.gradients()[0][1]  # the same shape in the other role
        pairs = scores.batch * split.length**2
        items = [_item("scores", scores, ("q", "k"), "scores", CORE)]
        if self.causal:
            items.append(_item("mask", _over(pairs, "mask_fill", split), ("scores",), "scores", CORE))
        items.append(_item("softmax", _over(pairs, "softmax", split), ("scores",), "weights", CORE))
        if self.dropout:
            drop = _over(pairs, "dropout", split)
            items.append(_item("dropout", drop, ("weights",), "dropped", CORE))
        kept = "dropped" if self.dropout else "weights"
        return [*items, _item("context", context, (kept, "v"), "context", CORE)]

    def _join(self, hidden: int, split: Split) -> list[Item]:
        """Heads side by side again (a copy: batched products write them apart), then the output GEMM."""
        heads, _ = self.local_heads(split)
        inner = heads * self.size(hidden)
        copy = _over(split.tokens * inner, "copy", split)
        out = Matmul(m=split.tokens, n=constant(hidden), k=inner, dtype=split.dtype)
        return [
            _item("join_heads", copy, ("context",), "joined"),
            _item("out", out, ("joined",), "partial"),
        ]


def _over(elements: Counts, kind: str, split: Split) -> MemoryBound:
    """A memory-bound operator whose rows, where it reduces any, are the keys of one query."""
    return MemoryBound(kind=kind, elements=elements, width=split.length, dtype=split.dtype)


def _item(name: str, work: AbstractOperator, inputs: tuple[str, ...], output: str, group: str = "") -> Item:
    """A kernel whose name and tensors get the prefix "attention."."""
    return kernel(
        f"attention.{name}",
        work,
        tuple(f"attention.{tensor}" for tensor in inputs),
        f"attention.{output}",
        component="attention",
        group=group,
    )
