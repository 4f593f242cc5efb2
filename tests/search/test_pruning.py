"""Leaving plans out by the least that they take: the bound holds, and the same plans are kept."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from possible_plans import possible_only

from flopcast.cost.factors import FactorBook
from flopcast.cost.split_prices import split_seconds
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.library.curves import load_book
from flopcast.search import screen as screening
from flopcast.search.chunk_text import read_incumbents
from flopcast.search.default_plan import usual_plans
from flopcast.search.grid import batches, batches_on, plan_at
from flopcast.search.question import Question
from flopcast.search.screen import screen
from flopcast.search.space import Space
from flopcast.search.top_candidates import TopCandidates
from flopcast.search.usual_plans import usual_spaces
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

JOBS = {
    "dense": make_job(model="gpt3-175b", cluster="selene:32", stack="megatron-core", plan="dp=256 gbs=768"),
    "experts": make_job(
        model="mixtral-8x7b", cluster="dgx-h100:8", stack="megatron-core", plan="dp=64 gbs=128"
    ),
    "sharded": make_job(
        model="llama-2-13b", cluster="dgx-a100:8", stack="torch-fsdp2", plan="dp=64 gbs=128 zero=3"
    ),
    "overlapped": make_job(
        model="qwen3-30b-a3b", cluster="dgx-h100:4", stack="megatron-bridge", plan="dp=32 gbs=64"
    ),
    "blocking transfers": make_job(
        model="gpt-neox-20b", cluster="perlmutter:16", stack="gpt-neox-deepspeed", plan="dp=64 gbs=256"
    ),
}
SPACES = {
    "dense": Space(gbs=768, mbs="1,2", zero="0,1", recompute="none full", cp="1,2"),
    "experts": Space(gbs="32,128", zero=1, recompute="none full", cp=1),
    "sharded": Space(gbs=128, mbs="1,2", pp="1,2", recompute="none full"),
    "overlapped": Space(gbs=64, cp=1, zero=1, recompute="none"),
    "blocking transfers": Space(gbs="64,256", zero=1, recompute="none full"),
}
BOOKS = {name: load_book(job.cluster) for name, job in JOBS.items()}


@pytest.mark.parametrize("name", JOBS)
def test_no_estimate_is_below_the_least_that_a_plan_takes(name, monkeypatch):
    monkeypatch.setattr(screening, "FEW_ROWS", 0)
    seen, ratios = [], []

    def wanted(part, least_s):
        seen.append((part, least_s))
        return part.possible

    for job, plans in batches(JOBS[name], SPACES[name]):
        part = screen(job, plans, BOOKS[name], wanted=wanted)
        if seen:
            some = part.possible
            ratios.append(seen.pop()[1][some] / part.step_time_s[some])
        seen.clear()

    every = np.concatenate(ratios)
    assert len(every) > 256
    assert every.max() <= 1.0
    assert name != "dense" or np.median(every) > 0.8


@pytest.mark.parametrize(
    ("name", "objectives"),
    [
        ("dense", ("step_time",)),
        ("experts", ("tokens_per_s", "memory", "energy")),
        ("sharded", ("step_time",)),
        ("overlapped", ("memory",)),
        ("blocking transfers", ("tokens_per_s",)),
    ],
)
def test_the_plans_that_are_kept_are_those_of_a_screen_of_every_plan(name, objectives, monkeypatch):
    job, space, book = JOBS[name], SPACES[name], BOOKS[name]
    question = Question(jobs=(job,), space=space, objectives=objectives)
    monkeypatch.setattr(screening, "FEW_ROWS", 0)
    few = TopCandidates(most=16).after_all(question, batches(job, space), lambda _: book)
    known = TopCandidates(most=16).after_all(
        question, batches_on(job, space), lambda _: book, before=few.incumbents
    )
    monkeypatch.setattr(screening, "FEW_ROWS", 10**9)
    every = TopCandidates(most=16).after_all(question, batches(job, space), lambda _: book)

    for kept in (few, known):
        assert (kept.candidates, kept.possible, kept.feasible) == (
            every.candidates,
            every.possible,
            every.feasible,
        )
        assert (kept.best, kept.on_front, kept.faster) == (every.best, every.on_front, every.faster)
        assert kept.best or kept.nearest == every.nearest


def test_most_plans_of_a_large_space_are_never_estimated(monkeypatch):
    job, book = JOBS["dense"], BOOKS["dense"]
    space = SPACES["dense"].model_copy(update={"micro_batch": Space().micro_batch})
    steps, estimated = screening._steps, []

    def counted(plans, *others):
        estimated.append(plans.size)
        return steps(plans, *others)

    monkeypatch.setattr(screening, "_steps", counted)
    found = TopCandidates().after_all(
        Question(jobs=(job,), space=space), batches(job, space), lambda _: book
    )

    assert sum(estimated) < found.possible / 3


@pytest.mark.parametrize("name", sorted(JOBS))
def test_seconds_kept_of_other_structures_are_those_that_are_worked_out(name):
    job, space, book = JOBS[name], SPACES[name], BOOKS[name]
    factors = FactorBook(job.site, book.levels)
    kept, batches_seen = KeptResults(4096), 0

    for _, possible in possible_only(batches_on(job, space)):
        programs = realise(lower(job.model, possible, job.batch), job.software)
        alone = split_seconds(programs, job.cluster, book, factors)
        shared = split_seconds(programs, job.cluster, book, factors, kept)
        if alone is None:
            continue
        assert list(shared.seconds) == list(alone.seconds)
        assert all(np.array_equal(shared.seconds[item], alone.seconds[item]) for item in alone.seconds)
        batches_seen += 1
    assert batches_seen > 1


def test_the_usual_plans_hold_one_that_is_near_the_best():
    job, space, book = JOBS["dense"], SPACES["dense"], BOOKS["dense"]
    question = Question(jobs=(job,), space=space)
    first = usual_plans(question, job, book, NOTHING_KEPT)
    best = TopCandidates().after_all(question, batches(job, space), lambda _: book, before=first.incumbents)

    assert 1.0 <= first.best.losses[0] / best.best[0].losses[0] < 1.1


@all_cases("name", JOBS)
def test_every_usual_plan_is_in_the_space(name):
    """What they say about other plans would otherwise rule out plans that nothing of the space beats."""
    job, space = JOBS[name], SPACES[name]
    every = {plan_at(plans, row) for _, plans in batches(job, space) for row in range(plans.size)}

    for usual in usual_spaces(job, space):
        found = {plan_at(plans, row) for _, plans in batches(job, usual) for row in range(plans.size)}
        assert found
        assert found <= every


def test_pruning_are_read_from_plain_data():
    data = {"best_loss": 1.0, "last_loss": 2.0, "on_front": [[1.0, 3.0]], "faster": []}

    assert read_incumbents(data).on_front == ((1.0, 3.0),)
