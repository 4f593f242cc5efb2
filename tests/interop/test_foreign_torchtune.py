"""torchtune's YAML as a job: names of models, sharding, what is kept in bf16, adapters."""

import json

import pytest
from foreign_cases import FOREIGN, data_of, job_in

from flopcast.interop.configs.torchtune import model_name
from flopcast.library import catalog
from flopcast.prediction import memory_of

BUILDERS = {
    "llama2_7b": "llama-2-7b",
    "lora_llama3_1_70b": "llama-3.1-70b",
    "qlora_qwen2_7b": "qwen2-7b",
    "qwen2_0_5b": "qwen2-0.5b",
    "lora_qwen2_5_7b_instruct": "qwen2.5-7b",
    "llama3_2_1b": "llama-3.2-1b",
    "gemma2_9b": "gemma-2-9b",
    "phi3_mini": "phi-3-mini",
    "mistral_7b": "mistral-7b",
}
KEPT_TENSORS = 4  # a parameter, its gradient and two moments


def read(devices=8, **changes):
    """What a small file says."""
    small = {"model": {"_component_": "torchtune.models.llama3.llama3_8b"}, "batch_size": 2,
             "tokenizer": {"_component_": "t", "max_seq_len": 4096}, "dtype": "bf16"}  # fmt: skip
    return data_of(json.dumps(small | changes), "a.yaml", devices)


def test_builders_are_models_of_the_catalogue():
    found = {builder: catalog.known("models", model_name(builder)) for builder in BUILDERS}

    assert found == BUILDERS


def test_several_devices_shard_everything_and_one_nothing():
    assert [read(devices)["plan"]["zero"] for devices in (1, 2, 8)] == [0, 3, 3]


def test_weights_gradients_and_states_are_all_in_one_dtype():
    """torchtune builds the model in `dtype`, and AdamW keeps states as its weights are."""
    job = job_in(FOREIGN / "torchtune" / "llama3_8b_full.yaml")
    for dtype, each_bytes in (("bf16", 2), ("fp32", 4)):
        assert read(dtype=dtype)["plan"]["precision"] == dtype
        more = {"global_batch": 2 * job.plan.global_batch, "precision": dtype}  # so that gradients stay
        plan = job.plan.model_copy(update=more)
        memory = memory_of(job.model_copy(update={"plan": plan})).by_category
        kept = sum(memory[name] for name in ("parameters", "gradients", "optimizer_states"))

        assert kept == pytest.approx(KEPT_TENSORS * each_bytes * job.model.parameters() / 8, rel=0.01)


def test_adapters_stand_beside_the_linears_that_are_named():
    model = job_in(FOREIGN / "torchtune" / "llama31_70b_lora.yaml").model

    assert model.adapters.targets == ("q", "v", "out", "gate", "up", "down")
    assert job_in(FOREIGN / "torchtune" / "qwen2_7b_qlora.yaml", gpus=1).model.adapters.base_dtype == "nf4"
