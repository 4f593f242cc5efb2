"""Files with the result of a serving benchmark: which program wrote them, and who reads them.

Answers: what did this file measure?
Elsewhere: each format (vllm_json.py, genai_perf.py, mlperf_summary.py), logs of training (lab/logs/).
"""

from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.yaml_text import decoded, read_yaml
from flopcast.lab.benchmark_results import genai_perf, mlperf_summary, vllm_json
from flopcast.lab.benchmark_results.result import BenchmarkResult
from flopcast.requests.job_files import read_file

OF_DATA = ((vllm_json.fits, vllm_json.read), (genai_perf.fits, genai_perf.read))  # of JSON
KNOWN = "JSON of vLLM's or SGLang's benchmark, JSON or CSV of GenAI-Perf, or mlperf_log_summary.txt"


def read_result_file(path: Path) -> BenchmarkResult:
    """Return the result that a file holds.

    Raises
    ------
    SpecError
        The file cannot be read, or no known benchmark wrote it.
    """
    return read_result(read_file(path), path.name)


def read_result(raw: bytes, name: str) -> BenchmarkResult:
    """Return the result that the bytes of a file hold; `name` is that of the file in messages.

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
    if mlperf_summary.fits(text):
        return mlperf_summary.read(text, name)
    data = read_yaml(raw, name).data if text.lstrip()[:1] == "{" else genai_perf.table_of(text)
    for fits, read in OF_DATA:
        if isinstance(data, dict) and fits(data):
            return read(data, name)
    because, fix = (
        "it is not the result of a known serving benchmark",
        "save the result as JSON (vllm bench serve)",
    )
    raise spec_error("--log", name, KNOWN, because, fix, name)
