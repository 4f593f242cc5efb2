"""Serving measurements collected on 2026-11-29, and written down before any of them was predicted."""

from pathlib import Path

from flopcast.files.yaml_text import read_yaml
from flopcast.lab.measured_tables import SERVING

TABLE = Path(__file__).with_name("collected_serving.yaml")


def test_each_row_of_the_table_has_a_job_or_a_reason_and_measured_numbers():
    blocks = read_yaml(TABLE.read_bytes(), TABLE.name).data["deployments"]
    runs = SERVING.read(TABLE)

    assert all(block["url"].startswith("https://") and "version" in block for block in blocks)
    assert len({run.id for run in runs}) == len(runs) == sum(len(block["rows"]) for block in blocks)
    assert all((run.job is None) == bool(run.reason) for run in runs)
    assert all(run.measured for run in runs)
    rates = [run.job.traffic.rate_per_s for run in runs if run.job and run.job.traffic.rate_per_s]
    assert sorted(rates) == [1, 2, 2, 4, 8]
