"""The largest model that fits: eight more layers do not."""

import json
from dataclasses import fields

import numpy as np
import pytest
from command_line import flopcast

from flopcast.library.curves import load_book
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.search.default_plan import fits
from flopcast.search.grid import batches_on
from flopcast.search.largest_model import STEP, largest_model, with_layers
from flopcast.search.offload_that_fits import with_placements
from flopcast.search.screen import screen

FIXED = ("tensor_parallel", "pipeline_parallel", "zero", "recompute", "micro_batch", "global_batch")


@pytest.fixture(scope="module")
def question():
    words = "tp=1 pp=1 zero=3 recompute=full mbs=1 gbs=8"
    job = JobRequest(model="llama-3-8b", gpus=8, stack="deepspeed-zero", seq=2048, plan=words)
    return question_of(SearchRequest(job=job))


def test_no_usual_plan_fits_eight_layers_more(question):
    (job,) = question.sized()
    book = load_book(job.cluster)
    found = largest_model(question, job, book)
    fixed = {name: getattr(found.plan, name) for name in FIXED}

    def trains(layers):
        return fits(job.model_copy(update={"model": with_layers(job.model, layers)}), fixed)

    assert found.num_layers % STEP == 0
    assert trains(found.num_layers)
    assert not trains(found.num_layers + STEP)


def test_plans_screened_for_memory_alone_have_the_memory_of_a_whole_screening(question):
    (job,) = question.sized()
    book = load_book(job.cluster)
    possible = 0
    for one, plans in batches_on(job, with_placements(question, job, in_parts=False).space):
        whole, alone = (screen(one, plans, each) for each in (book, None))
        possible += int(whole.possible.sum())
        for name in {field.name for field in fields(whole)} - {"step_time_s"}:
            assert np.array_equal(getattr(whole, name), getattr(alone, name), equal_nan=True), name
        assert np.isposinf(alone.step_time_s[whole.possible]).all()

    assert possible


def test_placements_outside_the_devices_train_larger_models_until_the_host_is_full(question):
    (job,) = question.sized()
    book = load_book(job.cluster)
    plain, placed = (largest_model(question, job, book, offload=each) for each in (False, True))
    host_bytes = job.cluster.node.memory.capacity_bytes

    assert placed.num_parameters > plain.num_parameters
    assert 16 * placed.num_parameters < host_bytes  # states and gradients in fp32


def test_the_command_prints_both_and_refuses_what_it_would_ignore():
    words = [
        "search",
        "llama-3-8b",
        "--gpus",
        "8",
        "--seq",
        "512",
        "--plan",
        "tp=8 mbs=1 gbs=8",
        "--largest",
    ]
    answer = json.loads(flopcast(*words, "--json").out)["largest"]
    wrong = flopcast(*words, "--pareto", "--offload", "auto")

    assert [one["offload"] for one in answer] == [False, True]
    assert answer[0]["num_layers"] < answer[1]["num_layers"]
    assert wrong.code == 1
    assert "--pareto" in wrong.err
    assert "--offload" in wrong.err


def test_searches_without_a_ranking_refuse_options_of_rankings():
    for search in ("--largest", "--node-order", "--split-points"):
        told = flopcast("search", "gpt2", search, "--objective", "cost", "--pareto", "--evolve").err
        for option in ("--objective", "--pareto", "--evolve"):
            assert f"remove {option} or {search}" in told
