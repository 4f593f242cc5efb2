"""What an import of a Hugging Face config notes, and which configs it refuses with which words."""

import json
from collections import Counter

import pytest
from all_cases import all_cases
from hf_cases import faults, imported, notes_of, published
from hypothesis import given
from hypothesis import strategies as st

from flopcast.errors import SpecError
from flopcast.files.yaml_text import read_yaml
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.interop.hugging_face.unsupported import ELSEWHERE
from flopcast.interop.hugging_face.windows import runs


def test_a_config_that_says_everything_needs_no_notes():
    assert notes_of("stablelm-2-1.6b") == ()


@pytest.mark.parametrize(
    ("name", "note"), [("command-r-v01", "logit_scale: the time of scaling or clipping tensors is ignored")]
)
def test_what_is_imported_as_something_simpler_is_noted(name, note):
    assert note in notes_of(name)


def test_defaults_are_taken_from_the_family_and_told():
    """LLaVA's text part names its vocabulary and context alone: the rest is LlamaConfig's."""
    model, notes = imported("llava-1.5-7b"), notes_of("llava-1.5-7b")

    (told,) = [
        note for note in notes if note.startswith("keys that config.json omits have the defaults of llama:")
    ]
    assert (model.hidden, model.num_blocks, model.blocks[0].mixer.heads) == (4096, 32, 32)
    for words in ("hidden_size 4096", "num_hidden_layers 32", "intermediate_size 11008"):
        assert words in told
    assert "vocab_size" not in told


@pytest.mark.parametrize(
    ("key", "near"),
    [("bias_dropout_fusoin", "bias_dropout_fusion"), ("rms_norm_epsilon", "rms_norm_eps"), ("zzz", None)],
)
def test_an_unknown_key_is_told_with_the_nearest_that_is_known(key, near):
    (told,) = [note for note in notes_of(published("llama-2-7b") | {key: 7}) if key in note]

    assert told.endswith(f"did you mean {near}?") if near else "did you mean" not in told


@all_cases("key", ["bos_token_id", "initializer_range", "use_cache", "transformers_version"])
def test_a_key_without_a_cost_is_passed_over_in_silence(key):
    assert not [note for note in notes_of("llama-2-7b") if key in note]


@pytest.mark.parametrize(
    ("key", "counted"), [("layerdrop", "all layers"), ("activation_dropout", "is ignored")]
)
def test_work_that_chance_leaves_out_is_noted_where_there_is_any(key, counted):
    some, none = (
        notes_of(published("opt-125m", **{key: 0.1})),
        notes_of(published("opt-125m", **{key: 0.0})),
    )

    (said,) = [note for note in some if note.startswith(f"{key} = 0.1: ")]
    assert counted in said
    assert not [note for note in none if key in note]


def test_a_quantised_checkpoint_is_the_model_that_was_quantised():
    data = published("llama-2-7b") | {"quantization_config": {"quant_method": "gptq", "bits": 4}}

    assert imported(data) == imported("llama-2-7b")
    assert any("quantization_config" in note for note in notes_of(data))


def test_layers_and_names_of_gpt_neox_that_do_nothing_are_told():
    """The published file has two keys of another class; transformers ignores them too."""
    told = " ".join(notes_of("gpt-neox-20b"))

    assert "attention_probs_dropout_prob" in told
    assert "hidden_dropout_prob" in told


REFUSED = {
    "arctic": "mixture-of-experts layers",
    "jetmoe": "mixture-of-experts layers",
    "minicpm3": "latent attention",
    "marian": "encoder-decoder models",
    "bert": "this model is an encoder",
    "zamba2": "state-space",
    "falcon_h1": "attention and Mamba-2 side by side",
    "ernie4_5_vl_moe": "experts of different widths",
    "gemma3n": "several residual streams",
    "lfm2": "short convolution",
    "bailing_moe_linear": "lightning attention",
}


@all_cases("name", REFUSED)
def test_an_architecture_that_is_not_built_is_refused_with_its_reason(name):
    (problem,) = faults({"model_type": name, "hidden_size": 64})

    assert (problem.field, problem.value, problem.where) == ("model_type", name, "config.json:2")
    assert REFUSED[name] in problem.because
    assert set(problem.allowed.split(", ")[:-1]) < set(FAMILIES)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("lama", "did you mean llama?"),
        ("qwen4", "did you mean qwen"),
        ("zzzzzz", "trace the code of the model"),
    ],
)
def test_an_unknown_family_is_refused_with_the_nearest(name, fix):
    (problem,) = faults({"model_type": name})

    assert fix in problem.fix


TRACE = "flopcast import hf-model config.json --trace -o model.yaml"


def test_every_refusal_of_a_model_names_the_command_that_traces_it():
    llama = {"model_type": "llama", "num_attention_heads": 32}
    refused = {name: {"model_type": name} for name in (*ELSEWHERE, "zzzzzz", "lama")}
    refused |= {
        "experts of a dense family": llama | {"num_experts": 8},
        "latents of a dense family": llama | {"kv_lora_rank": 64},
        "layers of another kind": llama | {"layer_types": ["linear_attention"] * 32},
        "a value that makes another architecture": {"model_type": "phi", "qk_layernorm": True},
    }

    fixes = {name: [each.fix for each in faults(config)] for name, config in refused.items()}

    assert [name for name, told in fixes.items() if not any(TRACE in fix for fix in told)] == []
    for name in ("marian", "bert"):
        assert fixes[name][0].startswith("choose another model")


BROKEN = {  # changes of Llama-2 7B → field, what would pass, why
    "text for a number": ({"hidden_size": "4096"}, "hidden_size", "a whole number", "the value is a text"),
    "a fraction": (
        {"num_hidden_layers": 31.5},
        "num_hidden_layers",
        "a whole number",
        "transformers expects",
    ),
    "nothing": ({"num_attention_heads": 0}, "num_attention_heads", "at least 1", "transformers expects"),
    "below nothing": ({"vocab_size": -1}, "vocab_size", "at least 1", "transformers expects"),
    "truth for a number": (
        {"intermediate_size": True},
        "intermediate_size",
        "or null",
        "transformers expects",
    ),
    "a list": (
        {"max_position_embeddings": [4096]},
        "max_position_embeddings",
        "a whole number",
        "transformers expects",
    ),
    "number for truth": (
        {"tie_word_embeddings": 1},
        "tie_word_embeddings",
        "true or false",
        "transformers expects",
    ),
    "text for truth": ({"attention_bias": "no"}, "attention_bias", "true or false", "transformers expects"),
    "certain dropout": ({"attention_dropout": 1.0}, "attention_dropout", "below 1", "transformers expects"),
    "odd heads": (
        {"num_attention_heads": 30},
        "num_attention_heads",
        "divisor of hidden_size",
        "same size",
    ),
    "odd groups": (
        {"num_key_value_heads": 5},
        "num_key_value_heads",
        "a divisor of num_att",
        "same number",
    ),
    "an activation": ({"hidden_act": "mish"}, "hidden_act", "silu", "not support other activations"),
    "an ungated one": ({"hidden_act": "relu"}, "hidden_act", "silu", "not support other activations"),
    "an activation's number": ({"hidden_act": 3}, "hidden_act", "a string", "transformers expects"),
    "a number format": ({"torch_dtype": "float15"}, "torch_dtype", "bfloat16", "stored"),
    "two widths": ({"n_embd": 2048}, "n_embd", "4096", "hidden_size is another name of this setting"),
    "experts": (
        {"num_local_experts": 8},
        "num_local_experts",
        "a llama decoder without this setting",
        "experts",
    ),
    "a latent": ({"kv_lora_rank": 512}, "kv_lora_rank", "a llama decoder without this setting", "latent"),
    "an encoder": ({"is_encoder_decoder": True}, "is_encoder_decoder", "false", "encoder"),
    "half a decoder": ({"add_cross_attention": True}, "add_cross_attention", "false", "encoder"),
    "no mask": (
        {"use_bidirectional_attention": True},
        "use_bidirectional_attention",
        "false",
        "imports only decoders",
    ),
}


@all_cases(("changes", "field", "allowed", "because"), BROKEN.values())
def test_a_broken_config_is_told_what_would_pass_and_where(changes, field, allowed, because):
    text = json.dumps(published("llama-2-7b") | changes, indent=1)
    (line,) = [n for n, line in enumerate(text.splitlines(), 1) if f'"{field}":' in line]

    (problem,) = faults(text)

    assert (problem.field, problem.value, problem.fault) == (field, changes[field], "")
    assert allowed in problem.allowed
    assert because in problem.because
    assert problem.where == f"config.json:{line}"


SPECIAL = {  # keys of one family whose other values are another architecture
    "post-norm": ("opt-125m", {"do_layer_norm_before": False}, "do_layer_norm_before", "OPT-350M"),
    "projection": ("opt-125m", {"word_embed_proj_dim": 512}, "word_embed_proj_dim", "OPT-350M"),
    "normed heads": ("phi-2", {"qk_layernorm": True}, "qk_layernorm", "not supported"),
    "per-head": ("command-r-v01", {"use_qk_norm": True}, "use_qk_norm", "not supported"),
    "gated": ("starcoder2-7b", {"mlp_type": "gated"}, "mlp_type", "not supported"),
    "turned": ("gpt-j-6b", {"rotary_dim": 512}, "rotary_dim", "rotary_dim elements of each head"),
}


@all_cases(("name", "changes", "field", "because"), SPECIAL.values())
def test_a_variant_of_a_family_that_is_not_built_is_refused(name, changes, field, because):
    (problem,) = faults(published(name) | changes)

    assert (problem.field, problem.value) == (field, changes[field])
    assert because in problem.because


def test_every_fault_is_told_at_once_with_its_line():
    text = '{\n"model_type": "gpt2",\n"n_embd": "wide",\n"n_layer": 0,\n"attn_pdrop": 2,\n"n_head": 12}'

    told = {problem.field: problem.where for problem in faults(text)}

    assert told == {"n_embd": "config.json:3", "n_layer": "config.json:4", "attn_pdrop": "config.json:5"}


def test_a_fault_inside_a_part_is_told_with_its_whole_path():
    data = published("gemma-3-27b")
    data["text_config"]["hidden_size"] = -1

    (problem,) = faults(data)

    assert problem.field == "text_config.hidden_size"


def test_a_fault_inside_attention_of_mpt_is_told_with_its_whole_path():
    data = published("mpt-7b")
    data["attn_config"]["attn_type"] = "grouped_query_attention"

    (problem,) = faults(data)

    assert (problem.field, problem.allowed) == ("attn_config.attn_type", '"multihead_attention"')


@all_cases("text", ["[]", "null", "7", '"llama"'])
def test_what_is_no_mapping_is_no_config(text):
    with pytest.raises(SpecError) as told:
        model_from_config(read_yaml(text.encode(), "config.json"))

    assert [problem.field for problem in told.value.problems] == ["document"]


def test_a_config_without_a_family_says_that_it_needs_one():
    (problem,) = faults({"hidden_size": 64})

    assert (problem.field, problem.because) == (
        "architectures",
        "flopcast determines the family of a model from this key",
    )


def test_a_number_of_layers_that_no_model_has_is_refused_at_once():
    for layers in (4097, 10**9):
        (problem,) = faults(published("gemma-3-1b", num_hidden_layers=layers, layer_types=None))

        assert problem.field == "num_hidden_layers"
        assert problem.allowed == "a whole number from 1 to 4096"


@given(st.lists(st.sampled_from("lg"), min_size=1, max_size=14))
def test_the_pattern_of_layers_is_the_shortest_that_repeats(kinds):
    pairs, pattern = runs(kinds)

    sizes = range(1, len(kinds) // 2 + 1)
    repeats = [n for n in sizes if all(kind == kinds[i % n] for i, kind in enumerate(kinds))]
    if pattern:
        assert (len(pattern), dict(pairs)) == (repeats[0], Counter(kinds))
    else:
        assert [kind for kind, count in pairs for _ in range(count)] == kinds


WRONG_VALUES = {  # family of 4 layers, key → values that the key cannot have
    ("cohere", "architectures"): ("CohereForCausalLM", [{}], {"CohereForCausalLM": 1}),
    ("gpt_neo", "attention_layers"): ("all", ["local"] * 5, ["loc"] * 4, [{}] * 4),
    ("gpt_neo", "attention_types"): (
        "all", [3], [["global", "local"], 2], [[["global"], -4]], [[["global"], 10**9]], [[["loc"], 4]],
    ),
    ("gemma2", "layer_types"): ("all", ["full_attention"] * 5),
    ("qwen3_moe", "mlp_layer_types"): ("dense", ["dense"] * 5, ["dens"] * 4, [{}] * 4),
    ("qwen3_moe", "mlp_only_layers"): ("first", [-1], [True], ["0"], {}, 0),
    ("llama4_text", "moe_layers"): ("all", [-1], [{}], ["0"], {}, 0),
    ("llama4_text", "no_rope_layers"): ("all", {"0": 1}, [1, 0], [2] * 4, ["0"] * 4, [{}] * 4),
    ("deepseek_v3", "first_k_dense_replace"): ("3", True, 2.0, -1, [1]),
    ("ernie4_5_moe", "moe_layer_start_index"): ("3", True, 2.0, -1, [1]),
    ("ernie4_5_moe", "moe_layer_end_index"): ("3", True, 2.0, -2, [1]),
    ("mixtral", "router_aux_loss_coef"): ("0", True, -0.1, [0]),
    ("deepseek_v2", "aux_loss_alpha"): ("0", True, -0.1, [0]),
}  # fmt: skip


def test_values_that_a_key_cannot_have_are_refused():
    for (family, key), values in WRONG_VALUES.items():
        for value in values:
            (problem,) = faults({"model_type": family, "num_hidden_layers": 4, key: value})

            assert (problem.field, problem.where) == (key, "config.json:4"), (family, key, value)
