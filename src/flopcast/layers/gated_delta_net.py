"""Linear attention with a state of constant size for each head: gated delta nets, KDA, Mamba-2, and GLA.

Answers: fields, weights, sharding and forward items of the mixers of Qwen3-Next, Kimi Linear, Nemotron-H
and GLA.
Elsewhere: the core (operators/gated_delta.py), what an engine runs (serving/rewrites/cached_states.py).
Heads are divided over tensor-parallel ranks. If there are fewer heads of keys than ranks, they are
repeated.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `mixed` (queries, keys, values and gates
side by side) and `decays` → `convolved` → `states` (heads, tokens, value size) → `joined` → `partial`
(tokens, hidden). Without a convolution, `mixed` takes the place of `convolved`. An output gate of low rank
is `gates`; otherwise, gates are a part of `mixed`.
"""

from functools import partial
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import Split, Weight, linear_weights, memory_pass, replicated, row_parallel
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound

# Cycles of a multiprocessor for one element of causal-conv1d's kernels, with the source of the core's
# (operators/gated_delta.py): 15.9 ns forward and 29.7 ns backward for a token of 6,144 channels
CONVOLUTION_CYCLES, CONVOLUTION_GRADIENT_CYCLES = 0.68, 1.26
GATE_RANK = 16  # of GLA's decays: `gate_low_rank_dim` of fla-org/flash-linear-attention (fla/layers/gla.py)
_item = partial(in_part, "attention")


class GatedDeltaNet(AbstractRecurrentMixer):
    """Linear attention: gated delta rule, Kimi Delta Attention (KDA), Mamba-2 or GLA.

    Their papers are arXiv:2412.06464, 2510.26692, 2405.21060 and 2312.06635.

    Attributes
    ----------
    rule : str
        How a token changes the decayed state of a head. "delta": it replaces the value that the state holds
        for the key. "channel": the same, but each element of the key has its own decay, as in KDA.
        "additive": it adds the product of key and value, as in Mamba-2. The groups of Mamba-2 correspond to
        key heads, and its state size to `key_size`. "gated": it adds the product to a state in which each
        element of the key has its own decay, as in gated linear attention (GLA).
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
        Rank of the product that computes the decays. Only for the rules "gated" and "channel", where None
        means 16 and `key_size`.
    out_gate_rank : int or None
        Rank of the product that computes the output gate. None: one matrix computes the gate. Only for the
        rule "channel".

    Examples
    --------
    Qwen3.5-397B-A17B keeps states of 4 MiB for a sequence in each of its 45 layers of this kind:

    >>> mixer = GatedDeltaNet(heads=64, key_heads=16, key_size=128, value_size=128)
    >>> mixer.state_elements * 4 / 2**20, mixer.channels
    (4.0, 12288)
    """

    kind: Literal["gated_delta"] = "gated_delta"
    rule: Literal["delta", "channel", "additive", "gated"] = "delta"
    in_tensor_region: ClassVar[bool] = True
    heads: int = Field(ge=1)
    key_heads: int = Field(ge=1)
    key_size: int = Field(ge=1)
    value_size: int = Field(ge=1)
    convolution: int = Field(default=4, ge=0)
    gate_rank: int | None = Field(default=None, ge=1)
    out_gate_rank: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _decays_fit_the_rule(self) -> "GatedDeltaNet":
        if self.rule != "gated" and not self.convolution:
            raise ValueError('convolution: above 0, unless rule is "gated"')
        if not self._has_decays_of_keys and self.gate_rank is not None:
            raise ValueError('no gate_rank, unless rule is "gated" or "channel"')
        if self.rule != "channel" and self.out_gate_rank is not None:
            raise ValueError('no out_gate_rank, unless rule is "channel"')
        if self._has_decays_of_keys and self.key_heads != self.heads:
            raise ValueError(f'rule "{self.rule}" needs as many key_heads as heads')
        return self

    @property
    def groups(self) -> int:
        """Return the heads of queries and keys."""
        return self.key_heads

    @property
    def last_tokens(self) -> int:
        """Return the number of earlier tokens that the convolution reads."""
        return self.convolution - 1

    @property
    def channels(self) -> int:
        """Return the channels of the convolution: all queries, keys and values."""
        return 2 * self.key_heads * self.key_size + self.heads * self.value_size

    @property
    def state_elements(self) -> int:
        """Return the elements of the states of a sequence, over all heads."""
        return self.heads * self.key_size * self.value_size

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of the projections, without products with states."""
        inner, rank = self.heads * self.value_size, self._decay_rank
        gate = self.out_gate_rank * (hidden + inner) if self.out_gate_rank else hidden * inner
        after = rank * self.heads * self.key_size
        return hidden * (self.channels + inner + rank + self._head_columns) + gate + after

    @property
    def _has_decays_of_keys(self) -> bool:
        """Return whether each element of a key has its own decay."""
        return self.rule in ("gated", "channel")

    @property
    def _head_columns(self) -> int:
        """Return the columns of the decays and of the strengths of writes of which each head has one."""
        return self.heads * {"delta": 2, "channel": 1, "additive": 1, "gated": 0}[self.rule]

    @property
    def _decay_rank(self) -> int:
        """Return the rank of the product that computes a decay for each element of a key; 0 without it."""
        usual = self.key_size if self.rule == "channel" else GATE_RANK
        return (self.gate_rank or usual) if self._has_decays_of_keys else 0

    def local_heads(self, split: Split) -> tuple[Counts, Counts]:
        """Return the value heads, and the query and key heads (at least one), of one rank."""
        return self.heads / split.tensor, np.maximum(self.key_heads / split.tensor, 1.0)

    def local_channels(self, split: Split) -> Counts:
        """Return the channels of the convolution on one rank."""
        heads, key_heads = self.local_heads(split)
        return 2 * key_heads * self.key_size + heads * self.value_size

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the weights of projections, convolution, decays and norm, divided by heads.

        One matrix projects to queries, keys and values, which then pass the causal convolution. `z` is the
        output gate; `ba` has two columns for each head, the write strength and the decay. The norm after
        the core has the size of one head and is whole on every rank. In Mamba-2, `ba` contains only the
        decay, the convolution has a bias, each head has a weight for its input, and the norm covers all
        elements. In GLA and KDA, `decays.low` is whole on every rank, and `decays.wide` widens its result
        to all elements of keys. In KDA, `ba` contains only the strength, and `z` may have two such
        matrices.
        """
        mamba = self.rule == "additive"
        inner, channels, tensor = self.heads * self.value_size, self.channels, split.tensor
        keys = self.heads * self.key_size
        cut = channels / self.local_channels(split)
        tail = (divided("attention.convolution", channels * (self.convolution + mamba), cut),)
        single = {"delta": 2, "channel": 1, "additive": 3, "gated": 0}[self.rule] * self.heads
        return (
            *linear_weights("attention.qkv", hidden, channels, cut, bias=False),
            *low_rank_weights("attention.z", (hidden, self.out_gate_rank or 0, inner), tensor),
            *(
                linear_weights("attention.ba", hidden, self._head_columns, tensor, bias=False)
                if single
                else ()
            ),
            *(tail if self.convolution else ()),
            *(
                low_rank_weights("attention.decays", (hidden, self._decay_rank, keys), tensor, bias=True)
                if self._has_decays_of_keys
                else ()
            ),
            *((divided("attention.decay", single, tensor),) if single else ()),
            divided("attention.gated_norm", inner, tensor)
            if mamba
            else replicated("attention.gated_norm", self.value_size),
            row_parallel("attention.out", inner, hidden, tensor),
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

        rank = self.out_gate_rank
        gates = (
            (
                _item("z.low", product(constant(rank), constant(hidden)), ("in.full",), "gates.low"),
                _item("z.wide", product(inner, constant(rank)), ("gates.low",), "gates"),
            )
            if rank
            else ()
        )
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
        convolve = convolution_of(channels, split, again=self.rule == "additive")
        norm = memory_pass("gated_rmsnorm", tokens * inner, split, constant(self.value_size))
        convolved_items = (_item("convolve", convolve, ("mixed",), "convolved"),)
        return (
            _item(
                "mix", product(channels + (0 if rank else inner), constant(hidden)), ("in.full",), "mixed"
            ),
            *gates,
            *self._decay_items(hidden, split, heads * self.key_size),
            *(convolved_items if self.convolution else ()),
            _item("delta", core, ("convolved" if self.convolution else "mixed", "decays"), "states"),
            _item("gated_norm", norm, ("states", "gates" if rank else "mixed"), "joined"),
            _item("out", product(constant(hidden), inner), ("joined",), "partial"),
        )

    def _decay_items(self, hidden: int, split: Split, columns: Counts) -> tuple[Item, ...]:
        """Return the product that computes the decays, or the two of GLA and KDA.

        `columns` are the elements of the keys of a token on one rank. GLA then takes the logarithm of a
        sigmoid; the core of KDA contains this step. The first product of KDA also computes the strengths of
        writes.
        """
        tokens, dtype = split.tokens, split.dtype
        each_head = self._head_columns / split.tensor
        low = Matmul(m=tokens, n=self._decay_rank + each_head, k=constant(hidden), dtype=dtype)
        if not self._has_decays_of_keys:
            return (_item("decays", low, ("in.full",), "decays"),)
        wide = Matmul(m=tokens, n=columns, k=constant(self._decay_rank), dtype=dtype)
        log = memory_pass("log_sigmoid", tokens * columns, split)
        output = "decays.wide" if self.rule == "gated" else "decays"
        last = (_item("decays", log, ("decays.wide",), "decays"),) if self.rule == "gated" else ()
        return (
            _item("decays.low", low, ("in.full",), "decays.low"),
            _item("decays.wide", wide, ("decays.low",), output),
            *last,
        )


def convolution_of(channels: Counts, split: Split, again: bool = False) -> MemoryBound:
    """Return the short convolution of a rank's channels.

    `again`: the backward kernel convolves once more, as that of Mamba-2 does.
    """
    elements = split.tokens * channels
    cycles = CONVOLUTION_GRADIENT_CYCLES + again * CONVOLUTION_CYCLES
    return MemoryBound(
        kind="causal_convolution",
        elements=elements,
        dtype=split.dtype,
        cycles=elements * CONVOLUTION_CYCLES,
        gradient_cycles=elements * cycles,
    )


def low_rank_weights(
    name: str, sizes: tuple[int, int, int], tensor: Counts, bias: bool = False
) -> tuple[Weight, ...]:
    """Return two matrices whose inner size is a rank, or one matrix if the rank is 0.

    `sizes` are the hidden size, the rank and the columns, which tensor-parallel ranks divide.
    """
    hidden, rank, columns = sizes
    if not rank:
        return tuple(linear_weights(name, hidden, columns, tensor, bias=bias))
    low = linear_weights(f"{name}.low", hidden, rank, ONE, bias=False)
    return *low, *linear_weights(f"{name}.wide", rank, columns, tensor, bias=bias)


def divided(name: str, total: int, ranks: Counts) -> Weight:
    """Return a vector that ranks divide."""
    return Weight(name=name, elements=total / ranks, total=total)
