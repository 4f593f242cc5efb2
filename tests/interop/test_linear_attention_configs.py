"""Hugging Face configs of Qwen3-Next, Qwen3.5 and Kimi Linear, whose blocks have linear or full attention.

Elsewhere: their parameters beside those of transformers (test_transformers_oracle.py), what engines run
(tests/serving/test_linear_attention.py).
"""

from hf_cases import faults, imported, notes_of

from flopcast.library import catalog

NEXT = {"model_type": "qwen3_next", "num_hidden_layers": 48, "max_position_embeddings": 262144}
QWEN_3_5 = {  # Qwen/Qwen3.5-397B-A17B
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 4096,
        "num_hidden_layers": 60,
        "num_attention_heads": 32,
        "linear_num_value_heads": 64,
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "mamba_ssm_dtype": "float32",
        "attn_output_gate": True,
        "rope_parameters": {"partial_rotary_factor": 0.25, "rope_type": "default"},
    },
}
KIMI = {  # moonshotai/Kimi-Linear-48B-A3B-Instruct
    "model_type": "kimi_linear", "hidden_act": "silu", "q_lora_rank": None, "mla_use_nope": True,
    "moe_router_activation_func": "sigmoid", "num_expert_group": 1, "topk_group": 1, "moe_layer_freq": 1,
    "tie_word_embeddings": False, "hidden_size": 2304, "num_hidden_layers": 27, "vocab_size": 163840,
    "rms_norm_eps": 1e-5, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 72,
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
    "routed_scaling_factor": 2.446, "moe_renormalize": True, "first_k_dense_replace": 1,
    "intermediate_size": 9216, "num_nextn_predict_layers": 0, "model_max_length": 1048576,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
        "kda_layers": [layer for layer in range(1, 28) if layer % 4 and layer != 27],
        "short_conv_kernel_size": 4,
    },
}  # fmt: skip


def kimi_parameters(hidden=2304, heads=32, size=128, vocabulary=163840):
    """Parameters of the modules of modeling_kimi.py in the repository of the checkpoint."""
    inner = heads * size
    low_rank = hidden * size + size * inner  # of decays, and of the output gate
    delta = 4 * hidden * inner + 3 * 4 * inner + 2 * low_rank + inner + heads + hidden * heads + size
    latent = hidden * heads * 192 + hidden * 576 + 512 + 512 * heads * 256 + inner * hidden
    experts = 257 * 3 * hidden * 1024 + 256 * hidden
    return (
        2 * vocabulary * hidden + hidden + 27 * 2 * hidden
        + 20 * delta + 7 * latent + 3 * hidden * 9216 + 26 * experts
    )  # fmt: skip


def test_published_sizes_make_the_models_of_the_catalogue():
    for config, name in (
        (NEXT | {"num_mtp_layers": 1}, "qwen3-next-80b-a3b"),
        (QWEN_3_5, "qwen3.5-397b-a17b"),
    ):
        ours, theirs = catalog.model(name), imported(config)

        assert theirs.parameters() == ours.parameters()
        assert theirs.active_parameters() == ours.active_parameters()
        assert [block.mixer for block in theirs.blocks] == [block.mixer for block in ours.blocks]
        assert (theirs.pattern, theirs.mtp) == (ours.pattern, ours.mtp)


def _mixers(model):
    """The mixer of each layer; blocks without a pattern stand in the order of the layers."""
    if model.pattern:
        return [model.blocks[kind].mixer for kind in model.pattern]
    return [block.mixer for block in model.blocks for _ in range(block.count)]


def test_kimi_linear_has_the_parameters_of_its_modules():
    ours, theirs = catalog.model("kimi-linear-48b-a3b"), imported(KIMI)

    assert theirs.parameters() == ours.parameters() == kimi_parameters()
    assert _mixers(theirs) == _mixers(ours)
    assert 2.9e9 < ours.active_parameters() < 3.5e9  # "A3B"
    whole = KIMI | {"linear_attn_config": KIMI["linear_attn_config"] | {"use_full_rank_gate": True}}
    more = 20 * (2304 * 4096 - 128 * (2304 + 4096))
    assert imported(whole).parameters() == ours.parameters() + more


def test_parts_of_other_kimi_models_and_wrong_layers_are_errors():
    linear = KIMI["linear_attn_config"]
    for change, field in (
        ({"attn_res_block_size": 12}, "attn_res_block_size"),
        ({"mla_use_output_gate": True}, "mla_use_output_gate"),
        ({"routed_expert_hidden_size": 1024}, "routed_expert_hidden_size"),
        ({"moe_router_activation_func": "softmax"}, "moe_router_activation_func"),
        ({"linear_attn_config": linear | {"kda_layers": [0, 1]}}, "kda_layers"),
        ({"linear_attn_config": {"head_dim": 128}}, "kda_layers"),
    ):
        (problem,) = faults(KIMI | change)

        assert field in problem.field


def test_a_list_of_layers_and_an_interval_say_the_same():
    listed = imported(NEXT | {"layer_types": (["linear_attention"] * 2 + ["full_attention"]) * 16})

    assert listed == imported(NEXT | {"full_attention_interval": 3})
    assert [block.count for block in listed.blocks] == [32, 16]


def test_a_default_stands_once_in_the_notes():
    (note,) = notes_of({key: value for key, value in NEXT.items() if key != "num_hidden_layers"})

    assert "num_hidden_layers 48" in note
    assert "full_attention_interval 4" in note


def test_layers_and_sizes_that_cannot_be_are_refused():
    refused = {
        "linear_num_key_heads": NEXT | {"linear_num_key_heads": 12},
        "layer_types": NEXT | {"layer_types": ["sliding_attention"] * 48},
        "attn_output_gate": NEXT | {"attn_output_gate": False},
    }

    assert {key: faults(config)[0].field for key, config in refused.items()} == {
        key: key for key in refused
    }
    assert "set linear_num_key_heads to" in faults(refused["linear_num_key_heads"])[0].fix
