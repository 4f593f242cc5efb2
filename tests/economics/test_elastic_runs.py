"""Runs whose number of devices changes: each change is a planned checkpoint and a restart."""

import pytest
from conftest import make_job
from unmarked import unmarked

from flopcast.economics.run import TrainingRun
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.training_run import as_json, marked_text
from flopcast.report.training import training
from flopcast.spec.operations import HOUR_S

as_text = unmarked(marked_text)

PRICE = {"device_usd_per_hour": "2 USD/h"}
RELIABILITY = {"restart_s": "300 s", "checkpoint_s": "20 s"}


def report_on(nodes):
    """The prediction of a job on so many nodes."""
    cluster = {"base": f"dgx-a100:{nodes}", "price": PRICE, "reliability": RELIABILITY}
    job = make_job(cluster=cluster, plan=f"dp={8 * nodes} mbs=1 gbs={16 * nodes} precision=fp16")
    return predict(job, load_book(job.cluster))


def test_each_change_of_the_number_of_devices_costs_a_checkpoint_and_a_restart():
    two, one = report_on(2), report_on(1)
    tokens = ((4e9, two), (1e9, one), (2e9, one), (3e9, two))

    run = training((f"{count:g}", count, report) for count, report in tokens).run

    alone = [TrainingRun(phases=training([("", count, report)]).run.phases) for count, report in tokens]
    assert run.wall_s.value == pytest.approx(
        sum(each.wall_s.value for each in alone) + 2 * 320.0, rel=1e-12
    )
    assert [phase.resized_s.value for phase in run.phases] == [0.0, 320.0, 0.0, 320.0]
    paid_usd = 2.0 / HOUR_S * 320.0 * (8 + 16)  # by the devices of the phase that begins
    assert run.usd.value == pytest.approx(sum(each.usd.value for each in alone) + paid_usd, rel=1e-12)
    assert run.joules.value > sum(each.joules.value for each in alone)


def test_phases_on_equally_many_devices_are_not_stopped():
    one = report_on(1)

    whole = training((name, 1e9, one) for name in ("a", "b"))

    assert whole.run.wall_s.value == pytest.approx(2 * training([("a", 1e9, one)]).run.wall_s.value)
    assert "planned restart" not in as_text(whole)


def test_text_and_json_say_what_the_changes_cost():
    whole = training([("a", 1e9, report_on(2)), ("b", 1e9, report_on(1))])

    assert "devices   16 → 8: 1 planned restart, 5.33 min in all" in as_text(whole)
    assert [phase["resized_s"] for phase in as_json(whole)["phases"]] == [0.0, 320.0]
