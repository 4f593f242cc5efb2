"""Recurrent mixers in Hugging Face configs: Nemotron-H, Granite 4, Bamba, Mamba, GLA, Kimi, and Jamba.

Answers: which blocks do the single layers of such a config form, and how large are their mixers and
experts?
Elsewhere: the other facts of the family (families.yaml), the layers (layers/gated_delta_net.py,
layers/selective_scan.py).

A layer of Nemotron-H is a mixer or a feed-forward layer, each with its norm and residual. A mixer and the
feed-forward layer after it form a block; a mixer before another mixer is a block without a feed-forward
layer. A layer of Granite 4 and Bamba is such a block, and a layer of Mamba-2 is only a mixer.
"""

from collections.abc import Callable
from typing import NamedTuple

from flopcast.interop.hugging_face.experts import experts, granite_shared_experts
from flopcast.interop.hugging_face.values import Reader

PATTERN, LISTED = "hybrid_override_pattern", "layers_block_type"
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
KINDS = {kind: kind for kind in LETTERS.values()} | {  # of LISTED, with the names of transformers 5
    "linear_attention": "mamba",
    "full_attention": "attention",
}
MIXERS = ("mamba", "attention")
KDA_LAYERS = "linear_attn_config.kda_layers"
STEPS_OF_HIDDEN = 16  # the rank of Mamba's step sizes is a 16th of the hidden size, if it is "auto"
GLA_MULTIPLE = 256  # of the columns of its MLP (fla/modules/mlp.py)


class Pair(NamedTuple):
    """A block: its mixer, and its feed-forward layer, "" if it has none."""

    mixer: str
    feed_forward: str


def hybrid_blocks(read: Reader) -> int:
    """Return the number of blocks."""
    return max(len(_pairs(read)), 1)


def mamba_layers(read: Reader) -> tuple[int, ...]:
    """Return the blocks whose mixer is Mamba-2."""
    return tuple(place for place, pair in enumerate(_pairs(read)) if pair.mixer == "mamba")


def dense_blocks(read: Reader) -> tuple[int, ...]:
    """Return the blocks without experts."""
    return tuple(place for place, pair in enumerate(_pairs(read)) if pair.feed_forward != "moe")


def bare_blocks(read: Reader) -> tuple[int, ...]:
    """Return the blocks without a feed-forward layer."""
    return tuple(place for place, pair in enumerate(_pairs(read)) if not pair.feed_forward)


def mamba_mixer(
    heads: str, groups: str, state: str, size: str, convolution: str
) -> Callable[[Reader], dict[str, object]]:
    """Return the rule that reads the sizes of Mamba-2 under these keys."""
    return lambda read: {
        "rule": "additive",
        "heads": read.count(heads, 128),
        "key_heads": read.count(groups, 8),
        "key_size": read.count(state, 128),
        "value_size": read.count(size, 64),
        "convolution": read.count(convolution, 4),
    }


def granite_mixer(read: Reader) -> dict[str, object]:
    """Return the sizes of Mamba-2 in Granite 4 and Bamba. Their size of a head may be "auto"."""
    heads = read.count("mamba_n_heads", 128)
    size = max(read.count("mamba_expand", 2) * read.size("hidden", 4096) // heads, 1)
    return {
        "rule": "additive",
        "heads": heads,
        "key_heads": read.count("mamba_n_groups", 1),
        "key_size": read.count("mamba_d_state", 256),
        "value_size": size if read.raw("mamba_d_head") == "auto" else read.count("mamba_d_head", size),
        "convolution": read.count("mamba_d_conv", 4),
    }


def gla_mixer(read: Reader) -> dict[str, object]:
    """Return the sizes of GLA: keys and values are given as multiples of the hidden size."""
    hidden, heads = read.size("hidden", 2048), read.size("heads", 4)
    keys, values = (
        _multiple(read, key, default) for key, default in (("expand_k", 0.5), ("expand_v", 1.0))
    )
    taps = read.count("conv_size", 4)
    return {
        "rule": "gated",
        "heads": heads,
        "key_heads": heads,
        "key_size": max(int(hidden * keys) // heads, 1),
        "value_size": max(int(hidden * values) // heads, 1),
        "convolution": taps if read.flag("use_short_conv", False) else 0,
    }


def scan_mixer(norms: str) -> Callable[[Reader], dict[str, object]]:
    """Return the rule that reads the sizes of Mamba's first version, with or without norms of its steps."""

    def rule(read: Reader) -> dict[str, object]:
        hidden = read.size("hidden", 768)
        inner = read.count("intermediate_size", read.count("expand", 2) * hidden)
        return _scan(read, inner, ("state_size", "time_step_rank", "conv_kernel"), norms)

    return rule


def jamba_mixer(read: Reader) -> dict[str, object]:
    """Return the sizes of Mamba in Jamba."""
    inner = read.count("mamba_expand", 2) * read.size("hidden", 4096)
    return _scan(read, inner, ("mamba_d_state", "mamba_dt_rank", "mamba_d_conv"), "weighted")


def _scan(read: Reader, inner: int, keys: tuple[str, str, str], norms: str) -> dict[str, object]:
    """Return the sizes of a selective scan; `keys` are those of the state, the rank and the convolution."""
    state, rank, convolution = keys
    usual = -(-read.size("hidden", 4096) // STEPS_OF_HIDDEN)
    return {
        "kind": "selective_scan",
        "heads": inner,
        "state_size": read.count(state, 16),
        "rank": usual if read.raw(rank) in (None, "auto") else read.count(rank, usual),
        "convolution": read.count(convolution, 4),
        "norms": norms,
    }


def jamba_experts(read: Reader) -> dict[str, object] | None:
    """Return the experts of Jamba, which are as wide as its MLPs; None if there is only one."""
    found = experts(16, 2, 14336)(read)
    return found if found["num_experts"] != 1 else None


def all_but_one_each(kind: str, period: int, offset: int) -> Callable[[Reader], tuple[int, ...]]:
    """Return the rule for all layers except the layer at the offset in each period."""

    def rule(read: Reader) -> tuple[int, ...]:
        step = read.count(f"{kind}_layer_period", period)
        first = read.whole(f"{kind}_layer_offset", offset)
        return tuple(layer for layer in range(read.size("layers", 32)) if layer % step != first % step)

    return rule


def kda_mixer(read: Reader) -> dict[str, object]:
    """Return the sizes of Kimi Delta Attention; the ranks of decays and gates are the size of a head."""
    heads = read.count("linear_attn_config.num_heads", 32)
    size = read.count("linear_attn_config.head_dim", 128)
    return {
        "rule": "channel",
        "heads": heads,
        "key_heads": heads,
        "key_size": size,
        "value_size": size,
        "convolution": read.count("linear_attn_config.short_conv_kernel_size", 4),
        "out_gate_rank": None if read.flag("linear_attn_config.use_full_rank_gate", False) else size,
    }


def kda_layers(read: Reader) -> tuple[int, ...]:
    """Return the layers with Kimi Delta Attention: their list counts layers from 1; the others attend."""
    read.used.add("linear_attn_config.full_attn_layers")
    number = read.size("layers", 1)
    allowed = f"a list of numbers of layers, from 1 to {number}"
    listed = read.entries(KDA_LAYERS, lambda each: type(each) is int and 1 <= each <= number, allowed)
    if listed is None and KDA_LAYERS not in read.values:
        because = "this list states which layers have linear attention"
        read.fault(KDA_LAYERS, allowed, because, f"add {KDA_LAYERS}", "is missing")
    return tuple(sorted(layer - 1 for layer in listed or []))


def _multiple(read: Reader, key: str, default_ratio: float) -> float:
    """Return a factor that a key gives."""
    factor = read.value("factor", (key,), default_ratio)
    return float(factor) if isinstance(factor, (int, float)) else default_ratio


def gla_width(read: Reader) -> int:
    """Return the width of GLA's MLP: two thirds of a multiple of the hidden size, if it is not given."""
    ratio = read.count("hidden_ratio", 4)
    if read.raw("intermediate_size") is not None:
        return read.count("intermediate_size", 1)
    read.used.add("intermediate_size")
    columns = 2 * ratio * read.size("hidden", 2048) // 3
    return -(-columns // GLA_MULTIPLE) * GLA_MULTIPLE


def mamba_kinds(read: Reader) -> tuple[int, ...]:
    """Return the layers of Granite 4 that are Mamba-2: those of `layer_types`, else all."""
    number, kinds = read.size("layers", 1), {kind: KINDS[kind] for kind in KINDS if KINDS[kind] in MIXERS}
    allowed = f"a list with {number} entries, each mamba or attention"
    key = next((key for key in ("layer_types", LISTED) if key in read.values), "layer_types")
    listed = read.entries(key, kinds.__contains__, allowed, number) or ["mamba"] * number
    return tuple(layer for layer, kind in enumerate(listed) if kinds[kind] == "mamba")


def mamba_but_listed(read: Reader) -> tuple[int, ...]:
    """Return the layers of Bamba that are not among `attn_layer_indices`."""
    allowed = "a list of numbers of layers"
    listed = read.entries("attn_layer_indices", lambda each: type(each) is int, allowed) or []
    return tuple(layer for layer in range(read.size("layers", 1)) if layer not in listed)


def granite_experts(read: Reader) -> dict[str, object] | None:
    """Return the experts of Granite 4, None if `num_local_experts` is 0: the shared expert is its MLP."""
    if read.raw("num_local_experts") == 0:
        read.used.add("num_experts_per_tok")
        return None
    return granite_shared_experts(read)


def granite_width(read: Reader) -> int:
    """Return the width of the MLP of Granite 4 without experts, which is the shared expert."""
    return read.count("shared_intermediate_size", 1024)


def granite_rotation(read: Reader) -> float:
    """Return 1 if attention has rotary positions, 0 if it has none."""
    return 1.0 if read.raw("position_embedding_type") == "rope" else 0.0


def nemotron_experts(read: Reader) -> dict[str, object] | None:
    """Return the experts, None if no layer has any."""
    width = read.value("count", ("moe_latent_size",), None, optional=True, zero_is_none=True)
    shared = read.count("moe_shared_expert_intermediate_size", 7688)
    found = experts(
        8,
        2,
        7688,
        number_key="n_routed_experts",
        width_key="moe_intermediate_size",
        shared=1,
        has_loss=False,
    )(read)
    fields = {"shared_hidden": shared, "latent_hidden": width, "router": "sigmoid"}
    if all(pair.feed_forward != "moe" for pair in _pairs(read)):
        return None
    return found | fields | {"router_dtype": "fp32", "selection_bias": True}


def _pairs(read: Reader) -> list[Pair]:
    """Return the blocks, or none if the kinds of layers are missing or have an error."""
    pairs: list[Pair] = []
    for kind in _kinds(read):
        if kind in MIXERS:
            pairs.append(Pair(kind, ""))
        elif pairs and not pairs[-1].feed_forward:
            pairs[-1] = Pair(pairs[-1].mixer, kind)
        else:
            key = PATTERN if PATTERN in read.values else LISTED
            because = "flopcast does not support a feed-forward layer without a mixer before it yet"
            read.fault(key, "a mixer before every feed-forward layer", because, f"correct {key}")
            return []
    return pairs


def _kinds(read: Reader) -> list[str]:
    """Return the kinds of all layers, from the pattern or the list."""
    number, pattern = read.size("layers", 1), read.raw(PATTERN)
    listed = read.entries(LISTED, KINDS.__contains__, f"a list of {', '.join(KINDS)}")
    if listed is not None:
        return [KINDS[kind] for kind in listed]
    if pattern is None:
        because = "this key states the kind of each layer"
        read.fault(PATTERN, "one letter for each layer", because, f"add {PATTERN}", "is missing")
        return []
    letters = pattern if isinstance(pattern, str) else ""
    if not letters or set(letters) - set(LETTERS) or len(letters) != number:
        allowed = f"{number} letters: M (Mamba-2), * (attention), - (MLP) or E (experts)"
        read.fault(PATTERN, allowed, "each letter is the kind of one layer", f"correct {PATTERN}")
        return []
    return [LETTERS[letter] for letter in letters]
