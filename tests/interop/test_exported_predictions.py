"""What is written is predicted as what was given: step, memory and FLOP of the file's job, read back.

Stacks are not compared: a format names its release by what it is read as, and tells what it loses. So the
job that comes back is predicted with the stack of the one that was written.
"""

from functools import cache

import pytest
from all_cases import all_cases
from export_cases import DENSE, SPARSE, job_with
from test_export_round_trip import NAMES, again, text_of, with_stack_of

from flopcast.errors import SpecError
from flopcast.interop.exports.kinds import KINDS
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.predictor import Predictor

STACKS = ("megatron-core", "megatron-2022", "gpt-neox-deepspeed", "deepspeed-zero", "torch-fsdp2")
AWKWARD = [  # plans of 16 ranks whose fields mean more, or less, than they seem to
    "dp=4 pp=4 stage_layers=8,8,8,8",
    "dp=4 pp=4 stage_layers=7,9,9,7",
    "dp=4 pp=4",
    "dp=2 tp=2 pp=4 sp",
    "dp=4 pp=2 vpp=2 tp=2 stage_layers=8,8,8,8",
    "dp=4 tp=4 rank_order=tp-cp-pp-dp",
    "dp=2 tp=2 pp=4 rank_order=tp-cp-pp-dp",
    "dp=4 tp=4 recompute=full partition_activations",
    "dp=16 recompute=full:uniform:4",
    "dp=4 pp=4 recompute=full:block:3",
    "dp=16 recompute=selective:mlp",
    "dp=16 recompute=selective",
    "dp=16 zero=1",
    "dp=16 zero=1 dp_shard=4",
    "dp=16 zero=2",
    "dp=16 zero=3",
    "dp=16 zero=3 dp_shard=8",
    "dp=16 zero=3 dp_shard=16",
    "dp=4 cp=4 zero=1",
    "dp=4 cp=4 zero=1 context_exchange=all_gather",
    "dp=4 cp=4 zero=1 context_order=contiguous",
    "dp=16 mbs=2",
    "dp=16 optimizer=sgd",
    "dp=16 optimizer=adamw_8bit",
    "dp=16 precision=fp16",
]
OF_EXPERTS = [
    "dp=16 ep=8 zero=1",
    "dp=4 tp=4 sp ep=4 etp=1 zero=1",
    "dp=4 tp=4 sp ep=4 etp=4 zero=1",
    "dp=8 pp=2 ep=8 zero=1",
]
WRITTEN = {"megatron": 78, "deepspeed": 35, "torchtitan": 31, "megatron-bridge": 90}  # of all, at least


PREDICTOR = Predictor()


@cache
def told(job):
    """Numbers of a report that no other job would have, all of them; of equal jobs once."""
    report = PREDICTOR.predict(job)
    metrics, memory = report.metrics, report.memory
    return (
        report.step_time_s,
        memory.device_used_bytes,
        memory.allocated_bytes,
        metrics.model_flop,
        metrics.hardware_flop,
        metrics.tokens_per_s,
    )


@cache
def jobs():
    """Every awkward plan on every stack that runs it, and what is predicted of it."""
    found = []
    for model, plans in ((DENSE, AWKWARD), (SPARSE, OF_EXPERTS)):
        for stack in STACKS:
            for plan in plans:
                try:
                    job = job_with(model, f"{plan} gbs=128", stack)
                except SpecError:
                    continue
                found.append((plan, job, told(job)))
    return found


@all_cases("kind", NAMES)
def test_a_job_comes_back_with_the_prediction_that_it_went_out_with(kind):
    """Or is refused: nothing that changes a step, its memory or its FLOP is lost without a word."""
    written = 0
    for plan, job, expected in jobs():
        try:
            text = text_of(KINDS[kind].export(job))
        except SpecError:
            continue
        found = with_stack_of(again(kind, job, text), job)
        assert told(found) == expected, (plan, job.stack.name)
        written += 1

    assert written >= WRITTEN[kind]


def refused(kind, job):
    with pytest.raises(SpecError) as error:
        KINDS[kind].export(job)
    return {problem.field: problem.fix for problem in error.value.problems}


def test_equal_stages_are_a_list_where_the_stack_would_deal_out_blocks_otherwise():
    """DeepSpeed counts the layers at both ends: without a list its stages are not equal."""
    listed, plain = (
        job_with(DENSE, f"dp=4 pp=4 gbs=128{words}", "gpt-neox-deepspeed")
        for words in (" stage_layers=8,8,8,8", "")
    )

    steps = [predict(job, load_book(job.cluster)).step_time_s for job in (listed, plain)]

    assert abs(steps[0] / steps[1] - 1) > 0.01
    halves = [
        job_with(DENSE, plan, "gpt-neox-deepspeed")
        for plan in (
            "dp=4 pp=4 gbs=128 precision=fp16",
            "dp=4 pp=4 gbs=128 precision=fp16 stage_layers=8,8,8,8",
        )
    ]
    assert set(refused("megatron", halves[1])) == {"plan.stage_layers"}
    assert KINDS["megatron"].export(halves[0]).files
    assert refused("torchtitan", plain) == {"plan.stage_layers": "add plan.stage_layers=8,8,8,8"}
    assert KINDS["torchtitan"].export(listed).files
