"""Serving through the other commands: memory, compare, explain, the page and the trace."""

import json
import re
from itertools import pairwise

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast import SpecError, compare, job, predict_serving, serving_job
from flopcast.library.curves import load_serving_book
from flopcast.serving import load_curve as curves
from flopcast.serving.explain import explain_serving
from flopcast.serving.load_curve import load_curve
from flopcast.serving.versus import serving_versus

JOB = ("llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "2")
TRAFFIC = "rate=4/s prompt=1000 output=100 requests=300"
EVEN = f"{TRAFFIC} arrivals=constant"


def report(**changes):
    usual = {"engine": "vllm", "cluster": "dgx-h100", "gpus": 2, "plan": "tp=1", "traffic": TRAFFIC}
    return predict_serving(serving_job("llama-3.1-8b", **(usual | changes)))


def test_memory_adds_up_to_the_device_and_says_how_many_tokens_fit():
    found = json.loads(flopcast("memory", *JOB, "--plan", "tp=1", "--json").out)["instances"][0]
    parts = ("weight_bytes", "activation_bytes", "reserved_bytes", "cache_bytes")
    assert sum(found[name] for name in parts) == pytest.approx(found["usable_bytes"])
    # Llama 3.1 8B: 8.03e9 parameters in 16 bits; 32 layers x 2 x 8 heads x 128 x 2 bytes for a token
    assert found["weight_bytes"] == pytest.approx(2 * 8.03e9, rel=0.01)
    assert found["token_bytes"] == 131_072
    assert found["cache_tokens"] == int(found["cache_bytes"] / 131_072)
    longer = (*JOB, "--plan", "tp=1", "--traffic", "rate=1/s prompt=1000 output=1000")
    found = json.loads(flopcast("memory", *longer, "--json").out)["instances"][0]
    told = flopcast("memory", *longer)
    assert f"{found['cache_tokens'] // 2000:,} concurrent requests of 2,000 tokens" in told.out
    told = flopcast("memory", "llama-3.1-70b", *JOB[1:], "--plan", "tp=1")
    assert told.code == 0
    assert "fits      no: the weights and the runtime need" in told.out


def test_every_latency_is_printed_at_every_percentile_of_the_objectives():
    for slo, percentiles in (("ttft_p99.9=2s", "p99 p99.9"), ("ttft_p95=2s tpot_p97=50ms", "p95 p97 p99")):
        told = flopcast("predict", *JOB, "--plan", "tp=1", "--traffic", TRAFFIC, "--slo", slo)
        header, *rows = told.out[told.out.index("\nlatency ") :].split("\n\n")[0].strip().split("\n")
        assert told.code == 0
        columns = re.split(r"  +", header)
        assert columns == ["latency", "mean", "p50", "p90", *percentiles.split(), "90 % interval of p99"]
        assert all(len(re.split(r"  +", row.strip())) == len(columns) for row in rows)


def test_equal_jobs_are_equal_and_a_cause_that_both_share_cancels():
    one = report()
    same = serving_versus(one, one)
    assert all((ratio.value, ratio.low, ratio.high) == (1.0, 1.0, 1.0) for ratio in same.ratios.values())
    other = report(plan="tp=2")
    compared = compare(one, other)
    ratio = compared.ratios["tpot"]
    assert ratio.value == pytest.approx(
        other.latencies["tpot"]["mean"].value / one.latencies["tpot"]["mean"].value
    )
    alone = one.latencies["tpot"]["mean"]
    assert ratio.high / ratio.low < (alone.high / alone.low) ** 2
    back = compare(other, one).ratios["tpot"]
    assert back.value * ratio.value == pytest.approx(1.0)
    assert back.low * ratio.high == pytest.approx(1.0)


def test_compare_prints_both_sides_and_whether_the_order_is_settled():
    told = flopcast("compare", *JOB, "--plan", "tp=1 replicas=1", "--traffic", EVEN, "plan.replicas=2")
    assert told.code == 0, told.err
    assert "A  llama-3.1-8b: vllm tp=1 replicas=1 weights=bf16" in told.out
    assert "the cost of output tokens of B is" in told.out
    data = json.loads(
        flopcast(
            "compare", *JOB, "--plan", "tp=1 replicas=1", "--traffic", EVEN, "plan.replicas=2", "--json"
        ).out
    )
    assert data["ratios"]["usd_per_million_output_tokens_ratio"]["value"] == pytest.approx(2.0, rel=0.02)


def test_training_and_serving_are_not_compared():
    trained = job(model="llama-3.1-8b", cluster="dgx-h100", gpus=8)
    with pytest.raises(SpecError, match="no metrics in common"):
        compare(trained, report())


def test_explanations_add_up_and_name_what_is_there():
    made = report()
    book = load_serving_book(made.job.cluster)
    whole = explain_serving(made, book, "iteration")
    assert sum(part.amount for part in whole.parts) == pytest.approx(whole.amount)
    for name in ("mlp", "decode_attention"):
        component = explain_serving(made, book, name)
        assert sum(part.amount for part in component.parts) == pytest.approx(component.amount, rel=1e-6)
        first = explain_serving(made, book, component.parts[0].name)
        assert first.amount == pytest.approx(component.parts[0].amount)
    ttft = explain_serving(made, book, "ttft")
    assert sum(part.amount for part in ttft.parts) == pytest.approx(ttft.amount)
    memory = explain_serving(made, book, "memory")
    assert sum(part.amount for part in memory.parts) == pytest.approx(memory.amount)
    cost = explain_serving(made, book, "cost")
    usd_per_s = made.job.cluster.price.device_usd_per_hour * made.job.devices / 3600
    assert cost.amount == pytest.approx(1e6 * usd_per_s / made.output_tokens_per_s.value)
    limited = report(slo="tpot_p99=50ms")
    kept_share = limited.summary.objectives[0].kept_share
    goodput = explain_serving(limited, book, "goodput")
    assert goodput.amount == pytest.approx(kept_share * limited.requests_per_s.value)
    with pytest.raises(SpecError, match="add --slo"):
        explain_serving(made, book, "goodput")
    with pytest.raises(SpecError, match=r"did you mean tpot\?"):
        explain_serving(made, book, "tpott")


@all_cases("traffic", [TRAFFIC, "concurrency=8 prompt=500 output=50 requests=64"])
def test_a_heavier_load_serves_more_and_waits_longer(traffic, monkeypatch):
    monkeypatch.setattr(curves, "REQUESTS", 500)
    made = report(traffic=traffic, gpus=1)
    loads = load_curve(made, load_serving_book(made.job.cluster))
    rates = [each.output_tokens_per_s.value for each in loads]
    tpots = [each.latencies["tpot"]["mean"].value for each in loads]
    assert len(loads) >= 5
    assert all(later > 0.99 * sooner for sooner, later in pairwise(rates))
    assert all(later > 0.98 * sooner for sooner, later in pairwise(tpots))


def test_the_page_and_the_trace_show_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "REQUESTS", 100)  # what a load serves is the claim of the test above
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    told = flopcast(
        "predict",
        *JOB,
        "--plan",
        "tp=1",
        "--traffic",
        TRAFFIC,
        "--report",
        str(page),
        "--trace",
        str(trace),
    )
    assert told.code == 0, told.err
    text = page.read_text(encoding="utf-8")
    for name in ("load-drawing", "percentile-drawing", "cache-drawing", "requests-drawing"):
        assert f'<figure id="{name}">' in text
    assert "NaN" not in text
    assert not re.search(r'(src|href)="http', text)
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    slices = [each for each in events if each["ph"] == "X"]
    ends = [each["ts"] + each["dur"] for each in slices]
    starts = [each["ts"] for each in slices[1:]]
    assert all(end <= start + 0.01 for end, start in zip(ends, starts, strict=False))
    assert max(each["args"]["running"] for each in events if each["name"] == "requests") > 0


def test_files_of_training_are_refused(tmp_path):
    told = flopcast("predict", *JOB, "--trace", str(tmp_path / "trace.pftrace"))
    assert told.code == 1
    assert "write trace.json" in told.err
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 2.0\n", encoding="utf-8")
    told = flopcast("predict", *JOB, "--log", log)
    assert "the file is not the result of a serving benchmark that flopcast knows" in told.err


def test_a_number_that_serving_does_not_have_is_one_error_with_the_names_of_serving():
    for word, meant in (("tpt", "tpot"), ("step", "tpot")):
        told = flopcast("explain", word, *JOB, "--plan", "tp=1").err
        assert told.count("allowed:") == 1
        assert f"did you mean {meant}?" in told
        assert "allowed: ttft, tpot, iteration, memory" in told
