"""Jobs as launch scripts of Megatron-LM: what is written is read back as the same job."""

import shlex

import pytest
from all_cases import all_cases
from export_cases import DENSE, MODELS, SPARSE, job_with, jobs, refused
from hypothesis import HealthCheck, given, settings
from megatron_cases import EXPECTED, REFUSED_BY_RULES, job_on, script

from flopcast import job as make_job
from flopcast.interop.exports.megatron import export_megatron
from flopcast.interop.exports.same_job import canonical_model, canonical_stack, differences, read_back
from flopcast.interop.megatron.launch_script import launch_document
from flopcast.library import catalog

LAWS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
SCRIPTS = [name for name in EXPECTED if name not in REFUSED_BY_RULES]
SAYABLE = [  # kinds of decoders that flags describe: their models must never become unsayable
    "gpt3-175b", "llama-2-7b", "llama-3.1-405b", "qwen2.5-7b", "qwen3-8b", "gemma-7b", "bloom-176b",
    "mistral-7b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen1.5-moe-a2.7b", "deepseek-v2-lite", "deepseek-v3",
]  # fmt: skip


def text_of(job):
    ((_, content),) = export_megatron(job).files
    return content.decode()


def again(job):
    """The job that the exported script says."""
    document = launch_document(text_of(job), "run.sh", job.cluster.num_devices)
    return read_back(document, job)


def flags_of(job):
    words = shlex.split(text_of(job).partition("pretrain_gpt.py")[2].replace("\\\n", " "))
    return words


@all_cases("name", SCRIPTS)
def test_a_script_that_was_read_is_written_as_a_script_of_the_same_job(name):
    job = job_on(script(name))

    found = again(job)

    assert differences(job, found) == ()
    assert found.stack.name == job.stack.name
    assert canonical_stack(found) == canonical_stack(job)


@all_cases("name", SCRIPTS)
def test_the_same_model_has_the_same_parameters_and_flop(name):
    job = job_on(script(name))

    found = again(job).model

    assert found.parameters() == job.model.parameters()
    assert found.forward_flop(1024) == job.model.forward_flop(1024)


@all_cases("name", MODELS)
def test_a_model_is_written_whole_or_refused_by_the_names_of_its_fields(name):
    job = job_with(name)

    problems = refused(export_megatron, job)

    if problems:
        assert name not in SAYABLE
        assert all(field.startswith("model.") for field in problems)
    else:
        assert again(job).model.parameters() == job.model.parameters()
        assert canonical_model(again(job)) == canonical_model(job)


def test_most_models_of_the_catalogue_can_be_written():
    decoders = [name for name in MODELS if catalog.model(name).vision is None]
    written = [name for name in decoders if not refused(export_megatron, job_with(name))]

    assert set(SAYABLE) <= set(written)
    assert len(written) > 0.6 * len(decoders)


@LAWS
@given(job=jobs(DENSE, zero=(0, 1), recompute=["full:block:2", "full:uniform:2", "selective:mlp"]))
def test_any_plan_of_a_dense_model_comes_back(job):
    assert differences(job, again(job)) == ()


@LAWS
@given(job=jobs(SPARSE, experts=True, precisions=("bf16", "fp8")))
def test_any_plan_of_a_mixture_of_experts_comes_back(job):
    assert differences(job, again(job)) == ()


CHANGES = {
    "gradients": {"overlap": True, "overlap_gather": True, "dtype": "bf16"},
    "attention_kernel": "materialised",
    "rewrites": ["fused_layernorm", "epilogue_bias", "unfused_rope"],
    "tensor_overlap": "chunks",
    "fused_loss": "all",
    "optimizer": {"exp_avg_dtype": "bf16", "main_parameter_bytes": "2 B", "fp32_gradients": False},
}


@all_cases("field", CHANGES)
def test_what_a_flag_switches_of_a_stack_comes_back(field):
    stack = (("base", "megatron-core"), (field, CHANGES[field]))
    job = job_with.__wrapped__("llama-3-8b", "dp=4 tp=4 gbs=64 zero=1 sp precision=bf16", stack)

    found, wanted = canonical_stack(again(job)), canonical_stack(job)

    assert found[field] == wanted[field]


UNSAYABLE = {
    "zb_h1": ("dp=8 pp=2 gbs=64 schedule=zb_h1 zero=1", "plan.schedule"),
    "every": ("dp=16 gbs=64 recompute=full:every:2", "plan.recompute_method"),
    "8-bit moments": ("dp=16 gbs=64 optimizer=adamw_8bit", "plan.optimizer"),
    "fp32": ("dp=16 gbs=64 precision=fp32", "plan.precision"),
    "hybrid shards": ("dp=16 gbs=64 zero=1 dp_shard=8", "plan.data_shard"),
}


@all_cases("name", UNSAYABLE)
def test_what_no_flag_says_is_refused_by_name_with_the_edit_that_gives_it_up(name):
    plan, field = UNSAYABLE[name]

    problem = refused(export_megatron, job_with("llama-3-8b", plan))[field]

    assert "cannot be exported to Megatron-LM's flags" in str(problem)
    assert problem.fix.startswith(f"add {field}=")


def test_the_edit_that_a_refusal_names_makes_the_job_exportable():
    problems = refused(export_megatron, job_with("phi-2")).values()
    fixes = [problem.fix.removeprefix("add ") for problem in problems]
    named = {"model": "phi-2", "cluster": "selene:2", "stack": "megatron-core", "seq": 1024}
    job = make_job(**named, plan="dp=16 gbs=64", changes=fixes)

    assert len(fixes) == 3
    assert refused(export_megatron, job) == {}


BESIDE = (("base", "megatron-core"), ("offload", {"gradient_flush": "beside_update"}))
UNPINNED = (("base", "megatron-core"), ("offload", {"gradient_copies": "pageable"}))


@all_cases(
    ("plan", "stack"),
    [
        ("zero=1 offload=optimizer:host", "megatron-core"),
        ("zero=1 offload=optimizer:host:0.4", UNPINNED),
        ("zero=1 offload=optimizer:host", BESIDE),
        ("offload=activations:host:0.5", "megatron-core"),
        ("zero=1 offload=activations:host:0.125,optimizer:host", "megatron-core"),
        ("zero=1 recompute=full offload=activations:host,optimizer:host", "gpt-neox-deepspeed"),
    ],
)
def test_states_on_the_host_come_back(plan, stack):
    precision = "fp16" if "neox" in stack else "bf16"
    job = job_with.__wrapped__(DENSE, f"dp=16 gbs=64 precision={precision} {plan}", stack, "dgx-h100:2")

    found = again(job)

    assert differences(job, found) == ()
    assert found.stack.offload == job.stack.offload


@all_cases(
    "plan",
    [
        "dp=16 offload=activations:host",  # at least one layer stays on the device
        "dp=16 offload=activations:host:0.3",  # a part of a layer
        "dp=16 recompute=full offload=activations:host:0.5",
        "dp=8 pp=2 offload=activations:host:0.5",
    ],
)
def test_activations_that_megatron_cannot_offload_are_refused(plan):
    job = job_with(DENSE, f"gbs=64 {plan}", cluster="dgx-h100:2")

    assert set(refused(export_megatron, job)) == {"plan.offload"}


def test_packed_sequences_are_no_flags():
    job = job_with("llama-3-8b")
    packed = job.model_copy(update={"batch": job.batch.model_copy(update={"documents": (256, 768)})})

    assert set(refused(export_megatron, packed)) == {"batch.documents"}


@pytest.mark.parametrize(("model", "seq"), [("mistral-7b", 4096), ("mistral-7b", 8192)])
def test_a_window_comes_back_whether_a_sequence_reaches_it_or_not(model, seq):
    job = job_with(model, seq=seq)

    assert "4095,0" in flags_of(job)
    assert canonical_model(again(job)) == canonical_model(job)


def test_windows_of_some_layers_come_back_in_their_pattern():
    """GPT-Neo 1.3B: a window of 256 tokens in every second of 24 layers."""
    job = job_with("gpt-neo-1.3b")
    biased = [
        block.model_copy(update={"mixer": block.mixer.model_copy(update={"qkv_bias": True})})
        for block in job.model.blocks
    ]
    job = job.model_copy(update={"model": job.model.model_copy(update={"blocks": tuple(biased)})})

    flags = flags_of(job)

    assert flags[flags.index("--window-size") + 1] == "255,0"
    assert flags[flags.index("--window-attn-skip-freq") + 1] == f"({'+'.join(['[0]*1', '[1]*1'] * 12)})"
    assert canonical_model(again(job)) == canonical_model(job)


def test_chunks_of_a_sequence_are_no_window_of_the_flags():
    job = job_with("llama-4-scout", seq=16384)

    assert "model.blocks.0.mixer.window_kind" in refused(export_megatron, job)


def test_uneven_stages_become_a_layout():
    job = job_with("llama-3-8b", "dp=4 pp=4 gbs=64 stage_layers=9,9,9,5")

    flags = flags_of(job)

    assert flags[flags.index("--pipeline-model-parallel-layout") + 1] == "Et*9|t*9|t*9|t*5L"
    assert again(job).plan.stage_layers == (9, 9, 9, 5)


def test_a_script_starts_as_many_ranks_as_the_cluster_has_devices():
    job = job_with("llama-3-8b")

    document = launch_document(text_of(job), "run.sh")  # no number of devices is given

    assert document.data["plan"]["data_parallel"] == 16


def test_what_a_stack_loses_is_told_with_its_name():
    notes = export_megatron(job_with("llama-3-8b", "dp=16 gbs=64 zero=1", stack="megatron-core-2025")).notes

    (told,) = [note for note in notes if "cannot contain the stack" in note]
    assert "--stack megatron-core-2025" in told
    assert "sharding.built_whole = false instead of true" in told


def test_other_software_is_told():
    notes = export_megatron(job_with("llama-3-8b", "dp=16 gbs=64 zero=3", stack="torch-fsdp2")).notes

    assert any("these flags start Megatron-LM" in note for note in notes)


def test_a_plain_job_of_a_named_release_loses_nothing():
    notes = export_megatron(job_with("llama-3-8b")).notes

    assert not [note for note in notes if "cannot contain" in note or "start Megatron-LM" in note]
