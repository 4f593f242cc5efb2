"""Jobs as settings of DeepSpeed and torchtitan: what is written is read back as the same job."""

import json
import tomllib

import pytest
from all_cases import all_cases
from export_cases import job_with, jobs, refused
from hypothesis import HealthCheck, given, settings

from flopcast.errors import SpecError
from flopcast.interop.configs.formats import kind_of, parsed, read_kind
from flopcast.interop.configs.import_options import ImportOptions
from flopcast.interop.configs.job_reader import FLAVOURS
from flopcast.interop.exports.deepspeed import LEFT_OPEN, export_deepspeed
from flopcast.interop.exports.same_job import canonical_stack, differences, read_back
from flopcast.interop.exports.torchtitan import export_torchtitan

LAWS = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
MODEL = "llama-3.1-8b"


def text_of(made):
    ((_, content),) = made.files
    return content.decode()


def again(export, name, job):
    """The job that the exported file says, found out by its own keys."""
    document = parsed(text_of(export(job)).encode(), name)
    kind = kind_of(document)
    made = read_kind(
        document, kind, ImportOptions(devices=job.cluster.num_devices, model=kind == "deepspeed")
    )
    return read_back(made, job, LEFT_OPEN if kind == "deepspeed" else ())


def of_deepspeed(job):
    return again(export_deepspeed, "ds.json", job)


def of_torchtitan(job):
    return again(export_torchtitan, "train.toml", job)


@all_cases("zero", [0, 1, 2, 3])
@all_cases("more", ["precision=bf16", "precision=fp16", "optimizer=sgd_momentum"])
def test_deepspeed_gets_every_stage_and_precision(zero, more):
    stack = (
        "deepspeed-zero"
        if zero
        else (("base", "deepspeed-zero"), ("gradients", {"collective": "all_reduce"}))
    )
    job = job_with.__wrapped__(MODEL, f"dp=16 mbs=2 gbs=128 zero={zero} {more}", stack)

    if (
        zero == 0 and "fp16" not in more
    ):  # DeepSpeed's optimizer of bf16 shards the states whatever the stage
        assert refused(export_deepspeed, job).keys() == {"plan.zero"}
        return
    assert differences(job, of_deepspeed(job)) == ()


def test_the_batch_identity_of_deepspeed_holds():
    job = job_with(MODEL, "dp=16 mbs=2 gbs=128 zero=3", "deepspeed-zero")

    settings_of = json.loads(text_of(export_deepspeed(job)))

    steps = settings_of["gradient_accumulation_steps"]
    assert settings_of["train_batch_size"] == 128
    assert settings_of["train_micro_batch_size_per_gpu"] * steps * 16 == 128


def test_a_plain_job_of_deepspeed_loses_nothing_of_its_stack():
    job = job_with(MODEL, "dp=16 mbs=2 gbs=128 zero=3", "deepspeed-zero")

    assert canonical_stack(of_deepspeed(job)) == canonical_stack(job)


PINNED = (("base", "deepspeed-zero"), ("offload", {"gradient_copies": "pinned"}))
BUFFERED = (("base", "deepspeed-zero"), ("offload", {"buffer_bytes": "1 GB"}))


@all_cases(
    ("plan", "stack"),
    [
        ("zero=1 offload=optimizer:host", "deepspeed-zero"),
        ("zero=2 offload=optimizer:host", PINNED),
        ("zero=3 offload=optimizer:host:0.4", "deepspeed-zero"),
        ("zero=3 offload=parameters:host", "deepspeed-zero"),
        ("zero=3 offload=parameters:nvme,optimizer:nvme", BUFFERED),
        ("zero=3 recompute=full offload=activations:host", "deepspeed-zero"),
        ("zero=3 recompute=full offload=activations:host,parameters:host,optimizer:host", PINNED),
    ],
)
def test_deepspeed_gets_placements_with_their_copies(plan, stack):
    job = job_with.__wrapped__(MODEL, f"dp=16 mbs=2 gbs=128 {plan}", stack, "dgx-h100:2")

    found = of_deepspeed(job)

    assert differences(job, found) == ()
    assert canonical_stack(found) == canonical_stack(job)


@all_cases(
    "plan",
    [
        "zero=3 offload=optimizer:host:0.5,optimizer:nvme:0.5",
        "zero=3 offload=activations:host",  # only checkpoints can be moved
        "zero=3 recompute=full offload=activations:host:0.5",
        "zero=2 offload=optimizer:host:0.5",  # a part only in stage 3
        "zero=2 offload=optimizer:nvme",
        "zero=3 offload=parameters:host:0.5",
        "zero=3 offload=optimizer:host,gradients:nvme",
    ],
)
def test_placements_that_deepspeed_has_not_are_refused(plan):
    job = job_with(MODEL, f"dp=16 mbs=2 gbs=128 {plan}", "deepspeed-zero", "dgx-h100:2")

    assert refused(export_deepspeed, job).keys() == {"plan.offload"}


def test_deepspeed_gets_zero_plus_plus_and_other_groups_are_refused():
    written = (
        "parameters:all:int8",
        "secondary:4",
        "gradients:all:int4",
        "parameters:all:int8,secondary:8:int8,gradients:all:int4",
    )
    for shards in written:
        job = job_with(MODEL, f"dp=16 mbs=2 gbs=128 zero=3 shards={shards}", "deepspeed-zero")
        assert differences(job, of_deepspeed(job)) == (), shards
    for shards in ("parameters:2,gradients:8", "gradients:all:int8", "secondary:4:int8"):
        job = job_with(MODEL, f"dp=16 mbs=2 gbs=128 zero=3 shards={shards}", "generic")
        assert "plan.shards" in refused(export_deepspeed, job), shards


def test_torchtitan_has_no_groups_of_single_states():
    job = job_with(MODEL, "dp=16 gbs=64 zero=3 shards=secondary:8", "torch-fsdp2")

    assert refused(export_torchtitan, job).keys() == {"plan.shards"}


def test_torchtitan_offloads_all_sharded_states_or_none():
    for offload, fields in (
        ("optimizer:host,parameters:host", set()),
        ("optimizer:host", {"plan.offload"}),
        ("optimizer:host:0.5,parameters:host", {"plan.offload"}),
        ("activations:host", {"plan.offload"}),
    ):
        job = job_with(MODEL, f"dp=16 gbs=64 zero=3 offload={offload}", "torch-fsdp2", "dgx-h100:2")

        assert refused(export_torchtitan, job).keys() == fields, offload
        if not fields:
            assert differences(job, of_torchtitan(job)) == ()


def test_what_the_program_decides_is_told_as_it_is_given():
    job = job_with(MODEL, "dp=16 gbs=64 zero=3 recompute=full:block:2", "deepspeed-zero")

    notes = export_deepspeed(job).notes

    assert any("plan.recompute=full:block:2" in note for note in notes)
    assert any("--model llama-3.1-8b --seq 1024" in note for note in notes)


def test_stages_and_recipes_are_none_of_deepspeed():
    piped = job_with(MODEL, "dp=8 pp=2 gbs=64 zero=1", "megatron-core")
    narrow = job_with(MODEL, "dp=64 gbs=64 zero=1 precision=fp8", "megatron-core", "dgx-h100:8")

    assert "plan.pipeline_parallel" in refused(export_deepspeed, piped)
    with pytest.raises(SpecError, match=r"add plan\.pipeline_parallel=1 plan\.data_parallel=16"):
        export_deepspeed(piped)
    assert "plan.precision" in refused(export_deepspeed, narrow)


TITAN = {
    "shards": "dp=16 gbs=64 zero=3",
    "groups": "dp=16 gbs=64 zero=3 dp_shard=8",
    "replicas": "dp=16 gbs=64 zero=0",
    "tensor": "dp=4 tp=4 mbs=2 gbs=64 sp zero=3",
    "stages": "dp=4 pp=4 gbs=64 zero=3",
    "uneven": "dp=4 pp=4 gbs=64 zero=3 stage_layers=9,9,9,5",
    "chunks": "dp=4 pp=4 vpp=2 gbs=64 zero=3",
    "whole": "dp=16 gbs=64 zero=3 recompute=full",
    "every second": "dp=16 gbs=64 zero=3 recompute=full:every:2",
    "operators": "dp=16 gbs=64 zero=3 recompute=selective:operators",
    "context": "dp=4 cp=4 gbs=64 zero=3 context_exchange=all_gather",
}


@all_cases("stack", ["torch-fsdp2", "torch-fsdp2-compiled"])
@all_cases("name", TITAN)
def test_torchtitan_gets_the_plan(name, stack):
    job = job_with(MODEL, TITAN[name], stack)

    found = of_torchtitan(job)

    assert differences(job, found) == ()
    assert canonical_stack(found) == canonical_stack(job)


@pytest.mark.parametrize("model", sorted(set(FLAVOURS.values())))
def test_every_flavour_comes_back_as_its_model(model):
    try:
        job = job_with(model, "dp=16 gbs=64 zero=3", "torch-fsdp2")
    except SpecError:
        pytest.skip("a rule refuses the job itself")
    if job.model.mtp:  # torchtitan has no modules of multi-token prediction
        assert refused(export_torchtitan, job).keys() == {"model.mtp"}
        job = job.model_copy(update={"model": job.model.model_copy(update={"mtp": 0})})

    assert of_torchtitan(job).model == job.model


def test_every_key_of_torchtitan_is_a_flag_in_its_head():
    text = text_of(export_torchtitan(job_with(MODEL, TITAN["stages"], "torch-fsdp2")))

    head, data = text.splitlines()[0], tomllib.loads(text)
    assert all(f"--{section}.{key} " in head for section, keys in data.items() for key in keys)
    assert "--parallelism.pipeline_parallel_split_points layers.8,layers.16,layers.24" in head


def test_a_model_without_a_flavour_and_a_plan_of_others_are_refused():
    assert refused(export_torchtitan, job_with("gpt3-175b", "tp=8 dp=2 gbs=64 sp")).keys() == {"model.name"}
    assert "plan.zero" in refused(export_torchtitan, job_with(MODEL, "dp=16 gbs=64 zero=1"))
    assert "plan.precision" in refused(
        export_torchtitan, job_with(MODEL, "dp=16 gbs=64 zero=3 precision=fp16", "deepspeed-zero")
    )


def test_other_stacks_are_told():
    for export in (export_deepspeed, export_torchtitan):
        notes = export(job_with(MODEL, "dp=16 gbs=64 zero=3", "generic")).notes

        assert any("the stack generic" in note for note in notes)


@LAWS
@given(job=jobs(MODEL, "torch-fsdp2", zero=(0, 3), precisions=("bf16",)))
def test_a_drawn_plan_is_written_whole_or_refused_by_name(job):
    fields = refused(export_torchtitan, job)

    if fields:
        assert all(field.startswith("plan.") for field in fields)
    else:
        assert differences(job, of_torchtitan(job)) == ()
