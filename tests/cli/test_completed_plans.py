"""A plan with parts missing is completed: what is given stays, the rest is chosen, and both are said."""

from pathlib import Path

import pytest
from command_line import flopcast
from conftest import make_job

from flopcast.errors import SpecError
from flopcast.jobs import job
from flopcast.spec.plan import Plan

TRACED = Path(__file__).parents[1] / "interop" / "tracing" / "models"
PARTIAL = {  # a plan with parts missing on 8 devices → what it gives
    "tp=2 gbs=64": {"tensor_parallel": 2, "global_batch": 64},
    "pp=2": {"pipeline_parallel": 2},
    "dp=8": {"data_parallel": 8},
    "mbs=2 recompute=full": {"micro_batch": 2, "recompute": "full"},
    "cp=2 gbs=16 tp=2": {"context_parallel": 2, "tensor_parallel": 2, "global_batch": 16},
}


def test_a_plan_with_parts_missing_keeps_what_is_given_and_gets_the_rest():
    failures = []

    for text, given in PARTIAL.items():
        completed = make_job(stack="megatron-core", plan=text)
        kept = {name: getattr(completed.plan, name) for name in given}
        said = [line for line in completed.assumptions if line.startswith("plan completed with ")]
        if kept != given or completed.plan.devices != 8 or len(said) != 1:
            failures.append((text, completed.plan.short(), completed.assumptions))

    assert failures == []


def test_what_was_filled_in_is_said_and_what_was_given_is_not():
    completed, chosen = (
        make_job(stack="megatron-core", plan=plan) for plan in ("tp=2 gbs=64", "auto tp=2 gbs=64")
    )

    filled = completed.assumptions[0].partition("plan completed with ")[2].partition(": the ")[0].split()

    given = {"tp=2", "gbs=64"}
    assert completed == chosen
    assert set(completed.plan.short().split()) == set(filled) | given
    assert given.isdisjoint(filled)


@pytest.mark.parametrize(
    ("gpus", "plan", "implied"),
    [
        (16, "tp=16", {"tensor_parallel": 16}),  # beyond the 8 devices of a node, because it is named
        (64, "tp=16 pp=2", {"tensor_parallel": 16, "pipeline_parallel": 2}),
        (8, "mbs=3", {"micro_batch": 3}),
        (8, "stage_layers=6,10", {"stage_layers": (6, 10), "pipeline_parallel": 2}),
        (8, "stage_layers=4x4 vpp=2", {"pipeline_parallel": 2, "virtual_stages": 2}),
        (64, "dp_shard=8", {"data_shard": 8}),
        (64, "dp_shard=8 zero=3", {"data_shard": 8, "zero": 3}),
        (64, "dp_shard=8 gbs=8", {"data_shard": 8, "data_parallel": 8}),
    ],
)
def test_a_setting_that_few_plans_have_is_kept_and_no_dead_end(gpus, plan, implied):
    completed = job("llama-3.2-1b", cluster="dgx-a100", gpus=gpus, stack="megatron-core", plan=plan)

    assert {name: getattr(completed.plan, name) for name in implied} == implied
    assert completed.plan.zero > 0 or completed.plan.data_shard == 0
    assert completed.plan.global_batch % (completed.plan.micro_batch * completed.plan.data_parallel) == 0


@pytest.mark.parametrize(
    ("plan", "fix"),
    [
        ("pp=4 vpp=5", "set virtual_stages to 4"),
        ("stage_layers=10,10", "set stage_layers to 8,8"),
        ("dp_shard=48", "set data_shard to 32"),
    ],
)
def test_a_setting_that_no_plan_has_is_one_fault_of_this_setting(plan, fix):
    with pytest.raises(SpecError) as error:
        job("llama-3.2-1b", cluster="dgx-a100", gpus=64, stack="megatron-core", plan=plan)

    (fault,) = error.value.problems
    assert fault.fix.startswith(fix)


@pytest.mark.parametrize("plan", ["dp=8 gbs=16", "tp=8 gbs=4", "dp=2 tp=2 pp=2 gbs=16 mbs=2"])
def test_a_plan_that_uses_every_device_and_names_its_batch_is_left_as_it_is(plan):
    whole = make_job(stack="megatron-core", plan=plan)

    assert whole.assumptions == ()
    assert whole.plan == Plan(**dict(word.split("=") for word in plan.split()))


@pytest.mark.parametrize("model", ["gpt2", "olmoe-1b-7b"])
def test_a_traced_model_takes_tensor_parallelism_that_is_asked_for(model):
    traced = str(TRACED / f"{model}.yaml")

    completed = job(traced, cluster="dgx-a100", gpus=8, seq=512, stack="megatron-core", plan="tp=2")

    assert completed.plan.tensor_parallel == 2
    assert not completed.plan.sequence_parallel  # a trace shows no kernel of single tokens


def test_three_degrees_that_miss_the_devices_are_a_fault_and_no_completion():
    with pytest.raises(SpecError) as error:
        make_job(stack="megatron-core", plan="dp=2 tp=2 pp=1 gbs=16")

    assert [one.fix for one in error.value.problems] == ["set data_parallel to 4"]


def test_a_contradiction_has_one_cause_whose_fix_keeps_what_was_asked_for():
    """`dp=32 tp=3` had five fixes that excluded each other."""
    for model, gpus, plan, fix in (
        ("llama-3-8b", 64, "dp=32 tp=3", "set tensor_parallel to 2"),
        ("llama-3-8b", 64, "pp=4 vpp=3 dp=16 gbs=64", "set virtual_stages to 2"),
    ):
        with pytest.raises(SpecError) as error:
            job(model, cluster="dgx-h100", gpus=gpus, plan=plan)

        assert {one.fix[: len(fix)] for one in error.value.problems} == {fix}, plan


def test_blocks_that_stages_do_not_divide_are_divided_as_equally_as_possible_and_that_is_said():
    plan = "pp=16 dp=16 tp=1 ep=16 mbs=1 gbs=1024 recompute=full"

    divided = job("deepseek-v3", cluster="dgx-h100", gpus=256, plan=plan)

    assert divided.plan.stage_layers == (2, *[4] * 14, 3)
    assert any("stage_layers 2,4x14,3, because 61 blocks" in text for text in divided.assumptions)


def test_every_command_that_takes_a_job_completes_its_plan():
    words = ("--model", "megatron-1.7b", "--cluster", "dgx-a100:1", "--plan", "tp=2 gbs=64")
    whole = job(model="megatron-1.7b", cluster="dgx-a100:1", plan="tp=2 gbs=64").plan
    failures = []

    for command in ("predict", "memory", "run"):
        ended = flopcast(command, *words, *(("--tokens", "1T") if command == "run" else ()))
        if ended.code != 0 or whole.short() not in ended.out:
            failures.append((command, ended.code, ended.out[:500], ended.err[:500]))

    assert failures == []
