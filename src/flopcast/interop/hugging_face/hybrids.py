"""Hybrids of Mamba-2, attention, experts and MLPs in Hugging Face configs (Nemotron-H, Nemotron 3).

Answers: which blocks do the single layers of such a config form, and how large are their Mamba-2 mixers and
experts?
Elsewhere: the other facts of the family (families.yaml), the layers (layers/gated_delta_net.py).

A layer of these models is a mixer or a feed-forward layer, each with its norm and residual. A mixer and the
feed-forward layer behind it form a block; a mixer before another mixer is a block without a feed-forward.
"""

from typing import NamedTuple

from flopcast.interop.hugging_face.experts import experts
from flopcast.interop.hugging_face.values import Reader

PATTERN, LISTED = "hybrid_override_pattern", "layers_block_type"
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
KINDS = {kind: kind for kind in LETTERS.values()} | {  # of LISTED, with the names of transformers 5
    "linear_attention": "mamba",
    "full_attention": "attention",
}
MIXERS = ("mamba", "attention")
UNPRICED = (  # keys that change no predicted time, or of which this family has one value
    "chunk_size expand mamba_hidden_act mamba_proj_bias mamba_ssm_cache_dtype mtp_layers_block_type "
    "mtp_hybrid_override_pattern n_group num_logits_to_keep rescale_prenorm_residual residual_in_fp32 "
    "time_step_floor time_step_limit time_step_max time_step_min time_step_rank topk_group use_bias "
    "use_conv_bias use_mamba_kernels moe_shared_expert_overlap norm_eps partial_rotary_factor"
)


class Pair(NamedTuple):
    """A block: its mixer, and its feed-forward layer, "" if it has none."""

    mixer: str
    feed_forward: str


def hybrid_blocks(read: Reader) -> int:
    """Return the number of blocks."""
    read.used.update(UNPRICED.split())
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


def mamba_mixer(read: Reader) -> dict[str, object]:
    """Return the sizes of Mamba-2, with the defaults of Nemotron-H."""
    return {
        "rule": "additive",
        "heads": read.count("mamba_num_heads", 128),
        "key_heads": read.count("n_groups", 8),
        "key_size": read.count("ssm_state_size", 128),
        "value_size": read.count("mamba_head_dim", 64),
        "convolution": read.count("conv_kernel", 4),
    }


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
    """Return the blocks; none if the kinds of layers are not given or have an error."""
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
        read.fault(
            PATTERN,
            "one letter for each layer",
            "it says which layers the model has",
            f"add {PATTERN}",
            "is missing",
        )
        return []
    letters = pattern if isinstance(pattern, str) else ""
    if not letters or set(letters) - set(LETTERS) or len(letters) != number:
        allowed = f"{number} letters: M (Mamba-2), * (attention), - (MLP) or E (experts)"
        read.fault(PATTERN, allowed, "each letter is the kind of one layer", f"correct {PATTERN}")
        return []
    return [LETTERS[letter] for letter in letters]
