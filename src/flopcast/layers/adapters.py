"""Low-rank adapters: layers whose weights are frozen, with two small trained GEMMs in addition to some
linear layers.

Answers: how does a layer change if only adapters are trained (LoRA, arXiv:2106.09685), and when its weights
are also stored in 4 bits (QLoRA, arXiv:2305.14314)?
Elsewhere: which linears a block has (adapted_linears.py), the layers that are adapted (one file each), what
frozen weights mean for gradients and states (workload/program.py), for FLOP (spec/model.py).

A frozen linear has no weight gradient and keeps no input for it, but its input still has a gradient. An
adapter adds `B(A(x))` to the linear's result: A narrows the input to `rank` elements, B widens them.

Tensor parallelism divides an adapter like its linear layer. Next to a column-parallel layer, every rank
holds all of A and a part of B, and ranks sum the gradients of A's output. Next to a row-parallel layer,
ranks divide A and sum their partial outputs of A. Each rank holds all of B, and adds its result to the
finished sum of the layer. Frameworks differ in these messages, so this is an estimate. The messages are
small.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from flopcast.dtypes import Counts, Probability, constant
from flopcast.layers.adapted_linears import FUSED, Linear, Target, adapted
from flopcast.layers.base import (
    AbstractLayer,
    Split,
    Weight,
    leave_tensor_parallel,
    memory_pass,
    row_parallel,
)
from flopcast.layers.block import Block
from flopcast.layers.embedding import Embedding
from flopcast.layers.head import FinalNorm, Head
from flopcast.operators.dequantise import Dequantise
from flopcast.operators.embedding import EmbeddingLookup
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import Replicate
from flopcast.records import Record, replace
from flopcast.strict_model import StrictModel

BASE_DTYPES = {"lora": "model", "qlora": "nf4"}  # method → how frozen weights are stored


class Adapters(StrictModel):
    """Low-rank adapters (LoRA), which are added to linear layers of every block.

    Attributes
    ----------
    rank : int
        Rank r of the adapters: an adapter is the product of two matrices, and r is their common dimension.
    targets : tuple of str
        Linear layers that get an adapter. `q`, `k`, `v`, `gate` and `up` get one adapter each, as in
        Hugging Face PEFT and torchtune. `qkv` and `gate_up` get one adapter for the fused matrix, as
        Megatron-LM's `linear_qkv` and `linear_fc1` do. With `expert_gate`, `expert_up` and
        `expert_down`, every expert has its own adapter.
    dropout : float
        Probability of dropout on the input of an adapter. If it is above 0, the adapter keeps its own copy
        of the input for the backward pass.
    base_dtype : str
        Number format of the frozen linear layers of blocks. "model": the same as that of the other weights.
        "nf4": 4 bits with quantised scales (QLoRA); weights are dequantised to the activations' dtype
        before each use. Embedding, norms and head are not quantised.
    """

    rank: int = Field(ge=1)
    targets: tuple[Target, ...] = Field(min_length=1)
    dropout: Probability = 0.0
    base_dtype: Literal["model", "nf4"] = "model"

    def flop(self, blocks: Iterable[Block], hidden: int, length: int, source_length: int) -> float:
        """Return FLOP of the adapters of all blocks for one sequence, and for the source of an encoder."""
        flop = 0.0
        for block in blocks:
            for linear in adapted(block, hidden, self.targets).values():
                tokens = source_length if linear.reads_source or block.reads == "source" else length
                each = self.rank * (linear.rows + linear.columns) * max(linear.active, 1)
                flop += 2.0 * block.count * tokens * each
        return flop

    @model_validator(mode="after")
    def _one_adapter_for_a_matrix(self) -> "Adapters":
        for whole, parts in FUSED.items():
            if whole in self.targets and parts & set(self.targets):
                raise ValueError(f"targets: either {whole}, or some of {', '.join(sorted(parts))}")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets: each name only once, unlike {', '.join(self.targets)}")
        return self


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
    """A layer with frozen weights; a block also has adapters at the targets.

    Its kind is the kind of the layer inside, so that code that searches for blocks finds it.
    """

    kind: str
    inner: Inner
    adapters: Adapters

    def _found(self, hidden: int) -> dict[str, Linear]:
        return adapted(self.inner, hidden, self.adapters.targets) if isinstance(self.inner, Block) else {}

    def _is_stored_narrow(self, name: str) -> bool:
        """Return whether a weight, named as the item of its product, is stored in the base's own dtype."""
        parts = ("attention.", "cross.", "mlp.")
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
            if linear.experts:
                frozen += self._of_experts(name, linear, split)
                continue
            cut = (split.tensor, constant(1)) if linear.leaves_region else (constant(1), split.tensor)
            for part, size, ranks in zip("ab", (linear.rows, linear.columns), cut, strict=True):
                frozen.append(row_parallel(f"adapter.{name}.{part}", size, rank, ranks))
        return tuple(frozen)

    def _of_experts(self, name: str, linear: Linear, split: Split) -> list[Weight]:
        """Return both matrices of the adapters of all experts, which ranks hold with their experts."""
        rank = self.adapters.rank
        return [
            Weight(
                name=f"adapter.{name}.{part}",
                elements=linear.experts * size * rank / split.expert,
                total=linear.experts * size * rank,
                expert=True,
                active=linear.active * size * rank,
                matrix=(constant(size), constant(rank)),
            )
            for part, size in zip("ab", (linear.rows, linear.columns), strict=True)
        ]

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return the items of the layer inside, without weight gradients, and those of its adapters.

        The output of an adapter is added to the output of its linear layer before the bias or, for a
        row-parallel linear layer, to the finished sum over ranks. Items have the component of their linear
        layer, and names that begin with its name, so that they are recomputed together with it.
        """
        linears = self._found(hidden)
        own = self.inner.split_of(split) if isinstance(self.inner, Block) else split
        items: list[Item] = []
        waiting: list[_Adapter] = []
        for item in self.inner.forward(hidden, split):
            widened: list[Item] = []
            for name, linear in linears.items():
                if linear.item == item.name and isinstance(item.work, GroupedMatmul):
                    adapter = _Adapter(item=item, name=f"{item.name}.{name}", fields=self.adapters)
                    added = adapter.of_experts(item.work, item.work.n * linear.share, split)
                    items, widened = [*items, *added[:-2]], [*widened, *added[-2:]]
                elif linear.item == item.name and isinstance(item.work, Matmul):
                    adapter = _Adapter(item=item, name=f"{item.name}.{name}", fields=self.adapters)
                    cut = own.of_source if linear.reads_source else own
                    items += adapter.narrow(item.work.k, linear.leaves_region, cut)
                    if linear.leaves_region:
                        waiting.append(adapter)
                    else:
                        width = item.work.n * linear.share
                        widened += adapter.wide(item.output, width, cut.tokens, cut)
            items += [*self._written_out(item), frozen_item(item), *widened]
            if waiting and item.name.endswith("leave"):
                for adapter in waiting:
                    items += adapter.wide(item.output, constant(hidden), own.own_tokens, own)
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


class _Adapter(Record, eq=False):
    """The items of one adapter: `item` is that of its linear, `name` what theirs begin with."""

    item: Item
    name: str
    fields: Adapters

    def narrow(self, width: Counts, summed: bool, split: Split) -> list[Item]:
        """Return items from the linear's input to the low-rank tensor, which is whole on every rank or
        `summed`.

        Two operators then read the input, so its backward pass adds two gradients.
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
        return self._joined(product, onto, f"{self.name}.narrow", tokens * width, split)

    def of_experts(self, base: GroupedMatmul, width: Counts, split: Split) -> list[Item]:
        """Return items from the rows of all experts to the result of their product, whose adapters they
        are: each row is multiplied by the two matrices of its own expert. Experts are not divided over
        ranks.
        """
        source, rank, made = self.item.inputs[0], constant(self.fields.rank), f"{self.name}.narrow"
        items = [self._pass("fork", base.rows * base.k, source, source, split)]
        if self.fields.dropout:
            items.append(self._pass("dropout", base.rows * base.k, source, f"{self.name}.in", split))
            source = f"{self.name}.in"
        narrow = self._product(f"{self.name}.a", replace(base, n=rank), source)
        return [
            *items,
            replace(narrow, output=made),
            *self._joined(replace(base, n=width, k=rank), self.item.output, made, base.rows * width, split),
        ]

    def _joined(
        self, product: Matmul | GroupedMatmul, onto: str, narrow: str, elements: Counts, split: Split
    ) -> list[Item]:
        """Return the product that widens the low-rank tensor, and the pass that adds its result."""
        made = f"{self.name}.b"
        added = self._pass("add_adapter", elements, made, onto, split)
        return [self._product(made, product, narrow), replace(added, inputs=(onto, made))]

    def _product(self, name: str, product: Matmul | GroupedMatmul, source: str) -> Item:
        """Return one of the two GEMMs, which stays in 16 bits under every precision recipe.

        Megatron-LM and NeMo build adapters from plain parallel linears, which 8-bit recipes do not convert
        (nemo/collections/nlp/modules/common/megatron/adapters/parallel_adapters.py).
        """
        return replace(kernel(name, product, (source,), component=self.item.component), wide=True)

    def _pass(self, kind: str, elements: Counts, source: str, output: str, split: Split) -> Item:
        """Return a memory-bound operator of the adapter."""
        work = memory_pass(kind, elements, split)
        name = f"{self.name}.{kind.partition('_')[0]}"
        return kernel(name, work, (source,), output, component=self.item.component)


def frozen_item(item: Item) -> Item:
    """Return an item without gradients of weights, but with gradients of its inputs."""
    if isinstance(item.work, Matmul | GroupedMatmul | EmbeddingLookup | MemoryBound):
        return replace(item, work=replace(item.work, trained=False))
    return item
