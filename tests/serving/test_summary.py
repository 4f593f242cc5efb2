"""Percentiles, rates and stability of served requests, against counts made by hand and closed forms."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from serving.test_request_traffic import traffic_of

from flopcast import predict_serving, serving_job
from flopcast.library.curves import load_serving_book
from flopcast.library.traffic_text import slo_of
from flopcast.serving import serve
from flopcast.serving.arrivals import requests_of
from flopcast.serving.percentiles import Spread, spread_of
from flopcast.serving.requests import Limits, independent_requests
from flopcast.serving.scheduler import run
from flopcast.serving.summary import is_stable, saturation_per_s, summarise
from flopcast.spec.traffic import Slo

LIMITS = Limits(max_sequences=64, max_tokens=2048, kv_blocks=10_000)
LENGTHS = "prompt=lognormal(500, 0.5) output=lognormal(100, 0.5)"


def seconds(new, sequences, kv, pairs):
    return 0.005 + 2e-5 * new + 5e-8 * kv


def flat(new, sequences, kv, pairs):
    return 1.0 + 0 * new


def served(words, limits=LIMITS, requests=4000):
    return run(requests_of(traffic_of(f"{words} {LENGTHS} requests={requests}")), limits, seconds)


@settings(max_examples=80, deadline=None)
@given(
    values=st.lists(st.floats(0, 100), min_size=1, max_size=40), percentile=st.floats(1, 99), data=st.data()
)
def test_a_percentile_is_that_of_numpy_over_repeated_values(values, percentile, data):
    weights = data.draw(st.lists(st.integers(0, 5), min_size=len(values), max_size=len(values)))
    repeated = np.repeat(values, weights)

    spread = Spread(values_s=np.array(values), weights=np.array(weights, float))

    if len(repeated):
        assert spread.at_s(percentile) == pytest.approx(np.percentile(repeated, percentile), abs=1e-9)
        assert spread.mean_s == pytest.approx(repeated.mean())
    else:
        assert np.isnan(spread.at_s(percentile))
        assert np.isnan(spread.mean_s)


def test_intervals_of_independent_values_hold_the_percentile_nine_times_in_ten():
    generator = np.random.default_rng(0)
    truth = -np.log(0.1)

    hits = 0
    for _ in range(400):
        low, high = spread_of(generator.exponential(size=2000)).interval_s(90)
        hits += low <= truth <= high

    assert 0.85 <= hits / 400 <= 0.95


def test_few_values_have_no_interval():
    assert np.isnan(spread_of(np.arange(19.0)).interval_s(50)).all()


def test_latencies_of_equal_requests_are_those_of_one():
    apart = independent_requests(100.0 * np.arange(50), np.full(50, 100), np.full(50, 11))

    summary = summarise(run(apart, LIMITS, lambda new, sequences, kv, pairs: 0.5 + 0 * new))

    assert summary.ttft.at_s(99) == pytest.approx(0.5)
    assert summary.tpot.at_s(1) == summary.tpot.at_s(99) == pytest.approx(0.5)
    assert summary.inter_token.mean_s == pytest.approx(0.5)
    assert summary.end_to_end.mean_s == pytest.approx(5.5)
    assert summary.requests_per_s == pytest.approx(0.01)
    assert summary.output_tokens_per_s == pytest.approx(0.11)
    assert summary.prompt_tokens_per_s == pytest.approx(1.0)
    assert summary.busy_share == pytest.approx(0.055)


@all_cases("words", ["rate=2/s", "rate=8/s", "rate=8/s arrivals=gamma burstiness=0.3", "concurrency=20"])
def test_what_goes_in_comes_out(words):
    result = served(words)

    summary = summarise(result)

    tokens = summary.requests_per_s * result.requests.output_tokens.mean()
    assert summary.output_tokens_per_s == pytest.approx(tokens, rel=0.03)
    prompts = summary.requests_per_s * result.requests.prompt_tokens.mean()
    assert summary.prompt_tokens_per_s == pytest.approx(prompts, rel=0.03)
    assert summary.end_to_end.mean_s > summary.ttft.mean_s > summary.queued.mean_s
    assert sum(summary.limited_by.values()) == pytest.approx(1.0)
    assert summary.stable


def test_littles_law_holds_for_the_requests_that_are_judged():
    result = served("concurrency=20")

    summary = summarise(result)

    assert summary.requests_per_s * summary.end_to_end.mean_s == pytest.approx(20, rel=0.02)


def test_with_nothing_left_out_rates_are_totals_over_the_whole_time():
    result = served("concurrency=20", requests=300)

    summary = summarise(result, leave_out_share=0.0)

    assert summary.requests_per_s == pytest.approx(300 / result.end_s)
    assert summary.output_tokens_per_s == pytest.approx(result.requests.output_tokens.sum() / result.end_s)
    assert len(summary.ttft.values_s) == 300


@all_cases("kind", [{}, {"prefill_first": True}])
def test_times_between_tokens_add_up_to_the_time_of_decoding(kind):
    limits = Limits(max_sequences=64, max_tokens=2048, kv_blocks=10_000, **kind)
    result = served("rate=8/s", limits)

    gaps = summarise(result, leave_out_share=0.0).inter_token

    decoding_s = (result.last_token_s - result.first_token_s).sum()
    assert gaps.weights.sum() == pytest.approx((result.requests.output_tokens - 1).sum())
    assert (gaps.values_s * gaps.weights).sum() == pytest.approx(decoding_s, rel=1e-6 if not kind else 0.01)


def test_prompts_in_iterations_of_their_own_make_the_slowest_tokens_slower():
    first = Limits(max_sequences=64, max_tokens=2048, kv_blocks=10_000, prefill_first=True)

    mixed, apart = (summarise(served("rate=4/s", limits)) for limits in (LIMITS, first))

    assert apart.inter_token.at_s(99) > mixed.inter_token.at_s(99)
    assert apart.ttft.at_s(50) <= mixed.ttft.at_s(50)


def test_good_requests_keep_every_limit():
    result = served("rate=10/s")
    slo = slo_of("ttft_p90=50ms tpot_p50=9ms")

    summary = summarise(result, slo, leave_out_share=0.0)

    ttft = result.first_token_s - result.arrival_s
    tpot = (result.last_token_s - result.first_token_s) / np.maximum(result.requests.output_tokens - 1, 1)
    good = ((ttft <= 0.05) & (tpot <= 0.009)).sum()
    assert 0 < good < len(ttft)
    assert summary.goodput_per_s == pytest.approx(good / (result.end_s - result.arrival_s.min()))
    first, second = summary.objectives
    assert first.metric == "ttft"
    assert first.reached_s == pytest.approx(np.percentile(ttft, 90))
    assert first.kept_share == pytest.approx((ttft <= 0.05).mean())
    assert first.kept == (np.percentile(ttft, 90) <= 0.05)
    assert second.kept == (np.percentile(tpot[result.requests.output_tokens > 1], 50) <= 0.009)


def test_without_objectives_every_request_is_good():
    summary = summarise(served("rate=4/s"), Slo())

    assert summary.goodput_per_s == summary.requests_per_s
    assert summary.objectives == ()


def test_a_load_is_stable_up_to_the_saturation_rate():
    requests = requests_of(traffic_of(f"rate=1/s {LENGTHS} requests=6000"))

    most = saturation_per_s(requests, lambda given: run(given, LIMITS, seconds))

    for share, stable in ((0.5, True), (0.9, True), (1.1, False), (1.5, False), (4.0, False)):
        result = served(f"rate={share * most}/s", requests=6000)
        assert is_stable(result) == stable, share
        if not stable:  # what ends in a second is what the engine can do
            assert summarise(result).requests_per_s == pytest.approx(most, rel=0.05)


@all_cases("load", [0.5, 0.85, 1.2, 2.0])
def test_a_queue_with_constant_service_saturates_at_its_rate_of_service(load):
    number = 5000
    arrival = np.cumsum(np.random.default_rng(5).exponential(1 / load, number))
    one = independent_requests(arrival, np.ones(number, int), np.ones(number, int))
    limits = Limits(max_sequences=1, max_tokens=1, kv_blocks=1)

    result = run(one, limits, flat)

    assert is_stable(result) == (load < 1)
    most = saturation_per_s(one, lambda given: run(given, limits, flat))
    assert most == pytest.approx(1)


def test_requests_that_all_arrive_at_once_are_a_stable_load():
    many = independent_requests(np.zeros(300), np.full(300, 500), np.full(300, 50))

    summary = summarise(run(many, LIMITS, seconds))

    assert summary.stable
    assert summary.requests_per_s > 0


def test_the_share_of_kv_blocks_is_that_of_the_tokens_in_flight():
    result = served("concurrency=20")

    summary = summarise(result)

    context = result.requests.prompt_tokens + result.requests.output_tokens / 2
    weights = result.requests.output_tokens  # a request stays as long as it decodes
    mean = 20 * (context * weights).sum() / weights.sum() / LIMITS.kv_tokens
    assert summary.mean_kv_share == pytest.approx(mean, rel=0.1)
    assert summary.mean_kv_share < summary.peak_kv_share <= 1


def test_the_stable_rate_of_a_saturated_engine_is_played_once(monkeypatch):
    """A short run does not show that the queue grows, so that its rate is compared with the stable rate."""
    played = []
    monkeypatch.setattr(serve, "saturation_per_s", lambda *args: played.append(args) or 1.0)
    traffic = "rate=28/s prompt=1000 output=200 requests=64"
    job = serving_job(
        "llama-3.1-8b", engine="vllm", cluster="dgx-h100", gpus=1, plan="tp=1", traffic=traffic
    )

    assert predict_serving(job).saturation_per_s == 1.0
    assert len(played) == 1  # passes that are slower by a ratio have a rate that is smaller by this ratio


@all_cases("load", ["rate=28/s", "concurrency=16"])
def test_times_without_arrivals_are_longer_by_the_ratio_of_the_passes(load):
    """The oracle is a run with these passes."""
    traffic = f"{load} prompt=lognormal(1000,0.5) output=lognormal(100,0.5) requests=300"
    job = serving_job(
        "llama-3.1-8b", engine="vllm", cluster="dgx-h100", gpus=1, plan="tp=1", traffic=traffic
    )
    simulation = serve.simulation_of(job, load_serving_book(job.cluster))
    rates = [
        saturation_per_s(simulation.requests, lambda given, ratio=ratio: simulation.play(given, ratio))
        for ratio in (1.0, 1.3)
    ]
    own, played = simulation.served(1.3), simulation.play(simulation.requests, 1.3)

    assert rates[1] == pytest.approx(rates[0] / 1.3, rel=1e-9)
    for name in ("arrival_s", "queued_s", "first_token_s", "last_token_s"):
        np.testing.assert_allclose(getattr(own, name), getattr(played, name), rtol=1e-9, atol=1e-9)
    assert summarise(own).requests_per_s == pytest.approx(summarise(played).requests_per_s, rel=1e-9)


def test_intervals_of_rates_hold_those_of_other_random_runs_nine_times_in_ten():
    """At a low rate of arrivals, only arrivals and lengths decide the rate of tokens."""
    job = serving_job(
        "llama-3.1-8b",
        engine="vllm",
        cluster="dgx-h100",
        gpus=1,
        plan="tp=1",
        traffic="rate=1/s prompt=100 output=lognormal(100, 0.8) requests=200",
    )
    rate = predict_serving(job).output_tokens_per_s
    generator = np.random.default_rng(0)
    tokens, gaps_s = generator.lognormal(0, 0.8, (800, 200)), generator.exponential(1, (800, 200))
    runs = tokens.sum(axis=1) / gaps_s.sum(axis=1)
    ratios = runs[::2] / runs[1::2]

    assert 0.85 < np.mean((ratios > rate.low / rate.value) & (ratios < rate.high / rate.value)) < 0.95
