"""Axolotl's and LLaMA-Factory's YAML as jobs: batch, adapters, sharding, precision, attention."""

import json

import pytest
from all_cases import all_cases
from command_line import flopcast
from foreign_cases import data_of, told

from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import source_of
from flopcast.spec.switches import TUNING_CODE

AXOLOTL = {
    "base_model": "NousResearch/Llama-2-7b-hf",
    "sequence_len": 4096,
    "micro_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
}
FACTORY = {
    "model_name_or_path": "meta-llama/Llama-2-7b-hf",
    "stage": "sft",
    "finetuning_type": "full",
    "cutoff_len": 4096,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "bf16": True,
}
BOTH = pytest.mark.parametrize("small", [AXOLOTL, FACTORY], ids=["axolotl", "llama-factory"])
ZERO = "zero_optimization"
ALL = ["q", "k", "v", "out", "gate", "up", "down"]


def read(small, devices=8, **changes):
    """What a small file says, with other values; None leaves a key out."""
    text = json.dumps({key: value for key, value in (small | changes).items() if value is not None})
    return data_of(text, "file.yaml", devices)


def faults(small, **changes):
    """The keys of a small file that are to blame."""
    text = json.dumps({key: value for key, value in (small | changes).items() if value is not None})
    return [fault.field for fault in told(text, "file.yaml")]


@BOTH
@pytest.mark.parametrize("devices", [1, 8, 64])
def test_a_global_batch_is_micro_batch_times_accumulation_times_ranks(small, devices):
    plan = read(small, devices)["plan"]

    assert plan["global_batch"] == 2 * 4 * devices
    assert plan["micro_batch"] == 2


@BOTH
def test_without_sharding_every_rank_holds_the_model(small):
    data = read(small)

    assert (data["stack"], data["plan"]["zero"]) == ("pytorch-ddp", 0)


@BOTH
@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("deepspeed_configs/zero1.json", 1),
        ("zero2.json", 2),
        ("examples/deepspeed/ds_z3_config.json", 3),
        ("/z0/ds_z2_config.json", 2),
        ("deepspeed_configs/zero3_bf16.json", 3),
        ("stage/ds_config_zero_stage_3.json", 3),
    ],
)
def test_a_file_of_deepspeed_tells_its_stage_by_its_name_alone(small, name, stage):
    data = read(small, deepspeed=name)

    assert data["plan"]["zero"] == stage
    assert data["stack"]["base"] == "deepspeed-zero"
    assert any("does not open" in note for note in data["assumptions"])


def test_published_files_of_deepspeed_offload_what_they_contain_and_not_what_their_name_says():
    for small, name, placed in (
        (AXOLOTL, "deepspeed_configs/zero2.json", "optimizer:host"),
        (AXOLOTL, "deepspeed_configs/zero1.json", None),
        (AXOLOTL, "deepspeed_configs/zero3_bf16_cpuoffload_all.json", "optimizer:host,parameters:host"),
        (AXOLOTL, "deepspeed_configs/zero3_bf16_cpuoffload_params.json", "parameters:host"),
        (FACTORY, "examples/deepspeed/ds_z2_config.json", None),
        (FACTORY, "examples/deepspeed/ds_z3_partial_offload_config.json", "optimizer:host"),
    ):
        assert read(small, deepspeed=name)["plan"].get("offload") == placed, name


@BOTH
@pytest.mark.parametrize("name", ["mine.json", "conf/ds.json", "zero30.json"])
def test_a_name_that_tells_no_stage_is_a_fault(small, name):
    assert faults(small, deepspeed=name) == ["deepspeed"]


@BOTH
def test_settings_of_deepspeed_inside_the_file_are_read_as_its_own_file_is(small):
    settings = {"zero_optimization": {"stage": 3, "overlap_comm": False, "reduce_bucket_size": 1e8}}

    data = read(small, deepspeed=settings | {"train_micro_batch_size_per_gpu": "auto"})

    assert data["plan"]["zero"] == 3
    assert data["stack"]["gradients"] == {"dtype": "bf16", "overlap": False, "bucket_elements": 100_000_000}


@BOTH
@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"zero_optimization": {"stage": 5}}, f"{ZERO}.stage"),
        ({"zero_optimization": {"zero_quantized_gradients": True}}, f"{ZERO}.zero_quantized_gradients"),
        ({"zero_optimization": {"zero_hpz_partition_size": 4}}, f"{ZERO}.zero_hpz_partition_size"),
        ({"train_micro_batch_size_per_gpu": 7}, "train_micro_batch_size_per_gpu"),
        ({"gradient_accumulation_steps": 7}, "gradient_accumulation_steps"),
        ({"train_batch_size": 7}, "train_batch_size"),
        ({"fp16": {"enabled": True}}, "fp16.enabled"),
        ({"bf16": {"enabled": False}}, "bf16.enabled"),
        ({"bfloat16": {"enabled": False}}, "bfloat16.enabled"),
        ({"optimizer": {"type": "OneBitAdam"}}, "optimizer.type"),
        ({"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size"),
        ({"sequence_parallel_size": 2}, "sequence_parallel_size"),
    ],
)  # fmt: skip
def test_faults_of_settings_inside_the_file_are_told(small, settings, field):
    assert faults(small, deepspeed=settings) == [field]


OTHER_TRAINER = {
    "base": "torch-fsdp2",
    **TUNING_CODE,  # TorchTitan's peaks say nothing of it, and it has no pipeline
    "rewrites": [  # LlamaRMSNorm of transformers: a kernel each casts to fp32, squares, … casts back
        *("wide_rmsnorm", "unfused_rope", "unfused_gate", "separate_projections"),
        *("gathered_copies", "linear_bias"),
    ],
}


def sharding(small, given):
    """The ZeRO stage, the data-parallel ranks that share a state, and whether parameters stay gathered."""
    data = read(small, 16, **given)
    kept = OTHER_TRAINER | {"sharding": {"gathers": "every_micro_batch"}}
    assert data["stack"] in (kept, OTHER_TRAINER)
    return data["plan"]["zero"], data["plan"].get("data_shard"), data["stack"] == kept


@BOTH
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"fsdp": "full_shard auto_wrap"}, (3, None, False)),
        ({"fsdp": ["full_shard", "auto_wrap"]}, (3, None, False)),
        ({"fsdp": ["no_shard"]}, (0, None, False)),
        ({"fsdp": ["shard_grad_op"]}, (3, None, True)),
        ({"fsdp": ["hybrid_shard"]}, (3, 8, False)),
        ({"fsdp": ["hybrid_shard_zero2"]}, (3, 8, True)),
    ],
)
def test_fsdp_shards_what_its_word_says(small, given, expected):
    """SHARD_GRAD_OP frees parameters behind the backward pass that used them, FULL_SHARD each pass."""
    assert sharding(small, given) == expected


def test_parameters_stay_gathered_if_axolotl_does_not_reshard_them():
    """LLaMA-Factory has no key `reshard_after_forward`."""
    keeps = {"fsdp_config": {"reshard_after_forward": False}}

    assert sharding(AXOLOTL, keeps) == (3, None, True)
    assert sharding(AXOLOTL, keeps | {"fsdp": ["no_shard"]}) == (0, None, False)


@all_cases(
    ("given", "group"),
    [
        ({"dp_replicate_size": 2}, 4),
        ({"dp_replicate_size": 4, "dp_shard_size": 2}, 2),
        ({"dp_replicate_size": 1}, None),
        ({"dp_shard_size": 8}, None),
    ],
)
def test_sets_of_shards_and_their_ranks_are_the_data_parallel_ranks(given, group):
    data = read(AXOLOTL, fsdp_config={"reshard_after_forward": True}, **given)

    assert (data["plan"]["zero"], data["plan"].get("data_shard")) == (3, group)


@pytest.mark.parametrize("given", [{"dp_replicate_size": 3}, {"dp_replicate_size": 4, "dp_shard_size": 4}])
def test_sets_of_shards_that_leave_ranks_over_are_told(given):
    assert faults(AXOLOTL, fsdp_config={"reshard_after_forward": True}, **given) == ["dp_replicate_size"]


@BOTH
def test_settings_that_agree_with_the_trainers_are_no_fault(small):
    said = data_of_batch(read(small))
    settings = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}} | said

    assert faults(small, deepspeed=settings) == []


def data_of_batch(data):
    """A batch as DeepSpeed says it."""
    plan = data["plan"]
    steps = plan["global_batch"] // plan["micro_batch"] // plan["data_parallel"]
    micro = {"train_micro_batch_size_per_gpu": plan["micro_batch"]}
    return micro | {"gradient_accumulation_steps": steps, "train_batch_size": plan["global_batch"]}


@BOTH
@pytest.mark.parametrize(("kind", "optimizer"), [("SGD", "sgd_momentum"), ("Adam8bit", "adamw_8bit")])
def test_an_optimizer_of_the_engine_takes_the_place_of_the_trainers(small, kind, optimizer):
    settings = {"optimizer": {"type": kind}, "zero_optimization": {"stage": 1}}

    assert read(small, deepspeed=settings)["plan"]["optimizer"] == optimizer


@BOTH
@pytest.mark.parametrize(
    ("given", "told"), [({}, True), ({"deepspeed": "zero3.json"}, True), ({"fsdp": ["full_shard"]}, False)]
)
def test_compiled_kernels_are_told_where_the_stack_has_eager_ones(small, given, told):
    notes = read(small, torch_compile=True, **given)["assumptions"]

    assert any("kernels of eager" in note for note in notes) is told


def test_a_compiled_model_has_the_compiled_stack():
    assert read(AXOLOTL, fsdp=["full_shard"], torch_compile=True)["stack"]["base"] == "torch-fsdp2-compiled"


@BOTH
def test_two_ways_to_shard_contradict_each_other(small):
    assert faults(small, fsdp=["full_shard"], deepspeed="zero3.json") == ["deepspeed"]


@all_cases(
    ("given", "targets"),
    [
        ({"lora_target_linear": True}, ALL),
        ({"lora_target_modules": "all-linear"}, ALL),
        ({"lora_target_modules": ["q_proj", "v_proj"]}, ["q", "v"]),
        ({"lora_target_modules": ["self_attn.qkv_proj", "mlp.down_proj"]}, ["qkv", "down"]),
        (
            {"base_model": "openai/gpt2-xl", "lora_target_linear": True},
            ["q", "k", "v", "out", "up", "down"],
        ),
    ],
)
def test_adapters_of_axolotl_stand_beside_the_linears_that_are_named(given, targets):
    adapters = read(AXOLOTL, adapter="lora", lora_r=8, **given)["model"]["adapters"]

    assert adapters == {"rank": 8, "targets": targets}


@all_cases(
    ("given", "adapters"),
    [
        ({}, {"rank": 8, "targets": ALL}),
        ({"lora_rank": 64, "lora_target": "q_proj,v_proj"}, {"rank": 64, "targets": ["q", "v"]}),
        ({"lora_dropout": 0.1}, {"rank": 8, "targets": ALL, "dropout": 0.1}),
        ({"quantization_bit": 4}, {"rank": 8, "targets": ALL, "base_dtype": "nf4"}),
    ],
)
def test_adapters_of_llama_factory_have_its_defaults(given, adapters):
    assert read(FACTORY, finetuning_type="lora", **given)["model"]["adapters"] == adapters


def test_a_qlora_keeps_its_frozen_weights_in_four_bits():
    data = read(AXOLOTL, adapter="qlora", lora_r=8, lora_target_linear=True, load_in_4bit=True)

    assert data["model"]["adapters"]["base_dtype"] == "nf4"


@all_cases(
    ("given", "field"),
    [
        ({"adapter": "lora", "lora_target_linear": True}, "lora_r"),
        ({"adapter": "lora", "lora_r": 8}, "lora_target_modules"),
        (
            {"adapter": "qlora", "lora_r": 8, "lora_target_linear": True, "load_in_4bit": False},
            "load_in_4bit",
        ),
        ({"adapter": "qlora", "lora_r": 8, "lora_target_linear": True}, "load_in_4bit"),
        (
            {"adapter": "qlora", "lora_r": 8, "lora_target_linear": True, "load_in_8bit": True},
            "load_in_8bit",
        ),
        ({"load_in_4bit": True}, "load_in_4bit"),
        ({"activation_offloading": True}, "activation_offloading"),
        ({"activation_offloading": "legacy"}, "activation_offloading"),
        ({"activation_offloading": "disk", "gradient_checkpointing": True}, "activation_offloading"),
        ({"gradient_checkpointing": "offload_disk"}, "gradient_checkpointing"),
    ],
)
def test_what_contradicts_itself_in_axolotl_is_told(given, field):
    assert faults(AXOLOTL, **given) == [field]


@all_cases(
    ("given", "field"),
    [
        ({"quantization_bit": 4}, "quantization_bit"),
        ({"do_train": False}, "do_train"),
        ({"do_predict": True}, "do_predict"),
        ({"stage": "ppo"}, "stage"),
    ],
)
def test_what_contradicts_itself_in_llama_factory_is_told(given, field):
    assert faults(FACTORY, **given) == [field]


@BOTH
@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({}, "bf16"),
        ({"bf16": "auto"}, "bf16"),
        ({"bf16": False, "fp16": True}, "fp16"),
        ({"bf16": None}, "bf16"),
        ({"fp8": True}, "fp8_current"),
    ],
)
def test_a_precision_is_that_of_the_products(small, given, precision):
    assert read(small, **given)["plan"]["precision"] == precision


@all_cases(
    ("small", "given", "recompute"),
    [
        (AXOLOTL, {}, None),
        (AXOLOTL, {"gradient_checkpointing": True}, "full"),
        (AXOLOTL, {"gradient_checkpointing": "unsloth"}, "full"),
        (AXOLOTL, {"fsdp_config": {"fsdp_activation_checkpointing": True}}, "full"),
        (FACTORY, {}, "full"),
        (FACTORY, {"disable_gradient_checkpointing": True}, None),
    ],
)
def test_blocks_run_again_where_checkpointing_is_on(small, given, recompute):
    assert read(small, **given)["plan"].get("recompute") == recompute


@BOTH
@pytest.mark.parametrize(
    ("name", "kept"),
    [("adamw_torch", None), ("adamw_8bit", "adamw_8bit"), ("paged_lion_8bit", "lion_8bit"), ("sgd", "sgd")],
)
def test_an_optimizer_that_is_built_is_the_plans(small, name, kept):
    key = "optimizer" if small is AXOLOTL else "optim"

    assert read(small, **{key: name})["plan"].get("optimizer") == kept


@BOTH
def test_an_optimizer_that_is_not_built_is_counted_as_adamw_aloud(small):
    data = read(small, **{"optimizer" if small is AXOLOTL else "optim": "lomo"})

    assert "optimizer" not in data["plan"]
    assert any("instead of lomo" in note for note in data["assumptions"])


@pytest.mark.parametrize(
    ("small", "given"),
    [
        (AXOLOTL, {"eager_attention": True}),
        (AXOLOTL, {"attn_implementation": "eager"}),
        (FACTORY, {"flash_attn": "disabled"}),
    ],
)
def test_attention_that_writes_its_scores_is_the_stacks(small, given):
    stack = read(small, **given)["stack"]

    assert (stack["base"], stack["attention_kernel"]) == ("pytorch-ddp", "materialised")


def test_context_and_tensor_ranks_take_no_batch_of_their_own():
    plan = read(AXOLOTL, 16, tensor_parallel_size=2, context_parallel_size=4, fsdp=["full_shard"])["plan"]

    assert (plan["data_parallel"], plan["tensor_parallel"], plan["context_parallel"]) == (2, 2, 4)
    assert plan["global_batch"] == 2 * 2 * 4


BOTH_ON_HOST = "optimizer:host,parameters:host"
HIDDEN_IN_NAMES = {  # a published file of DeepSpeed's settings → what its name does not tell
    ("axolotl", "deepspeed_configs/zero2.json"): {"offload": "optimizer:host"},
    ("axolotl", "deepspeed_configs/zero2_torch_compile.json"): {"offload": "optimizer:host"},
    ("axolotl", "deepspeed_configs/zero1.json"): {},
    ("axolotl", "deepspeed_configs/zero3_bf16_cpuoffload_params.json"): {"offload": "parameters:host"},
    ("axolotl", "deepspeed_configs/zero3_bf16_cpuoffload_all.json"): {
        "offload": BOTH_ON_HOST,
        "gradient_copies": "pinned",
    },
    ("llama-factory", "examples/deepspeed/ds_z2_config.json"): {},
    ("llama-factory", "examples/deepspeed/ds_z2_offload_config.json"): {
        "offload": "optimizer:host",
        "gradient_copies": "pinned",
    },
    ("llama-factory", "examples/deepspeed/ds_z3_offload_config.json"): {
        "offload": BOTH_ON_HOST,
        "gradient_copies": "pinned",
    },
    ("llama-factory", "examples/deepspeed/ds_z3_partial_offload_config.json"): {
        "offload": "optimizer:host"
    },
    ("axolotl", "own/zero3_offload_param.json"): {"offload": "parameters:host"},
    ("axolotl", "own/zero3_offload_optimizer.json"): {"offload": "optimizer:host"},
    ("axolotl", "own/zero2_offload.json"): {"offload": "optimizer:host"},
}


def test_a_published_file_of_settings_offloads_as_its_content_says():
    for (kind, name), expected in HIDDEN_IN_NAMES.items():
        data = read(AXOLOTL if kind == "axolotl" else FACTORY, deepspeed=name)
        found = data["stack"].get("offload", {})
        found |= {"offload": data["plan"]["offload"]} if "offload" in data["plan"] else {}

        assert found == expected, name


@all_cases(
    ("small", "given", "offload"),
    [
        (AXOLOTL, {"gradient_checkpointing": True, "activation_offloading": True}, "activations:host"),
        (AXOLOTL, {"gradient_checkpointing": True, "activation_offloading": "legacy"}, "activations:host"),
        (AXOLOTL, {"gradient_checkpointing": "offload"}, "activations:host"),
        (AXOLOTL, {"gradient_checkpointing": "unsloth"}, "activations:host"),
        (FACTORY, {"use_unsloth_gc": True}, "activations:host"),
        (FACTORY, {"use_unsloth_gc": True, "disable_gradient_checkpointing": True}, None),
        (
            FACTORY,
            {"use_unsloth_gc": True, "deepspeed": "ds_z2_offload_config.json"},
            "optimizer:host,activations:host",
        ),
        (
            AXOLOTL,
            {"gradient_checkpointing": "offload", "fsdp_config": {"offload_params": True}},
            f"{BOTH_ON_HOST},activations:host",
        ),
    ],
)
def test_checkpoints_are_on_the_host_beside_states_that_are(small, given, offload):
    assert read(small, **given)["plan"].get("offload") == offload


def test_fsdp_copies_gradients_to_memory_that_is_not_pinned_if_the_file_says_so():
    for pinned, changes in ((True, {}), (False, {"gradient_copies": "pageable"})):
        given = {"offload_params": True, "cpu_offload_pin_memory": pinned}
        stack = read(AXOLOTL, fsdp_config=given, fsdp_version=2)["stack"]

        assert (stack if isinstance(stack, dict) else {}).get("offload", {}) == changes


def test_checkpoints_of_deepspeed_have_no_effect_under_the_trainer():
    given = {"zero_optimization": {"stage": 2}, "activation_checkpointing": {"cpu_checkpointing": True}}
    data = read(AXOLOTL, deepspeed=given)

    assert "offload" not in data["plan"]
    assert any("cpu_checkpointing has no effect" in note for note in data["assumptions"])


def test_a_name_that_tells_more_than_a_stage_is_a_fault():
    for name in (
        "ds_z3_nvme.json",
        "ds_z2_autotp_config.json",
        "ds_z3_fp8_config.json",
        "ds_z3_alst_config.json",
    ):
        assert faults(FACTORY, deepspeed=f"examples/deepspeed/{name}") == ["deepspeed"], name


@BOTH
def test_bf16_without_zero_is_the_zero_1_of_deepspeed_with_fp32_gradients(small):
    for settings in ({"zero_optimization": {"stage": 0}}, "ds_z0.json"):
        data = read(small, deepspeed=settings)

        assert data["plan"]["zero"] == 1
        assert data["stack"]["gradients"]["dtype"] == "fp32"
        usual = catalog.stack("deepspeed-zero").gradients.collective
        assert data["stack"]["gradients"].get("collective", usual) == "all_reduce"


def test_degrees_of_a_backend_that_is_not_read_are_refused_by_name():
    backend = {
        "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 4, "expert_model_parallel_size": 2,
        "use_distributed_optimizer": True, "sequence_parallel": True,
    }  # fmt: skip

    assert set(faults(FACTORY, **backend)) == set(backend)
    assert faults(AXOLOTL, expert_parallel_size=4) == ["expert_parallel_size"]
    assert faults(AXOLOTL, expert_parallel_size=1) == []


@BOTH
def test_a_trainer_on_top_of_transformers_trains_no_multi_token_prediction(small):
    key = "base_model" if small is AXOLOTL else "model_name_or_path"

    data = read(small, **{key: "deepseek-ai/DeepSeek-V3"})

    assert data["model"]["mtp"] == 0
    assert any("multi-token prediction" in note for note in data["assumptions"])


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ({}, "none"),
        ({"freeze_multi_modal_projector": False}, "projector"),
        ({"freeze_vision_tower": False}, "all"),
    ],
)
def test_llama_factory_trains_what_it_does_not_freeze_of_a_tower(given, trained):
    vision = read(FACTORY, model_name_or_path="Qwen/Qwen2.5-VL-7B-Instruct", **given)["model"]["vision"]

    assert (vision["trained"], vision["most_pixels"]) == (trained, 768 * 768)


def test_adapters_beside_a_trained_tower_are_refused():
    named = {"model_name_or_path": "Qwen/Qwen2.5-VL-7B-Instruct", "finetuning_type": "lora"}

    assert faults(FACTORY, **named, freeze_vision_tower=False) == ["freeze_vision_tower"]


STARTED = {
    "swift.sh": "NNODES=2 NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --train_type full"
    " --max_length 2048",
    "openrlhf.sh": "deepspeed --num_nodes 2 --num_gpus 8 -H hosts --module openrlhf.cli.train_sft"
    " --pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 1 --max_len 2048",
    "verl.sh": "torchrun --nnodes 2 --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer"
    " model.partial_pretrain=Qwen/Qwen2.5-7B data.max_length=2048 +data.train_batch_size=64",
}


@all_cases("name", STARTED)
def test_a_command_that_starts_a_trainer_is_the_job_of_its_arguments(name):
    found = source_of(STARTED[name].encode(), name, JobRequest()).document.data

    assert found["plan"]["data_parallel"] == 16
    assert (found["model"], found["batch"]) == ({"base": "qwen2.5-7b"}, {"sequence_length": 2048})


def test_values_of_a_command_come_from_its_variables_and_from_outside():
    text = f"LENGTH=4096\n{STARTED['verl.sh'].replace('=2048', '=$LENGTH').replace('=64', '=$1')}"

    given = JobRequest(arg=("1=128",))
    found = source_of(text.encode(), "verl.sh", given).document.data

    assert found["batch"]["sequence_length"] == 4096
    assert found["plan"]["global_batch"] == 128
    with pytest.raises(SpecError, match="whole number"):
        source_of(text.encode(), "verl.sh", JobRequest())


def test_a_script_that_starts_two_trainers_is_refused_with_their_lines():
    text = f"{STARTED['swift.sh']}\n{STARTED['verl.sh']}\n"

    with pytest.raises(SpecError, match="lines 1, 2"):
        source_of(text.encode(), "both.sh", JobRequest())


@pytest.mark.parametrize(
    ("changes", "sequences", "model"),
    [
        ({"rl": "dpo"}, 2, {"reference": "separate"}),
        ({"rl": "ipo"}, 2, {"reference": "separate"}),
        ({"rl": "kto"}, 1, {"reference": "separate", "reference_passes": 3}),
        ({"rl": "orpo"}, 2, {}),
        ({"rl": "simpo"}, 2, {}),
        ({"reward_model": True}, 2, {"head": "score"}),
        (
            {"rl": "dpo", "adapter": "lora", "lora_r": 8, "lora_target_linear": True},
            2,
            {"reference": "shared"},
        ),
    ],
)
def test_axolotl_learns_from_pairs_with_the_reference_that_trl_makes(changes, sequences, model):
    data, plain = read(AXOLOTL, **changes), read(AXOLOTL)

    assert data["plan"]["global_batch"] == sequences * plain["plan"]["global_batch"]
    assert data["plan"]["micro_batch"] == sequences * plain["plan"]["micro_batch"]
    assert {name: data["model"].get(name) for name in ("reference", "reference_passes", "head")} == {
        "reference": model.get("reference"),
        "reference_passes": model.get("reference_passes"),
        "head": model.get("head"),
    }


@pytest.mark.parametrize("kind", ["grpo", "gdpo", "something"])
def test_axolotl_refuses_reinforcement_learning_at_its_key(kind):
    assert faults(AXOLOTL, rl=kind) == ["rl"]


def test_llama_factory_says_that_no_file_of_accelerate_shards():
    plain, sharded = (
        read(FACTORY, **more)["assumptions"] for more in ({}, {"fsdp": "full_shard auto_wrap"})
    )

    assert any(note.startswith("flopcast assumes DDP") for note in plain)
    assert not any(note.startswith("flopcast assumes DDP") for note in sharded)


def test_llama_factory_takes_ranks_and_shards_from_a_file_of_accelerate(tmp_path):
    tuning, launch = tmp_path / "sft.yaml", tmp_path / "fsdp.yaml"
    tuning.write_text(
        "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\nbf16: true\n"
        "per_device_train_batch_size: 2\ndataset: own\ntemplate: qwen3\n",
        encoding="utf-8",
    )
    launch.write_text(
        "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\n"
        "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: true}\n",
        encoding="utf-8",
    )
    given = flopcast("predict", str(tuning), str(launch), "--cluster", "dgx-h100")
    assert given.code == 0, given.err
    assert "16 × h100" in given.out
    assert "dp=16 mbs=2 gbs=32 zero=3" in given.out
    assert "offload=optimizer:host,parameters:host" in given.out


def test_a_file_of_llama_factory_that_generates_text_is_no_training():
    assert faults(FACTORY, infer_backend="vllm") == ["infer_backend"]


def test_what_changes_the_memory_of_an_mlp_is_refused_and_defaults_of_bitsandbytes_are_not():
    assert faults(AXOLOTL, tiled_mlp=True) == ["tiled_mlp"]
    assert faults(AXOLOTL, bnb_config_kwargs={"bnb_4bit_use_double_quant": True}) == []
