"""Time mixing of RWKV-5, -6 and -7: linear attention that mixes each token with the previous one.

Answers: fields, weights, sharding and forward items of the mixer of RWKV.
Elsewhere: the recurrence (operators/gated_delta.py), channel mixing (layers/mlp.py), what an engine runs
(serving/rewrites/cached_states.py).

Tensor parallelism divides the heads. Each projection has a different input, a weighted sum of the token and
the one before it, so no two projections can be one GEMM. From the second layer on, RWKV-7 adds the values
of the first layer; flopcast does not count the messages that send them to later pipeline stages.

Tensors, each prefixed "attention.": `in.full` (tokens, hidden) → `shifted.` and a letter of each projection
→ r, k, v (queries, keys, values), w (decays), g (gates), a (rates of RWKV-7) → `states` → `joined` →
`partial` (tokens, hidden).
"""

from functools import partial
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from flopcast.dtypes import Counts, constant
from flopcast.layers.base import Split, Weight, linear_weights, memory_pass, replicated, row_parallel
from flopcast.layers.gated_delta_net import divided, low_rank_weights
from flopcast.layers.mixer import AbstractRecurrentMixer
from flopcast.operators.gated_delta import GatedDelta
from flopcast.operators.item import Item, in_part
from flopcast.operators.matmul import Matmul

SHIFTS = {5: "rkvg", 6: "rkvgw", 7: "rkvgwa"}  # inputs of projections, with one weighted sum each
FULL = {5: "rkvg", 6: "rkvg", 7: "rkv"}  # projections by one matrix; all others are of low rank
VECTORS = {5: 2, 6: 1, 7: 3}  # for each channel of the heads: a decay (RWKV-5), and one bonus or three
_item = partial(in_part, "attention")


class TimeMix(AbstractRecurrentMixer):
    """Time mixing of RWKV-5 and -6 (arXiv:2404.05892) and of RWKV-7 (arXiv:2503.14456).

    Attributes
    ----------
    version : int
        Version of RWKV: 5, 6 or 7.
    heads : int
        Number of heads. Each has a state of head_size · head_size elements.
    head_size : int
        Number of elements of a query, key or value of one head.
    shift_rank : int or None
        Rank of the products that compute the weights of RWKV-6's sums of two tokens.
    decay_rank : int or None
        Rank of the product that computes decays. Only for RWKV-6 and -7.
    rate_rank, value_rank, gate_rank : int or None
        Ranks of RWKV-7's products that compute the rates of replacement, the fraction of the first layer's
        values, and gates. The first layer has no `value_rank`.

    Examples
    --------
    A sequence in RWKV-6 7B has states of 1 MiB in each of its 32 layers:

    >>> mixer = TimeMix(version=6, heads=64, shift_rank=64, decay_rank=128)
    >>> mixer.state_elements * 4 / 2**20
    1.0
    """

    kind: Literal["time_mix"] = "time_mix"
    in_tensor_region: ClassVar[bool] = True
    version: Literal[5, 6, 7]
    heads: int = Field(ge=1)
    head_size: int = Field(default=64, ge=1)
    shift_rank: int | None = Field(default=None, ge=1)
    decay_rank: int | None = Field(default=None, ge=1)
    rate_rank: int | None = Field(default=None, ge=1)
    value_rank: int | None = Field(default=None, ge=1)
    gate_rank: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _ranks_fit_the_version(self) -> "TimeMix":
        needed = {5: (), 6: ("shift_rank", "decay_rank"), 7: ("decay_rank", "rate_rank", "gate_rank")}
        for rank in ("shift_rank", "decay_rank", "rate_rank", "value_rank", "gate_rank"):
            given, needs = getattr(self, rank) is not None, rank in needed[self.version]
            if needs and not given:
                raise ValueError(f"version {self.version} needs {rank}")
            if given and not needs and (rank, self.version) != ("value_rank", 7):
                raise ValueError(f"version {self.version} has no {rank}")
        return self

    @property
    def state_elements(self) -> int:
        """Return the elements of the states of a sequence, over all heads."""
        return self.heads * self.head_size**2

    @property
    def last_tokens(self) -> int:
        """Return 1, because the weighted sums contain the previous token."""
        return 1

    @property
    def channels(self) -> int:
        """Return the elements of the previous token that time mixing and channel mixing read."""
        return 2 * self.heads * self.head_size

    def local_channels(self, split: Split) -> Counts:
        """Return the elements of the previous token on one rank, which holds all of them."""
        return constant(self.channels)

    @property
    def _ranks(self) -> dict[str, int]:
        """Return the ranks of the projections of low rank."""
        ranks = {"w": self.decay_rank, "a": self.rate_rank, "values": self.value_rank, "g": self.gate_rank}
        return {name: rank for name, rank in ranks.items() if rank}

    def linear_elements(self, hidden: int) -> int:
        """Return the elements of the projections, without products with states."""
        inner, ranks = self.heads * self.head_size, sum(self._ranks.values())
        whole = (len(FULL[self.version]) + 1) * hidden * inner
        shifts = len(SHIFTS[self.version]) * 2 * hidden * (self.shift_rank or 0)
        return whole + shifts + ranks * (hidden + inner)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the weights of projections, of weighted sums and of heads, and of the norm over all heads.

        Each rank holds all weights before the heads. RWKV-6 has a further weighted sum, from which those of
        the projections are computed.
        """
        inner, tensor, version = self.heads * self.head_size, split.tensor, self.version
        number, rank = len(SHIFTS[version]), self.shift_rank or 0
        shifts = (number + (rank > 0)) * hidden + number * 2 * rank * hidden
        projections = (
            weight
            for name in FULL[version]
            for weight in linear_weights(f"attention.{name}", hidden, inner, tensor, bias=False)
        )
        low = (
            weight
            for name, rank in self._ranks.items()
            for weight in low_rank_weights(
                f"attention.{name}", (hidden, rank, inner), tensor, bias=name != "g"
            )
        )
        return (
            replicated("attention.shifts", shifts),
            *projections,
            *low,
            divided("attention.vectors", VECTORS[version] * inner, tensor),
            divided("attention.gated_norm", 2 * inner, tensor),
            row_parallel("attention.out", inner, hidden, tensor),
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "attention.in.full" to "attention.partial", one rank's share of the sum.

        Context parallelism is not supported (spec/rules_context.py).
        """
        tokens, inner = split.tokens, self.heads * self.head_size / split.tensor
        size = constant(self.head_size)

        def product(name: str, source: str, columns: Counts, length: Counts, output: str) -> Item:
            return _item(name, Matmul(m=tokens, n=columns, k=length, dtype=split.dtype), (source,), output)

        def low_rank(name: str, rank: int) -> tuple[Item, Item]:
            source = "shifted.v" if name == "values" else f"shifted.{name}"
            low = product(f"{name}.low", source, constant(rank), constant(hidden), f"{name}.low")
            return low, product(f"{name}.wide", f"{name}.low", inner, constant(rank), f"{name}.wide")

        def passed(kind: str, name: str, inputs: tuple[str, ...], output: str) -> Item:
            return _item(name, memory_pass(kind, tokens * inner, split, size), inputs, output)

        core = GatedDelta(
            sequences=split.sequences,
            tokens=split.length,
            heads=self.heads / split.tensor,
            key_heads=self.heads / split.tensor,
            key_size=size,
            value_size=size,
            dtype=split.dtype,
            rule=f"rwkv{self.version}",
        )
        return (
            *self._shifts(hidden, split),
            *(
                product(name, f"shifted.{name}", inner, constant(hidden), name)
                for name in FULL[self.version]
            ),
            *(item for name, rank in self._ranks.items() for item in low_rank(name, rank)),
            *(passed(*made) for made in self._passes),
            _item("delta", core, self._read, "states"),
            *(
                [passed("residual_add", "bonus", ("states", self._values), "states")]
                if self.version == 7
                else ()
            ),
            passed(
                "gated_rmsnorm", "gated_norm", ("states", "g" if self.version < 7 else "g.wide"), "joined"
            ),
            product("out", "joined", constant(hidden), inner, "partial"),
        )

    @property
    def _read(self) -> tuple[str, ...]:
        """Return the tensors that the recurrence reads."""
        if self.version < 7:
            return ("r", "k", "v", "w")[: self.version - 2]
        return "r", "keys", self._values, "w", "removed", "replaced"

    @property
    def _values(self) -> str:
        """Return the tensor of values, which may contain those of the first layer."""
        return "values" if self.value_rank else "v"

    @property
    def _passes(self) -> tuple[tuple[str, str, tuple[str, ...], str], ...]:
        """Return the passes between projections and the recurrence: kind, name, inputs and output.

        Decays are exponentials. RWKV-7 adds a fraction of the first layer's values, which is learned, and
        computes three kinds of keys: normalised ones, replaced ones, and those that the state adds.
        """
        decays = (("log_sigmoid", "decays", ("w.wide",), "w"),) if self.version > 5 else ()
        if self.version < 7:
            return decays
        first = (("sigmoid_gate", "values", ("v", "values.wide"), "values"),) if self.value_rank else ()
        return (
            *decays,
            *first,
            ("sigmoid", "rates", ("a.wide",), "rates"),
            ("rmsnorm", "removed", ("k",), "removed"),
            ("sigmoid_gate", "replaced", ("removed", "rates"), "replaced"),
            ("sigmoid_gate", "keys", ("k", "rates"), "keys"),
        )

    def _shifts(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the weighted sums of two tokens; in RWKV-6, their weights come from another such sum."""
        tokens, letters, rank = split.tokens, SHIFTS[self.version], self.shift_rank
        if rank is None:
            shift = memory_pass("token_shift", tokens * hidden, split)
            return tuple(_item(f"shift.{name}", shift, ("in.full",), f"shifted.{name}") for name in letters)
        number, width = len(letters), constant(hidden)
        low = Matmul(m=tokens, n=constant(number * rank), k=width, dtype=split.dtype)
        wide = Matmul(m=number * tokens, n=width, k=constant(rank), dtype=split.dtype)
        first = memory_pass("token_shift", tokens * hidden, split)
        learned = memory_pass("learned_shift", tokens * hidden, split)
        return (
            _item("shift.x", first, ("in.full",), "shifted.x"),
            _item("shift.low", low, ("shifted.x",), "shifts.low"),
            _item("shift.wide", wide, ("shifts.low",), "shifts"),
            *(
                _item(f"shift.{name}", learned, ("in.full", "shifts"), f"shifted.{name}")
                for name in letters
            ),
        )
