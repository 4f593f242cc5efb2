"""Results of vLLM's and SGLang's benchmarks of a server, as JSON.

Source: vllm/benchmarks/serve.py (`vllm bench serve --save-result`; older: benchmarks/benchmark_serving.py)
in https://github.com/vllm-project/vllm, and sglang/bench_serving.py in
https://github.com/sgl-project/sglang. Times are in milliseconds. A request rate of "inf" sends all requests
at once, or as many as --max-concurrency allows.
"""

import math
from collections.abc import Iterator, Mapping

from flopcast.lab.benchmark_results.result import BenchmarkResult, MeasuredNumber
from flopcast.units import Number

METRICS = {"ttft": "ttft", "tpot": "tpot", "itl": "inter_token", "e2el": "end_to_end",
           "e2e_latency": "end_to_end"}  # fmt: skip
STATISTICS = {"mean": "mean", "median": "p50", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
RATES = {"request_throughput": "requests_per_s", "output_throughput": "output_tokens_per_s"}
SIGNS = {"mean_ttft_ms", "request_throughput"}


def fits(data: object) -> bool:
    """Return whether plain data is such a result."""
    return isinstance(data, dict) and data.keys() >= SIGNS


def read(data: Mapping[str, object], name: str) -> BenchmarkResult:
    """Return the result."""
    traffic, notes = _traffic(data)
    return BenchmarkResult(
        name=name,
        program="vLLM's or SGLang's benchmark of a server",
        numbers=tuple(_numbers(data)),
        traffic=traffic,
        notes=notes,
    )


def _numbers(data: Mapping[str, object]) -> Iterator[MeasuredNumber]:
    for key, metric in RATES.items():
        if value := number(data.get(key)):
            yield MeasuredNumber(metric=metric, statistic="mean", value=value)
    found = set()
    for word, metric in METRICS.items():
        for written, statistic in STATISTICS.items():
            value = number(data.get(f"{written}_{word}_ms"))
            if value and (metric, statistic) not in found:
                found.add((metric, statistic))
                yield MeasuredNumber(metric=metric, statistic=statistic, value=value / 1e3)


def _traffic(data: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the requests that were sent, by their mean lengths, and what is assumed about them."""
    words: dict[str, object] = {}
    notes = []
    sent, ended = number(data.get("num_prompts")), number(data.get("completed"))
    count = ended or sent
    rate, most = number(data.get("request_rate")), number(data.get("max_concurrency"))
    if rate:
        words["rate_per_s"] = rate
        if most:
            notes.append(f"max_concurrency {most:g} is ignored, as the file states a rate of {rate:g}/s")
        burstiness = number(data.get("burstiness"))
        if burstiness and burstiness != 1.0:
            words |= {"arrivals": "gamma", "burstiness": burstiness}
    elif most or sent:
        words["concurrency"] = round(most or sent or 1)
    if sent:
        words["requests"] = round(sent)
    for key, field in (("total_input_tokens", "prompt_tokens"), ("total_output_tokens", "output_tokens")):
        total = number(data.get(key))
        if total and count:
            words[field] = max(round(total / count), 1)
    if "prompt_tokens" in words:
        notes.append("each request has the mean lengths: the file has no others")
    return words, tuple(notes)


def number(value: object) -> Number | None:
    """Return a finite number above 0, None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
