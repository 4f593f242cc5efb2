"""DeepSeek's architecture in Hugging Face configs: latent attention, its experts, further predictions.

Answers: what do the keys of deepseek_v2, deepseek_v3 and kimi_k2 say beyond those of other families?
Elsewhere: the facts that all families have (families.py), the layers (layers/latent_attention.py,
layers/experts.py, layers/multi_token.py).

Defaults are those of DeepseekV2Config and DeepseekV3Config in Hugging Face transformers. Scaling of routes
(`routed_scaling_factor`) and of rotary positions changes no time that is counted.
"""

from collections.abc import Callable

from flopcast.interop.hugging_face.values import Reader

Part = Callable[[Reader], dict[str, object]]


def latent_attention(q_lora_rank: int) -> Part:
    """Return sizes of latents and heads; a `q_lora_rank` of null means queries without a latent."""

    def rule(read: Reader) -> dict[str, object]:
        read.used.update(("num_key_value_heads", "head_dim"))  # as many as heads; the rotated part
        rank = read.value("count", ("q_lora_rank",), q_lora_rank, optional=True, zero_is_none=True)
        return {
            "q_lora_rank": rank,
            "kv_lora_rank": read.count("kv_lora_rank", 512),
            "qk_nope_head_size": read.count("qk_nope_head_dim", 128),
            "qk_rope_head_size": read.count("qk_rope_head_dim", 64),
            "value_head_size": read.count("v_head_dim", 128),
        }

    return rule


def deepseek_v2_experts(read: Reader) -> dict[str, object]:
    """Return experts with softmax scores; `topk_method` says whether tokens are limited to groups (2.0)."""
    limited = read.raw("topk_method") not in ("greedy", "gready", None)
    groups = _groups(read, 1, 1) if limited else {}
    read.used.update(("n_group", "topk_group", "scoring_func"))
    return _experts(read, 64, 2, 1407) | groups


def deepseek_v3_experts(read: Reader) -> dict[str, object]:
    """Return experts with sigmoid scores, a bias that follows the loads, and groups."""
    read.used.update(("scoring_func", "topk_method"))
    return (
        _experts(read, 256, 1, 2048)
        | _groups(read, 8, 4)
        | {"router": "sigmoid", "selection_bias": True, "router_dtype": "fp32"}
    )


def _experts(read: Reader, experts: int, shared: int, width: int) -> dict[str, object]:
    """Return keys that all of these families have, and the balancing loss if it has a weight."""
    number = read.value("count", ("n_shared_experts",), shared, optional=True, zero_is_none=True)
    return {
        "num_experts": read.size("experts", experts),
        "top_k": read.count("num_experts_per_tok", 8),
        "expert_hidden": read.count("moe_intermediate_size", width),
        "shared_experts": number or 0,
        "auxiliary_loss": bool(read.value("weight", ("aux_loss_alpha",), None, optional=True)),
    }


def _groups(read: Reader, groups: int, chosen: int) -> dict[str, object]:
    return {"expert_groups": read.count("n_group", groups), "top_groups": read.count("topk_group", chosen)}


def leading_dense_layers(default: int) -> Callable[[Reader], tuple[int, ...]]:
    """Return the first `first_k_dense_replace` layers, and all but every `moe_layer_freq`-th of the others.

    Layer i has experts where i is at least the first number and a multiple of the second
    (DeepseekV2DecoderLayer, in the repository of the checkpoint).
    """

    def rule(read: Reader) -> tuple[int, ...]:
        leading, step = read.whole("first_k_dense_replace", default), read.count("moe_layer_freq", 1)
        return tuple(i for i in range(read.size("layers", 30)) if i < leading or i % step)

    return rule


def further_predictions(read: Reader) -> int:
    """Return the number of multi-token prediction modules of the model, 0 if no key gives it.

    `num_mtp_layers` is the key of transformers 5.
    """
    key = "num_nextn_predict_layers"
    if read.raw(key) is None:
        key = "num_mtp_layers"
    return read.count(key, 1) if read.raw(key) not in (None, 0) else 0
