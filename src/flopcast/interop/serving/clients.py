"""Commands of serving benchmarks: vLLM's, SGLang's, GenAI-Perf, AIPerf, and data sets for trtllm-bench.

Answers: when does a benchmark send its requests, how many, and how long are they?
Elsewhere: flags (tables/vllm-bench.yaml and others, settings.py), the commands of engines (launch.py), what
benchmarks write (lab/benchmark_results/).

Without a rate, a benchmark sends all requests at once, or as many as its largest concurrency allows. The
rate "inf" is no rate. The lengths of synthetic prompts follow from the flags. The lengths of recorded
prompts, such as those of ShareGPT, do not, so that the traffic has to state them.

References
----------
vllm-project/vllm: vllm/benchmarks/serve.py and datasets.py, and benchmarks/benchmark_serving.py of older
releases. Pull request 16126 (April 2025) changed the range of random lengths from [r·length, length] to
[(1-r)·length, (1+r)·length]; copies of the older script, such as that of InferenceX, kept the first range.
sgl-project/sglang: python/sglang/bench_serving.py and benchmark/datasets (issue 7253: [r·length, length]).
ai-dynamo/aiperf: docs/cli-options.md, whose requests arrive at random by default.
triton-inference-server/perf_analyzer: genai-perf/README.md, whose requests arrive at equal intervals.
NVIDIA/TensorRT-LLM: benchmarks/cpp/prepare_dataset.py, tensorrt_llm/bench.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import NormalDist

from flopcast.errors import MISSING, Problem
from flopcast.files.yaml_text import Document
from flopcast.interop.serving.launch_reader import LaunchReader

PROMPT, OUTPUT = "prompt_tokens", "output_tokens"
OLDER = "benchmark_serving.py"  # draws lengths from either range, depending on its release
QUANTILES = 10  # of a normal distribution of lengths
METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "e2el": "end_to_end_s", "time_to_first_token": "ttft_s",
           "inter_token_latency": "tpot_s", "request_latency": "end_to_end_s"}  # fmt: skip
SONNET = {PROMPT: 550, OUTPUT: 150, "prefix": 200}  # defaults of the data set "sonnet"


def read_vllm(reader: LaunchReader) -> None:
    """Read the requests of `vllm bench serve`, or of benchmark_serving.py."""
    _read_load(reader, "max-concurrency", requests=1000)
    if (burstiness := _number(reader, "burstiness")) not in (None, 1.0):
        reader.put(("traffic", "arrivals"), "gamma", "burstiness")
        reader.put(("traffic", "burstiness"), burstiness, "burstiness")
    usual = "sharegpt" if reader.has("dataset-path") else "random"
    dataset = reader.choice("dataset-name", reader.words("datasets"), usual)
    if dataset == "random":
        prefix = reader.count("random-prefix-len", 0, least=0)
        _put_random(reader, 128, prefix, lower=reader.program == OLDER)
        _put_prefix(reader, prefix, "random-prefix-len")
    elif dataset == "sonnet":
        for field, key in ((PROMPT, "sonnet-input-len"), (OUTPUT, "sonnet-output-len")):
            reader.put(("traffic", field), reader.count(key, SONNET[field]), key, "dataset-name")
        key = "sonnet-prefix-len"
        _put_prefix(reader, reader.count(key, SONNET["prefix"], least=0), key)
    else:
        _leave_lengths(reader, "dataset-name", "dataset-path")
    if dataset in ("random", "sonnet") and not reader.flag("ignore-eos"):
        text = "all answers have the stated length, although the benchmark lets the model end them earlier"
        reader.assume(text)


def read_sglang(reader: LaunchReader) -> None:
    """Read the requests of `sglang.bench_serving`."""
    _read_load(reader, "max-concurrency", requests=1000)
    dataset = reader.choice("dataset-name", reader.words("datasets"), "sharegpt")
    if dataset == "random":
        _put_random(reader, 1024, 0, lower=True)
    else:
        _leave_lengths(reader, "dataset-name", "dataset-path")


def read_aiperf(reader: LaunchReader) -> None:
    """Read the requests of `genai-perf profile` or `aiperf profile`."""
    _read_load(reader, "concurrency", requests=None)
    if reader.part("traffic").get("concurrency", 1) is None:
        reader.put(("traffic", "concurrency"), 1)
    pattern = reader.choice("arrival-pattern", reader.words("patterns"), "")
    pattern = pattern or ("poisson" if reader.program.startswith("aiperf") else "constant")
    if "rate_per_s" in reader.part("traffic") and pattern != "poisson":
        reader.put(("traffic", "arrivals"), pattern, "arrival-pattern", "request-rate")
        if pattern == "gamma":
            reader.put(("traffic", "burstiness"), _number(reader, "arrival-smoothness") or 1.0)
    files = ("input-file", "public-dataset", "custom-dataset-type")
    if reader.has(*files):
        _leave_lengths(reader, *files)
        return
    prefix = reader.count("prefix-prompt-length", 0, least=0)
    prompt = reader.count("synthetic-input-tokens-mean", 550)
    _put_normal(reader, PROMPT, prompt + prefix, "synthetic-input-tokens")
    _put_prefix(reader, prefix, "prefix-prompt-length")
    if reader.has("output-tokens-mean"):
        _put_normal(reader, OUTPUT, reader.count("output-tokens-mean"), "output-tokens")
    else:
        reader.put(("traffic", OUTPUT), None)
    if reader.has("session-turns-mean"):
        reader.put(("traffic", "turns"), reader.count("session-turns-mean"), "session-turns-mean")
        delay = reader.count("session-turn-delay-mean", 0, least=0)
        reader.put(("traffic", "pause_s"), f"{delay} ms", "session-turn-delay-mean")


def read_trtllm_data(reader: LaunchReader) -> None:
    """Read the lengths of a data set that `prepare_dataset.py token-norm-dist` writes for trtllm-bench."""
    for field, mean in ((PROMPT, "input"), (OUTPUT, "output")):
        if reader.has(f"{mean}-mean"):
            _put_normal(reader, field, reader.count(f"{mean}-mean"), mean)
        else:
            reader.put(("traffic", field), None, "dataset-name", "dataset")
    if reader.has("num-requests"):
        reader.put(("traffic", "requests"), reader.count("num-requests"), "num-requests")


def read_trtllm_load(reader: LaunchReader) -> None:
    """Read when trtllm-bench sends the requests of its data set."""
    if reader.has("num-requests") and reader.raw("num-requests") != 0:
        reader.put(("traffic", "requests"), reader.count("num-requests"), "num-requests")
    least = reader.raw("concurrency") in (None, -1)
    reader.put(("traffic", "concurrency"), None if least else reader.count("concurrency"), "concurrency")


def read_benchmarked(reader: LaunchReader) -> None:
    """Read the model and the engine of a benchmark whose server is started elsewhere."""
    if reader.has("model", "tokenizer"):
        reader.read_model(reader.first("model", "tokenizer"))
    if reader.has("backend") and (engine := reader.choice("backend", reader.words("engines"), "")):
        reader.put(("engine",), engine, "backend")
        reader.assume(f"engine {engine}, according to the benchmark", "backend")


def other_loads(readers: Sequence[LaunchReader]) -> list[Problem]:
    """Return the faults of benchmarks of one program that send other requests than the first one."""
    firsts = {reader.keys.program: reader for reader in reversed(readers)}
    problems = []
    for reader in readers:
        first = firsts[reader.keys.program]
        if reader.part("traffic") != first.part("traffic"):
            where, line = reader.where(""), first.where("").rpartition(":")[2]
            allowed, because = f"the requests of the command in line {line}", "a prediction has one traffic"
            fix, fault = "keep the command of one benchmark", "sends other requests"
            problems.append(Problem("command", where, allowed, because, fix, where=where, fault=fault))
    return problems


def with_load(document: Document, readers: Iterable[LaunchReader]) -> Document:
    """Return a job with the requests of benchmarks, and the limits of their latencies."""
    data, places = dict(document.mapping), dict(document.places)
    traffic: dict[str, object] = {PROMPT: None, OUTPUT: None}
    stated = data.get("assumptions")
    notes = list(stated) if isinstance(stated, list) else []
    for reader in readers:
        traffic |= {name: value for name, value in reader.part("traffic").items() if value is not None}
        places |= {path: place for path, place in reader.places.items() if path[0] in ("traffic", "slo")}
        data |= {"slo": limits} if (limits := reader.part("slo")) else {}
        notes += reader.assumptions
    if not traffic.keys() & {"rate_per_s", "concurrency"} and "requests" in traffic:
        traffic["concurrency"] = traffic["requests"]
        notes.append("the benchmark sends all requests at once")
    data |= {"traffic": traffic, "assumptions": list(dict.fromkeys(notes))}
    return Document(document.name, data, dict(document.lines), places)


def missing_lengths(document: Document) -> list[Problem]:
    """Return the faults of a job whose benchmark does not state the lengths of requests."""
    traffic = document.mapping.get("traffic")
    problems = []
    for name, usual in ((PROMPT, 220), (OUTPUT, 200)):
        if isinstance(traffic, dict) and name in traffic and traffic[name] is None:
            field = f"traffic.{name.removesuffix('_tokens')}"
            because = "the command does not contain the lengths of these requests"
            allowed = "a length in tokens, or a distribution of lengths"
            fix, where = f"add {field}={usual}, with the length", document.places.get(("traffic", name), "")
            problems.append(Problem(field, None, allowed, because, fix, where, MISSING))
    return problems


def _read_load(reader: LaunchReader, most: str, requests: int | None) -> None:
    """Read the rate or the concurrency, the number of requests, the seed and the limits of latency."""
    rate = _number(reader, "request-rate")
    if rate is None:
        reader.put(("traffic", "concurrency"), reader.count(most) if reader.has(most) else None, most)
    else:
        reader.put(("traffic", "rate_per_s"), rate, "request-rate")
        if reader.has(most):
            text = f"{most} is ignored, because the benchmark sends {rate:g} requests per second"
            reader.assume(text, most)
    if requests is not None or reader.has("num-prompts"):
        reader.put(("traffic", "requests"), reader.count("num-prompts", requests or 1), "num-prompts")
    if reader.has("seed"):
        reader.put(("traffic", "seed"), reader.count("seed", least=0), "seed")
    for word in str(reader.raw("goodput") or "").split():
        metric, _, limit = word.partition(":")
        if metric not in METRICS or not re.fullmatch(r"\d+(\.\d+)?", limit):
            because = "only these latencies can have limits, in milliseconds"
            fix = "write ttft:2000"
            reader.fault("goodput", " or ".join(f"{name}:MS" for name in METRICS), because, fix)
        else:
            reader.put(("slo", METRICS[metric]), f"{limit} ms", "goodput")


def _number(reader: LaunchReader, key: str) -> float | None:
    """Return a number above 0, None if none is stated or it is infinite."""
    value = reader.raw(key)
    if value is None or str(value).lower().lstrip(".") in ("inf", "infinity"):
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9:
        return float(value)
    reader.fault(key, "a number above 0, or inf", "the value is not a number", "write 4")
    return None


def _put_random(reader: LaunchReader, output: int, prefix: int, *, lower: bool) -> None:
    """Set the lengths of random prompts and outputs: fixed, or uniform around or below the flag."""
    key = "random-range-ratio"
    ratio = reader.fraction(key, 0.0)
    if not lower and ratio == 1:
        because = "with a ratio of 1, the benchmark would send empty prompts, which vLLM rejects"
        reader.fault(key, "a number of at least 0, below 1", because, "write 0")
    if reader.program == OLDER and 0 < ratio < 1:
        allowed = "0 or 1, or no value"
        because = (
            f"releases since April 2025 draw {1 - ratio:g} to {1 + ratio:g} times the stated length, and"
            f" older releases draw {ratio:g} to 1 times this length"
        )
        fix = f'remove {key}, and state the range: --traffic "... prompt=uniform(800,1000)"'
        reader.fault(key, allowed, because, fix)
    exact = ratio in (0.0, 1.0) if reader.program == OLDER else ratio == (1.0 if lower else 0.0)
    for field, name, usual in ((PROMPT, "random-input-len", 1024), (OUTPUT, "random-output-len", output)):
        tokens, more = reader.count(name, usual), prefix if field == PROMPT else 0
        least, most = (ratio, 1.0) if lower else (1.0 - ratio, 1.0 + ratio)
        ends = max(int(tokens * least), 1) + more, int(tokens * most) + more
        value: object = tokens + more if exact else f"uniform({ends[0]}, {ends[1]})"
        reader.put(("traffic", field), value, name, key, "dataset-name")


def _put_normal(reader: LaunchReader, field: str, mean: int, key: str) -> None:
    """Set lengths with a normal distribution, as a histogram; with the mean alone if they do not vary."""
    spread = next((name for name in (f"{key}-stddev", f"{key}-stdev") if reader.has(name)), "")
    deviation = reader.count(spread, 0, least=0) if spread else 0
    lengths: object = mean
    if deviation:
        normal = NormalDist(mean, deviation)
        drawn = (normal.inv_cdf((place + 0.5) / QUANTILES) for place in range(QUANTILES))
        counts = Counter(max(round(tokens), 1) for tokens in drawn)
        lengths = ",".join(f"{tokens}:{number}" for tokens, number in counts.items())
    reader.put(("traffic", field), lengths, f"{key}-mean", spread)


def _put_prefix(reader: LaunchReader, tokens: int, key: str) -> None:
    if tokens:
        reader.put(("traffic", "shared_prefix_tokens"), tokens, key)


def _leave_lengths(reader: LaunchReader, *keys: str) -> None:
    """Leave the lengths of recorded prompts to the user, except for outputs of a stated length."""
    for field in (PROMPT, OUTPUT):
        reader.put(("traffic", field), None, *keys)
    if reader.has("sharegpt-output-len"):
        key = "sharegpt-output-len"
        reader.put(("traffic", OUTPUT), reader.count(key), key)
