"""The facts of a decoder, and the mixers and feed-forward layers that follow from them.

Answers: which facts do a family's table and a config state about a decoder, and of what does each layer
consist?
Elsewhere: reading the facts from a config, and the whole model (config.py).
"""

from typing import Any

from flopcast.dtypes import Probability
from flopcast.files.nearest_names import nearest
from flopcast.records import Record

ACTIVATIONS: dict[str, tuple[str, str]] = {  # HF name → ours; gated MLPs take the second
    **dict.fromkeys(
        ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "quick_gelu"),
        ("gelu", "geglu"),
    ),
    "silu": ("silu", "swiglu"),
    "swish": ("silu", "swiglu"),
    "relu": ("relu", ""),
    **dict.fromkeys(("relu2", "sqrelu"), ("relu2", "")),
    "xielu": ("gelu", ""),  # one pass with two numbers of its own for each layer, which are not counted
}


def meant_activation(written: str, *, gated: bool, usual: str) -> str:
    """Return the name in transformers of the activation that a wrong name means, or else the usual one.

    The names that other software gives to gated MLPs have a meaning, too.

    >>> [meant_activation(name, gated=True, usual="silu") for name in ("swigelu", "geglu", "laplace")]
    ['silu', 'gelu', 'silu']
    """
    names = {name: name for name, kinds in ACTIVATIONS.items() if kinds[gated]}
    names = {ACTIVATIONS[name][gated]: name for name in reversed(names)} | names
    return names.get(next(iter(nearest(written, names)), usual), next(iter(names.values())))


class DecoderFacts(Record):
    """The facts of one decoder, from the table of its family and from its config.

    If a size is None, it follows from other sizes: there are as many `kv_heads` as `heads`, a head has
    `hidden` / `heads` elements, and the width of the MLP is 4 · `hidden`. If a soft cap or a window is
    None, there is none. A window applies to the `local` layers, or to all layers if `local` is None. The
    `unturned` layers have no rotary positions and no norms of heads. All layers except the `dense_layers`
    have `experts`. With `latent` sizes, all layers have latent attention. With `linear` sizes, the
    `linear_layers` have linear attention, the first layer with the sizes `first_linear`. The `bare_layers`
    have no feed-forward layer. The encoder has `encoder_layers`, with the sizes of the decoder's layers.
    """

    hidden: int
    layers: int
    heads: int
    ffn_hidden: int | None
    vocabulary: int
    context: int
    activation: str
    gated: bool
    tied: bool
    norm: str
    norm_bias: bool
    norm_scale: bool = True
    norm_placement: str = "before"
    residual: str = "sequential"
    embedding_norm: bool = False
    kv_heads: int | None = None
    head_size: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    rotary_fraction: float = 1.0
    alibi: bool = False
    learned: bool = False
    position_offset: int = 0
    qk_norm: str = "none"
    softcap: object = None
    logit_softcap: object = None
    attention_dropout: Probability = 0.0
    hidden_dropout: Probability = 0.0
    embedding_dropout: Probability = 0.0
    window: int | None = None
    window_kind: str = "sliding"
    local: tuple[int, ...] | None = None
    unturned: tuple[int, ...] = ()
    sinks: bool = False
    rotary_scaled: bool = False
    experts: dict[str, object] | None = None
    dense_layers: tuple[int, ...] = ()
    latent: dict[str, object] | None = None
    linear: dict[str, object] | None = None
    first_linear: dict[str, object] | None = None
    channel_mix: str = "none"
    linear_layers: tuple[int, ...] = ()
    bare_layers: tuple[int, ...] = ()
    out_gate: bool = False
    mtp: int = 0
    encoder_layers: int = 0
    relative_positions: int = 0


class LayerKind(Record):
    """The kind of a layer: whether it has experts, a window, rotary positions or linear attention.

    `first` is true only for a first layer whose linear attention differs from that of other layers.
    """

    sparse: bool
    local: bool
    turned: bool
    linear: bool
    bare: bool
    first: bool


def kind_of_layer(decoder: DecoderFacts, layer: int) -> LayerKind:
    """Return the properties in which layers differ. A window over the whole context does not count."""
    windowed = decoder.window is not None and decoder.window < decoder.context
    return LayerKind(
        sparse=decoder.experts is not None and layer not in decoder.dense_layers,
        local=windowed and (decoder.local is None or layer in decoder.local),
        turned=layer not in decoder.unturned,
        linear=layer in decoder.linear_layers,
        bare=layer in decoder.bare_layers,
        first=decoder.first_linear is not None and layer == 0,
    )


def mixer_of(decoder: DecoderFacts, kind: LayerKind) -> dict[str, object]:
    """Return the attention, with or without latents, or linear attention; sizes that follow from others
    are omitted.

    Parameters
    ----------
    decoder : DecoderFacts
        Facts of the whole model.
    kind : LayerKind
        Whether this layer has a window, rotary positions, or linear attention.
    """
    if kind.linear and decoder.linear is not None:
        return {"kind": "gated_delta"} | ((kind.first and decoder.first_linear) or decoder.linear)
    if decoder.latent is not None:
        whole = {"kind": "latent_attention", "heads": decoder.heads, "dropout": decoder.attention_dropout}
        return whole | decoder.latent
    own_size = decoder.head_size and decoder.head_size * decoder.heads != decoder.hidden
    same = ("heads", "qkv_bias", "out_bias", "alibi", "sinks", "out_gate", "rotary_scaled")
    return {name: getattr(decoder, name) for name in same} | {
        "kv_heads": decoder.kv_heads if decoder.kv_heads != decoder.heads else None,
        "head_size": decoder.head_size if own_size else None,
        "rotary_fraction": 0.0 if decoder.alibi or not kind.turned else decoder.rotary_fraction,
        "dropout": decoder.attention_dropout,
        "qk_norm": decoder.qk_norm if kind.turned or decoder.qk_norm != "unscaled" else "none",
        "softcap": decoder.softcap is not None,
        "window": decoder.window if kind.local else None,
        "window_kind": decoder.window_kind if kind.local else "sliding",
    }


def feed_forward_of(decoder: DecoderFacts, kind: LayerKind) -> dict[str, object]:
    """Return the dense MLP, experts, or no feed-forward layer."""
    if kind.bare:
        return {"kind": "none"}
    activation = ACTIVATIONS[decoder.activation][decoder.gated]
    if kind.sparse and decoder.experts is not None:
        return decoder.experts | {"kind": "experts", "activation": activation}
    width = decoder.ffn_hidden or 4 * decoder.hidden
    mlp = {"ffn_hidden": width, "activation": activation, "bias": decoder.mlp_bias}
    return mlp | {"mix": decoder.channel_mix}


def with_encoder(decoder: DecoderFacts, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of the decoder after those of the encoder, with cross-attention; without an
    encoder, the blocks do not change.

    The encoder has the decoder's sizes and no mask.
    """
    if not decoder.encoder_layers:
        return blocks
    mixer = blocks[0]["mixer"]
    names = ("heads", "head_size", "qkv_bias", "out_bias", "dropout")
    cross = {name: mixer[name] for name in names if mixer[name] is not None}
    encoder = blocks[0] | {"reads": "source", "mixer": mixer | {"causal": False}}
    before = [encoder | {"count": decoder.encoder_layers - 1}] if decoder.encoder_layers > 1 else []
    last = encoder | {"count": 1, "ends_encoder": True}
    return [*before, last, *(block | {"cross": cross} for block in blocks)]
