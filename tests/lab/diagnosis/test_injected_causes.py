"""Causes injected into predicted runs, alone and in pairs: the diagnosis names them first."""

from functools import lru_cache
from itertools import combinations

import pytest
from all_cases import all_cases
from perturbed_logs import CAUSES, log_text, run_of

from flopcast.jobs import job
from flopcast.lab.diagnosis import settings
from flopcast.lab.diagnosis.diagnose import diagnose
from flopcast.lab.logs.reader import read_log
from flopcast.predictor import Predictor

PREDICTOR = Predictor()
GOOD = {
    "model": "llama-2-7b",
    "cluster": "dgx-a100:4",
    "stack": "megatron-core-2025",
    "plan": "dp=32 gbs=128 mbs=1 zero=1",
}
PAIRS = [
    pair for pair in combinations(CAUSES, 2) if not {"slower_at_once", "slower_gradually"} >= set(pair)
]


@pytest.fixture(autouse=True)
def _plans_chosen_once(monkeypatch):
    """The same jobs are judged again and again."""
    chosen = lru_cache(lambda one, fixed: CHOOSE(one, dict(fixed), settings.load_book(one.cluster)))
    monkeypatch.setattr(settings, "choose", lambda one, fixed, _: chosen(one, tuple(fixed.items())))


CHOOSE = settings.choose


def found(one, text=""):
    """The diagnosis of a job and the text of a log."""
    return diagnose(one, PREDICTOR.predict, read_log(text, "train.log") if text else None)


def injected(one, causes):
    """The diagnosis of a run that has some causes."""
    run = run_of(PREDICTOR.predict(one))
    for name in causes:
        CAUSES[name](run)
    return found(one, log_text(run))


def test_a_run_that_goes_as_predicted_has_no_measured_suspect():
    told = injected(job(**GOOD), ())

    assert told.inside
    assert [one.name for one in told.suspects if one.basis not in ("predicted", "unsettled")] == []
    assert all(one.cost_s < 0.05 * told.report.step_time_s for one in told.suspects)


@all_cases("cause", CAUSES)
def test_a_cause_alone_comes_first_and_costs_what_it_was_given(cause):
    one = job(**GOOD)
    run = run_of(PREDICTOR.predict(one))
    before_s = run.steps_s.copy()
    CAUSES[cause](run)

    first = found(one, log_text(run)).suspects[0]

    assert first.name == cause
    assert first.cost_s == pytest.approx((run.steps_s - before_s).mean(), rel=0.25)


def test_of_two_causes_one_comes_first_and_both_are_near_the_top():
    one = job(**GOOD)
    right = both = 0
    missed = []
    for pair in PAIRS:
        names = [suspect.name for suspect in injected(one, pair).suspects]
        right += names[0] in pair
        both += set(pair) <= set(names[:3])
        if not set(pair) <= set(names[:3]):
            missed.append((pair, names[:4]))

    assert right >= 0.9 * len(PAIRS), missed
    assert both >= 0.9 * len(PAIRS), missed


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


STATED = {  # size → what the log says of it, and how it is called
    "other_global_batch": ("global_batch_size", 256),
    "other_sequence_length": ("seq_length", 2048),
    "other_number_of_devices": ("world_size", 16),
}


@all_cases("name", STATED)
def test_a_size_that_the_log_states_otherwise_is_a_suspect_and_what_follows_is_judged_with_it(name):
    one = job(**GOOD)
    fact, value = STATED[name]
    changes = {
        "global_batch_size": (f"plan.global_batch={value}",),
        "seq_length": (f"batch.sequence_length={value}",),
        "world_size": ("plan.data_parallel=16", "cluster=dgx-a100:2"),
    }[fact]
    real = job(**GOOD, changes=changes)

    told = found(one, log_text(run_of(PREDICTOR.predict(real))))

    assert name in [suspect.name for suspect in told.suspects[:2]]
    assert told.inside
    assert told.report.step_time_s == pytest.approx(PREDICTOR.predict(real).step_time_s, rel=1e-9)
