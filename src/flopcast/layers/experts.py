"""The feed-forward layer with many experts, of which a router chooses a few for each token.

Answers: fields, weights, sharding and forward items of a mixture of experts, shared experts included.
Elsewhere: dense feed-forwards (layers/mlp.py), the router's kernels (layers/router.py), those of
shared experts (layers/shared_experts.py), how uneven loads are (layers/expert_load.py), the products of
several experts (operators/matmul.py), which ranks hold which experts (cost/placement.py).

Ranks follow Megatron-LM's folded layout: experts are distributed over `Split.expert` ranks, and each expert
is divided over `Split.expert_tensor` ranks. These ranks are also data- and tensor-parallel ranks. A rank
routes its own tokens, and receives the rows of other ranks' tokens for its experts as messages. So the
block neither gathers nor sums tensors before or after this layer.

Tensors: `mlp.in` (own tokens, hidden), the block's → `experts.logits`, `.scores` (own tokens, experts) →
`.sent` (a row for each token and pick) → `.received` → `.gathered`, `.rows` (those of this rank's experts,
in their order) → `.up` → `.inner` → `.partial` → `.ordered` → `.back` → `.home` (as `.sent`) → `mlp.sum`.

References
----------
Top-k routing and its loss: arXiv:2101.03961, section 2. Shared experts: arXiv:2401.06066, section 3.2.
Groups of experts: arXiv:2405.04434, section 2.2.2.
Folded ranks: arXiv:2504.14960. Grouped products without dropped tokens: arXiv:2211.15841.
"""

from typing import ClassVar, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import Counts, constant
from flopcast.layers.base import AbstractLayer, Split, Weight, memory_pass, replicated, whole_matrix
from flopcast.layers.expert_load import ExpertLoads
from flopcast.layers.latent_experts import ENTERED, LEFT, entering, leaving, projection_weights
from flopcast.layers.mlp import Mlp
from flopcast.layers.router import router_items
from flopcast.layers.shared_experts import shared_items, shared_weights
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.exchanges import AbstractExchange, Combine, Dispatch, Routing
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.memory_bound import KINDS, MemoryBound
from flopcast.operators.messages import AllGather, ReduceScatter
from flopcast.records import replace


class Experts(AbstractLayer):
    """A mixture of experts: `num_experts` feed-forward layers, of which every token uses `top_k`.

    The router is one GEMM that computes a score for each expert. Shared experts form one dense MLP.

    Examples
    --------
    In Mixtral 8x7B, experts have 45.1 of the 46.7 billion parameters (arXiv:2401.04088, table 1).

    >>> from flopcast.spec.model import WHOLE
    >>> mixtral = Experts(num_experts=8, top_k=2, expert_hidden=14336)
    >>> 32 * sum(w.total for w in mixtral.weights(4096, WHOLE) if w.expert) / 1e9
    45.097156608
    """

    kind: Literal["experts"] = "experts"
    in_tensor_region: ClassVar[bool] = False
    num_experts: int = Field(ge=1, description="Number of routed experts, without shared experts.")
    top_k: int = Field(ge=1, description="Number of routed experts that each token uses.")
    expert_hidden: int = Field(ge=1, description="Width between the two linear layers of one expert.")
    activation: Literal["gelu", "silu", "relu", "relu2", "swiglu", "geglu"] = Field(
        default="swiglu", description="Activation function; 'swiglu' and 'geglu' are gated."
    )
    shared_experts: int = Field(default=0, ge=0, description="Number of experts that every token uses.")
    shared_hidden: int | None = Field(
        default=None, ge=1, description="Width of one shared expert. By default, expert_hidden."
    )
    shared_gate: bool = Field(default=False, description="Whether a gate scales shared experts' output.")
    router: Literal["softmax", "sigmoid"] = Field(
        default="softmax", description="Function that converts the logits of the router to scores."
    )
    router_dtype: Literal["model", "fp32"] = Field(
        default="model", description='Number format of the router. "model": the format of the other layers.'
    )
    selection_bias: bool = Field(default=False, description="Whether a bias of scores balances loads.")
    expert_groups: int = Field(default=1, ge=1, description="Groups of experts for group-limited routing.")
    top_groups: int = Field(default=1, ge=1, description="Groups from which a token may choose experts.")
    auxiliary_loss: bool = Field(default=True, description="Whether an auxiliary loss balances the loads.")
    router_bias: bool = Field(default=False, description="Whether the router has a bias (GPT-OSS).")
    expert_bias: bool = Field(default=False, description="Whether linear layers of experts have biases.")
    gate_clamp: bool = Field(
        default=False, description="Whether both inputs of the gated activation are clamped (GPT-OSS)."
    )
    capacity_factor: float = Field(
        default=0.0, ge=0, description="Capacity of an expert divided by its mean load; 0 means no limit."
    )
    pads_to_capacity: bool = Field(
        default=False, description="Whether the tokens of an expert are padded to its capacity."
    )
    latent_hidden: int | None = Field(
        default=None, ge=1, description="Width of tokens in routed experts. Default: that of the model."
    )
    load_imbalance_ratio: float | None = Field(
        default=None, ge=1, description="Largest load divided by mean load. Default: random routing."
    )

    @model_validator(mode="after")
    def _choices_and_capacity_agree(self) -> "Experts":
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k: at most num_experts ({self.num_experts})")
        if self.num_experts % self.expert_groups:
            raise ValueError(f"expert_groups: a divisor of num_experts ({self.num_experts})")
        if self.top_groups > self.expert_groups:
            raise ValueError(f"top_groups: at most expert_groups ({self.expert_groups})")
        if self.top_k > self.num_experts * self.top_groups // self.expert_groups:
            raise ValueError(f"top_k: at most the number of experts in {self.top_groups} groups")
        if self.pads_to_capacity and not self.capacity_factor:
            raise ValueError("capacity_factor: a number above 0, if pads_to_capacity is true")
        return self

    @model_validator(mode="after")
    def _only_gates_are_clamped(self) -> "Experts":
        if self.gate_clamp and not KINDS[self.activation].is_gated:
            known = get_args(type(self).model_fields["activation"].annotation)
            gated = ", ".join(name for name in known if KINDS[name].is_gated)
            raise ValueError(f"activation: one of {gated}, if gate_clamp is true")
        return self

    @property
    def bias(self) -> bool:
        """Return False: experts have no bias after the sum."""
        return False

    @property
    def up_columns(self) -> int:
        """Return columns of one expert's first linear: twice its width if it is gated."""
        return self.expert_hidden * (2 if KINDS[self.activation].is_gated else 1)

    @property
    def shared_width(self) -> int:
        """Return the total inner width of all shared experts; 0 if there are none."""
        return self.shared_experts * (self.shared_hidden or self.expert_hidden)

    def linear_elements(self, hidden: int) -> int:
        """Return the weights that multiply a token: router, gate, chosen experts and shared experts.

        >>> Experts(num_experts=8, top_k=2, expert_hidden=14336).linear_elements(4096) // 4096
        86024
        """
        shared = self._shared.linear_elements(hidden) if self._shared else 0
        gate = int(self.shared_gate and self.shared_width > 0)
        own = self.top_k * (self.up_columns + self.expert_hidden) * self.inner_hidden(hidden)
        projections = 2 * (self.latent_hidden or 0)
        return own + shared + (self.num_experts + gate + projections) * hidden

    def inner_hidden(self, hidden: int) -> int:
        """Return the width of tokens in routed experts of a model of the width `hidden`."""
        return self.latent_hidden or hidden

    @property
    def _shared(self) -> Mlp | None:
        if not self.shared_width:
            return None
        return Mlp(ffn_hidden=self.shared_width, activation=self.activation)

    @property
    def loads(self) -> ExpertLoads:
        """Return the loads of experts and ranks."""
        limits = self.capacity_factor, self.pads_to_capacity
        return ExpertLoads(self.num_experts, self.top_k, *limits, self.load_imbalance_ratio)

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the weights of the router, both stacks of experts, the shared experts and their gate.

        Every rank holds the whole router and gate; shared experts are divided like a dense MLP. One token
        uses the weights of `top_k` experts (`Weight.active`).
        """
        cut, inner = split.expert * split.expert_tensor, self.inner_hidden(hidden)
        stacks = tuple(
            Weight(
                name=f"experts.{name}",
                elements=self.num_experts * columns * inner / cut,
                total=self.num_experts * columns * inner,
                expert=True,
                active=self.top_k * columns * inner,
                matrix=(constant(inner), columns / split.expert_tensor),
            )
            for name, columns in (("up", self.up_columns), ("down", self.expert_hidden))
        )
        shared: tuple[Weight, ...] = ()
        if self._shared:
            shared = shared_weights(self._shared, self.shared_gate, hidden, split)
        router = [whole_matrix("experts.router", hidden, self.num_experts)]
        if self.router_bias:
            router.append(replicated("experts.router_bias", self.num_experts))
        latent = projection_weights(hidden, self.latent_hidden) if self.latent_hidden else ()
        return (*router, *latent, *stacks, *self._biases(inner, split), *shared)

    def _biases(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        if not self.expert_bias:
            return ()
        return tuple(
            Weight(
                name=f"experts.{name}_bias",
                elements=self.num_experts * columns / (split.expert * cut),
                total=self.num_experts * columns,
                expert=True,
                active=self.top_k * columns,
            )
            for name, columns, cut in (("up", self.up_columns, split.expert_tensor), ("down", hidden, 1.0))
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from "mlp.in", this rank's own tokens, to "mlp.sum", of the same shape.

        Sizes are those of the fullest rank, because all other ranks wait for it.
        """
        latent, inner = self.latent_hidden, self.inner_hidden(hidden)
        output = "experts.sum" if self.shared_width else "mlp.sum"
        return (
            *self._route(hidden, split),
            *((entering(hidden, latent, split),) if latent else ()),
            *self._send(inner, split, ENTERED if latent else "mlp.in"),
            *self._compute(inner, split),
            *self._return(inner, split, LEFT if latent else output),
            *((leaving(hidden, latent, split, output),) if latent else ()),
            *(shared_items(self._shared, self.shared_gate, hidden, split) if self._shared else ()),
        )

    def _route(self, hidden: int, split: Split) -> tuple[Item, ...]:
        before = (("selection_bias", self.selection_bias), ("group_limit", self.expert_groups > 1))
        return router_items(
            hidden,
            split,
            experts=self.num_experts,
            scores=self.router,
            dtype=split.dtype if self.router_dtype == "model" else "fp32",
            before=tuple(kind for kind, wanted in before if wanted),
            loss=self.auxiliary_loss,
        )

    def _send(self, hidden: int, split: Split, source: str) -> list[Item]:
        """Return items that send a row per token and pick to the ranks that hold its expert.

        A token goes to a rank once, however many of its experts are there (operators/exchanges.py): what
        crosses the links is less than the rows that are made of it.
        """
        sent = self.loads.sent_rows(split) * hidden
        return [
            replace(
                _item("permute", memory_pass("permute", sent, split), source, "experts.sent"),
                inputs=(source, "experts.picks"),
            ),
            self._travel("dispatch", Dispatch, "sent", "received", hidden, split),
            self._among_columns("gather", AllGather, "received", "gathered", hidden, split),
            _item("sort", self._sorted(hidden, split), "experts.gathered", "experts.rows"),
        ]

    def _compute(self, hidden: int, split: Split) -> list[Item]:
        """Return the products of this rank's experts, one kernel for each of the two linears."""
        rows, inner = self.loads.multiplied_rows(split), self.expert_hidden / split.expert_tensor
        up = GroupedMatmul(
            groups=self.num_experts / split.expert,
            rows=rows,
            n=self.up_columns / split.expert_tensor,
            k=constant(hidden),
            imbalance=self.loads.imbalance(split)[1],
            dtype=split.dtype,
        )
        down = replace(up, n=constant(hidden), k=inner)
        kind = f"clamped_{self.activation}" if self.gate_clamp else self.activation
        return [
            _item("up", up, "experts.rows", "experts.up"),
            *self._bias("up", rows * up.n, split),
            _item("activation", memory_pass(kind, rows * inner, split), "experts.up", "experts.inner"),
            _item("down", down, "experts.inner", "experts.partial"),
            *self._bias("partial", rows * hidden, split),
        ]

    def _bias(self, tensor: str, elements: Counts, split: Split) -> list[Item]:
        name = f"experts.{tensor}"
        add = memory_pass("bias_add", elements, split)
        return [_item(f"{tensor}_bias", add, name, name)] if self.expert_bias else []

    def _return(self, hidden: int, split: Split, output: str) -> list[Item]:
        """Return items that send the rows back, then weight and add the rows of each token."""
        home = self.loads.sent_rows(split) * hidden
        return [
            _item("unsort", self._sorted(hidden, split), "experts.partial", "experts.ordered"),
            self._among_columns("scatter", ReduceScatter, "ordered", "back", hidden, split),
            self._travel("combine", Combine, "back", "home", hidden, split),
            _item("unpermute", memory_pass("unpermute", home, split), "experts.home", output),
        ]

    def _travel(
        self,
        name: str,
        message: type[AbstractExchange],
        source: str,
        output: str,
        hidden: int,
        split: Split,
    ) -> Item:
        """Return the exchange among the ranks over which experts are spread, for the fullest of them.

        With padding every row is sent, because no rank distinguishes padding from tokens.
        """
        of_rank, _ = self.loads.imbalance(split)
        row_bytes = of_rank * hidden * split.element_bytes
        routing = Routing(
            tokens=split.own_tokens * self.loads.filled_ratio * of_rank,
            row_bytes=constant(hidden) * split.element_bytes,
            ranks=split.expert,
            experts=constant(self.num_experts),
            top_k=constant(self.top_k),
            groups=self.expert_groups,
            top_groups=self.top_groups,
        )
        rows_bytes = self.loads.sent_rows(split) * row_bytes
        work = message(
            axis="ep",
            message_bytes=rows_bytes if self.pads_to_capacity else routing.bytes_to(split.expert),
            rows_bytes=rows_bytes,
            routing=None if self.pads_to_capacity else routing,
        )
        return blocking(f"experts.{name}", work, f"experts.{source}", f"experts.{output}")

    def _among_columns(
        self,
        name: str,
        message: type[AllGather] | type[ReduceScatter],
        source: str,
        output: str,
        hidden: int,
        split: Split,
    ) -> Item:
        """Return rows of all ranks that hold columns of the same experts; none if each holds whole ones.

        These are the tensor-parallel ranks: their messages run on that stream.
        """
        work: AbstractMessage = message(
            axis="etp", message_bytes=self.loads.multiplied_rows(split) * hidden * split.element_bytes
        )
        item = blocking(f"experts.{name}", work, f"experts.{source}", f"experts.{output}")
        return replace(item, stream="tp", component="tp_communication")

    def _sorted(self, hidden: int, split: Split) -> MemoryBound:
        """Return rows of several ranks sorted by expert; those of a single rank are already sorted."""
        several = np.where(split.expert * split.expert_tensor > 1, 1.0, 0.0)
        return memory_pass("permute", self.loads.multiplied_rows(split) * hidden * several, split)


def _item(name: str, work: AbstractOperator, source: str, output: str) -> Item:
    return kernel(f"experts.{name}", work, (source,), output, component="experts")
