"""Adapters of an engine: a cache of slots, their bytes, and the products that they add to a pass."""

import json
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast
from serving.test_passes import decoding, items_of, total
from serving.test_scheduler import closed, drawn, seconds

from flopcast.library import catalog
from flopcast.serving.adapter_cache import AdapterCache
from flopcast.serving.adapters import adapter_bytes, load_s
from flopcast.serving.arrivals import requests_of
from flopcast.serving.memory import serving_memory
from flopcast.serving.requests import Limits
from flopcast.serving.scheduler import run
from flopcast.serving.served import LIMITED_BY
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

LIMITS = Limits(max_sequences=16, max_tokens=512, kv_blocks=400)
MODEL = "llama-3.1-8b"
WORDS = ["predict", MODEL, "--engine", "vllm", "--cluster", "dgx-h100:1", "--json"]
LOAD = "concurrency=16 prompt=512 output=32 requests=64"


def job_of(**plan):
    return ServingJob(
        model=catalog.model(MODEL),
        cluster=catalog.cluster("dgx-h100", 1),
        engine=catalog.engine("vllm"),
        plan=Deployment.model_validate({"replicas": 1, "adapter_rank": 16, "adapter_slots": 8} | plan),
        traffic=Traffic(concurrency=4, prompt=100, output=10, adapters=20),
    )


def test_one_request_at_a_time_finds_what_a_least_recently_used_cache_holds():
    ids = np.random.default_rng(0).integers(0, 12, 2000)
    cache, plain, misses = AdapterCache(ids, slots=5), OrderedDict(), []
    for request, adapter in enumerate(ids.tolist()):
        misses.append(adapter not in plain)
        plain[adapter] = None
        plain.move_to_end(adapter)
        while len(plain) > 5:
            plain.popitem(last=False)

        assert cache.has_room(request)
        assert cache.begin(request) == misses[-1]
        cache.end(request)

    assert cache.loads == sum(misses)


def test_requests_without_adapters_and_slots_for_all_of_them_change_nothing():
    requests = drawn(200, 8.0)
    plain = run(requests, LIMITS, seconds)
    all_alike = replace(requests, adapter_ids=np.zeros(200, dtype=int))
    none = replace(requests, adapter_ids=np.full(200, -1))

    for given in (all_alike, none):
        served = run(given, replace(LIMITS, adapter_slots=2), seconds)

        assert served.last_token_s.tolist() == plain.last_token_s.tolist()


@all_cases("slots", (1, 2, 5, 16))
def test_every_token_is_yielded_and_no_more_adapters_run_than_there_are_slots(slots):
    requests = drawn(300, 8.0, seed=4)
    ids = np.random.default_rng(1).integers(0, 20, 300)
    limits = replace(LIMITS, adapter_slots=slots, adapter_load_s=0.01)

    served = run(replace(requests, adapter_ids=ids), limits, seconds)

    assert served.iterations.output_tokens.sum() == requests.output_tokens.sum()
    begun, ended = served.arrival_s + served.queued_s, served.last_token_s
    for at in begun:
        assert len(set(ids[(begun <= at) & (ended > at + 1e-9)])) <= slots
    assert served.adapter_loads >= len(set(ids))


def test_more_slots_never_load_more_and_each_load_takes_its_time():
    requests = replace(closed(200, 1), adapter_ids=np.random.default_rng(2).integers(0, 10, 200))
    runs = [
        run(requests, replace(LIMITS, adapter_slots=slots, adapter_load_s=0.5), seconds)
        for slots in (1, 3, 10)
    ]
    plain = run(replace(requests, adapter_ids=np.zeros(0, dtype=int)), LIMITS, seconds)

    loads = [each.adapter_loads for each in runs]
    assert loads == sorted(loads, reverse=True)
    assert loads[-1] == 10
    for each in runs:
        assert each.end_s == pytest.approx(plain.end_s + 0.5 * each.adapter_loads)


def test_requests_with_a_loaded_adapter_pass_those_without_a_slot():
    requests = replace(closed(8, 8), adapter_ids=np.array([0, 1, 0, 1, 0, 1, 0, 1]))

    served = run(requests, replace(LIMITS, adapter_slots=1), seconds)

    assert served.first_token_s[::2].max() < served.first_token_s[1::2].min()
    assert LIMITED_BY.index("adapters") in served.iterations.limited_by


def test_adapters_are_drawn_by_zipfs_law_and_kept_over_the_turns_of_a_conversation():
    traffic = Traffic(rate=1, prompt=10, output=5, adapters=4, adapter_skew=1, requests=40_000)
    counts = np.bincount(requests_of(traffic).adapter_ids)
    shares = np.array([1, 1 / 2, 1 / 3, 1 / 4])

    turns = requests_of(Traffic(rate=1, prompt=10, output=5, adapters=4, turns=3, requests=300))

    assert counts / 40_000 == pytest.approx(shares / shares.sum(), abs=0.01)
    assert (turns.adapter_ids.reshape(-1, 3) == turns.adapter_ids[::3, None]).all()
    assert requests_of(traffic.model_copy(update={"adapters": 0})).adapter_ids.size == 0


def test_an_adapter_has_the_bytes_of_its_matrices_and_slots_take_them_from_the_cache():
    hidden, keys, inner = 4096, 1024, 14336
    sides = 2 * (hidden + hidden) + 2 * (hidden + keys) + 2 * (hidden + inner) + (inner + hidden)
    one = job_of()
    none = one.model_copy(update={"plan": Deployment(replicas=1)})

    assert adapter_bytes(one) == 32 * sides * 16 * 2
    assert load_s(one) == adapter_bytes(one) / 50e9
    taken = serving_memory(none).cache_bytes - serving_memory(one).cache_bytes
    assert taken == pytest.approx(8 * adapter_bytes(one))


def test_adapters_multiply_each_token_with_two_narrow_matrices():
    plain, adapted = (
        total(items_of(MODEL, decoding(16.0), plan), lambda work: work.flop)
        for plan in (Deployment(), Deployment(adapter_rank=16, adapter_slots=8))
    )

    elements = adapter_bytes(job_of()) / 2
    assert adapted - plain == pytest.approx(2 * 16 * elements)


def test_ranks_share_half_of_an_adapter_at_least():
    one, four = adapter_bytes(job_of()), adapter_bytes(job_of(tp=4))

    assert one / 4 < four < one


def test_the_command_says_how_many_requests_find_their_adapter():
    found = json.loads(
        flopcast(
            *WORDS, "--plan", "tp=1 replicas=1 adapter_rank=16 adapter_slots=4", "--traffic",
            f"{LOAD} adapters=8",
        ).out
    )  # fmt: skip

    assert 0 < found["adapter_hit_share"] < 1
    assert found["memory"]["adapter_bytes"] > 0
    assert found["time_shares"]["adapters"] > 0


FAULTS = {
    ("tp=1", "adapters=8"): ("plan.adapter_rank", "is missing"),
    ("tp=1 adapter_rank=16", ""): ("plan.adapter_rank", "the requests of the traffic use no adapters"),
    ("tp=1 adapter_slots=4", ""): ("plan.adapter_slots", "the requests of the traffic use no adapters"),
    ("tp=1 adapter_rank=0", "adapters=8"): ("plan.adapter_rank",),
    ("tp=1 adapter_rank=16", "adapter_skew=1"): ("adapter_skew", "adapters"),
}


def test_adapters_that_cannot_be_are_errors_with_their_fix():
    for (plan, traffic), words in FAULTS.items():
        found = flopcast(*WORDS, "--plan", plan, "--traffic", f"{LOAD} {traffic}")

        assert found.code == 1, (plan, traffic, found.out)
        for word in (*words, "fix"):
            assert word in found.out + found.err, (plan, traffic, found.out)
