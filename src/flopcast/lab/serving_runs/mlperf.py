"""MLPerf Inference v5.1, language models: tokens per second, and latencies of the scenarios with arrivals.

Source: data/serving/mlperf_inference_v5.1_llm.csv; on GitHub mlcommons/inference_results_v5.1. One row is
one scenario of one submitted system.

Submitters choose their plans, which are not in the table. Predictions of DeepSeek-R1 use the plan that
TensorRT-LLM's documentation recommends for it, and all others the smallest tensor-parallel degree at which
the model fits, with as many instances as fit on all devices. Each number is the best of a submitter's
search. The table does not state lengths. The mean length of outputs is about the tokens per second divided
by the queries per second of rows with arrivals; names.yaml lists it with the assumed lengths of prompts.
In the Offline scenario, LoadGen sends all requests at once, and a run ends with the longest of the last
outputs. The table does not state the number of requests. It is the result times the duration of the run,
divided by the mean length of outputs. Other scenarios have random arrivals at the rate of the row. The
result of such a scenario is therefore at most this rate times the mean length.
"""

import re
from collections.abc import Iterator, Mapping

from flopcast.files.package_table import read_table
from flopcast.lab.run_tables import RunTable, by_row
from flopcast.lab.serving_runs.quantities import latency, output_tokens_per_s, requests_per_s
from flopcast.lab.serving_runs.rows import Measured, RowFacts, ServingRows, measured_in

_NAMES = read_table(__package__, "names.yaml")["mlperf"]
CLUSTERS, MODELS, LENGTHS, ENGINES, PER_CARD, PLANS = (
    _NAMES[name]
    for name in ("clusters", "models", "lengths", "engines", "devices_per_accelerator", "plans")
)
BUILT = "TensorRT "  # builds engines, whose kernels a C++ runtime launches
WHOLE_ANSWER = 20_000  # tokens: LoadGen takes only the first token and the whole answer, at most this long
FORMATS = {"fp8": "fp8", "fp4": "nvfp4", "INT4": "int4", "UINT4": "int4"}
FEWEST_REQUESTS, SECONDS = 400, 120.0  # of arrivals that are played on one engine
MISLABELLED = 2.0  # times the offered queries: no server answers as many, so a result counts tokens
MIN_DURATION_S = 600.0  # of a run, Offline.min_duration of mlperf.conf in mlcommons/inference
MOST_REQUESTS = 20_480  # of each device in the Offline scenario: more change the rate by less than 2 %

LATENCIES = {  # by column: unit, and how a report is read
    f"{metric}_{name}_ms": ("ms", latency(metric, "ms", name))
    for metric in ("ttft", "tpot")
    for name in ("mean", "p50", "p99")
}


def _measured(row: Mapping[str, str]) -> Iterator[Measured]:
    offered = float(row["target_qps"] or "inf")
    of_tokens = row["units"] == "Tokens/s" or float(row["result"]) > MISLABELLED * offered
    yield Measured(
        quantity="result",
        unit="tokens/s" if of_tokens else "queries/s",
        value=float(row["result"]),
        read=output_tokens_per_s if of_tokens else requests_per_s,
    )
    yield from measured_in(row, LATENCIES)


def _unsupported(row: Mapping[str, str]) -> str:
    """Return why a row cannot be predicted; empty if it can be predicted."""
    device, software, model = row["accelerator"], row["software"], row["model"]
    reasons = {
        "accelerator is empty: the host computes, and no entry of the catalogue describes it": not device,
        f"accelerator = {device}: replicas on different devices are not supported": " (x" in device,
        f"accelerator = {device} has no cluster in the catalogue": device not in CLUSTERS,
        f"the catalogue has no engine for software = {software.split(',')[0]}": _engine(software) is None,
        f"the catalogue has no model {model}": model not in MODELS,
        f"weights = {row['weights']} is not supported yet": row["weights"] not in FORMATS,
        "target_qps, the rate of arrivals, is missing": row["scenario"] != "Offline"
        and not row["target_qps"],
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _engine(software: str) -> Mapping[str, str] | None:
    """Return the engine and, if a product stands for one, its release."""
    return next((engine for name, engine in ENGINES.items() if software.startswith(name)), None)


def _era(software: str) -> str:
    """Return the release that a row states; "" for submitters' own builds, whose scheduling differs.

    >>> _era("vLLM 0.9.0.2.dev108+g71faa1880, ROCm"), _era("vLLM 0.6.5.dev964+mlperf50")
    ('0.9.0', '')
    """
    match = re.match(r"vLLM (\d+\.\d+\.\d+)(?!\S*\+mlperf)", software)
    return match[1] if match else (_engine(software) or {}).get("release", "")


def _facts(row: Mapping[str, str]) -> RowFacts:
    cards = int(row["nodes"]) * int(row["accelerators"])
    devices = cards * PER_CARD.get(row["accelerator"], 1)
    model, engine = MODELS[row["model"]], _engine(row["software"]) or {}
    prompt, output = LENGTHS[model]
    traffic: dict[str, object] = {"prompt_tokens": prompt, "output_tokens": output}
    if row["scenario"] == "Offline":
        run_s = float(row.get("latency_p99_s") or MIN_DURATION_S)  # nearly the latency of the last request
        sent = float(row["result"]) * run_s / float(re.findall(r"\d+", output)[0])  # by the mean length
        requests = max(min(int(sent), MOST_REQUESTS * devices), devices)
        traffic |= {"concurrency": requests, "requests": requests}
    else:
        rate = float(row["target_qps"])
        played = max(int(rate * SECONDS), FEWEST_REQUESTS * devices)
        traffic |= {"rate_per_s": rate, "requests": played}
    return RowFacts(
        model=model,
        cluster=CLUSTERS[row["accelerator"]],
        engine=engine["engine"],
        era=_era(row["software"]),
        plan={"weights": FORMATS[row["weights"]], "cache": "fp8", **PLANS.get(model, {})},
        traffic=traffic,
        devices=devices,
        settings={"stream_interval": WHOLE_ANSWER, "release": engine.get("month", "")},
        launches_by_python=not row["software"].startswith(BUILT),
    )


ROWS = ServingRows(
    source="MLPerf Inference v5.1",
    identity=("id", "model", "scenario"),
    groups=lambda row: {"model": row["model"], "device": row["accelerator"], "scenario": row["scenario"]},
    measured=_measured,
    unsupported=_unsupported,
    facts=_facts,
    leave_out_share=0.1,
)
TABLE = RunTable(
    header=("scenario", "accelerator", "target_qps", "ttft_p99_ms", "tpot_p99_ms", "result"),
    runs_of=by_row(ROWS.run_of),
)
