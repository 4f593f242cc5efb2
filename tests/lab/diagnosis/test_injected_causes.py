"""Causes injected into predicted runs, alone and in pairs: the diagnosis names them first."""

from itertools import combinations

import pytest
from all_cases import all_cases
from judged import GOOD, PREDICTED, found
from perturbed_logs import ANYWHERE, CAUSES, log_text, run_of

from flopcast.jobs import job

JOBS = {
    "dense": GOOD,
    "stages": {
        "model": "llama-2-70b",
        "cluster": "dgx-h100:8",
        "stack": "megatron-core-2025",
        "plan": "dp=4 tp=4 pp=4 vpp=5 gbs=256 mbs=1 sp zero=1",
    },
    "experts": {
        "model": "mixtral-8x7b",
        "cluster": "dgx-h100:8",
        "stack": "megatron-core-2026",
        "plan": "dp=16 ep=8 etp=1 tp=1 pp=4 gbs=256 mbs=1 zero=1",
    },
}
CASES = [(name, cause) for name in JOBS for cause in (ANYWHERE if name == "dense" else CAUSES)]


def injected(one, causes):
    """The diagnosis of a run that has some causes."""
    run = run_of(PREDICTED(one))
    for name in causes:
        CAUSES[name](run)
    return found(one, log_text(run))


@all_cases("name", JOBS)
def test_a_run_that_goes_as_predicted_has_no_measured_suspect(name):
    told = injected(job(**JOBS[name]), ())

    assert told.inside
    assert [one.name for one in told.suspects if one.basis not in ("predicted", "unsettled")] == []
    if name == "dense":
        assert all(one.cost_s < 0.05 * told.report.step_time_s for one in told.suspects)


@all_cases("name, cause", CASES)
def test_a_cause_alone_comes_first_and_costs_what_it_was_given(name, cause):
    one = job(**JOBS[name])
    run = run_of(PREDICTED(one))
    before_s = run.steps_s.copy()
    CAUSES[cause](run)

    first = found(one, log_text(run)).suspects[0]

    assert first.name == cause
    assert first.cost_s == pytest.approx((run.steps_s - before_s).mean(), rel=0.25)


@all_cases("name", JOBS)
def test_of_two_causes_one_comes_first_and_both_are_near_the_top(name):
    one = job(**JOBS[name])
    causes = [cause for other, cause in CASES if other == name]
    pairs = [
        pair for pair in combinations(causes, 2) if not {"slower_at_once", "slower_gradually"} >= set(pair)
    ][:: 1 if name == "dense" else 3]  # most pairs do not depend on the job
    right = both = 0
    missed = []
    for pair in pairs:
        names = [suspect.name for suspect in injected(one, pair).suspects]
        right += names[0] in pair
        both += set(pair) <= set(names[:3])
        if not set(pair) <= set(names[:3]):
            missed.append((pair, names[:4]))

    assert right >= 0.95 * len(pairs), missed
    assert both >= 0.95 * len(pairs), missed


SLOW_SETTINGS = {  # cause → changes of the good job
    "gradients_not_overlapped": ("stack.gradients.overlap=false", "plan.global_batch=32"),
    "recompute_not_needed": ("plan.recompute=full",),
    "attention_not_fused": ("stack.attention_kernel=materialised", "batch.sequence_length=2048"),
    "plan": ("plan.tensor_parallel=8", "plan.data_parallel=4", "plan.sequence_parallel=true"),
}


@all_cases("cause", SLOW_SETTINGS)
def test_a_setting_that_costs_time_comes_first(cause):
    one = job(**GOOD, changes=SLOW_SETTINGS[cause])

    assert injected(one, ()).suspects[0].name == cause
