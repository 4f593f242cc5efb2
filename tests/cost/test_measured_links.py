"""Messages on measured links, against an enumeration of the pairs of nodes that they cross."""

import numpy as np
import pytest
from conftest import make_job

from flopcast.cost.crossed_links import node_of_ranks
from flopcast.cost.factors import FactorBook
from flopcast.cost.part_prices import axes_of, with_parts
from flopcast.cost.parts import layout_of
from flopcast.cost.placement import axis_group
from flopcast.cost.price import price
from flopcast.cost.ranks import members
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractMessage
from flopcast.prediction import predict, programs_of
from flopcast.spec.plan import one_plan

PLANS = (
    "tp=8 pp=2 dp=2 gbs=8",
    "tp=4 pp=4 dp=2 gbs=8",
    "tp=2 pp=2 dp=8 gbs=16",
    "tp=4 pp=2 dp=4 gbs=8 rank_order=tp-cp-pp-dp",
)
GENERATOR = np.random.default_rng(0)
RANDOM = GENERATOR.uniform(10.0, 20.0, (4, 4))


def job_on(rows, plan, **links):
    """A job on four nodes with one network card for each device, and a matrix in GB/s."""
    matrix = {"rows": np.asarray(rows).tolist(), "unit": "GB/s"} | links
    cluster = {"base": "dgx-a100:4", "tiers": {"1": {"links": matrix}}}
    return make_job(cluster=cluster, plan=f"{plan} precision=fp16")


def priced_of(job):
    """The prices of a job, without and with rows for its parts."""
    programs, book = programs_of(job), load_book(job.cluster)
    equal = price(programs, job.cluster, book, FactorBook(job.site, book.levels))
    layout = layout_of(job.plan, job.cluster, job.site, axes_of(programs))
    return equal, with_parts((equal,), layout, job.cluster), layout


def step_s(job):
    """The predicted step of a job."""
    return predict(job, load_book(job.cluster)).step_time_s


def test_equal_links_give_the_step_of_a_tier_that_reaches_the_same_fraction():
    for plan in PLANS:
        equal = job_on(np.full((4, 4), 15.0), plan)
        plain = make_job(
            cluster={"base": "dgx-a100:4", "tiers": {"1": {"attained_fraction": 0.6}}},
            plan=f"{plan} precision=fp16",
        )

        assert step_s(equal) == pytest.approx(step_s(plain), rel=1e-12), plan


def test_a_ring_goes_at_the_speed_of_its_slowest_pair():
    for plan in PLANS:
        job = job_on(RANDOM, plan)
        equal, measured, _layout = priced_of(job)
        relative = RANDOM / RANDOM[~np.eye(4, dtype=bool)].mean()
        nodes = node_of_ranks(job.plan.devices, job.cluster)
        for item, found in measured.prices.items():
            known = equal.prices[item]
            if not (isinstance(item.work, AbstractMessage) and known.link) or item.work.axis[:2] == "pp":
                continue
            if not (known.link.tier == 1).any() or item.work.collective in ("all_to_all",):
                continue
            slowest = min(
                relative[a, b]
                for rank in range(job.plan.devices)
                for a, b in _ring(nodes, members(item.work.axis, job.plan, rank))
            )
            on_link_s = known.alone_s * known.link.fraction
            expected_s = known.alone_s - on_link_s + on_link_s / slowest

            assert found.alone_s.max(axis=0) == pytest.approx(expected_s[0], rel=1e-9), (plan, item.name)


def _ring(nodes, group):
    """The pairs of nodes that a ring over a group of ranks crosses."""
    on = [int(nodes[rank]) for rank in group]
    return [(a, b) for a, b in zip(on, on[1:] + on[:1], strict=True) if a != b]


def test_groups_of_the_matrix_are_those_of_the_placement():
    for plan in PLANS:
        job = job_on(RANDOM, plan)
        nodes = node_of_ranks(job.plan.devices, job.cluster)
        for axis in ("tp", "dp", "world"):
            group = axis_group(axis, one_plan(job.plan), job.cluster.scale_up_devices)
            spans = [len(set(nodes[list(members(axis, job.plan, r))])) for r in range(job.plan.devices)]

            assert max(spans) == group.nodes.item(), (plan, axis)


def test_a_transfer_between_stages_crosses_one_pair_in_each_direction():
    plan, even = "tp=8 pp=4 dp=1 gbs=8", np.full((4, 4), 15.0)
    base_s = step_s(job_on(even, plan))
    for sender in range(4):
        for receiver in range(4):
            changed = even.copy()
            changed[sender, receiver] = 15.0 / 3.5
            changed[~np.eye(4, dtype=bool)] *= 15.0 / changed[~np.eye(4, dtype=bool)].mean()  # equal mean
            found_s = step_s(job_on(changed, plan))
            crossed = abs(sender - receiver) == 1

            assert (found_s > base_s) is crossed, (sender, receiver)


def test_an_order_of_nodes_is_the_same_as_a_matrix_in_that_order():
    order = [2, 0, 3, 1]
    for plan in PLANS:
        moved = RANDOM[np.ix_(order, order)]

        assert step_s(job_on(RANDOM, plan, order=order)) == pytest.approx(
            step_s(job_on(moved, plan)), rel=1e-12
        )


def test_faster_links_never_lengthen_a_step_with_the_same_mean_reference():
    for plan in PLANS:
        steps = [step_s(job_on(RANDOM * factor, plan)) for factor in (0.5, 0.8, 1.0)]

        assert steps == sorted(steps, reverse=True), plan


def test_numbers_of_a_card_that_devices_share_are_divided_by_their_number():
    shared = step_s(job_on(RANDOM, PLANS[0], devices=8))

    assert shared == pytest.approx(step_s(job_on(RANDOM / 8, PLANS[0])), rel=1e-12)
