"""Multi-head latent attention: keys and values of all heads are projections of one small latent vector.

Answers: fields, weights, sharding and forward items, in the form that trains: keys and values of every
head are written out.
Elsewhere: the kernel (operators/flash_attention.py), decoding (serving/rewrites/cached_latents.py).

Ranks share the work as in Megatron-Core: every rank holds all weights of the projections to the latents and
of their norms, and runs them over its own tokens (over all tokens without sequence parallelism). The
projections from the latents are divided by heads. So sequence parallelism gathers normed latents and the
rotated part of the keys, which are narrower than the residual stream.

Tensors, each prefixed "attention.": `in` (own tokens, hidden), the block's → `q_latent`, `kv_latent` (own
tokens, ranks of the latents) → `q_normed`, `kv_normed` → `q_up`, `kv_up` (tokens, heads) → `q`, `k`, `v` →
`scores`, `weights`, `dropped` → `context` → `joined` → `partial` → `sum`. Without a latent of queries,
`in.full` takes the place of `q_normed.full`.

References
----------
DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C. Sharding: `MLASelfAttention` of Megatron-Core
(megatron/core/transformer/multi_latent_attention.py).
"""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.attention import CORE, core_items
from flopcast.layers.base import (
    Split,
    Weight,
    column_parallel,
    enter_tensor_parallel,
    leave_tensor_parallel,
    memory_pass,
    replicated,
    whole_matrix,
)
from flopcast.layers.context import Handed, enter_core, leave_core
from flopcast.layers.mixer import AbstractMixer
from flopcast.layers.sparse_index import SparseIndex
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import BatchedMatmul, Matmul
from flopcast.records import replace
from flopcast.strict_model import NotAllowedError

_item = partial(in_part, "attention")


class LatentAttention(AbstractMixer):
    """Multi-head latent attention (DeepSeek): keys and values are projected from a latent.

    A head's queries and keys have `qk_nope_head_size` elements without and `qk_rope_head_size` with rotary
    position embeddings. All heads share the rotary elements of keys. Latents have RMS norms. No projection
    has a bias.

    Attributes
    ----------
    heads : int
        Number of heads.
    q_lora_rank : int, optional
        Number of elements of the latent of queries. By default, queries have no latent, as in
        DeepSeek-V2-Lite.
    kv_lora_rank : int
        Number of elements of the latent of keys and values, without the rotary elements of the keys.
    qk_nope_head_size : int
        Number of elements of a head's queries and keys without rotary position embeddings.
    qk_rope_head_size : int
        Number of elements of a head's queries and keys with rotary position embeddings.
    rotary : bool
        Whether these elements are rotated. Kimi Linear has the elements, but does not rotate them.
    value_head_size : int
        Number of elements of a head's values and output.
    latent_groups : int
        Number of latents of keys and values. With more than one (grouped latent attention,
        arXiv:2505.21487), heads are divided into as many equal groups, and each group has its own latent of
        `kv_lora_rank` elements.
    dropout : float
        Probability of dropout on the attention scores after the softmax.
    index : SparseIndex, optional
        Indexer that chooses the tokens a query attends to. By default, a query attends to all before it.

    Examples
    --------
    DeepSeek-V3, arXiv:2412.19437, section 4.2: heads of 192 and 128 elements.

    >>> mixer = LatentAttention(heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_size=128,
    ...                         qk_rope_head_size=64, value_head_size=128)
    >>> mixer.query_size, mixer.linear_elements(hidden=7168)
    (192, 187105280)
    """

    kind: Literal["latent_attention"] = "latent_attention"
    in_tensor_region: ClassVar[bool] = False
    heads: int = Field(ge=1)
    q_lora_rank: int | None = Field(default=None, ge=1)
    kv_lora_rank: int = Field(ge=1)
    qk_nope_head_size: int = Field(ge=1)
    qk_rope_head_size: int = Field(ge=1)
    rotary: bool = True
    value_head_size: int = Field(ge=1)
    latent_groups: int = Field(default=1, ge=1)
    dropout: Probability = 0.0
    index: SparseIndex | None = None

    @field_validator("latent_groups")
    @classmethod
    def _equal_groups(cls, value: int, info: ValidationInfo) -> int:
        """Refuse groups of unequal numbers of heads."""
        heads = info.data.get("heads", value)
        if heads % value:
            because = "every latent vector is shared by the same number of heads"
            raise NotAllowedError(f"a divisor of the {heads} heads", because, "set it to 1")
        return value

    @property
    def index_bytes(self) -> int:
        """Return the bytes of a token in the cache of the indexer."""
        return self.index.cached_bytes if self.index else 0

    @property
    def latent_elements(self) -> int:
        """Return elements of all latents of keys and values of a token."""
        return self.latent_groups * self.kv_lora_rank

    @property
    def out_bias(self) -> bool:
        """Return False: no projection has a bias after the sum."""
        return False

    @property
    def groups(self) -> int:
        """Return the number of heads, each of which has its own keys and values after the up-projection."""
        return self.heads

    @property
    def query_size(self) -> int:
        """Return elements of a head's queries and keys."""
        return self.qk_nope_head_size + self.qk_rope_head_size

    @property
    def _up_columns(self) -> int:
        """Return columns of a head in the projection up to keys and values."""
        return self.qk_nope_head_size + self.value_head_size

    @property
    def _down_columns(self) -> int:
        """Return columns of the projection down: the latent of keys and values, and the rotated keys."""
        return self.latent_elements + self.qk_rope_head_size

    def has_whole_heads(self, hidden: int) -> bool:
        """Return True: sizes of heads are separate fields."""
        return hidden > 0

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of all projections, without norms."""
        queries = self.heads * self.query_size
        query = queries * hidden
        if self.q_lora_rank:
            query = self.q_lora_rank * (hidden + queries)
        key_value = hidden * self._down_columns + self.kv_lora_rank * self.heads * self._up_columns
        if self.index:
            query += self.index.linear_elements(hidden, self.q_lora_rank or hidden)
        return query + key_value + self.heads * self.value_head_size * hidden

    def pair_flop(self, hidden: int) -> int:
        """Return two FLOP for each element of queries (scores) and for each element of values (context)."""
        return 2 * self.heads * (self.query_size + self.value_head_size)

    def square(self, length: int) -> float:
        """Return length², because every query may attend to every key."""
        return float(length) ** 2

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return down-projections and norms, which each rank holds whole, and projections divided by heads.

        With `q_lora_rank`, queries have a latent and two projections; without it, they have one projection,
        which is divided by heads. `kv_down` computes the latent and the rotated part of the keys. `kv_up`
        computes the keys and values of all heads.
        """
        queries, inner = self.heads * self.query_size, self.heads * self.value_head_size
        up, cut = self.heads * self._up_columns, split.tensor
        query: tuple[Weight, ...] = (column_parallel("attention.q", hidden, queries, cut),)
        if self.q_lora_rank:
            query = (
                whole_matrix("attention.q_down", hidden, self.q_lora_rank),
                replicated("attention.q_norm", self.q_lora_rank),
                column_parallel("attention.q_up", self.q_lora_rank, queries, cut),
            )
        return (
            *query,
            whole_matrix("attention.kv_down", hidden, self._down_columns),
            replicated("attention.kv_norm", self.latent_elements),
            column_parallel("attention.kv_up", self.kv_lora_rank, up, cut),
            column_parallel("attention.out", hidden, inner, cut),
            *(self.index.weights(hidden, self.q_lora_rank or hidden) if self.index else ()),
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "attention.in", own tokens, to "attention.sum", of the same shape.

        The order is: queries, latents, keys and values, messages of context parallelism before the core,
        the core, messages after it, the output projection and its sum over tensor-parallel ranks.
        """
        return (
            *self._queries(hidden, split),
            *self._keys_and_values(hidden, split),
            *(self.index.projections(hidden, self.q_lora_rank or hidden, split) if self.index else ()),
            *self._heads_written_out(split),
            *enter_core("attention", self._handed(split), split, CORE),
            *self._attend(split),
            *leave_core("attention", self._handed(split), split),
            *self._join(hidden, split),
        )

    def _handed(self, split: Split) -> Handed:
        """Return widths of q, k, v and the core's result, for every head of this rank."""
        heads = self.heads / split.tensor
        wide, narrow = heads * self.query_size, heads * self.value_head_size
        return Handed(queries=wide, keys=wide, values=narrow, output=narrow)

    def _queries(self, hidden: int, split: Split) -> list[Item]:
        """Return queries of this rank's heads, through their latent if they have one."""
        width = self.heads / split.tensor * self.query_size
        if not self.q_lora_rank:
            enter = enter_tensor_parallel("attention.in", "attention.enter", hidden, split)
            product = Matmul(m=split.tokens, n=width, k=constant(hidden), dtype=split.dtype)
            return [enter, _item("q", product, ("in.full",), "q_up")]
        down = _linear(split.own_tokens, constant(self.q_lora_rank), hidden, split)
        return [
            _item("q_down", down, ("in",), "q_latent"),
            *self._normed_and_gathered("q", self.q_lora_rank, split),
            _item("q_up", _linear(split.tokens, width, self.q_lora_rank, split), ("q_normed.full",)),
        ]

    def _keys_and_values(self, hidden: int, split: Split) -> list[Item]:
        """Return keys without their rotated part, and values, of this rank's heads.

        Cutting the rotated keys off the latent costs nothing forward (views); backward joins gradients.
        """
        width = self.heads / split.tensor * self._up_columns
        down = _linear(split.own_tokens, constant(self._down_columns), hidden, split)
        cut = memory_pass("split_heads", split.own_tokens * self._down_columns, split)
        return [
            _item("kv_down", down, ("in",), "kv_latent"),
            _item("split_latent", cut, ("kv_latent",), "kv_latent"),
            *self._normed_and_gathered("kv", self.latent_elements, split),
            _item("kv_up", _linear(split.tokens, width, self.kv_lora_rank, split), ("kv_normed.full",)),
            enter_tensor_parallel(
                "attention.kv_latent", "attention.enter_rotated", self.qk_rope_head_size, split
            ),
        ]

    def _normed_and_gathered(self, which: str, rank: int, split: Split) -> list[Item]:
        """Return the norm of a latent over own tokens, then the gather of all for its projection up."""
        work = memory_pass("rmsnorm", split.own_tokens * rank, split, constant(rank))
        source = f"attention.{which}_normed"
        return [
            _item(f"{which}_norm", work, (f"{which}_latent",), f"{which}_normed"),
            enter_tensor_parallel(source, f"attention.enter_{which}", rank, split),
        ]

    def _heads_written_out(self, split: Split) -> list[Item]:
        """Return a rotation, if any, then queries, keys and values as the attention kernel reads them.

        Both parts of a head's queries and keys are joined, the rotated keys repeated for each head, and
        values cut off the keys: copies of every element, so that what was projected up is not kept.
        """
        heads = self.heads / split.tensor
        turned = split.tokens * (heads + 1) * self.qk_rope_head_size
        queries = split.tokens * heads * self.query_size
        keys_and_values = split.tokens * heads * (self.query_size + self.value_head_size)
        rope = _item("rope", memory_pass("rope", turned, split), ("q_up", "kv_latent.full"), "q_up")
        return [
            *((rope,) if self.rotary else ()),
            _item("join_queries", memory_pass("copy", queries, split), ("q_up",), "q"),
            _item(
                "join_keys", memory_pass("copy", keys_and_values, split), ("kv_up", "kv_latent.full"), "k"
            ),
        ]

    def _attend(self, split: Split) -> list[Item]:
        """Return scores, mask, softmax, dropout and context, with another size of values."""
        batch = split.attended * self.heads / split.tensor / split.head_shards
        scores = BatchedMatmul(
            role="scores",
            batch=batch,
            kv_batch=batch,
            queries=split.queries,
            keys=split.keys,
            head_size=constant(self.query_size),
            dtype=split.dtype,
        )
        context = replace(scores, role="context", head_size=constant(self.value_head_size))
        return core_items(_item, scores, context, causal=True, dropout=self.dropout > 0)

    def _join(self, hidden: int, split: Split) -> list[Item]:
        """Return items that join the heads, the output projection, and the sum over ranks."""
        inner = self.heads / split.tensor * self.value_head_size
        out = Matmul(m=split.tokens, n=constant(hidden), k=inner, dtype=split.dtype)
        return [
            _item("join_heads", memory_pass("copy", split.tokens * inner, split), ("context",), "joined"),
            _item("out", out, ("joined",), "partial"),
            leave_tensor_parallel("attention.partial", "attention.sum", "attention.leave", hidden, split),
        ]


def _linear(rows: Counts, columns: Counts, inputs: int, split: Split) -> Matmul:
    return Matmul(m=rows, n=columns, k=constant(inputs), dtype=split.dtype)
