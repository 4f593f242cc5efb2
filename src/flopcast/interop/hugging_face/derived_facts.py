"""Facts of Hugging Face families that follow from several keys of a config.

Answers: which facts of a family must be computed, such as the key/value heads of Falcon?
Elsewhere: facts that a single key gives (families.yaml), experts (experts.py), windows (windows.py).
"""

from collections.abc import Callable

from flopcast.fixes import set_to
from flopcast.interop.hugging_face.values import Reader
from flopcast.interop.hugging_face.windows import listed_as_local
from flopcast.spec.divisors import nearest_divisor

WIDE_RWKV6 = 4096  # elements of RWKV-6 with ranks twice as large (modeling_rwkv6.py of the checkpoints)


def switch(key: str, default: bool, on: object, off: object) -> Callable[[Reader], object]:
    """Return the rule for a fact that has one value if a boolean key is true, otherwise another value."""
    return lambda read: on if read.flag(key, default) else off


def number(key: str, default: int) -> Callable[[Reader], int]:
    """Return the rule for a fact that a key of one family gives as a number."""
    return lambda read: read.count(key, default)


def used_window(read: Reader) -> object:
    """Return Qwen's window, which applies only if its flag is set."""
    window = read.fact("window", None)
    return window if read.flag("use_sliding_window", False) else None


def local_window(read: Reader) -> object:
    """Return GPT-Neo's window, which applies if any layer is local."""
    window = read.count("window_size", 256)
    return window if listed_as_local(read) else None


def rotary_dim(read: Reader) -> float:
    """Return the rotated fraction of a head of GPT-J, given in elements; null means whole heads."""
    head = max(1, read.size("hidden", 4096) // read.size("heads", 16))
    turned = read.count("rotary_dim", 64)
    if "rotary_dim" in read.values and read.raw("rotary_dim") is None:
        return 1.0
    if turned > head:
        allowed = f"at most {head}, the number of elements of a head"
        because = "rotary position embeddings apply to rotary_dim elements of each head"
        read.fault("rotary_dim", allowed, because, set_to({"rotary_dim": head}))
    return min(1.0, turned / head)


def falcon_kv_heads(read: Reader) -> object:
    """Return the number of Falcon's key/value heads: one for multi-query attention, more in the newer
    architecture.
    """
    groups = read.fact("kv_heads", None)
    new = read.flag("new_decoder_architecture", False)
    multi_query = read.flag("multi_query", True)
    return 1 if multi_query and not new else groups


def falcon_residual(read: Reader) -> str:
    """Return Falcon's residual: parallel with two norms (40B) or one (7B), or sequential (Falcon-RW)."""
    new = read.flag("new_decoder_architecture", False)
    parallel = read.flag("parallel_attn", True)
    norms = read.count("num_ln_in_parallel_attn", 2 if new else 1)
    if not (new or parallel):
        return "sequential"
    return "parallel" if new and norms == 2 else "parallel_shared_norm"


def mpt_inner(read: Reader) -> int:
    """Return the width of MPT's MLP, which is given as a multiple of the hidden size."""
    return read.count("expansion_ratio", 4) * read.size("hidden", 2048)


def mpt_learned(read: Reader) -> bool:
    """Return whether MPT learns positions: without ALiBi, unless `learned_pos_emb` is false."""
    return not read.flag("attn_config.alibi", True) and read.flag("learned_pos_emb", True)


def baichuan_alibi(read: Reader) -> bool:
    """Return whether Baichuan uses ALiBi: its larger models do, and have only `model_max_length`."""
    return "max_position_embeddings" not in read.values


def minimax_rotary(read: Reader) -> float:
    """Return the rotated fraction of a head of MiniMax-M2, from the number of elements (`rotary_dim`)."""
    head = read.fact("head_size", 128)
    rotated = read.count("rotary_dim", 64)
    return min(1.0, rotated / head) if isinstance(head, int) else 1.0


def bigcode_kv_heads(read: Reader) -> object:
    """Return one key/value head if `multi_query` is true, the default (SantaCoder, StarCoder)."""
    read.raw("num_key_value_heads")  # transformers 5 saves the number that follows from the flag
    return 1 if read.flag("multi_query", True) else None


def latent_attention(
    q_lora_rank: int, nope_size: int = 128, value_size: int = 128
) -> Callable[[Reader], dict[str, object]]:
    """Return the rule that reads the sizes of latents and heads.

    Parameters
    ----------
    q_lora_rank, nope_size, value_size : int
        Defaults of the family. If q_lora_rank is null in a config, queries have no latent.
    """

    def rule(read: Reader) -> dict[str, object]:
        read.used.update(("num_key_value_heads", "head_dim"))  # as many as heads; the rotated part
        rank = read.value("count", ("q_lora_rank",), q_lora_rank, optional=True, zero_is_none=True)
        return {
            "q_lora_rank": rank,
            "kv_lora_rank": read.count("kv_lora_rank", 512),
            "qk_nope_head_size": read.count("qk_nope_head_dim", nope_size),
            "qk_rope_head_size": read.count("qk_rope_head_dim", 64),
            "value_head_size": read.count("v_head_dim", value_size),
        }

    return rule


def unturned_latents(read: Reader) -> dict[str, object]:
    """Return the latent attention of Kimi Linear, which usually rotates no elements."""
    return latent_attention(1536)(read) | {"rotary": not read.flag("mla_use_nope", False)}


def sparse_latent_attention(
    q_lora_rank: int, nope_size: int, value_size: int, index_heads: int
) -> Callable[[Reader], dict[str, object]]:
    """Return the rule of latent attention with an indexer in every layer."""

    def rule(read: Reader) -> dict[str, object]:
        whole = read.entries("indexer_types", lambda each: each == "full", 'a list of "full"')
        read.used.update(("layer_types", *(("index_topk_freq", "index_skip_topk_offset") if whole else ())))
        index = {
            "heads": read.count("index_n_heads", index_heads),
            "size": read.count("index_head_dim", 128),
            "top_k": read.count("index_topk", 2048),
        }
        return latent_attention(q_lora_rank, nope_size, value_size)(read) | {"index": index}

    return rule


def gated_delta_net(read: Reader) -> dict[str, object]:
    """Return sizes of a gated delta net, with the defaults of Qwen3-Next.

    The number of value heads must be a multiple of the key heads; otherwise, it is reported.
    """
    read.used.add("mamba_ssm_dtype")  # of states, which engines keep in fp32
    heads, key_heads = read.count("linear_num_value_heads", 32), read.count("linear_num_key_heads", 16)
    if heads % key_heads:
        because = "every key head is shared by the same number of value heads"
        fix = set_to({"linear_num_key_heads": nearest_divisor(heads, key_heads)})
        allowed = f"a divisor of linear_num_value_heads ({heads})"
        read.fault("linear_num_key_heads", allowed, because, fix)
    return {
        "heads": heads,
        "key_heads": key_heads,
        "key_size": read.count("linear_key_head_dim", 128),
        "value_size": read.count("linear_value_head_dim", 128),
        "convolution": read.count("linear_conv_kernel_dim", 4),
    }


def further_predictions(read: Reader) -> int:
    """Return the number of multi-token prediction modules of the model, 0 if no key gives it.

    `num_mtp_layers` is the key of transformers 5, `mtp_num_hidden_layers` that of Qwen3.5.
    """
    keys = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
    read.used.add("mtp_use_dedicated_embeddings")
    key = next((key for key in keys if read.raw(key) is not None), keys[0])
    return read.count(key, 1) if read.raw(key) not in (None, 0) else 0


def t5_activation(read: Reader) -> str:
    """Return the activation of T5's MLP: "relu", or the text after "gated-" in `feed_forward_proj`."""
    read.used.update(("is_gated_act", "dense_act_fn"))  # what transformers derives of it and saves too
    written = read.value("text", ("feed_forward_proj",), "relu")
    name = str(written).removeprefix("gated-")
    return "gelu_new" if name == "gelu" else name


def t5_gated(read: Reader) -> bool:
    """Return whether T5's MLP is gated (T5 1.1, Flan-T5, mT5)."""
    return str(read.value("text", ("feed_forward_proj",), "relu")).startswith("gated-")


def t5_decoder_layers(read: Reader) -> int:
    """Return the number of layers in T5's decoder, by default that of its encoder."""
    return read.count("num_decoder_layers", read.count("num_layers", 6))


def encoder_layers(read: Reader) -> int:
    """Return the number of layers in BART's encoder; version 4 of transformers also saves it as the
    number of all layers.
    """
    read.used.add("num_hidden_layers")
    return read.count("encoder_layers", 12)


def rows_of_encoder(read: Reader) -> int:
    """Return the rows of the encoder's position tables, which are separate from the decoder's."""
    return read.count("max_position_embeddings", 1024)


def rows_besides_positions(read: Reader) -> int:
    """Return the rows of the encoder's position table for BART, whose tables begin with two unused rows."""
    return rows_of_encoder(read) + 4


def rwkv_mixer(version: int, is_first: bool) -> Callable[[Reader], dict[str, object]]:
    """Return the rule that reads the sizes of time mixing in the first or in any later layer of RWKV."""

    def rule(read: Reader) -> dict[str, object]:
        hidden = read.size("hidden", 2048)
        size = read.count("head_dim" if version == 7 else "head_size", 64)
        inner = hidden if version == 7 else read.count("attention_hidden_size", hidden)
        whole = {"kind": "time_mix", "version": version, "heads": max(inner // size, 1), "head_size": size}
        twice = 1 + (hidden == WIDE_RWKV6)
        if version == 6:
            return whole | {"shift_rank": 32 * twice, "decay_rank": 64 * twice}
        if version == 7:
            return whole | _rwkv7_ranks(read, size) | ({"value_rank": None} if is_first else {})
        return whole

    return rule


def _rwkv7_ranks(read: Reader, size: int) -> dict[str, int]:
    """Return the ranks of RWKV-7, which follow from the hidden size if they are not given.

    fla/layers/rwkv7.py of fla-org/flash-linear-attention: multiples of 32 near the root of the hidden size.
    """
    root = read.size("hidden", 2048) ** 0.5
    usual = {"decay": 2.5 * size / 64, "a": 2.5 * size / 64, "v": 1.7 * size / 64, "gate": 5.0}
    names = {"decay": "decay_rank", "a": "rate_rank", "v": "value_rank", "gate": "gate_rank"}
    return {
        names[key]: read.count(f"{key}_low_rank_dim", max(32, round(factor * root / 32) * 32))
        for key, factor in usual.items()
    }


def rwkv_width(ratio: float) -> Callable[[Reader], int]:
    """Return the rule that reads the width of channel mixing: a multiple of 32, if it is not given."""

    def rule(read: Reader) -> int:
        given = read.value("factor", ("hidden_ratio",), ratio)
        times = given if isinstance(given, (int, float)) else ratio
        return read.count("intermediate_size", max(int(read.size("hidden", 2048) * times) // 32, 1) * 32)

    return rule
