"""Every rule is broken by an example, told as one fault with a remedy, and the remedy helps."""

import json
import re
from pathlib import Path

import pytest
import yaml
from all_cases import all_cases
from conftest import make_job
from spec_cases import DEEPSPEED, decoded, edited, edits, faults, key, mixture, model, parts

from flopcast.errors import shown
from flopcast.library import catalog
from flopcast.schedules import SCHEDULES
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.plan import Plan
from flopcast.workload.checks import RULES, check

ONE_NODE = {"node": {"device": "a100-sxm4-80gb", "devices": 8, "host": "epyc-7763"}, "count": 1}
MEMORY = {"capacity_bytes": "1 TB", "bytes_per_s": "200 GB/s"}
WITH_MEMORY = {"base": "dgx-a100", "groups": [{"count": 1, "node": ONE_NODE["node"] | {"memory": MEMORY}}]}
TWO = [{"seq": 512}, {"seq": 1024}]  # micro-batches of one rank
UNEQUAL_RANKS = [{"count": 4, "micro_batches": TWO}, {"count": 4, "micro_batches": TWO[::-1]}]
BROKEN = {  # (field, because) → the job that breaks this rule alone, its value, a part of what is allowed
    (row["field"], row["because"]): (parts(**decoded(row["job"])), row["value"], row["allowed"])
    for row in yaml.load(Path(__file__).with_name("broken_rules.yaml").read_bytes(), yaml.CSafeLoader)
}
REASONS_OF_SCHEDULES = ("blocks_because", "chunks_because")
EXAMPLES = [(rule, *example) for rule, example in BROKEN.items()]


def test_every_rule_has_an_example_that_breaks_it():
    by_rule = [rule.because for rule in RULES if isinstance(rule.because, str)]
    known = {type(schedule) for schedule in SCHEDULES.values()} | {OwnSchedule}
    by_schedule = {getattr(one, name) for one in known for name in REASONS_OF_SCHEDULES} - {""}

    assert sorted([*by_rule, *by_schedule]) == sorted(because for _, because in BROKEN)


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_an_example_is_told_as_the_fault_of_its_rule_and_as_nothing_else(rule, whole, value, allowed):
    told = faults(whole)

    assert [key(problem) for problem in told] == [rule]


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_a_fault_shows_the_value_and_what_would_be_allowed(rule, whole, value, allowed):
    (problem,) = faults(whole)

    assert problem.value == value
    assert allowed in problem.allowed


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_the_first_advised_edit_keeps_the_rule(rule, whole, value, allowed):
    (problem,) = faults(whole)
    advised = edits(problem)[:1]
    if words := re.fullmatch(r"write (\S+) in place of (\S+)", problem.fix):
        replaced = json.loads(json.dumps(whole).replace(words[2], words[1]))
        assert rule not in [key(left) for left in faults(replaced)]
        return

    for edit in advised:
        assert rule not in [key(left) for left in faults(edited(whole, edit))], edit
    assert advised or problem.fix.split()[0] in ("choose", "describe", "change", "remove")


@all_cases(("rule", "whole", "value", "allowed"), EXAMPLES)
def test_a_fault_prints_field_value_allowed_reason_and_fix(rule, whole, value, allowed):
    (problem,) = faults(whole)

    lines = str(problem).splitlines()

    assert len(lines) == 4
    assert rule[0] in lines[0]
    assert shown(value) in lines[0] or str(value) in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["allowed", "because", "fix"]
    assert all(line.partition(":")[2].strip() for line in lines[1:])


@all_cases(
    "unbuilt",
    [
        {"model": mixture(), "rank_order": "tp-cp-pp-dp"},
        {"model": mixture(), "data_parallel": 4, "tensor_parallel": 2},
        {
            "model": mixture(),
            "data_parallel": 2,
            "tensor_parallel": 4,
            "sp": True,
            "expert_tensor_parallel": 2,
        },
        {"schedule": "zb_h1", "stack": "generic", "cluster": WITH_MEMORY, "offload": "activations:host"},
        {"batch": {"seq": 1024, "ranks": UNEQUAL_RANKS}, "stack": "megatron-core", "zero": 2},
        {
            "cluster": {"base": "dgx-a100", "groups": [ONE_NODE, ONE_NODE]},
            "data_parallel": 16,
            "batch": {"seq": 1024, "ranks": UNEQUAL_RANKS},
        },
    ],
)
def test_what_is_not_built_is_refused_rather_than_ignored(unbuilt):
    told = faults(parts(**unbuilt))

    assert any(p.because.endswith(("not supported yet", "are not supported yet")) for p in told)


def test_a_rule_is_asked_about_every_kind_of_micro_batch_and_names_the_first_that_breaks_it():
    wrong = {"documents": [24, 1000], "seq": 1000}
    (problem,) = faults(
        parts(batch={"seq": 1024, "micro_batches": [{}, wrong]}, stack="megatron-core", global_batch=16)
    )

    assert problem.field == "batch.micro_batches[1].documents"
    assert problem.value == [24, 1000]


def test_a_rule_of_the_plan_says_for_which_micro_batch_it_fails():
    (problem,) = faults(
        parts(
            batch={"seq": 1024, "micro_batches": [{"count": 3}, {"seq": 513}]},
            data_parallel=4,
            tensor_parallel=2,
            sequence_parallel=True,
        )
    )

    assert problem.field == "plan.sequence_parallel"
    assert "batch.micro_batches[1]" in problem.allowed


def test_the_plain_job_keeps_every_rule():
    assert faults(parts()) == ()


def test_all_faults_of_a_job_are_told_at_once():
    whole = parts(
        batch={"seq": 1023, "packed": True},
        tensor_parallel=3,
        pipeline_parallel=5,
        sequence_parallel=True,
        global_batch=17,
        zero=2,
        offload="optimizer:host",
        schedule="interleaved_1f1b",
        partition_activations=True,
    )

    fields = {problem.field for problem in faults(whole)}

    assert fields == {  # edits of these make degrees and batch right too
        "batch.packed",
        "plan.offload",
        "plan.partition_activations",
        "plan.pipeline_parallel",
        "plan.schedule",
        "plan.tensor_parallel",
        "plan.zero",
    }


@all_cases("tensor", [1, 2, 4, 8, 16])
def test_key_value_heads_may_be_repeated_over_ranks(tensor):
    whole = parts(
        model=model(heads=16, kv_heads=4),
        cluster="selene:2",
        tensor_parallel=tensor,
        data_parallel=16 // tensor,
    )

    assert faults(whole) == ()


def test_a_uniform_deepspeed_pipeline_need_not_divide_the_blocks():
    whole = parts(model=model(blocks=10), stack=DEEPSPEED, data_parallel=2, pipeline_parallel=4)

    assert faults(whole) == ()


@all_cases(("stages", "empty"), [(44, 1), (47, 1), (25, 0), (24, 0), (4, 0)])
def test_a_stage_that_would_hold_a_module_without_weights_alone_is_refused(stages, empty):
    """GPT-NeoX lists 44 blocks between two functions: one or two of 49 modules a stage leave one alone."""
    whole = parts(
        model=model(blocks=44),
        stack=DEEPSPEED,
        cluster=f"dgx-a100:{stages}",
        data_parallel=8,
        global_batch=8,
    )
    whole["plan"] |= {"pipeline_parallel": stages}

    told = faults(whole)

    assert [problem.because for problem in told] == [
        "every stage needs at least one layer with weights"
    ] * empty


def test_the_advised_pipeline_leaves_no_stage_empty():
    whole = parts(model=model(blocks=44), stack=DEEPSPEED, cluster="dgx-a100:47", pipeline_parallel=47)
    valid = make_job(**whole | {"plan": {"data_parallel": 376, "global_batch": 376, "precision": "fp16"}})

    (broken,) = check(valid.model_copy(update={"plan": Plan(**whole["plan"])}))
    (told,) = faults(whole)

    assert broken.fix == "set pipeline_parallel to 25"  # two modules a stage, the last but one stage apart
    assert faults(edited(whole, edits(told)[0])) == ()  # 25 stages would leave devices without a rank


@pytest.mark.parametrize("plan", [{}, {"zero": 1}, {"data_parallel": 1, "tensor_parallel": 8}], ids=str)
def test_a_stack_that_scatters_gradients_of_sharded_states_takes_plans_without_them(plan):
    scattered = {"base": "megatron-2022", "gradients": {"collective": "reduce_scatter"}}

    assert faults(parts(stack=scattered, **plan)) == ()


@pytest.mark.parametrize("schedule", ["auto", "1f1b"])
def test_a_pipeline_of_one_chunk_may_name_its_schedule_or_not(schedule):
    assert faults(parts(data_parallel=4, pipeline_parallel=2, schedule=schedule)) == ()


def test_heads_that_differ_between_runs_of_blocks_are_all_cut_whole():
    runs = model(heads=16)
    runs["blocks"] = [model(heads=heads)["blocks"][0] for heads in (16, 12)]
    runs["hidden"] = 48 * 16

    told = faults(parts(model=runs, tensor_parallel=8, data_parallel=1))

    assert "a divisor of heads (4): 1, 2, 4" in [problem.allowed for problem in told]


def test_the_width_that_cannot_be_cut_is_the_one_that_is_named():
    runs = model(ffn_hidden=4096)
    runs["blocks"] += model(ffn_hidden=4095)["blocks"]

    (told,) = faults(parts(model=runs, tensor_parallel=2, data_parallel=4))

    assert "4095" in told.allowed


def test_the_key_value_heads_that_cannot_be_cut_are_the_ones_that_are_named():
    runs = model(heads=24, kv_heads=4)
    runs["blocks"] += model(heads=24, kv_heads=6)["blocks"]

    (told,) = faults(parts(model=runs, tensor_parallel=4, data_parallel=2))

    assert "kv_heads (6)" in told.allowed


IN_16_BITS = [
    name for name in catalog.names("devices") if "bf16" in catalog.device(name).in_16_bits.peak_flop_per_s
]


@all_cases("device", IN_16_BITS)
def test_every_precision_that_is_called_allowed_can_be_chosen(device):
    node = {"device": device, "devices": 8, "host": "epyc-7763"}
    cluster = {"base": "dgx-a100", "groups": [{"node": node, "count": 1}]}
    wholes = [parts(cluster=cluster, precision=name) for name in ("bf16", "fp8", "nvfp4")]
    refused = [(whole, problem) for whole in wholes for problem in faults(whole)]

    pairs = [(whole, word) for whole, problem in refused for word in problem.allowed.split(", ")]

    assert refused or "fp4" in catalog.device(device).peak_flop_per_s
    for whole, precision in pairs:
        assert "plan.precision" not in [p.field for p in faults(edited(whole, {"precision": precision}))]


def test_more_heads_than_width_are_refused():
    empty = model(heads=2048) | {"hidden": 1024}  # a head of no elements: every time would be 0/0

    told = faults(parts(model=empty))

    assert any("heads" in problem.field for problem in told)


def test_a_sequence_longer_than_the_learned_positions_is_refused():
    short = model() | {"learned_positions": 1024}  # Megatron-LM: max_position_embeddings >= seq_length

    told = faults(parts(model=short, batch={"seq": 2048}))

    assert any("sequence_length" in p.field or "learned_positions" in p.field for p in told)


def test_a_rewrite_that_does_not_exist_is_refused():
    told = faults(parts(stack={"base": "megatron-2022", "rewrites": ["fused_sofmax"]}))

    assert any("rewrites" in problem.field for problem in told)


def test_a_gradient_copy_that_does_not_exist_is_refused():
    told = faults(parts(stack={"base": "megatron-2022", "gradients": {"copies": ["flaten"]}}))

    assert any("copies" in problem.field for problem in told)


def test_a_group_to_recompute_that_does_not_exist_is_refused():
    told = faults(
        parts(stack={"base": "megatron-2022", "selective_groups": ["atention"]}, recompute="selective")
    )

    assert any("selective_groups" in problem.field for problem in told)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb_h1", "zb_h2"])
def test_schedules_without_chunks_are_refused_by_name_with_virtual_stages(name):
    told = faults(parts(schedule=name, pipeline_parallel=4, virtual_stages=2, data_parallel=2))

    assert [(problem.field, problem.value) for problem in told] == [("plan.schedule", name)]


def test_blocks_of_128_may_be_cut_short_as_in_deepseek_v3():
    # arXiv:2412.19437, section 3.3.2: blocks of 128; 512 + 64 columns of the projection down to latents
    whole = parts(
        model="deepseek-v3", cluster="hgx-h800:8", data_parallel=64, expert_parallel=64, global_batch=64
    )

    told = faults(whole | {"plan": whole["plan"] | {"precision": "fp8_blockwise"}})

    assert [problem for problem in told if problem.field == "plan.precision"] == []
