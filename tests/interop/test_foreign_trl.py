"""TRL's YAML as a job: what is trained, defaults, and the file that accelerate or DeepSpeed adds."""

import json

import pytest
from foreign_cases import FOREIGN, data_of

from flopcast.errors import SpecError
from flopcast.interop.configs.formats import kind_of, parsed
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.spec.offload import offload_word

FULL = FOREIGN / "trl" / "zephyr_7b_full.yaml"
FSDP = {"distributed_type": "FSDP", "num_processes": 16, "mixed_precision": "bf16",
        "fsdp_config": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": False},
        "deepspeed_config": {"zero_stage": 2}}  # fmt: skip
ZERO = {"distributed_type": "DEEPSPEED", "num_processes": 8, "machine_rank": 0,
        "deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "none"}}  # fmt: skip


def read(**changes):
    """What a small file says on eight devices."""
    small = {"model_name_or_path": "Qwen/Qwen2.5-7B", "dataset_name": "own/data", "output_dir": "out",
             "attn_implementation": "sdpa", "per_device_train_batch_size": 2}  # fmt: skip
    return data_of(json.dumps(small | changes), "sft.json", 8)


def paired(tmp_path, second, cluster="dgx-h100:2", **named):
    """The job of the full fine-tune with a second file."""
    other = tmp_path / "second.json"
    other.write_text(json.dumps(second, indent=1), encoding="utf-8")
    return resolve(JobRequest(files=(str(FULL), str(other)), cluster=cluster, **named))


def test_a_full_fine_tune_is_not_taken_for_adapters_of_llama_factory():
    document = parsed(FULL.read_bytes(), FULL.name)
    data = data_of(FULL.read_text(encoding="utf-8"), FULL.name)

    assert kind_of(document) == "trl"
    assert data["model"] == {"base": "mistral-7b"}
    assert any("DDP" in note for note in data["assumptions"])


def test_what_a_file_does_not_say_is_as_trl_has_it():
    data = read()

    assert data["batch"] == {"sequence_length": 1024}
    assert (data["plan"]["precision"], data["plan"]["recompute"]) == ("bf16", "full")
    assert read(use_peft=True)["model"]["adapters"] == {"rank": 16, "targets": ["q", "v"], "dropout": 0.05}


def test_accelerates_file_says_how_parameters_are_sharded_and_on_how_many_devices(tmp_path):
    fsdp, zero = paired(tmp_path, FSDP), paired(tmp_path, ZERO, "dgx-h100:1")

    assert (fsdp.plan.zero, fsdp.plan.data_parallel, fsdp.stack.name) == (3, 16, "torch-fsdp2")
    assert (zero.plan.zero, zero.plan.data_parallel, zero.stack.name) == (3, 8, "deepspeed-zero")


@pytest.mark.parametrize("engine", [{"deepspeed_config": {"zero3_init_flag": False}}, {}])
def test_deepspeed_under_accelerate_shards_gradients_unless_its_file_states_a_stage(engine, tmp_path):
    launch = {"distributed_type": "DEEPSPEED", "num_processes": 8} | engine

    job = paired(tmp_path, launch, "dgx-h100:1")

    assert (job.plan.zero, job.stack.name) == (2, "deepspeed-zero")


def test_accelerates_file_says_what_deepspeed_offloads(tmp_path):
    engine = {"zero_stage": 3, "offload_optimizer_device": "nvme", "offload_optimizer_nvme_path": "/nvme",
              "offload_param_device": "cpu", "offload_param_nvme_path": "/nvme"}  # fmt: skip
    job = paired(tmp_path, ZERO | {"deepspeed_config": engine}, "dgx-h100:1")

    assert offload_word(job.plan.offload) == "optimizer:nvme,parameters:host"
    assert job.stack.offload.gradient_copies == "pageable"  # accelerate pins nothing


def test_deepspeeds_file_is_read_where_it_is_given_itself(tmp_path):
    job = paired(tmp_path, {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}})

    assert (job.plan.zero, job.stack.name) == (2, "deepspeed-zero")


@pytest.mark.parametrize(
    ("second", "field", "line"),
    [
        (FSDP | {"distributed_type": "TPU"}, "accelerate.distributed_type", 2),
        (FSDP | {"fsdp_config": {"fsdp_shard_experts": True}}, "fsdp_config.fsdp_shard_experts", 6),
        (ZERO | {"deepspeed_config": {"zero_stage": 7}}, "zero_optimization.stage", 6),
        (ZERO | {"parallelism_config": {"parallelism_config_tp_size": 4}},
         "accelerate.parallelism_config.parallelism_config_tp_size", 10),
    ],
)  # fmt: skip
def test_a_fault_of_the_second_file_is_told_there(second, field, line, tmp_path):
    with pytest.raises(SpecError) as error:
        paired(tmp_path, second)

    assert (f"{tmp_path / 'second.json'}:{line}", field) in [
        (problem.where, problem.field) for problem in error.value.problems
    ]


def test_two_training_files_are_refused(tmp_path):
    with pytest.raises(SpecError):
        paired(tmp_path, {"model_name_or_path": "Qwen/Qwen2.5-7B", "per_device_train_batch_size": 1})
