"""Pipeline stages of an engine: conservation over stages, and the period of a ring of busy stages."""

import json

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.serving.engine_pass import EnginePass
from flopcast.serving.instances import times_of
from flopcast.serving.memory import serving_memory
from flopcast.serving.serve import serve
from flopcast.serving.stages import layers_of_stages, through_stages
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

MODELS = ("llama-3.1-70b", "deepseek-v3", "gpt-oss-120b")


def job_of(plan, traffic="1", name="llama-3.1-70b"):
    return ServingJob(
        model=catalog.model(name),
        cluster=catalog.cluster("dgx-h200", 2),
        engine=catalog.engine("vllm"),
        plan=Deployment.model_validate({"weights": "fp8", "replicas": 1} | plan),
        traffic=Traffic.model_validate(
            {"concurrency": int(traffic), "prompt": 1024, "output": 64, "requests": 4 * int(traffic)}
        ),
    )


@all_cases("name", MODELS)
def test_stages_have_every_layer_once_and_differ_by_one_block_at_most(name):
    model = catalog.model(name)
    whole = layers_of_stages(model, 1)[0]
    for stages in (2, 3, 5, 8):
        rows = layers_of_stages(model, stages)
        blocks = rows[:, 1 : 1 + len(model.blocks)].sum(axis=1)

        assert rows.sum(axis=0).tolist() == whole.tolist()
        assert np.ptp(blocks) <= 1
        assert blocks[-1] == min(blocks)
        assert (np.diff(blocks[:-1]) >= 0).all()
        assert rows[0, 0] == 1
        assert rows[-1, -1] == 1


@all_cases("name", MODELS)
def test_stages_share_the_weights_of_a_model(name):
    whole = serving_memory(job_of({"tp": 8}, name=name)).weight_bytes

    fullest = serving_memory(job_of({"tp": 8, "pp": 2}, name=name)).weight_bytes

    assert 0.45 * whole <= fullest <= 0.55 * whole


def test_stages_hold_more_tokens_because_each_caches_its_own_layers_alone():
    one, four = (serving_memory(job_of({"tp": 2, "pp": stages})) for stages in (1, 4))

    assert four.token_bytes == pytest.approx(one.token_bytes / 4)
    assert four.cache_tokens > 4 * one.cache_tokens


def ring_period(stages_s, in_flight, rounds=200):
    """Passes that follow each other through stages, one at a time in each: a recurrence of maxima."""
    free = [0.0] * len(stages_s)
    ready = [0.0] * in_flight
    marks = []
    for _ in range(rounds):
        for turn in range(in_flight):
            at = ready[turn]
            for stage, taken_s in enumerate(stages_s):
                at = max(at, free[stage]) + taken_s
                free[stage] = at
            ready[turn] = at
        marks.append(ready[0])
    return (marks[-1] - marks[rounds // 2]) / (rounds - 1 - rounds // 2)


@all_cases("in_flight", (1, 2, 3, 4, 7))
def test_the_time_between_passes_is_that_of_a_ring_of_stages(in_flight):
    for stages_s in ([1.0, 1.0, 1.0, 1.0], [0.5, 2.0, 1.0], [3.0, 1.0]):
        each = np.array(stages_s)[:, None]
        found = through_stages(each, (1,) * len(stages_s), in_flight)

        assert found[0] == pytest.approx(ring_period(stages_s, in_flight))


def test_a_pass_alone_takes_the_time_of_an_engine_of_one_stage_and_its_messages():
    numbers = (64.0, 64.0, 64 * 1024.0, 64 * 1024.0)
    seconds = []
    for stages in (1, 2, 4):
        job = job_of({"tp": 2, "pp": stages})
        times = times_of(job, load_serving_book(job.cluster), 2048)
        seconds.append(float(times(*numbers)))

    one, two, four = seconds
    assert one < two < four < 1.02 * one
    hop_s = two - one
    assert four - two == pytest.approx(2 * hop_s, rel=1e-6)


def test_more_stages_serve_more_requests_and_one_request_is_as_fast_as_on_one_stage():
    rates, lonely = [], []
    for stages in (1, 2, 4):
        for concurrency, found in (("64", rates), ("1", lonely)):
            job = job_of({"tp": 2, "pp": stages}, concurrency)
            report = serve(job, load_serving_book(job.cluster))
            found.append(report.output_tokens_per_s.value)
            assert sum(report.shares.values()) == pytest.approx(1.0)

    assert rates == sorted(rates)
    assert rates[2] < 4 * rates[0]
    assert lonely == pytest.approx([lonely[0]] * 3, rel=0.02)


def test_arrays_of_passes_take_what_single_passes_take():
    job = job_of({"tp": 2, "pp": 3}, "64")
    times = times_of(job, load_serving_book(job.cluster), 4096)
    random = np.random.default_rng(0)
    sequences = random.integers(1, 22, 20).astype(float)
    run = EnginePass(
        new_tokens=sequences + 100,
        sequences=sequences,
        cached_tokens=900 * sequences,
        pairs=1000 * sequences,
    )
    numbers = run.new_tokens, run.sequences, run.cached_tokens, run.pairs

    together = times(*numbers)

    one_by_one = [times(*(float(column[at]) for column in numbers)) for at in range(20)]
    assert one_by_one == pytest.approx(together.tolist(), rel=1e-12)


def test_the_command_takes_stages_and_refuses_more_of_them_than_blocks():
    words = ["predict", "llama-3.1-70b", "--engine", "vllm", "--cluster", "dgx-h200:1", "--plan"]
    traffic = ["--traffic", "concurrency=16 prompt=1024 output=64 requests=64", "--json"]

    found = json.loads(flopcast(*words, "tp=2 pp=4 weights=fp8", *traffic).out)
    refused = flopcast(*words, "tp=2 pp=81 weights=fp8", *traffic)

    assert found["devices"] == 8
    assert 1 <= found["memory"]["pipeline_stage"] <= 4
    assert "stages" in found["time_shares"]
    assert refused.code == 1
    for word in ("plan.pipeline_parallel", "80", "because", "fix"):
        assert word in refused.out + refused.err
