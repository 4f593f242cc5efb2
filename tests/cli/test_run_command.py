"""`flopcast run`, and what a device costs: --price, cluster.price, the catalogue."""

import pytest
from command_line import JOB, data_of, flopcast

from flopcast.requests import phase_files

RELIABLE = "cluster.reliability.device_time_between_failures_s=1e9 h"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_a_run_takes_its_tokens_over_the_rate_where_nothing_fails(job):
    step, run = data_of("predict", job), data_of("run", job, RELIABLE, "--tokens", "1B")

    assert run["goodput"] > 0.9999
    assert run["days"] == pytest.approx(1e9 / step["tokens_per_s"] / 86400, rel=1e-3)
    assert run["cost_usd"] == pytest.approx(step["cost_usd_per_1e12_tokens"] / 1000, rel=1e-3)
    assert run["energy_kwh"] == pytest.approx(step["energy_kwh_per_1e12_tokens"] / 1000, rel=1e-3)


def test_phases_have_jobs_of_their_own(job, tmp_path):
    phases = tmp_path / "phases.yaml"
    phases.write_text(
        "phases:\n  - {tokens: 1B, changes: batch.seq=1024}\n  - {tokens: 1B, changes: plan.gbs=8}\n"
    )

    first, second = data_of("run", job, "--phases", phases)["phases"]

    assert (first["name"], second["name"]) == ("phase 1", "phase 2")
    assert first["job"]["batch"]["sequence_length"] * 2 == second["job"]["batch"]["sequence_length"]
    assert first["steps"] == pytest.approx(second["steps"])


def test_a_devices_price_on_the_command_line_beats_the_catalogues(job):
    listed, own = data_of("predict", job), data_of("predict", job, "--price", "5.58 USD/h")

    assert listed["price"]["name"] == "a100-sxm4-80gb"
    assert own["price"]["terms"] == "own"
    ratio = 5.58 / listed["price"]["device_usd_per_hour"]
    assert own["cost_usd_per_step"] == pytest.approx(ratio * listed["cost_usd_per_step"])


def test_a_later_change_beats_the_price_of_an_option(job):
    words = ("predict", job, "--price", "5 USD/h", "cluster.price.device_usd_per_hour=7 USD/h")

    assert data_of(*words)["price"]["device_usd_per_hour"] == 7


def test_the_price_of_an_option_is_kept_where_a_change_names_the_cluster(job):
    assert data_of("predict", job, "--price", "5 USD/h", "cluster=dgx-h100:1")["price"]["terms"] == "own"


def test_a_price_of_the_catalogue_is_taken_by_its_name(job):
    price = data_of("predict", job, "cluster=aws-p5:1", "--price", "aws-p5-reserved")["price"]

    assert (price["name"], price["terms"]) == ("aws-p5-reserved", "reserved")


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("-2 USD/h", "a quantity above 0 USD/h"),
        ("2 EUR/h", "1.5 USD/h"),
        ("2", "1.5 USD/h"),
        ("aws-p55", "did you mean aws-p5"),
        ("aws-p5", "the price and the cluster name different devices"),
    ],
)
def test_a_price_that_is_none_is_told_with_the_option(job, price, told):
    ended = flopcast("predict", job, "--price", price)

    assert ended.code == 1
    assert "--price" in ended.err
    assert told in ended.err


def test_without_a_price_the_report_says_how_to_give_one(job):
    text = flopcast("predict", job, "cluster=vista:8").out

    assert "cost      unknown: set the price of a device with --price" in text
    assert data_of("predict", job, "cluster=vista:8")["cost_usd_per_step"] is None


@pytest.mark.parametrize("words", [(), ("--tokens", "0"), ("--tokens", "2T", "--phases", "p.yaml")])
def test_a_run_of_no_tokens_is_told(job, words):
    ended = flopcast("run", job, *words)

    assert ended.code == 1
    assert "tokens" in ended.err or "--phases" in ended.err


def test_a_cluster_that_fails_faster_than_it_starts_is_infeasible(job):
    often = "cluster.reliability.device_time_between_failures_s=1 h"

    ended = flopcast("run", job, often, "--tokens", "1B")

    assert ended.code == 2
    assert "almost no progress" in ended.err


def test_a_fault_in_the_changes_of_a_phase_names_their_line(job, tmp_path, monkeypatch):
    phases = tmp_path / "phases.yaml"
    phases.write_text("phases:\n  - {tokens: 1T}\n  - tokens: 1T\n    changes: plan.mbs=0.5\n")
    monkeypatch.setattr(phase_files, "resolve", None)  # no plan is chosen before all phases are checked

    ended = flopcast("run", job, "--phases", phases)

    assert ended.code == 1
    assert f"{phases}:4: argument plan.mbs=0.5: plan.micro_batch" in ended.err
