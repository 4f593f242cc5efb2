"""The models of the catalogue: sizes that papers print, and one plan of each, predicted.

Elsewhere: that every entry loads, names its sources and runs on every stack (test_catalogue_entries.py);
that entries agree with the published configs (tests/interop/test_hugging_face.py).
"""

from functools import cache

import pytest
from all_cases import all_cases

from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.operators.gated_delta import GatedDelta
from flopcast.prediction import predict
from flopcast.requests.job_files import job_of
from flopcast.spec.model import WHOLE

MODELS = catalog.names("models")
SEEING = {  # elements that transformers counts (tests/interop/vision_counts.json), or the hub
    "llava-1.5-7b": 7_063_427_072,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-vl-8b": 8_767_123_696,
    "gemma-3-4b-vision": 4_300_079_472,
    "gemma-3-12b-vision": 12_187_325_040,
    "gemma-3-27b-vision": 27_432_406_640,
    "llama-4-scout-vision": 108_641_793_536,
    "llama-4-maverick-vision": 401_583_781_376,
}
# Sizes: tests/serving/test_linear_attention.py, tests/workload/test_hybrids.py, and
# tests/interop/test_linear_attention_configs.py and test_mamba_configs.py
HYBRID_MIXTURES = {
    "jamba-52b",
    "kimi-linear-48b-a3b",
    "qwen3-next-80b-a3b",
    "qwen3.5-397b-a17b",
    "granite-4.0-h-small",
    "nemotron-3-nano-30b-a3b",
    "nemotron-3.5-lightning-30b-a3b",
    "nemotron-3-super-120b-a12b",
    "nemotron-3-ultra-550b",
}
SPARSE = {"deepseek-v3.2", "glm-5"}  # attention; sizes: tests/serving/test_sparse_attention.py
LONGEST = 4096  # tokens; longer contexts are cut, so that all models are asked alike

PRINTED = {  # billions of parameters, and half of the last digit that is printed
    # arXiv:2104.04473, Table 1
    "megatron-1.7b": (1.7, 0.05), "megatron-3.6b": (3.6, 0.05), "megatron-7.5b": (7.5, 0.05),
    "megatron-18b": (18.4, 0.05), "megatron-39b": (39.1, 0.05), "megatron-76b": (76.1, 0.05),
    "megatron-145b": (145.6, 0.05), "megatron-310b": (310.1, 0.05), "megatron-530b": (529.6, 0.05),
    "megatron-1t": (1008.0, 0.05),
    # arXiv:2302.13971, Table 2
    "llama-7b": (6.7, 0.05), "llama-13b": (13.0, 0.05), "llama-30b": (32.5, 0.05),
    "llama-65b": (65.2, 0.1),
    # arXiv:2005.14165, Table 2.1
    "gpt3-125m": (0.125, 0.0005), "gpt3-350m": (0.350, 0.008), "gpt3-760m": (0.760, 0.0005),
    "gpt3-1.3b": (1.3, 0.05), "gpt3-2.7b": (2.7, 0.05), "gpt3-6.7b": (6.7, 0.05),
    "gpt3-13b": (13.0, 0.2), "gpt3-175b": (175.0, 0.5),
    # arXiv:2402.16819, section 2: 3.2 billion of embeddings, 12.5 billion besides
    "nemotron-4-15b": (3.2 + 12.5, 0.1),
    # arXiv:2406.11704, section 2: 9.4 billion of embeddings, 331.6 billion besides
    "nemotron-4-340b": (9.4 + 331.6, 0.1),
    # the names of its sizes, but for the two tables of 256000 words; arXiv:2307.09288, Table 1
    "nemotron-3-22b": (21.3, 0.5), "llama-2-34b": (34.0, 0.5),
    # arXiv:2205.01068, Table 1, the name of each size
    "opt-1.3b": (1.3, 0.05), "opt-2.7b": (2.7, 0.05), "opt-13b": (13.0, 0.5), "opt-30b": (30.0, 0.5),
    "opt-66b": (66.0, 0.5), "opt-175b": (175.0, 0.5),
    # model cards
    "mpt-30b": (29.95, 0.01), "gpt-neox-20b": (20.6, 0.1),
    # arXiv:2407.21783, arXiv:2412.15115, arXiv:2505.09388: by the name of each size
    "llama-3.2-3b": (3.21, 0.005), "llama-3.1-8b": (8.03, 0.005), "llama-3-70b": (70.6, 0.05),
    "llama-3.1-70b": (70.6, 0.05), "qwen2-1.5b": (1.54, 0.005), "qwen2-72b": (72.7, 0.05),
    "qwen2.5-7b": (7.61, 0.01), "qwen2.5-14b": (14.7, 0.1), "qwen2.5-72b": (72.7, 0.05),
    "qwen3-1.7b": (1.7, 0.05), "qwen3-4b": (4.0, 0.05), "qwen3-14b": (14.8, 0.05),
    "qwen3-32b": (32.8, 0.05),
    "gemma-2-2b": (2.6, 0.05),
}  # fmt: skip

MIXTURES = {  # parameters of the published checkpoint; billions that one token uses, and half a last digit
    "mixtral-8x7b": (46_702_792_704, 12.9, 0.05),  # arXiv:2401.04088, Table 1; Hugging Face hub
    "mixtral-8x22b": (140_620_634_112, 39, 0.5),  # Mistral AI, 17 April 2024; Hugging Face hub
    "qwen3-30b-a3b": (30_532_122_624, 3.3, 0.06),  # model cards; the hub; of the next, the config's count
    "qwen3-235b-a22b": (235_093_634_560, 22, 0.5),
    "hy3-295b-a21b": (295_033_528_320, 21, 0.5),  # model card: 295 and 21 billion; the config's count
    "qwen1.5-moe-a2.7b": (14_315_784_192, 2.7, 0.05),  # Qwen Team, 28 March 2024; the hub
    # arXiv:2508.10925, Table 1, whose active parameters leave the table of tokens out; the hub
    "gpt-oss-20b": (20_914_757_184, 3.61 + 201088 * 2880 / 1e9, 0.005),
    "gpt-oss-120b": (116_829_156_672, 5.13 + 201088 * 2880 / 1e9, 0.005),
    # the hub, less the vision part (tests/interop/test_hugging_face.py); Meta, 5 April 2025
    "llama-4-scout": (108_641_793_536 - 871_932_416, 17, 0.5),
    "llama-4-maverick": (401_583_781_376 - 871_932_416, 17, 0.5),
    # checkpoints, less biases that follow the loads; arXiv:2405.04434, section 1 and appendix B, and
    # README_WEIGHTS of DeepSeek-V3, which leave the table of tokens out; arXiv:2507.20534, Table 2;
    # arXiv:2502.16982, Table 3: 15.29 and 2.24 billion without both tables
    "deepseek-v2": (235_741_434_880, 21 + 102400 * 5120 / 1e9, 0.5),
    "deepseek-v2-lite": (15_706_484_224, 2.4 + 102400 * 2048 / 1e9, 0.06),
    "deepseek-v3": (671_026_419_200 - 58 * 256, 36.6 + 129280 * 7168 / 1e9, 0.05),
    "kimi-k2": (1_026_408_232_448 - 60 * 384, 32.6, 0.3),
    "moonlight-16b-a3b": (15_960_108_544, 2.24 + 2 * 163840 * 2048 / 1e9, 0.005),
    # no exact number is printed: 57.41 and 316 billion on the hub; of Grok's experts two in eight are used
    "qwen2-57b-a14b": (57_408_658_944, 14, 0.5),
    "grok-1": (315_684_820_992, 315.684820992 - 0.75 * 64 * 8 * 3 * 6144 * 32768 / 1e9, 1e-6),
}


def job(name, stack="megatron-2022"):
    """One DGX A100, two tensor-parallel ranks where the heads allow, sequences as long as it knows."""
    model = catalog.model(name)
    heads = [block.mixer.heads for block in model.blocks]
    tp = 2 if all(count % 2 == 0 for count in heads) else 1
    sp = (
        " sp" if tp > 1 and name.removesuffix("-vision") in {*MIXTURES, *HYBRID_MIXTURES} else ""
    )  # which experts need: spec/rules_experts.py
    length = min(model.context_length or 2048, model.learned_positions or LONGEST, LONGEST)
    parts = {
        "model": name,
        "cluster": "dgx-a100:1",
        "stack": stack,
        "batch": {"sequence_length": length},
        "plan": f"dp={8 // tp} tp={tp}{sp} mbs=1 gbs=16 recompute=full precision=bf16",
    }
    return job_of(Document("test", parts, {}))


@cache
def book():
    return load_book(catalog.cluster("dgx-a100", 1))


@all_cases("name", PRINTED)
def test_a_model_is_as_large_as_its_source_prints(name):
    billions, digit = PRINTED[name]

    assert catalog.model(name).parameters() / 1e9 == pytest.approx(billions, abs=digit)


@all_cases("name", MIXTURES)
def test_a_mixture_of_experts_has_the_parameters_and_active_ones_that_were_published(name):
    total, active_billions, digit = MIXTURES[name]
    model = catalog.model(name)

    assert model.parameters() == total
    assert model.active_parameters() / 1e9 == pytest.approx(active_billions, abs=digit)


def test_a_model_that_sees_has_the_parameters_of_its_checkpoint():
    assert {name: catalog.model(name).parameters() for name in SEEING} == SEEING


def test_every_other_model_uses_all_of_its_parameters():
    sparse = {n for n in MODELS if catalog.model(n).active_parameters() != catalog.model(n).parameters()}

    assert sparse == {*MIXTURES, *HYBRID_MIXTURES, *SEEING, *SPARSE}


@all_cases("name", [name for name in MODELS if name not in SPARSE])
def test_every_model_is_predicted_on_one_node(name):
    """No faster than all its products at the data sheet's peak, and no slower than a hundredth of it."""
    made = job(name)
    tokens = made.plan.global_batch * made.batch.sequence_length

    report = predict(made, book())

    model = catalog.model(name)
    table = 0 if model.tied_embeddings else model.vocabulary * model.hidden
    positions = (model.learned_positions + model.position_offset) * model.hidden
    fastest_s = 6 * (model.active_parameters() - table - positions) * tokens / (8 * 312e12)
    assert fastest_s < report.step_time_s < 100 * fastest_s
    assert 0 < report.metrics.mfu_ratio < 1


@all_cases("name", MODELS)
def test_the_products_of_a_forward_pass_are_those_that_the_model_counts(name):
    """Items of one rank against the closed form of arXiv:2104.04473, equation 3; one token.

    The formula knows no states of linear attention, which meet a token in place of other tokens.
    """
    model = catalog.model(name)
    work = [
        count * item.work.work().flop.item()
        for layer, count in model.sequence()
        for item in layer.forward(model.hidden, WHOLE)
        if isinstance(item.work, AbstractOperator) and not isinstance(item.work, GatedDelta)
    ]
    padded = -(-model.vocabulary // model.vocabulary_multiple) * model.vocabulary_multiple
    padding = 2 * model.hidden * (padded - model.vocabulary)

    assert sum(work) == pytest.approx(model.forward_flop(1) + padding, rel=1e-12)


@all_cases("name", MODELS)
def test_a_learned_table_covers_the_context(name):
    model = catalog.model(name)

    assert model.learned_positions in (0, model.context_length or model.learned_positions)


def test_only_two_models_of_one_paper_leave_their_context_open():
    unknown = [name for name in MODELS if catalog.model(name).context_length == 0]

    assert unknown == ["llama-13b-gelu", "llemma-7b-gelu"]


def test_the_beginning_of_a_name_means_a_model_if_all_models_with_it_have_the_same_shapes():
    meant = {
        "olmo2-32b": "allenai/OLMo-2-0325-32B",
        "Exaone 4 32B": "LGAI-EXAONE/EXAONE-4.0-32B",
        "mistral-nemo-12b": "mistralai/Mistral-Nemo-Base-2407",  # its name has no size
        "mistral-nemo-8b": None,
        "qwen3-30b": "qwen3-30b-a3b",  # not Qwen3-VL-30B-A3B
        "llama-2-8b": None,  # not Llama Guard 2 8B
        "vicuna-13b": None,  # of Llama and of Llama 2
        "llama-3": None,
        "gpt": None,
    }
    assert {name: catalog.known("models", name) for name in meant} == meant
    assert "vicuna-13b-v1.3 or lmsys/vicuna-13b-v1.5" in str(
        catalog.unknown_name("models", "vicuna-13b").fix
    )
