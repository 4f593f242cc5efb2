"""The table of published deployments: what its rows describe, and which numbers they state."""

from pathlib import Path

import flopcast
from flopcast.files.yaml_text import read_yaml
from flopcast.lab.measured_tables import SERVING
from flopcast.lab.serving_runs.deployments import JOB, QUANTITIES
from flopcast.lab.serving_runs.score import score_runs

TABLE = Path(flopcast.__file__).parent / "catalog" / "runs" / "deployments.yaml"


def test_each_block_names_its_page_and_each_row_has_a_job_and_a_measured_number():
    blocks = read_yaml(TABLE.read_bytes(), TABLE.name).data["deployments"]
    runs = SERVING.read(TABLE)

    assert all(block["url"].startswith("https://") for block in blocks)
    assert all(set(block["columns"]) <= {*JOB, *QUANTITIES} for block in blocks)
    assert len(runs) == sum(len(block["rows"]) for block in blocks)
    assert [run.reason for run in runs if run.job is None] == []
    assert all(run.measured for run in runs)
    assert len({run.id for run in runs}) == len(runs)


def test_a_row_with_all_requests_at_once_has_them_in_flight_and_rates_of_a_device_are_shared_out():
    runs = {run.id: run for run in SERVING.read(TABLE)}
    run = runs["TensorRT-LLM 1.1, performance overview/gpt-oss-120b/dgx-h200/tp=1/1000/1000/all"]
    two = runs["GPUStack performance lab, GPT-OSS-120B on H100/gpt-oss-120b/dgx-h100/tp=2/229/217/4"]

    assert run.job.traffic.concurrency == run.job.traffic.requests == 3000
    assert (two.job.traffic.concurrency, two.job.traffic.requests, two.job.devices) == (4, 100, 2)
    rows = score_runs([two]).rows
    assert [row.measured.quantity for row in rows] == [
        "ttft_mean_ms",
        "tpot_mean_ms",
        "output_tokens_per_s",
    ]
    assert all(0.5 < row.predicted.value / row.measured.value < 2 for row in rows)
