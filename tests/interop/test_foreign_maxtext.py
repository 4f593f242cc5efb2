"""MaxText's YAML as a job: meshes, sequences of a device, remat policies, sizes of a model."""

import json

import pytest
from all_cases import all_cases
from foreign_cases import data_of, faults_in, job_from_text, told

from flopcast.library import catalog
from flopcast.spec.model import Model

SMALL = {
    "base_config": "base.yml",
    "model_name": "llama3.1-8b",
    "hardware": "gpu",
    "per_device_batch_size": 2,
    "max_target_length": 4096,
}


def small(**changes):
    """A small right file with other values; None leaves a key out."""
    return json.dumps({key: value for key, value in (SMALL | changes).items() if value is not None})


def read(devices=32, **changes):
    """What a small file says."""
    return data_of(small(**changes), "gpu.yml", devices)


def plan_of(devices=32, **changes):
    """The plan of a small file, where degrees of 1 are left out."""
    return read(devices, **changes)["plan"]


@all_cases(
    ("given", "wanted"),
    [
        ({}, {"data_parallel": 32, "zero": 3, "data_shard": None}),
        ({"ici_fsdp_parallelism": 8, "dcn_data_parallelism": 4}, {"zero": 3, "data_shard": 8}),
        ({"ici_fsdp_parallelism": 8, "dcn_fsdp_parallelism": 4}, {"zero": 3, "data_shard": None}),
        ({"ici_fsdp_parallelism": 1, "dcn_data_parallelism": 32}, {"data_parallel": 32, "zero": 0}),
        (
            {"ici_tensor_parallelism": 8, "ici_fsdp_parallelism": -1},
            {"data_parallel": 4, "sequence_parallel": True},
        ),
        ({"ici_tensor_sequence_parallelism": 8}, {"tensor_parallel": 8, "sequence_parallel": True}),
        ({"ici_context_parallelism": 4}, {"context_parallel": 4, "data_parallel": 8}),
        ({"ici_expert_parallelism": 8, "model_name": "mixtral-8x7b"}, {"expert_parallel": 8}),
        ({"dcn_pipeline_parallelism": 4, "ici_fsdp_parallelism": 8}, {"pipeline_parallel": 4}),
    ],
)  # fmt: skip
def test_both_meshes_together_make_the_degrees(given, wanted):
    plan = plan_of(**given)

    assert {name: plan.get(name) for name in wanted} == wanted


@all_cases("devices", [8, 32, 256])
@all_cases("tensor", [1, 4, 8])
def test_a_step_has_the_sequences_of_its_devices(devices, tensor):
    plan = plan_of(devices, ici_tensor_parallelism=tensor, ici_fsdp_parallelism=-1)

    assert plan["global_batch"] == 2 * devices
    assert plan["micro_batch"] * plan["data_parallel"] == plan["global_batch"]


def test_a_part_of_a_sequence_a_device_is_a_whole_one_for_ranks_that_share_it():
    plan = plan_of(32, ici_tensor_parallelism=8, ici_fsdp_parallelism=-1, per_device_batch_size=0.25)

    assert (plan["data_parallel"], plan["micro_batch"], plan["global_batch"]) == (4, 2, 8)


def test_accumulated_steps_multiply_the_batch_and_not_the_micro_batch():
    plan = plan_of(gradient_accumulation_steps=4)

    assert (plan["micro_batch"], plan["global_batch"]) == (2, 256)


def test_a_pipeline_cuts_the_batch_into_the_micro_batches_that_are_asked_for():
    plan = plan_of(dcn_pipeline_parallelism=4, ici_fsdp_parallelism=8, num_pipeline_microbatches=8)

    assert (plan["global_batch"], plan["micro_batch"]) == (64, 1)


@all_cases(
    ("policy", "recompute", "modules"),
    [
        ("full", "full", None),
        ("minimal", "selective", ["core_attention", "layernorm"]),
        ("minimal_flash", "selective", ["layernorm"]),
        ("save_dot_except_mlp", "selective", ["core_attention", "mlp"]),
        ("save_dot_with_context_except_mlp", "selective", ["mlp"]),
    ],
)
def test_a_remat_policy_says_what_runs_again(policy, recompute, modules):
    plan = plan_of(remat_policy=policy)

    assert (plan.get("recompute"), plan.get("recompute_modules")) == (recompute, modules)


@all_cases(
    ("given", "precision"),
    [
        ({}, "bf16"),
        ({"quantization": "fp8"}, "fp8_current"),
        ({"quantization": "te_mxfp8"}, "mxfp8"),
        ({"dtype": "float16"}, "fp16"),
    ],
)
def test_a_precision_is_that_of_the_products(given, precision):
    assert plan_of(**given)["precision"] == precision


@pytest.mark.parametrize(("name", "kernel"), [("cudnn_flash_te", "flash"), ("dot_product", None)])
def test_attention_is_flash_or_what_the_stack_has(name, kernel):
    assert read(attention=name)["stack"].get("attention_kernel") == kernel


def test_sizes_of_a_model_without_a_name_are_those_of_base_yml_where_not_given():
    model = Model.model_validate(read(model_name=None, base_num_decoder_layers=4)["model"])

    block = 4 * 2048 * 2048 + 3 * 2048 * 7168 + 2 * 2048
    assert model.parameters() == 2 * 32000 * 2048 + 4 * block + 2048


@all_cases(
    ("given", "field"),
    [
        ({"num_experts": 8}, "num_experts"),
        ({"global_parameter_scale": 2}, "global_parameter_scale"),
        ({"decoder_block": "gemma2"}, "decoder_block"),
        ({"mlp_activations": ["tanh"]}, "mlp_activations"),
    ],
)
def test_a_model_without_a_name_that_is_not_built_is_told(given, field):
    assert [fault.field for fault in told(small(model_name=None, **given), "gpu.yml")] == [field]


def test_changes_of_another_file_than_that_of_pre_training_are_refused():
    text = "base_config: inference_jetstream.yml\nmodel_name: llama2-7b\nper_device_batch_size: 6\n"

    assert [fault.field for fault in told(text, "serve.yml")] == ["base_config"]


def test_a_file_for_another_kind_of_device_is_told():
    assert any("another kind" in note for note in read(hardware="tpu")["assumptions"])


def model_of(**changes):
    """The whole model of a small file."""
    return job_from_text(small(**changes), "gpu.yml", 32).model


def test_sizes_beside_the_name_of_a_model_count_where_they_override_it():
    own = catalog.model("llama-3.1-8b")
    fewer = model_of(override_model_config=True, base_num_decoder_layers=8, base_mlp_dim=8192)

    assert [block.count for block in fewer.blocks] == [8]
    assert fewer.blocks[0].feed_forward.ffn_hidden == 8192
    assert fewer.hidden == own.hidden


def test_layers_of_deepseek_are_taken_from_its_last_run():
    changes = {"model_name": "deepseek3-671b", "override_model_config": True, "base_num_decoder_layers": 10}

    assert [block.count for block in model_of(**changes).blocks] == [3, 7]


def test_sizes_that_maxtext_passes_over_are_faults():
    faults = told(small(base_num_decoder_layers=8, vocab_size=1000), "gpu.yml", 32)

    assert {fault.field for fault in faults} == {"base_num_decoder_layers", "vocab_size"}
    assert all("override_model_config" in fault.allowed for fault in faults)


def test_a_size_of_a_model_of_experts_is_refused():
    text = small(model_name="mixtral-8x7b", override_model_config=True, base_mlp_dim=1024)

    assert [fault.field for fault in told(text, "gpu.yml", 32)] == ["base_mlp_dim"]


def test_a_fault_of_a_default_is_told_at_the_first_value_of_the_file(tmp_path):
    path = tmp_path / "a.yml"
    path.write_text("# sizes\nbase_num_query_heads: 8\n")

    found = faults_in(path, kind="maxtext")

    assert (2, "model.blocks[0].mixer.kv_heads") in found


def test_experts_with_a_capacity_are_padded_and_select_tokens_with_masks_unless_products_are_sparse():
    experts = {"model_name": "deepseek3-671b", "capacity_factor": 1.25}
    dropping = job_from_text(small(**experts, sparse_matmul=False), "gpu.yml", 32)
    sparse = job_from_text(small(**experts), "gpu.yml", 32)

    layers = [block.feed_forward for block in dropping.model.blocks]
    assert [layer.kind for layer in layers] == ["mlp", "experts"]
    assert (layers[1].capacity_factor, layers[1].pads_to_capacity) == (1.25, True)
    assert dropping.software.experts.one_hot_masks
    assert sparse.model.blocks[1].feed_forward.capacity_factor == 0
    assert not sparse.software.experts.one_hot_masks


def test_experts_that_each_compute_all_tokens_are_refused_and_dense_models_have_none():
    for factor in ({}, {"capacity_factor": -1.0}):
        text = small(model_name="mixtral-8x7b", sparse_matmul=False, **factor)
        assert [fault.field for fault in told(text, "gpu.yml", 32)] == ["sparse_matmul"]

    assert job_from_text(small(sparse_matmul=False), "gpu.yml", 32).model == model_of()
