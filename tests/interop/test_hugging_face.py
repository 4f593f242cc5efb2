"""Hugging Face configs as they are published, and the models that they describe.

`tests/interop/configs/` holds the values of published config.json files, written down key by key. Parameter
counts are those that the publishers or the Hugging Face hub state (the sum over the tensors of a
checkpoint, each counted once), or a paper prints; where no exact number is found, the matrices are counted
by hand. Elsewhere: what is noted and what is refused (test_hugging_face_notes.py).
"""

import json
from pathlib import Path

import pytest
from all_cases import all_cases
from hf_cases import CONFIGS, NAMES, imported, published, read
from test_linear_attention_configs import KIMI
from test_mamba_configs import FALCON, JAMBA, MAMBA
from test_rwkv_configs import RWKV_5, RWKV_6, RWKV_7

from flopcast.errors import SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.interop.hugging_face.config import model_from_config
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.library import catalog
from flopcast.library.hub import hub_models
from flopcast.library.model_yaml import model_text
from flopcast.spec.model import Model

HUB = {  # tensors of the published checkpoint, as the hub or a library that loads it prints them
    "llama-7b": 6_738_415_616,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 751_632_384 - 151936 * 1024,  # the checkpoint stores the tied table twice
    "qwen3-8b": 8_190_735_360,
    "mixtral-8x7b": 46_702_792_704,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "gpt-neo-1.3b": 1_315_575_808,
    "opt-125m": 125_239_296,
    "opt-6.7b": 6_666_862_592 - 8_388_608,  # with and of the adapters in the documentation of PEFT
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "falcon-rw-1b": 1_311_625_216,
    "falcon-7b": 7_217_189_760 - 65024 * 4544,  # the checkpoint stores the tied table twice
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "olmo-7b": 6_888_095_744,
    "olmo2-7b": 7_298_617_344,
    "olmo2-13b": 13_716_198_400,
    "internlm2-7b": 7_737_708_544,
    "yi-6b": 6_061_035_520,
    "deepseek-llm-7b": 6_910_365_696,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200 - 58 * 256,  # of the main model, less biases that follow the loads
    "kimi-k2": 1_026_408_232_448 - 60 * 384,
}
SIGLIP = 416_866_032  # parameters of Gemma 3's vision part
LLAMA_4_VISION = (  # by its vision_config: patches, positions, norms; 34 layers; adapter and projector
    588 * 1408 + (1 + 24**2) * 1408 + 1408 + 2 * 2 * 1408
    + 34 * (4 * (1408 + 1) * 1408 + 2 * 1408 * 5632 + 5632 + 1408 + 2 * 2 * 1408)
    + 4 * 1408 * 4096 + 4096**2 + 4096 * 5120
)  # fmt: skip
CARDS = {  # model cards and README files of the publishers
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-j-6b": 6_053_381_344,
    "stablelm-3b-4e1t": 2_795_443_200,
    "stablelm-2-1.6b": 1_644_515_328,
    "baichuan-7b": 7_000_559_616,
    "baichuan-13b": 13_264_901_120,
}
PUBLISHED = HUB | CARDS
BY_HAND = {  # vocabulary · h + blocks · (attention + MLP + norms) + final norm
    "falcon-40b": 65024 * 8192
    + 60 * (2 * 8192**2 + 2 * 8 * 64 * 8192 + 8 * 8192**2 + 2 * 2 * 8192)
    + 2 * 8192,
    "gla-1.3b": 2 * 32000 * 2048  # q and k, v and the gate, two products of decays, output, norm of a head
    + 24 * (2 * 2048 * 1024 + 2 * 2048**2 + 2048 * 16 + 17 * 1024 + 2048**2 + 512)
    + 24 * (3 * 2048 * 5632 + 2 * 2048)
    + 2048,
    "mpt-7b": 50432 * 4096 + 32 * (4 * 4096**2 + 8 * 4096**2 + 2 * 4096) + 4096,
    "starcoder2-7b": 49152 * 4608
    + 32 * (2 * 4608**2 + 2 * 4 * 128 * 4608 + 2 * 4608 + 2 * 4 * 128)
    + 32 * (2 * 4608 * 18432 + 18432 + 4608 + 2 * 2 * 4608)
    + 2 * 4608,
    "moonlight-16b-a3b": 2 * 163840 * 2048
    + 27 * (2048 * (16 * 192 + 576 + 16 * 128) + 512 * (1 + 16 * 256) + 2 * 2048)
    + 3 * 2048 * 11264
    + 26 * 2048 * (3 * (64 + 2) * 1408 + 64)
    + 2048,
    "internlm3-8b": 2 * 128512 * 4096
    + 48 * (2 * 4096**2 + 2 * 2 * 128 * 4096 + 3 * 4096 * 10240 + 2 * 4096)
    + 4096,
    "command-r-v01": 256000 * 8192 + 40 * (4 * 8192**2 + 3 * 8192 * 22528 + 8192) + 8192,
    "granite-3.0-8b": 49155 * 4096
    + 40 * (2 * 4096**2 + 2 * 8 * 128 * 4096 + 3 * 4096 * 12800 + 2 * 4096)
    + 4096,
    "qwen2-57b-a14b": 2 * 151936 * 3584
    + 28 * (2 * 3584**2 + 2 * 512 * 3584 + 3584 + 2 * 512 + 2 * 3584)
    + 28 * (64 * 3 * 3584 * 2560 + 3 * 3584 * 20480 + 64 * 3584 + 3584)
    + 3584,
    "grok-1": 131072 * 6144
    + 64 * (2 * 6144**2 + 2 * 1024 * 6144 + 8 * 3 * 6144 * 32768 + 8 * 6144 + 4 * 6144)
    + 6144,
    "llava-1.5-7b": 6_738_415_616 + 2 * 64 * 4096,  # Llama with 64 tokens more at both ends
}


def text_part(model):
    """The decoder of a model without its vision tower."""
    return model.model_copy(update={"vision": None})


@all_cases("name", [name for name in PUBLISHED if name != "gpt-j-6b"])
def test_a_published_config_has_the_parameters_that_were_published(name):
    assert imported(name).parameters() == PUBLISHED[name]


def test_gpt_j_has_nearly_the_parameters_of_its_card():
    """The card counts 0.04 % more than the checkpoint holds."""
    assert imported("gpt-j-6b").parameters() == pytest.approx(PUBLISHED["gpt-j-6b"], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "whole"), [("gemma-3-4b", 4_300_079_472), ("gemma-3-27b", 27_432_406_640)], ids=str
)
def test_the_text_part_of_a_larger_model_is_what_its_vision_part_leaves(name, whole):
    """Gemma 3: the checkpoint less SigLIP's 416 866 032 and the projector's 1152 · (hidden + 1)."""
    model = imported(name)

    assert model.parameters() == whole
    assert text_part(model).parameters() == whole - SIGLIP - 1152 * (model.hidden + 1)


@pytest.mark.parametrize(
    ("name", "whole"), [("llama-4-scout", 108_641_793_536), ("llama-4-maverick", 401_583_781_376)], ids=str
)
def test_the_text_part_of_llama_4_is_what_its_vision_part_leaves(name, whole):
    assert imported(name).parameters() == whole
    assert text_part(imported(name)).parameters() == whole - LLAMA_4_VISION


@all_cases("name", BY_HAND)
def test_a_model_whose_exact_count_nobody_prints_has_the_count_of_its_matrices(name):
    assert text_part(imported(name)).parameters() == BY_HAND[name]


@all_cases("name", NAMES)
def test_every_config_is_a_published_one_that_is_checked(name):
    parts = {"gemma-3-4b", "gemma-3-27b", "llama-4-scout", "llama-4-maverick"}
    checked = {*PUBLISHED, *BY_HAND, *parts}

    assert name in checked


def test_every_family_is_held_by_a_published_config_a_model_of_the_hub_or_the_library():
    found = {str((model.config or {}).get("model_type")) for model in hub_models().values()}
    found |= {config["model_type"] for config in (KIMI, JAMBA, FALCON, MAMBA, RWKV_5, RWKV_6, RWKV_7)}
    for name in NAMES:
        data = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        found.add(data.get("text_config", data).get("model_type", data["model_type"]))
    library = json.loads(Path(__file__).with_name("transformers_counts.json").read_text(encoding="utf-8"))
    found |= {row["config"]["model_type"] for row in library if row["parameters"]}

    assert set(FAMILIES) - found == set()


@all_cases("name", [name for name in NAMES if name in catalog.names("models")])
def test_the_catalogue_has_the_same_model(name):
    own, other = catalog.model(name), imported(name)
    same = {"name": "", "source": (), "trained_length": 0, "trained_precision": None}
    if name == "gpt-neox-20b":  # the catalogue's is the model as one paper ran it, with GPT-2's tokenizer
        same |= {"vocabulary": 50257}

    if own.vision is None:  # the decoder alone
        other = text_part(other)
    assert other.model_copy(update=same) == own.model_copy(update=same)


@all_cases("name", NAMES)
def test_an_imported_model_written_as_yaml_is_read_back_equal(name):
    mapping, _ = model_from_config(read(name))

    again = read_yaml(model_text(mapping).encode(), "model.yaml")

    assert build(Model, again, again.data) == Model.model_validate(mapping)


@all_cases("name", ["yes", "no", "null", "1e5", "12:30", "2024-09", "0x10", "~"])
def test_a_name_that_looks_like_something_else_survives(name):
    text = model_text({"name": name, "source": [{"title": f"{name}: of {{it}} # all"}]})

    assert read_yaml(text.encode(), "model.yaml").data == {
        "name": name,
        "source": [{"title": f"{name}: of {{it}} # all"}],
    }


ARCHITECTURE = {  # what the papers say of each family, in our words
    "llama-2-70b": {"kv_heads": 8, "activation": "swiglu", "norm": "rmsnorm"},
    "qwen2-7b": {"qkv_bias": True, "out_bias": False},
    "qwen3-8b": {"qk_norm": "per_head", "qkv_bias": False, "kv_heads": 8},
    "gemma-2b": {"kv_heads": 1, "activation": "geglu"},
    "gemma-2-9b": {"norm_placement": "around", "softcap": True, "head_size": 256},
    "gemma-3-1b": {"norm_placement": "around", "qk_norm": "per_head", "softcap": False},
    "gpt2": {"activation": "gelu", "rotary_fraction": 0.0, "dropout": 0.1, "norm": "layernorm"},
    "gpt-neo-1.3b": {"qkv_bias": False, "out_bias": True, "rotary_fraction": 0.0},
    "pythia-1b": {"residual": "parallel", "rotary_fraction": 0.25, "qkv_bias": True},
    "gpt-j-6b": {"residual": "parallel_shared_norm", "rotary_fraction": 0.25, "out_bias": False},
    "opt-6.7b": {"activation": "relu", "rotary_fraction": 0.0, "out_bias": True},
    "bloom-7b1": {"alibi": True, "rotary_fraction": 0.0, "activation": "gelu"},
    "falcon-7b": {"residual": "parallel_shared_norm", "kv_heads": 1, "norm_bias": True},
    "falcon-40b": {"residual": "parallel", "kv_heads": 8},
    "falcon-rw-1b": {"residual": "sequential", "kv_heads": None, "alibi": True, "qkv_bias": True},
    "mpt-7b": {"alibi": True, "norm_bias": False, "norm": "layernorm", "qkv_bias": False},
    "phi-2": {"residual": "parallel_shared_norm", "rotary_fraction": 0.4},
    "phi-3-medium": {"kv_heads": 10, "activation": "swiglu"},
    "starcoder2-7b": {"kv_heads": 4, "norm": "layernorm", "activation": "gelu", "out_bias": True},
    "stablelm-2-1.6b": {"qkv_bias": True, "out_bias": False, "norm": "layernorm", "rotary_fraction": 0.25},
    "olmo-7b": {"norm_scale": False, "norm": "layernorm"},
    "olmo2-7b": {"norm_placement": "after", "qk_norm": "whole"},
    "command-r-v01": {"residual": "parallel_shared_norm", "norm_bias": False, "norm": "layernorm"},
    "internlm2-7b": {"qkv_bias": False, "kv_heads": 8},
    "baichuan-7b": {"alibi": False, "rotary_fraction": 1.0},
    "baichuan-13b": {"alibi": True, "rotary_fraction": 0.0},
}


@all_cases("name", ARCHITECTURE)
def test_a_family_has_the_parts_that_its_paper_describes(name):
    block = imported(name).blocks[0]
    parts = block.model_dump() | block.mixer.model_dump(exclude={"kind", "dropout"})
    parts |= {"activation": block.feed_forward.activation}

    assert {key: parts[key] for key in ARCHITECTURE[name]} == ARCHITECTURE[name]


PATTERNS = {  # windows of the kinds of layers, None for none, and how they repeat
    "gemma-2-9b": ([4096, None], (0, 1)),
    "gemma-3-1b": ([512, None], (0, 0, 0, 0, 0, 1)),
    "gemma-3-27b": ([1024, None], (0, 0, 0, 0, 0, 1)),
    "gpt-oss-20b": ([128, None], (0, 1)),
    "gpt-neo-1.3b": ([None, 256], (0, 1)),
    "llama-4-scout": ([8192, None], (0, 0, 0, 1)),
    "llama-4-maverick": ([8192, 8192, None], (0, 1, 0, 2)),
    "mistral-7b": ([4096], ()),
    "phi-3-mini": ([2047], ()),
    "qwen2-7b": ([None], ()),
}


@all_cases("name", PATTERNS)
def test_windows_stand_in_the_layers_that_the_papers_say(name):
    model = imported(name)

    assert ([block.mixer.window for block in model.blocks], model.pattern) == PATTERNS[name]


@all_cases(
    ("name", "changes", "windows", "pattern"),
    [
        ("gemma-2-9b", {"layer_types": ["full_attention"] * 42}, [None], ()),
        ("gemma-2-9b", {"layer_types": ["full_attention", "sliding_attention"] * 21}, [None, 4096], (0, 1)),
        ("gemma-3-1b", {"sliding_window_pattern": 2}, [512, None], (0, 1)),
        ("mistral-7b", {"max_position_embeddings": 4096}, [None], ()),
        ("qwen2-7b", {"sliding_window": 4096}, [None], ()),  # use_sliding_window is false
        (
            "qwen2-7b",
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 20},
            [None, 4096],
            (),
        ),
        ("llama-3-8b", {"sliding_window": 4096}, [None], ()),  # Llama has none, whatever is said
        ("gpt-neo-1.3b", {"attention_layers": None}, [None, 256], (0, 1)),  # attention_types says the same
    ],
)
def test_what_a_config_says_of_its_layers_decides_where_windows_stand(name, changes, windows, pattern):
    model = imported(published(name, **changes))

    assert ([block.mixer.window for block in model.blocks], model.pattern) == (windows, pattern)


def test_kinds_of_layers_that_are_no_list_of_all_layers_are_told():
    with pytest.raises(SpecError, match="a list with the kinds of 42 layers"):
        imported(published("gemma-2-9b") | {"layer_types": ["full_attention"]})


def test_llama_4_turns_and_norms_the_heads_of_its_chunked_layers_alone():
    chunked, whole = imported("llama-4-scout").blocks

    assert (chunked.mixer.qk_norm, chunked.mixer.rotary_fraction) == ("unscaled", 1.0)
    assert (whole.mixer.qk_norm, whole.mixer.rotary_fraction) == ("none", 0.0)


ENDS = {  # embedding, positions, head
    "llama-3-8b": {"tied_embeddings": False, "learned_positions": 0, "context_length": 8192},
    "llama-3.2-1b": {"tied_embeddings": True, "context_length": 131072},
    "gpt2": {"tied_embeddings": True, "learned_positions": 1024, "position_offset": 0},
    "opt-125m": {"tied_embeddings": True, "learned_positions": 2048, "position_offset": 2},
    "bloom-560m": {"embedding_norm": True, "learned_positions": 0, "context_length": 2048},
    "phi-2": {"head_bias": True, "tied_embeddings": False},
    "gpt-j-6b": {"head_bias": True, "tied_embeddings": False},
    "gemma-2-9b": {"logit_softcap": True, "tied_embeddings": True},
    "gemma-3-1b": {"logit_softcap": False, "tied_embeddings": True, "context_length": 32768},
    "gemma-3-27b": {"context_length": 131072, "vocabulary": 262208},
    "falcon-7b": {"tied_embeddings": True, "context_length": 2048},
    "baichuan-13b": {"context_length": 4096},
}


@all_cases("name", ENDS)
def test_both_ends_of_a_model_are_as_published(name):
    assert imported(name).model_dump(include=set(ENDS[name])) == ENDS[name]


@pytest.mark.parametrize(
    ("key", "alias"),
    [("n_embd", "hidden_size"), ("n_layer", "num_hidden_layers"), ("n_head", "num_attention_heads")],
)
def test_a_key_may_have_the_name_that_other_families_use(key, alias):
    data = published("gpt2")
    data[alias] = data.pop(key)

    assert imported(data) == imported("gpt2")


@all_cases(
    ("name", "changes", "parameters"),
    [
        ("gpt2", {"n_inner": 768}, -12 * 2 * 768 * 3 * 768 - 12 * 3 * 768),
        ("llama-2-7b", {"tie_word_embeddings": True}, -32000 * 4096),
        ("llama-2-7b", {"attention_bias": True}, 32 * 4 * 4096),
        ("llama-2-7b", {"mlp_bias": True}, 32 * (2 * 11008 + 4096)),
        ("llama-2-7b", {"head_dim": 64}, -32 * 4 * 4096 * 2048),
        ("llama-2-7b", {"num_key_value_heads": 8}, -32 * 2 * 4096 * 24 * 128),
        ("opt-125m", {"enable_bias": False}, -12 * (5 * 768 + 3072)),
        ("opt-125m", {"layer_norm_elementwise_affine": False}, -25 * 2 * 768),
        ("stablelm-2-1.6b", {"use_parallel_residual": True}, -24 * 2 * 2048),
        ("pythia-1b", {"use_parallel_residual": False}, 0),
        ("falcon-40b", {"num_ln_in_parallel_attn": 1}, -60 * 2 * 8192),
        ("falcon-7b", {"ffn_hidden_size": 4544}, -32 * 2 * 4544 * 3 * 4544),
        ("mpt-7b", {"expansion_ratio": 2}, -32 * 2 * 4096 * 2 * 4096),
    ],
)
def test_a_key_changes_the_parameters_by_what_it_stands_for(name, changes, parameters):
    before, after = imported(name), imported(published(name) | changes)

    assert after.parameters() - before.parameters() == parameters


EXPERT = 3 * 2048 * 768  # of Qwen3-30B-A3B, gated
LAYER_OF_EXPERTS = 128 * EXPERT + 128 * 2048  # and their router
DENSE = 3 * 2048 * 6144


@all_cases(
    ("changes", "dense", "runs"),
    [
        ({"mlp_only_layers": [0, 1]}, 2, [2, 46]),
        ({"mlp_only_layers": [47, 0]}, 2, [1, 46, 1]),
        ({"decoder_sparse_step": 2}, 24, [24, 24]),
        ({"mlp_only_layers": []}, 0, [48]),
    ],
)
def test_layers_without_experts_are_dense_and_stand_where_the_config_says(changes, dense, runs):
    before, after = imported("qwen3-30b-a3b"), imported(published("qwen3-30b-a3b") | changes)

    assert before.parameters() - after.parameters() == dense * (LAYER_OF_EXPERTS - DENSE)
    assert [block.count for block in after.blocks] == runs
    assert sum(b.count for b in after.blocks if b.feed_forward.kind == "mlp") == dense


def test_keys_of_published_configs_of_hunyuan_and_minimax():
    """HunyuanImage's and A13B's lists have one entry for each layer; vLLM's model reads the widths so."""
    small = {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "num_hidden_layers": 2,
        "vocab_size": 100,
    }
    experts = {
        "num_experts": 4,
        "moe_topk": [2, 2],
        "intermediate_size": 96,
        "moe_intermediate_size": [48, 48],
    }
    shared = {"num_shared_expert": [2, 2], "attention_head_dim": 8, "org_vocab_size": 90}
    hunyuan = model_of({"model_type": "hunyuan_v1_moe"} | small | experts | shared)
    zero = {"moe_layer_num_skipped": 0, "use_cla": False, "use_mla": False}
    betas = {"layernorm_full_attention_beta": 1.0, "layernorm_mlp_beta": 1.0, "mtp_transformer_layers": 1}

    part = hunyuan["blocks"][0]["feed_forward"]
    assert (part["expert_hidden"], part["shared_hidden"]) == (48, 2 * 96)
    assert model_of({"model_type": "hunyuan_v1_moe"} | small | experts | shared | zero) == hunyuan
    assert model_of({"model_type": "minimax_m2"} | small | betas) == model_of(
        {"model_type": "minimax_m2"} | small
    )
    for key, value in (("use_cla", True), ("moe_layer_num_skipped", 1)):
        with pytest.raises(SpecError, match=key):
            model_of({"model_type": "hunyuan_v1_moe"} | small | experts | {key: value})


def model_of(config):
    """The model of the keys of a config."""
    content, _ = model_from_config(Document("config.json", config, {}))
    return content


def test_a_coefficient_of_nothing_leaves_the_router_without_its_loss():
    (block,) = imported(published("mixtral-8x7b") | {"router_aux_loss_coef": 0}).blocks

    assert not block.feed_forward.auxiliary_loss


def test_a_list_of_no_layers_with_experts_leaves_all_dense():
    config = {"model_type": "llama4_text", "num_hidden_layers": 4}

    for changes, dense in (({}, 0), ({"moe_layers": []}, 4), ({"moe_layers": [3, 1]}, 2)):
        blocks = imported(config | changes).blocks

        assert sum(b.count for b in blocks if b.feed_forward.kind == "mlp") == dense


@pytest.mark.parametrize(("learned", "rows"), [(True, 2048), (False, 0)])
def test_mpt_without_alibi_learns_its_positions_unless_it_is_told_to_have_none(learned, rows):
    data = published("mpt-7b", learned_pos_emb=learned)
    data["attn_config"]["alibi"] = False

    model = imported(data)

    assert model.learned_positions == rows
    assert not model.blocks[0].mixer.alibi


@all_cases(
    ("told", "family"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "llama"),
        ({"architectures": ["GPT2LMHeadModel"]}, "gpt2"),
        ({"architectures": ["GPTNeoXForCausalLM"]}, "gpt_neox"),
        ({"model_type": "Yi"}, "llama"),
        ({"model_type": "RefinedWebModel"}, "falcon"),
    ],
)
def test_a_family_is_known_by_its_architecture_or_an_older_name_too(told, family):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}

    by_name = imported(sizes | {"model_type": family})

    assert imported(sizes | told).blocks == by_name.blocks


@all_cases("key", ["initializer_range", "rms_norm_eps", "bos_token_id", "use_cache", "rope_theta"])
def test_a_mapping_where_a_config_has_one_value_is_a_fault_though_the_value_costs_nothing(key):
    with pytest.raises(SpecError) as raised:
        imported({"model_type": "llama", key: {"a": 1}})

    (problem,) = raised.value.problems
    assert (problem.field, problem.value, problem.allowed) == (key, {"a": 1}, "a number, a text or a list")
    assert imported({"model_type": "llama", "rope_scaling": {"a": 1}}).hidden == 4096


@all_cases(
    ("config", "name"),
    [
        ({"_name_or_path": "meta-llama/Llama-2-7b-hf"}, "llama-2-7b-hf"),
        ({"_name_or_path": "C:\\models\\My Model\\"}, "my-model"),
        ({"_name_or_path": "///"}, "gpt2"),
        ({}, "gpt2"),
    ],
)
def test_a_model_is_named_after_its_checkpoint_or_else_its_family(config, name):
    assert imported({"model_type": "gpt2"} | config).name == name


def test_the_source_names_the_file_without_its_folder():
    document = Document("/somewhere/else/config.json", {"model_type": "gpt2"}, {})

    mapping, _ = model_from_config(document)

    assert mapping["source"] == [{"title": "config.json, a Hugging Face config of the gpt2 family"}]
