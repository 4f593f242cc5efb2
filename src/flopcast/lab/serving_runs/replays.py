"""Requests of a vLLM run, one per row: arrival, lengths, first and last token.

Source: data/serving/vllm_requests_*.csv; on GitHub casys-kaist/LLMServingSim, bench/examples, MIT.

The file name states the device and the model: vllm_requests_DEVICE_MODEL.csv. The settings are those in
the `meta.json` of each run: 128 sequences and 2048 new tokens in a pass, and 16-bit weights. Qwen3-32B
ran on two devices. The repository describes the link between them: 16 GB/s and 20 us (`link_bw` and
`link_latency` in configs/Qwen3-32B.json, commit 9692a581). Peer-to-peer copies over PCIe 5 are more than
twice as fast. The engine ran in the process that sent the requests, and returned tokens without text. The
arrivals and lengths in the file are replayed. Each request then gives a run; the means over all requests
and the order of their first tokens are separate runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from flopcast.lab.run_tables import ReadOptions, RunTable
from flopcast.lab.serving_runs.quantities import Event, latency, order_of_first_tokens, time_of_request
from flopcast.lab.serving_runs.rows import Measured, RowFacts, ServingRun, job_of_row
from flopcast.serving.requests import independent_requests
from flopcast.spec.serving_job import ServingJob

NAME = re.compile(r"vllm_requests_([^_]+)_(.+?)\.csv(\.gz)?")
CLUSTERS = {"RTXPRO6000": "rtx-pro-6000-8", "RTX4090": "rtx-4090-8", "H100": "dgx-h100"}
EVENTS: tuple[Event, ...] = ("first_token", "last_token")
RANKS = {"Qwen3-32B": 2}  # tensor-parallel, where it is not 1
# of the tier within the node, where devices exchange messages; the bandwidth is attained
LINK = {"bytes_per_s": 16e9, "latency_s": 20e-6, "attained_fraction": 1.0, "fabric": ""}


def _runs(path: Path, table: Sequence[Mapping[str, str]], _options: ReadOptions) -> Iterator[ServingRun]:
    """Yield a run for all requests of a file together, and one run for each request.

    All runs of a file have the same job, which is simulated once. The file's name states the device and
    the model; if the catalogue lacks the cluster or the model, the runs have the reason instead of a job.
    """
    named = NAME.fullmatch(path.name)
    reason, job, trace = "the file's name is not vllm_requests_DEVICE_MODEL.csv", None, None
    if named is not None and named[1] not in CLUSTERS:
        reason = f"{named[1]} has no cluster in the catalogue"
    elif named is not None:
        facts = _facts(named[1], named[2], path, table)
        (job, reason), trace = job_of_row(facts), facts.trace
        job = _with_link(job) if job is not None and job.plan.devices > 1 else job
    groups = {"engine": "vllm", "model": named[2] if named else "", "device": named[1] if named else ""}
    measured = [(path.stem, _of_all(table))]
    measured += [(row["request"], _of_one(place, row)) for place, row in enumerate(table)]
    for name, numbers in measured:
        yield ServingRun(
            id=name,
            source="LLMServingSim",
            job=job,
            reason=reason,
            measured=numbers,
            groups=groups,
            trace=trace,
        )


def _facts(device: str, model: str, path: Path, table: Sequence[Mapping[str, str]]) -> RowFacts:
    arrival_s, prompts, outputs = (
        np.array([float(row[name]) for row in table])
        for name in ("arrival_s", "prompt_tokens", "output_tokens")
    )
    return RowFacts(
        model=model,
        cluster=CLUSTERS[device],
        engine="vllm",
        plan={
            "tensor_parallel": RANKS.get(model, 1),
            "weights": "bf16",
            "max_sequences": 128,
            "max_tokens": 2048,
        },
        traffic={"trace": path.name},
        in_process=True,
        trace=independent_requests(arrival_s, prompts.astype(np.intp), outputs.astype(np.intp)),
    )


def _with_link(job: ServingJob) -> ServingJob:
    """Return a job whose devices exchange messages over the link that the repository describes."""
    inner, *others = job.cluster.tiers
    return job.with_part("cluster", tiers=(inner.model_copy(update=LINK), *others))


def _of_all(table: Sequence[Mapping[str, str]]) -> tuple[Measured, ...]:
    """Return the means over all requests, and the order of first tokens."""
    arrival_s, first_s, last_s, outputs = (
        np.array([float(row[name]) for row in table])
        for name in ("arrival_s", "first_token_s", "last_token_s", "output_tokens")
    )
    ttft_s, more = first_s - arrival_s, outputs > 1
    tpot_s = (last_s - first_s)[more] / (outputs[more] - 1)
    order = order_of_first_tokens(ttft_s)
    return (
        Measured(quantity="mean_ttft_s", unit="s", value=float(ttft_s.mean()), read=latency("ttft", "s")),
        Measured(quantity="mean_tpot_s", unit="s", value=float(tpot_s.mean()), read=latency("tpot", "s")),
        Measured(quantity="ttft_rank_correlation", unit="", value=1.0, read=order),
    )


def _of_one(place: int, row: Mapping[str, str]) -> tuple[Measured, ...]:
    return tuple(
        Measured(
            quantity=f"{event}_s",
            unit="s",
            value=float(row[f"{event}_s"]),
            read=time_of_request(event, place),
        )
        for event in EVENTS
    )


TABLE = RunTable(
    header=("request", "arrival_s", "queued_s", "first_token_s", "last_token_s"), runs_of=_runs
)
