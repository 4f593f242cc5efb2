"""Experts in Hugging Face configs: how many, how wide, in which layers.

Answers: how many experts does each family's config describe, how wide are they, and which layers are dense?
Elsewhere: the other facts of these families (families.py), the layer itself (layers/experts.py).

Transformers 5 saves the number of experts of every family as `num_local_experts`, and version 4 used
several names, so all of these names are read as one fact. `norm_topk_prob`, which scales the selected
scores to sum to 1, changes no predicted time.
"""

from collections.abc import Callable

from flopcast.interop.hugging_face.values import Reader

Rule = Callable[[Reader], dict[str, object]]


def _is_number(layer: object) -> bool:
    """Return whether a value may be the number of a layer."""
    return type(layer) is int and layer >= 0


NUMBERS = (_is_number, "a list of numbers of layers")  # of lists that name layers


def _has_loss(read: Reader) -> bool:
    """Return whether the router has a load-balancing loss, with a coefficient above 0."""
    return read.value("weight", ("router_aux_loss_coef",), None, optional=True) != 0


def _as_wide_as_mlps(experts: int, top_k: int, width: int, **others: object) -> Rule:
    """Return the rule of a family whose `intermediate_size` is the width of its experts.

    Parameters
    ----------
    experts, top_k, width : int
        The family's defaults, for keys that a config leaves out.
    others : object
        Fields of the experts that every config of the family shares.
    """

    def rule(read: Reader) -> dict[str, object]:
        return {
            "num_experts": read.size("experts", experts),
            "top_k": read.count("num_experts_per_tok", top_k),
            "expert_hidden": read.size("ffn_hidden", width),
            "auxiliary_loss": _has_loss(read),
        } | others

    return rule


mixtral_experts = _as_wide_as_mlps(8, 2, 14336)
grok_experts = _as_wide_as_mlps(8, 2, 32768)
olmoe_experts = _as_wide_as_mlps(64, 8, 2048)
granite_experts = _as_wide_as_mlps(8, 2, 11008)
minimax_experts = _as_wide_as_mlps(256, 8, 1536, router="sigmoid", selection_bias=True)
gpt_oss_experts = _as_wide_as_mlps(128, 4, 2880, expert_bias=True, gate_clamp=True, router_bias=True)


def qwen2_experts(read: Reader) -> dict[str, object]:
    """Return experts of their own width, and a shared one with a gate; defaults of Qwen1.5-MoE-A2.7B."""
    return _qwen(read, 60, 4, 1408) | {
        "shared_experts": 1,
        "shared_hidden": read.count("shared_expert_intermediate_size", 5632),
        "shared_gate": True,
    }


def qwen3_experts(read: Reader) -> dict[str, object]:
    """Return experts of their own width, none shared; defaults of Qwen3-30B-A3B."""
    return _qwen(read, 128, 8, 768)


def _qwen(read: Reader, experts: int, top_k: int, width: int) -> dict[str, object]:
    """Return keys that both of Qwen's families have."""
    return {
        "num_experts": read.size("experts", experts),
        "top_k": read.count("num_experts_per_tok", top_k),
        "expert_hidden": read.count("moe_intermediate_size", width),
        "auxiliary_loss": _has_loss(read),
    }


def dense_layers(read: Reader) -> tuple[int, ...]:
    """Return layers without experts: those of `mlp_only_layers`, and all but every n-th.

    Layer i has experts where `decoder_sparse_step` divides i + 1 (Qwen2MoeConfig of transformers).
    """
    listed = read.entries("mlp_only_layers", *NUMBERS) or []
    layers, step = range(read.size("layers", 24)), read.count("decoder_sparse_step", 1)
    return tuple(layer for layer in layers if layer in listed or (layer + 1) % step)


def layers_called_dense(read: Reader, number: int) -> tuple[int, ...] | None:
    """Return layers that `mlp_layer_types` calls dense, None if there is no such list (transformers 5)."""
    kinds = read.entries(
        "mlp_layer_types",
        ("dense", "sparse").__contains__,
        f'a list of {number}: "dense" or "sparse"',
        number,
    )
    return None if kinds is None else tuple(layer for layer, kind in enumerate(kinds) if kind == "dense")


def llama4_experts(read: Reader) -> dict[str, object]:
    """Return experts and a shared one as wide as `intermediate_size`; defaults of Llama 4 Scout."""
    return {
        "num_experts": read.size("experts", 16),
        "top_k": read.count("num_experts_per_tok", 1),
        "expert_hidden": read.count("intermediate_size", 8192),
        "shared_experts": 1,
        "router": "sigmoid",
        "auxiliary_loss": _has_loss(read),
    }


def llama4_dense_layers(read: Reader) -> tuple[int, ...]:
    """Return layers that `moe_layers` does not list; without a list, all but every n-th."""
    listed, layers = read.entries("moe_layers", *NUMBERS), range(read.size("layers", 48))
    step = read.count("interleave_moe_layer_step", 1)
    if listed is None:
        return tuple(layer for layer in layers if (layer + 1) % step)
    return tuple(sorted(set(layers).difference(listed)))


def glm_experts(experts: int, shared: int, top_k: int) -> Rule:
    """Return the rule of experts with sigmoid scores and a load-balancing bias (GLM-4.5, dots.llm1)."""

    def rule(read: Reader) -> dict[str, object]:
        read.used.update(("scoring_func", "topk_method", "n_group", "topk_group"))
        number = read.value("count", ("n_shared_experts",), shared, optional=True, zero_is_none=True)
        return {
            "num_experts": read.size("experts", experts),
            "top_k": read.count("num_experts_per_tok", top_k),
            "expert_hidden": read.count("moe_intermediate_size", 1408),
            "shared_experts": number or 0,
            "router": "sigmoid",
            "selection_bias": True,
            "router_dtype": "fp32",
            "auxiliary_loss": False,
        }

    return rule


def granite_shared_experts(read: Reader) -> dict[str, object]:
    """Return Granite's experts, and a shared expert if `shared_intermediate_size` is above 0."""
    width = read.value("count", ("shared_intermediate_size",), 0, optional=True, zero_is_none=True)
    shared = {"shared_experts": 1, "shared_hidden": width} if width else {}
    return granite_experts(read) | shared


def hunyuan_experts(read: Reader) -> dict[str, object]:
    """Return experts and a shared one of width `intermediate_size`; all layers must be equal."""
    numbers = {}
    for key, default in (("num_experts", 1), ("moe_topk", 1)):
        value = read.raw(key)
        if isinstance(value, list) and len(set(map(str, value))) == 1:
            value = value[0]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            read.fault(
                key, "one whole number for all layers", "layers that differ are not supported", "mend it"
            )
            value = default
        numbers[key] = value or default
    return {
        "num_experts": numbers["num_experts"],
        "top_k": numbers["moe_topk"],
        "expert_hidden": read.size("ffn_hidden", 11008),
        "shared_experts": 1,
        "auxiliary_loss": False,
    }


def ernie_experts(read: Reader) -> dict[str, object]:
    """Return experts with their own width, shared experts and a load-balancing bias (ERNIE 4.5)."""
    number = read.value("count", ("moe_num_shared_experts",), 2, optional=True, zero_is_none=True)
    return {
        "num_experts": read.size("experts", 64),
        "top_k": read.count("moe_k", 6),
        "expert_hidden": read.count("moe_intermediate_size", 1536),
        "shared_experts": number or 0,
        "selection_bias": True,
        "router_dtype": "fp32",
        "auxiliary_loss": _has_loss(read),
    }


def ernie_dense_layers(read: Reader) -> tuple[int, ...]:
    """Return the dense layers: outside the first and last with experts, and those between the intervals."""
    layers, step = read.size("layers", 28), read.count("moe_layer_interval", 1)
    start, end = read.whole("moe_layer_start_index", 1), layers - 1
    if read.raw("moe_layer_end_index") != -1:  # which means the last layer
        end = read.whole("moe_layer_end_index", end)
    return tuple(i for i in range(layers) if (i + 1) % step or not start <= i <= end)


def dbrx_experts(read: Reader) -> dict[str, object]:
    """Return the experts that `ffn_config` describes, with the defaults of DbrxFFNConfig."""
    return {
        "num_experts": read.count("ffn_config.moe_num_experts", 4),
        "top_k": read.count("ffn_config.moe_top_k", 1),
        "expert_hidden": read.count("ffn_config.ffn_hidden_size", 3584),
        "auxiliary_loss": read.value("weight", ("ffn_config.moe_loss_weight",), None, optional=True) != 0,
    }
