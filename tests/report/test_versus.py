"""Two predictions side by side: ratios, intervals that share their unknowns, and the words."""

import math

import pytest
from all_cases import all_cases
from conftest import make_job
from unmarked import unmarked

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.factors import NINETY_PERCENT
from flopcast.library.constants import shipped_levels
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.render.comparison import as_json, marked_text
from flopcast.report.versus import versus
from flopcast.spec.operations import Price

as_text = unmarked(marked_text)


def reported(**parts):
    """The report of a small job."""
    job = make_job(**parts)
    return predict(job, load_book(job.cluster))


def test_a_job_against_itself_differs_by_nothing_and_settles_nothing():
    report = reported()

    same = versus(report, report)

    assert (same.time_ratio, same.low_ratio, same.high_ratio, same.sure) == (1.0, 1.0, 1.0, False)


def test_jobs_are_compared_by_time_per_token():
    """Twice the batch takes longer a step, and less a token: the step's fixed ends are shared."""
    one, two = reported(), reported(plan="dp=8 mbs=1 gbs=32 precision=fp16")

    compared = versus(one, two)

    assert two.step_time_s > one.step_time_s
    assert compared.time_ratio == pytest.approx(two.step_time_s / 2 / one.step_time_s)
    assert compared.time_ratio < 1


def test_a_difference_is_surer_than_the_predictions_it_is_of():
    one, two = reported(), reported(plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")

    compared = versus(one, two)

    width = math.log(compared.high_ratio / compared.low_ratio)
    alone = [math.log(r.step_time_high_s / r.step_time_low_s) for r in (one, two)]
    assert width < 0.9 * min(alone)
    assert compared.sure


def test_machines_that_share_nothing_are_as_unsure_together_as_squares_add():
    """Levels and fabrics of two devices are independent; the host and the stack are common.

    Each plan adds what no factor explains of the ratio of two plans.
    """
    one, two = reported(), reported(cluster="vista:8")

    compared = versus(one, two)

    width = math.log(compared.high_ratio / compared.low_ratio)
    alone = [math.log(r.step_time_high_s / r.step_time_low_s) for r in (one, two)]
    above = [math.log(r.step_time_high_s / r.step_time_s) for r in (one, two)]
    below = [math.log(r.step_time_s / r.step_time_low_s) for r in (one, two)]
    own = NINETY_PERCENT * shipped_levels()[BETWEEN_PLANS].log_sigma_factor
    as_squares = math.hypot(above[0], below[1], own, own) + math.hypot(below[0], above[1], own, own)
    # the ends of factors with two sides add as squares within 3 %
    assert max(alone) * 0.5 < width < 1.03 * as_squares


def test_what_no_factor_explains_is_common_to_the_plans_of_one_machine_only():
    here, replanned, elsewhere = (
        [factor.name for factor in report.factors if factor.name.startswith("unexplained[dense")]
        for report in (
            reported(),
            reported(plan="dp=4 tp=2 mbs=1 gbs=16 precision=fp16"),
            reported(cluster="vista:8"),
        )
    )

    assert here == replanned
    assert len(here) == len(elsewhere) == 1
    assert here != elsewhere


def test_the_text_names_both_jobs_what_is_the_same_and_the_verdict():
    one, two = reported(), reported(plan="dp=4 tp=2 mbs=1 gbs=16 precision=fp16")

    text = as_text(versus(one, two), ("old.yaml", "new.yaml"))

    assert text.startswith("A  old.yaml: dp=8 mbs=1 gbs=16")
    assert "B  new.yaml: dp=4 tp=2 mbs=1 gbs=16" in text
    assert any(
        line.split()[0] == "device" and line.split()[-1] == "same" for line in text.splitlines() if line
    )
    assert "time per token than A (90 %:" in text


def test_an_order_that_may_be_the_other_way_round_is_said_to_be_open():
    """The faster machine gets jitter until both need the same time."""
    one, two = sorted((reported(), reported(cluster="vista:8")), key=lambda report: report.step_time_s)
    name, nodes = one.job.cluster.name, one.job.cluster.groups[0].count
    ratio = one.job.cluster.jitter.ratio * two.step_time_s / one.step_time_s
    equal = reported(cluster={"base": name, "nodes": nodes, "jitter": {"ratio": ratio}})

    compared = versus(two, equal)

    assert compared.time_ratio == pytest.approx(1)
    assert not compared.sure
    assert "B takes as long per token as A" in as_text(compared, ("a", "b"))


def test_the_json_holds_both_reports_and_the_ratio():
    one, two = reported(), reported(cluster="vista:8")

    data = as_json(versus(one, two))

    assert data["first"]["job"]["cluster"] == "dgx-a100"
    assert data["second"]["job"]["cluster"] == "vista"
    assert (
        data["time_per_token_ratio_low"] < data["time_per_token_ratio"] < data["time_per_token_ratio_high"]
    )


def priced(usd_per_hour, sigma=0.0, **parts):
    """A report whose devices cost that much."""
    job = make_job(**parts)
    price = Price(device_usd_per_hour=usd_per_hour, log_sigma_factor=sigma)
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"price": price})})
    return predict(job, load_book(job.cluster))


def test_on_one_machine_cost_is_to_time_as_prices_are():
    """What is unknown of the machine cancels in both ratios alike."""
    one, two = priced(2.0), priced(3.0, plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")

    compared = versus(one, two)

    assert compared.usd_ratio.value == pytest.approx(1.5 * compared.time_ratio)
    bounds = [bound / 1.5 for bound in compared.usd_ratio.bounds]
    assert bounds == pytest.approx((compared.low_ratio, compared.high_ratio))


def test_a_price_that_both_are_unsure_of_cancels():
    compared = versus(priced(2.0, 0.5), priced(2.0, 0.5))

    assert compared.usd_ratio.bounds == pytest.approx((1, 1))
    assert compared.energy_ratio.bounds == pytest.approx((1, 1))


def test_equal_jobs_cost_the_same_and_nothing_about_them_is_called_unsettled():
    told = as_text(versus(priced(2.0, 0.5), priced(2.0, 0.5)), ("a", "b"))

    assert "B takes as long per token as A" in told
    assert "B costs the same per token as A" in told
    assert "B uses the same energy per token as A" in told
    assert "uncertain" not in told


def test_nothing_is_ranked_by_cost_inside_of_the_interval():
    """The second machine's price is set so that both cost the same a token, then three times as much."""
    one, two = priced(2.0), priced(2.0, cluster="vista:8")
    same = 2.0 / versus(one, two).usd_ratio.value

    equal, dear = (versus(one, priced(usd, cluster="vista:8")) for usd in (same, 3 * same))

    assert equal.usd_ratio.value == pytest.approx(1)
    assert not as_json(equal)["cost_settled"]
    assert "it is uncertain whether B costs less per token than A" in as_text(equal, ("a", "b"))
    assert as_json(dear)["cost_settled"]
    assert "B costs 200.0% more per token than A" in as_text(dear, ("a", "b"))


def test_costs_that_are_unknown_are_not_compared():
    compared = versus(reported(), reported(cluster="vista:8"))

    assert compared.usd_ratio is None
    assert as_json(compared)["cost_per_token_ratio"] is None
    assert "B costs" not in as_text(compared, ("a", "b"))


@all_cases(("ratio", "sure"), [(0.95, False), (1.05, False), (0.8, True), (1.25, True)])
def test_plans_that_do_different_things_must_be_further_apart_than_what_no_factor_names(ratio, sure):
    """Two stages beside one, whose jitters put them so far apart; factors alone leave 2 % either way."""
    plans = "dp=8 mbs=1 gbs=16 precision=fp16", "dp=4 pp=2 mbs=1 gbs=16 precision=fp16"
    alone_s = [reported(plan=plan).clean_step_time_s for plan in plans]
    jitters = 4.0, 4.0 * ratio * alone_s[0] / alone_s[1]
    one, cut = (
        reported(plan=plan, cluster={"base": "dgx-a100", "nodes": 1, "jitter": {"ratio": jitter}})
        for plan, jitter in zip(plans, jitters, strict=True)
    )

    compared = versus(one, cut)

    assert compared.time_ratio == pytest.approx(ratio)
    assert compared.sure == sure


def test_one_plan_at_two_speeds_of_the_machine_is_settled_however_near_they_are():
    calm = reported()
    cluster = {"base": calm.job.cluster.name, "nodes": 1, "jitter": {"ratio": 1.001}}

    compared = versus(calm, reported(cluster=cluster))

    assert compared.sure


def test_the_difference_of_costs_has_an_interval_in_which_shared_unknowns_cancel():
    """Price and kernels are common: the difference is surer than that of unrelated costs."""
    one, two = priced(2.0, 0.2), priced(2.0, 0.2, plan="dp=8 mbs=1 gbs=16 recompute=full precision=fp16")

    compared = versus(one, two)

    costs = [report.cost.many_tokens_usd for report in (one, two)]
    low, high = compared.usd_difference.difference_bounds
    assert compared.usd_difference.value == pytest.approx(costs[1].value - costs[0].value)
    assert low < compared.usd_difference.value < high
    assert high - low < 0.5 * math.hypot(*(cost.bounds[1] - cost.bounds[0] for cost in costs))
    assert as_json(compared)["cost_difference_usd_low"] == pytest.approx(low)
    assert "training B on 1e12 tokens costs $" in as_text(compared, ("a", "b"))


def test_a_job_costs_as_much_as_itself():
    report = priced(2.0)

    same = versus(report, report)

    assert same.usd_difference.difference_bounds == pytest.approx((0, 0), abs=1e-9)
    assert "costs as much as training A" in as_text(same, ("a", "b"))
