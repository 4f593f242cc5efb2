"""Protocols and conventions: what is fitted on what, and how printed rates become seconds."""

import math

import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.accuracy import predict_unfitted as predict
from flopcast.lab.published.suite_files import load_suite
from flopcast.lab.validation.compare import compare
from flopcast.lab.validation.profiler_components import COMPONENTS, component_seconds, sums_in_layer
from flopcast.lab.validation.suite import MeasuredComponent, MeasuredRun, Suite, SuiteRow, step_time_of_rate

GPT = {
    "model": "gpt3-175b",
    "cluster": "selene:128",
    "stack": "megatron-2021",
    "batch": {"sequence_length": 2048},
    "plan": "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16",
}


def test_the_rate_of_gpt3_on_1024_devices_gives_the_published_days():
    """arXiv:2104.04473, section 5.1: 300 B tokens at 140 TFLOP/s per device take 34 days."""
    step_s = step_time_of_rate(make_job(**GPT), 140e12)

    days = step_s * 300e9 / (1536 * 2048) / 86400
    assert days == pytest.approx(34, rel=0.03)


def test_half_the_rate_is_twice_the_time():
    job = make_job(**GPT)

    assert step_time_of_rate(job, 70e12) == pytest.approx(2 * step_time_of_rate(job, 140e12))


@all_cases(
    "measured",
    [
        {"tflops_per_device": 140},
        {"flop_formula": "megatron-2021"},
        {"tflops_per_device": 0, "flop_formula": "megatron-2021"},
        {"tflops_per_device": 140, "flop_formula": "somebody's"},
    ],
)
def test_a_rate_is_above_zero_and_needs_the_formula_behind_it(measured):
    with pytest.raises(ValueError, match=r"flop_formula|tflops_per_device"):
        MeasuredRun(**measured)


def test_a_rate_with_its_formula_is_compared_as_the_time_that_was_measured():
    """arXiv:2104.04473, table 1, GPT-3 on 1024 devices: 140 TFLOP/s each, by its equation 3."""
    job, vocabulary, layers, hidden = make_job(**GPT), 51200, 96, 12288
    rate = MeasuredRun(tflops_per_device=140, flop_formula="megatron-2021")
    row = SuiteRow(id="1", system="selene", job=job, measured=rate)

    (found,) = compare(Suite(name="one", source="SC21", fitted="nothing", rows=(row,)), predict).rows

    flop = 96 * 1536 * 2048 * layers * hidden**2
    flop *= 1 + 2048 / (6 * hidden) + job.model.vocabulary / (16 * layers * hidden)
    assert found.measured_step_time_s == pytest.approx(flop / (1024 * 140e12))
    assert job.model.vocabulary == pytest.approx(vocabulary, rel=0.02)


def made_suite(**protocol):
    """A suite whose measurements are flopcast's own predictions."""
    jobs = [
        make_job(plan=f"dp=8 mbs={size} gbs={8 * size} precision=fp16", stack="megatron-2021")
        for size in (1, 2, 4)
    ]
    rows = tuple(
        SuiteRow(
            id=str(number),
            system="dgx",
            job=job,
            measured=MeasuredRun(step_time_s=predict(job).step_time_s),
        )
        for number, job in enumerate(jobs)
    )
    return Suite(name="made", source="flopcast itself", fitted="nothing", rows=rows, **protocol)


def test_a_perfect_prediction_is_inside_its_interval_with_no_error():
    rows = compare(made_suite(), predict).rows

    assert all(abs(row.relative_error) < 1e-9 for row in rows)
    assert all(row.covered for row in rows)


def test_the_cross_fitted_host_finds_a_slow_host_on_the_other_system():
    """Two systems that are the same machine: the layers of one were made on a host 1.5 times as slow."""
    suite = load_suite("paper")
    row = next(row for row in suite.rows if row.id == "31664313")
    from flopcast.lab.validation.compare import _with_host

    slow = predict(_with_host(row.job, 1.5))
    layers = tuple(
        MeasuredComponent(
            component=name, stage="middle", measured_s=component_seconds(slow, name, "middle", False)
        )
        for name in ("encoder_fwd", "encoder_bwd")
    )
    rows = tuple(row.model_copy(update={"system": name, "components": layers}) for name in ("one", "other"))

    found = compare(suite.model_copy(update={"rows": rows}), predict).host_ratio

    assert found["one"] == pytest.approx(1.5, rel=1e-6)
    assert found["other"] == pytest.approx(1.5, rel=1e-6)


@pytest.fixture(scope="module")
def report():
    return predict(next(row for row in load_suite("paper").rows if row.id == "31694544").job)


def test_a_stage_is_its_layers(report):
    """The middle stage of run 31694544 holds twelve equal layers and nothing else."""
    layer = component_seconds(report, "encoder_fwd", "middle", False)
    stage = component_seconds(report, "stage_fwd", "middle", False)

    assert stage == pytest.approx(12 * layer, rel=0.01)


def test_recompute_makes_the_backward_longer_than_the_forward_and_its_two_gradients(report):
    forward = component_seconds(report, "encoder_fwd", "middle", False)
    backward = component_seconds(report, "encoder_bwd", "middle", False)

    assert 2.5 * forward < backward < 3.5 * forward


@pytest.mark.parametrize(
    ("backward", "sums"),
    [(False, 1), (True, 3)],  # parallel residual: one forward; again, and one for each half
)
def test_sums_of_a_parallel_block_with_recompute(report, backward, sums):
    assert sums_in_layer(report, backward) == sums


def test_the_first_stage_reduces_what_it_holds(report):
    """1,324,088,832 and 1,359,525,888 parameters (log of run 31694544) at the same bandwidth."""
    first = component_seconds(report, "dp_grad_allreduce", "first", False)
    middle = component_seconds(report, "dp_grad_allreduce", "middle", False)

    assert first / middle == pytest.approx(1_324_088_832 / 1_359_525_888, rel=0.01)


def test_a_skipped_update_leaves_only_its_checks(report):
    whole = component_seconds(report, "optimizer_step_incl_param_allgather", "first", False)
    skipped = component_seconds(report, "optimizer_step_incl_param_allgather", "first", True)
    gather = component_seconds(report, "dp_param_allgather", "first", False)

    assert gather < whole - skipped < 1.1 * gather


def test_an_unknown_component_is_not_guessed(report):
    assert component_seconds(report, "nothing_of_ours", "first", False) is None


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_component_is_positive_and_below_the_step(report, name):
    seconds = component_seconds(report, name, "middle", False)

    assert 0 < seconds < report.step_time_s
    assert math.isfinite(seconds)
