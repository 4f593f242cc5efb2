"""Timers beside predicted parts: what each timer of Megatron-LM and DeepSpeed holds."""

import pytest
from all_cases import all_cases
from judged import GOOD, PREDICTOR, suspects
from judged import without_plans as found

from flopcast.jobs import job
from flopcast.lab.diagnosis.timer_suspects import stage_ratio, timed_parts
from flopcast.report.report import BUBBLE

JOBS = {
    "dense": GOOD,
    "not overlapped": GOOD | {"stack": "megatron-core"},
    "stages": GOOD | {"plan": "dp=8 pp=4 gbs=128 mbs=1 zero=1"},
    "interleaved": GOOD | {"plan": "dp=8 pp=4 vpp=2 gbs=128 mbs=1 zero=1"},
    "unequal stages": GOOD | {"plan": "dp=8 pp=4 gbs=128 mbs=1 zero=1 stage_layers=7,9,9,7"},
    "tensor parallel": GOOD | {"plan": "dp=8 tp=4 sp gbs=128 mbs=1 zero=1"},
    "parameters shared": GOOD | {"stack": "deepspeed-zero", "plan": "dp=32 gbs=128 mbs=1 zero=3"},
    "DeepSpeed's stages": GOOD | {"stack": "gpt-neox-deepspeed", "plan": "dp=8 pp=4 gbs=128 mbs=1 zero=1"},
    "experts": {
        "model": "mixtral-8x7b",
        "cluster": "dgx-h100:8",
        "stack": "megatron-core-2026",
        "plan": "dp=16 ep=8 etp=1 pp=4 gbs=256 mbs=1 zero=1",
    },
}


def log(one, timers, step_s):
    """Thirty steps with timers: (fastest, slowest) or one number, in seconds."""
    lines = []
    for step in range(1, 31):
        lines.append(
            f" iteration {step:8d}/   20000 | elapsed time per iteration (ms): {1e3 * step_s:.2f} |"
            f" global batch size: {one.plan.global_batch:5d} | lm loss: 1.08E+01 |"
        )
        lines.append("(min, max) time across ranks (ms):")
        for name, seconds in timers.items():
            least_s, most_s = seconds if isinstance(seconds, tuple) else (seconds, seconds)
            lines.append(f"    {name} ..............: ({1e3 * least_s:.3f}, {1e3 * most_s:.3f})")
    return "\n".join(lines) + "\n"


def as_predicted(report):
    """The parts of a step, with jitter among what ranks wait, and the time of both passes."""
    parts = {"gradients": 0.0, "parameters": 0.0, "between": 0.0} | timed_parts(report)
    parts["stages"] += report.step_time_s - report.clean_step_time_s
    return parts, parts["compute"] + parts["stages"] + parts["gradients"]


@all_cases("name", JOBS)
def test_the_predicted_parts_sum_to_the_step(name):
    report = PREDICTOR.predict(job(**JOBS[name]))

    parts = timed_parts(report)

    assert sum(parts.values()) == pytest.approx(report.clean_step_time_s, rel=1e-6)
    assert all(seconds >= 0.0 for seconds in parts.values())


def test_reductions_of_experts_are_gradients_and_their_parameters_are_gathered():
    report = PREDICTOR.predict(job(**JOBS["experts"]))
    spent = {share.item.name: 0.0 for share in report.timeline.bottleneck_attribution if share.item}
    for share in report.timeline.bottleneck_attribution:
        if share.item:
            spent[share.item.name] += share.path_s

    parts = timed_parts(report)

    assert parts["gradients"] >= spent["gradients.reduce_experts"] > 0.0
    assert parts["parameters"] >= spent["gradients.gather_parameters_experts"] > 0.0


@all_cases("name", JOBS)
def test_timers_of_either_level_that_are_as_predicted_give_no_suspect(name):
    one = job(**JOBS[name])
    report = PREDICTOR.predict(one)
    parts, passes_s = as_predicted(report)
    ratio = stage_ratio(report)
    first = {
        "forward-backward": passes_s,
        "all-grads-sync": parts["gradients"],
        "params-all-gather": parts["parameters"],
        "optimizer": parts["optimizer"] + parts["parameters"],
    }
    second = first | {
        "forward-compute": (parts["compute"] / 3 / ratio, parts["compute"] / 3),
        "backward-compute": (2 * parts["compute"] / 3 / ratio, 2 * parts["compute"] / 3),
    }
    for timers in (first, second):
        told = found(one, log(one, timers, report.step_time_s))

        assert suspects(told, "measured", "within doubt", "possible") == {}
        assert all("-" not in text.split("show")[1].split(" for ")[0] for text in told.cleared)


def test_without_timers_of_forward_and_backward_the_reduction_is_not_counted_twice():
    one = job(**GOOD)
    report = PREDICTOR.predict(one)
    parts, passes_s = as_predicted(report)
    slow_s = 0.3 * report.step_time_s
    timers = {"forward-backward": passes_s + slow_s, "all-grads-sync": parts["gradients"] + slow_s}

    told = found(one, log(one, timers, report.step_time_s + slow_s))

    measured = suspects(told, "measured", "within doubt", "possible")
    assert list(measured) == ["gradient_reduction"]
    assert measured["gradient_reduction"].cost_s == pytest.approx(slow_s, rel=0.01)


def test_newer_releases_gather_parameters_inside_the_timer_of_the_optimizer_and_older_ones_behind_it():
    one = job(**JOBS["not overlapped"])
    report = PREDICTOR.predict(one)
    parts, passes_s = as_predicted(report)
    slow_s = 0.3 * report.step_time_s
    gathered_s = parts["parameters"] + slow_s
    newer = {
        "forward-backward": passes_s,
        "all-grads-sync": parts["gradients"],
        "optimizer": parts["optimizer"] + gathered_s,
    }
    older = {  # gradients are reduced behind both passes, too
        "forward-backward": passes_s - parts["gradients"],
        "grads-reduce-scatter": parts["gradients"],
        "optimizer": parts["optimizer"],
    }
    for timers in (newer, older):
        told = found(one, log(one, timers | {"params-all-gather": gathered_s}, report.step_time_s + slow_s))

        assert list(suspects(told, "measured", "within doubt", "possible")) == ["parameter_gather"]


def test_a_slow_rank_is_one_suspect_and_not_slow_compute_too():
    one = job(**JOBS["stages"])
    report = PREDICTOR.predict(one)
    compute_s, ratio = timed_parts(report)["compute"], stage_ratio(report)
    slow_s = 0.2 * compute_s
    timers = {
        "forward-compute": (compute_s / 3 / ratio, compute_s / 3 + slow_s / 3),
        "backward-compute": (2 * compute_s / 3 / ratio, 2 * compute_s / 3 + 2 * slow_s / 3),
    }

    told = found(one, log(one, timers, report.step_time_s + slow_s))

    measured = suspects(told, "measured", "within doubt")
    assert list(measured) == ["straggler"]
    assert measured["straggler"].cost_s == pytest.approx(slow_s, rel=0.05)


def test_data_of_the_first_stage_alone_makes_no_slow_rank():
    one = job(**JOBS["stages"])
    report = PREDICTOR.predict(one)
    compute_s, ratio = timed_parts(report)["compute"], stage_ratio(report)
    data_s = 0.2 * compute_s
    timers = {
        "forward-compute": (compute_s / 3 / ratio, compute_s / 3 + data_s),
        "backward-compute": (2 * compute_s / 3 / ratio, 2 * compute_s / 3),
        "batch-generator": (0.0, data_s),
    }

    told = found(one, log(one, timers, report.step_time_s + data_s))

    assert list(suspects(told, "measured", "within doubt")) == ["data_loading"]


def test_stages_that_compute_longer_wait_longer_for_each_other_and_that_is_counted():
    one = job(**JOBS["stages"])
    report = PREDICTOR.predict(one)
    parts, passes_s = as_predicted(report)
    bubble_s = report.breakdown[BUBBLE]
    slower_s = 0.4 * (parts["compute"] + bubble_s)
    timers = {
        "forward-backward": passes_s + slower_s,
        "forward-compute": 1.4 * parts["compute"] / 3,
        "backward-compute": 1.4 * 2 * parts["compute"] / 3,
        "all-grads-sync": parts["gradients"],
    }

    told = found(one, log(one, timers, report.step_time_s + slower_s))

    measured = suspects(told, "measured", "within doubt")
    assert list(measured) == ["compute"]
    assert measured["compute"].cost_s == pytest.approx(slower_s, rel=0.01)


def test_timers_of_deepspeed_are_compared_with_both_passes_and_the_reduction():
    one = job(**JOBS["parameters shared"])
    report = PREDICTOR.predict(one)
    parts, passes_s = as_predicted(report)

    def rows(slow_s):
        times_s = {
            "fwd": passes_s / 3,
            "bwd": 2 * passes_s / 3 + slow_s,
            "bwd_inner": passes_s / 2,
            "bwd_allreduce": slow_s,
            "step": parts["optimizer"],
        }
        rate = one.plan.global_batch / (report.step_time_s + slow_s)
        for step in range(1, 31):
            yield f"epoch=0/global_step={step}, RunningAvgSamplesPerSec=1, CurrSamplesPerSec={rate}"
            yield "time (ms) | " + " | ".join(
                f"{name}: {1e3 * one_s:.2f}" for name, one_s in times_s.items()
            )

    usual, slow = (found(one, "\n".join(rows(share * report.step_time_s)) + "\n") for share in (0.0, 0.3))

    assert suspects(usual, "measured", "within doubt", "possible") == {}
    assert len(usual.cleared) == 3
    measured = suspects(slow, "measured", "within doubt", "possible")
    assert list(measured) == ["passes"]
    assert measured["passes"].cost_s == pytest.approx(0.3 * report.step_time_s, rel=0.01)


def test_timers_that_are_longer_than_their_step_are_not_compared():
    one = job(**GOOD)
    step_s = PREDICTOR.predict(one).step_time_s

    told = found(one, log(one, {"forward-compute": 3 * step_s, "optimizer": 0.01}, step_s))

    assert suspects(told, "measured", "within doubt") == {}
    assert any("forward-compute" in text for text in told.advice)
