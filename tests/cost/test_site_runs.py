"""What runs of a site say, against closed forms of conjugate Gaussians and laws of conditioning."""

import math

import numpy as np
import pytest
from conftest import make_job
from hypothesis import given
from hypothesis import strategies as st

from flopcast.api import predict
from flopcast.cost.site_runs import condition, prior_log_sigmas
from flopcast.lab.validation.from_run import Observation, site_after, update
from flopcast.spec.site import RunShare, Site, SiteRun
from flopcast.timeline.uncertainty import Sensitivity

UNEXPLAINED = "unexplained[dense: a stack, a cluster]"
SIGMAS = {"gemm": 0.05, "fabric": 0.1, UNEXPLAINED: 0.08}
NOISE = 0.02
ALIKE = {"gemm": 0.7, "fabric": 0.2, UNEXPLAINED: 1.0}
UNLIKE = {"gemm": 0.1, "fabric": 0.8, UNEXPLAINED: 1.0}


def run(gap, shares=None, name="step"):
    """A measured time."""
    told = tuple(
        RunShare(name=each, share=share, log_sigma_factor=SIGMAS[each])
        for each, share in (shares or ALIKE).items()
    )
    return SiteRun(name=name, ratio=math.exp(gap), log_sigma_factor=NOISE, shares=told)


def variance_of(shares):
    """Of a step before any run."""
    return sum((share * SIGMAS[name]) ** 2 for name, share in shares.items())


gaps = st.floats(-0.08, 0.08)
steps = st.fixed_dictionaries(
    {"gemm": st.floats(0, 1), "fabric": st.floats(0, 1), UNEXPLAINED: st.just(1.0)}
)


@given(gaps)
def test_the_same_step_again_takes_all_but_the_noise(gap):
    known = condition([run(gap)], SIGMAS)
    row, variance = known.row(ALIKE), variance_of(ALIKE)

    assert known.mean(row) == pytest.approx(gap * variance / (variance + NOISE**2))
    assert known.variance(row) == pytest.approx(variance * NOISE**2 / (variance + NOISE**2))


def test_half_of_the_factors_and_what_none_explains_fade_with_the_share_of_factors_that_differ():
    """The covariance of two steps, over the variance of the measured one with its noise."""
    gap = 0.05
    known = condition([run(gap)], SIGMAS)
    for shares, moved in ((ALIKE, 0.0), (UNLIKE, (0.6 + 0.6) / 2)):
        factors = sum(ALIKE[name] * shares[name] * SIGMAS[name] ** 2 for name in ("gemm", "fabric"))
        specific = (0.5 * factors + SIGMAS[UNEXPLAINED] ** 2) * math.exp(-moved / 0.2)
        whole = variance_of(ALIKE) + NOISE**2
        row = known.row(shares)

        assert known.specific_mean(row) == pytest.approx(gap * specific / whole)
        assert known.mean(row) == pytest.approx(gap * (0.5 * factors + specific) / whole)
        left = variance_of(shares) - (0.5 * factors + specific) ** 2 / whole
        assert known.variance(row) == pytest.approx(left)


def test_measured_parts_tell_factors_apart_so_that_all_steps_share_them():
    part = run(0.05, {"gemm": 1.0}, name="gemm")
    alone, with_step = (condition(runs, SIGMAS) for runs in ([part], [part, run(0.05)]))

    step = alone.row({"gemm": 0.1, "fabric": 0.8})
    assert alone.mean(step) == pytest.approx(0.1 * 0.05 * 0.05**2 / (0.05**2 + NOISE**2))
    assert with_step.specific[list(with_step.names).index("gemm")] == 0.0


def test_no_run_makes_a_step_less_certain_than_before():
    """The sigma of plans (0.08) is larger than that of the prediction (0.05), and the steps are unlike."""
    known = condition([run(0.05)], SIGMAS)
    row = known.row(UNLIKE)

    whole = known.alone_variance(row) + known.specific_variance(row, 0.05)
    assert whole <= sum((UNLIKE[name] * SIGMAS[name]) ** 2 for name in ("gemm", "fabric")) + 0.05**2


def test_another_machine_learns_factors_and_nothing_unexplained():
    known = condition([run(0.05)], {**SIGMAS, "unexplained[dense: another stack, a cluster]": 0.08})
    row = known.row({"gemm": 0.7, "unexplained[dense: another stack, a cluster]": 1.0})

    gemm = (0.7 * SIGMAS["gemm"]) ** 2
    moved = (0.2 + 1.0 + 1.0) / 2
    expected = 0.5 * gemm * (1.0 + math.exp(-moved / 0.2)) / (variance_of(ALIKE) + NOISE**2)
    assert known.mean(row) == pytest.approx(0.05 * expected)


@given(st.lists(st.tuples(gaps, steps), min_size=1, max_size=4), steps)
def test_runs_only_ever_make_surer_and_their_order_does_not_matter(measured, step):
    runs = [run(gap, shares) for gap, shares in measured]
    forth, back = condition(runs, SIGMAS), condition(runs[::-1], SIGMAS)
    row, mirrored = forth.row(step), back.row(step)

    assert forth.mean(row) == pytest.approx(back.mean(mirrored), abs=1e-9)
    assert forth.variance(row) == pytest.approx(back.variance(mirrored), abs=1e-12)
    assert forth.variance(row) <= variance_of(step) + 1e-12
    assert (
        forth.alone_variance(row) + forth.specific_variance(row, SIGMAS[UNEXPLAINED])
        >= forth.variance(row) - 1e-12
    )


@pytest.mark.parametrize("sigmas_off", [0.9, 2.0, 4.0])
def test_a_surprising_step_weighs_as_under_students_distribution(sigmas_off):
    whole = variance_of(ALIKE) + NOISE**2
    gap = sigmas_off * math.sqrt(whole)
    known = condition([run(gap)], SIGMAS)

    weight = min(1.0, 5.0 / (4.0 + sigmas_off**2))
    assert known.mean(known.row(ALIKE)) == pytest.approx(gap * variance_of(ALIKE) / whole * weight)


def test_a_part_of_a_step_counts_whole_however_surprising():
    part = {"gemm": 1.0}
    known = condition([run(0.5, part, name="gemm")], SIGMAS)

    assert known.mean(known.row(part)) == pytest.approx(0.5 * 0.05**2 / (0.05**2 + NOISE**2))


def test_without_runs_nothing_moves():
    known = condition((), SIGMAS)
    row = known.row(ALIKE)

    assert (known.mean(row), known.variance(row)) == (0.0, pytest.approx(variance_of(ALIKE)))


def test_what_is_unexplained_is_as_unsure_as_the_ratio_of_two_plans():
    factors = [
        Sensitivity(name=name, log_sigma_factor=sigma, share=1.0)
        for name, sigma in (("gemm", 0.03), (UNEXPLAINED, 0.04), ("between_plans", 0.07))
    ]

    assert prior_log_sigmas(factors) == {"gemm": 0.03, UNEXPLAINED: 0.07}


def calibrated(job, ratio):
    """The job on a site where it took so many times its prediction."""
    report = predict(job)
    observed = (Observation(observed_s=report.step_time_s * ratio),)
    site = site_after(update(report, observed), Site(), "here", "a test")
    return job.model_copy(update={"site": site})


def test_a_site_with_runs_predicts_the_measured_step_and_is_surer_of_it():
    job = make_job()
    before, after = predict(job), predict(calibrated(job, 1.03))

    assert after.step_time_s / before.step_time_s == pytest.approx(1.03, abs=0.006)
    assert after.step_time_high_s / after.step_time_s < before.step_time_high_s / before.step_time_s


def test_what_was_unexplained_moves_alike_plans_more_than_others():
    """The plan that ran is compared with one of another size of tensor parallelism."""
    job = calibrated(make_job(), 1.05)
    without = job.model_copy(update={"site": job.site.model_copy(update={"runs": ()})})
    other = {"tensor_parallel": 8, "sequence_parallel": True, "data_parallel": 1}
    moves = []
    for change in ({}, other):
        plan = job.plan.model_copy(update=change)
        with_runs, factors_alone = (
            predict(each.model_copy(update={"plan": plan})).step_time_s for each in (job, without)
        )
        moves.append(math.log(with_runs / factors_alone))

    assert moves[0] > 0.01
    assert abs(moves[1]) < moves[0]


def test_shares_of_many_runs_keep_the_covariance_positive():
    rng = np.random.default_rng(0)
    runs = [
        run(0.0, {"gemm": float(a), "fabric": float(b), UNEXPLAINED: 1.0}) for a, b in rng.random((40, 2))
    ]
    known = condition(runs, SIGMAS)

    assert np.linalg.eigvalsh(known.precision).min() > 0
