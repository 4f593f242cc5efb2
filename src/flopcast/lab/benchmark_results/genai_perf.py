"""Results of NVIDIA's GenAI-Perf and AIPerf: profile_export_genai_perf.json, and the table as CSV.

Source: GenAI-Perf's metrics and output files
(https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/perf_benchmark/genai-perf-README.html)
and AIPerf (https://github.com/ai-dynamo/aiperf). Its "inter token latency" is the mean of a request: the
time between first and last token by the tokens after the first, which flopcast calls TPOT.
"""

import csv
from collections.abc import Iterator, Mapping

from flopcast.lab.benchmark_results.result import BenchmarkResult, MeasuredNumber
from flopcast.lab.benchmark_results.vllm_json import number
from flopcast.units import Number

METRICS = {
    "time_to_first_token": "ttft",
    "inter_token_latency": "tpot",
    "request_latency": "end_to_end",
    "output_token_throughput": "output_tokens_per_s",
    "request_throughput": "requests_per_s",
}
LENGTHS = {"input_sequence_length": "prompt_tokens", "output_sequence_length": "output_tokens"}
STATISTICS = {"avg": "mean", "value": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
PER_S = {"s": 1.0, "sec": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
PROGRAM = "GenAI-Perf or AIPerf"


def fits(data: object) -> bool:
    """Return whether plain data is such a result."""
    return isinstance(data, dict) and isinstance(data.get("time_to_first_token"), dict)


def read(data: Mapping[str, object], name: str) -> BenchmarkResult:
    """Return the result of one file.

    Parameters
    ----------
    data : mapping
        The JSON file as plain data, or the CSV table turned into the same form.
    name : str
        Name of the result in messages.

    Returns
    -------
    BenchmarkResult
        Traffic has the mean lengths and, where the file holds the arguments of the run, its load.
    """
    traffic: dict[str, object] = {}
    for key, field in LENGTHS.items():
        section = data.get(key)
        if isinstance(section, Mapping) and (mean := number(section.get("avg"))):
            traffic[field] = max(round(mean), 1)
    count = data.get("request_count")
    if isinstance(count, Mapping) and (sent := number(count.get("avg"))):
        traffic["requests"] = round(sent)
    traffic |= _load(data.get("input_config"))
    notes = ("each request has the mean lengths: the file has no others",) if traffic else ()
    return BenchmarkResult(
        name=name, program=PROGRAM, numbers=tuple(_numbers(data)), traffic=traffic, notes=notes
    )


def _load(config: object) -> dict[str, object]:
    """Return the load that a configuration states, wherever it has it."""
    if not isinstance(config, Mapping):
        return {}
    for key, field in (("request_rate", "rate_per_s"), ("concurrency", "concurrency")):
        if value := number(config.get(key)):
            return {field: round(value) if field == "concurrency" else value}
    for inner in config.values():
        if found := _load(inner):
            return found
    return {}


def _numbers(data: Mapping[str, object]) -> Iterator[MeasuredNumber]:
    for key, metric in METRICS.items():
        section = data.get(key)
        if not isinstance(section, Mapping):
            continue
        is_rate = metric.endswith("_per_s")
        unit = str(section.get("unit", "ms"))
        divisor = 1.0 if is_rate else PER_S.get(unit, 1e3)
        for written, statistic in STATISTICS.items():
            value = number(section.get(written))
            if value and (statistic == "mean" or not is_rate):
                yield MeasuredNumber(metric=metric, statistic=statistic, value=value / divisor)


def table_of(text: str) -> dict[str, object]:
    """Return the CSV of such a result as its JSON would be; empty if the text is none.

    >>> table_of('Metric,avg,p99\\nTime To First Token (ms),"1,200.5",1300\\n')
    {'time_to_first_token': {'unit': 'ms', 'avg': 1200.5, 'p99': 1300.0}}
    """
    found: dict[str, object] = {}
    header: list[str] = []
    for row in csv.reader(text.splitlines()):
        if row and row[0] in ("Metric", "Statistic"):
            header = [word.strip().lower() for word in row[1:]]
        elif header and len(row) > 1:
            name, _, unit = row[0].partition("(")
            values = {word: _plain(cell) for word, cell in zip(header, row[1:], strict=False)}
            key = name.strip().lower().replace(" ", "_")
            found[key] = {"unit": unit.strip(" )"), **values}
    return found


def _plain(cell: str) -> Number | None:
    try:
        return float(cell.replace(",", ""))
    except ValueError:
        return None
