"""Mixers whose heads keep a state instead of a cache: gated delta rule, KDA, Mamba, Mamba-2, GLA and RWKV.

Answers: how many FLOP and bytes does the core of such a mixer need in training and decoding, and which
tensors are kept for the backward pass?
Elsewhere: projections, convolution and norm around the core (layers/gated_delta_net.py,
layers/selective_scan.py, layers/time_mix.py), how long it takes (cost/).

A head keeps a state S of key size times value size. A token with query q, key k, value v, decay a and
strength b changes it to a·S + b·k·(v - a·Sᵀk)ᵀ and reads Sᵀq: three products with the state (Gated Delta
Networks, arXiv:2412.06464, section 3). Prompts are divided into chunks. Inside a chunk, tokens interact
through products of their queries, keys and values. The state is read and written once for each chunk
(section 3.3; arXiv:2406.06484, section 3). Mamba-2 (arXiv:2405.21060, section 6) changes the state to a·S +
b·k·vᵀ; heads of a group share queries and keys, whose products are computed once for the group.

The backward kernels of Mamba-2 (`_mamba_chunk_scan_combined_bwd` of state-spaces/mamba) compute the states
of all chunks again, and the gradients of these states, of values, keys and queries. They need five products
with the state instead of two. Inside a chunk, they compute the products of queries with keys again, and
need three products of results with values instead of one. The kernels of the gated delta rule
(`chunk_gated_delta_rule_bwd` of fla-org/flash-linear-attention) compute each product again, and two
gradients of it.

Gated linear attention (GLA, arXiv:2312.06635) changes the state to diag(a)·S + k·vᵀ: each element of a key
has its own decay. Its kernels (`chunk_gla_fwd` and `chunk_gla_bwd` of fla-org/flash-linear-attention) write
the summed logarithms of the decays, the states of all chunks and the products of queries with keys to
memory, and read them again; the backward pass computes the sums and the states again and writes gradients
in fp32. `GLA_PASSES` counts these reads and writes.

The selective scan of Mamba (arXiv:2312.00752) changes the state h of a channel to exp(d·A)·h + d·b·x, with
a decay A for each element of the state, a step size d for each channel, and b and the matrix of the output
for each token. It has no matrix products.

Kimi Delta Attention (KDA, arXiv:2510.26692) is the gated delta rule with a decay for each element of a key.
For the backward pass, its kernels (`chunk_kda` of fla-org/flash-linear-attention) keep two products of each
chunk, queries times keys and keys times keys. They compute the states again.

RWKV-5 and -6 (arXiv:2404.05892) change the state to diag(a)·S + k·vᵀ, as GLA does, and RWKV-7
(arXiv:2503.14456) to diag(a)·S + b·(Sᵀc)ᵀ + k·vᵀ, with two more vectors b and c for each token. The kernels
with which the published models were trained compute one token after another, without matrix products
(wkv6/cuda/wkv6_cuda_v1a.cu in BlinkDL/RWKV-CUDA; rwkv7/backstepping_smallhead in johanwind/wind_rwkv).
`RECURRENCES` counts their instructions. RWKV-7 writes the states of every 16th token, from which the
backward pass starts. A thread sums over the keys of a token, and each addition waits for the previous one.
With few heads and sequences, no other work hides this time.

The kernels of all rules are limited by their instructions: their time follows the multiprocessors' clock.

References
----------
Gated delta rule: README.md of fla-org/flash-linear-attention, section Benchmarks, `chunk_gdn` on GB200 (148
multiprocessors at 2.06 GHz), heads of 128. The times with 96 heads and 8192 tokens, and with 64 heads and
4 x 4096 tokens, are those of 1.45 ns forward and 4.04 ns backward for a token and head, and of 0.99 us and
2.32 us for each chunk of a sequence, which flopcast leaves out. The kernels of engines are faster.

KDA: `chunk_kda` with heads of 128, 96 heads and 8192 tokens. The forward pass takes 3.27 ms on H800 (132
multiprocessors at 1.98 GHz), where `chunk_gdn` takes 2.03 ms (PaddlePaddle/flash-attention, pull request
133): 1.61 times as long. Forward and backward pass take 23.5 ms on RTX 5090, and the forward pass 5.42 ms
(MoonshotAI/FlashKDA, pull request 28), so the backward pass takes 3.33 times as long. The forward pass is
1,090 cycles of a multiprocessor for a token and head on H800, and 710 on GB200 if the ratio of 1.61 holds
there as well. flopcast takes the geometric mean of both.

Selective scan: fla-org/flash-linear-attention, issue 32, has training rates of a Mamba with 48 blocks and
of a transformer with 24 blocks, both of hidden size 2048, in one script. If the transformer's rate is the
scale, the scan takes 1.6 to 2.1 times as many cycles as flopcast assumes on H100, and 0.4 to 0.8 times as
many on A100. We chose the number between both. A kernel that issues the multiplications, additions and
exponentials of csrc/selective_scan in state-spaces/mamba without any wait would take about a third of it.

RWKV: README.md of mshakerinava/wind_rwkv, a copy of johanwind/wind_rwkv: both passes of RWKV-7 over 8
sequences of 4096 tokens with 64 heads of 64 take 17 ms on H100 (132 multiprocessors at 1.98 GHz) and 36 ms
on A100 (108 at 1.41 GHz) with the kernel of the published models: 0.0246 and 0.0304 cycles for each
instruction, whose geometric mean flopcast takes. Other kernels of this benchmark take 8 to 66 ms on H100.
The forward pass of RWKV-5 with the same sizes takes 7.1 and 10.1 ms on A800 (BlinkDL/RWKV-CUDA, pull
requests 14 and 12), which flopcast predicts 13 % and 39 % too short.

Mamba-2: GiscardBiamby/Automodel-scalingai-f26, mfu/results: kernels of Nemotron 3 Nano (64 heads of 64,
states of 128, 8 groups, chunks of 128 tokens) on 8 H100 (132 multiprocessors at 1.98 GHz) with mamba-ssm
2.3. All kernels of Mamba-2, without convolutions, take 192 ns for a token and layer, forward and backward
(12,288 tokens). A second forward pass in a run with full recompute (32,768 tokens) adds 73 ns.

GLA: benchmarks of `chunk_gla` in bf16. In pull request 43 of flagos-ai/FlagGems-vllm, whose device is not
stated (H100 assumed, which the same author's other benchmarks name), the forward pass takes 3.16 ns for a
token and head of 128 by 128 (8192 tokens, 96 heads), 7.08 ns with 256 by 256, and 18.6 ns with 512 by 512:
6.8, 6.9 and 6.8 bytes of GLA_PASSES for each cycle of a multiprocessor. The backward pass with 512 by 512
takes 63 ns without the elementwise kernels that the benchmark adds (8.0 bytes for each cycle). In pull
request 1931 of tile-ai/TileOPs, on an H200 whose clock is locked at 1.5 GHz, four forward passes of 128 by
128 take 3.4 to 3.8 ns (7.5 to 8.3 bytes).
"""

from math import inf
from typing import NamedTuple

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts
from flopcast.operators.base import AbstractOperator, AbstractWithoutBackward, Saved, Work
from flopcast.records import replace

CHUNK = 64  # tokens: of flash-linear-attention, which vLLM and SGLang took over
STATE_BYTES = ELEMENT_BYTES["fp32"]  # of an element of a state
PRODUCTS = 3.0  # with the state: what it holds for the key, its change, what the query reads
KERNELS = {  # by rule
    "delta": "gated_delta",
    "channel": "channel_delta",
    "additive": "state_space",
    "gated": "gated_linear_attention",
    "selective": "selective_scan",
    **dict.fromkeys(("rwkv5", "rwkv6", "rwkv7"), "wkv"),
}
STATE_SPACE_CHUNK = 128.0  # tokens: of Mamba-2's kernels with the sizes of Nemotron-H
STATE_SPACE_PRODUCTS = 2.0  # with the state: its change, and what the query reads
RECOMPUTED = 3.0  # a product backward: computed again, and two gradients
STATE_SPACE_BACKWARD = 2.5  # products with the state backward for one forward: five for two
FLOP_PER_CYCLE = {  # of a multiprocessor, forward and backward: References
    "delta": (409.0, 439.0),
    "channel": (205.0, 185.0),
    "additive": (179.0, 295.0),
}


class Recurrence(NamedTuple):
    """A kernel that computes the state of one token after another, without matrix products.

    Its fields are the cycles of a multiprocessor for each state element of a token, and the numbers of
    tensors that are read or written (each forward and backward); the number of inputs; the tokens between
    two states that are kept for the backward pass; the number of fp32 results; and the number of sums over
    keys that wait for one another, forward and backward.
    """

    cycles: tuple[float, float]
    passes: tuple[float, float]
    inputs: int
    chunk_tokens: float
    wide_results: int = 0
    sums: tuple[float, float] = (0.0, 0.0)


WKV_CYCLES = 0.0274  # of a multiprocessor for an instruction and element of a state: References
SUM_CYCLES = 4.0  # of an addition that waits for another one: arXiv:2208.11174
RECURRENCES = {
    "selective": Recurrence((0.3, 1.1), (4.0, 8.0), 3, 1024.0),  # two numbers after each 2048 tokens
    "rwkv5": Recurrence((4 * WKV_CYCLES, 19 * WKV_CYCLES), (4.0, 7.0), 3, inf, 0, (1.0, 4.0)),
    "rwkv6": Recurrence((4 * WKV_CYCLES, 19 * WKV_CYCLES), (5.0, 9.0), 4, inf, 0, (1.0, 4.0)),
    "rwkv7": Recurrence((5 * WKV_CYCLES, 16 * WKV_CYCLES), (9.0, 15.0), 6, 16.0, 1, (2.0, 3.0)),  # Sᵀc
}


class GlaPasses(NamedTuple):
    """Number of times that GLA's kernels read or write an element, in the inputs' format ("low") or fp32.

    The elements are those of the keys of a token (and of its queries and decays), of its values, of the
    state of a chunk, and of the products of queries with keys of a chunk.
    """

    low_keys: int
    fp32_keys: int
    low_values: int
    low_states: int
    fp32_states: int
    fp32_scores: int


GLA_PASSES = (GlaPasses(5, 4, 3, 2, 0, 2), GlaPasses(10, 15, 8, 0, 5, 3))  # forward, backward
GLA_BYTES_PER_CYCLE = 7.3  # of a multiprocessor: References
GLA_GRADIENTS = 2.0  # products inside a chunk backward: the scores are kept, and each has two gradients
TENSOR_PASSES = 3.0  # of queries, keys, values and results backward: read, their gradients, and again


class GatedDelta(AbstractOperator):
    """The gated delta rule, or that of KDA, Mamba, Mamba-2, GLA or RWKV, over whole sequences.

    Examples
    --------
    A head of 128 by 128 with chunks of 64 tokens needs 98,304 FLOP per token for its state and 81,920
    inside the chunk:

    >>> from flopcast.dtypes import constant
    >>> core = GatedDelta(sequences=constant(2), tokens=constant(4096), heads=constant(16),
    ...                   key_heads=constant(4), key_size=constant(128), value_size=constant(128),
    ...                   dtype="bf16")
    >>> core.work().flop.item() / (2 * 4096 * 16)
    180224.0

    Mamba-2 needs 2.5 to 3 times as many FLOP in the backward pass:

    >>> scan = replace(core, rule="additive")
    >>> 2.5 < (scan.gradients()[0][1].work().flop / scan.work().flop).item() < 3.0
    True
    """

    sequences: Counts
    tokens: Counts  # of one sequence
    heads: Counts  # heads of values, of this rank; each has a state
    key_heads: Counts  # heads of queries and keys, of this rank
    key_size: Counts
    value_size: Counts
    dtype: str
    rule: str = "delta"  # or another one of KERNELS
    is_gradient: bool = False
    is_served: bool = False  # by kernels of an engine, whose times the curve contains

    @property
    def kernel(self) -> str:
        """Return the name of the curve, which covers all kernels of a rule and a pass."""
        return KERNELS[self.rule] + (".backward" if self.is_gradient else "")

    def work(self) -> Work:
        """Return the work.

        It consists of products with the state and, inside a chunk, products of keys with keys, of queries
        with keys, and of their results with keys, values and changes. Each state is read and written once
        for a sequence.
        """
        if self.rule == "gated":
            return self._work_of_gla()
        if self.rule in RECURRENCES:
            return self._work_of_recurrence()
        state = self.key_size * self.value_size
        products, inside = PRODUCTS, CHUNK * (3.0 * self.key_size + 2.0 * self.value_size)
        if self.rule == "additive":  # queries with keys, once for a group, and results with values
            products, sharing = STATE_SPACE_PRODUCTS, self.key_heads / self.heads
            inside = STATE_SPACE_CHUNK * (sharing * self.key_size + self.value_size)
        passes = 1.0
        if self.is_gradient:
            products *= STATE_SPACE_BACKWARD if self.rule == "additive" else RECOMPUTED
            inside, passes = RECOMPUTED * inside, TENSOR_PASSES
        computed = self.sequences * self.tokens
        row = 2.0 * (self.key_heads * self.key_size + self.heads * self.value_size)
        states_bytes = 2.0 * STATE_BYTES * self.sequences * self.heads * state
        flop = 2.0 * computed * self.heads * (products * state + inside)
        return Work(
            flop=flop,
            moved_bytes=passes * (computed * row * ELEMENT_BYTES[self.dtype] + states_bytes),
            unit=self.dtype,
            cycles=ZERO if self.is_served else flop / FLOP_PER_CYCLE[self.rule][self.is_gradient],
        )

    def _work_of_gla(self) -> Work:
        """Return the work of GLA: products with the state and inside chunks, and bytes of all kernels."""
        state, tokens = self.key_size * self.value_size, self.sequences * self.tokens * self.heads
        inside = CHUNK * (self.key_size + self.value_size)
        products = STATE_SPACE_PRODUCTS
        if self.is_gradient:
            products, inside = products * STATE_SPACE_BACKWARD, inside * GLA_GRADIENTS
        passes = GLA_PASSES[self.is_gradient]
        low = passes.low_keys * self.key_size + passes.low_values * self.value_size
        low = low + passes.low_states * state / CHUNK
        high = passes.fp32_keys * self.key_size + passes.fp32_states * state / CHUNK
        high = high + passes.fp32_scores * CHUNK
        moved_bytes = tokens * (low * ELEMENT_BYTES[self.dtype] + high * STATE_BYTES)
        return Work(
            flop=2.0 * tokens * (products * state + inside),
            moved_bytes=moved_bytes,
            unit=self.dtype,
            cycles=moved_bytes / GLA_BYTES_PER_CYCLE,
        )

    def _work_of_recurrence(self) -> Work:
        """Return the work of a recurrence, which has no matrix products.

        Inputs and results of each head are read or written, with their gradients backward, and the states
        that are kept. The two matrices of Mamba's scan are shared by all channels, and not counted.
        """
        rule = RECURRENCES[self.rule]
        row = self.sequences * self.tokens * self.heads * self.value_size
        states = row * self.key_size
        passes = rule.passes[self.is_gradient] * ELEMENT_BYTES[self.dtype]
        return Work(
            flop=ZERO,
            moved_bytes=row * passes + states / rule.chunk_tokens * STATE_BYTES,
            unit=self.dtype,
            cycles=states * rule.cycles[self.is_gradient],
            chain_cycles=self.tokens * self.key_size * (SUM_CYCLES * rule.sums[self.is_gradient]),
        )

    def coordinates(self) -> tuple[Counts, ...]:
        """Return the tokens of a sequence, whose chunks run one after another, and the states.

        For GLA and recurrences, it is the number of moved bytes, as for a memory-bound kernel.
        """
        if self.rule == "gated" or self.rule in RECURRENCES:
            return (self.work().moved_bytes,)
        return self.tokens, self.sequences * self.heads

    def saves(self) -> tuple[Saved, ...]:
        """Return the decays and, except for Mamba-2, queries, keys and values.

        GLA has a decay for each element of a key, and keeps products of queries with keys in fp32. KDA has
        the same decays, and keeps products of queries and of keys with keys in the inputs' format. The
        kernel of Mamba-2 includes the convolution (`mamba_split_conv1d_scan_combined`): the backward pass
        computes queries, keys and values again from the input of the convolution. A recurrence keeps its
        inputs and states; RWKV-7 also keeps the products of states with one vector, in fp32.
        """
        size, computed = ELEMENT_BYTES[self.dtype], self.sequences * self.tokens
        decays = Saved(role="input:1", size_bytes=computed * self.heads * size)
        if self.rule == "additive":
            return (decays,)
        if rule := RECURRENCES.get(self.rule):
            row = computed * self.heads * self.value_size
            kept = row * (self.key_size / rule.chunk_tokens + rule.wide_results) * STATE_BYTES
            read = [Saved(role=f"input:{place}", size_bytes=row * size) for place in range(rule.inputs)]
            return *read, Saved(role="states", size_bytes=kept)
        row = 2.0 * self.key_heads * self.key_size + self.heads * self.value_size
        inputs = Saved(role="input:0", size_bytes=computed * row * size)
        if self.rule == "delta":  # and the strengths of writes
            return inputs, replace(decays, size_bytes=2.0 * decays.size_bytes)
        element_bytes = 2.0 * size if self.rule == "channel" else STATE_BYTES
        scores = Saved(role="scores", size_bytes=computed * self.heads * CHUNK * element_bytes)
        return inputs, replace(decays, size_bytes=decays.size_bytes * self.key_size), scores

    def gradients(self) -> tuple[tuple[str, AbstractOperator], ...]:
        """Return all backward kernels as one."""
        return (("dgrad", replace(self, is_gradient=True)),)


class DeltaDecode(AbstractWithoutBackward):
    """The gated delta rule for `computed_tokens` new tokens of each decoding sequence.

    The state of every sequence is read once. It is written after each new token, so that drafted tokens can
    be rejected. Products with a vector do not run on matrix engines, so only bytes count.

    Examples
    --------
    Sixteen heads of 128 by 128 of a sequence have states of 1 MiB, which are read and written:

    >>> from flopcast.dtypes import constant
    >>> step = DeltaDecode(sequences=constant(32), heads=constant(16), key_heads=constant(4),
    ...                    key_size=constant(128), value_size=constant(128), dtype="bf16")
    >>> round(step.work().moved_bytes.item() / 32 / 2**20, 3)
    2.01
    """

    sequences: Counts
    heads: Counts  # heads of values, of this rank
    key_heads: Counts
    key_size: Counts
    value_size: Counts
    dtype: str
    computed_tokens: int = 1  # of a sequence
    rule: str = "delta"  # or another one of KERNELS

    @property
    def kernel(self) -> str:
        """Return one curve for Mamba-2, and one for all other rules."""
        return "state_space_decode" if self.rule == "additive" else "delta_decode"

    def work(self) -> Work:
        """Return the work: read and written states, read queries, keys and values, and written results."""
        states_bytes = STATE_BYTES * self.sequences * self.heads * self.key_size * self.value_size
        row = 2.0 * (self.key_heads * self.key_size + self.heads * self.value_size)
        rows_bytes = self.sequences * self.computed_tokens * row * ELEMENT_BYTES[self.dtype]
        moved_bytes = states_bytes * (1.0 + self.computed_tokens) + rows_bytes
        return Work(flop=ZERO, moved_bytes=moved_bytes, unit=self.dtype)
