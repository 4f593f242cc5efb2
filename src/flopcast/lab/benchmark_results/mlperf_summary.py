"""Results of MLPerf Inference: mlperf_log_summary.txt, which the load generator writes.

Source: loadgen/results.cc in https://github.com/mlcommons/inference. Times are in nanoseconds. The lengths
of requests are those of the benchmark's data set, which the summary does not state.
"""

import re
from collections.abc import Iterator, Mapping

from flopcast.lab.benchmark_results.result import BenchmarkResult, MeasuredNumber

SIGN = "MLPerf Results Summary"
PROGRAM = "MLPerf Inference's load generator"
RATES = {
    "completed tokens per second": "output_tokens_per_s",
    "completed samples per second": "requests_per_s",
    "tokens per second": "output_tokens_per_s",
    "samples per second": "requests_per_s",
}
METRICS = {
    "first token latency": "ttft",
    "time to output token": "tpot",
    "time per output token": "tpot",
    "latency": "end_to_end",
}
STATISTICS = {"mean": "mean", **{f"{percent}.00 percentile": f"p{percent}" for percent in (50, 90, 95, 99)}}
_LINE = re.compile(r"\s*([^:]+?)\s*:\s*(\S.*?)\s*$")


def fits(text: str) -> bool:
    """Return whether a text is such a summary."""
    return SIGN in text


def read(text: str, name: str) -> BenchmarkResult:
    """Return the result of one summary.

    Only the server scenario has a rate of arrivals; "Offline" sends all requests at once. Lines that are
    not
    "name : value" are skipped.
    """
    values = {match[1].lower(): match[2] for line in text.splitlines() if (match := _LINE.fullmatch(line))}
    rate = values.get("target_qps", "")
    server = values.get("scenario", "").lower() == "server" and re.fullmatch(r"[0-9.]+", rate)
    return BenchmarkResult(
        name=name,
        program=PROGRAM,
        numbers=tuple(_numbers(values)),
        traffic={"rate_per_s": float(rate)} if server and float(rate) > 0 else {},
        notes=("the lengths of requests are not in the file: state them by --traffic",),
    )


def _numbers(values: Mapping[str, str]) -> Iterator[MeasuredNumber]:
    rates = {}
    for key, metric in RATES.items():
        if metric not in rates and (value := _positive(values.get(key, ""))):
            rates[metric] = value
            yield MeasuredNumber(metric=metric, statistic="mean", value=value)
    for word, metric in METRICS.items():
        for written, statistic in STATISTICS.items():
            if value := _positive(values.get(f"{written} {word} (ns)", "")):
                yield MeasuredNumber(metric=metric, statistic=statistic, value=value / 1e9)


def _positive(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else 0.0
