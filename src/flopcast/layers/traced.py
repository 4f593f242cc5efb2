"""A block that was traced: operators in a row, whose sizes are polynomials of the micro-batch.

Answers: which weights and items has a block that flopcast has no layer for?
Elsewhere: how a trace becomes such a block (tracing/blocks.py), blocks made of halves (block.py).

Nothing is known of its structure but what flows where. So it is never cut: no tensor, context or expert
parallelism (spec/rules_traced.py). Data and pipeline parallelism, ZeRO and recompute work as everywhere.
Tensors are named by a trace, "x" and "y" for what flows in and out.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import AbstractLayer, Split, Weight
from flopcast.layers.mixer import AbstractMixer
from flopcast.nouns import Noun
from flopcast.operators.base import AbstractOperator
from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item, kernel
from flopcast.operators.matmul import Matmul
from flopcast.units import Number

CORE = "core_attention"
PROBES = (1024.0, 2048.0)  # tokens of a sequence: FLOP are a polynomial of second degree


class Size(Noun):
    """A polynomial in sequences b and tokens of a sequence s; a plain number is a constant.

    >>> from flopcast.layers.traced import Size
    >>> Size.model_validate(4096).constant, Size(tokens=2).at(2.0, 512.0)
    (4096, 2048.0)
    """

    constant: Number = 0.0
    sequences: Number = Field(default=0.0, description="times b")
    length: Number = Field(default=0.0, description="times s")
    tokens: Number = Field(default=0.0, description="times b · s")
    square: Number = Field(default=0.0, description="times s²")
    pairs: Number = Field(default=0.0, description="times b · s²")

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_a_constant(cls, value: Any) -> Any:  # noqa: ANN401  what a user wrote
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return {"constant": value} if plain else value

    def at(self, sequences: Any, length: Any) -> Any:  # noqa: ANN401  numbers, or arrays of them
        """The value for so many sequences of such a length."""
        fixed = self.constant + self.length * length + self.square * length**2
        return fixed + sequences * (self.sequences + self.tokens * length + self.pairs * length**2)

    def of(self, split: Split) -> Counts:
        """The value for a micro-batch, shape (plans, 1)."""
        size: Counts = constant(0) + self.at(split.sequences, split.length)
        return size


class TracedWeight(Noun):
    """A weight of one block; `active`, of a stack of experts, what one token uses of it."""

    name: str
    elements: int = Field(ge=1)
    active: int | None = Field(default=None, ge=1)


class TracedTensor(Noun):
    """A tensor that a pass keeps, and its elements."""

    name: str
    elements: Size


class TracedPass(Noun):
    """Passes over tensors in one kernel: `moved` elements read and written."""

    kind: Literal["pass"] = "pass"
    name: str
    inputs: tuple[str, ...]
    output: str
    moved: Size
    keeps: tuple[TracedTensor, ...] = ()

    def work(self, split: Split) -> AbstractOperator:
        """The kernel on one micro-batch."""
        kept = tuple((tensor.name, tensor.elements.of(split)) for tensor in self.keeps)
        return FusedPass(moved=self.moved.of(split), kept=kept, dtype=split.dtype)


class TracedMatmul(Noun):
    """`out[m, n] = x[m, k] @ w[k, n]`."""

    kind: Literal["matmul"] = "matmul"
    name: str
    inputs: tuple[str, ...]
    output: str
    m: Size
    n: Size
    k: Size

    def work(self, split: Split) -> AbstractOperator:
        """The product on one micro-batch."""
        return Matmul(m=self.m.of(split), n=self.n.of(split), k=self.k.of(split), dtype=split.dtype)


class TracedBatchedMatmul(Noun):
    """`batch` products of [m, k] and [k, n], neither of them a weight: scores where n is the wider."""

    kind: Literal["batched_matmul"] = "batched_matmul"
    name: str
    inputs: tuple[str, ...]
    output: str
    batch: Size
    m: Size
    n: Size
    k: Size
    scores: bool = Field(description="a large output and a short sum, or the reverse")

    def work(self, split: Split) -> AbstractOperator:
        """The products on one micro-batch."""
        batch, n, k = self.batch.of(split), self.n.of(split), self.k.of(split)
        return BatchedMatmul(
            role="scores" if self.scores else "context",
            batch=batch,
            kv_batch=batch,
            queries=self.m.of(split),
            keys=n if self.scores else k,
            head_size=k if self.scores else n,
            dtype=split.dtype,
        )


class TracedAttention(Noun):
    """Causal attention in one kernel, of `heads` and `kv_heads`; values may have a size of their own."""

    kind: Literal["attention"] = "attention"
    name: str
    inputs: tuple[str, ...]
    output: str
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    value_head_size: int | None = Field(default=None, ge=1, description="default: head_size")

    def work(self, split: Split) -> AbstractOperator:
        """The kernel on one micro-batch."""
        values = self.value_head_size
        return FlashAttention(
            batch=self.heads * split.sequences,
            kv_batch=self.kv_heads * split.sequences,
            queries=split.length,
            head_size=constant(self.head_size),
            value_head_size=None if values is None else constant(values),
            causal=True,
            dtype=split.dtype,
        )


class TracedGroupedMatmul(Noun):
    """Products of `groups` weights of shape [k, n] with `rows` in all, evenly spread."""

    kind: Literal["grouped_matmul"] = "grouped_matmul"
    name: str
    inputs: tuple[str, ...]
    output: str
    groups: int = Field(ge=1)
    rows: Size
    n: Size
    k: Size

    def work(self, split: Split) -> AbstractOperator:
        """The products on one micro-batch."""
        return GroupedMatmul(
            groups=constant(self.groups),
            rows=self.rows.of(split),
            n=self.n.of(split),
            k=self.k.of(split),
            imbalance=ONE,
            dtype=split.dtype,
        )


def _kind_of_operator(value: object) -> str:
    """The word that tells operators apart."""
    return str(value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", ""))


TracedOperator = Annotated[
    Annotated[TracedPass, Tag("pass")]
    | Annotated[TracedMatmul, Tag("matmul")]
    | Annotated[TracedBatchedMatmul, Tag("batched_matmul")]
    | Annotated[TracedAttention, Tag("attention")]
    | Annotated[TracedGroupedMatmul, Tag("grouped_matmul")],
    Discriminator(_kind_of_operator),
]
COMPONENTS = {"attention": "attention", "grouped_matmul": "experts", "pass": "passes"}  # else: "linears"


class Traced(AbstractMixer):
    """A whole block as its mixer: weights, and operators in the order in which they run.

    A trace tells no dropout, window or mask; attention in one kernel is causal.
    """

    kind: Literal["traced"] = "traced"
    in_tensor_region: ClassVar[bool] = False
    is_whole_block: ClassVar[bool] = True
    heads: int = Field(default=1, ge=1, le=1, description="a traced block is not cut")
    weights_of_block: tuple[TracedWeight, ...] = Field(min_length=1)
    operators: tuple[TracedOperator, ...] = Field(min_length=1)

    @property
    def groups(self) -> int:
        """One: a block is not cut."""
        return 1

    @property
    def out_bias(self) -> bool:
        """Biases are among the operators."""
        return False

    def has_whole_heads(self, hidden: int) -> bool:
        """Sizes are those of a model that ran."""
        return True

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Every weight, whole on every rank."""
        return tuple(
            Weight(
                name=weight.name,
                elements=constant(weight.elements),
                total=weight.elements,
                active=weight.active,
            )
            for weight in self.weights_of_block
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """From tensor "x" to tensor "y"."""
        return tuple(
            kernel(
                operator.name,
                operator.work(split),
                operator.inputs,
                operator.output,
                component=COMPONENTS.get(operator.kind, "linears"),
                group=CORE if operator.kind == "attention" else "",
            )
            for operator in self.operators
        )

    def linear_elements(self, hidden: int) -> int:
        """Half of the FLOP of a token that do not grow with the length of its sequence."""
        return round(self._flop_of_token()[0] / 2)

    def pair_flop(self, hidden: int) -> int:
        """FLOP of a token for each token of its sequence, mask or not."""
        return round(self._flop_of_token()[1])

    def square(self, length: int) -> float:
        """length²: a trace tells no window."""
        return float(length) ** 2

    def _flop_of_token(self) -> tuple[float, float]:
        """FLOP of a token: what is fixed, and what comes with each token of its sequence."""
        short, long = (self._flop(length) / length for length in PROBES)
        slope = (long - short) / (PROBES[1] - PROBES[0])
        return short - slope * PROBES[0], slope

    def _flop(self, length: Number) -> float:
        """FLOP of one sequence, every pair of its tokens counted."""
        split = Split(
            sequences=ONE, length=constant(length), tensor=ONE, sequence_parallel=False, dtype="bf16"
        )
        works = [operator.work(split) for operator in self.operators]
        return sum(
            float(work.work().flop.item())
            * (2.0 if isinstance(work, FlashAttention) and work.causal else 1.0)
            for work in works
        )


class NoFeedForward(AbstractLayer):
    """The second half of a block that has none: a traced one holds it in its mixer."""

    kind: Literal["none"] = "none"
    in_tensor_region: ClassVar[bool] = False

    @property
    def bias(self) -> bool:
        """None."""
        return False

    @property
    def active_columns(self) -> int:
        """None."""
        return 0

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """None."""
        return ()

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """None."""
        return ()
