"""economics/run.py and report/training.py: phases add, and nothing is lost without failures."""

import math
from functools import cache

import pytest
from all_cases import all_cases
from conftest import make_job
from unmarked import unmarked

from flopcast.economics.run import TrainingRun, phase_of
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.quantities import parse_tokens
from flopcast.render.training_run import as_json, marked_text
from flopcast.report.training import training
from flopcast.requests.phase_files import load_phases
from flopcast.spec.operations import Price, Reliability

as_text = unmarked(marked_text)

NEVER = Reliability(device_time_between_failures_s=1e18, checkpoint_s=1e-9)
OFTEN = Reliability(device_time_between_failures_s=8 * 7200.0, restart_s=600.0, checkpoint_s=30.0)


@cache
def report_of(reliability=OFTEN, plan="dp=8 mbs=1 gbs=16 precision=fp16"):
    job = make_job(plan=plan)
    stated = {"price": Price(device_usd_per_hour=2.5), "reliability": reliability}
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update=stated)})
    return predict(job, load_book(job.cluster))


def run_of(*tokens, report=None):
    told = report or report_of()
    return TrainingRun(phases=tuple(phase_of("", each, told.cost, told.job.cluster) for each in tokens))


def test_a_run_without_failures_takes_its_steps_and_no_more():
    report = report_of(NEVER)

    run = run_of(1e9, report=report)

    steps = 1e9 / report.job.step_tokens
    assert run.goodput == pytest.approx((1, 1, 1), abs=1e-6)
    assert run.wall_s.value == pytest.approx(steps * report.step_time_s)
    assert run.usd.value == pytest.approx(steps * report.cost.step_usd.value)
    assert run.joules.value == pytest.approx(steps * report.cost.energy.step_j.value)
    interval = [bound / run.wall_s.value for bound in run.wall_s.bounds]
    assert interval == pytest.approx(
        [report.step_time_low_s / report.step_time_s, report.step_time_high_s / report.step_time_s],
        rel=1e-6,
    )


def test_phases_add():
    """Two halves of a run cost the whole, and are as unsure: they share every factor."""
    halves, whole = run_of(4e9, 6e9), run_of(1e10)

    for name in ("wall_s", "useful_s", "usd", "joules"):
        parts, total = getattr(halves, name), getattr(whole, name)
        assert parts.value == pytest.approx(total.value)
        assert parts.bounds == pytest.approx(total.bounds)
    assert halves.goodput == pytest.approx(whole.goodput)
    assert halves.num_failures == pytest.approx(whole.num_failures)


def test_what_failures_take_is_paid_for_and_drawn():
    """Every second on the clock costs; steps done again draw as steps, the rest as a standing cluster."""
    report = report_of()

    run = run_of(1e10, report=report)

    (phase,) = run.phases
    lost, useful_s = phase.lost, run.useful_s.value
    assert run.usd.value == pytest.approx(run.wall_s.value * 8 * 2.5 / 3600)
    running_s = useful_s * (1 + lost.redone.value)
    stopped_s = useful_s * (lost.saving.value + lost.restarting.value)
    assert running_s + stopped_s == pytest.approx(run.wall_s.value)
    step_w = report.cost.energy.step_j.value / report.step_time_s
    joules = running_s * step_w + stopped_s * report.cost.energy.stopped_w.value
    assert run.joules.value == pytest.approx(joules)
    assert report.cost.energy.stopped_w.value < step_w


def test_goodput_is_a_share_of_the_time_whatever_its_interval():
    share, low, high = run_of(1e10).goodput

    assert 0 < low < share < high < 1
    assert share == pytest.approx(run_of(1e10).useful_s.value / run_of(1e10).wall_s.value)


@all_cases(("field", "factor"), [("restart_s", "restart"), ("checkpoint_s", "checkpoint")])
@all_cases("name", ["wall_s", "joules"])
def test_slopes_of_a_run_are_those_of_finite_differences(field, factor, name):
    nudge, fixed = 1e-4, OFTEN.model_copy(update={"checkpoint_interval_s": 1500.0})

    def nudged(sign):
        changed = fixed.model_copy(update={field: getattr(fixed, field) * math.exp(sign * nudge)})
        return getattr(run_of(1e10, report=report_of(changed)), name)

    slope = math.log(nudged(1).value / nudged(-1).value) / (2 * nudge)
    share = {f.name: f.share for f in nudged(0).factors}[f"{factor}[dgx-a100]"]
    assert share == pytest.approx(slope, rel=1e-4)


def test_text_and_json_tell_the_same_run():
    other = report_of(plan="dp=8 mbs=2 gbs=64 precision=fp16")
    told = training([("ramp", 1e9, report_of()), ("main", 9e9, other)])

    text, data = as_text(told), as_json(told)

    assert "10.0 B in" in text
    assert "ramp" in text
    assert "main" in text
    assert data["tokens"] == 1e10
    assert data["days"] == pytest.approx(told.run.wall_s.value / 86400)
    assert data["days_low"] < data["days"] < data["days_high"]
    assert data["cost_usd"] == pytest.approx(sum(phase["cost_usd"] for phase in data["phases"]))
    assert data["energy_kwh"] == pytest.approx(sum(phase["energy_kwh"] for phase in data["phases"]))
    assert [phase["job"]["plan"]["global_batch"] for phase in data["phases"]] == [16, 64]
    assert {f["name"] for f in data["factors"]} >= {"failures[dgx-a100]", "restart[dgx-a100]"}


def test_a_phase_without_a_price_leaves_the_total_unknown():
    report = report_of()
    bare = report.job.model_copy(update={"cluster": report.job.cluster.model_copy(update={"price": None})})
    free = predict(bare, load_book(bare.cluster))

    told = training([("paid", 1e9, report), ("free", 1e9, free)])

    assert as_json(told)["cost_usd"] is None
    assert as_json(told)["phases"][0]["cost_usd"] > 0


@all_cases(
    ("text", "tokens"), [("2e12", 2e12), ("2T", 2e12), ("300 B", 3e11), ("1.5M", 1.5e6), ("100", 100.0)]
)
def test_tokens_are_written_as_people_write_them(text, tokens):
    assert parse_tokens(text) == tokens


def test_a_file_of_phases_keeps_its_order_and_tells_faults_with_their_lines(tmp_path):
    path = tmp_path / "phases.yaml"
    path.write_text(
        "phases:\n  - {name: a, tokens: 1T, changes: plan.gbs=8 batch.seq=64}\n  - {tokens: 2e9}\n"
    )

    (first, second), problems = load_phases(path)

    assert not problems
    assert (first.name, first.tokens, first.words) == ("a", 1e12, ("plan.gbs=8", "batch.seq=64"))
    assert (second.tokens, second.words) == (2e9, ())
    path.write_text("phases:\n  - {tokens: 0}\n  - {tokens: 1, speed: 3}\n")
    _, problems = load_phases(path)
    assert {(p.where.rpartition(":")[2], p.field) for p in problems} == {
        ("2", "phases[0].tokens"),
        ("3", "phases[1].speed"),
    }


def test_what_a_run_does_not_know_it_says_how_to_tell():
    report = report_of()
    group = report.job.cluster.groups[0]
    device = group.node.device.model_copy(update={"board_power_w": None})
    group = group.model_copy(update={"node": group.node.model_copy(update={"device": device})})
    bare = report.job.cluster.model_copy(update={"price": None, "groups": (group,)})
    told = training(
        [("all", 1e9, predict(report.job.model_copy(update={"cluster": bare}), load_book(bare)))]
    )

    text, data = as_text(told), as_json(told)

    assert "cost      unknown: set the price of a device with --price" in text
    assert "energy    unknown: board_power_w" in text
    assert (data["cost_usd"], data["energy_kwh"]) == (None, None)
    assert data["days"] > 0


def test_a_longer_checkpoint_is_taken_less_often_and_loses_more():
    quick, slow = (
        run_of(1e10, report=report_of(OFTEN.model_copy(update={"checkpoint_s": seconds})))
        for seconds in (5.0, 120.0)
    )

    assert slow.phases[0].lost.interval_s > 3 * quick.phases[0].lost.interval_s
    assert slow.goodput[0] < quick.goodput[0]
    assert slow.wall_s.value > quick.wall_s.value


def test_a_stated_interval_of_checkpoints_is_kept():
    stated = OFTEN.model_copy(update={"checkpoint_interval_s": 4000.0})

    kept, best = run_of(1e10, report=report_of(stated)), run_of(1e10)

    assert kept.phases[0].lost.interval_s == 4000.0
    assert (
        as_json(training([("a", 1e9, report_of(stated))]))["phases"][0]["checkpoint_interval_s"] == 4000.0
    )
    assert kept.wall_s.value > best.wall_s.value


def test_phases_on_clusters_of_two_sizes_fail_each_at_its_own_rate():
    small, job = report_of(), make_job(cluster="dgx-a100:4", plan="dp=32 mbs=1 gbs=64 precision=fp16")
    stated = {"price": Price(device_usd_per_hour=2.5), "reliability": OFTEN}
    large = predict(
        job.model_copy(update={"cluster": job.cluster.model_copy(update=stated)}), load_book(job.cluster)
    )

    run = training([("small", 1e9, small), ("large", 1e9, large)]).run

    first, second = run.phases
    assert first.lost.time_between_failures_s == pytest.approx(4 * second.lost.time_between_failures_s)
    assert run.wall_s.value == pytest.approx(first.wall_s.value + second.wall_s.value)
    assert run.num_failures == pytest.approx(first.num_failures + second.num_failures)
