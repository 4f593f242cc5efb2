"""A block that was traced: its operators in order, whose sizes are polynomials of the micro-batch.

Answers: which weights and items does a block have, if flopcast has no layer for it?
Elsewhere: how a trace becomes such a block (interop/tracing/blocks.py), how its division is found
(interop/tracing/division.py), blocks of a mixer and a feed-forward layer (block.py).

Tensor parallelism divides the GEMMs that the trace marks "column" or "row", and the operators between them.
All other operators run whole on every rank (arXiv:1909.08053, section 3). Neither context, sequence nor
expert parallelism divides the block (spec/rules_traced.py). Data and pipeline parallelism, ZeRO and
recompute work as for every block. Tensors have the names of the trace. The input is "x" and the output "y".
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from flopcast.dtypes import ONE, Counts, constant
from flopcast.layers.base import AbstractLayer, Split, Weight
from flopcast.layers.graph_operators import GraphPass, TracedOperator
from flopcast.layers.halo import with_halos
from flopcast.layers.mixer import AbstractMixer
from flopcast.layers.tables import fullest_share, is_shared, sharded_lookup, sharded_table
from flopcast.layers.traced_operators import TracedTensor
from flopcast.operators.flash_attention import FlashAttention
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.messages import AllReduce, Replicate
from flopcast.strict_model import AlwaysWithKind, StrictModel, cached_results
from flopcast.units import Number

CORE = "core_attention"
ONE_SAMPLE = Split(sequences=ONE, length=ONE, tensor=ONE, sequence_parallel=False, dtype="bf16")
PROBES = (1024.0, 2048.0)  # tokens of a sequence: FLOP are a polynomial of second degree
MOST_COUNTED = 256  # FLOP of layers that are cached: every report and rule of a graph asks for them


class TracedWeight(StrictModel):
    """A weight of one block.

    Attributes
    ----------
    name : str
        Name of the weight in the trace.
    elements : int
        Number of elements.
    active : int, optional
        Number of elements that one token uses, if the weight contains several experts. By default, all
        elements.
    divided : bool
        Whether tensor-parallel ranks divide the weight.
    trained : bool
        Whether the weight is trained. If not, it occupies memory but has no gradient and does not count as
        a parameter.
    row : int, optional
        Number of elements in one row, if the weight is an embedding table.
    parameters : int, optional
        Number of parameters of a quantised weight, which may have more of them than elements of 16 bits. By
        default, the number of elements if the weight is trained, and 0 otherwise.
    """

    name: str
    elements: int = Field(ge=1)
    active: int | None = Field(default=None, ge=1)
    divided: bool = False
    trained: bool = True
    row: int | None = Field(default=None, ge=1)
    parameters: int | None = Field(default=None, ge=1)


class WholeProduct(StrictModel):
    """A GEMM that tensor parallelism does not divide, with the reason.

    Attributes
    ----------
    weight : str
        Name of the weight.
    because : str
        Why the GEMM is not divided.
    """

    weight: str
    because: str


COMPONENTS = {  # of a kind of operator; of all others "linears"
    "attention": "attention",
    "graph_attention": "attention",
    "grouped_matmul": "experts",
    "pass": "passes",
    "graph_pass": "passes",
    "convolution": "convolutions",
}
CORES = ("attention", "graph_attention")


class Traced(AlwaysWithKind, AbstractMixer):
    """A whole block that was traced with PyTorch or read from an exported graph.

    A trace does not record dropout, windows or masks: attention in one kernel is assumed to be causal.

    Attributes
    ----------
    batch_of : str
        What the batch of a job counts. "tokens": sequences of tokens. "samples": samples of an exported
        graph, such as images; the sequence length is then 1.
    heads : int
        Always 1, because the operators of the trace already contain the heads.
    units : int, optional
        Largest tensor-parallel degree of the block; every degree must divide it. 1 means that no GEMM can
        be divided. It is missing in older files, whose traces do not record which GEMM uses which weight.
    whole_products : tuple of WholeProduct
        GEMMs that tensor parallelism does not divide.
    weights_of_block : tuple of TracedWeight
        The weights of the block.
    operators : tuple of operators
        The operators of the forward pass in order.
    """

    kind: Literal["traced"] = "traced"
    in_tensor_region: ClassVar[bool] = False
    is_whole_block: ClassVar[bool] = True
    batch_of: Literal["tokens", "samples"] = "tokens"
    heads: int = Field(default=1, ge=1, le=1)
    units: int | None = Field(default=None, ge=1)
    whole_products: tuple[WholeProduct, ...] = ()
    weights_of_block: tuple[TracedWeight, ...] = ()
    operators: tuple[TracedOperator, ...] = Field(min_length=1)

    @property
    def groups(self) -> int:
        """Return 1, the number of groups: the operators of the trace contain the heads."""
        return 1

    @property
    def out_bias(self) -> bool:
        """Return False: biases are among the operators."""
        return False

    def has_whole_heads(self, hidden: int) -> bool:
        """Return True, because the sizes come from a model that ran."""
        return True

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the weights on one rank: its part of divided weights and sharded tables, others whole."""
        own = self.weights_of_block
        tables = [each.elements for each in own if each.row and is_shared(each.elements, split)]
        shares = split.tables == "table" and tables
        share = fullest_share(tables, split.expert) if shares else 1.0 / split.expert
        return tuple(
            sharded_table(weight.name, weight.elements, weight.row, share)
            if weight.row and is_shared(weight.elements, split)
            else Weight(
                name=weight.name,
                elements=constant(weight.elements) / (split.tensor if weight.divided else ONE),
                total=weight.parameters or (weight.elements if weight.trained else 0),
                active=weight.active,
                trained=weight.trained,
            )
            for weight in own
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items that compute tensor "y" from tensor "x".

        If divided operators read a whole tensor, one item `f` precedes the first of these operators.
        """
        entered: set[str] = set()
        items: list[Item] = []
        uneven = self._uneven(split)
        for operator in self.operators:
            new = [tensor for tensor in operator.enters if tensor.name not in entered]
            entered |= {tensor.name for tensor in new}
            items += [_entering(tensor, split) for tensor in new]
            made = tuple(_items(operator, split))
            if isinstance(operator, GraphPass) and (rows := operator.rows_elsewhere(split)):
                made = tuple(sharded_lookup(made[0], rows.of(split), split, uneven))
            items += made
        picked = {each.name: each.read[0].of(split) for each in self.picking_rows} if split.halo else {}
        return with_halos(tuple(items), picked, split)

    def _uneven(self, split: Split) -> tuple[Counts, Counts]:
        """Return the rows and the vectors that the busiest rank looks up, over the mean of all ranks."""
        passes = [each for each in self.operators if isinstance(each, GraphPass)]
        pairs = [(each, looked) for each in passes if (looked := each.rows_elsewhere(split))]
        if split.tables != "table" or not pairs:
            return ONE, ONE
        sizes = [float(each.table_elements) for each, _ in pairs]
        rows = [looked.of(ONE_SAMPLE).item() for _, looked in pairs]
        vectors = [each.written.of(ONE_SAMPLE).item() for each, _ in pairs]
        return (
            split.expert * fullest_share(sizes, split.expert, rows),
            split.expert * fullest_share(sizes, split.expert, vectors),
        )

    @property
    def picking_rows(self) -> tuple[GraphPass, ...]:
        """Return the operators that pick rows of a tensor, as those of graph networks do."""
        return tuple(each for each in self.operators if isinstance(each, GraphPass) and each.picks_rows)

    def linear_elements(self, hidden: int) -> int:
        """Return half of the FLOP per token, without those that depend on the length of the sequence."""
        return round(self._flop_of_token()[0] / 2)

    def pair_flop(self, hidden: int) -> int:
        """Return the FLOP for each pair of tokens, with or without a mask."""
        return round(self._flop_of_token()[1])

    def square(self, length: int) -> float:
        """Return length², because a trace does not record windows."""
        return float(length) ** 2

    def _flop_of_token(self) -> tuple[float, float]:
        """Return the FLOP of a token: the constant part, and the part per token of its sequence."""
        if self.batch_of == "samples":
            return self._flop(1.0), 0.0
        short, long = (self._flop(length) / length for length in PROBES)
        slope = (long - short) / (PROBES[1] - PROBES[0])
        return short - slope * PROBES[0], slope

    def divided_flop(self) -> tuple[float, float]:
        """Return the FLOP of a sample in the operators that tensor parallelism divides, and in all."""
        return self._flop(1.0, divided_only=True), self._flop(1.0)

    @cached_results(MOST_COUNTED)
    def _flop(self, length: Number, *, divided_only: bool = False) -> float:
        """Return the FLOP of one sequence, with every pair of its tokens counted."""
        split = Split(
            sequences=ONE, length=constant(length), tensor=ONE, sequence_parallel=False, dtype="bf16"
        )
        counted = [each for each in self.operators if not divided_only or each.division != "whole"]
        works = [operator.work(split) for operator in counted]
        return sum(
            float(work.work().flop.item())
            * (2.0 if isinstance(work, FlashAttention) and work.causal else 1.0)
            for work in works
        )


def _entering(tensor: TracedTensor, split: Split) -> Item:
    """Return the item that sums the gradients of a whole tensor over ranks (`f` of arXiv:1909.08053)."""
    message = Replicate(axis="tp", message_bytes=tensor.of(split) * split.element_bytes)
    return blocking(f"{tensor.name}.enter", message, tensor.name, tensor.name)


def _items(operator: TracedOperator, split: Split) -> Iterator[Item]:
    """Yield the kernel of an operator and, after a product divided by rows, the sum over ranks."""
    summed = operator.summed(split)
    yield kernel(
        operator.name,
        operator.work(split),
        operator.inputs,
        operator.output if summed is None else f"{operator.output}.partial",
        component=_component(operator),
        group=CORE if operator.kind in CORES else "",
    )
    if summed is not None:
        message = AllReduce(axis="tp", message_bytes=summed * split.element_bytes)
        source, leave = f"{operator.output}.partial", f"{operator.output}.leave"
        yield blocking(leave, message, source, operator.output)


def _component(operator: TracedOperator) -> str:
    """Return the line of the breakdown to which an operator's time goes."""
    if isinstance(operator, GraphPass) and operator.family == "unknown":
        return "unknown_operators"
    return COMPONENTS.get(operator.kind, "linears")


class AbstractPlaceholder(AbstractLayer):
    """A layer without weights and items."""

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return no weights."""
        return ()

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return no items."""
        return ()


class NoFeedForward(AlwaysWithKind, AbstractPlaceholder):
    """No feed-forward layer: a traced mixer contains all operators, or the next block has another mixer."""

    kind: Literal["none"] = "none"
    in_tensor_region: ClassVar[bool] = False

    @property
    def bias(self) -> bool:
        """Return False: there is no bias."""
        return False

    def linear_elements(self, hidden: int) -> int:
        """Return 0: there are no matrices."""
        return 0


class NoEnd(AbstractPlaceholder):
    """A placeholder for embedding, final norm or head in a model whose blocks contain all operators."""

    kind: Literal["no_end"] = "no_end"


NO_ENDS = (NoEnd(), NoEnd(), NoEnd())


MOST_REASONS = 3  # why products are whole, in one sentence


def division_note(blocks: Sequence[AbstractLayer], counts: Sequence[int]) -> str:
    """Return a sentence about the part of an exported graph that tensor parallelism divides."""
    mixers = [mixer for block in blocks if isinstance(mixer := getattr(block, "mixer", None), Traced)]
    pairs = [mixer.divided_flop() for mixer in mixers]
    divided, whole = (sum(n * pair[i] for n, pair in zip(counts, pairs, strict=True)) for i in (0, 1))
    products = [f"{each.weight}: {each.because}" for mixer in mixers for each in mixer.whole_products]
    reasons = f" ({'; '.join(products[:MOST_REASONS])})" if products else ""
    text = f"graph: tensor parallelism divides {divided / max(whole, 1.0):.1%} of the FLOP"
    return f"{text}; every tensor-parallel rank runs all other operators undivided{reasons}"


def is_graph(blocks: Sequence[AbstractLayer]) -> bool:
    """Return whether all blocks are parts of an exported graph, whose batch counts samples."""
    mixers = [getattr(block, "mixer", None) for block in blocks]
    return all(isinstance(mixer, Traced) and mixer.batch_of == "samples" for mixer in mixers)
