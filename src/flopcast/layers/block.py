"""A transformer block: norm, mixer, residual, norm, feed-forward, residual.

Elsewhere: the two halves (layers/attention.py, layers/mlp.py and a file for each other kind).

Residual orders: "sequential" (GPT-2, Llama), "parallel" (GPT-NeoX: both halves read the same input,
one sum leaves the tensor-parallel region) and "parallel_shared_norm" (GPT-J, Falcon).

In formulas, with N a norm, A the mixer and F the feed-forward:

    sequential             m = x + A(N₁(x));  y = m + F(N₂(m))
    parallel               y = x + A(N₁(x)) + F(N₂(x))
    parallel_shared_norm   n = N₁(x);  y = x + A(n) + F(n)

Norms of sequential halves are "before" them as above, "after" (OLMo 2) or "around" them (Gemma 2 and 3):

    after                  m = x + N₁(A(x));  y = m + N₂(F(m))
    around                 m = x + N₁'(A(N₁(x)));  y = m + N₂'(F(N₂(m)))

Blocks of a decoder that reads an encoder's result s have cross-attention C over s between both halves:

    before                 m = x + A(N₁(x));  c = m + C(N₃(m), s);  y = c + F(N₂(c))
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from flopcast.dtypes import Probability, constant
from flopcast.layers.attention import Attention
from flopcast.layers.base import (
    SOURCE,
    AbstractLayer,
    Norm,
    Split,
    Weight,
    enter_tensor_parallel,
    leave_tensor_parallel,
    memory_pass,
    norm_weights,
    replicated,
)
from flopcast.layers.cross_attention import CrossAttention
from flopcast.layers.experts import Experts
from flopcast.layers.gated_delta_net import GatedDeltaNet
from flopcast.layers.latent_attention import LatentAttention
from flopcast.layers.mlp import Mlp
from flopcast.layers.selective_scan import SelectiveScan
from flopcast.layers.time_mix import TimeMix
from flopcast.layers.traced import NoFeedForward, Traced
from flopcast.operators.item import Item, kernel
from flopcast.records import replace

MIXERS_BY_FIELD = {"kv_lora_rank": "latent_attention", "key_heads": "gated_delta"}
MIXERS_BY_FIELD |= {"rank": "selective_scan", "version": "time_mix"}


def _kind_of_feed_forward(value: object) -> str:
    """Return the kind of a feed-forward; a mapping without a kind that names experts is of kind experts."""
    if isinstance(value, Mapping):
        return str(value.get("kind", "experts" if "num_experts" in value else "mlp"))
    return str(getattr(value, "kind", "mlp"))


def _kind_of_mixer(value: object) -> str:
    """Return the kind of a mixer; a mapping without one may have a field that only one other kind has."""
    if not isinstance(value, Mapping):
        return str(getattr(value, "kind", "attention"))
    usual = next((kind for field, kind in MIXERS_BY_FIELD.items() if field in value), "attention")
    return str(value.get("kind", usual))


Mixer = Annotated[
    Annotated[Attention, Tag("attention")]
    | Annotated[LatentAttention, Tag("latent_attention")]
    | Annotated[GatedDeltaNet, Tag("gated_delta")]
    | Annotated[SelectiveScan, Tag("selective_scan")]
    | Annotated[TimeMix, Tag("time_mix")]
    | Annotated[Traced, Tag("traced")],
    Discriminator(_kind_of_mixer),
]
FeedForward = Annotated[
    Annotated[Mlp, Tag("mlp")] | Annotated[Experts, Tag("experts")] | Annotated[NoFeedForward, Tag("none")],
    Discriminator(_kind_of_feed_forward),
]


class Block(AbstractLayer):
    """One transformer block: a mixer, such as attention, and a feed-forward layer.

    Attributes
    ----------
    mixer : Attention, LatentAttention, GatedDeltaNet, SelectiveScan, TimeMix or Traced
        The attention layer, or another layer that mixes tokens.
    feed_forward : Mlp, Experts or NoFeedForward
        The feed-forward layer. Blocks of hybrid models may lack it.
    norm : str
        Kind of the norms: layer norm or root-mean-square norm.
    norm_bias : bool
        Whether layer norms have a bias; root-mean-square norms have none.
    norm_scale : bool
        Whether norms have weights. OLMo's have none (arXiv:2402.00838, section 2.1).
    norm_placement : str
        Where norms are applied. "before": to the inputs of the mixer and the feed-forward layer. "after":
        to their outputs (OLMo 2, arXiv:2501.00656). "around": to their inputs and outputs. It must be
        "before" if mixer and feed-forward layer run in parallel.
    residual : str
        How mixer and feed-forward layer are connected. "sequential": the feed-forward layer follows the
        mixer. "parallel": both have the same input, and a norm each. "parallel_shared_norm": both have the
        same input and share one norm.
    dropout : float
        Probability of dropout on the outputs of mixer and feed-forward layer, before the residual add.
    reads : str
        Whose tokens the block processes: those of the decoder ("sequence") or of the encoder ("source").
    ends_encoder : bool
        Whether the block is the last one of the encoder. A norm then follows it, and all decoder blocks
        read the output of this norm.
    cross : CrossAttention or None
        Cross-attention to the output of the encoder, between the mixer and the feed-forward layer.
    count : int
        Number of consecutive blocks that this entry describes.

    Examples
    --------
    A block of GPT-3 175B has 12 h² + 13 h parameters:

    >>> from flopcast.dtypes import constant
    >>> whole = Split(sequences=constant(1), length=constant(1), tensor=constant(1),
    ...               sequence_parallel=False, dtype="bf16")
    >>> block = Block(mixer=Attention(heads=96, qkv_bias=True, out_bias=True),
    ...               feed_forward=Mlp(ffn_hidden=49152, bias=True))
    >>> sum(weight.total for weight in block.weights(12288, whole)) == 12 * 12288**2 + 13 * 12288
    True
    """

    kind: Literal["block"] = "block"
    mixer: Mixer
    feed_forward: FeedForward
    norm: Norm = "layernorm"
    norm_bias: bool = True
    norm_scale: bool = True
    norm_placement: Literal["before", "after", "around"] = "before"
    residual: Literal["sequential", "parallel", "parallel_shared_norm"] = "sequential"
    dropout: Probability = 0.0
    reads: Literal["sequence", "source"] = "sequence"
    ends_encoder: bool = False
    cross: CrossAttention | None = None
    count: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _norms_of_parallel_halves_stand_before(self) -> "Block":
        if self.residual != "sequential" and self.norm_placement != "before":
            raise ValueError(f"norm_placement: before, if residual is {self.residual}")
        return self

    @model_validator(mode="after")
    def _an_encoder_reads_the_source(self) -> "Block":
        if self.ends_encoder and (self.reads != "source" or self.count > 1):
            raise ValueError("ends_encoder: true only in an entry with count: 1 and reads: source")
        if self.cross and (self.reads == "source" or self.residual != "sequential"):
            raise ValueError("cross only in an entry with reads: sequence and residual: sequential")
        return self

    @model_validator(mode="after")
    def _parallel_halves_share_a_region(self) -> "Block":
        for field, half in (("mixer", self.mixer), ("feed_forward", self.feed_forward)):
            if self.residual != "sequential" and not half.in_tensor_region:
                raise ValueError(f"residual: sequential, if {field} is of kind {half.kind}")
        return self

    @model_validator(mode="after")
    def _a_traced_block_is_whole(self) -> "Block":
        rest = isinstance(self.feed_forward, NoFeedForward)
        if not rest and self.mixer.is_whole_block:
            raise ValueError("feed_forward of kind none, if the mixer is of kind traced")
        if rest and (self.residual, self.norm_placement, self.dropout) != ("sequential", "before", 0.0):
            raise ValueError("no residual, norm_placement and dropout, if feed_forward is of kind none")
        return self

    def split_of(self, split: Split) -> Split:
        """Return the split of the sequence, or of the source that an encoder reads."""
        return split.of_source if self.reads == "source" else split

    def weights(self, hidden: int, split: Split) -> tuple[Weight, ...]:
        """Return the weights of norms and both halves, and the biases that are added after sums over ranks.

        Every rank holds the whole of such a bias and adds it once, to the finished sum.
        """
        if self.mixer.is_whole_block:
            return self.mixer.weights(hidden, split)
        alone = isinstance(self.feed_forward, NoFeedForward) or self.residual == "parallel_shared_norm"
        names: tuple[str, ...] = ("norm1", "norm2")[: 2 - alone]
        if self.norm_placement == "around":
            names += ("norm1_after", "norm2_after")
        if self.cross:
            names += ("cross.norm", "cross.norm_after")[: 1 + (self.norm_placement == "around")]
        if self.ends_encoder:
            names += ("encoder.norm",)
        norms = [norm_weights(name, self.norm, hidden, self.norm_bias, self.norm_scale) for name in names]
        biases: tuple[Weight, ...] = ()
        if self.mixer.out_bias:
            biases += (replicated("attention.out_bias", hidden),)
        if self.feed_forward.bias:
            biases += (replicated("mlp.down_bias", hidden),)
        if self.cross and self.cross.out_bias:
            biases += (replicated("cross.out_bias", hidden),)
        return (
            *(weight for norm in norms for weight in norm),
            *self.mixer.weights(hidden, split),
            *(self.cross.weights(hidden, split) if self.cross else ()),
            *self.feed_forward.weights(hidden, split),
            *biases,
        )

    def forward(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return items from tensor "x" to tensor "y".

        Sequential blocks enter and leave the tensor-parallel region twice. Parallel blocks leave it once,
        because each rank adds the partial sums of both halves before the sum over ranks.
        """
        if self.mixer.is_whole_block:
            return self.mixer.forward(hidden, split)
        split = self.split_of(split)
        if isinstance(self.feed_forward, NoFeedForward):
            return tuple(self._half("attention", "x", "y", hidden, split))
        if self.residual == "sequential":
            between = "crossed" if self.cross else "middle"
            items = [
                *self._half("attention", "x", "middle", hidden, split),
                *(self._half("cross", "middle", "crossed", hidden, split) if self.cross else ()),
                *self._half("mlp", between, "y", hidden, split),
            ]
        else:
            items = [*self._parallel(hidden, split)]
        return (*items, *(self._result_of_encoder(hidden, split) if self.ends_encoder else ()))

    def _result_of_encoder(self, hidden: int, split: Split) -> tuple[Item, Item]:
        """Return the norm behind the encoder, and its result, which stays for the decoder's blocks."""
        kept = memory_pass("keep", split.own_tokens * hidden, split)
        norm = _wide(self.norm, "encoder.norm", ("y",), SOURCE, hidden, split, "norm")
        return norm, kernel("encoder.result", kept, (SOURCE,), "encoder.result", component="norm")

    def _half(self, part: str, source: str, output: str, hidden: int, split: Split) -> list[Item]:
        """Return one half from `source`: norms, layer, sum over ranks, then bias, dropout and residual.

        A norm after the half acts on the finished sum with its bias, before dropout. A half that is not in
        the tensor-parallel region (experts, latent attention) reads what a rank owns and leaves whole sums.
        """
        layer, bias = self._parts[part]
        norms_input, norms_output = self.norm_placement != "after", self.norm_placement != "before"
        inside = layer.forward(hidden, split)
        if layer.in_tensor_region:
            inside = self._in_region(part, f"{part}.in" if norms_input else source, inside, hidden, split)
        elif not norms_input:
            inside = _reading(inside, f"{part}.in", source)
        result = f"{part}.normed" if norms_output else f"{part}.sum"
        return [
            *([self._norm(part, source, hidden, split)] if norms_input else []),
            *inside,
            *self._bias(part, f"{part}.sum", bias, hidden, split),
            *([self._norm_after(part, hidden, split)] if norms_output else []),
            *self._drop(part, result, hidden, split),
            _wide("residual_add", f"{part}.residual", (result, source), output, hidden, split),
        ]

    @property
    def _parts(self) -> dict[str, tuple[Mixer | FeedForward | CrossAttention, bool]]:
        """Return the layer of each part of the residual stream, and whether its result has a bias."""
        cross = {"cross": (self.cross, self.cross.out_bias)} if self.cross else {}
        ends = {
            "attention": (self.mixer, self.mixer.out_bias),
            "mlp": (self.feed_forward, self.feed_forward.bias),
        }
        return {**cross, **ends}

    def _in_region(
        self, part: str, source: str, inside: tuple[Item, ...], hidden: int, split: Split
    ) -> tuple[Item, ...]:
        """Return a half between the messages that gather its input and sum its result over ranks."""
        enter = enter_tensor_parallel(source, f"{part}.enter", hidden, split)
        leave = leave_tensor_parallel(f"{part}.partial", f"{part}.sum", f"{part}.leave", hidden, split)
        return (replace(enter, output=f"{part}.in.full"), *inside, leave)

    def _parallel(self, hidden: int, split: Split) -> tuple[Item, ...]:
        """Return both halves of one input, joined while they are partial sums, then summed over ranks once.

        Partial sums are whole on every rank, also where sequence parallelism cuts what follows them.
        """
        whole = replace(split, sequence_parallel=False)
        shared = self.residual == "parallel_shared_norm"
        mlp = self.feed_forward.forward(hidden, split)
        if shared:  # both halves read one tensor, gathered once
            mlp = (replace(mlp[0], inputs=("attention.in.full",)), *mlp[1:])
        enter_mlp = enter_tensor_parallel("mlp.in", "mlp.enter", hidden, split)
        return (
            self._norm("attention", "x", hidden, split),
            *([] if shared else [self._norm("mlp", "x", hidden, split)]),
            enter_tensor_parallel("attention.in", "attention.enter", hidden, split),
            *self.mixer.forward(hidden, split),
            *self._after("attention", "attention.partial", self.mixer.out_bias, hidden, whole),
            *([] if shared else [enter_mlp]),
            *mlp,
            *self._after("mlp", "mlp.partial", self.feed_forward.bias, hidden, whole),
            _wide("residual_add", "join", ("mlp.partial", "attention.partial"), "partial", hidden, whole),
            leave_tensor_parallel("partial", "sum", "leave", hidden, split),
            _wide("residual_add", "residual", ("sum", "x"), "y", hidden, split),
        )

    def _norm(self, part: str, source: str, hidden: int, split: Split) -> Item:
        """Return the norm before a half; it writes `part` + ".in", which then enters the region."""
        return _wide(self.norm, f"{part}.norm", (source,), f"{part}.in", hidden, split, "norm")

    def _norm_after(self, part: str, hidden: int, split: Split) -> Item:
        """Return the norm of a half's result, which follows the sum over ranks."""
        return _wide(
            self.norm, f"{part}.norm_after", (f"{part}.sum",), f"{part}.normed", hidden, split, "norm"
        )

    def _after(self, part: str, tensor: str, bias: bool, hidden: int, split: Split) -> list[Item]:
        """Return bias and dropout on a half's result, in place: they keep only the dropout mask."""
        return [*self._bias(part, tensor, bias, hidden, split), *self._drop(part, tensor, hidden, split)]

    def _bias(self, part: str, tensor: str, bias: bool, hidden: int, split: Split) -> list[Item]:
        """Return the add of a half's last bias, if it has one."""
        return [_wide("bias_add", f"{part}.bias", (tensor,), tensor, hidden, split)] if bias else []

    def _drop(self, part: str, tensor: str, hidden: int, split: Split) -> list[Item]:
        """Return dropout on a half's result, if there is any."""
        return [_wide("dropout", f"{part}.drop", (tensor,), tensor, hidden, split)] if self.dropout else []


def _reading(items: tuple[Item, ...], old: str, new: str) -> tuple[Item, ...]:
    """Return items that read another tensor instead of `old`."""
    return tuple(
        replace(item, inputs=tuple(new if name == old else name for name in item.inputs)) for item in items
    )


def _wide(
    kind: str,
    name: str,
    inputs: tuple[str, ...],
    output: str,
    hidden: int,
    split: Split,
    component: str = "residual",
) -> Item:
    """Return a memory-bound operator over this rank's tokens at full width."""
    work = memory_pass(kind, split.own_tokens * hidden, split, constant(hidden))
    return kernel(name, work, inputs, output, component=component)
