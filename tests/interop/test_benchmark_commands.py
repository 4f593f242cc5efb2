"""Commands of serving benchmarks: published ones as traffic, and flags that are wrong or unknown."""

import pytest
from all_cases import all_cases
from command_line import flopcast

from flopcast.errors import SpecError
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_request import resolve_serving
from flopcast.requests.sources import source_of

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SGLANG = "python3 -m sglang.bench_serving --backend sglang"
PUBLISHED = (  # what a command sends, from the documentation of the program or the script of a benchmark
    (  # README of InferenceMAX, with a ratio of 1
        "python3 bench_serving/benchmark_serving.py --model $M --backend vllm --base-url http://0.0.0.0:8888"
        " --dataset-name random --random-input-len 1024 --random-output-len 8192 --random-range-ratio 1"
        " --num-prompts $(( 32 * 10 )) --max-concurrency 32 --request-rate inf --ignore-eos --save-result"
        " --percentile-metrics 'ttft,tpot,itl,e2el'",
        {"concurrency": 32, "prompt_tokens": 1024, "output_tokens": 8192, "requests": 320},
    ),
    (  # docs.vllm.ai, Benchmark CLI: a constant rate with a burstiness
        "vllm bench serve --model $M --dataset-name random --random-input-len 512"
        " --random-output-len 64 --random-range-ratio 0.5 --random-prefix-len 100 --num-prompts 10"
        " --request-rate 5 --burstiness 2",
        {
            "rate_per_s": 5.0,
            "arrivals": "gamma",
            "burstiness": 2.0,
            "prompt_tokens": "uniform(356, 868)",
            "output_tokens": "uniform(32, 96)",
            "shared_prefix_tokens": 100,
            "requests": 10,
        },
    ),
    (  # vLLM's .buildkite/nightly-benchmarks: sonnet
        "python3 benchmark_serving.py --model $M --dataset-name sonnet --dataset-path sonnet_4x.txt"
        " --sonnet-input-len 550 --sonnet-output-len 150 --sonnet-prefix-len 200 --num-prompts 500"
        " --request-rate 4 --endpoint /v1/completions",
        {
            "rate_per_s": 4.0,
            "prompt_tokens": 550,
            "output_tokens": 150,
            "shared_prefix_tokens": 200,
            "requests": 500,
        },
    ),
    (  # docs.sglang.io, Bench Serving Guide: lengths vary from 1 token by default
        f"{SGLANG} --model $M --dataset-name random --random-input-len 1024 --random-output-len 1024"
        " --num-prompts 2000 --max-concurrency 512 --seed 42",
        {
            "concurrency": 512,
            "prompt_tokens": "uniform(1, 1024)",
            "output_tokens": "uniform(1, 1024)",
            "requests": 2000,
            "seed": 42,
        },
    ),
    (  # cookbook of SGLang, high concurrency; short names of the flags
        f"{SGLANG} --model $M --dataset-name random --random-input 8000 --random-output 1000"
        " --num-prompt 80 --random-range-ratio 1.0 --request-rate inf",
        {"concurrency": 80, "prompt_tokens": 8000, "output_tokens": 1000, "requests": 80},
    ),
    (  # README of GenAI-Perf
        "genai-perf profile -m $M --tokenizer $M --service-kind openai --endpoint-type chat --streaming"
        " --synthetic-input-tokens-mean 200 --synthetic-input-tokens-stddev 0 --output-tokens-mean 100"
        " --output-tokens-stddev 0 --request-rate 2 --num-prompts 50 --random-seed 123 --url localhost:8000"
        " --extra-inputs min_tokens:100 ignore_eos:true -- -v --max-threads=256",
        {
            "rate_per_s": 2.0,
            "arrivals": "constant",
            "prompt_tokens": 200,
            "output_tokens": 100,
            "requests": 50,
            "seed": 123,
        },
    ),
    (  # docs of AIPerf, comprehensive benchmarking
        "aiperf profile --model $M --url localhost:8000 --endpoint-type chat --streaming --isl 1000"
        " --osl 500 --concurrency 10 --request-count 100 --conversation-turn-mean 3"
        " --conversation-turn-delay-mean 500",
        {
            "concurrency": 10,
            "prompt_tokens": 1000,
            "output_tokens": 500,
            "requests": 100,
            "turns": 3,
            "pause_s": "500 ms",
        },
    ),
    (  # nvidia.github.io/TensorRT-LLM, perf-overview: all requests at once
        "python benchmarks/cpp/prepare_dataset.py --tokenizer=$M --stdout token-norm-dist"
        " --num-requests=1500 --input-mean=500 --output-mean=2000 --input-stdev=0 --output-stdev=0 > d\n"
        "trtllm-bench --model $M throughput --dataset d --backend pytorch --tp 1"
        " --kv_cache_free_gpu_mem_fraction 0.95",
        {"concurrency": 1500, "prompt_tokens": 500, "output_tokens": 2000, "requests": 1500},
    ),
)


def data_of(text, **request):
    script = f"M={LLAMA}\n{text}\n"
    return source_of(script.encode(), "bench.sh", JobRequest(**request)).document.data


@all_cases("text, expected", PUBLISHED)
def test_a_published_command_states_the_traffic_and_the_model(text, expected):
    data = data_of(text)

    assert data["traffic"] == expected
    assert data["model"] == "llama-3.1-8b"
    resolve_serving(
        JobRequest(source=source_of(f"M={LLAMA}\n{text}".encode(), "b.sh", JobRequest()), gpus=1)
    )


def test_one_script_with_the_server_and_the_benchmark_is_the_whole_job():
    server = "python -m sglang.launch_server --model-path $M --tp 2 --max-running-requests 64 &"
    client = f"{SGLANG} --model chat --dataset-name random --random-range-ratio 1 --max-concurrency 16"

    data = data_of(f"{server}\n{client} --num-prompts 80")

    assert (data["engine"], data["model"]) == ("sglang", "llama-3.1-8b")
    assert data["plan"] == {"tensor_parallel": 2, "max_sequences": 64, "replicas": 1}
    assert data["traffic"]["concurrency"] == 16


def test_a_benchmark_names_the_engine_and_its_goodput_the_limits():
    data = data_of("vllm bench serve --model $M --ignore-eos --goodput ttft:2000 tpot:50 --request-rate 2")

    assert "engine" not in data
    assert data["slo"] == {"ttft_s": "2000 ms", "tpot_s": "50 ms"}
    assert data_of(f"{SGLANG} --model $M --dataset-name random --request-rate 1")["engine"] == "sglang"


def test_lengths_that_vary_normally_become_a_histogram_with_the_same_mean_and_deviation():
    text = "aiperf profile -m $M --isl 600 --isl-stddev 100 --osl 100 --concurrency 4 --request-count 40"
    source = source_of(f"M={LLAMA}\n{text}".encode(), "bench.sh", JobRequest())

    prompt = resolve_serving(JobRequest(source=source, gpus=1)).traffic.prompt_tokens

    mean = sum(prompt.tokens) / len(prompt.tokens)
    deviation = (sum((each - mean) ** 2 for each in prompt.tokens) / len(prompt.tokens)) ** 0.5
    assert (prompt.mean, mean) == (pytest.approx(600, rel=0.01), pytest.approx(600, rel=0.01))
    assert deviation == pytest.approx(100, rel=0.1)


RECORDED = "vllm bench serve --model $M --dataset-name sharegpt --dataset-path s.json --request-rate 4"


def test_lengths_of_recorded_prompts_have_to_be_stated():
    with pytest.raises(SpecError) as caught:
        data_of(RECORDED)

    assert [(each.field, each.where) for each in caught.value.problems] == [
        ("traffic.prompt", "bench.sh:2"),
        ("traffic.output", "bench.sh:2"),
    ]
    assert [each.fix[:22] for each in caught.value.problems] == [
        "add traffic.prompt=220",
        "add traffic.output=200",
    ]
    stated = ("traffic.prompt=220", "traffic.output=lognormal(200,1)")
    source = source_of(f"M={LLAMA}\n{RECORDED}".encode(), "bench.sh", JobRequest(changes=stated))
    job = resolve_serving(JobRequest(source=source, gpus=1, changes=stated))
    assert (job.traffic.rate_per_s, job.traffic.prompt_tokens.mean) == (4.0, 220)


WRONG = (
    (f"{SGLANG} --random-rage-ratio 1", "--random-rage-ratio", "did you mean --random-range-ratio?"),
    ("vllm bench serve --prompts-per-user 3", "--prompts-per-user", "remove --prompts-per-user"),
    ("vllm bench serve --request-rate fast", "--request-rate", "write --request-rate 4"),
    ("vllm bench serve --ramp-up-strategy linear", "--ramp-up-strategy", "remove --ramp-up-strategy"),
    ("vllm bench serve --random-range-ratio 1", "--random-range-ratio", "write --random-range-ratio 0"),
    ("vllm bench serve --goodput speed:3", "--goodput", "write --goodput ttft:2000"),
    (
        "python benchmark_serving.py --dataset-name random --random-range-ratio 0.8",
        "--random-range-ratio",
        "remove --random-range-ratio, and state the range",
    ),
    ("vllm bench serve --request-rate $RATE", "--request-rate", "add --env RATE="),
    (
        "vllm bench serve --request-rate 1\nvllm bench serve --request-rate 2",
        "command",
        "keep the command of one benchmark",
    ),
)


@all_cases("text, field, fix", WRONG)
def test_a_flag_that_changes_the_requests_is_an_error_if_it_is_wrong_or_unknown(text, field, fix):
    with pytest.raises(SpecError) as caught:
        data_of(text, model="llama-3.1-8b")

    problem = caught.value.problems[0]
    assert (problem.field, problem.fix[: len(fix)]) == (field, fix)
    assert problem.where.startswith("bench.sh:")


def test_a_traffic_may_name_the_script_or_the_command_of_a_benchmark(tmp_path):
    command = f"{SGLANG} --dataset-name random --random-range-ratio 1 --max-concurrency 4 --num-prompts 20"
    script = tmp_path / "bench.sh"
    script.write_text(f"{command} --random-output-len 20\n", "utf-8")
    for traffic in (str(script), f"{command} --random-output-len 20"):
        job = resolve_serving(JobRequest(model="llama-3.1-8b", gpus=1, engine="vllm", traffic=traffic))
        assert (job.engine.name, job.traffic.concurrency, job.traffic.output_tokens.mean) == ("vllm", 4, 20)
    script.write_text("echo nothing\n", "utf-8")

    ended = flopcast("predict", "llama-3.1-8b", "--engine", "vllm", "--gpus", 1, "--traffic", script)

    assert ended.code != 0
    assert "give the script of the benchmark" in ended.err
