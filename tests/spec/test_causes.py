"""One cause is one fault; its fix mends it and keeps what the user asked for where that is possible."""

import pytest
from conftest import make_job
from spec_cases import edits, faults, mixture, model, parts
from test_rules import BROKEN

from flopcast.spec.plan import Plan
from flopcast.workload.checks import check
from flopcast.workload.suggested_fixes import causes

PLAN_FIELDS = Plan.model_fields.keys() - {"recompute_layers"}  # said in one word with recompute
WHOLE = {"data_parallel": 4, "tensor_parallel": 2, "pipeline_parallel": 2, "global_batch": 32}
LARGE = {"data_parallel": 32, "global_batch": 64, "precision": "bf16"}
WRONG = {  # values of one field that may break a plan which is right without it
    "data_parallel": (1, 3, 5, 8, 16),
    "tensor_parallel": (1, 3, 4, 5, 8, 64),
    "pipeline_parallel": (1, 3, 4, 5, 7, 16),
    "context_parallel": (2, 3, 8),
    "virtual_stages": (2, 3, 9),
    "expert_parallel": (3, 5, 6, 7, 12, 64),
    "expert_tensor_parallel": (3, 16),
    "micro_batch": (3, 7, 64),
    "global_batch": (1, 7, 33, 4097),
    "data_shard": (3, 16),
    "zero": (2, 3),
    "schedule": ("interleaved_1f1b", "zb_v", "dualpipe", "zb_h1"),
    "precision": ("fp8", "nvfp4"),
    "recompute_layers": (4,),
    "recompute_modules": (("core_attention",),),
    "stage_layers": ((3, 4), (8,), (2, 2, 2, 2)),
    "partition_activations": (True,),
    "offload": (Plan(offload="optimizer:host").offload,),
}


def edited(job, edit):
    """The job after an edit of its plan; what nobody gave follows from what is given."""
    given = {name: getattr(job.plan, name) for name in job.plan.model_fields_set}
    return job.model_copy(update={"plan": Plan(**(given | edit))})


@pytest.mark.parametrize(
    ("shape", "stack"),
    [(model(), "megatron-core"), (mixture(), "megatron-core"), (model(), "torch-fsdp2")],
    ids=["dense", "experts", "fsdp"],
)
def test_one_wrong_field_is_one_fault_and_its_fix_mends_the_plan(shape, stack):
    base = make_job(model=shape, stack=stack, cluster="dgx-a100:2", plan=WHOLE | {"zero": 0, "sp": True})
    failures, broken = [], 0

    for name, value in ((name, value) for name, values in WRONG.items() for value in values):
        job = edited(base, {name: value})
        raw = check(job)
        if not raw:
            continue
        broken += 1
        told = causes(job)
        ways = edits(told[0]) if told else []
        left = check(edited(job, ways[0])) if ways else raw
        if len(told) != 1:
            failures.append((name, value, "faults", [str(one) for one in told]))
        elif left and ways:
            failures.append((name, value, told[0].fix, [str(one) for one in left]))
        elif ways and name in ways[0]:
            others = [way for one in raw for way in edits(one) if name not in way]
            keeping = [way for way in others if way.keys() <= Plan.model_fields.keys()]
            better = [way for way in keeping if not check(edited(job, way))]
            failures += [(name, value, told[0].fix, "gives up the field, not", better)] if better else []

    assert failures == []
    assert broken > 20


def test_the_fix_of_every_rule_mends_its_example_and_leaves_no_other_fault():
    """Examples of rules (test_rules.py) break one rule each; fixes that edit the plan are followed."""
    failures, followed = [], 0

    for name, (whole, *_) in BROKEN.items():
        told = faults(whole)
        ways = [way for way in edits(told[0])[:1] if way.keys() <= PLAN_FIELDS]
        if len(told) != 1:
            failures.append((name, [str(one) for one in told]))
        for way in ways:
            followed += 1
            plan = whole["plan"] | way
            left = [str(one) for one in faults(whole | {"plan": plan})]
            failures += [(name, told[0].fix, left)] if left else []

    assert failures == []
    assert followed > 30


def test_more_stages_than_divide_the_blocks_get_unequal_stages_and_not_fewer():
    """DeepSeek-V3 has 61 blocks, a prime: 16 stages are possible if they hold unequal numbers of blocks."""
    whole = parts(model=model(blocks=61), cluster="dgx-a100:16", data_parallel=8, pipeline_parallel=16)

    layers = make_job(**whole | {"stack": "megatron-core"}).plan.stage_layers

    assert (sum(layers), len(layers)) == (61, 16)


def test_a_degree_that_no_devices_and_no_heads_divide_by_is_one_fault():
    (told,) = faults(parts(model="llama-3-70b", cluster="dgx-h100:8", tensor_parallel=3, **LARGE))

    assert told.field == "plan.tensor_parallel"
    assert edits(told) == [{"tensor_parallel": 2}]
    assert "64 (the number of devices of the cluster)" in told.allowed


def test_degrees_that_are_too_many_keep_those_that_are_not_replicas():
    (told,) = faults(parts(cluster="dgx-a100:1", data_parallel=8, tensor_parallel=4, global_batch=16))

    assert edits(told) == [{"data_parallel": 2}]
