"""Faults of all that a plan may choose, drawn at random: each has a field, and an edit that mends it."""

import pytest
from all_cases import all_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spec_cases import edited, edits, faults, key, mixture, model

from flopcast.spec.plan import Plan

DEGREE = st.sampled_from([1, 2, 3, 4, 8])
CHOICES = st.fixed_dictionaries(
    {
        "data_parallel": DEGREE,
        "tensor_parallel": DEGREE,
        "pipeline_parallel": DEGREE,
        "context_parallel": DEGREE,
        "virtual_stages": st.sampled_from([1, 1, 2, 3]),
        "expert_parallel": DEGREE,
        "expert_tensor_parallel": DEGREE,
        "data_shard": st.sampled_from([0, 0, 1, 2, 3, 4, 16]),
        "zero": st.sampled_from([0, 1, 2, 3]),
        "micro_batch": st.sampled_from([1, 2, 3]),
        "global_batch": st.sampled_from([1, 7, 16, 48, 96]),
        "sequence_parallel": st.booleans(),
        "context_exchange": st.sampled_from(["ring", "all_gather", "all_to_all"]),
        "context_order": st.sampled_from(["zigzag", "contiguous"]),
        "schedule": st.sampled_from(
            ["auto", "1f1b", "interleaved_1f1b", "gpipe", "zb_h1", "zb_h2", "dualpipe"]
        ),
        "recompute": st.sampled_from(
            [
                "none",
                "full",
                "selective",
                "full:block:3",
                "full:uniform:9",
                "full:every:2",
                "selective:mlp",
                "selective:moe,mlp",
            ]
        ),
        "recompute_blocks": st.sampled_from([(), (), (0,), (1,)]),
        "precision": st.sampled_from(["fp16", "bf16", "fp8", "fp8_blockwise", "mxfp8", "nvfp4"]),
        "optimizer": st.sampled_from(["adamw", "adamw_8bit", "adafactor", "sgd", "sgd_momentum"]),
        "stage_layers": st.sampled_from([(), (), (), (4, 4), (3, 5), (8,), (2, 2, 2, 2), (1, 0, 7)]),
        "rank_order": st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"]),
    }
)
STACKS = st.sampled_from(
    ["megatron-2022", "megatron-core", "torch-fsdp2", "deepspeed-zero", "gpt-neox-deepspeed"]
)
ADAPTED = model() | {"adapters": {"rank": 8, "targets": ["q", "down"]}}
WINDOWED = model(window=256)
MODELS = st.sampled_from([model(), mixture(), WINDOWED, ADAPTED, model() | {"mtp": 1}])
UNTIMED = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
WORDS_OF_FAULTS = ("value", "allowed", "because", "fix")


def whole_of(plan, stack, shape, cluster="dgx-b200:2"):
    """Parts of a job."""
    parts = {"plan": plan, "stack": stack, "model": shape, "cluster": cluster}
    return parts | {"batch": {"sequence_length": 1024}}


def of_the_plan(edit):
    """Whether an edit changes fields of the plan alone."""
    return set(edit) <= set(Plan.model_fields)


@UNTIMED
@given(plan=CHOICES, stack=STACKS, shape=MODELS)
def test_faults_of_a_random_plan_are_told_and_mended(plan, stack, shape):
    """Each says all that a reader needs, and changes no value to itself; all edits together mend them."""
    mended = whole = whole_of(plan, stack, shape)
    told, followed = faults(whole), []

    for problem in told:
        assert problem.field.partition(".")[0] in ("plan", "stack", "model", "batch", "cluster")
        assert problem.allowed
        assert problem.because
        assert problem.fix
        assert "{" not in problem.fix + problem.allowed, "a text that was never filled in"
        assert not problem.fix.endswith((".", " "))
        assert "  " not in problem.fix
        advised = [edit for edit in edits(problem) if of_the_plan(edit)]
        for edit in advised:
            if len(edit) == 1:
                ((name, value),) = edit.items()
                assert str(value) != str(plan.get(name, "")), (problem, edit)
        for edit in advised[:1] if advised[:1] == edits(problem)[:1] else ():
            mended, followed = edited(mended, edit), [*followed, problem]
    assert len({key(problem) for problem in told}) == len(told), "one rule, one fault"

    left = {key(problem) for problem in faults(mended)}
    assert [problem for problem in followed if key(problem) in left] == []


VALUES = {  # a field, what somebody writes there, and words of the answer
    "zero": (4, "0, 1, 2 or 3"),
    "data_shard": (-1, "a whole number of at least 0"),
    "data_parallel": (0, "a whole number of at least 1"),
    "context_parallel": ("two", "whole number"),
    "context_exchange": ("p2p", "ring, all_gather or all_to_all"),
    "context_order": ("striped", "contiguous or zigzag"),
    "optimizer": ("sophia", "adamw"),
    "precision": ("int8", "nvfp4"),
    "recompute": ("partial", "none, selective or full"),
    "recompute_method": ("blocks", "uniform, block or every"),
    "recompute_layers": (0, "a whole number of at least 1"),
    "recompute_blocks": ("first", "whole number"),
    "stage_layers": ("4,4x0", "whole number"),
    "schedule": ("zbv", "'zb_h2'"),
    "rank_order": ("dp-tp", "tp-cp-dp-pp"),
    "expert_parallel": (1.5, "whole number"),
    "expert_tensor_parallel": (0, "a whole number of at least 1"),
    "sequence_parallel": ("maybe", "true or false"),
}


@all_cases("name", VALUES)
def test_a_value_of_another_kind_is_told_once_with_its_field_and_what_is_allowed(name):
    value, allowed = VALUES[name]
    plan = {"data_parallel": 8, "global_batch": 8, "precision": "bf16"} | {name: value}

    told = faults(whole_of(plan, "megatron-core", model(), "dgx-b200:1"))

    assert [problem.field.rpartition(".")[2].partition("[")[0] for problem in told] == [name]
    words = " ".join(str(getattr(told[0], word)) for word in WORDS_OF_FAULTS)
    assert allowed in words, words
    assert str(value)[-1] in str(told[0].value)


@pytest.mark.parametrize("degrees", [{}, {"context_parallel": 2}], ids=str)
def test_experts_cut_over_more_ranks_than_there_are_get_one_fault(degrees):
    plan = {"data_parallel": 8, "expert_tensor_parallel": 16, "global_batch": 8} | degrees
    nodes = 2 if degrees else 1

    told = faults(whole_of(plan, "megatron-core", mixture(), f"dgx-b200:{nodes}"))

    assert [problem.field for problem in told] == ["plan.expert_tensor_parallel"]


def test_more_chunks_than_blocks_get_no_list_that_could_not_work():
    degrees = {"pipeline_parallel": 4, "virtual_stages": 3, "data_parallel": 2, "global_batch": 8}

    told = faults(whole_of(degrees | {"stage_layers": "1,0,7"}, "megatron-core", model(), "dgx-b200:1"))

    advised = {problem.fix for problem in told if problem.field == "plan.stage_layers"}
    assert advised == {
        "choose at most 8 chunks (pipeline_parallel · virtual_stages), and write the number of blocks of "
        "each chunk"
    }
