"""Plans played many at once: each as `predict` plays it alone, whatever stands beside it in the batch."""

from functools import cache

import pytest
from all_cases import all_cases
from conftest import described_model, make_job

from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search import exact
from flopcast.search.exact import play_each
from flopcast.search.grid import batches
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates

EXPERTS = described_model(hidden=2048, vocabulary=32000, num_experts=8, top_k=2, expert_hidden=4096)
WORLDS = {
    "dense, two sizes of cluster": (
        make_job(cluster="selene:2", stack="megatron-core", plan="dp=16 gbs=64"),
        Space(gpus="8,16", gbs=64, mbs="1,2", vpp="1,2", cp=1, zero=1, recompute=("none", "selective")),
    ),
    "experts": (
        make_job(model=EXPERTS, cluster="dgx-h100:2", stack="megatron-core", plan="dp=16 gbs=64"),
        Space(gbs=64, mbs="1,2", vpp="1,2", cp=1, zero=1, recompute=("none",)),
    ),
    "context parallelism on another fabric": (
        make_job(cluster="vista:8", stack="megatron-core", plan="dp=8 gbs=64"),
        Space(gbs=64, mbs=1, vpp=1, cp="1,2", zero="1,3", recompute=("none", "full")),
    ),
}


@cache
def best_of(name):
    """The jobs that screen fastest."""
    job, space = WORLDS[name]
    question = Question(jobs=(job,), space=space)
    found = TopCandidates(most=32).after_all(question, batches(job, space), load_book)
    return [one.job for one in found.best]


@all_cases("name", WORLDS)
def test_a_plan_among_others_takes_what_it_takes_alone(name):
    jobs = best_of(name)

    played = dict(play_each(jobs, load_book))

    assert sorted(played) == list(range(len(jobs)))
    for place in range(0, len(jobs), 4):
        alone, many = predict(jobs[place], load_book(jobs[place].cluster)), played[place]
        assert many.plan == jobs[place].plan
        assert many.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
        assert many.step_low_s == pytest.approx(alone.step_time_low_s, rel=1e-12)
        assert many.step_high_s == pytest.approx(alone.step_time_high_s, rel=1e-12)
        assert many.device_used_bytes == pytest.approx(alone.memory.device_used_bytes, rel=1e-12)
        assert many.breakdown == pytest.approx(alone.breakdown, rel=1e-9)
        assert many.fits == alone.memory.fits


def test_a_plan_without_energy_differs_in_its_energy_alone():
    (job, *_) = best_of("experts")

    ((_, whole),) = play_each([job], load_book)
    ((_, plain),) = play_each([job], load_book, energy=False)

    assert whole.cost.energy is not None
    assert plain.cost.energy is None
    for name in ("step_time_s", "step_low_s", "step_high_s", "factors", "breakdown", "high_bytes"):
        assert getattr(plain, name) == getattr(whole, name)
    assert plain.cost.step_usd == whole.cost.step_usd


def test_how_many_are_simulated_together_changes_nothing(monkeypatch):
    jobs = best_of("experts")[:12]
    together = dict(play_each(jobs, load_book))
    monkeypatch.setattr(exact, "BATCH", 5)

    in_parts = dict(play_each(jobs, load_book))

    steps_s = [together[place].step_time_s for place in range(len(jobs))]
    assert [in_parts[place].step_time_s for place in range(len(jobs))] == pytest.approx(steps_s, rel=1e-12)
