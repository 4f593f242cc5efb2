"""Parameters of Hugging Face configs, against the library's own models on the meta device."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.interop.hugging_face.config import TYPES, model_from_config
from flopcast.interop.hugging_face.families import FAMILIES
from flopcast.library import catalog
from flopcast.library.hub import hub_models
from flopcast.spec.model import Model

ROWS = json.loads(Path(__file__).with_name("transformers_counts.json").read_text(encoding="utf-8"))
SMALL = {  # relative; families with a few numbers a layer that are no weights of a matrix
    "apertus": 1e-6,  # two numbers of its activation
    "mbart": 2e-5,  # the encoder's own norm of its embeddings
    "ernie4_5_moe": 1e-6,  # the bias that follows the loads of experts is a parameter there
}
WITHOUT_ROWS = {  # whose code is elsewhere, or whose tensors another test sums up (Ling, Mamba, RWKV)
    "afmoe", "baichuan", "bailing_moe", "bailing_moe_v2", "falcon_mamba", "gla", "internlm2", "internlm3",
    "jamba", "kimi_k2", "kimi_linear", "grok-1", "mamba", "mimo",
    "rwkv5", "rwkv6", "rwkv7",
}  # fmt: skip
QUIRKS = {("helium", 512)}  # (family, hidden_size): its output product ignores head_dim


def counted(config):
    mapping, _ = model_from_config(Document("config.json", config, {}))
    return Model.model_validate(mapping).parameters()


def test_every_family_counts_as_many_parameters_as_the_library_builds():
    wrong, refused, right = [], defaultdict(list), defaultdict(set)
    for row in ROWS:
        config, wanted = row["config"], row["parameters"]
        family = config["model_type"]
        if wanted is None or (family, config.get("hidden_size")) in QUIRKS:
            continue
        try:
            found = counted(config)
        except SpecError as error:
            refused[family].append(error.problems[0].field)
            continue
        right[TYPES.get(family, family)].add(row["version"].partition(".")[0])
        if abs(found / wanted - 1) > SMALL.get(family, 1e-12):
            wrong.append((family, row["version"], wanted, found))

    assert wrong == []
    assert set(map(tuple, refused.values())) <= {("attention_bias",), ("attention_bias",) * 2}
    assert set(FAMILIES) - set(right) - WITHOUT_ROWS == set()
    assert sum({"4", "5"} <= versions for versions in right.values()) > 30


def fault_of(config):
    with pytest.raises(SpecError) as error:
        counted(config)
    return error.value.problems[0]


def test_other_families_of_the_library_are_refused_with_tracing_as_the_way_out():
    others = {
        row["config"]["model_type"]
        for row in ROWS
        if row["parameters"] is None and TYPES.get(row["config"]["model_type"], "") not in FAMILIES
    } - set(FAMILIES)

    faults = {family: fault_of({"model_type": family}) for family in others}

    assert len(faults) > 70
    assert {family for family, fault in faults.items() if "model_type" not in fault.field} == set()
    assert {family for family, fault in faults.items() if "trace" not in fault.fix} == set()


def test_sizes_that_no_router_can_use_are_an_input_error():
    """Eight groups of one expert, four of them chosen, cannot give a token eight experts."""
    config = {"model_type": "deepseek_v3", "n_routed_experts": 8, "n_group": 8, "topk_group": 4}

    assert fault_of(config).field.endswith("top_k")


def test_ids_of_the_hub_have_the_parameters_that_their_publishers_print():
    models = {model.id: model for model in hub_models().values()}

    off = {}
    for model in models.values():
        if not model.same_as:
            found = Model.model_validate(catalog.document("models", model.id).data).parameters()
            off[model.id] = abs(found / model.parameters - 1)

    assert len(models) > 300
    assert {name: error for name, error in off.items() if error > 0.02} == {}
    assert {model.same_as for model in models.values()} - {""} <= set(catalog.names("models"))


def test_a_model_of_the_hub_is_found_whatever_its_case_and_owner():
    for written in ("HuggingFaceTB/SmolLM2-1.7B", "huggingfacetb/smollm2-1.7b", "unsloth/SmolLM2-1.7B"):
        assert catalog.known("models", written) == "HuggingFaceTB/SmolLM2-1.7B"
        assert catalog.model(written).num_blocks == 24
    assert catalog.known("models", "Qwen/QwQ-32B") == "qwen2.5-32b"
    assert catalog.known("models", "nobody/nothing-1b") is None


def test_dbrx_counts_the_parameters_that_its_publisher_prints():
    """132 B in all, 36 B of them active (databricks/dbrx-base, config.json)."""
    config = {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "max_seq_len": 32768,
        "vocab_size": 100352, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    }  # fmt: skip
    mapping, _ = model_from_config(Document("config.json", config, {}))
    model = Model.model_validate(mapping)

    assert round(model.parameters() / 1e9) == 132
    assert round(model.active_parameters() / 1e9) == 36
