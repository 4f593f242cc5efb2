"""Serving as a user asks for it: the command, its errors, and what follows from a closed form."""

import json
import re

import pytest
from all_cases import all_cases
from command_line import flopcast
from serving.test_request_traffic import traffic_of

from flopcast import predict_serving, serving_job
from flopcast.library import catalog
from flopcast.serving.memory import serving_memory
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.traffic import Traffic

ARGUMENTS = ["predict", "llama-3.1-70b", "--engine", "vllm", "--cluster", "dgx-h200", "--gpus", "8"]
LONG = "concurrency=4 prompt=4000 output=20 requests=32"
TRAFFIC = ["--traffic", "concurrency=16 prompt=1024 output=256 requests=160"]


def as_json(*arguments):
    return json.loads(flopcast(*arguments, "--json").out)


def test_the_answer_names_latencies_rates_memory_and_what_was_assumed():
    found = flopcast(
        *ARGUMENTS, "--plan", "tp=8 weights=fp8", *TRAFFIC, "--slo", "ttft_p99=2s tpot_p99=50ms"
    )

    assert found.code == 0
    for word in ("TTFT", "TPOT", "goodput", "KV cache", "cost", "what the uncertainty depends on", "90 %"):
        assert word in found.out


def test_few_requests_of_a_closed_loop_have_the_latencies_of_many():
    for load in ("concurrency=1 prompt=1024 output=64", "concurrency=256 prompt=1000 output=64"):
        few, many = (
            as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", "--traffic", load + requests)["latencies_s"]
            for requests in ("", " requests=12000")
        )

        for latency in ("ttft", "tpot", "end_to_end"):
            expected = pytest.approx(many[latency]["mean"]["value"], rel=0.02)
            assert few[latency]["mean"]["value"] == expected, (load, latency)


def test_a_closed_loop_has_enough_requests_for_its_concurrency():
    numbers = {
        "concurrency=16 prompt=9 output=9": 2_000,
        "concurrency=900 prompt=9 output=9": 16 * 900,
        "rate=4/s prompt=9 output=9": 2_000,
        "concurrency=900 prompt=9 output=9 requests=7": 7,
    }

    assert {load: traffic_of(load).num_requests for load in numbers} == numbers


def test_a_closed_loop_keeps_littles_law():
    found = as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", *TRAFFIC)
    latency = found["latencies_s"]["end_to_end"]["mean"]["value"]

    assert found["requests_per_s"]["value"] * latency == pytest.approx(16, rel=0.05)


def test_requests_of_equal_lengths_do_not_run_in_lockstep_unless_a_benchmark_starts_them_together():
    """The clients of a loop that has run for long are independent of each other."""
    job = serving_job(
        "llama-3.1-70b", cluster="dgx-h100", gpus=2, plan="tp=2",
        traffic="concurrency=4 prompt=1000 output=100",
    )  # fmt: skip
    steady, benchmark = (predict_serving(job, leave_out_share=share) for share in (0.1, 0.0))

    assert steady.limited_by == benchmark.limited_by == "concurrency"
    times = {name: steady.latencies["inter_token"][name].value for name in ("p50", "mean", "p99")}
    assert times["p50"] < times["mean"] < times["p99"]  # prompts of others delay single tokens
    waits = [report.latencies["ttft"]["p50"].value for report in (steady, benchmark)]
    assert waits[1] > 2 * waits[0]  # four prompts that begin together


def test_idle_devices_change_nothing():
    """A part of a node is as fast as these devices of a whole one, and only engines with requests count."""
    plan, traffic = "tp=4 replicas=1", "rate=4/s prompt=500 output=50 requests=200"
    few, many = (
        predict_serving(
            serving_job("llama-3.1-70b", cluster="dgx-h100", gpus=gpus, plan=plan, traffic=traffic)
        )
        for gpus in (4, 8)
    )
    assert {name: found["p99"] for name, found in few.latencies.items()} == {
        name: found["p99"] for name, found in many.latencies.items()
    }
    single = "concurrency=1 prompt=500 output=50 requests=20"
    rates = [
        predict_serving(
            serving_job(
                "llama-3.1-70b",
                cluster="dgx-h100",
                gpus=8,
                plan=f"tp=2 replicas={replicas}",
                traffic=single,
            )
        ).requests_per_s.value
        for replicas in (1, 4)
    ]
    assert rates[0] == rates[1]


def test_the_probability_of_a_limit_is_that_of_the_interval_of_its_latency():
    """A limit at the median is met with 50 %, and a limit at the upper end of the interval with 95 %."""

    def report(slo):
        return predict_serving(
            serving_job(
                "llama-3.1-8b",
                cluster="dgx-h100",
                gpus=1,
                plan="tp=1",
                slo=slo,
                traffic="rate=4/s prompt=500 output=50 requests=400",
            )
        )

    latencies = report("ttft=1s tpot=1s").latencies
    for metric in ("ttft", "tpot"):
        p99 = latencies[metric]["p99"]
        for limit_s, probability in ((p99.low, 0.05), (p99.value, 0.5), (p99.high, 0.95)):
            found = report(f"{metric}_p99={limit_s:.6f}s")
            assert found.slo_chance == pytest.approx(probability, abs=0.02), (metric, limit_s)
    ttft, tpot = latencies["ttft"]["p99"].value, latencies["tpot"]["p99"].value
    both = report(f"ttft_p99={ttft:.6f}s tpot_p99={tpot:.6f}s")
    assert both.chances.every <= min(both.chances.each)
    assert report(None).slo_chance is None


def test_shares_add_up_and_intervals_hold_their_values():
    found = as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", *TRAFFIC)

    assert sum(found["time_shares"].values()) == pytest.approx(1.0)
    for metric in found["latencies_s"].values():
        for each in metric.values():
            assert each["low"] <= each["value"] <= each["high"]


def test_hits_of_the_prefix_cache_and_preemptions_are_told_where_there_are_any():
    """400 requests of 3,000 tokens need more than the cache holds."""
    crowded = "concurrency=400 prompt=1024 output=2000 requests=400 prefix_cache=0.25"
    one = ("predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "1")

    few, many = (flopcast(*one, "--traffic", each).out for each in (TRAFFIC[1], crowded))
    data = as_json(*one, "--traffic", crowded)

    assert "prefix cache" not in few
    assert "preempted" not in few
    assert "25.0% of the prompt tokens are found in the prefix cache" in many
    assert f"{data['preempted_share']:.1%} of the requests are preempted" in many
    assert data["prefix_hit_share"] == pytest.approx(0.25)
    assert data["cache_share"] <= data["peak_cache_share"] <= 1


def test_prompts_that_were_sent_before_take_hardly_any_time():
    """If all prompts are in the prefix cache, each prefill computes one token of 4,000."""
    first, half, again = (
        as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", "--traffic", f"{LONG} repeated={number}")
        for number in (0, 16, 32)
    )
    ttft = [found["latencies_s"]["ttft"]["mean"]["value"] for found in (first, half, again)]

    assert ttft[2] < ttft[1] < ttft[0]
    assert ttft[2] < 0.3 * ttft[0]
    assert again["prefix_hit_share"] == pytest.approx(3999 / 4000)


def test_cached_prompts_need_an_engine_with_a_prefix_cache():
    for words in ("repeated=16", "prefix_cache=0.5"):
        traffic = ("--traffic", f"{LONG} {words}")
        found = flopcast(*ARGUMENTS, "--plan", "tp=8 weights=fp8", *traffic, "engine.prefix_cache=false")

        assert found.code == 1
        assert "engine.prefix_cache is false" in found.err


def test_replicas_share_the_traffic_and_add_up():
    two = as_json(*ARGUMENTS, "--plan", "tp=4 weights=fp8", *TRAFFIC)
    one = as_json(
        *ARGUMENTS, "--plan", "tp=4 weights=fp8 replicas=1", "--traffic",
        "concurrency=8 prompt=1024 output=256 requests=80",
    )  # fmt: skip

    assert two["replicas"] == 2
    rates = [found["output_tokens_per_s"]["value"] for found in (two, one)]
    assert rates[0] == pytest.approx(2 * rates[1], rel=1e-9)


def test_the_cache_of_a_token_is_what_its_closed_form_says():
    dense, latent = (
        serving_memory(
            ServingJob(
                model=catalog.model(name),
                cluster=catalog.cluster("dgx-h200", 1),
                engine=catalog.engine("vllm"),
                plan=Deployment(tp=8, weights="fp8"),
                traffic=Traffic(concurrency=1, prompt=1, output=1),
            )
        )
        for name in ("llama-3.1-70b", "deepseek-v3")
    )

    assert dense.token_bytes == 80 * 2 * (8 / 8) * 128 * 2  # a head of keys and one of values a rank
    assert latent.token_bytes == 61 * (512 + 64) * 2  # every rank keeps the whole latent


def test_a_file_describes_a_serving_job(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text(
        "model: llama-3.1-70b\ncluster: dgx-h200:1\nengine: vllm\nplan: {tp: 8, weights: fp8}\n"
        "traffic: {concurrency: 16, prompt: 1024, output: 256, requests: 160}\n",
        encoding="utf-8",
    )

    from_file, from_words = (
        as_json("predict", str(path)),
        as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", *TRAFFIC),
    )

    assert from_file["latencies_s"] == from_words["latencies_s"]


FAULTS = {  # what is asked → words of the error
    ("--plan", "tp=3"): ("plan.tensor_parallel", "heads"),
    ("--plan", "tp=8 cache=fp4"): ("plan.cache",),
    ("--plan", "tp=8 weights=nvfp4"): ("no fp4 tensor cores", "plan.weights"),
    ("--plan", "tp=8 ep=8"): ("no experts",),
    ("--plan", "tp=8 replicas=2"): ("plan.replicas", "2 replicas of 8 devices"),
    ("--plan", "tp=1"): ("weights (", "plan.tensor_parallel to 2"),
    ("--traffic", "rate=4/s prompt=200000 output=300"): ("131072", "context"),
    ("--traffic", "rate=-4/s prompt=200 output=300"): ("rate",),
    ("--engine", "vlm"): ("did you mean vllm",),
    ("--lora", "8"): ("training", "--lora"),
    ("--log", "train.log"): ("train.log", "check the path"),
}


def test_what_cannot_be_predicted_is_an_error_with_its_fix():
    for (option, value), words in FAULTS.items():
        engine = {"--engine", "vllm"} if option == "--engine" else set()
        arguments = [*(word for word in ARGUMENTS if word not in engine), option, value]
        arguments += [] if option == "--traffic" else TRAFFIC
        found = flopcast(*arguments)

        assert found.code == 1, (option, value, found.err)
        for word in (*words, "because", "fix"):
            assert word in found.err, (option, value, found.err)


def test_more_requests_than_can_be_served_are_told_with_the_rate_that_can():
    traffic = "rate=200/s prompt=2000 output=300 requests=2000"
    found = as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", "--traffic", traffic)

    assert found["saturated"]
    assert 1 < found["saturation_requests_per_s"] < 200


def test_the_largest_stable_rate_does_not_depend_on_the_number_of_requests():
    loads = [f"rate=200/s prompt=1000 output=200 requests={number}" for number in (100, 500, 1000)]
    jobs = [serving_job("llama-3.1-8b", cluster="dgx-h100", gpus=1, traffic=load) for load in loads]
    reports = [predict_serving(job) for job in jobs]

    for report in reports:
        assert report.saturation_per_s == reports[0].saturation_per_s
        assert report.requests_per_s.value * 200 == pytest.approx(report.output_tokens_per_s.value)


def test_a_queue_that_grows_slowly_is_noticed():
    """Three devices serve about 57 requests of these in a second: in 100 s, the queue hardly grows."""
    lengths = "prompt=lognormal(1000,0.5) output=lognormal(250,0.5)"
    for replicas, keeps_up in ((3, False), (4, True)):
        found = predict_serving(
            serving_job(
                "llama-3.1-8b",
                cluster="dgx-h100",
                gpus=8,
                plan=f"tp=1 replicas={replicas}",
                traffic=f"rate=60/s {lengths}",
            )
        )
        assert (found.saturation_per_s is None) == keeps_up, replicas


def test_latencies_grow_with_the_load_and_the_rate_follows_it():
    rates, lengths = (1, 2, 4), "prompt=1000 output=200 requests=1000"
    found = [
        as_json(*ARGUMENTS, "--plan", "tp=8 weights=fp8", "--traffic", f"rate={rate}/s {lengths}")
        for rate in rates
    ]
    tpot = [each["latencies_s"]["tpot"]["mean"]["value"] for each in found]

    assert tpot == sorted(tpot)
    for rate, each in zip(rates, found, strict=True):
        assert each["requests_per_s"]["value"] == pytest.approx(rate, rel=0.1)


def test_a_trace_is_played_request_by_request(tmp_path):
    trace = tmp_path / "trace.csv"
    lines = [f"{second},{100 + second},{10 + second}" for second in range(20)]
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]), encoding="utf-8")
    words = (*ARGUMENTS, "--traffic", f"trace={trace}", "--plan")

    found = as_json(*words, "tp=8 weights=fp8 replicas=1")
    assert found["requests_per_s"]["value"] == pytest.approx(1, rel=0.2)


def test_replicas_share_the_conversations_of_a_trace(tmp_path):
    """Two replicas serve a trace in which every request stands twice as one serves it once."""
    lines = [f"{second},{100 + second},{10 + second}" for second in range(30)]
    header, found = "arrival_s,prompt_tokens,output_tokens", []
    for times in (1, 2):
        trace = tmp_path / f"trace{times}.csv"
        trace.write_text("\n".join([header, *(line for line in lines for _ in range(times))]), "utf-8")
        plan = f"tp=4 weights=fp8 replicas={times}"
        found.append(as_json(*ARGUMENTS, "--traffic", f"trace={trace}", "--plan", plan))

    one, two = found
    assert two["latencies_s"] == one["latencies_s"]
    assert two["requests_per_s"]["value"] == pytest.approx(2 * one["requests_per_s"]["value"])


SHORT = {"tensor_parallel": "tp", "expert_parallel": "ep", "pipeline_parallel": "pp"}
EDIT = re.compile(r"set plan\.(\w+) to (\w+)")
GPUS = re.compile(r"use --gpus (\d+)")


@all_cases(
    "model, gpus, plan, traffic",
    [
        ("llama-3.1-70b", 1, "", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-70b", 8, "tp=1", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-70b", 8, "tp=3", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-70b", 8, "tp=2", "rate=1/s prompt=100000 output=100"),
        ("llama-3.1-70b", 8, "tp=16", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-70b", 8, "tp=4 replicas=4", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-70b", 8, "tp=8 ep=8", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-405b", 8, "", "rate=1/s prompt=1000 output=100"),
        ("deepseek-v3", 4, "tp=4", "rate=1/s prompt=1000 output=100"),
        ("llama-3.1-8b", 1, "weights=nvfp4", "rate=1/s prompt=1000 output=100"),
    ],
)
def test_the_fix_of_an_error_works_when_it_is_applied(model, gpus, plan, traffic):
    """At most three errors in a row, each mended as it says."""
    fixed = dict(word.split("=") for word in plan.split())
    for _ in range(4):
        words = " ".join(f"{name}={value}" for name, value in fixed.items())
        options = ["--plan", words] if words else []
        told = flopcast(
            "predict", model, "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", str(gpus), *options,
            "--traffic", f"{traffic} requests=50",
        )  # fmt: skip
        if told.code == 0:
            return
        edits, devices = EDIT.findall(told.err), GPUS.findall(told.err)
        assert edits or devices, told.err
        fixed |= {SHORT.get(name, name): value for name, value in edits}
        gpus = int(devices[0]) if devices else gpus
    raise AssertionError(told.err)


def test_python_needs_no_more_than_a_model():
    made = serving_job("llama-3.1-8b", plan="tp=1")
    assert (made.engine.name, made.traffic.concurrency) == ("vllm", 16)
    assert "engine vllm" in made.assumptions


def test_the_cache_has_the_format_that_checkpoints_for_the_engine_state():
    """NVIDIA's checkpoints in FP8 and NVFP4 state a cache in FP8; those of authors state none."""
    expected = {
        ("tensorrt-llm", "weights=fp8"): "fp8",
        ("tensorrt-llm", "weights=nvfp4"): "fp8",
        ("tensorrt-llm", "weights=fp8 cache=bf16"): "bf16",
        ("tensorrt-llm", "weights=bf16"): "bf16",
        ("vllm", "weights=fp8"): "bf16",
    }

    found = {
        (engine, plan): serving_job(
            "llama-3.1-70b", engine=engine, cluster="dgx-b200", plan=f"tp=8 {plan}"
        ).plan.cache
        for engine, plan in expected
    }

    assert found == expected


def test_passes_of_vllm_are_smaller_on_small_devices_and_on_a100():
    """As EngineArgs.get_batch_defaults of vLLM chooses them, unless the user states them."""

    def limits(cluster, **stated):
        job = serving_job("llama-3-8b", cluster=cluster, gpus=1, **stated)
        return job.engine.max_sequences, job.engine.max_tokens

    small, large = (256, 2048), (1024, 8192)
    found = {name: limits(name) for name in ("l40s-8", "dgx-a100", "dgx-h100", "dgx-b200")}
    assert found == {"l40s-8": small, "dgx-a100": small, "dgx-h100": large, "dgx-b200": large}
    assert limits("dgx-a100", changes=("engine.max_sequences=512",)) == (512, 8192)
    assert limits("dgx-a100", engine="sglang") == limits("dgx-h100", engine="sglang")
