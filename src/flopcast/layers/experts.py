"""The feed-forward layer of many experts, of which a router picks a few for each token.

Answers: fields, weights, sharding and forward items of a mixture of experts, shared experts included.
Elsewhere: dense feed-forwards (layers/mlp.py), how uneven loads are (layers/expert_load.py), the products
of several experts (operators/grouped_matmul.py), which ranks hold which experts (cost/placement.py).

Ranks follow Megatron-LM's folded layout: experts are spread over `Split.expert` ranks and each is cut over
`Split.expert_tensor` ranks, all of them ranks that data and tensor parallelism count already. A rank routes
the tokens that it owns; the rows of the others' tokens reach it as messages, so that the block neither
gathers nor sums anything around this layer.

Tensors: `mlp.in` (own tokens, hidden), the block's → `experts.logits`, `.scores` (own tokens, experts) →
`.sent` (a row for each token and pick) → `.received` → `.gathered`, `.rows` (those of this rank's experts,
in their order) → `.up` → `.inner` → `.partial` → `.ordered` → `.back` → `.home` (as `.sent`) → `mlp.sum`.

References
----------
Top-k routing and its loss: arXiv:2101.03961, section 2. Shared experts: arXiv:2401.06066, section 3.2.
Folded ranks: arXiv:2504.14960. Grouped products without dropped tokens: arXiv:2211.15841.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from flopcast.dtypes import Counts, constant
from flopcast.layers.base import (
    AbstractLayer,
    Split,
    Weight,
    enter_tensor_parallel,
    leave_tensor_parallel,
    replicated,
)
from flopcast.layers.expert_load import fullest_by_chance, fullest_rank
from flopcast.layers.mlp import GATED, Mlp
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import Item, blocking, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather, Combine, Dispatch, ReduceScatter, expected_copies


class Experts(AbstractLayer):
    """`num_experts` feed-forwards of width `expert_hidden`; every token uses `top_k` of them.

    `shared_experts` more, of width `shared_hidden` each (default: as the others), take every token;
    together they are one dense MLP. `shared_gate` scales its result by a sigmoid of one number a token
    (Qwen1.5-MoE). The router is one product to as many scores as there are experts, then `router`,
    "softmax" or "sigmoid", in `router_dtype`: the model's, or "fp32". `auxiliary_loss` is the pass that
    keeps loads even. `router_bias` and `expert_bias` (of both linears of every expert) are GPT-OSS's.

    `capacity_factor` is the room of an expert over its mean load, 0 where no token is dropped.
    `load_imbalance_ratio` is the load of the fullest expert over the mean one. Left out, it is what chance
    alone makes of even routing, an estimate from below: trained routers are less even (see `imbalance`).

    Examples
    --------
    Mixtral 8x7B: 45.1 of its 46.7 billion parameters are experts' (arXiv:2401.04088, table 1).

    >>> from flopcast.spec.model import WHOLE
    >>> mixtral = Experts(num_experts=8, top_k=2, expert_hidden=14336)
    >>> 32 * sum(w.total for w in mixtral.weights(4096, WHOLE) if w.expert) / 1e9
    45.097156608
    """

    kind: Literal["experts"] = "experts"
    in_tensor_region: ClassVar[bool] = False
    num_experts: int = Field(ge=1)
    top_k: int = Field(ge=1)
    expert_hidden: int = Field(ge=1, description="inner width of one expert")
    activation: Literal["gelu", "silu", "relu", "relu2", "swiglu", "geglu"] = "swiglu"
    shared_experts: int = Field(default=0, ge=0)
    shared_hidden: int | None = Field(default=None, ge=1, description="of one; default: expert_hidden")
    shared_gate: bool = False
    router: Literal["softmax", "sigmoid"] = "softmax"
    router_dtype: Literal["model", "fp32"] = "model"
    auxiliary_loss: bool = True
    router_bias: bool = False
    expert_bias: bool = False
    capacity_factor: float = Field(default=0.0, ge=0, description="0: no token is dropped")
    load_imbalance_ratio: float | None = Field(default=None, ge=1, description="fullest expert over mean")

    @model_validator(mode="after")
    def _a_token_picks_different_experts(self) -> "Experts":
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k of at most num_experts = {self.num_experts}")
        return self

    @property
    def bias(self) -> bool:
        """Whether the block adds a bias after the sum: experts have none."""
        return False

    @property
    def up_columns(self) -> int:
        """Columns of one expert's first linear: twice its width where it is gated."""
        return self.expert_hidden * (2 if self.activation in GATED else 1)

    @property
    def shared_width(self) -> int:
        """Inner width of all shared experts side by side, 0 without any."""
        return self.shared_experts * (self.shared_hidden or self.expert_hidden)

    @property
    def active_columns(self) -> int:
        """Columns that one token meets: of its own experts, the shared ones, the router and the gate.

        >>> Experts(num_experts=8, top_k=2, expert_hidden=14336).active_columns
        86024
        """
        shared = self._shared.active_columns if self._shared else 0
        gate = int(self.shared_gate and self.shared_width > 0)
        return (
            self.top_k * (self.up_columns + self.expert_hidden)
            + shared
            + self.num_experts  # the router's
            + gate
        )

    @property
    def _shared(self) -> Mlp | None:
        """The shared experts as the dense MLP that they are, or none."""
        if not self.shared_width:
            return None
        return Mlp(ffn_hidden=self.shared_width, activation=self.activation)

    def imbalance(self, split: Split) -> tuple[Counts, Counts]:
        """Load of the fullest rank over the mean rank, and of its fullest expert over that rank's mean.

        Returns
        -------
        pair of arrays of shape (plans, 1)
            Each at least 1; their product is the load of the fullest expert over the mean one.
        """
        experts = constant(self.num_experts)
        rows = split.own_tokens * split.expert * split.expert_tensor * self.top_k / experts
        if self.load_imbalance_ratio is None:
            fullest = fullest_by_chance(experts, constant(self.top_k), rows)
        else:
            fullest = constant(self.load_imbalance_ratio)
        of_rank = fullest_rank(fullest, experts, split.expert)
        return of_rank, fullest / of_rank

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Router, both stacks of experts, the shared experts and their gate.

        Router and gate are whole on every rank; shared experts are cut as a dense MLP is. One token uses
        `top_k` of the experts: `Weight.active`.
        """
        cut = split.expert * split.expert_tensor
        stacks = tuple(
            Weight(
                name=f"experts.{name}",
                elements=self.num_experts * columns * hidden / cut,
                total=self.num_experts * columns * hidden,
                expert=True,
                active=self.top_k * columns * hidden,
            )
            for name, columns in (("up", self.up_columns), ("down", self.expert_hidden))
        )
        shared: tuple[Weight, ...] = ()
        if self._shared:
            own = self._shared.weights(hidden, split)
            shared = tuple(replace(weight, name=_shared_name(weight.name)) for weight in own)
            if self.shared_gate:
                shared += (replicated("shared.gate", hidden),)
        router = [replicated("experts.router", self.num_experts * hidden)]
        if self.router_bias:
            router.append(replicated("experts.router_bias", self.num_experts))
        return (*router, *stacks, *self._biases(hidden, split), *shared)

    def _biases(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Biases of experts: the first linear's cut as its columns, the second's whole with its expert."""
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
        """From "mlp.in", this rank's own tokens, to "mlp.sum", of the same shape.

        Sizes are those of the fullest rank, for which all others wait.
        """
        return (
            *self._route(hidden, split),
            *self._send(hidden, split),
            *self._compute(hidden, split),
            *self._return(hidden, split),
            *self._share(hidden, split),
        )

    def _rows(self, split: Split) -> Counts:
        """Rows that the fullest rank multiplies: those of all ranks that share its experts' columns."""
        of_rank, _ = self.imbalance(split)
        return split.own_tokens * self.top_k * split.expert_tensor * of_rank

    def _route(self, hidden: int, split: Split) -> list[Item]:
        """Scores of all experts for own tokens, the best of them, the loss; small but for the product.

        Scores are computed in fp32 whatever the product is in (arXiv:2101.03961, section 2.4).
        """
        dtype = split.dtype if self.router_dtype == "model" else "fp32"
        elements = split.own_tokens * self.num_experts
        product = Matmul(m=split.own_tokens, n=constant(self.num_experts), k=constant(hidden), dtype=dtype)
        steps = [("scores", self.router, "logits", "scores"), ("pick", "top_k", "scores", "picks")]
        if self.auxiliary_loss:
            steps.append(("loss", "router_loss", "scores", "loss"))
        passes = [
            _item(
                name,
                MemoryBound(kind=kind, elements=elements, width=constant(self.num_experts), dtype="fp32"),
                f"experts.{source}",
                f"experts.{output}",
            )
            for name, kind, source, output in steps
        ]
        return [_item("router", product, "mlp.in", "experts.logits"), *passes]

    def _send(self, hidden: int, split: Split) -> list[Item]:
        """A row for each token and pick; to the ranks of its experts; to those that share their columns.

        A token goes to a rank once, however many of its experts are there (operators/messages.py): what
        crosses the links is less than the rows that are made of it.
        """
        sent = split.own_tokens * self.top_k * hidden
        return [
            _item("permute", _pass("permute", sent, split), "mlp.in", "experts.sent"),
            self._travel("dispatch", Dispatch, "sent", "received", hidden, split),
            self._among_columns("gather", AllGather, "received", "gathered", hidden, split),
            _item("sort", self._sorted(hidden, split), "experts.gathered", "experts.rows"),
        ]

    def _compute(self, hidden: int, split: Split) -> list[Item]:
        """The products of this rank's experts, both linears of all of them in one kernel each."""
        rows, inner = self._rows(split), self.expert_hidden / split.expert_tensor
        up = GroupedMatmul(
            groups=self.num_experts / split.expert,
            rows=rows,
            n=self.up_columns / split.expert_tensor,
            k=constant(hidden),
            imbalance=self.imbalance(split)[1],
            dtype=split.dtype,
        )
        down = replace(up, n=constant(hidden), k=inner)
        act = _pass(self.activation, rows * inner, split)
        return [
            _item("up", up, "experts.rows", "experts.up"),
            *self._bias("up", rows * up.n, split),
            _item("activation", act, "experts.up", "experts.inner"),
            _item("down", down, "experts.inner", "experts.partial"),
            *self._bias("partial", rows * hidden, split),
        ]

    def _bias(self, tensor: str, elements: Counts, split: Split) -> list[Item]:
        """The add of a linear's bias to every row, in place, if experts have biases."""
        name = f"experts.{tensor}"
        add = _pass("bias_add", elements, split)
        return [_item(f"{tensor}_bias", add, name, name)] if self.expert_bias else []

    def _return(self, hidden: int, split: Split) -> list[Item]:
        """Back the way that the rows came; at home the rows of a token are weighed and added."""
        home = split.own_tokens * self.top_k * hidden
        output = "experts.sum" if self.shared_width else "mlp.sum"
        return [
            _item("unsort", self._sorted(hidden, split), "experts.partial", "experts.ordered"),
            self._among_columns("scatter", ReduceScatter, "ordered", "back", hidden, split),
            self._travel("combine", Combine, "back", "home", hidden, split),
            _item("unpermute", _pass("unpermute", home, split), "experts.home", output),
        ]

    def _travel(
        self,
        name: str,
        message: type[Dispatch] | type[Combine],
        source: str,
        output: str,
        hidden: int,
        split: Split,
    ) -> Item:
        """The exchange among the ranks over which experts are spread, as the fullest of them sees it."""
        copies = expected_copies(constant(self.num_experts), constant(self.top_k), split.expert)
        of_rank, _ = self.imbalance(split)
        sent_bytes = split.own_tokens * copies * of_rank * hidden * split.element_bytes
        work = message(axis="ep", message_bytes=sent_bytes)
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
        """Rows of all ranks that hold columns of the same experts; nothing where each holds whole ones.

        These are the tensor-parallel ranks: their messages run on that stream.
        """
        work: AbstractMessage = message(
            axis="etp", message_bytes=self._rows(split) * hidden * split.element_bytes
        )
        item = blocking(f"experts.{name}", work, f"experts.{source}", f"experts.{output}")
        return replace(item, stream="tp", component="tp_communication")

    def _sorted(self, hidden: int, split: Split) -> MemoryBound:
        """Rows of several ranks brought into the order of the experts; those of one are in it already."""
        several = np.where(split.expert * split.expert_tensor > 1, 1.0, 0.0)
        return _pass("permute", self._rows(split) * hidden * several, split)

    def _share(self, hidden: int, split: Split) -> list[Item]:
        """The shared experts on all tokens, as a dense MLP of their own, added to the others' result."""
        if not self._shared:
            return []
        own = split.own_tokens * hidden
        enter = enter_tensor_parallel("mlp.in", "shared.enter", hidden, split)
        inside = [
            replace(
                item,
                name=_shared_name(item.name),
                inputs=tuple(map(_shared_name, item.inputs)),
                output=_shared_name(item.output),
                component="experts",
            )
            for item in self._shared.forward(hidden, split)
        ]
        leave = leave_tensor_parallel("shared.partial", "shared.sum", "shared.leave", hidden, split)
        join = _pass("residual_add", own, split)
        return [
            replace(enter, output="shared.in.full"),
            *inside,
            leave,
            *(self._gate(hidden, split) if self.shared_gate else []),
            kernel("shared.join", join, ("experts.sum", "shared.sum"), "mlp.sum", component="experts"),
        ]

    def _gate(self, hidden: int, split: Split) -> list[Item]:
        """One number a token, its sigmoid, and the product with the shared experts' result."""
        number = Matmul(m=split.own_tokens, n=constant(1), k=constant(hidden), dtype=split.dtype)
        scale = _pass("scale_rows", split.own_tokens * hidden, split)
        return [
            kernel("shared.gate", number, ("mlp.in",), "shared.gate", component="experts"),
            kernel("shared.scale", scale, ("shared.sum",), "shared.sum", component="experts"),
        ]


def _shared_name(name: str) -> str:
    """A name of the dense MLP as one of the shared experts: "mlp.up" is "shared.up"."""
    return f"shared.{name.removeprefix('mlp.')}"


def _pass(kind: str, elements: Counts, split: Split) -> MemoryBound:
    """A memory-bound operator in the dtype of activations."""
    return MemoryBound(kind=kind, elements=elements, dtype=split.dtype)


def _item(name: str, work: AbstractOperator, source: str, output: str) -> Item:
    """A kernel whose name gets the prefix "experts."."""
    return kernel(f"experts.{name}", work, (source,), output, component="experts")
