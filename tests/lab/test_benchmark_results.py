"""Results of serving benchmarks: what the formats state, and measured numbers beside predicted ones."""

import json
import re

import pytest
from command_line import flopcast

from flopcast.errors import SpecError
from flopcast.lab.benchmark_results.formats import read_result

VLLM = {
    "backend": "vllm",
    "num_prompts": 120,
    "completed": 100,
    "request_rate": "inf",
    "max_concurrency": 8,
    "total_input_tokens": 51200,
    "total_output_tokens": 6400,
    "request_throughput": 10.5,
    "output_throughput": 672.0,
    "mean_ttft_ms": 50.0,
    "median_ttft_ms": 45.0,
    "p99_ttft_ms": 90.0,
    "mean_tpot_ms": 7.5,
    "p95_tpot_ms": 8.0,
    "mean_itl_ms": 7.4,
    "p99_e2el_ms": 700.0,
    "ttfts": [],
}
GENAI = {
    "time_to_first_token": {"unit": "ms", "avg": 195.84, "p50": 175.05, "p99": 253.45},
    "inter_token_latency": {"unit": "ms", "avg": 35.2},
    "request_latency": {"unit": "s", "avg": 2.4},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 52.69},
    "request_throughput": {"unit": "requests/sec", "avg": 0.82},
    "input_sequence_length": {"unit": "tokens", "avg": 256.0},
    "output_sequence_length": {"unit": "tokens", "avg": 64.2},
    "request_count": {"avg": 10.0},
    "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 2}}},
}
TABLE = """Metric,avg,min,max,p99,p90
Time To First Token (ms),195.84,126.76,253.67,253.45,251.45
Request Latency (ms),"2,413.50",2358.58,2439.55,2439.45,2438.50

Metric,Value
Output Token Throughput (tokens/sec),"1,052.69"
Request Throughput (per sec),0.82
"""
MLPERF = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Completed samples per second    : 101.87
Completed tokens per second: 29715.28

Mean latency (ns)               : 36000000000
Mean First Token latency (ns)                : 963332124
99.00 percentile first token latency (ns)    : 1760966679
Mean Time to Output Token (ns)               : 126269215
99.90 percentile time to output token (ns)   : 227870358
target_qps : 104
"""


def numbers(raw, name="result"):
    found = read_result(raw.encode() if isinstance(raw, str) else json.dumps(raw).encode(), name)
    return {(each.metric, each.statistic): each.value for each in found.numbers}, found.traffic


def test_vllm_states_milliseconds_rates_and_its_traffic():
    found, traffic = numbers(VLLM)

    assert found == pytest.approx(
        {
            ("requests_per_s", "mean"): 10.5,
            ("output_tokens_per_s", "mean"): 672.0,
            ("ttft", "mean"): 0.05,
            ("ttft", "p50"): 0.045,
            ("ttft", "p99"): 0.09,
            ("tpot", "mean"): 0.0075,
            ("tpot", "p95"): 0.008,
            ("inter_token", "mean"): 0.0074,
            ("end_to_end", "p99"): 0.7,
        }
    )
    assert traffic == {"concurrency": 8, "requests": 120, "prompt_tokens": 512, "output_tokens": 64}
    assert numbers(VLLM | {"request_rate": 4.0, "burstiness": 0.5})[1] == {
        "rate_per_s": 4.0,
        "arrivals": "gamma",
        "burstiness": 0.5,
        "requests": 120,
        "prompt_tokens": 512,
        "output_tokens": 64,
    }


def test_genai_perf_states_units_and_a_mean_time_between_tokens():
    found, traffic = numbers(GENAI)

    assert found == pytest.approx(
        {
            ("ttft", "mean"): 0.19584,
            ("ttft", "p50"): 0.17505,
            ("ttft", "p99"): 0.25345,
            ("tpot", "mean"): 0.0352,
            ("end_to_end", "mean"): 2.4,
            ("output_tokens_per_s", "mean"): 52.69,
            ("requests_per_s", "mean"): 0.82,
        }
    )
    assert traffic == {"prompt_tokens": 256, "output_tokens": 64, "requests": 10, "concurrency": 2}


def test_a_table_of_genai_perf_says_the_same_as_its_json():
    found, _ = numbers(TABLE)

    assert found == pytest.approx(
        {
            ("ttft", "mean"): 0.19584,
            ("ttft", "p99"): 0.25345,
            ("ttft", "p90"): 0.25145,
            ("end_to_end", "mean"): 2.4135,
            ("end_to_end", "p99"): 2.43945,
            ("end_to_end", "p90"): 2.4385,
            ("output_tokens_per_s", "mean"): 1052.69,
            ("requests_per_s", "mean"): 0.82,
        }
    )


def test_mlperf_states_nanoseconds_and_a_target_rate():
    found, traffic = numbers(MLPERF)

    assert found == pytest.approx(
        {
            ("output_tokens_per_s", "mean"): 29715.28,
            ("requests_per_s", "mean"): 101.87,
            ("ttft", "mean"): 0.963332124,
            ("ttft", "p99"): 1.760966679,
            ("tpot", "mean"): 0.126269215,
            ("end_to_end", "mean"): 36.0,
        }
    )
    assert traffic == {"rate_per_s": 104.0}


def test_a_file_of_no_benchmark_is_refused():
    for raw in ("hello", "{}", '{"mean_ttft_ms": 3}', "a,b\n1,2\n"):
        with pytest.raises(SpecError, match="a serving benchmark that flopcast knows"):
            read_result(raw.encode(), "x.json")


WORDS = ("predict", "llama-3.1-8b", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "1", "--json")


def test_a_result_that_is_the_prediction_has_the_ratio_one(tmp_path):
    """Written from the prediction itself, every measured number equals the predicted one."""
    log = tmp_path / "result.json"
    log.write_text(json.dumps(VLLM))
    first = json.loads(flopcast(*WORDS, "--log", log).out)["measured"]["numbers"]
    words = {
        ("ttft", "mean"): "mean_ttft_ms",
        ("ttft", "p50"): "median_ttft_ms",
        ("ttft", "p99"): "p99_ttft_ms",
        ("tpot", "mean"): "mean_tpot_ms",
        ("tpot", "p95"): "p95_tpot_ms",
        ("inter_token", "mean"): "mean_itl_ms",
        ("end_to_end", "p99"): "p99_e2el_ms",
    }
    said = {
        words[key]: 1e3 * row["predicted"]
        for row in first
        if (key := (row["metric"], row["statistic"])) in words
    }
    rates = {row["metric"]: row["predicted"] for row in first if row["metric"].endswith("_per_s")}
    said |= {
        "request_throughput": rates["requests_per_s"],
        "output_throughput": rates["output_tokens_per_s"],
    }

    log.write_text(json.dumps(VLLM | said))
    again = json.loads(flopcast(*WORDS, "--log", log).out)["measured"]["numbers"]

    assert [row["ratio"] for row in again] == pytest.approx([1.0] * len(first))
    assert all(row["inside"] for row in again)


def test_a_traffic_that_the_user_states_wins_over_that_of_the_file(tmp_path):
    log = tmp_path / "result.json"
    log.write_text(json.dumps(VLLM))
    words = WORDS[:-1]

    taken = flopcast(*words, "--log", log)
    own = flopcast(*words, "--log", log, "--traffic", "concurrency=2 prompt=100 output=20 requests=20")

    assert "traffic   concurrency=8 prompt=512 output=64 requests=120" in taken.out
    assert "note      the file already contains the traffic" in taken.out
    assert "traffic   concurrency=2 prompt=100 output=20 requests=20" in own.out
    assert "that of the file" not in own.out


def test_the_model_of_the_file_is_predicted_if_the_user_states_none(tmp_path):
    log = tmp_path / "result.json"
    log.write_text(json.dumps(VLLM | {"model_id": "meta-llama/Llama-3.1-8B-Instruct"}))
    machine = ("predict", "--engine", "vllm", "--cluster", "dgx-h100", "--gpus", "1", "--log", log)

    taken, stated, other = (
        flopcast(*machine, *words) for words in ((), ("--model", "llama-3.1-8b"), ("qwen2.5-7b", "--json"))
    )

    note = "note      the file names the model meta-llama/Llama-3.1-8B-Instruct\n"
    assert note in taken.out
    assert taken.out.replace(note, "") == stated.out
    assert "the file names the model" not in other.out
    assert json.loads(other.out)["measured"]


def test_lengths_of_the_file_hold_if_the_user_states_only_the_load(tmp_path):
    log = tmp_path / "result.json"
    log.write_text(json.dumps(VLLM))

    made = flopcast(*WORDS[:-1], "--log", log, "--traffic", "concurrency=2 requests=20")

    assert "traffic   concurrency=2 prompt=512 output=64 requests=20" in made.out
    assert "note      the file already contains the lengths of requests" in made.out


def test_the_release_of_a_server_is_a_note_and_several_results_are_told():
    dated = VLLM | {"date": "20241005-142501"}
    cases = ((dated, "2024-10"), (dated | {"server_info": {"version": "0.4.6"}}, "0.4.6"))

    for values, release in cases:
        notes = read_result(json.dumps(values).encode(), "a").notes
        assert [note for note in notes if f"add engine.release={release} to predict" in note], release
        assert sum("engine.release" in note for note in notes) == 1
    with pytest.raises(SpecError, match="2 results"):
        read_result(f"{json.dumps(VLLM)}\n{json.dumps(VLLM)}\n".encode(), "runs.jsonl")


def test_commands_that_read_no_result_lead_to_the_option_that_does(tmp_path):
    for numbers_of in (VLLM, GENAI):
        file = tmp_path / "result.json"
        file.write_text(json.dumps(numbers_of), encoding="utf-8")
        for command in (("predict",), ("validate", "--runs")):
            told = flopcast(*command, str(file)).err
            assert re.search(r"--model NAME --engine vllm --log \S*result.json\n", told)
