"""nanotron's YAML as a job: its own model, degrees, batch, buckets."""

import json

import pytest
from all_cases import all_cases
from foreign_cases import data_of, told

from flopcast.spec.model import Model

CONFIG = {
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "is_llama_config": True,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
SMALL = {
    "model": {"dtype": "bfloat16", "model_config": CONFIG},
    "optimizer": {"zero_stage": 0},
    "parallelism": {"dp": 4, "tp": 2, "pp": 1, "pp_engine": "1f1b"},
    "tokens": {"micro_batch_size": 2, "sequence_length": 4096, "batch_accumulation_per_replica": 8},
}


def small(config=None, **sections):
    """A small right file with more in its sections and in its model's sizes."""
    made = {name: section | sections.get(name, {}) for name, section in SMALL.items()}
    made["model"] = made["model"] | {"model_config": CONFIG | (config or {})}
    return json.dumps(made)


def read(devices=None, config=None, **sections):
    """What a small file says."""
    return data_of(small(config, **sections), "run.yaml", devices)


def test_a_model_has_the_parameters_that_its_sizes_make():
    model = Model.model_validate(read()["model"])

    block = 2048 * 2048 * 2 + 2 * 2048 * 512 + 3 * 2048 * 8192 + 2 * 2048
    assert model.parameters() == 49152 * 2048 + 16 * block + 2048
    assert model.name == "run"


def test_stages_are_divided_with_the_default_vocabulary_of_the_family():
    stated = CONFIG | {"vocab_size": 32000}
    left_out = {name: value for name, value in CONFIG.items() if name != "vocab_size"}
    stages = SMALL["parallelism"] | {"dp": 1, "pp": 4}

    given, default = (
        data_of(json.dumps(SMALL | {"model": {"model_config": each}, "parallelism": stages}), "run.yaml")
        for each in (stated, left_out)
    )

    assert default["plan"]["stage_layers"] == given["plan"]["stage_layers"]


@pytest.mark.parametrize(("bias", "more"), [(False, 0), (True, 16 * (2048 + 2 * 512))])
def test_biases_of_qwen2_are_those_that_its_config_asks_for(bias, more):
    config = {"is_llama_config": None, "is_qwen2_config": True, "attention_bias": bias}

    plain, found = (Model.model_validate(read(config=each)["model"]) for each in ({}, config))

    assert found.parameters() - plain.parameters() == more


def test_a_window_of_qwen2_is_that_of_every_layer():
    config = {"is_llama_config": None, "is_qwen2_config": True, "sliding_window_size": 20}

    model = Model.model_validate(read(config=config)["model"])

    assert [block.mixer.window for block in model.blocks] == [20]


def test_the_file_states_its_devices_and_the_command_line_wins():
    assert read()["plan"]["data_parallel"] == 4
    assert read(32)["plan"]["data_parallel"] == 16
    assert any("instead of 8 in the file" in note for note in read(32)["assumptions"])


@pytest.mark.parametrize("devices", [8, 16])
def test_a_batch_is_micro_batch_times_accumulation_times_replicas(devices):
    assert read(devices)["plan"]["global_batch"] == 2 * 8 * devices // 2


@all_cases(
    ("sections", "name", "value"),
    [
        ({"parallelism": {"tp_mode": "REDUCE_SCATTER"}}, "sequence_parallel", True),
        ({"parallelism": {"tp_mode": "ALL_REDUCE"}}, "sequence_parallel", None),
        ({"parallelism": {"pp": 2, "pp_engine": "afab"}}, "schedule", "gpipe"),
        ({"parallelism": {"pp": 1, "pp_engine": "afab"}}, "schedule", None),
        ({"parallelism": {"recompute_layer": True}}, "recompute", "full"),
        ({"parallelism": {"recompute_granularity": "selective"}}, "recompute", "selective"),
        ({"parallelism": {"context_parallel_size": 2}}, "context_parallel", 2),
        ({"optimizer": {"zero_stage": 1}}, "zero", 1),
        ({"optimizer": {"optimizer_factory": {"name": "sgd"}}}, "optimizer", "sgd"),
        ({"model": {"dtype": "float16"}}, "precision", "fp16"),
    ],
)
def test_a_switch_is_a_field_of_the_plan(sections, name, value):
    assert read(**sections)["plan"].get(name) == value


def test_pipeline_stages_end_where_their_part_of_the_cost_of_blocks_and_head_ends():
    """16 blocks that cost 32768 each, and a head that costs 49152, as much as 1.5 blocks."""
    for stages, blocks in ((2, (9, 7)), (4, (5, 4, 5, 2))):
        plan = read(parallelism={"pp": stages})["plan"]
        assert tuple(plan["stage_layers"]) == blocks
    assert "stage_layers" not in read()["plan"]


@pytest.mark.parametrize(("wide", "bytes_each", "dtype"), [(True, 4, "fp32"), (False, 2, "bf16")])
def test_buckets_hold_so_many_megabytes_of_gradients(wide, bytes_each, dtype):
    data = read(optimizer={"accumulate_grad_in_fp32": wide}, model={"ddp_bucket_cap_mb": 50})

    gradients = data["stack"]["gradients"]
    assert (gradients["bucket_elements"] * bytes_each, gradients["dtype"]) == (50 * 2**20, dtype)


def test_sharded_states_scatter_their_gradients():
    assert read(optimizer={"zero_stage": 1})["stack"]["gradients"]["collective"] == "reduce_scatter"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"is_llama_config": None}, "model.model_config"),
        ({"moe_config": {"num_experts": 8}}, "model.model_config.moe_config"),
        ({"hidden_size": 2047}, "hidden_size"),
    ],
)
def test_a_model_that_is_not_built_is_told(config, field):
    assert field in [fault.field for fault in told(small(config), "run.yaml")]


def test_a_model_of_the_command_line_takes_the_place_of_the_files(tmp_path):
    data = data_of(small({"is_llama_config": None}), "run.yaml", model="llama-3-8b")

    assert data["model"] == {"base": "llama-3-8b"}
