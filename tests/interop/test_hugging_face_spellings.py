"""Configs as transformers 5 saves them, and configs of models that are no causal language models.

A config means the same in the spelling of version 4 and of version 5. Version 5 renames keys by the
`attribute_map` of a family (`num_experts` → `num_local_experts`, `torch_dtype` → `dtype`), and gathers what
belongs to rotary positions in `rope_parameters`.
"""

import json

import pytest
from hf_cases import faults, imported, notes_of, published, read

from flopcast.files.yaml_text import MAX_BYTES, read_yaml
from flopcast.interop.hugging_face.config import model_from_config

QWEN3_CODER_480B = {  # Qwen/Qwen3-Coder-480B-A35B-Instruct, in the spelling of transformers 5
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "attention_bias": False,
    "decoder_sparse_step": 1, "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 6144, "intermediate_size": 8192, "max_position_embeddings": 262144,
    "max_window_layers": 62, "mlp_only_layers": [], "moe_intermediate_size": 2560,
    "norm_topk_prob": True, "num_attention_heads": 96, "num_experts_per_tok": 8,
    "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 160,
    "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"}, "sliding_window": None,
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
RENAMED = {  # published config → keys that version 5 saves instead of others
    "qwen3-30b-a3b": ({"num_experts": None}, {"num_local_experts": 128}),
    "qwen1.5-moe-a2.7b": ({"sliding_window": None}, {"sliding_window": 0, "qkv_bias": True}),
    "mistral-7b": ({"torch_dtype": None}, {"dtype": "bfloat16"}),
    "phi-2": ({"partial_rotary_factor": None}, {"rope_parameters": {"partial_rotary_factor": 0.4}}),
    "gpt-neox-20b": ({"rotary_pct": None}, {"rope_parameters": {"partial_rotary_factor": 0.25}}),
    "gemma-2-9b": (
        {"attn_logit_softcapping": None},
        {"attn_logit_softcapping": 50.0, "layer_types": ["sliding_attention", "full_attention"] * 21},
    ),
    "deepseek-v3": ({"n_routed_experts": None}, {"num_local_experts": 256, "mlp_bias": False}),
    "gemma-3-1b": (
        {},
        {"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "default"}}},
    ),
}


def test_the_480b_model_of_qwen_has_its_parameters_in_the_spelling_of_version_5():
    attention = 2 * 6144 * 96 * 128 + 2 * 6144 * 8 * 128 + 2 * 128
    experts = 160 * (3 * 6144 * 2560 + 6144)
    by_hand = 2 * 151936 * 6144 + 62 * (attention + experts + 2 * 6144) + 6144

    model = imported(QWEN3_CODER_480B)

    assert model.parameters() == by_hand
    assert by_hand / 1e9 == pytest.approx(480, rel=2e-3)  # the model's name


def test_a_config_means_the_same_in_both_spellings():
    differ = []
    for name, (gone, new) in RENAMED.items():
        before, _ = model_from_config(read(published(name)))
        after, _ = model_from_config(read(published(name, **gone) | new))
        differ += [name] if before != after else []

    assert not differ


def test_the_part_of_a_head_that_is_rotated_counts_inside_rope_parameters_too():
    told = {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}}

    (block,) = imported(published("phi-2", partial_rotary_factor=None) | told).blocks

    assert block.mixer.rotary_fraction == 0.5


def test_zero_shared_experts_and_zero_latents_are_none():
    model = imported(published("deepseek-v2-lite") | {"n_shared_experts": 0, "q_lora_rank": 0})

    assert {
        block.feed_forward.shared_experts for block in model.blocks if block.feed_forward.kind == "experts"
    } == {0}
    assert model.blocks[0].mixer.q_lora_rank is None


def test_layers_of_experts_may_be_listed_by_kind():
    listed = {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * 46}

    model = imported(published("qwen3-30b-a3b") | listed)

    assert [(b.count, b.feed_forward.kind) for b in model.blocks] == [(2, "mlp"), (46, "experts")]


def test_a_kind_of_layer_that_is_not_built_is_refused_in_every_family():
    kinds = ["linear_attention", "full_attention"] * 16

    (problem,) = faults(published("llama-2-7b") | {"layer_types": kinds})

    assert problem.field == "layer_types"


def test_biases_of_internlm3_stand_in_two_keys():
    wide = imported(published("internlm3-8b") | {"qkv_bias": True, "bias": True})

    extra = wide.parameters() - imported("internlm3-8b").parameters()

    assert extra == 48 * ((4096 + 2 * 256) + 4096 + (2 * 10240 + 4096))


OTHER_HEADS = {
    "LlamaForSequenceClassification": "LlamaForCausalLM",
    "Qwen2ForTokenClassification": "Qwen2ForCausalLM",
    "Qwen2ForRewardModel": "Qwen2ForCausalLM",
    "MistralForQuestionAnswering": "MistralForCausalLM",
    "LlamaBidirectionalModel": "LlamaForCausalLM",
    "LlamaBidirectionalForSequenceClassification": "LlamaForCausalLM",
}


def test_a_model_with_another_head_is_refused_with_the_one_that_is_built():
    for name, causal in OTHER_HEADS.items():
        (problem,) = faults(published("llama-2-7b") | {"architectures": [name]})

        assert (problem.field, problem.allowed, problem.where) == ("architectures", causal, "config.json:2")
        assert causal in problem.fix


def test_a_model_of_several_parts_is_judged_by_its_own_class():
    data = published("gemma-3-4b") | {"architectures": ["Gemma3ForSequenceClassification"]}

    assert [problem.field for problem in faults(data)] == ["architectures"]


def test_attention_in_both_directions_is_refused_by_its_key():
    (problem,) = faults(published("qwen3-8b") | {"is_causal": False})

    assert problem.field == "is_causal"


def test_a_class_without_a_head_is_counted_with_one_and_noted():
    notes = notes_of(published("bloom-560m") | {"architectures": ["BloomModel"]})

    assert any("BloomModel has no head" in note for note in notes)


def test_a_config_with_twenty_thousand_labels_is_read():
    labels = {f"{number}": f"a label of this data set, {number}" for number in range(25_000)}
    raw = json.dumps(published("qwen3-0.6b") | {"id2label": labels}, indent=1).encode()
    assert 1_000_000 < len(raw) < MAX_BYTES

    mapping, _ = model_from_config(read_yaml(raw, "config.json"))

    assert mapping["hidden"] == 1024


def test_sizes_under_names_that_a_family_does_not_know_are_no_defaults():
    """A config of llama with `hidden_dim` was read with the hidden size of Llama 7B."""
    sizes = {"model_type": "llama", "num_hidden_layers": 4, "vocab_size": 32000}

    for key, near in {
        "hidden_dim": "hidden",
        "n_experts_per_group": "expert",
        "mlp_hidden": "hidden",
    }.items():
        (problem,) = faults(sizes | {key: 8192})

        assert (problem.field, problem.fault) == (key, "is not known")
        assert near in problem.because


def test_names_of_sizes_in_configs_of_metas_models_are_read():
    told = {"model_type": "llama", "dim": 2048, "n_layers": 4, "n_heads": 32, "n_kv_heads": 8}

    model = imported(told | {"vocab_size": 32000, "intermediate_size": 8192})

    (block,) = model.blocks
    assert (model.hidden, block.count, block.mixer.heads, block.mixer.kv_heads) == (2048, 4, 32, 8)


def test_a_wrong_spelling_of_none_is_answered_with_the_right_one():
    changes = {"attention_dropout": ("none", "0"), "num_key_value_heads": ("None", "null")}
    for key, (written, right) in changes.items():
        (problem,) = faults(published("mistral-7b", **{key: written}))
        assert problem.fix == f"set {key} to {right}, which means none"
        imported(published("mistral-7b") | {key: json.loads(right)})
