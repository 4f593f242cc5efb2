"""The interface of layers: user fields, weights, sharding, and forward items.

Answers: which methods does a layer have, and which part of the plan may it see (`Split`)?
Elsewhere: the layers themselves (one file each), the plan (spec/plan.py), the backward pass, which
is derived from the forward items (workload/backward.py).

Tensor parallelism is Megatron-LM's: a column-parallel layer (divided along its output) needs its whole
input on every rank. A row-parallel layer (divided along its input) leaves partial sums on every rank.
Between two such regions, all ranks do the same work or, with sequence parallelism, each rank processes a
part of the tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal

from flopcast.dtypes import ELEMENT_BYTES, ONE, Counts, Floats, constant
from flopcast.layers.images import Image
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import Item, blocking
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, AllReduce, ReduceScatter, Replicate
from flopcast.records import Record, field, replace
from flopcast.strict_model import StrictModel
from flopcast.units import Number

Norm = Literal["layernorm", "rmsnorm"]
SOURCE = "source"  # the tensor of an encoder's result, of which a stage keeps one copy for all its layers


class Split(Record, eq=False):
    """The division of a micro-batch and of a layer over ranks: all that a layer reads of plan and batch.

    Arrays have shape (plans, 1). Structural fields (a bool, a dtype) are the same for all plans.

    `sequences` is the number of sequences of one micro-batch, and `length` the number of tokens of each
    sequence on one rank. All parts except the core of attention process these tokens. `dtype` is the dtype
    of activations and of the operands of matrix products.

    Examples
    --------
    >>> from flopcast.dtypes import constant
    >>> split = Split(sequences=constant(4), length=constant(2048), tensor=constant(8),
    ...               sequence_parallel=True, dtype="bf16")
    >>> split.tokens.item(), split.own_tokens.item()
    (8192.0, 1024.0)
    """

    sequences: Counts  # of one micro-batch
    length: Counts  # tokens of one sequence, or of a context-parallel rank's part of it
    tensor: Counts  # tensor-parallel degree
    sequence_parallel: bool
    dtype: str
    expert: Counts = field(default_factory=lambda: ONE)  # ranks over which experts are spread
    expert_tensor: Counts = field(default_factory=lambda: ONE)  # ranks that share one expert
    context: Counts = field(default_factory=lambda: ONE)  # ranks that share one sequence
    context_exchange: str = "none"  # how their attention meets all keys; spec/plan.py
    context_order: str = "zigzag"
    documents: Counts = field(default_factory=lambda: ONE)  # of equal length, that a sequence is packed of
    source_length: Counts = field(default_factory=lambda: ONE)  # tokens of a sequence that an encoder reads
    tables: str = ""  # how ranks of the expert axis share embedding tables of a graph; "": each holds all
    whole_tables: int = 0  # elements of the largest table that each holds despite this
    halo: Number = 0  # vertices of other ranks of the expert axis that a rank reads, over its own
    images: tuple[tuple[Image, ...], ...] = ()  # of a sequence of each kind of micro-batch; (): none have

    @property
    def tokens(self) -> Counts:
        """Return tokens of one micro-batch in the tensor-parallel regions."""
        return self.sequences * self.length

    @property
    def of_source(self) -> "Split":
        """Return the split of layers that process the tokens of an encoder."""
        return replace(self, length=self.source_length)

    @property
    def own_tokens(self) -> Counts:
        """Return the number of tokens of norms, residuals and dropout: divided by sequence parallelism,
        otherwise all tokens.

        References
        ----------
        arXiv:2205.05198, section 4.2.2 and figure 5.
        """
        return self.tokens / self.tensor if self.sequence_parallel else self.tokens

    @property
    def queries(self) -> Counts:
        """Return the tokens of one sequence whose queries the attention core of a rank processes.

        These are the rank's own tokens or, if ranks have exchanged tokens for a share of the heads
        (`head_shards`), all tokens; for packed documents, those of one document.
        """
        return self.length * self.head_shards / self.documents

    @property
    def keys(self) -> Counts:
        """Return tokens whose keys these queries attend to: all of their document, on any rank."""
        return self.length * self.context / self.documents

    @property
    def attended(self) -> Counts:
        """Return the number of documents of a micro-batch. Attention processes each document separately."""
        return self.sequences * self.documents

    @property
    def head_shards(self) -> Counts:
        """Return the number of ranks that divide the heads of attention, besides tensor parallelism."""
        return self.context if self.context_exchange == "all_to_all" else ONE

    @property
    def element_bytes(self) -> float:
        """Return the bytes of one activation element."""
        return ELEMENT_BYTES[self.dtype]


class Weight(Record, eq=False):
    """One parameter tensor: elements on this rank, and of the whole unpadded tensor.

    `tied` marks a second use of a tensor that another layer owns: the tensor is stored again only if its
    owner is on another rank. `expert` marks a tensor of experts. Expert-parallel ranks divide it, so its
    data-parallel group differs from that of the model's other tensors (spec/plan.py). `active` is the
    number of elements that one token uses, if it does not use all of them. `matrix` holds the numbers of
    rows and columns of a matrix on this rank. If the tensor stacks several matrices, it holds those of one
    matrix. It is None for vectors. A tensor that is not `trained` has no gradient and no optimizer state; a
    `forward_only` tensor is not read in the backward pass either.

    Over all tensor-parallel ranks, the sum of `elements` is `total` for a divided tensor, `total` times the
    degree for a replicated tensor, and more than `total` if rows are padded or heads are repeated.
    """

    name: str
    elements: Counts
    total: int
    tied: bool = False
    expert: bool = False
    active: int | None = None  # of `total`; None: all
    matrix: tuple[Counts, Counts] | None = None
    trained: bool = True
    forward_only: bool = False
    stored: str = ""  # dtype in memory; the plan's where it is empty
    update: str = ""  # dtype in which ranks gather what others have updated; the plan's where it is empty

    @property
    def used(self) -> int:
        """Return the elements that one token uses."""
        return self.total if self.active is None else self.active


class AbstractLayer(StrictModel, ABC):
    """One part of an architecture: its fields (validated, frozen), and the items, weights and FLOP that
    follow from them.

    The result of a layer depends only on its fields, the hidden width and a Split, and not on a device, a
    stack or other layers. A layer reads a tensor "x" and writes a tensor "y", or the tensors that its block
    names. `kind` is a word such as "attention", which identifies the layer in files.
    """

    kind: str

    def split_of(self, split: Split) -> Split:
        """Return the split of the layer's tokens, given the split of the model's sequences."""
        return split

    def width_of(self, hidden: int) -> int:
        """Return the width of the layer's input, given the width of the model's residual stream."""
        return hidden

    @abstractmethod
    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the parameter tensors of one instance.

        Parameters
        ----------
        hidden : width of the residual stream, elements
        split : only its tensor-parallel degree matters

        Returns
        -------
        tuple of Weight
            Names are unique. The sum of `elements` is the number of parameters on one rank, and the sum of
            `total` that of the layer.
        """

    @abstractmethod
    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the logical items of one forward pass over one micro-batch.

        Returns
        -------
        tuple of Item
            In the order of execution on one rank; sizes of shape (plans, 1) or (1, 1). The backward pass,
            recompute and memory follow from these items.
        """


def linear_weights(name: str, rows: int, columns: int, cut: Counts, bias: bool) -> Iterable[Weight]:
    """Yield the weight of `out = x @ w` cut along its output (`cut` shards), and its bias, if any.

    Parameters
    ----------
    rows, columns : shape of the whole weight, elements
    cut : shards, shape (plans, 1)
        The tensor-parallel degree, or less where some columns are held by several ranks.
    """
    yield column_parallel(name, rows, columns, cut)
    if bias:
        yield Weight(name=f"{name}_bias", elements=columns / cut, total=columns)


def column_parallel(name: str, rows: int, columns: int, cut: Counts) -> Weight:
    """Return the weight of `out = x @ w`, divided along its output as in `linear_weights`."""
    shape = constant(rows), columns / cut
    return Weight(name=name, elements=rows * columns / cut, total=rows * columns, matrix=shape)


def row_parallel(name: str, rows: int, columns: int, cut: Counts) -> Weight:
    """Return the weight of `out = x @ w`, divided along its input, so that the output is a partial sum."""
    shape = rows / cut, constant(columns)
    return Weight(name=name, elements=rows * columns / cut, total=rows * columns, matrix=shape)


def replicated(name: str, elements: int) -> Weight:
    """Return a tensor that tensor-parallel ranks do not divide: norms, biases after a sum, positions."""
    return Weight(name=name, elements=constant(elements), total=elements)


def whole_matrix(name: str, rows: int, columns: int) -> Weight:
    """Return a matrix that tensor-parallel ranks do not divide: routers, projections to latents."""
    return replace(replicated(name, rows * columns), matrix=(constant(rows), constant(columns)))


def norm_weights(name: str, kind: str, hidden: int, bias: bool, scale: bool = True) -> tuple[Weight, ...]:
    """Return the scale of a norm, and the bias of a layer norm; nothing without `scale` (OLMo's norms).

    >>> [weight.name for weight in norm_weights("norm1", "layernorm", 4096, bias=True)]
    ['norm1.scale', 'norm1.bias']
    >>> [weight.name for weight in norm_weights("norm1", "rmsnorm", 4096, bias=True)]
    ['norm1.scale']
    """
    if not scale:
        return ()
    scales = (replicated(f"{name}.scale", hidden),)
    if KINDS[kind].has_bias and bias:
        return (*scales, replicated(f"{name}.bias", hidden))
    return scales


def memory_pass(kind: str, elements: Counts, split: Split, width: Counts = ONE) -> MemoryBound:
    """Return a memory-bound operator in the number format of activations; `width` is a row's length."""
    return MemoryBound(kind=kind, elements=elements, width=width, dtype=split.dtype)


def enter_tensor_parallel(source: str, name: str, hidden: int, split: Split) -> Item:
    """Return messages that give a column-parallel linear its whole input on every rank.

    With sequence parallelism, ranks gather the shards, and gather them again for the weight gradient
    instead of keeping them (arXiv:2205.05198, section 4.2.2). The result is named `source` + ".full".

    Without sequence parallelism, the forward pass sends nothing, but the backward pass sums the input
    gradients of the ranks: the operator `f` of arXiv:1909.08053, section 3.

    Parameters
    ----------
    source : tensor of shape (tokens, hidden), or one share of its tokens
    name : of the item
    """
    full_bytes = split.tokens * hidden * split.element_bytes
    message: AbstractMessage
    if split.sequence_parallel:
        message = AllGather(axis="tp", message_bytes=full_bytes)
        return blocking(name, message, source, f"{source}.full", full_bytes / split.tensor)
    message = Replicate(axis="tp", message_bytes=full_bytes)
    return blocking(name, message, source, f"{source}.full")


def leave_tensor_parallel(source: str, output: str, name: str, hidden: int, split: Split) -> Item:
    """Return messages that add the partial sums of a row-parallel linear over all ranks.

    Every rank gets the whole sum (all-reduce, `g` of arXiv:1909.08053). With sequence parallelism, each
    rank gets only the sum of its tokens (reduce-scatter, half the bytes).

    Parameters
    ----------
    source : partial sums of shape (tokens, hidden), whole on every rank
    output : shape (own tokens, hidden)
    name : of the item
    """
    full_bytes = split.tokens * hidden * split.element_bytes
    sent_as = ReduceScatter if split.sequence_parallel else AllReduce
    return blocking(name, sent_as(axis="tp", message_bytes=full_bytes), source, output)


def activation_bytes(hidden: int | Counts, split: Split) -> Floats:
    """Return bytes of the activation between two layers, on one rank, shape (plans, 1).

    This is also the size of a checkpoint of full recompute, and of the tensor that a pipeline stage sends
    to the next one.
    """
    return split.own_tokens * hidden * split.element_bytes
