"""Linear attention with a state of constant size for each head: gated delta nets, Mamba-2, and GLA.

Answers: fields, weights, sharding and forward items of the mixers of Qwen3-Next, Nemotron-H and GLA.
Elsewhere: the core (operators/gated_delta.py), what an engine runs (serving/rewrites/cached_states.py).
Heads are cut over tensor-parallel ranks; fewer heads of keys than ranks are repeated.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `mixed` (queries, keys, values and gates
side by side) and `decays` → `convolved` → `states` (heads, tokens, value size) → `joined` → `partial`
(tokens, hidden). Without a convolution, `mixed` takes the place of `convolved`.
"""

from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import Split, Weight, linear_weights, memory_pass, replicated, row_parallel
from flopcast.layers.mixer import AbstractMixer
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound

# Cycles of a multiprocessor for one element of causal-conv1d's kernels, with the source of the core's
# (operators/gated_delta.py): 15.9 ns forward and 29.7 ns backward for a token of 6,144 channels
CONVOLUTION_CYCLES, CONVOLUTION_GRADIENT_CYCLES = 0.68, 1.26
GATE_RANK = 16  # of GLA's decays: `gate_low_rank_dim` of fla-org/flash-linear-attention (fla/layers/gla.py)
_item = partial(in_part, "attention")


class GatedDeltaNet(AbstractMixer):
    """Linear attention: gated delta rule (arXiv:2412.06464), Mamba-2 (2405.21060) or GLA (2312.06635).

    Attributes
    ----------
    rule : str
        How a token changes the decayed state of a head. "delta": it replaces the value that the state holds
        for the key. "additive": it adds the product of key and value, as in Mamba-2. The groups of Mamba-2
        correspond to key heads, and its state size to `key_size`. "gated": it adds the product to a state
        in which each element of the key has its own decay, as in gated linear attention (GLA).
    heads : int
        Number of value heads. Each has a state of key_size times value_size elements.
    key_heads : int
        Number of query and key heads. Each of them is shared by heads / key_heads value heads.
    key_size : int
        Number of elements of one query or key head.
    value_size : int
        Number of elements of one value head.
    convolution : int
        Kernel size of the short convolution of queries, keys and values, in tokens. 0: no convolution
        (only with the rule "gated").
    gate_rank : int or None
        Rank of the product that computes the decays. Only for the rule "gated", where None means 16.

    Examples
    --------
    Qwen3.5-397B-A17B keeps states of 4 MiB for a sequence in each of its 45 layers of this kind:

    >>> mixer = GatedDeltaNet(heads=64, key_heads=16, key_size=128, value_size=128)
    >>> mixer.state_elements * 4 / 2**20, mixer.channels
    (4.0, 12288)
    """

    kind: Literal["gated_delta"] = "gated_delta"
    rule: Literal["delta", "additive", "gated"] = "delta"
    in_tensor_region: ClassVar[bool] = True
    is_recurrent: ClassVar[bool] = True
    heads: int = Field(ge=1)
    key_heads: int = Field(ge=1)
    key_size: int = Field(ge=1)
    value_size: int = Field(ge=1)
    convolution: int = Field(default=4, ge=0)
    gate_rank: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _decays_fit_the_rule(self) -> "GatedDeltaNet":
        if self.rule != "gated" and (self.gate_rank is not None or not self.convolution):
            raise ValueError('gate_rank, and a convolution of 0, need rule "gated"')
        if self.rule == "gated" and self.key_heads != self.heads:
            raise ValueError('rule "gated" needs as many key_heads as heads')
        return self

    @property
    def out_bias(self) -> bool:
        """Return False: no projection has a bias after the sum."""
        return False

    @property
    def groups(self) -> int:
        """Return the heads of queries and keys."""
        return self.key_heads

    @property
    def channels(self) -> int:
        """Return the channels of the convolution: all queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.heads * self.value_size

    @property
    def state_elements(self) -> int:
        """Return the elements of the states of a sequence, over all heads."""
        return self.heads * self.key_size * self.value_size

    def has_whole_heads(self, hidden: int) -> bool:
        """Return True: sizes of heads are separate fields."""
        return hidden > 0

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of the projections, without products with states."""
        inner = self.heads * self.value_size
        after = self._decay_columns * self.heads * self.key_size if self.rule == "gated" else 0
        return hidden * (self.channels + 2 * inner + self._decay_columns) + after

    @property
    def _decay_columns(self) -> int:
        """Return the columns of decays: one for each head, and one for its write strength if it has one.

        With the rule "gated", they are the rank of the product, which a second matrix widens.
        """
        if self.rule == "gated":
            return self.gate_rank or GATE_RANK
        return self.heads * (2 if self.rule == "delta" else 1)

    def pair_flop(self, hidden: int) -> int:
        """Return 0, because tokens do not attend to single other tokens."""
        return 0

    def square(self, length: int) -> float:
        """Return 0, for the same reason."""
        return 0.0

    def local_heads(self, split: Split) -> tuple[Counts, Counts]:
        """Return the value heads, and the query and key heads (at least one), of one rank."""
        return self.heads / split.tensor, np.maximum(self.key_heads / split.tensor, 1.0)

    def local_channels(self, split: Split) -> Counts:
        """Return the channels of the convolution on one rank."""
        heads, key_heads = self.local_heads(split)
        return 2 * key_heads * self.key_size + heads * self.value_size

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return projections, convolution, decays and the norm, cut by heads.

        Queries, keys and values are one matrix whose columns also pass the causal convolution. `z` is the
        output gate; `ba` has two columns for each head, the write strength and the decay. The norm after
        the core has the size of one head and is whole on every rank. In Mamba-2, `ba` contains only the
        decay, the convolution has a bias, each head has a weight for its input, and the norm covers all
        elements. In GLA, `ba` is whole on every rank, and `decay` widens its result to all elements of
        keys.
        """
        mamba = self.rule == "additive"
        inner, channels = self.heads * self.value_size, self.channels
        cut = channels / self.local_channels(split)
        rank, gated = self._decay_columns, self.rule == "gated"
        decays = (
            linear_weights("attention.decay", rank, self.heads * self.key_size, split.tensor, bias=True)
            if gated
            else (_cut("attention.decay", (2 + mamba) * self.heads, split.tensor),)
        )
        tail = (_cut("attention.convolution", channels * (self.convolution + mamba), cut),)
        return (
            *linear_weights("attention.qkv", hidden, channels, cut, bias=False),
            *linear_weights("attention.z", hidden, inner, split.tensor, bias=False),
            *linear_weights("attention.ba", hidden, rank, ONE if gated else split.tensor, bias=False),
            *(tail if self.convolution else ()),
            *decays,
            _cut("attention.gated_norm", inner, split.tensor)
            if mamba
            else replicated("attention.gated_norm", self.value_size),
            row_parallel("attention.out", inner, hidden, split.tensor),
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "attention.in.full" to "attention.partial", one rank's share of the sum.

        Parameters
        ----------
        hidden : int
            Width of the residual stream.
        split : Split
            Tokens of a rank and the degrees; no context parallelism (spec/rules_context.py).
        """
        heads, key_heads = self.local_heads(split)
        tokens, dtype, channels = split.tokens, split.dtype, self.local_channels(split)
        inner = heads * self.value_size

        def product(columns: Counts, length: Counts) -> Matmul:
            return Matmul(m=tokens, n=columns, k=length, dtype=dtype)

        core = GatedDelta(
            sequences=split.sequences,
            tokens=split.length,
            heads=heads,
            key_heads=key_heads,
            key_size=constant(self.key_size),
            value_size=constant(self.value_size),
            dtype=dtype,
            rule=self.rule,
        )
        convolved, again = tokens * channels, self.rule == "additive"  # Mamba-2 convolves again backward
        convolve = MemoryBound(
            kind="causal_convolution",
            elements=convolved,
            dtype=dtype,
            cycles=convolved * CONVOLUTION_CYCLES,
            gradient_cycles=convolved * (CONVOLUTION_GRADIENT_CYCLES + again * CONVOLUTION_CYCLES),
        )
        norm = memory_pass("gated_rmsnorm", tokens * inner, split, constant(self.value_size))
        convolved_items = (_item("convolve", convolve, ("mixed",), "convolved"),)
        return (
            _item("mix", product(channels + inner, constant(hidden)), ("in.full",), "mixed"),
            *self._decay_items(hidden, split, heads * self.key_size),
            *(convolved_items if self.convolution else ()),
            _item("delta", core, ("convolved" if self.convolution else "mixed", "decays"), "states"),
            _item("gated_norm", norm, ("states", "mixed"), "joined"),
            _item("out", product(constant(hidden), inner), ("joined",), "partial"),
        )

    def _decay_items(self, hidden: int, split: Split, columns: Counts) -> tuple[Item, ...]:
        """Return the product that computes the decays, or the two of GLA and the logarithm of a sigmoid.

        `columns` are the elements of the keys of a token on one rank.
        """
        tokens, rank, dtype = split.tokens, self._decay_columns, split.dtype
        if self.rule != "gated":
            work = Matmul(m=tokens, n=rank / split.tensor, k=constant(hidden), dtype=dtype)
            return (_item("decays", work, ("in.full",), "decays"),)
        lower = Matmul(m=tokens, n=constant(rank), k=constant(hidden), dtype=dtype)
        upper = Matmul(m=tokens, n=columns, k=constant(rank), dtype=dtype)
        log = memory_pass("log_sigmoid", tokens * columns, split)
        return (
            _item("decays.low", lower, ("in.full",), "decays.low"),
            _item("decays.wide", upper, ("decays.low",), "decays.wide"),
            _item("decays", log, ("decays.wide",), "decays"),
        )


def _cut(name: str, total: int, ranks: Counts) -> Weight:
    """Return a vector that ranks divide."""
    return Weight(name=name, elements=total / ranks, total=total)
