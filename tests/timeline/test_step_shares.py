"""timeline/critical_path.py: both views of a step add up, and the path's shares are true derivatives."""

from collections import defaultdict
from dataclasses import replace

import pytest
from all_cases import all_cases
from conftest import make_job
from sample_jobs import OVERLAPPED, PARTS, sample_priced
from workbench import only, priced_job, repriced

from flopcast.api import predict
from flopcast.dtypes import ONE
from flopcast.timeline.step import run_step

NUDGE_FACTOR = 1e-4
BLOCK = {("mlp.up", "forward"): 1.0, ("mlp.up.dgrad", "backward"): 2.0}


def seconds_by_item(shares, of="path_s"):
    found = defaultdict(float)
    for share in shares:
        found[(share.item.name, share.item.phase) if share.item else "launches"] += getattr(share, of)
    return found


def unclamped(priced):
    """The same prices, where no kernel stands at its bound: seconds that a test changes always count."""
    prices = {key: replace(price, moves=ONE) for key, price in priced.prices.items()}
    return replace(priced, prices=prices)


def nudged(priced, key, by):
    """The same prices, one item's seconds a little longer or shorter."""
    prices = {}
    for item in priced.programs.items():
        price = priced.of(item)
        ratio = 1 + by if (item.name, item.phase) == key else 1.0
        prices[item] = replace(price, alone_s=price.alone_s * ratio)
    return run_step(replace(priced, prices=prices)).step_time_s


@all_cases("name", PARTS)
def test_shares_of_the_critical_path_sum_to_the_step(name):
    timeline = run_step(sample_priced(name))

    assert sum(share.path_s for share in timeline.shares) == pytest.approx(timeline.step_time_s, rel=1e-9)


@all_cases("name", PARTS)
def test_what_the_busiest_stage_does_and_its_waiting_sum_to_the_step(name):
    timeline = run_step(sample_priced(name))

    busy_s = sum(share.path_s for share in timeline.bottleneck_attribution)
    assert busy_s + timeline.bottleneck_waits_s == pytest.approx(timeline.step_time_s, rel=1e-9)
    assert timeline.bottleneck_waits_s >= 0


@all_cases("name", PARTS)
def test_no_share_is_negative_or_empty(name):
    timeline = run_step(sample_priced(name))

    assert all(share.path_s > 0 or share.shift_s != 0 for share in timeline.shares)
    assert all(share.path_s > 0 for share in timeline.bottleneck_attribution)


@all_cases("name", PARTS)
def test_an_items_slope_is_what_the_step_gains_by_slowing_that_item(name):
    """Of the items that the step depends on, and of three others; two slopes where paths tie."""
    priced = unclamped(sample_priced(name))
    timeline = run_step(priced)
    told = seconds_by_item(timeline.shares, "slope_s")
    others = [(item.name, item.phase) for item in priced.programs.items()]
    chosen = {*sorted(told, key=lambda key: -abs(told[key]))[:4], *others[:: max(len(others) // 3, 1)]}
    wrong = {}

    for key in chosen - {"launches"}:
        slopes = [
            (nudged(priced, key, by) - timeline.step_time_s) / by for by in (-NUDGE_FACTOR, NUDGE_FACTOR)
        ]
        slack = 1e-4 * timeline.step_time_s
        if not min(slopes) - slack <= told[key] <= max(slopes) + slack:
            wrong[key] = (slopes, told[key])

    assert not wrong


def test_a_reduction_that_sticks_out_has_the_share_that_the_step_gains_by_slowing_it():
    # 64 replicas over a slow network: the chain of reductions, not the backward beside it, is the path
    job = make_job(cluster="dgx-a100:8", stack=OVERLAPPED, plan="dp=64 gbs=64 precision=fp16")
    priced = unclamped(priced_job(job))
    timeline = run_step(priced)

    told = seconds_by_item(timeline.shares)["gradients.reduce", "backward"]

    longer = nudged(priced, ("gradients.reduce", "backward"), NUDGE_FACTOR)
    assert told == pytest.approx((longer - timeline.step_time_s) / NUDGE_FACTOR, rel=1e-3)


def test_launches_share_in_a_step_that_the_host_cannot_feed():
    host = {"forward_item_s": "10 ms", "backward_item_s": "5 ms"}
    slow = make_job(stack={"base": "megatron-2022", "host": host})
    priced = priced_job(slow)
    programs = priced.programs
    launched = sum(
        int(segment.repeat[0, 0]) * sum(priced.of(item).host_s.item() for item in segment.items)
        for segment in (*programs.forward, *programs.backward)
    )

    told = seconds_by_item(run_step(priced).shares)["launches"]

    assert told == pytest.approx(2 * launched, rel=1e-9)  # two micro-batches


def test_the_busiest_stage_is_the_one_with_most_to_do():
    # the embedding's backward makes the first stage busiest, the head the last
    job = make_job(plan="dp=2 pp=4 gbs=16 precision=fp16")
    first = repriced(priced_job(job), only(BLOCK | {("embedding.lookup.wgrad", "backward"): 5.0}))
    last = repriced(priced_job(job), only(BLOCK | {("head.logits", "forward"): 5.0}))

    found = [seconds_by_item(run_step(priced).bottleneck_attribution) for priced in (first, last)]

    assert found[0]["embedding.lookup.wgrad", "backward"] == pytest.approx(
        8 * 5.0
    )  # on the first stage alone
    assert found[1]["head.logits", "forward"] == pytest.approx(8 * 5.0)  # on the last alone


def test_the_busiest_stage_waits_for_the_others_to_fill_and_drain_the_pipeline():
    # equal stages: it is idle for (p - 1) turns (arXiv:2104.04473, section 2.2.1), here of two blocks
    job = make_job(plan="dp=2 pp=4 gbs=16 precision=fp16")

    timeline = run_step(repriced(priced_job(job), only(BLOCK)))

    assert timeline.bottleneck_waits_s == pytest.approx(3 * 2 * 3.0)
    assert sum(share.path_s for share in timeline.bottleneck_attribution) == pytest.approx(8 * 2 * 3.0)


def test_one_stage_never_waits_for_another():
    timeline = run_step(sample_priced("one device a replica"))

    assert timeline.bottleneck_waits_s == pytest.approx(0.0, abs=1e-12)
    assert seconds_by_item(timeline.shares) == pytest.approx(
        seconds_by_item(timeline.bottleneck_attribution)
    )


def test_transfers_inside_a_node_are_charged_to_the_link_inside_the_node():
    priced = priced_job(make_job(plan="dp=2 pp=4 gbs=16 precision=fp16"))  # one node
    inside = [*priced.programs.hop_inside.forward, *priced.programs.hop_inside.backward]

    timeline = run_step(priced)

    hops = [share.item for share in timeline.shares if share.item and share.item.name.startswith("hop.")]
    assert hops
    assert all(any(item is own for own in inside) for item in hops)


def test_copies_have_the_time_that_they_add_to_the_step():
    plan = "dp=8 mbs=1 gbs=16 zero=3"
    plain = make_job(model="llama-3-8b", cluster="dgx-h100:1", stack="torch-fsdp2", plan=plan)
    placed = make_job(
        model="llama-3-8b",
        cluster="dgx-h100:1",
        stack="torch-fsdp2",
        plan=plan + " offload=activations:host",
    )
    before, after = predict(plain), predict(placed)
    assert sum(after.breakdown.values()) == pytest.approx(after.step_time_s)
    for component in ("mlp", "attention", "dp_communication"):
        assert after.breakdown[component] == pytest.approx(before.breakdown[component], rel=1e-6)
    added_s = after.timeline.step_time_s - before.timeline.step_time_s
    assert after.breakdown["offload"] == pytest.approx(added_s, rel=1e-6)
