"""Sizes that a log states otherwise than the job: all are judged together, or nothing is compared."""

import json

import pytest
from all_cases import all_cases
from judged import GOOD, PREDICTOR, suspects
from judged import without_plans as found
from perturbed_logs import log_text, run_of
from unmarked import unmarked

from flopcast.jobs import job
from flopcast.render.diagnosis import as_json, marked_text

as_text = unmarked(marked_text)

STATED = {  # what the run is otherwise → the suspects
    ("plan.global_batch=256",): {"other_global_batch"},
    ("batch.sequence_length=2048",): {"other_sequence_length"},
    ("plan.data_parallel=16", "cluster=dgx-a100:2"): {"other_number_of_devices"},
    ("plan.micro_batch=2",): {"other_micro_batch"},
    (  # more devices alone are impossible, because they need a larger batch
        "plan.data_parallel=96",
        "cluster=dgx-a100:12",
        "plan.micro_batch=2",
        "plan.global_batch=384",
        "batch.sequence_length=2048",
    ): {"other_number_of_devices", "other_micro_batch", "other_global_batch", "other_sequence_length"},
}


@all_cases("changes", STATED)
def test_sizes_that_the_log_states_are_suspects_and_what_follows_is_judged_with_all_of_them(changes):
    real = job(**GOOD, changes=changes)

    told = found(job(**GOOD), log_text(run_of(PREDICTOR.predict(real))))

    assert suspects(told, "stated").keys() == STATED[changes]
    assert told.describes_run
    assert told.inside
    assert told.report.step_time_s == pytest.approx(PREDICTOR.predict(real).step_time_s, rel=1e-9)
    assert all(one.cost_s is not None for one in told.suspects)


def test_what_a_size_costs_is_the_step_with_all_sizes_less_the_step_with_all_others():
    changes = ("plan.global_batch=256", "batch.sequence_length=2048")
    both, shorter, larger = (
        PREDICTOR.predict(job(**GOOD, changes=some)).step_time_s
        for some in (changes, changes[1:], changes[:1])
    )

    stated = suspects(
        found(job(**GOOD), log_text(run_of(PREDICTOR.predict(job(**GOOD, changes=changes))))), "stated"
    )

    assert stated["other_global_batch"].cost_s == pytest.approx(both - shorter)
    assert stated["other_sequence_length"].cost_s == pytest.approx(both - larger)


STAGED = GOOD | {"plan": "dp=8 pp=4 gbs=128 mbs=1 zero=1 stage_layers=7,9,9,7"}
SHARDED = GOOD | {"stack": "torch-fsdp2", "plan": "dp=32 dp_shard=8 gbs=128 mbs=1 zero=3"}
IMPOSSIBLE = {  # name → the job, the devices of the log, what the reason says
    "replicas of 4 devices": (STAGED, 30, "each replica of the plan of the job has 4 devices"),
    "batch": (STAGED, 24, "plan.global_batch = 128"),
    "part of a node": (STAGED, 60, "whole nodes"),
    "groups of shards": (SHARDED, 4, "plan.data_shard = 8"),
}


@all_cases("name", IMPOSSIBLE)
def test_sizes_that_the_job_cannot_have_are_told_and_nothing_measured_is_compared(name):
    described, devices, reason = IMPOSSIBLE[name]
    run = run_of(PREDICTOR.predict(job(**described)))
    run.facts["world_size"] = devices
    run.steps_s = 3.0 * run.steps_s

    told = found(job(**described), log_text(run))

    first = told.suspects[0]
    assert (first.name, first.cost_s) == ("other_number_of_devices", None)
    assert reason in first.against[0]
    assert not told.describes_run
    assert told.inside is None
    assert suspects(told, "measured", "within doubt", "possible") == {}
    assert "flopcast does not compare times" in as_text(told)
    assert "costs     unknown\n" in as_text(told)
    assert json.loads(json.dumps(as_json(told), allow_nan=False))["suspects"][0]["cost_s"] is None


def test_stages_and_groups_of_shards_stay_as_they_are_on_other_numbers_of_devices():
    for described, devices, dp in ((STAGED, 16, 4), (SHARDED, 64, 64)):
        run = run_of(PREDICTOR.predict(job(**described)))
        run.facts["world_size"] = devices
        run.facts["global_batch_size"] = 4 * dp

        plan = found(job(**described), log_text(run)).report.job.plan

        assert plan.data_parallel == dp
        assert (plan.stage_layers, plan.data_shard) == (
            job(**described).plan.stage_layers,
            job(**described).plan.data_shard,
        )
