"""Serving measurements collected on 2026-11-29, and written down before any of them was predicted.

Their first scores are kept in docs/accuracy/serving.md. Limits leave room for what other work moves.
"""

from pathlib import Path

import numpy as np

from flopcast.files.yaml_text import read_yaml
from flopcast.lab.measured_tables import SERVING
from flopcast.lab.scores import statistics
from flopcast.lab.serving_runs.score import score_runs

TABLE = Path(__file__).with_name("collected_serving.yaml")
SECOND = TABLE.with_name("collected_serving_2.yaml")
THIRD = TABLE.with_name("collected_serving_3.yaml")
FOURTH = TABLE.with_name("collected_serving_4.yaml")
SLOW = "gcp-v6e"  # many small passes: half of the time of the test


def test_each_row_of_the_table_has_a_job_or_a_reason_and_measured_numbers():
    blocks = read_yaml(TABLE.read_bytes(), TABLE.name).data["deployments"]
    runs = SERVING.read(TABLE)

    assert all(block["url"].startswith("https://") and "version" in block for block in blocks)
    assert len({run.id for run in runs}) == len(runs) == sum(len(block["rows"]) for block in blocks)
    assert all((run.job is None) == bool(run.reason) for run in runs)
    assert all(run.measured for run in runs)
    rates = [run.job.traffic.rate_per_s for run in runs if run.job and run.job.traffic.rate_per_s]
    assert sorted(rates) == [1, 2, 2, 4, 8]


def test_half_of_the_predictions_are_near_what_was_measured():
    runs = [run for run in SERVING.read(TABLE) if SLOW not in run.id]

    scores = score_runs(runs)

    assert {row.run.id for row in scores.rows} | {run.id for run in scores.left_out} == {
        run.id for run in runs
    }
    assert len(scores.left_out) <= 8
    assert all(run.reason for run in scores.left_out)
    assert all(np.isfinite(row.predicted.value) for row in scores.rows)
    found = statistics(scores.rows)
    assert found["median"] <= 0.5
    assert abs(found["bias"]) <= 0.15
    assert found["inside"] >= 0.5


def test_further_collections_are_predicted_as_well_as_their_blind_scores():
    """The blind medians were 16, 15 and 22 %. Long outputs and thousands of prompts would take minutes."""
    for table, requests, least, median in (
        (SECOND, 500, 25, 0.2),
        (THIRD, 128, 15, 0.2),
        (FOURTH, 128, 15, 0.25),
    ):
        runs = [
            run
            for run in SERVING.read(table)
            if run.job.traffic.requests <= requests and "8000" not in run.id
        ]

        found = statistics(score_runs(runs).rows)

        assert len(runs) > least
        assert found["median"] <= median
        assert abs(found["bias"]) <= 0.1
        assert found["inside"] >= 0.65
