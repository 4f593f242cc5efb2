"""Jobs as overrides of Megatron-Bridge: what is written is read back as the same job, its words too."""

import shlex

import pytest
import yaml
from all_cases import all_cases
from export_cases import DENSE, MODELS, SPARSE, job_with, jobs, refused
from foreign_cases import FOREIGN, job_in
from hypothesis import HealthCheck, given, settings

from flopcast.interop.exports.megatron_bridge import export_megatron_bridge
from flopcast.interop.exports.same_job import canonical_model, differences, read_back
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import source_of

LAWS = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
SAYABLE = [
    "gpt3-175b", "llama-2-7b", "llama-3.1-405b", "qwen2.5-7b", "qwen3-8b", "gemma-7b", "nemotron-4-340b",
    "mistral-7b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "phi-3-mini", "starcoder2-7b",
]  # fmt: skip
PLANS = {
    "replicas": "dp=16 gbs=64 zero=0",
    "chunks": "dp=2 tp=4 pp=2 vpp=2 gbs=32 sp zero=1",
    "context": "dp=4 cp=4 gbs=64 zero=1",
    "uneven": "dp=4 pp=4 gbs=64 stage_layers=9,9,9,5",
    "blocks": "dp=4 tp=4 gbs=64 sp recompute=full:block:2",
    "modules": "dp=16 gbs=64 recompute=selective:mlp",
    "fp16": "dp=16 gbs=64 precision=fp16",
    "shards": "dp=16 gbs=64 zero=3",
    "momentum": "dp=16 gbs=64 optimizer=sgd_momentum",
    "no momentum": "dp=16 gbs=64 optimizer=sgd",
}
UNSAYABLE = {
    "zb_h1": ("dp=8 pp=2 gbs=64 schedule=zb_h1 zero=1", "plan.schedule"),
    "every": ("dp=16 gbs=64 recompute=full:every:2", "plan.recompute_method"),
    "adafactor": ("dp=16 gbs=64 optimizer=adafactor", "plan.optimizer"),
    "hybrid shards": ("dp=16 gbs=64 zero=1 dp_shard=8", "plan.data_shard"),
}


def text_of(job):
    ((_, content),) = export_megatron_bridge(job).files
    return content


def again(job, text=None):
    """What the command line makes of the overrides, whose format nobody names."""
    said = JobRequest(gpus=job.cluster.num_devices)
    return read_back(source_of(text or text_of(job), "overrides.yaml", said).document, job)


@all_cases("name", MODELS)
def test_a_model_is_overridden_whole_or_refused_by_the_names_of_its_fields(name):
    job = job_with(name)

    problems = refused(export_megatron_bridge, job)

    if problems:
        assert name not in SAYABLE
        assert all(field.startswith("model.") for field in problems)
    else:
        assert canonical_model(again(job)) == canonical_model(job)
        assert again(job).model.parameters() == job.model.parameters()


@all_cases("name", PLANS)
def test_bridge_gets_the_plan(name):
    job = job_with("llama-3-8b", PLANS[name])

    assert differences(job, again(job)) == ()


@pytest.mark.parametrize("precision", ["fp8", "fp8_current", "fp8_blockwise"])
def test_a_precision_is_the_recipe_of_its_name(precision):
    job = job_with("llama-3-8b", f"dp=64 gbs=64 zero=1 precision={precision}", cluster="dgx-h100:8")

    assert again(job).plan.precision == precision


@all_cases("name", UNSAYABLE)
def test_what_no_override_says_is_refused_by_name_with_the_edit_that_gives_it_up(name):
    plan, field = UNSAYABLE[name]

    problem = refused(export_megatron_bridge, job_with("llama-3-8b", plan))[field]

    assert "cannot be exported to Megatron-Bridge's overrides" in str(problem)
    assert problem.fix.startswith(f"add {field}=")


@LAWS
@given(job=jobs(DENSE, recompute=["full:block:2", "full:uniform:2", "selective:mlp"]))
def test_any_plan_of_a_dense_model_comes_back_from_overrides(job):
    assert differences(job, again(job)) == ()


@LAWS
@given(job=jobs(SPARSE, experts=True, precisions=("bf16", "fp8")))
def test_any_plan_of_experts_comes_back_from_overrides(job):
    assert differences(job, again(job)) == ()


@pytest.mark.parametrize("name", ["llama31_8b_pretrain", "llama3_70b_fp8", "mixtral_ep8"])
def test_a_dump_is_written_as_overrides_of_the_same_job(name):
    job = job_in(FOREIGN / "megatron-bridge" / f"{name}.yaml", "dgx-h100:4")

    assert differences(job, again(job)) == ()


@all_cases("name", PLANS)
def test_the_words_of_the_head_say_what_the_file_says(name):
    text = text_of(job_with("llama-3-8b", PLANS[name])).decode()
    said = {}
    for word in shlex.split(text.splitlines()[0].partition("as words: ")[2]):
        key, _, value = word.partition("=")
        section, _, field = key.partition(".")
        if field:
            said.setdefault(section, {})[field] = yaml.safe_load(value)
        else:
            said[section] = yaml.safe_load(value)

    assert said == yaml.safe_load(text)


def test_what_a_recipe_may_have_and_the_job_has_not_is_switched_off():
    model = yaml.safe_load(text_of(job_with("llama-3-8b")))["model"]

    off = ["num_moe_experts", "recompute_granularity", "virtual_pipeline_model_parallel_size"]
    assert [model[field] for field in off] == [None, None, None]
    assert [model[field] for field in ("sequence_parallel", "qk_layernorm")] == [False, False]


@pytest.mark.parametrize("model", ["mistral-7b", "deepseek-v3", "qwen3-30b-a3b"])
def test_layers_that_differ_are_overridden_layer_by_layer(model):
    """DeepSeek-V3 has three dense layers before 58 of experts, Mistral 7B a window in all 32."""
    written = yaml.safe_load(text_of(job_with(model, seq=8192)))["model"]

    frequency = {"deepseek-v3": [0] * 3 + [1] * 58}.get(model, 1)
    assert written["moe_layer_freq"] == frequency
    assert written["window_size"] == ([4095, 0] if model == "mistral-7b" else None)
    assert written["window_attn_skip_freq"] is None


def test_a_library_that_carries_tokens_is_overridden():
    stack = (("base", "megatron-bridge"), ("experts", {"dispatcher": "hybridep"}))

    job = job_with.__wrapped__("qwen3-30b-a3b", "dp=16 ep=8 gbs=64 zero=1", stack)

    written = yaml.safe_load(text_of(job))["model"]
    assert written["moe_token_dispatcher_type"] == "flex"
    assert written["moe_flex_dispatcher_backend"] == "hybridep"
    assert again(job).stack.experts.dispatcher == "hybridep"


def test_adapters_of_fused_matrices_come_back_and_others_are_refused():
    """peft/lora.py: target_modules are linear_qkv, linear_proj, linear_fc1, linear_fc2."""
    job = job_in(FOREIGN / "megatron-bridge" / "llama31_8b_lora.yaml")
    apart = job_in(FOREIGN / "llama-factory" / "llama3_lora_sft.yaml")

    written = yaml.safe_load(text_of(job))["peft"]

    assert written == {"dim": 16, "dropout": 0.0, "target_modules": ["linear_qkv", "linear_proj"]}
    assert again(job).model.adapters == job.model.adapters
    assert any(field.startswith("model.adapters") for field in refused(export_megatron_bridge, apart))


@pytest.mark.parametrize(
    ("plan", "waits"),
    [
        ("dp=4 pp=4 gbs=64 zero=1", True),
        ("dp=4 pp=4 vpp=2 gbs=64 zero=1", False),
        ("dp=16 gbs=64 zero=1", None),
    ],
)
def test_only_interleaved_stages_are_told_not_to_wait_for_transfers(plan, waits):
    """schedules.py: plain 1F1B refuses overlap_p2p_comm; it and batch_p2p_comm exclude each other."""
    written = yaml.safe_load(text_of(job_with("llama-3-8b", plan, "megatron-bridge")))

    switches = [written["model"].get(name) for name in ("batch_p2p_comm", "overlap_p2p_comm")]
    assert switches == [waits, None if waits is None else not waits]
    assert written["comm_overlap"] is None


def test_types_of_states_are_overridden_as_types_of_pytorch():
    """omegaconf_utils.py: a text over a torch.dtype is looked up in torch by its last part."""
    narrow = {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16", "main_parameter_bytes": "2 B"}
    stack = (("base", "megatron-bridge"), ("optimizer", narrow))

    job = job_with.__wrapped__("llama-3-8b", "dp=16 gbs=64 zero=1", stack)

    written = yaml.safe_load(text_of(job))["optimizer"]
    assert written["exp_avg_dtype"] == written["exp_avg_sq_dtype"] == "torch.bfloat16"
    assert again(job).stack.optimizer == job.stack.optimizer


BESIDE = (("base", "megatron-bridge"), ("offload", {"gradient_flush": "beside_update"}))
UNPINNED = (("base", "megatron-bridge"), ("offload", {"gradient_copies": "pageable"}))


@all_cases(
    ("plan", "stack"),
    [
        ("zero=1 offload=optimizer:host", "megatron-bridge"),
        ("zero=1 offload=optimizer:host:0.4", UNPINNED),
        ("zero=1 offload=optimizer:host", BESIDE),
        ("zero=1 offload=activations:host:0.5", "megatron-bridge"),
        ("zero=1 offload=activations:host:0.125,optimizer:host", "megatron-bridge"),
    ],
)
def test_states_on_the_host_come_back_from_overrides(plan, stack):
    job = job_with.__wrapped__(DENSE, f"dp=16 gbs=64 {plan}", stack, "dgx-h100:2")

    found = again(job)

    assert differences(job, found) == ()
    assert found.stack.offload == job.stack.offload


def test_offload_of_a_recipe_is_switched_off_where_the_job_has_none():
    written = yaml.safe_load(text_of(job_with(DENSE, "dp=16 gbs=64 zero=1", "megatron-bridge")))

    assert written["model"]["cpu_offloading"] is False
    assert written["optimizer"]["optimizer_cpu_offload"] is False


def test_a_job_without_adapters_switches_a_recipes_off():
    assert yaml.safe_load(text_of(job_with("llama-3-8b")))["peft"] is None


def test_other_software_and_a_lost_type_of_gradients_are_told():
    other = export_megatron_bridge(job_with("llama-3-8b")).notes
    own = export_megatron_bridge(job_with("llama-3-8b", "dp=16 gbs=64 zero=1", "megatron-bridge")).notes

    assert any("is not Megatron-Bridge" in note for note in other)
    assert any("gradients.dtype = fp32 instead of bf16" in note for note in own)
