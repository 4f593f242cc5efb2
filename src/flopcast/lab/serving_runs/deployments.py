"""Measured deployments on public pages: vendors' tables, blogs, and pull requests of engines.

Source: catalog/runs/deployments.yaml. The file has a list of blocks. Each block has the address of a page,
an engine, the names of columns, and rows. A row describes a job like a job file, and its other columns are
named after the measured quantities. `in_flight` is a number of requests, "all" or a rate, as in "4/s".
`repeated` is the number of prompts at the beginning that earlier runs sent.
`version` selects the release of the engine if the catalogue distinguishes releases: it begins with a
version, or states a month. If only a year is stated, its middle is used. Any other text in
`version` selects no release.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flopcast.files.yaml_text import Document
from flopcast.lab.run_tables import RunBlocks
from flopcast.lab.serving_runs.quantities import (
    latency,
    output_tokens_per_s,
    output_tokens_per_s_per_device,
)
from flopcast.lab.serving_runs.rows import ServingRun, job_or_reason, measured_in
from flopcast.library.edits import plan_words
from flopcast.library.engine_releases import has_releases
from flopcast.requests.serving_request import serving_job_of
from flopcast.spec.engine import UNKNOWN_RELEASE
from flopcast.spec.serving_job import ServingJob

YEAR = re.compile(r"20\d\d")
RELEASE = re.compile(r"^\d+\.\d+(\.\w+)*|20\d\d-\d\d|^20\d\d$")
JOB = ("model", "cluster", "plan", "prompt", "output", "in_flight", "requests")
QUANTITIES = {  # by column: unit, and how a report is read
    "ttft_mean_ms": ("ms", latency("ttft", "ms")),
    "ttft_p50_ms": ("ms", latency("ttft", "ms", "p50")),
    "ttft_p99_ms": ("ms", latency("ttft", "ms", "p99")),
    "tpot_mean_ms": ("ms", latency("tpot", "ms")),
    "tpot_p50_ms": ("ms", latency("tpot", "ms", "p50")),
    "itl_p50_ms": ("ms", latency("inter_token", "ms", "p50")),
    "end_to_end_mean_ms": ("ms", latency("end_to_end", "ms")),
    "output_tokens_per_s": ("tokens/s", output_tokens_per_s),
    "output_tokens_per_s_per_device": ("tokens/s", output_tokens_per_s_per_device),
}


def _blocks(data: object) -> Sequence[Mapping[str, Any]]:
    return data.get("deployments", ()) if isinstance(data, dict) else ()


def _runs(blocks: Sequence[Mapping[str, Any]]) -> Iterator[ServingRun]:
    for block in blocks:
        for values in block["rows"]:
            row = dict(zip(block["columns"], values, strict=True))
            job, reason = _job(_engine(block), row)
            yield ServingRun(
                id="/".join((str(block["source"]), *(str(row[name]) for name in JOB[:-1]))),
                source="deployments",
                job=job,
                reason=reason,
                measured=tuple(measured_in(row, QUANTITIES)),
                groups={
                    "engine": _base(block),
                    "model": str(row["model"]),
                    "device": str(row["cluster"]),
                    "first score": "not blind" if block.get("predicted_before") else "blind",
                },
                leave_out_share=float(block.get("steady", 0.0)),
            )


def _base(block: Mapping[str, Any]) -> str:
    engine = block["engine"]
    return str(engine["base"] if isinstance(engine, dict) else engine)


def _engine(block: Mapping[str, Any]) -> dict[str, object]:
    """Return the engine of a block in the release that the block states."""
    engine = block["engine"] if isinstance(block["engine"], dict) else {"base": block["engine"]}
    if not has_releases(_base(block)):
        return dict(engine)
    match = RELEASE.search(str(block["version"]))
    stated = match[0] if match else UNKNOWN_RELEASE
    return engine | {"release": f"{stated}-07" if YEAR.fullmatch(stated) else stated}


def _job(engine: object, row: Mapping[str, Any]) -> tuple[ServingJob | None, str]:
    """Return the job of a row without a reason, or the reason without a job."""
    requests, load = int(row["requests"]), row["in_flight"]
    described = {
        "model": row["model"],
        "cluster": row["cluster"],
        "engine": engine,
        "plan": plan_words(f"{row['plan']} replicas=1"),
        "traffic": {
            "rate" if "/" in str(load) else "concurrency": requests if load == "all" else load,
            "requests": requests,
            "prompt": row["prompt"],
            "output": row["output"],
            "repeated": row.get("repeated", 0),
        },
    }
    return job_or_reason(lambda: serving_job_of(Document("deployments", described, {}), _no_file))


def _no_file(*_: object) -> bytes:
    raise FileNotFoundError


TABLE = RunBlocks(blocks_of=_blocks, runs_of=_runs)
