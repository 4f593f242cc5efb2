"""Files with the result of a serving benchmark: the program that wrote them, and the meaning of their
names.

Answers: what did the benchmark of this file measure, and which requests did it send?
Elsewhere: the comparison with a prediction (result.py), logs of training (lab/logs/).

vLLM's `vllm bench serve --save-result` (vllm/benchmarks/serve.py in https://github.com/vllm-project/vllm)
and SGLang's bench_serving.py write JSON, in milliseconds; a request rate of "inf" sends all requests at
once, or as many as --max-concurrency allows. GenAI-Perf
(https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/perf_benchmark/genai-perf-README.html)
and AIPerf (https://github.com/ai-dynamo/aiperf) write JSON or CSV; their "inter token latency" is the
time from a request's first to its last token, divided by the number of tokens after the first. flopcast
calls this TPOT. MLPerf's load generator (loadgen/results.cc in https://github.com/mlcommons/inference)
writes nanoseconds, and does not state the lengths of the requests.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.named_files import read_file
from flopcast.files.package_table import read_table
from flopcast.files.yaml_text import decoded, read_yaml
from flopcast.lab.benchmark_results.result import BenchmarkResult, MeasuredNumber
from flopcast.records import Record
from flopcast.units import Number

Values = Mapping[str, object]
KNOWN = "JSON of vLLM's or SGLang's benchmark, JSON or CSV of GenAI-Perf, or mlperf_log_summary.txt"
MEAN_LENGTHS = "flopcast predicts every request with the mean lengths, because the file lists no requests"
PER_S = {"s": 1.0, "sec": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_DATE = re.compile(r"(20\d\d)(0[1-9]|1[0-2])\d\d-")  # of vLLM's benchmark: 20241005-142501
_LINE = re.compile(r"\s*([^:]+?)\s*:\s*(\S.*?)\s*$")


class Format(Record):
    """The names of one program's numbers. If two names mean one number, the first name in the file counts.

    `rates` are complete names. The name of a latency is `pattern` with a word of `latencies` and a word
    of `statistics`; one second is `per_s` of its units. `traffic` returns the sent requests in the words
    of a traffic description, and notes on the assumptions about them.
    """

    program: str
    rates: Mapping[str, str]
    latencies: Mapping[str, str]
    statistics: Mapping[str, str]
    pattern: str
    per_s: float
    traffic: Callable[[Values], tuple[dict[str, object], tuple[str, ...]]]

    def read(self, values: Values, name: str) -> BenchmarkResult:
        """Return the result from the named values of a file; messages call the file `name`."""
        found: dict[tuple[str, str], Number] = {}
        for word, metric in self.rates.items():
            if value := number(values.get(word)):
                found.setdefault((metric, "mean"), value)
        for word, metric in self.latencies.items():
            for written, statistic in self.statistics.items():
                if value := number(values.get(self.pattern.format(statistic=written, word=word))):
                    found.setdefault((metric, statistic), value / self.per_s)
        numbers = (MeasuredNumber(metric=key[0], statistic=key[1], value=v) for key, v in found.items())
        traffic, notes = self.traffic(values)
        return BenchmarkResult(
            name=name,
            program=self.program,
            numbers=tuple(numbers),
            traffic=traffic,
            notes=notes,
            model=str(values.get("model_id") or ""),  # of vLLM
        )


def number(value: object) -> Number | None:
    """Return a finite number above 0, and None for anything else.

    >>> number("1,200.5"), number(3), number("inf"), number(True)
    (1200.5, 3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = float(value.replace(",", "")) if isinstance(value, str) else float(value)
    except ValueError:
        return None
    return found if math.isfinite(found) and found > 0 else None


def _of_engine(values: Values) -> tuple[dict[str, object], tuple[str, ...]]:
    words: dict[str, object] = {}
    notes = []
    sent, ended = number(values.get("num_prompts")), number(values.get("completed"))
    count = ended or sent
    rate, most = number(values.get("request_rate")), number(values.get("max_concurrency"))
    if rate:
        words["rate_per_s"] = rate
        if most:
            notes.append(
                f"max_concurrency {most:g} is ignored, because the file states a rate of {rate:g}/s"
            )
        burstiness = number(values.get("burstiness"))
        if burstiness and burstiness != 1.0:
            words |= {"arrivals": "gamma", "burstiness": burstiness}
    elif most or sent:
        words["concurrency"] = round(most or sent or 1)
    if sent:
        words["requests"] = round(sent)
    for key, field in (("total_input_tokens", "prompt_tokens"), ("total_output_tokens", "output_tokens")):
        total = number(values.get(key))
        if total and count:
            words[field] = max(round(total / count), 1)
    server = values.get("server_info")  # of SGLang
    date = _DATE.match(str(values.get("date")))
    if release := str(server.get("version") or "") if isinstance(server, Mapping) else "":
        notes += (
            f"the server ran release {release}; add engine.release={release} to predict this release",
        )
    elif date:
        month = f"{date[1]}-{date[2]}"
        notes.append(
            f"the file does not state the release of the server: add engine.release={month} to predict the "
            f"newest release of {month}, when the benchmark ran"
        )
    return words, (*notes, *([MEAN_LENGTHS] if "prompt_tokens" in words else []))


def _of_genai(values: Values) -> tuple[dict[str, object], tuple[str, ...]]:
    words: dict[str, object] = {}
    for key, field in (
        ("input_sequence_length", "prompt_tokens"),
        ("output_sequence_length", "output_tokens"),
    ):
        if mean := number(values.get(f"avg {key}")):
            words[field] = max(round(mean), 1)
    if sent := number(values.get("avg request_count")):
        words["requests"] = round(sent)
    words |= _load(values.get("input_config"))
    return words, (MEAN_LENGTHS,) if words else ()


def _load(config: object) -> dict[str, object]:
    """Return the load that a configuration states, at any of the places where programs write it."""
    if not isinstance(config, Mapping):
        return {}
    if rate := number(config.get("request_rate")):
        return {"rate_per_s": rate}
    if concurrency := number(config.get("concurrency")):
        return {"concurrency": round(concurrency)}
    return next(filter(None, map(_load, config.values())), {})


def _of_mlperf(values: Values) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return the load: only the server scenario has an arrival rate; "Offline" sends all at once."""
    rate = number(values.get("target_qps")) if str(values.get("scenario")).lower() == "server" else None
    notes = ("the file does not contain the lengths of requests: set them with --traffic",)
    return {"rate_per_s": rate} if rate else {}, notes


_TABLE = read_table(__package__, "formats.yaml")
ENGINE = Format(**_TABLE["engine"], traffic=_of_engine)
GENAI_PERF = Format(**_TABLE["genai_perf"], traffic=_of_genai)
MLPERF = Format(**_TABLE["mlperf"], traffic=_of_mlperf)


def read_result_file(path: Path) -> BenchmarkResult:
    """Return the result in a file.

    Raises
    ------
    SpecError
        The file cannot be read, or no known benchmark wrote it.
    """
    return read_result(read_file(path), path.name)


def read_result(raw: bytes, name: str) -> BenchmarkResult:
    """Return the result in the bytes of a file; messages call the file `name`.

    Raises
    ------
    SpecError
        No known benchmark wrote it.

    Examples
    --------
    >>> found = read_result(b'{"mean_ttft_ms": 80, "request_throughput": 2.0}', "result.json")
    >>> [(each.metric, each.value) for each in found.numbers]
    [('requests_per_s', 2.0), ('ttft', 0.08)]
    """
    text = decoded(raw, name)
    if "MLPerf Results Summary" in text:
        lines = filter(None, map(_LINE.fullmatch, text.splitlines()))
        return MLPERF.read({line[1].lower(): line[2] for line in lines}, name)
    runs = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    if len(runs) > 1:  # SGLang's benchmark appends a line
        because = f"the file has {len(runs)} results, because the benchmark appends each run to it"
        raise spec_error("--log", name, "one result", because, "keep one line of the file", name)
    data = read_yaml(raw, name).data if text.lstrip()[:1] == "{" else table_of(text)
    if isinstance(data, dict) and data.keys() >= {"mean_ttft_ms", "request_throughput"}:
        return ENGINE.read(data, name)
    if isinstance(data, dict) and isinstance(data.get("time_to_first_token"), dict):
        return GENAI_PERF.read({**data, **dict(_statistics(data))}, name)
    because = "the file is not the result of a serving benchmark that flopcast knows"
    fix = "give the result of a benchmark, such as the file that vllm bench serve --save-result writes"
    raise spec_error("--log", name, KNOWN, because, fix, name)


def _statistics(data: Values) -> Iterator[tuple[str, object]]:
    """Yield each statistic in GenAI-Perf's sections by its name, with latencies in seconds."""
    for key, section in data.items():
        if isinstance(section, Mapping):
            scale = PER_S.get(str(section.get("unit", "ms")), 1e3) if key in GENAI_PERF.latencies else 1.0
            for statistic, cell in section.items():
                if value := number(cell):
                    yield f"{statistic} {key}", value / scale


def table_of(text: str) -> dict[str, object]:
    """Return a CSV result of this program in the form of its JSON; empty if the text is not CSV.

    >>> table_of('Metric,avg,p99\\nTime To First Token (ms),"1,200.5",1300\\n')
    {'time_to_first_token': {'unit': 'ms', 'avg': '1,200.5', 'p99': '1300'}}
    """
    found: dict[str, object] = {}
    header: list[str] = []
    for row in csv.reader(text.splitlines()):
        if row and row[0] in ("Metric", "Statistic"):
            header = [word.strip().lower() for word in row[1:]]
        elif header and len(row) > 1:
            name, _, unit = row[0].partition("(")
            cells = dict(zip(header, row[1:], strict=False))
            found[name.strip().lower().replace(" ", "_")] = {"unit": unit.strip(" )"), **cells}
    return found
