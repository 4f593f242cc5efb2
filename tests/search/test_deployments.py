"""A search of serving: its estimates, its answer against all deployments simulated, and how it is asked."""

import csv
import json
from functools import cache

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast import SpecError, predict_serving, search_deployments, serving_job
from flopcast.library.curves import load_serving_book
from flopcast.requests.serving_search import space_of
from flopcast.search.deployments.find import find_deployments
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.screen import screened
from flopcast.search.deployments.steady import Load, curve_of, steady_state
from flopcast.serving.arrivals import requests_of

ALL = 10**6
BOOK = cache(load_serving_book)


def asked(model="llama-3.1-8b", traffic="rate=30/s prompt=1000 output=150 requests=150", **options):
    usual = {"cluster": "dgx-h100", "gpus": 4, "engine": "vllm"}
    return serving_job(model, traffic=traffic, **(usual | options))


def constant(new, sequences, cached, pairs):
    """A device on which every pass takes 10 ms."""
    return 0.01 + 0.0 * new


def test_steady_states_obey_littles_law():
    """With passes of 10 ms, a request of 100 tokens decodes for a second."""
    load = Load(
        prompt_tokens=1e-9, context_tokens=1.0, output_tokens=100.0, rate_per_s=20.0, concurrency=0.0
    )
    curve = curve_of(constant, load, 64.0, 8192, apart=False)
    found = steady_state(curve, load, engines=3)
    assert found.tpot_s == pytest.approx(0.01)
    assert found.requests_per_s == pytest.approx(60.0)
    assert found.load_ratio == pytest.approx(20.0 / 64.0)  # 64 sequences end 64 requests in a second
    full = steady_state(curve, Load(**_changed(load, rate_per_s=128.0)), engines=1)
    assert (full.load_ratio, full.requests_per_s) == pytest.approx((2.0, 64.0))
    closed = steady_state(curve, Load(**_changed(load, rate_per_s=None, concurrency=1e4)), engines=1)
    assert closed.requests_per_s == pytest.approx(64.0)
    assert closed.ttft_s > 100.0  # nearly all of them wait: 10,000 / 64 s


STATIC = (  # engine and model, batch, load
    ("fastertransformer", "gpt-j-6b", 1, "concurrency=8"),
    ("fastertransformer", "gpt-j-6b", 8, "concurrency=32"),
    ("fastertransformer", "gpt-j-6b", 32, "rate=2/s"),
    ("hugging-face", "llama-7b", 8, "concurrency=4"),
    ("hugging-face", "llama-7b", 8, "rate=0.1/s"),
)


@all_cases("engine, model, batch, load", STATIC)
def test_static_batches_are_estimated_as_they_are_simulated(engine, model, batch, load):
    """A batch ends with its longest output, and the answers of the others wait for it."""
    traffic = f"{load} prompt=uniform(50,500) output=uniform(20,200) requests=400"
    plan = f"tp=1 max_sequences={batch}"
    job = asked(model, traffic, engine=engine, cluster="dgx-a100", gpus=1, plan=plan)
    space = space_of(f"{plan} pools=no")

    estimate = next(screened(job, space, BOOK(job.cluster), requests_of(job.traffic, None)))
    simulated = predict_serving(job)

    latencies = simulated.latencies
    assert estimate.steady.tokens_per_s == pytest.approx(simulated.output_tokens_per_s.value, rel=0.05)
    assert estimate.steady.tpot_s == pytest.approx(latencies["tpot"]["mean"].value, rel=0.1)
    assert estimate.steady.ttft_s == pytest.approx(latencies["ttft"]["mean"].value, rel=0.2)


def _changed(load, **changes):
    return {name: getattr(load, name) for name in Load.__slots__} | changes


def test_a_search_finds_the_best_of_all():
    job = asked(slo="ttft_p90=300ms tpot_p90=12ms")
    space, objectives = space_of("max_sequences=16,256 max_tokens=8192"), ("cost", "tpot")
    both = DeploymentQuestion(jobs=(job,), space=space, objectives=objectives)
    whole = find_deployments(both, BOOK, simulated=ALL)
    for number, objective in enumerate(objectives):
        question = DeploymentQuestion(jobs=(job,), space=space, objectives=(objective,))
        found = find_deployments(question, BOOK, simulated=8)
        assert found.simulated < whole.simulated == whole.possible
        assert min(each.losses[0] for each in found.deployments) == pytest.approx(
            min(each.losses[number] for each in whole.deployments), rel=1e-3
        ), objective
        assert all(each.report.meets_slo for each in found.deployments)


def test_the_best_pools_are_found_and_beat_one_kind_of_instance_where_tokens_must_come_evenly():
    """Long prompts between tokens delay them, unless another pool computes them."""
    job = asked(traffic="rate=20/s prompt=3000 output=100 requests=150", slo="ttft_p90=2s tpot_p99=9ms")
    question = DeploymentQuestion(jobs=(job,), space=space_of("tp=1,2 pools=yes"), objectives=("cost",))
    found = find_deployments(question, BOOK, simulated=8)
    whole = find_deployments(question, BOOK, simulated=ALL)
    assert found.simulated < whole.simulated
    best = min(each.losses[0] for each in whole.deployments)
    assert min(each.losses[0] for each in found.deployments) == pytest.approx(best, rel=0.01)
    mixed = search_deployments(job, "tp=1,2 pools=no max_sequences=256 max_tokens=8192")
    kept = [each.losses[0] for each in mixed.deployments]
    assert not kept or min(kept) > best


def num_possible(job, words):
    """How many deployments of a space are possible; only one of them is simulated."""
    question = DeploymentQuestion(jobs=(job,), space=space_of(words), objectives=("cost",))
    return find_deployments(question, BOOK, simulated=1).possible


def test_an_engine_without_separate_pools_is_searched_without_them_and_refuses_a_plan_that_has_them():
    """How many deployments are possible does not depend on the number of requests."""
    few = {"traffic": "rate=30/s prompt=1000 output=150 requests=10", "gpus": 2}
    job = asked(engine={"base": "vllm", "separate_pools": False}, **few)
    found, without = (num_possible(job, f"tp=1 {pools}") for pools in ("", "pools=no"))
    with pytest.raises(SpecError, match=r"plan\.prefill is given") as refused:
        predict_serving(asked(plan="prefill.tp=1 decode.tp=1", engine="llama.cpp"))

    assert found == without < num_possible(asked(**few), "tp=1")
    assert [problem.fix for problem in refused.value.problems] == ["remove plan.prefill and plan.decode"]


def test_more_replicas_are_chosen_for_more_requests():
    """The cheapest deployment has no more devices than it needs, and more for a larger rate."""
    traffic = "rate={}/s prompt=1000 output=150 requests=400"
    sizes = [
        search_deployments(asked(traffic=traffic.format(rate)), "tp=1 max_sequences=256 max_tokens=8192")
        .deployments[0]
        .report.job.devices
        for rate in (2, 90)
    ]
    assert sizes[0] == 1 < sizes[1]


CHOSEN = (  # model, GPUs, traffic, limits
    ("llama-3.1-70b", 8, "rate=5/s prompt=1000 output=100 requests=50", None),
    (
        *("llama-3.1-8b", 4, "rate=20/s prompt=lognormal(1000,0.5) output=100 requests=50"),
        "ttft=500ms tpot=10ms",
    ),
    ("gpt-oss-120b", 8, "concurrency=16 prompt=1000 output=300 requests=48", "tpot_p90=9ms"),
    ("llama-3.1-8b", 2, "concurrency=1 prompt=200 output=50 requests=20", None),
)


@all_cases("model, gpus, traffic, slo", CHOSEN)
def test_a_job_without_a_plan_has_the_degrees_and_the_replicas_that_a_search_finds(
    model, gpus, traffic, slo
):
    options = {"cluster": "dgx-h100", "gpus": gpus, "traffic": traffic, "slo": slo}
    job = serving_job(model, **options)

    assert chosen_degrees(job.plan) == chosen_degrees(best_without_pools(job))
    note = next(text for text in job.assumptions if text.startswith("plan tp="))
    assert (f"uses {job.devices} of {gpus} devices" in note) == (job.devices < gpus)


def chosen_degrees(plan):
    """Return what `predict` chooses of a plan."""
    names = ("tensor_parallel", "data_parallel", "expert_parallel", "replicas")
    return [getattr(plan, name) for name in names]


def best_without_pools(job):
    """Return the best plan of a search that keeps the limits of the engine."""
    words = f"pools=no max_sequences={job.engine.max_sequences} max_tokens={job.engine.max_tokens}"
    return search_deployments(job, words).deployments[0].report.job.plan


def test_a_trace_has_the_deployment_that_a_search_finds(tmp_path):
    """The same requests ten times as fast need more replicas."""
    for gap_s in (1.0, 0.02):
        trace = tmp_path / f"{gap_s}.csv"
        lines = [f"{gap_s * number},{500 + number},{100 + number}" for number in range(300)]
        trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]), "utf-8")
        job = serving_job("llama-3.1-8b", gpus=4, traffic=f"trace={trace}")

        assert chosen_degrees(job.plan) == chosen_degrees(best_without_pools(job))
        assert (job.plan.replicas > 1) == (gap_s < 1)


def test_what_the_user_states_is_kept_and_too_much_traffic_gets_the_nearest():
    stated = serving_job("llama-3.1-8b", gpus=8, plan="replicas=2", traffic="rate=1/s prompt=500 output=50")
    assert stated.plan.replicas == 2
    crowded = serving_job("llama-3.1-70b", gpus=4, traffic="rate=500/s prompt=2000 output=50")
    assert crowded.devices == 4
    assert any(
        "does not serve this traffic" in text or "comes closest" in text for text in crowded.assumptions
    )
    words = f"pools=no max_sequences={crowded.engine.max_sequences} max_tokens={crowded.engine.max_tokens}"
    nearest = search_deployments(crowded, words).nearest[0].report.job.plan
    assert chosen_degrees(crowded.plan) == chosen_degrees(nearest)


def test_deployments_that_probably_miss_a_limit_come_last():
    """All of them meet both limits as predicted, but some in less than half of all cases."""
    slo = "ttft_p90=40ms tpot_p90=6.0ms"
    job = asked(traffic="rate=10/s prompt=1000 output=150 requests=300", slo=slo)
    found = search_deployments(job, "tp=1,2,4 max_sequences=256 max_tokens=8192 pools=no").deployments
    likely = [each.report.slo_chance >= 0.5 for each in found]

    assert likely == sorted(likely, reverse=True)
    assert likely[0]
    assert not likely[-1]
    assert all(each.report.meets_slo for each in found)
    assert not any(each.tied for each, one in zip(found, likely, strict=True) if not one)


def run(*words):
    return flopcast("search", "llama-3.1-8b", "--cluster", "dgx-h100", *words)


OF_SERVING = ("--engine", "vllm,sglang", "--traffic", "concurrency=8 prompt=500 output=50 requests=80")


def test_the_command_answers_with_text_tables_and_drawings(tmp_path):
    fixed = ("--gpus", "2", "--plan", "tp=1,2 max_sequences=64 max_tokens=8192")
    files = [tmp_path / name for name in ("all.csv", "front.svg", "front.html")]
    words = [f"--{'csv' if each.suffix == '.csv' else 'plot'}" for each in files]
    told = run(*OF_SERVING, *fixed, words[0], str(files[0]), words[1], str(files[1]))
    assert told.code == 0, told.out
    assert "answer    --engine" in told.out
    assert "best of each cluster and engine" in told.out
    with files[0].open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["engine"] for row in rows} == {"vllm", "sglang"}
    assert files[1].read_text(encoding="utf-8").startswith("<svg ")
    told = run(*OF_SERVING, *fixed, "--json", words[2], str(files[2]))
    data = json.loads(told.out)
    first = data["deployments"][0]
    assert first["plan"] in files[2].read_text(encoding="utf-8")
    assert data["possible"] == data["candidates"] == 6  # two engines: tp=1 once and twice, tp=2 once
    named = first["usd_per_million_output_tokens"]
    assert named["low"] <= named["value"] <= named["high"]


def test_each_cluster_and_engine_has_an_answer_or_a_reason():
    told = run(*OF_SERVING, "--gpus", "1", "--slo", "tpot_p99=1ms", "--plan", "tp=1 max_sequences=64")
    assert told.code == 2
    assert "no deployment meets all limits" in told.out
    assert "With weights" not in told.out  # weights of four bits take longer than 1 ms, too
    assert told.out.count("has a TPOT p99 of") >= 2


def test_deployments_that_miss_a_limit_are_counted_as_those_that_keep_up():
    traffic = "prompt=1000 output=100 requests=150"
    slow = ("--engine", "vllm", "--gpus", "1", "--plan", "tp=1 max_sequences=64 max_tokens=8192")
    late = run(*slow, "--traffic", f"rate=1/s {traffic}", "--slo", "tpot_p50=6ms")
    full = run(*slow, "--traffic", f"rate=200/s {traffic}", "--slo", "tpot_p50=6ms")
    data = json.loads(run(*slow, "--traffic", f"rate=1/s {traffic}", "--slo", "tpot_p50=6ms", "--json").out)
    (nearest,), fewer = data["nearest"], data["fewer_bits"]

    assert "1 keep up with the traffic, and 0 meet all limits" in late.out
    assert "no deployment meets all limits" in late.out
    assert "0 keep up with the traffic, and 0 meet all limits" in full.out
    assert "no deployment keeps up with the traffic;" in full.out
    assert nearest["keeps_up"]
    assert not nearest["meets_slo"]
    assert f"all limits are met with a probability of {nearest['slo_probability']:.0%}" in late.out
    assert fewer["meets_slo"]
    assert "With weights=fp8, tp=1 replicas=1" in late.out
    again = run(*slow[:-1], f"{fewer['plan']}", "--traffic", f"rate=1/s {traffic}", "--slo", "tpot_p50=6ms")
    assert again.code == 0


@all_cases(
    "words, said",
    [
        (("--deadline", "30 d"), "--slo limits latencies"),
        (("--gpus", "64,128"), "a deployment uses as many of these devices as it needs"),
        (("--objective", "step_time"), "one of cost, tokens_per_s_per_device"),
        (("--workers", "2"), "remove --workers"),
        (("--plan", "tp=2 pq=3"), "pq"),
        (("--engine", "vlm"), "vllm"),
        (("--engine", "tgi", "--plan", "pools=yes"), "write pools=no"),
    ],
)
def test_wrong_words_are_refused_with_the_fix(words, said):
    told = run("--traffic", "rate=1/s prompt=100 output=10", *words)
    assert told.code == 1, told.out
    assert said in told.out + told.err


def test_a_model_that_does_not_fit_says_so():
    with pytest.raises(SpecError, match="a deployment whose weights fit into device memory"):
        search_deployments(asked("llama-3.1-405b", gpus=1, traffic="rate=1/s prompt=100 output=10"))


def test_an_interrupt_keeps_what_was_simulated():
    def told(progress):
        if progress.simulated == 2:
            raise KeyboardInterrupt

    found = search_deployments(asked(), told=told)
    assert found.partial
    assert len(found.deployments) + len(found.nearest) == found.simulated == 2
