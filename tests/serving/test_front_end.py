"""Times between a client and the engine, and the kernels that fitted ratios apply to."""

import numpy as np
import pytest

from flopcast import predict_serving, serving_job
from flopcast.serving.front_end import with_front_end
from flopcast.serving.requests import Limits, independent_requests
from flopcast.serving.scheduler import run
from flopcast.serving.summary import summarise
from flopcast.spec.engine import Engine
from flopcast.spec.iteration_cost import IterationCost

ENGINE = Engine(passes_ahead=3, iteration=IterationCost(request_s=0.01, prompt_token_s=1e-4))  # 100 tokens


def inside_and_outside(arrival_s):
    """Latencies in the engine and for the client, of requests that take 0.13 s each."""
    number = len(arrival_s)
    requests = independent_requests(np.asarray(arrival_s), np.full(number, 100), np.full(number, 11))
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 0.01 + 0.0001 * new)
    return tuple(
        summarise(each, leave_out_share=0.0) for each in (served, with_front_end(served, ENGINE, 1.0))
    )


def test_a_request_is_sent_before_it_arrives_in_the_engine():
    """It waits for launched passes if another request is in the engine, even one of the same moment."""
    for arrival_s in (np.arange(20.0) / 20, np.repeat(np.arange(10.0), 2)):
        inside, outside = inside_and_outside(arrival_s)
        others = np.array([0.0] + [1.0] * 19) if arrival_s[1] > 0 else np.ones(20)
        waited_s = 0.02 + 3.0 * inside.tpot.mean_s * others.mean()
        assert outside.ttft.mean_s == pytest.approx(inside.ttft.mean_s + waited_s, rel=0.01)
        assert outside.queued.mean_s == pytest.approx(inside.queued.mean_s + waited_s, rel=0.01)
        assert outside.tpot.mean_s == pytest.approx(inside.tpot.mean_s)
        assert outside.end_to_end.mean_s == pytest.approx(inside.end_to_end.mean_s + waited_s, rel=0.01)


def test_short_outputs_that_others_delay_wait_no_longer_than_long_ones():
    """All requests are sent together. Prompts of others delay the second token of an output of two."""
    outputs = np.tile([2, 2, 2, 400], 50)
    requests = independent_requests(np.zeros(200), np.full(200, 400), outputs)
    limits = Limits(max_sequences=64, max_tokens=512, kv_blocks=10_000, prefill_first=True)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 0.01 + 0.0001 * new)
    inside, outside = (
        summarise(each, leave_out_share=0.0) for each in (served, with_front_end(served, ENGINE, 1.0))
    )

    assert outside.ttft.mean_s - inside.ttft.mean_s < 1.0
    assert outside.output_tokens_per_s == pytest.approx(inside.output_tokens_per_s, rel=0.02)


def test_a_request_that_is_alone_in_the_engine_waits_for_no_passes_of_others():
    inside, outside = inside_and_outside(np.arange(20.0))

    assert outside.ttft.mean_s == pytest.approx(inside.ttft.mean_s + 0.02)


def test_requests_of_a_closed_loop_also_wait_for_the_end_of_a_pass():
    """They come at random places in a pass: half of it remains on average, but none without a client."""
    requests = independent_requests(np.zeros(400), np.full(400, 100), np.full(400, 11), concurrency=4)
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 0.01 + 0.0001 * new)
    inside = summarise(served, leave_out_share=0.0)
    in_client = ENGINE.model_copy(update={"iteration": IterationCost()})
    for engine, host_s, passes in ((ENGINE, 0.02, 3.5), (in_client, 0.0, 3.0)):
        outside = summarise(with_front_end(served, engine, 1.0), leave_out_share=0.0)
        waited_s = host_s + passes * inside.tpot.mean_s
        assert outside.ttft.mean_s == pytest.approx(inside.ttft.mean_s + waited_s, rel=0.03)


def test_requests_that_move_between_pools_are_handed_over():
    requests = independent_requests(np.zeros(1), np.array([100]), np.array([11]))
    limits = Limits(max_sequences=8, max_tokens=512, kv_blocks=1000)
    served = run(requests, limits, lambda new, sequences, kv, pairs: 0.01 + 0.0001 * new)
    engine = Engine(iteration=IterationCost(handover_s=0.1))

    alone, moved = (
        with_front_end(served, engine, 2.0, has_pools=each).queued_s[0] for each in (False, True)
    )
    assert moved - alone == pytest.approx(0.2)


def test_some_experts_differ_from_benchmarks_and_each_streamed_token_takes_the_host():
    """The ratio holds for benchmarks with other kernels; a token of each sequence is sent at once."""
    cost = IterationCost(expert_ratio=0.8, sequence_s=5e-6, streamed_s=2e-5)
    engine = Engine(iteration=cost)
    ratios = {"bf16": 1.0, "fp8": 1.0, "int4": 1.0, "mxfp4": 0.8, "mxfp4_mxfp8": 0.8, "nvfp4": 0.8}
    for name, expected in ratios.items():
        plan = f"tp=8 weights=bf16 expert_weights={name}"
        job = serving_job("gpt-oss-120b", engine="vllm", cluster="dgx-b200", gpus=8, plan=plan)
        cost = job.model_copy(update={"engine": engine}).iteration
        assert cost.expert_ratio == expected
        assert cost.sequence_s == pytest.approx(2.5e-5)
    seldom = engine.model_copy(update={"stream_interval": 20})
    assert job.model_copy(update={"engine": seldom}).iteration.sequence_s == pytest.approx(6e-6)


def test_kernels_that_overlap_shorten_passes_that_only_decode():
    """Each kernel and message of such a pass saves the overlap, but at most half of its time."""
    job = serving_job(
        "llama-3.1-8b",
        engine="vllm",
        cluster="dgx-h100",
        gpus=1,
        plan="tp=1",
        traffic="concurrency=8 prompt=100 output=400 requests=80",
    )

    def report(overlap_s):
        cost = job.engine.iteration.model_copy(update={"overlap_s": overlap_s})
        return predict_serving(
            job.model_copy(update={"engine": job.engine.model_copy(update={"iteration": cost})})
        )

    apart, together, most = (report(each) for each in (0.0, 1e-6, 1.0))
    kernels = 32 * 10 + 5  # of each block; the embedding, the last norm, and three of the head
    saved_s = apart.latencies["tpot"]["mean"].value - together.latencies["tpot"]["mean"].value
    assert saved_s == pytest.approx(kernels * 1e-6, rel=0.1)
    assert sum(together.shares.values()) == pytest.approx(1.0)
    host_s = apart.shares["host"] * apart.iteration_s
    halved_s = (apart.latencies["tpot"]["mean"].value - host_s) / 2 + host_s
    assert most.latencies["tpot"]["mean"].value == pytest.approx(halved_s, rel=0.05)


def test_layers_of_experts_lengthen_passes_with_prompts():
    """The host needs its time once for each of 36 layers, in the pass of a prompt and in no other pass."""
    for model, layers in (("gpt-oss-120b", 36), ("llama-3.1-8b", 0)):
        job = serving_job(
            model,
            engine="vllm",
            cluster="dgx-h100",
            gpus=8,
            plan="tp=8 replicas=1",
            traffic="concurrency=1 prompt=500 output=50 requests=10",
        )

        def report(prompt_experts_s, job=job):
            cost = job.engine.iteration.model_copy(update={"prompt_experts_s": prompt_experts_s})
            return predict_serving(
                job.model_copy(update={"engine": job.engine.model_copy(update={"iteration": cost})})
            )

        without, longer = report(0.0), report(1e-3)
        more_s = longer.latencies["ttft"]["mean"].value - without.latencies["ttft"]["mean"].value
        assert more_s == pytest.approx(layers * 1e-3)
        assert longer.latencies["tpot"]["mean"].value == pytest.approx(
            without.latencies["tpot"]["mean"].value
        )
        assert sum(longer.shares.values()) == pytest.approx(1.0)
