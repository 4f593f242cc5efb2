"""Logs that are not of a run of the job: each field that says so is named first, with what to change."""

import json
from functools import cache

import pytest
from all_cases import all_cases
from judged import GOOD, PREDICTED, suspects
from judged import without_plans as found
from perturbed_logs import ANYWHERE, CAUSES, OF_STAGES, data_loading, log_text, run_of
from unmarked import unmarked

from flopcast.jobs import job
from flopcast.lab.diagnosis.timer_suspects import pass_times
from flopcast.render.diagnosis import as_json, marked_text
from flopcast.report.flop_conventions import CONVENTIONS

as_text = unmarked(marked_text)

STAGED = {
    "model": "llama-2-70b",
    "cluster": "dgx-h100:8",
    "stack": "megatron-core-2025",
    "plan": "dp=4 tp=4 pp=4 vpp=5 gbs=256 mbs=1 sp zero=1",
}
JOBS = {"dense": GOOD, "stages": STAGED}
INJECTED = {  # by job; most causes do not depend on it
    "dense": (None, *ANYWHERE),
    "stages": (None, *OF_STAGES, "compute", "data_loading", "straggler"),
}
WRONG = (("none", "full"), ("full", "none"))  # recompute of the run, and of the job
RIGHT = (("none", "none"), ("full", "full"), ("selective", "selective"))


def run_with(described, *changes):
    return run_of(PREDICTED(job(**described, changes=changes)))


@cache
def recomputing(name, mode):
    """A job that recomputes in this way."""
    return job(**JOBS[name], changes=(f"plan.recompute={mode}",))


def caused(name, modes, cause=None):
    """The diagnosis of a run that has a cause or none, described with its own recompute or with another."""
    run = run_of(PREDICTED(recomputing(name, modes[0])))
    if cause is not None:
        CAUSES[cause](run)
    return found(recomputing(name, modes[1]), log_text(run))


@all_cases("name", JOBS)
def test_recompute_that_the_timers_contradict_is_replaced_and_the_cause_is_still_found(name):
    first = total = 0
    for modes in WRONG:
        for cause in INJECTED[name]:
            told = caused(name, modes, cause)
            names = [one.name for one in told.suspects]
            total += 1
            first += names[0] in (cause, "other_recompute")

            assert "other_recompute" in names, (modes, cause)
            assert [one.change for one in told.contradictions] == [f"set plan.recompute={modes[0]}"]
            assert told.report.job.plan.recompute == modes[0]
            assert modes[0] != "none" or "recompute_not_needed" not in names

    assert first >= 0.9 * total


@all_cases("name", JOBS)
def test_recompute_that_the_timers_confirm_is_kept_whatever_slows_the_run(name):
    for modes in RIGHT:
        for cause in INJECTED[name]:
            told = caused(name, modes, cause)

            assert told.contradictions == (), (modes, cause)


def test_timers_that_confirm_full_recompute_speak_for_the_advice_to_have_less_of_it():
    told = caused("dense", ("full", "full"))

    advice = suspects(told, "predicted")["recompute_not_needed"]
    assert any("the run recomputes as the job states" in text for text in advice.evidence)


def test_slow_clocks_lengthen_both_passes_which_the_suspect_says():
    told = caused("dense", ("none", "none"), "compute")

    assert any("slower by the same ratio" in text for text in told.suspects[0].evidence)


def test_data_without_a_timer_of_its_own_is_not_taken_for_less_recompute():
    run = run_with(GOOD, "plan.recompute=full")
    data_loading(run)
    text = "\n".join(line for line in log_text(run).splitlines() if "batch-generator" not in line)

    told = found(job(**GOOD, changes=("plan.recompute=full",)), text)

    assert told.report.job.plan.recompute == "full"
    assert "unless the forward pass includes data loading" in told.contradictions[0].change
    assert "recompute_not_needed" not in suspects(told, "predicted")


def test_recompute_that_the_log_states_needs_no_timers():
    run = run_with(GOOD)
    run.facts["recompute_granularity"] = "None"

    told = found(job(**GOOD, changes=("plan.recompute=full",)), log_text(run, with_timers=False))

    assert list(suspects(told, "stated")) == ["other_recompute"]
    assert told.inside
    assert told.report.job.plan.recompute == "none"


SAID = {  # what the log says → what the warning holds
    "world_size": (16, ("16 devices", "32 devices", "--gpus 16")),
    "micro_batch_size": (2, ("a micro-batch of 2", "plan.micro_batch=2")),
    "global_batch_size": (256, ("a global batch of 256", "plan.global_batch=256")),
    "seq_length": (2048, ("a sequence length of 2048", "batch.sequence_length=2048")),
    "tensor_model_parallel_size": (2, ("a tensor-parallel size of 2", "plan.tensor_parallel=2")),
    "pipeline_model_parallel_size": (4, ("a pipeline-parallel size of 4", "plan.pipeline_parallel=4")),
    "num_layers": (40, ("40 layers", "32 layers (llama-2-7b)", "describe the model")),
    "hidden_size": (5120, ("a hidden size of 5120", "4096 (llama-2-7b)", "describe the model")),
}


@all_cases("fact", SAID)
def test_each_field_that_contradicts_the_job_stands_at_the_top(fact):
    value, texts = SAID[fact]
    run = run_with(GOOD)
    run.facts[fact] = value

    told = found(job(**GOOD), log_text(run))

    second, third = as_text(told).splitlines()[1:3]
    assert second.startswith("warning   the log contradicts the description of the job")
    assert all(text in third for text in texts), third
    assert len(told.contradictions) == 1
    (told_json,) = json.loads(json.dumps(as_json(told)))["contradictions"]
    assert told_json.keys() == {"of_log", "of_job", "change"}


PARAMETERS = {  # of LLaMA 2 13B (arXiv:2307.09288, table 1), as frameworks print them
    "Megatron-LM": "Total number of parameters in billions: {:.2f}",
    "torchtitan": "Model llama2 13B size: {} total parameters",
}


def test_another_number_of_parameters_is_another_model_and_no_time_is_compared():
    for right, wrong, line in (
        (6.74, 13.02, PARAMETERS["Megatron-LM"]),
        ("6,738,415,616", "13,015,864,320", PARAMETERS["torchtitan"]),
    ):
        run = run_with(GOOD)
        run.head = (line.format(right),)
        same = found(job(**GOOD), log_text(run))
        run.head = (line.format(wrong),)
        other = found(job(**GOOD), log_text(run))

        assert same.contradictions == ()
        assert "13.0" in other.contradictions[0].of_log
        assert not other.describes_run
        assert suspects(other, "measured", "within doubt", "possible") == {}


def test_sizes_of_a_log_of_another_model_are_told_and_do_not_become_those_of_the_job():
    run = run_with(GOOD)
    run.facts |= {"num_layers": 40, "global_batch_size": 256}

    told = found(job(**GOOD), log_text(run))

    assert [one.of_log for one in told.contradictions] == ["40 layers", "a global batch of 256"]
    assert told.report.job == job(**GOOD)
    assert suspects(told, "stated") == {}


def test_printed_rates_that_no_formula_gives_for_the_job_are_told():
    report = PREDICTED(job(**GOOD))
    right = CONVENTIONS["megatron-core"].flop(report.job) / 32 / report.step_time_s / 1e12
    tokens = 128 * 4096 / 32 / report.step_time_s
    for cell, held, factor in (
        (" throughput per GPU (TFLOP/s/GPU): {:.1f} |", right, 2.0),
        (" tokens per gpu per second (tgs): {:.1f} |", tokens, 2.0),
    ):
        run = run_with(GOOD)
        run.printed = cell.format(held)
        same = found(job(**GOOD), log_text(run))
        run.printed = cell.format(held * factor)
        other = found(job(**GOOD), log_text(run))

        assert same.contradictions == ()
        assert len(other.contradictions) == 1
        assert other.contradictions[0].change.startswith("check ")


@all_cases("name", JOBS)
def test_the_ratio_of_passes_is_two_without_and_three_with_full_recompute(name):
    """The backward pass of a matrix product has twice the FLOP of its forward pass."""
    for mode, ratio in (("none", 2.0), ("full", 3.0)):
        passes = pass_times(run_with(JOBS[name], f"plan.recompute={mode}").report)

        assert passes.backward_s / passes.forward_s == pytest.approx(ratio, rel=0.08)
