"""Operators of a traced block on one rank: GEMMs, attention, and memory-bound passes between them.

Answers: which sizes does each kind of operator have, and which part of it runs on one tensor-parallel rank?
Elsewhere: the block that they make (traced.py), operators of other graphs (graph_operators.py), how a trace
finds them (interop/tracing/fusing.py).
"""

from typing import Any, Literal

from pydantic import Field, model_validator

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import Split
from flopcast.operators.base import AbstractOperator
from flopcast.operators.batched_matmul import BatchedMatmul
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.matmul import Matmul
from flopcast.strict_model import StrictModel
from flopcast.units import Number


class Size(StrictModel):
    """A size that depends on the micro-batch; a plain number is a constant.

    The size is a polynomial in b, the number of sequences of the micro-batch, and s, the tokens of each of
    these sequences: constant + sequences · b + length · s + tokens · b · s + square · s² + pairs · b · s².

    Attributes
    ----------
    constant : int or float
        Part of the size that depends on neither b nor s.
    sequences : int or float
        Number that is multiplied by b: the elements that each sequence adds.
    length : int or float
        Number that is multiplied by s: it does not depend on the number of sequences.
    tokens : int or float
        Number that is multiplied by b · s: the elements that each token of the micro-batch adds.
    square : int or float
        Number that is multiplied by s²: it does not depend on the number of sequences.
    pairs : int or float
        Number that is multiplied by b · s²: the elements that each pair of tokens of a sequence adds.

    Examples
    --------
    >>> from flopcast.layers.traced_operators import Size
    >>> Size.model_validate(4096).constant, Size(tokens=2).at(2.0, 512.0)
    (4096, 2048.0)
    """

    constant: Number = 0.0
    sequences: Number = 0.0
    length: Number = 0.0
    tokens: Number = 0.0
    square: Number = 0.0
    pairs: Number = 0.0

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_a_constant(cls, value: Any) -> Any:  # noqa: ANN401  what a user wrote
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return {"constant": value} if plain else value

    def at(self, sequences: Any, length: Any) -> Any:  # noqa: ANN401  numbers, or arrays of them
        """Return the value for a number of sequences and their length."""
        fixed = self.constant + self.length * length + self.square * length**2
        return fixed + sequences * (self.sequences + self.tokens * length + self.pairs * length**2)

    def of(self, split: Split) -> Counts:
        """Return the value for a micro-batch, shape (plans, 1)."""
        size: Counts = constant(0) + self.at(split.sequences, split.length)
        return size


class TracedTensor(StrictModel):
    """A tensor that is kept for the backward pass, or that divided operators read.

    Attributes
    ----------
    name : str
        Name of the tensor in the trace.
    elements : Size
        Number of elements.
    divided : bool
        Whether each tensor-parallel rank holds only a part of it.
    """

    name: str
    elements: Size
    divided: bool = False

    def of(self, split: Split) -> Counts:
        """Return the elements on one rank, shape (plans, 1)."""
        whole = self.elements.of(split)
        return whole / split.tensor if self.divided else whole


class AbstractTracedOperator(StrictModel):
    """The fields that all operators of a trace have.

    Attributes
    ----------
    name : str
        Name of the operator.
    inputs : tuple of str
        Names of the tensors that it reads.
    output : str
        Name of the tensor that it writes.
    weight : str
        Name of the weight of a GEMM, if it has one.
    division : str
        How tensor parallelism divides the operator. "column": a GEMM with a weight [k, n] writes n / ranks
        columns. "row": it sums over k / ranks, and the ranks add their outputs. "within": it works on the
        heads of its rank. "whole": every rank runs all of it.
    enters : tuple of TracedTensor
        Inputs that are whole on every rank, but whose gradients are partial sums.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    weight: str = ""
    division: Literal["whole", "column", "row", "within"] = "whole"
    enters: tuple[TracedTensor, ...] = ()

    def cut(self, *divisions: str, split: Split) -> Counts:
        """Return the number of ranks over which a size is divided; 1 without these divisions."""
        return split.tensor if self.division in divisions else ONE

    def summed(self, split: Split) -> Counts | None:
        """Return the elements of partial sums that ranks add after the operator, or None."""
        return None


class TracedPass(AbstractTracedOperator):
    """Passes over tensors in one memory-bound kernel.

    Attributes
    ----------
    moved : Size
        Elements that are read and written.
    divided : Size
        Elements of `moved` that belong to divided tensors.
    keeps : tuple of TracedTensor
        Tensors that are kept for the backward pass.
    """

    kind: Literal["pass"] = "pass"
    moved: Size
    divided: Size = Size()
    keeps: tuple[TracedTensor, ...] = ()

    def work(self, split: Split) -> AbstractOperator:
        """Return the kernel on one micro-batch."""
        kept = tuple((tensor.name, tensor.of(split)) for tensor in self.keeps)
        divided = self.divided.of(split)
        moved = self.moved.of(split) - divided + divided / split.tensor
        return FusedPass(moved=moved, kept=kept, dtype=split.dtype)


class TracedMatmul(AbstractTracedOperator):
    """A GEMM: `out[m, n] = x[m, k] @ w[k, n]`.

    Attributes
    ----------
    m : Size
        Rows of the output.
    n : Size
        Columns of the output.
    k : Size
        Length of the sum.
    """

    kind: Literal["matmul"] = "matmul"
    m: Size
    n: Size
    k: Size

    def work(self, split: Split) -> AbstractOperator:
        """Return the product on one micro-batch."""
        n = self.n.of(split) / self.cut("column", split=split)
        k = self.k.of(split) / self.cut("row", split=split)
        return Matmul(m=self.m.of(split), n=n, k=k, dtype=split.dtype)

    def summed(self, split: Split) -> Counts | None:
        """Return the whole output of a product divided by rows."""
        return self.m.of(split) * self.n.of(split) if self.division == "row" else None


class TracedBatchedMatmul(AbstractTracedOperator):
    """Batched products of [m, k] and [k, n] without a weight, such as attention scores.

    Attributes
    ----------
    batch : Size
        Number of products.
    m : Size
        Rows of each output.
    n : Size
        Columns of each output.
    k : Size
        Length of the sum.
    scores : bool
        Whether the output is large and the sum short (attention scores) or the reverse.
    """

    kind: Literal["batched_matmul"] = "batched_matmul"
    batch: Size
    m: Size
    n: Size
    k: Size
    scores: bool = Field()

    def work(self, split: Split) -> AbstractOperator:
        """Return the products on one micro-batch.

        Products that make attention scores have m queries and n keys; those with the scores have k keys.
        Ranks divide the batch, which counts heads times sequences.
        """
        batch = self.batch.of(split) / self.cut("within", split=split)
        n, k = self.n.of(split), self.k.of(split)
        return BatchedMatmul(
            role="scores" if self.scores else "context",
            batch=batch,
            kv_batch=batch,
            queries=self.m.of(split),
            keys=n if self.scores else k,
            head_size=k if self.scores else n,
            dtype=split.dtype,
        )


class TracedAttention(AbstractTracedOperator):
    """Causal attention in one kernel.

    Attributes
    ----------
    heads : int
        Number of query heads.
    kv_heads : int
        Number of key/value heads.
    head_size : int
        Elements of one head's queries and keys.
    value_head_size : int, optional
        Elements of one head's values; by default `head_size`.
    """

    kind: Literal["attention"] = "attention"
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_size: int = Field(ge=1)
    value_head_size: int | None = Field(default=None, ge=1)

    def work(self, split: Split) -> AbstractOperator:
        """Return the causal kernel on one micro-batch; ranks divide its heads."""
        values, sequences = self.value_head_size, split.sequences / self.cut("within", split=split)
        return FlashAttention(
            batch=self.heads * sequences,
            kv_batch=self.kv_heads * sequences,
            queries=split.length,
            head_size=constant(self.head_size),
            value_head_size=None if values is None else constant(values),
            causal=True,
            dtype=split.dtype,
        )


class TracedGroupedMatmul(AbstractTracedOperator):
    """Products of `groups` weights of shape [k, n] with `rows` rows in all, spread evenly.

    Attributes
    ----------
    groups : int
        Number of weights.
    rows : Size
        Rows over all groups.
    n : Size
        Columns of each output.
    k : Size
        Length of the sum.
    """

    kind: Literal["grouped_matmul"] = "grouped_matmul"
    groups: int = Field(ge=1)
    rows: Size
    n: Size
    k: Size

    def work(self, split: Split) -> AbstractOperator:
        """Return the products on one micro-batch."""
        return GroupedMatmul(
            groups=constant(self.groups),
            rows=self.rows.of(split),
            n=self.n.of(split) / self.cut("column", split=split),
            k=self.k.of(split) / self.cut("row", split=split),
            imbalance=ONE,
            dtype=split.dtype,
        )

    def summed(self, split: Split) -> Counts | None:
        """Return the whole output of products divided by rows."""
        return self.rows.of(split) * self.n.of(split) if self.division == "row" else None
