"""Runs of APEX: traces that vLLM and SGLang served on eight H100.

Source: data/serving/apex_h100_mistral.csv and apex_traces_mistral.csv.gz; on GitHub microsoft/apex_plus,
MIT. One row is one trace on one deployment.

vLLM served Mistral-Large-2407 and SGLang Mixtral-8x22B (README of the data). The traces lie beside the
table. Rows whose plan has several replicas served every n-th request of the trace, one row for each
replica. Served outputs are shorter than those of the trace: all are shortened alike. The means of SGLang
are mislabelled, so that its sum of latencies stands for them.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from flopcast.lab.serving_runs.measured import Measured, ServingRun, opened
from flopcast.lab.serving_runs.quantities import latency, sum_of_latencies_s
from flopcast.lab.serving_runs.row_jobs import RowFacts, job_of_row
from flopcast.serving.requests import Requests, independent_requests

HEADER = ("engine", "trace", "rate_per_s", "plan", "sum_latency_s", "served_output_tokens")
TRACES = ("apex_traces_mistral.csv.gz", "apex_traces_mistral.csv")
MODELS = {"vllm": "mistral-large-123b", "sglang": "mixtral-8x22b"}
PLAN = re.compile(r"(?:(\d+)DP)?(\d+)(?:TP|EP)(_fp8)?(?:_(\d+))?|(TP|EP)(\d+)")
Traces = Mapping[str, list[tuple[float, int, int]]]


def runs_of(path: Path, rows: Iterable[Mapping[str, str]]) -> tuple[ServingRun, ...]:
    """Return the runs of a table, whose traces lie in the same folder."""
    traces = _traces(path.parent)
    return tuple(_run(row, traces) for row in rows)


def _traces(folder: Path) -> Traces:
    """Return arrivals and lengths of the requests of each trace; empty without the file."""
    found: dict[str, list[tuple[float, int, int]]] = {}
    path = next((folder / name for name in TRACES if (folder / name).is_file()), None)
    if path is None:
        return found
    with opened(path) as file:
        for row in csv.DictReader(file):
            request = (float(row["arrival_s"]), int(row["prompt_tokens"]), int(row["output_tokens"]))
            found.setdefault(row["trace"], []).append(request)
    return found


def _run(row: Mapping[str, str], traces: Traces) -> ServingRun:
    name = f"{row['trace']}_{row['rate_per_s'].replace('.', '')}"
    plan = PLAN.fullmatch(row["plan"])
    reason, facts, job = "", None, None
    if name not in traces:
        reason = f"the trace {name} is not in {TRACES[0]} beside the table"
    elif plan is None or row["engine"] not in MODELS:
        reason = f"plan = {row['plan']} of {row['engine']} is not known"
    else:
        facts = _facts(row, plan, name, _requests(row, plan, traces[name]))
        job, reason = job_of_row(facts)
    return ServingRun(
        id=row["file"],
        source="APEX",
        job=job,
        reason=reason,
        measured=_measured(row),
        groups={"engine": row["engine"], "model": MODELS.get(row["engine"], ""), "trace": row["trace"]},
        trace=None if facts is None else facts.trace,
    )


def _facts(row: Mapping[str, str], plan: re.Match[str], name: str, requests: Requests) -> RowFacts:
    ranks = int(plan[2] or plan[6])
    return RowFacts(
        model=MODELS[row["engine"]],
        cluster="dgx-h100",
        engine=row["engine"],
        plan={
            "tensor_parallel": ranks,
            "expert_parallel": ranks if plan[5] == "EP" else 1,
            "weights": "fp8" if plan[3] else "bf16",
        },
        traffic={"trace": f"{name} of {row['file']}"},
        trace=requests,
    )


def _requests(row: Mapping[str, str], plan: re.Match[str], trace: list[tuple[float, int, int]]) -> Requests:
    """Return the requests of one replica, with outputs as long as those that were served."""
    replicas, place = int(plan[1] or 1), int(plan[4] or 0)
    own = np.array(trace)[place::replicas]
    arrival_s, prompts, outputs = own.T
    shorter = float(row["served_output_tokens"]) / float(row["trace_output_tokens"])
    lengths = np.maximum(np.rint(outputs * shorter), 1.0)
    return independent_requests(arrival_s, prompts.astype(np.intp), lengths.astype(np.intp))


def _measured(row: Mapping[str, str]) -> tuple[Measured, ...]:
    total = Measured(
        quantity="sum_latency_s", unit="s", value=float(row["sum_latency_s"]), read=sum_of_latencies_s
    )
    if row["engine"] == "sglang":
        return (total,)
    means = tuple(
        Measured(quantity=column, unit="s", value=float(row[column]), read=latency(metric, "s"))
        for column, metric in (("mean_ttft_s", "ttft"), ("mean_tpot_s", "tpot"))
    )
    return (total, *means)
