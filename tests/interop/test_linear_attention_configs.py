"""Hugging Face configs of Qwen3-Next and Qwen3.5, whose blocks have linear or full attention.

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
