"""Separate pools for prompts and decoding: equal to one engine without a link, and conserved."""

import json
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from command_line import flopcast
from serving.test_scheduler import closed, conversations, drawn, seconds

from flopcast import predict_serving, serving_job
from flopcast.errors import SpecError
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.serving.decode_times import DecodeTimes
from flopcast.serving.joined_pools import EnginePool, run_joined
from flopcast.serving.kv_transfer import kv_transfer
from flopcast.serving.requests import Limits
from flopcast.serving.scheduler import EngineLoop, run
from flopcast.serving.serve import serve
from flopcast.serving.source import Source
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

ENGINE = {"max_sequences": 16, "max_tokens": 512, "kv_blocks": 400}
KINDS = {
    "chunked": {},
    "whole prompts": {"chunked_prefill": False, "max_tokens": 1024},
    "prompts first": {"prefill_first": True},
    "reserved": {"preemption": "none", "kv_blocks": 150},
    "few blocks": {"kv_blocks": 120},
    "few sequences": {"max_sequences": 3},
    "blocks of one token": {"block_tokens": 1, "kv_blocks": 2000},
}
WORDS = ["predict", "llama-3.1-70b", "--engine", "vllm", "--cluster", "dgx-h200:1"]
TRAFFIC = ["--traffic", "concurrency=32 prompt=1024 output=64 requests=160"]


def pool(engines, limits):
    return EnginePool(engines=engines, limits=limits, pass_seconds=seconds)


def job_of(plan, **traffic):
    lengths = {"prompt": 1024, "output": 128}
    return ServingJob(
        model=catalog.model("llama-3.1-70b"),
        cluster=catalog.cluster("dgx-h200", 1),
        engine=catalog.engine("vllm"),
        plan=Deployment.model_validate({"weights": "fp8"} | plan),
        traffic=Traffic.model_validate(lengths | traffic),
    )


@all_cases("kind", KINDS)
def test_one_request_at_a_time_takes_what_one_engine_takes_if_the_link_is_infinitely_fast(kind):
    limits = Limits(**ENGINE | KINDS[kind])
    requests = replace(drawn(40, 1.0), concurrency=1)

    one, two = (
        run(requests, limits, seconds),
        run_joined(requests, pool(1, limits), pool(1, limits), np.zeros(40)),
    )

    assert two.first_token_s == pytest.approx(one.first_token_s)
    assert two.last_token_s == pytest.approx(one.last_token_s)


@all_cases("kind", KINDS)
def test_pools_of_one_engine_are_two_engines_in_a_row(kind):
    """The second engine gets the requests when the first one has computed their prompts."""
    limits = Limits(**ENGINE | KINDS[kind])
    requests = drawn(200, 10.0, seed=3)
    requests = replace(requests, output_tokens=np.maximum(requests.output_tokens, 2))
    first = run(replace(requests, output_tokens=np.ones(200, dtype=int)), limits, seconds)
    order = np.argsort(first.first_token_s, kind="stable")
    behind = replace(
        requests,
        arrival_s=first.first_token_s[order],
        prompt_tokens=requests.prompt_tokens[order],
        output_tokens=requests.output_tokens[order],
    )
    second = EngineLoop(behind, limits, DecodeTimes(seconds, 1, 2000), Source(behind), True)
    while second.left:
        second.iterate()

    joined = run_joined(requests, pool(1, limits), pool(1, limits), np.zeros(200))

    assert joined.first_token_s[order] == pytest.approx(np.array(second.batch.begun_s), abs=2e-4)
    assert joined.last_token_s[order] == pytest.approx(np.array(second.batch.last_token_s), abs=2e-4)


@all_cases("kind", KINDS)
@all_cases("requests", [drawn(150, 12.0, seed=1), closed(80, 7), conversations(20, 4)])
def test_requests_and_tokens_are_conserved_and_time_only_runs_forward(kind, requests):
    limits = Limits(**ENGINE | KINDS[kind])
    transfer_s = np.full(requests.size, 0.02)

    served = run_joined(requests, pool(3, limits), pool(2, limits), transfer_s)

    yielded = sum(table.output_tokens.sum() for table in served.tables)
    assert yielded == requests.output_tokens.sum()
    assert (served.iterations.kv_blocks <= limits.kv_blocks).all()
    several = requests.output_tokens > 1
    assert (served.first_token_s >= served.arrival_s + 0.02 * several).all()
    assert (served.last_token_s >= served.first_token_s).all()
    assert (served.transferred_s[several] >= 0.02 - 1e-9).all()
    again = run_joined(requests, pool(3, limits), pool(2, limits), transfer_s)
    assert again.last_token_s.tolist() == served.last_token_s.tolist()


def test_prompts_of_one_pass_cross_the_link_one_after_the_other():
    limits = Limits(**ENGINE)
    three = replace(closed(3, 3, prompt=100), arrival_s=np.zeros(3))

    served = run_joined(three, pool(1, limits), pool(1, limits), np.full(3, 0.5))

    assert sorted(served.transferred_s) == pytest.approx([0.5, 1.0, 1.5])


def test_a_second_engine_for_prompts_doubles_the_rate_where_prompts_are_the_limit():
    limits = Limits(**ENGINE)
    requests = closed(200, 64, prompt=800, output=2)
    ends_s = [
        run_joined(requests, pool(engines, limits), pool(1, limits), np.zeros(200)).end_s
        for engines in (1, 2)
    ]

    assert ends_s[0] / ends_s[1] == pytest.approx(2.0, rel=0.05)


def test_faults_of_both_pools_are_told_together():
    limits = Limits(**ENGINE | {"kv_blocks": 4})

    with pytest.raises(SpecError) as caught:
        run_joined(drawn(20, 1.0), pool(1, limits), pool(1, limits), np.zeros(20))

    assert len(caught.value.problems) == 2


def test_a_prompt_sends_its_keys_and_values_once():
    job = job_of({"prefill": {"tp": 2}, "decode": {"tp": 4}}, concurrency=1)

    sent = kv_transfer(job, load_serving_book(job.cluster), np.array([1000, 2000]))

    each = 80 * 2 * 8 * 128 * 2  # layers, keys and values, heads, sizes of a head, bytes
    assert sent.sent_bytes.tolist() == [1000 * each, 2000 * each]
    assert sent.tier == "nvlink"
    # the two ranks that send are the bottleneck: half of the bytes each, at no more than the link's rate
    link = job.cluster.tiers[0]
    assert (sent.alone_s > sent.sent_bytes / 2 / link.bytes_per_s).all()


def test_pools_differ_from_one_engine_by_handover_and_transfer_if_requests_are_alone():
    book = load_serving_book(catalog.cluster("dgx-h200", 1))
    one = serve(job_of({"tp": 4, "replicas": 1}, concurrency=1, requests=8), book)
    pools = {"prefill": {"tp": 4}, "decode": {"tp": 4}}
    two = serve(job_of(pools, concurrency=1, requests=8), book)

    transfer_s = two.pools.mean_transfer_s
    ttft = [report.latencies["ttft"]["mean"].value for report in (one, two)]
    tpot = [report.latencies["tpot"]["mean"].value for report in (one, two)]
    assert transfer_s > 0
    handover_s = two.job.engine.iteration.handover_s
    assert ttft[1] - ttft[0] == pytest.approx(handover_s + transfer_s, rel=1e-3)
    assert tpot[1] == pytest.approx(tpot[0], rel=1e-3)


def test_a_transfer_between_domains_is_over_the_network_and_takes_longer():
    book = load_serving_book(catalog.cluster("dgx-h200", 2))
    waits = []
    for ranks in (4, 8):
        job = job_of({"prefill": {"tp": 4}, "decode": {"tp": ranks}}, concurrency=1)
        job = job.model_copy(update={"cluster": catalog.cluster("dgx-h200", 2)})
        waits.append(kv_transfer(job, book, np.array([8192])))

    assert [each.tier for each in waits] == ["nvlink", "infiniband"]
    assert waits[1].alone_s[0] > 3 * waits[0].alone_s[0]


def test_equal_parts_of_pools_are_played_once():
    """Four prompt engines and two that decode are twice two and one, at half of the load."""
    half = {"prefill": {"tp": 1, "replicas": 2}, "decode": {"tp": 2}}
    whole = {"prefill": {"tp": 1, "replicas": 4}, "decode": {"tp": 2, "replicas": 2}}
    book = load_serving_book(catalog.cluster("dgx-h200", 1))
    one, two = (
        serve(job_of(plan, concurrency=concurrency, requests=10 * concurrency), book)
        for plan, concurrency in ((half, 16), (whole, 32))
    )

    assert two.job.devices == 2 * one.job.devices
    assert two.output_tokens_per_s.value == pytest.approx(2 * one.output_tokens_per_s.value)
    assert two.latencies["ttft"]["p90"].value == pytest.approx(one.latencies["ttft"]["p90"].value)


def test_the_command_and_a_file_take_pools(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(
        "model: llama-3.1-70b\ncluster: dgx-h200:1\nengine: vllm\n"
        "plan: {prefill: {tp: 2, replicas: 2}, decode: {tp: 4}, weights: fp8}\n"
        "traffic: {concurrency: 32, prompt: 1024, output: 64, requests: 160}\n",
        encoding="utf-8",
    )
    plan = "prefill.tp=2 prefill.replicas=2 decode.tp=4 weights=fp8"

    words, file = flopcast(*WORDS, "--plan", plan, *TRAFFIC, "--json"), flopcast("predict", str(path))
    shown = flopcast(*WORDS, "--plan", plan, *TRAFFIC)

    found = json.loads(words.out)
    assert found["devices"] == 8
    assert found["pools"]["prefill"]["devices"] == 4
    assert found["pools"]["transfer"]["mean_bytes"] == 1024 * 80 * 2 * 8 * 128 * 2
    assert file.out == shown.out
    assert "keys and values over nvlink" in shown.out


FAULTS = {
    "prefill.tp=4": ("plan.decode", "a prefill pool and a decode pool"),
    "prefill.tp=4 decode.tp=4 tp=2": ("plan.decode", "each pool has its own value of this field"),
    "prefill.tp=4 prefill.replicas=3 decode.tp=4": ("plan.decode.replicas", "3 x 4 + 1 x 4"),
    "prefill.tp=3 decode.tp=4": ("plan.prefill.tensor_parallel", "heads"),
    "prefill.tp=1 decode.tp=4": ("plan.prefill.tensor_parallel to 2", "weights ("),
    "prefill.tpp=1 decode.tp=4": ("plan.prefill.tpp",),
}


def test_pools_that_cannot_be_are_errors_with_their_fix():
    for plan, words in FAULTS.items():
        found = flopcast(*WORDS, "--plan", plan, *TRAFFIC)

        assert found.code == 1, (plan, found.err)
        for word in (*words, "fix"):
            assert word in found.err, (plan, found.err)
    lonely = ["--traffic", "concurrency=4 prompt=100 output=1 requests=8"]
    found = flopcast(*WORDS, "--plan", "prefill.tp=4 decode.tp=4", *lonely)
    assert found.code == 1
    assert "two tokens" in found.err


def test_no_engine_decodes_beyond_the_time_at_which_another_one_brings_a_request():
    """Ten open requests over five decoding instances: a new one waits for its prompt, not for an answer."""
    plan = "prefill.replicas=1 decode.replicas=5"
    load = "concurrency=10 prompt=uniform(800,1000) output=uniform(800,1000) requests=100"
    job = serving_job("llama-3.1-8b", cluster="dgx-h100", gpus=8, plan=plan, traffic=load)

    report = predict_serving(job)

    assert report.latencies["ttft"]["p99"].value < 0.05 * report.latencies["end_to_end"]["p50"].value
