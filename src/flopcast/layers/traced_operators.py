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
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.fused_pass import FusedPass
from flopcast.operators.matmul import BatchedMatmul, GroupedMatmul, Matmul
from flopcast.strict_model import AlwaysWithKind, StrictModel
from flopcast.units import Number


class Size(StrictModel):
    """A size that depends on the micro-batch; a plain number is a constant size.

    With b sequences of s tokens in the micro-batch, the size is constant + sequences · b + length · s +
    tokens · b · s + square · s² + pairs · b · s².

    Attributes
    ----------
    constant : int or float
        Term of the size that depends on neither b nor s.
    sequences : int or float
        Coefficient of b: the number of elements for each sequence.
    length : int or float
        Coefficient of s.
    tokens : int or float
        Coefficient of b · s: the number of elements for each token of the micro-batch.
    square : int or float
        Coefficient of s².
    pairs : int or float
        Coefficient of b · s²: the number of elements for each pair of tokens of a sequence.

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
    """A tensor that is kept for the backward pass, or that a divided operator reads.

    Attributes
    ----------
    name : str
        Name of the tensor in the block, or of a buffer that only this operator uses.
    elements : Size
        Number of elements, in the dtype of activations.
    divided : bool
        Whether each tensor-parallel rank holds only a shard of the tensor.
    """

    name: str
    elements: Size
    divided: bool = False

    def of(self, split: Split) -> Counts:
        """Return the elements on one rank, shape (plans, 1)."""
        whole = self.elements.of(split)
        return whole / split.tensor if self.divided else whole


class AbstractTracedOperator(AlwaysWithKind):
    """The fields that all operators of a trace have.

    Attributes
    ----------
    name : str
        Name of the operator.
    inputs : tuple of str
        Names of the tensors that the operator reads.
    output : str
        Name of the tensor that the operator writes.
    weight : str
        Name of the weight, if the operator is a GEMM with a weight.
    division : str
        How tensor parallelism divides the operator. "column": the weight [k, n] of a GEMM is divided along
        n. "row": it is divided along k, and an all-reduce adds up the outputs. "within": each rank runs the
        operator on its own heads or columns. "whole": every rank runs the whole operator.
    enters : tuple of TracedTensor
        Names of inputs that every tensor-parallel rank holds whole, but whose gradients are added up over
        these ranks.
    """

    name: str
    inputs: tuple[str, ...]
    output: str
    weight: str = ""
    division: Literal["whole", "column", "row", "within"] = "whole"
    enters: tuple[TracedTensor, ...] = ()

    def cut(self, *divisions: str, split: Split) -> Counts:
        """Return the number of ranks that divide a size: 1 if the operator has none of these divisions."""
        return split.tensor if self.division in divisions else ONE

    def summed(self, split: Split) -> Counts | None:
        """Return the elements of partial sums that ranks add after the operator; None if there are none."""
        return None


class TracedPass(AbstractTracedOperator):
    """One memory-bound kernel.

    Attributes
    ----------
    moved : Size
        Number of elements that the kernel reads and writes.
    divided : Size
        Number of the elements in `moved` that belong to tensors that tensor parallelism divides.
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
        Number of rows of the output.
    n : Size
        Number of columns of the output.
    k : Size
        Length of the sum for each element of the output.
    reads_data : bool
        Whether the input is data, such as features, which has no gradient.
    """

    kind: Literal["matmul"] = "matmul"
    m: Size
    n: Size
    k: Size
    reads_data: bool = False

    def work(self, split: Split) -> AbstractOperator:
        """Return the product on one micro-batch."""
        n = self.n.of(split) / self.cut("column", split=split)
        k = self.k.of(split) / self.cut("row", split=split)
        return Matmul(m=self.m.of(split), n=n, k=k, dtype=split.dtype, reads_data=self.reads_data)

    def summed(self, split: Split) -> Counts | None:
        """Return the whole output of a GEMM of which each rank computes a partial sum."""
        return self.m.of(split) * self.n.of(split) if self.division == "row" else None


class TracedBatchedMatmul(AbstractTracedOperator):
    """A batched GEMM of [m, k] and [k, n] without a weight, such as attention scores.

    Attributes
    ----------
    batch : Size
        Number of GEMMs in the batch.
    m : Size
        Number of rows of each output.
    n : Size
        Number of columns of each output.
    k : Size
        Length of the sum for each element of the output.
    scores : bool
        Whether the GEMM computes attention scores. If false, it multiplies scores by values.
    """

    kind: Literal["batched_matmul"] = "batched_matmul"
    batch: Size
    m: Size
    n: Size
    k: Size
    scores: bool = Field()

    def work(self, split: Split) -> AbstractOperator:
        """Return the products on one micro-batch.

        GEMMs that compute attention scores have m queries and n keys. GEMMs that multiply scores by values
        have k keys. Ranks divide the batch, whose size is heads times sequences.
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
    """A grouped GEMM with `groups` weights of shape [k, n], each with the same number of rows.

    Attributes
    ----------
    groups : int
        Number of weights.
    rows : Size
        Number of rows of all groups together.
    n : Size
        Number of columns of each output.
    k : Size
        Length of the sum for each element of the output.
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
        """Return the whole output of grouped GEMMs of which each rank computes a partial sum."""
        return self.rows.of(split) * self.n.of(split) if self.division == "row" else None
