"""Runs of APEX: traces that vLLM and SGLang served on eight H100.

Source: data/serving/apex_h100_mistral.csv and apex_traces_mistral.csv.gz; on GitHub microsoft/apex_plus,
MIT. One row is one trace on one deployment.

vLLM served Mistral-Large-2407 and SGLang Mixtral-8x22B (README of the data). All rows of vLLM are read as
FP8, also 2TP and 4TP, whose labels do not state it: 16-bit weights do not fit on two devices, and four
devices cannot read them in the measured 20 ms between tokens. The traces are stored in the same folder as
the table. If the plan has several replicas, each replica has one row and served every n-th request of the
trace. Served outputs are shorter than those of the trace, so all outputs are shortened in proportion. The
means of SGLang have wrong labels, so its sum of latencies is used instead.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from flopcast.lab.run_tables import ReadOptions, RunTable, opened
from flopcast.lab.serving_runs.quantities import latency, sum_of_latencies_s
from flopcast.lab.serving_runs.rows import Measured, RowFacts, ServingRows, ServingRun
from flopcast.serving.requests import Requests, independent_requests

TRACES = ("apex_traces_mistral.csv.gz", "apex_traces_mistral.csv")
MONTH = "2024-10"  # of the releases, assumed: arXiv:2411.17651 was submitted on 26 November 2024
MODELS = {"vllm": "mistral-large-123b", "sglang": "mixtral-8x22b"}
PLAN = re.compile(r"(?:(\d+)DP)?(\d+)(?:TP|EP)(_fp8)?(?:_(\d+))?|(TP|EP)(\d+)")
Traces = Mapping[str, list[tuple[float, int, int]]]


def _runs(path: Path, rows: Sequence[Mapping[str, str]], _options: ReadOptions) -> Iterable[ServingRun]:
    """Return the runs of a table, whose traces are in the same folder."""
    traces = _traces(path.parent)
    table = ServingRows(
        source="APEX",
        identity=("file",),
        groups=_groups,
        measured=_measured,
        unsupported=partial(_unsupported, traces),
        facts=partial(_facts, traces),
    )
    return map(table.run_of, rows)


def _groups(row: Mapping[str, str]) -> dict[str, str]:
    return {"engine": row["engine"], "model": MODELS.get(row["engine"], ""), "trace": row["trace"]}


def _traces(folder: Path) -> Traces:
    """Return the arrivals and lengths of the requests of each trace; empty without the file."""
    found: dict[str, list[tuple[float, int, int]]] = {}
    path = next((folder / name for name in TRACES if (folder / name).is_file()), None)
    if path is None:
        return found
    with opened(path) as file:
        for row in csv.DictReader(file):
            request = (float(row["arrival_s"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
            found.setdefault(row["trace"], []).append(request)
    return found


def _name(row: Mapping[str, str]) -> str:
    """Return the name of a row's trace."""
    return f"{row['trace']}_{row['rate_per_s'].replace('.', '')}"


def _unsupported(traces: Traces, row: Mapping[str, str]) -> str:
    """Return why a row cannot be predicted; empty if it can be predicted."""
    if _name(row) not in traces:
        return f"the trace {_name(row)} is not in {TRACES[0]} in the folder of the table"
    if PLAN.fullmatch(row["plan"]) is None or row["engine"] not in MODELS:
        return f"plan = {row['plan']} of {row['engine']} is not known"
    return ""


def _facts(traces: Traces, row: Mapping[str, str]) -> RowFacts:
    (plan,) = PLAN.finditer(row["plan"])
    ranks = int(plan[2] or plan[6])
    return RowFacts(
        model=MODELS[row["engine"]],
        cluster="dgx-h100",
        engine=row["engine"],
        era=MONTH,
        plan={
            "tensor_parallel": ranks,
            "expert_parallel": ranks if plan[5] == "EP" else 1,
            "weights": "fp8" if row["engine"] == "vllm" else "bf16",
        },
        traffic={"trace": f"{_name(row)} of {row['file']}"},
        trace=_requests(row, plan, traces[_name(row)]),
    )


def _requests(row: Mapping[str, str], plan: re.Match[str], trace: list[tuple[float, int, int]]) -> Requests:
    """Return the requests of one replica, with outputs as long as the served ones."""
    replicas, place = int(plan[1] or 1), int(plan[4] or 0)
    own = np.array(trace)[place::replicas]
    arrival_s, prompts, outputs = own.T
    shorter = float(row["served_output_tokens"]) / float(row["trace_output_tokens"])
    lengths = np.maximum(np.rint(outputs * shorter), 1.0)
    return independent_requests(arrival_s, prompts.astype(np.intp), lengths.astype(np.intp))


def _measured(row: Mapping[str, str]) -> Iterator[Measured]:
    total_s = float(row["sum_latency_s"])
    yield Measured(quantity="sum_latency_s", unit="s", value=total_s, read=sum_of_latencies_s)
    if row["engine"] != "sglang":
        for column, metric in (("mean_ttft_s", "ttft"), ("mean_tpot_s", "tpot")):
            yield Measured(quantity=column, unit="s", value=float(row[column]), read=latency(metric, "s"))


TABLE = RunTable(
    header=("engine", "trace", "rate_per_s", "plan", "sum_latency_s", "served_output_tokens"), runs_of=_runs
)
