"""Low-rank adapters: layers whose weights are frozen, with two narrow trained products beside some linears.

Answers: what does a layer become when only adapters are trained (LoRA, arXiv:2106.09685), and when its
weights are also stored in 4 bits (QLoRA, arXiv:2305.14314)?
Elsewhere: the layers that are adapted (one file each), what frozen weights mean for gradients and states
(workload/program.py), for FLOP (spec/model.py).

A frozen linear has no weight gradient, and keeps no input for one; gradients flow through it all the same.
An adapter adds `B(A(x))` to the linear's result: A narrows the input to `rank` elements, B widens them.

Tensor parallelism cuts an adapter as its linear. Beside a column-parallel linear A is whole on every rank
and B cut; the gradients of the narrow tensor are summed. Beside a row-parallel one A is cut, its narrow
partial sums are added over ranks, and B is whole and joins the finished sum. Frameworks differ in these
messages, which are narrow: this is an estimate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import Discriminator, Field, Tag, model_validator

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.attention import Attention
from flopcast.layers.base import AbstractLayer, Split, Weight, leave_tensor_parallel
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head
from flopcast.layers.mlp import Mlp
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import Replicate
from flopcast.strict_model import StrictModel

Target = Literal["q", "k", "v", "qkv", "out", "gate", "up", "gate_up", "down"]
FUSED = {"qkv": {"q", "k", "v"}, "gate_up": {"gate", "up"}}  # one adapter beside all of these
BASE_DTYPES = {"lora": "model", "qlora": "nf4"}  # method → how frozen weights are stored


class Adapters(StrictModel):
    """Low-rank adapters (LoRA) of linears, in every block.

    Attributes
    ----------
    rank : int
        Rank of the adapters: the width between the two matrices of an adapter.
    targets : tuple of str
        Linears with an adapter. `q`, `k`, `v`, `gate` and `up` have one each, as separate matrices do
        (Hugging Face PEFT, torchtune); `qkv` and `gate_up` have one for the fused matrix (Megatron-LM's
        `linear_qkv` and `linear_fc1`).
    dropout : float
        Probability of dropout on the input of an adapter. Above 0, the adapter keeps its own copy of the
        input.
    base_dtype : str
        How frozen linears of blocks are stored: as the model's other weights, or in 4 bits with quantised
        scales ("nf4"), which are expanded to 16 bits before each use. Embedding, norms and head stay in 16
        bits.
    """

    rank: int = Field(ge=1)
    targets: tuple[Target, ...] = Field(min_length=1)
    dropout: Probability = 0.0
    base_dtype: Literal["model", "nf4"] = "model"

    @model_validator(mode="after")
    def _one_adapter_for_a_matrix(self) -> "Adapters":
        for whole, parts in FUSED.items():
            if whole in self.targets and parts & set(self.targets):
                raise ValueError(f"{whole}, or any of {', '.join(sorted(parts))}: not both")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"each target once, not {', '.join(self.targets)}")
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Linear:
    """A matrix that may have an adapter: the item that multiplies with it, and its whole shape.

    `share` is its part of the columns of a fused product.
    """

    item: str
    rows: int
    columns: int
    share: float = 1.0

    @property
    def leaves_region(self) -> bool:
        """Return whether the linear is cut along its input, so that its result is a partial sum."""
        return self.item in ("attention.out", "mlp.down")


def linears(block: Block, hidden: int) -> dict[str, Linear]:
    """Return the matrices of a block that may have adapters, by target.

    >>> block = Block(mixer=Attention(heads=4), feed_forward=Mlp(ffn_hidden=256, activation="swiglu"))
    >>> [f"{name} {linear.rows}×{linear.columns}" for name, linear in linears(block, 64).items()]
    ['q 64×64', 'k 64×64', 'v 64×64', 'qkv 64×192', 'out 64×64', 'down 256×64', 'gate 64×256', 'up 64×256',
    'gate_up 64×512']
    """
    linears_by_name: dict[str, Linear] = {}
    mixer, mlp = block.mixer, block.feed_forward
    if isinstance(mixer, Attention):
        query, key = (count * mixer.size(hidden) for count in (mixer.heads, mixer.groups))
        both = query + 2 * key
        for name, columns in (("q", query), ("k", key), ("v", key), ("qkv", both)):
            linears_by_name[name] = Linear(
                item="attention.qkv", rows=hidden, columns=columns, share=columns / both
            )
        linears_by_name["out"] = Linear(item="attention.out", rows=query, columns=hidden)
    if isinstance(mlp, Mlp):
        width = mlp.ffn_hidden
        linears_by_name["down"] = Linear(item="mlp.down", rows=width, columns=hidden)
        if KINDS[mlp.activation].is_gated:
            for name in ("gate", "up"):
                linears_by_name[name] = Linear(item="mlp.up", rows=hidden, columns=width, share=0.5)
            linears_by_name["gate_up"] = Linear(item="mlp.up", rows=hidden, columns=2 * width)
        else:
            linears_by_name["up"] = Linear(item="mlp.up", rows=hidden, columns=width)
    return linears_by_name


def separate_linears(blocks: Iterable[Block], hidden: int) -> tuple[Target, ...]:
    """Return the targets of all matrices that every block has, each by itself and none as a part of
    another.

    >>> block = Block(mixer=Attention(heads=4), feed_forward=Mlp(ffn_hidden=256, activation="swiglu"))
    >>> separate_linears([block], 64)
    ('q', 'k', 'v', 'out', 'gate', 'up', 'down')
    """
    known = [linears(block, hidden) for block in blocks]
    separate: tuple[Target, ...] = tuple(name for name in get_args(Target) if name not in FUSED)
    return tuple(name for name in separate if all(name in one for one in known))


def _kind_of(value: object) -> str:
    return str(value.get("kind", "") if isinstance(value, Mapping) else getattr(value, "kind", ""))


Inner = Annotated[
    Annotated[Block, Tag("block")]
    | Annotated[Embedding, Tag("embedding")]
    | Annotated[FinalNorm, Tag("final_norm")]
    | Annotated[Head, Tag("head")],
    Discriminator(_kind_of),
]


class Adapted(AbstractLayer):
    """A layer whose own weights are frozen; blocks have adapters beside the targets that they have.

    Its kind is that of the layer inside, so that code that looks for blocks finds it.
    """

    kind: str
    inner: Inner
    adapters: Adapters

    def _found(self, hidden: int) -> dict[str, Linear]:
        known = linears(self.inner, hidden) if isinstance(self.inner, Block) else {}
        return {name: known[name] for name in self.adapters.targets if name in known}

    def _is_stored_narrow(self, name: str) -> bool:
        """Return whether a weight, named as the item of its product, is stored in the base's own dtype."""
        parts = ("attention.", "mlp.")
        return self.adapters.base_dtype != "model" and self.inner.kind == "block" and name.startswith(parts)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the frozen weights of the layer inside, and the two matrices of each adapter.

        Weights of products are stored in the dtype of the base (4 bits for QLoRA), unless they belong to a
        part that is never quantised. Tensor parallelism divides matrix A of a row-parallel linear and
        matrix B of a column-parallel one; the other matrix is whole on every rank.
        """
        products = {i.name for i in self.inner.forward(hidden, split) if isinstance(i.work, Matmul)}
        frozen = [
            replace(
                weight,
                trained=False,
                stored=self.adapters.base_dtype
                if weight.name in products and self._is_stored_narrow(weight.name)
                else "",
            )
            for weight in self.inner.weights(hidden, split)
        ]
        rank = self.adapters.rank
        for name, linear in self._found(hidden).items():
            cut = (split.tensor, constant(1)) if linear.leaves_region else (constant(1), split.tensor)
            for part, size, ranks in zip("ab", (linear.rows, linear.columns), cut, strict=True):
                weight = Weight(
                    name=f"adapter.{name}.{part}",
                    elements=size * rank / ranks,
                    total=size * rank,
                    matrix=(size / ranks, constant(rank)),
                )
                frozen.append(weight)
        return tuple(frozen)

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items of the layer inside, without weight gradients, and those of its adapters.

        What an adapter makes joins its linear's result before the bias or, beside a row-parallel linear,
        the finished sum over ranks. Items have their linear's component and names that begin as its does,
        so that they run again where it does.
        """
        linears = self._found(hidden)
        items: list[Item] = []
        waiting: list[_Adapter] = []
        for item in self.inner.forward(hidden, split):
            widened: list[Item] = []
            for name, linear in linears.items():
                if linear.item == item.name and isinstance(item.work, Matmul):
                    adapter = _Adapter(item=item, name=f"{item.name}.{name}", fields=self.adapters)
                    items += adapter.narrow(item.work.k, linear.leaves_region, split)
                    if linear.leaves_region:
                        waiting.append(adapter)
                    else:
                        width = item.work.n * linear.share
                        widened += adapter.wide(item.output, width, split.tokens, split)
            items += [*self._written_out(item), frozen_item(item), *widened]
            if waiting and item.name.endswith("leave"):
                for adapter in waiting:
                    items += adapter.wide(item.output, constant(hidden), split.own_tokens, split)
                waiting = []
        return tuple(items)

    def _written_out(self, item: Item) -> list[Item]:
        """Return what a product with a low-bit weight needs before it."""
        if not isinstance(item.work, Matmul) or not self._is_stored_narrow(item.name):
            return []
        weight = Dequantise(
            elements=item.work.n * item.work.k, stored=self.adapters.base_dtype, dtype=item.work.dtype
        )
        return [kernel(f"{item.name}.weight", weight, component=item.component)]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Adapter:
    """The items of one adapter: `item` is that of its linear, `name` what theirs begin with."""

    item: Item
    name: str
    fields: Adapters

    def narrow(self, width: Counts, summed: bool, split: Split) -> list[Item]:
        """Return items from the linear's input to the low-rank tensor, which is whole on every rank or
        `summed`.

        The input has two readers now: its backward adds two gradients.
        """
        elements, rank, source = split.tokens * width, self.fields.rank, self.item.inputs[0]
        product = Matmul(m=split.tokens, n=constant(rank), k=width, dtype=split.dtype)
        items = [self._pass("fork", elements, source, source, split)]
        if self.fields.dropout:
            items.append(self._pass("dropout", elements, source, f"{self.name}.in", split))
            source = f"{self.name}.in"
        items.append(self._product(f"{self.name}.a", product, source))
        made, output = items[-1].output, f"{self.name}.narrow"
        if summed:
            return [*items, leave_tensor_parallel(made, output, f"{self.name}.sum", rank, split)]
        used = Replicate(axis="tp", message_bytes=split.tokens * rank * split.element_bytes)
        return [*items, blocking(f"{self.name}.use", used, made, output)]

    def wide(self, onto: str, width: Counts, tokens: Counts, split: Split) -> list[Item]:
        """Return items from the low-rank tensor to the width of the linear's result, added to that."""
        product = Matmul(m=tokens, n=width, k=constant(self.fields.rank), dtype=split.dtype)
        made = f"{self.name}.b"
        return [
            self._product(made, product, f"{self.name}.narrow"),
            replace(self._pass("add_adapter", tokens * width, made, onto, split), inputs=(onto, made)),
        ]

    def _product(self, name: str, product: Matmul, source: str) -> Item:
        """Return one of the two GEMMs, which stays in 16 bits under every precision recipe.

        Megatron-LM and NeMo build adapters from plain parallel linears, which 8-bit recipes do not convert
        (nemo/collections/nlp/modules/common/megatron/adapters/parallel_adapters.py).
        """
        return replace(kernel(name, product, (source,), component=self.item.component), wide=True)

    def _pass(self, kind: str, elements: Counts, source: str, output: str, split: Split) -> Item:
        """Return a memory-bound operator of the adapter."""
        work = MemoryBound(kind=kind, elements=elements, dtype=split.dtype)
        name = f"{self.name}.{kind.partition('_')[0]}"
        return kernel(name, work, (source,), output, component=self.item.component)


def frozen_item(item: Item) -> Item:
    """Return an item without gradients of weights; those of its inputs stay."""
    if isinstance(item.work, Matmul | GroupedMatmul | EmbeddingLookup | MemoryBound):
        return replace(item, work=replace(item.work, trained=False))
    return item
