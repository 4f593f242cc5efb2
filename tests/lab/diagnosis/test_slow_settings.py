"""Settings that cost time: named with their switch, or listed as checked where they cost little."""

from functools import cache
from itertools import islice

from all_cases import all_cases
from judged import PREDICTOR, without_plans
from unmarked import unmarked

from benchmarks.random_jobs import random_jobs
from flopcast.jobs import job
from flopcast.lab.diagnosis.diagnose import diagnose
from flopcast.lab.diagnosis.settings import (
    CHANGES,
    OF_PLAN,
    UNSETTLED_GAIN,
    best_change,
    best_changes,
    slow_settings,
)
from flopcast.render.diagnosis import as_json, marked_text, most_helpful
from flopcast.search.chosen_plan import FASTER_PLAN

as_text = unmarked(marked_text)

EXPERTS = {
    "model": "deepseek-v3",
    "cluster": "hgx-h800",
    "gpus": 2048,
    "seq": 4096,
    "stack": "megatron-core-2026",
    "plan": "dp=64 tp=2 ep=64 etp=1 pp=16 mbs=1 gbs=2048 sp zero=1 stage_layers=4x15,1"
    " recompute=selective:mla_up_proj,mlp",
}
SWITCHES = {
    "exchanges_not_overlapped": "--overlap-moe-expert-parallel-comm",
    "dispatcher_slow": "--moe-flex-dispatcher-backend deepep",
}


diagnosed = cache(without_plans)  # of a job without a log, shared by the suspects that it is asked for


@all_cases("name", SWITCHES)
def test_the_exchange_of_experts_is_a_suspect_with_its_switch(name):
    found = diagnosed(job(**EXPERTS))

    suspect = next(one for one in found.suspects if one.name == name)
    assert SWITCHES[name] in suspect.change
    changed = PREDICTOR.predict(job(**EXPERTS, changes=suspect.edits.split()))
    saved_s = found.report.step_time_s - changed.step_time_s
    assert abs(saved_s - suspect.cost_s) < 0.01 * found.report.step_time_s


def test_the_precision_of_the_published_run_is_a_suspect_of_that_model_alone():
    narrower = "precision_wider_than_published"

    suspect = next(one for one in diagnosed(job(**EXPERTS)).suspects if one.name == narrower)

    assert suspect.edits == "plan.precision=fp8_blockwise"
    assert suspect.plan.endswith("precision=fp8_blockwise")
    assert suspect.cost_s > 0
    assumed = job("deepseek-v3", cluster="hgx-h800", gpus=512, plan="tp=2 pp=8 mbs=1 recompute=full")
    assert "precision bf16 (the published run used fp8_blockwise)" in assumed.assumptions
    assert narrower not in [one.name for one in diagnosed(job("llama-3-8b", gpus=8)).suspects]


OFFLOADED = {
    "offload_not_needed": ("plan.offload=none", "offload_optimizer"),
    "copies_not_pinned": ("stack.offload.gradient_copies=pinned", "pin_memory"),
}


@all_cases("name", OFFLOADED)
def test_states_on_the_host_that_fit_on_the_devices_are_a_suspect(name):
    words = {"gpus": 8, "seq": 2048, "stack": "deepspeed-zero"}
    one = job("llama-3-8b", **words, plan="dp=8 mbs=1 gbs=32 zero=3 recompute=full offload=optimizer:host")

    found = diagnosed(one)

    suspect = next(one for one in found.suspects if one.name == name)
    edits, switch = OFFLOADED[name]
    assert suspect.edits == edits
    assert switch in suspect.change
    assert suspect.cost_s > 0.05 * found.report.step_time_s


def test_a_setting_of_the_plan_says_whether_its_memory_fits_or_may_fit():
    """By the verdict of the changed job: a job that needs a small part of the memory fits for certain."""
    for model, seq, would in (("llama-3.2-1b", 1024, "would"), ("llama-3-8b", 3072, "may")):
        words = {"gpus": 8, "seq": seq, "plan": "dp=8 mbs=1 gbs=64 zero=1 recompute=full"}
        one = job(model, **words)
        suspect = next(each for each in diagnosed(one).suspects if each.name == "recompute_not_needed")
        assert suspect.title == f"Activations are recomputed although they {would} fit into memory"
        changed = PREDICTOR.predict(job(model, **words, changes=suspect.edits.split()))
        assert (changed.memory.verdict == "fits") == (would == "would")
        assert any(changed.memory.need in text for text in (*suspect.evidence, *suspect.against))


def test_the_faster_plan_of_a_report_is_the_fastest_of_those_that_may_fit():
    """A change of the chosen plan that may not fit saves no more than the plan that the report offers."""
    for cluster, words in (("gcp-n1", {"qlora": 16}), ("rtx-4090-8", {"lora": 16})):
        report = PREDICTOR.predict(job("llama-3-8b", cluster=cluster, gpus=1, seq=1024, **words))

        best = best_change(report, PREDICTOR.predict)

        assert best.is_tight
        assert best.name in OF_PLAN
        (offered,) = [text for text in report.job.assumptions if text.startswith(FASTER_PLAN)]
        assert f'"{best.plan}" would be {best.cost_s / report.step_time_s:.1%} faster' in offered


def test_a_setting_that_was_checked_and_costs_little_is_listed_as_such():
    words = {"gpus": 8, "stack": "megatron-core-2026", "plan": "dp=4 tp=2 gbs=512 sp zero=1"}
    one = job("llama-3-8b", **words)

    found = diagnose(one, PREDICTOR.predict)

    (checked,) = [text for text in found.negligible if text.startswith("stack.gradients.overlap=true")]
    assert as_json(found)["negligible"] == list(found.negligible)
    saved = [
        float(text.split()[-2])
        for text in found.negligible
        if " would save " in text and text[-3:] == " ms"
    ]
    assert saved == sorted(saved, reverse=True)
    assert (
        f"changes that would save less than 1% of the step\n  {found.negligible[0]}\n"
        in as_text(found) + "\n"
    )
    changed = PREDICTOR.predict(job("llama-3-8b", **words, changes=["stack.gradients.overlap=true"]))
    assert ("save" in checked) == (changed.step_time_s < found.report.step_time_s)


def test_the_best_change_is_the_first_of_all_changes_of_random_jobs():
    """The limits of savings leave out no change that saves more than the others."""
    jobs = [*islice(random_jobs(3), 8)]
    reports = [PREDICTOR.predict(one) for one in jobs]

    first = [best_change(report, PREDICTOR.predict) for report in reports]
    ordered = [best_changes(report, PREDICTOR.predict) for report in reports]
    every = [names_of_advice(report) for report in reports]

    assert [found[:1] for found in ordered] == [(one,) * (one is not None) for one in first]
    assert [{one.name for one in found} for found in ordered] == every
    assert sum(map(len, ordered)) > 5


def test_a_change_of_the_software_is_advised_with_its_switch():
    plan = "tp=4 pp=2 mbs=1 gbs=64 sp precision=bf16"
    report = PREDICTOR.predict(job("llama-3-8b", gpus=8, cluster="aws-p4d", plan=plan))

    advised = most_helpful(best_change(report, PREDICTOR.predict), report.step_time_s, "what helps")

    assert advised[0].startswith("what helps: stack.tensor_overlap=chunks (Megatron-LM: --tp-comm-overlap)")


def names_of_advice(report):
    """The settings whose saving, predicted for each of them, is sure or a large part of the step."""
    least_s = UNSETTLED_GAIN * report.step_time_s
    slow = slow_settings(report, PREDICTOR.predict)
    return {one.name for one in slow if one.basis == "predicted" or one.cost_s >= least_s}


def test_a_graph_of_the_whole_step_is_advised_only_if_its_tensors_have_fixed_sizes():
    """cuda-graphs.md of Megatron-Bridge: attn, moe_router and moe_preprocess for dropless MoE."""
    plan = "dp=16 ep=16 mbs=1 gbs=1024 zero=1 precision=fp8_current"
    narrow = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100:2", "seq": 4096, "plan": plan}
    whole, before_experts = ("iteration",), ("attention", "router")
    for stack, padded, expected in (
        ("megatron-bridge-26.04-hopper", False, before_experts),
        ("megatron-core-2026", False, before_experts),
        ("megatron-bridge-26.04-hopper", True, whole),
    ):
        experts = "model.blocks.0.feed_forward"
        padding = [f"{experts}.capacity_factor=1.0", f"{experts}.pads_to_capacity=true"] if padded else []
        found = job(**narrow, stack=stack, changes=padding)

        proposed = [
            changed.stack.host.graphs
            for setting in ("launches", "launches_of_experts")
            for changed in CHANGES[setting](found)
        ]

        assert proposed == [expected], (stack, padded)
