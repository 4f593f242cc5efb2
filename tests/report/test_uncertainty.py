"""timeline/uncertainty.py against normal distributions, sums of squares and finite differences."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import PARTS, report_of, sample_report, with_site

from flopcast import Predictor
from flopcast.cost.factors import NINETY_PERCENT
from flopcast.timeline.uncertainty import Sensitivity, difference, interval, log_sigmas

LAWS = settings(max_examples=50, deadline=None)
NUDGE_RATIO = 1.00001
KERNEL_LEVELS = ("gemm_level", "attention_level", "unfused_attention_level", "memory_level")
LEVELS = (*KERNEL_LEVELS, "fabric", "host", "host_step")
DIFFERENTIABLE = ["one stage", "batched", "interleaved"]  # reductions after the backward, links of one kind

factors = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.floats(0, 0.5), st.floats(0, 1)),
    max_size=6,
    unique_by=lambda f: f[0],
).map(lambda found: tuple(Sensitivity(name=n, log_sigma_factor=s, share=w) for n, s, w in found))


def sensitivity(name, sigma, share=1.0):
    return Sensitivity(name=name, log_sigma_factor=sigma, share=share)


def test_ninety_percent_is_what_a_normal_distribution_holds_between_its_bounds():
    assert pytest.approx(NormalDist().inv_cdf(0.95), abs=1e-4) == NINETY_PERCENT


def test_independent_factors_add_as_squares():
    told = (sensitivity("gemm", 0.03), sensitivity("fabric", 0.08, 0.5))

    assert log_sigmas(told)[1] == pytest.approx(0.05)  # 3, 4, 5


def test_the_interval_is_as_wide_as_its_sigma_says():
    low_s, high_s = interval(10.0, (sensitivity("gemm", 0.1),))

    assert low_s == pytest.approx(10.0 * math.exp(-0.16449))
    assert high_s == pytest.approx(10.0 * math.exp(0.16449))


def test_nine_of_ten_draws_of_the_factors_fall_into_the_interval():
    told = (sensitivity("gemm", 0.04, 0.6), sensitivity("fabric", 0.2, 0.3), sensitivity("jitter", 0.02))
    draws = np.random.default_rng(0).normal(size=(3, 20_000))
    weights = np.array([[f.share * f.log_sigma_factor] for f in told])
    steps = 7.0 * np.exp((weights * draws).sum(axis=0))

    low_s, high_s = interval(7.0, told)

    assert ((steps > low_s) & (steps < high_s)).mean() == pytest.approx(0.9, abs=0.01)


@LAWS
@given(told=factors, step_s=st.floats(1e-3, 1e3))
def test_an_interval_lies_around_its_step_on_a_logarithmic_scale(told, step_s):
    low_s, high_s = interval(step_s, told)

    assert low_s <= step_s * (1 + 1e-12)
    assert low_s * high_s == pytest.approx(step_s**2, rel=1e-9)


@LAWS
@given(told=factors, more=st.floats(0.01, 0.5))
def test_one_more_unknown_never_narrows_an_interval(told, more):
    wider = (*told, sensitivity("another", more))

    assert log_sigmas(wider)[1] > log_sigmas(told)[1]


def test_without_factors_a_step_is_certain():
    assert interval(3.0, ()) == (3.0, 3.0)


@LAWS
@given(told=factors)
def test_a_report_differs_from_itself_by_exactly_nothing(told):
    assert difference(told, told, 0.0) == (1.0, 1.0)


def with_own(sigma, moved):
    """Sigma of a ratio of two steps that differ in this share: 5 % each from 20 % on, less below."""
    return math.hypot(sigma, math.sqrt(2) * min(0.05, moved / 4))


@LAWS
@given(common=factors, share=st.floats(0, 1), sigma=st.floats(0.01, 0.3), log_ratio=st.floats(-1, 1))
def test_common_factors_cancel_and_what_is_left_decides(common, share, sigma, log_ratio):
    first = (*common, sensitivity("own", sigma, share))

    low, high = difference(first, common, log_ratio)

    reach = NormalDist().inv_cdf(0.95) * with_own(share * sigma, share / 2)
    assert math.log(low) == pytest.approx(log_ratio - reach, abs=1e-4)
    assert math.log(high) == pytest.approx(log_ratio + reach, abs=1e-4)


@LAWS
@given(first=factors, second=factors, log_ratio=st.floats(-1, 1))
def test_the_difference_the_other_way_round_is_the_reciprocal(first, second, log_ratio):
    low, high = difference(first, second, log_ratio)
    back_low, back_high = difference(second, first, -log_ratio)

    assert (low * back_high, high * back_low) == pytest.approx((1.0, 1.0))


def test_factors_that_only_one_side_knows_all_count():
    # one cluster hangs on its fabric by 0.3, the other on another fabric by 0.4
    low, high = difference((sensitivity("ib", 0.1, 3.0),), (sensitivity("tcp", 0.1, 4.0),), 0.0)

    assert math.log(high / low) == pytest.approx(2 * 1.6449 * with_own(0.5, 3.5))


def test_a_difference_of_shares_counts_not_the_shares():
    # both steps multiply on the same device, one for 70 % of its time, the other for 60 %
    low, high = difference((sensitivity("gemm", 0.2, 0.7),), (sensitivity("gemm", 0.2, 0.6),), math.log(2))

    reach = 1.6449 * with_own(0.1 * 0.2, 0.05)
    assert math.log(high / 2) == pytest.approx(reach)
    assert math.log(low / 2) == pytest.approx(-reach)


@LAWS
@given(known=factors, share=st.floats(0, 0.5), more=st.floats(0.01, 0.5))
def test_the_more_two_steps_differ_the_less_their_ratio_is_known_though_no_factor_is_unsure(
    known, share, more
):
    """Products that are certain to the last digit, in another share of the step: shapes differ, too."""
    widths = []
    for moved in (share, share + more):
        low, high = difference((*known, sensitivity("gemm", 0.0, moved)), known, 0.0)
        widths.append(math.log(high / low))

    assert 0.0 <= widths[0] <= widths[1] <= 2 * 1.6449 * math.sqrt(2) * 0.05 + 1e-9


def test_what_two_steps_share_leaves_no_doubt_of_their_ratio():
    told = (sensitivity("gemm", 0.3, 0.7), sensitivity("unexplained[dense]", 0.2))

    assert difference(told, told, math.log(1.01)) == pytest.approx((1.01, 1.01))


@all_cases("name", PARTS)
def test_every_second_of_the_step_hangs_on_exactly_one_level(name):
    # kernels on their class, messages on their fabric, launches and fixed work on the host; but those that
    # stand at their physical bound on none
    report = sample_report(name)
    timeline = report.timeline
    at_bound_s = sum(
        share.path_s
        for share in timeline.shares
        if share.item and not report.priced.of(share.item).moves.any()
    )

    shares = [factor.share for factor in report.factors if factor.name.partition("[")[0] in LEVELS]

    assert sum(shares) + at_bound_s / timeline.step_time_s == pytest.approx(1.0, rel=1e-9)


@all_cases("name", PARTS)
def test_no_factor_scales_more_than_the_whole_step(name):
    told = sample_report(name).factors

    assert all(0 <= factor.share <= 1 + 1e-9 for factor in told)
    assert next(factor.share for factor in told if factor.name == "jitter") == 1.0


def slope(job, factor_name, predictor):
    """d log(step) / d log(factor), by a site that sets the factor a little higher."""
    before, after = (predictor.predict(each) for each in (job, with_site(job, {factor_name: NUDGE_RATIO})))
    return math.log(after.step_time_s / before.step_time_s) / math.log(NUDGE_RATIO)


@all_cases("name", DIFFERENTIABLE)
def test_shares_are_the_slopes_that_a_site_factor_finds(name):
    job, told = make_job(**PARTS[name]), sample_report(name).factors

    predictor = Predictor()  # keeps what a nudged factor does not change
    slopes = {factor.name: slope(job, factor.name, predictor) for factor in told}

    assert slopes == pytest.approx({factor.name: factor.share for factor in told}, abs=2e-4)


def test_a_fabric_has_no_share_in_what_the_host_spends_on_blocking_messages():
    # DeepSpeed's transfers take host time (pipeline.host_s) and wire time; the fabric scales the wire alone
    job, told = make_job(**PARTS["sequential"]), sample_report("sequential").factors
    fabric = next(factor for factor in told if factor.name == "fabric[slingshot]")

    found = slope(job, fabric.name, Predictor())

    assert fabric.share == pytest.approx(found, abs=2e-4)


def test_a_step_inside_one_node_hangs_on_no_network_between_nodes():
    job = make_job(plan="dp=2 pp=4 gbs=16 precision=fp16")

    told = {factor.name: factor.share for factor in report_of(job).factors}

    assert "fabric[infiniband]" not in told


def test_a_site_scales_the_whole_step_by_its_jitter():
    job = make_job()

    calm, rough = report_of(job), report_of(with_site(job, {"jitter": 1.25}))

    assert rough.step_time_s == pytest.approx(1.25 * calm.step_time_s)
    assert rough.clean_step_time_s == pytest.approx(calm.clean_step_time_s)


def test_a_site_that_knows_its_jitter_says_how_surely():
    job = with_site(make_job(), {"jitter": 1.0}, sigma=0.2)

    told = {factor.name: factor.log_sigma_factor for factor in report_of(job).factors}

    assert told["jitter"] == 0.2


def test_a_site_that_knows_a_factor_surely_narrows_the_interval():
    job = make_job()
    before = report_of(job)
    widest = before.factors[0].name

    after = report_of(with_site(job, {widest: 1.0}, sigma=0.0))

    assert after.step_time_s == pytest.approx(before.step_time_s)
    assert after.step_time_high_s < before.step_time_high_s
    assert after.step_time_low_s > before.step_time_low_s


@LAWS
@given(first=factors, second=factors)
def test_a_ratio_is_known_no_better_than_its_factors_are_and_at_worst_by_five_percent_of_either(
    first, second
):
    ours, theirs = ({f.name: f for f in told} for told in (first, second))
    sigma = 0.0
    for name in ours.keys() | theirs.keys():
        known = [side[name] for side in (ours, theirs) if name in side]
        shares = [side[name].share if name in side else 0.0 for side in (ours, theirs)]
        sigma = math.hypot(sigma, (shares[0] - shares[1]) * max(f.log_sigma_factor for f in known))

    low, high = difference(first, second, 0.0)

    width = math.log(high / low) / (2 * NINETY_PERCENT)
    assert sigma - 1e-12 <= width <= math.hypot(sigma, 0.05 * math.sqrt(2)) + 1e-12
