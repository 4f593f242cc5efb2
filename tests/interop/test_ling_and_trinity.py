"""Configs of Ling (bailing_moe) and Trinity (afmoe), against the tensors in the code of their models.

Sources: models/modeling_bailing_moe_v2.py of inclusionAI/Ling-V2, whose attention and experts Ling 1.5
has without norms of heads; src/transformers/models/afmoe/modular_afmoe.py of huggingface/transformers. The
bias of the router, which follows the loads of experts, is a buffer in the first, and is not trained in the
second.
"""

import pytest
from hf_cases import imported

LING_LITE = {  # inclusionAI/Ling-lite-1.5
    "model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 1408, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 126464, "first_k_dense_replace": 0,
    "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408,
    "use_bias": False, "use_qkv_bias": False, "norm_head": False, "norm_softmax": False,
    "max_position_embeddings": 32768, "tie_word_embeddings": False,
}  # fmt: skip
LING_MINI = {  # inclusionAI/Ling-mini-2.0, which has the type of Ling 1.5
    "model_type": "bailing_moe", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
    "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 157184,
    "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 512,
    "moe_shared_expert_intermediate_size": 512, "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4,
    "score_function": "sigmoid", "moe_router_enable_expert_bias": True, "partial_rotary_factor": 0.5,
    "use_qk_norm": True, "use_qkv_bias": False, "use_bias": False, "max_position_embeddings": 32768,
    "tie_word_embeddings": False, "num_nextn_predict_layers": 0,
}  # fmt: skip
LING_FLASH = LING_MINI | {  # sizes of inclusionAI/Ling-flash-2.0
    "model_type": "bailing_moe_v2", "hidden_size": 4096, "intermediate_size": 9216, "num_hidden_layers": 32,
    "num_attention_heads": 32, "moe_intermediate_size": 1024,
}  # fmt: skip
TRINITY_NANO = {  # arcee-ai/Trinity-Nano-Preview
    "model_type": "afmoe", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 56,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 200192,
    "num_experts": 128, "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 256,
    "num_dense_layers": 2, "global_attn_every_n_layers": 4, "sliding_window": 2048, "mup_enabled": True,
    "score_func": "sigmoid", "route_norm": True, "route_scale": 2.826, "n_group": 1, "topk_group": 1,
    "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
TRINITY_MINI = TRINITY_NANO | {  # arcee-ai/Trinity-Mini
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 4, "moe_intermediate_size": 1024,
}  # fmt: skip


def counted(config, dense, *, norms, normed_heads, gate):
    """Sum the tensors of a model with `dense` leading layers without experts."""
    hidden, heads, groups = (
        config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    size = config.get("head_dim", hidden // heads)
    attention = hidden * size * ((2 + gate) * heads + 2 * groups) + 2 * size * normed_heads
    expert = 3 * hidden * config["moe_intermediate_size"]
    experts = (config["num_experts"] + config["num_shared_experts"]) * expert
    sparse = experts + hidden * config["num_experts"]
    layers = config["num_hidden_layers"]
    of_layers = layers * (attention + norms * hidden) + (layers - dense) * sparse
    of_layers += dense * 3 * hidden * config["intermediate_size"]
    return 2 * config["vocab_size"] * hidden + hidden + of_layers


PUBLISHED = (  # tensors, then the billions of all and of active parameters that the publishers print
    (LING_LITE, (0, 2, False, False), 16.8, 2.75),  # README.md of inclusionAI/Ling
    (LING_MINI, (1, 2, True, False), 16.26, 1.43),  # deepwiki.com/inclusionAI/Ling-V2
    (LING_FLASH, (1, 2, True, False), None, 6.1),  # 100, rounded
    (TRINITY_NANO, (2, 4, True, True), None, 1.0),  # arXiv abstract of Trinity Large: 6 and 1, rounded
    (TRINITY_MINI, (2, 4, True, True), 26, None),  # 26 and 3, rounded
)


def test_parameters_are_those_of_all_tensors_and_those_published():
    for config, (dense, norms, normed, gate), billions, active in PUBLISHED:
        model = imported(config)

        assert model.parameters() == counted(config, dense, norms=norms, normed_heads=normed, gate=gate)
        if billions:
            assert model.parameters() / 1e9 == pytest.approx(billions, rel=0.005)
        if active:
            assert model.active_parameters() / 1e9 == pytest.approx(active, rel=0.03)


def test_the_scores_of_ling_tell_its_routers_apart():
    old, new = (imported(config).blocks[-1].feed_forward for config in (LING_LITE, LING_MINI))

    assert (old.router, old.selection_bias, old.expert_groups) == ("softmax", False, 1)
    assert (new.router, new.selection_bias, new.expert_groups, new.top_groups) == ("sigmoid", True, 8, 4)
    assert imported(LING_MINI).blocks[0].mixer == imported(LING_MINI).blocks[1].mixer
    assert imported(LING_MINI) == imported(LING_MINI | {"model_type": "bailing_moe_v2"}).model_copy(
        update={"name": "bailing_moe", "source": imported(LING_MINI).source}
    )


def test_every_fourth_layer_of_trinity_sees_all_tokens_and_has_no_rotary_positions():
    kinds = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 14

    for config in (TRINITY_NANO, TRINITY_NANO | {"layer_types": kinds}):
        model = imported(config)
        mixers = [mixer for block in model.blocks for mixer in [block.mixer] * block.count]

        assert sum(mixer.window == 2048 for mixer in mixers) == 42
        assert all((mixer.rotary_fraction == 0.0) == (mixer.window is None) for mixer in mixers)
        assert all(mixer.out_gate and mixer.qk_norm == "per_head" for mixer in mixers)
