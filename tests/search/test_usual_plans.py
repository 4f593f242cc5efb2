"""Usual plans: a search for feasible ones alone estimates fewer steps and keeps the same plans."""

import pytest
from conftest import described_model, make_job

from flopcast.cost import price
from flopcast.kept_results import NOTHING_KEPT
from flopcast.library.curves import load_book
from flopcast.search import screen
from flopcast.search.default_plan import asked_for
from flopcast.search.usual_plans import usual_candidates


@pytest.mark.parametrize(("hidden", "some_fit"), [(7168, True), (12288, False)])
def test_of_batches_that_do_not_fit_no_step_is_estimated(hidden, some_fit, monkeypatch):
    job = make_job(
        model=described_model(hidden=hidden, count=48, heads=32), plan="dp=8 mbs=1 gbs=64 precision=fp16"
    )
    question, book, priced = asked_for(job, {"global_batch": 64}), load_book(job.cluster), []

    def counted(programs, *rest):
        priced.append(programs.plans.size)
        return price.price(programs, *rest)

    monkeypatch.setattr(screen, "price", counted)
    every = usual_candidates(question, question.jobs[0], book, NOTHING_KEPT, 8, feasible_only=False)
    of_every = sum(priced)
    priced.clear()
    feasible = usual_candidates(question, question.jobs[0], book, NOTHING_KEPT, 8)

    assert bool(feasible.best) == some_fit
    assert feasible.best == every.best
    assert (feasible.candidates, feasible.possible, feasible.feasible) == (
        every.candidates,
        every.possible,
        every.feasible,
    )
    assert [one.job for one in feasible.near] == [one.job for one in every.near]
    assert 0 < sum(priced) < of_every if some_fit else priced == []
