"""Groups of every axis on domains of 4, 8 and 72, against all ranks written out and counted."""

from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopcast.cost.placement import axis_group, crossings, ranks_per_domain
from flopcast.spec.plan import Plan, batch_plans, one_plan

AXES = ("tp", "cp", "dp", "pp")
MEMBERS = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("cp", "dp"),
    "model": ("tp", "pp"),
    "stage": ("tp", "cp", "dp"),
    "world": AXES,
}
POWERS = [2**exponent for exponent in range(7)]
DEGREES = [each for each in product(POWERS, (1, 2, 8, 64), POWERS, POWERS) if np.prod(each) <= 1024]
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp")
ANY = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 24, 36, 48, 64])


def plan_of(degrees, order=ORDERS[0], **words):
    return Plan(**dict(zip(AXES, degrees, strict=True)), gbs=degrees[2], rank_order=order, **words)


def table_of(degrees, order):
    """Ranks by (tp, cp, dp, pp): the first axis of the order counts fastest."""
    names = order.split("-")
    sizes = [degrees[AXES.index(name)] for name in reversed(names)]
    ranks = np.arange(np.prod(degrees)).reshape(sizes)
    return np.moveaxis(ranks, [names[::-1].index(name) for name in AXES], range(4))


def rows_of(table, members):
    """One group a row."""
    varied = [AXES.index(name) for name in members]
    moved = np.moveaxis(table, varied, range(-len(varied), 0))
    return moved.reshape(-1, int(np.prod([table.shape[axis] for axis in varied])))


def most_nodes(rows, devices):
    """Domains that the widest group touches."""
    on = np.sort(rows // devices, axis=1)
    return 1 + int((np.diff(on, axis=1) > 0).sum(axis=1).max(initial=0))


def domain_of(world, devices):
    """Devices of a domain that a job takes: equally many of each, if that is more than half."""
    if world <= devices or world % devices == 0:
        return devices
    step = np.gcd(world, devices)
    even = [part for part in range(devices // 2 + 1, devices) if world % part == 0 and part % step == 0]
    return max(even, default=devices)


@all_cases("devices", [4, 8, 72])
@all_cases("order", ORDERS)
def test_groups_of_powers_of_two_fall_on_domains_as_counting_every_rank_says(order, devices):
    plans = batch_plans([plan_of(each, order) for each in DEGREES])
    found = {axis: axis_group(axis, plans, devices) for axis in MEMBERS}
    wrong = []
    for number, degrees in enumerate(DEGREES):
        table = table_of(degrees, order)
        on = domain_of(table.size, devices)
        for axis, members in MEMBERS.items():
            nodes = found[axis].nodes[number, 0]
            if nodes != most_nodes(rows_of(table, members), on):
                wrong.append((axis, degrees, nodes))

    assert wrong == []


@pytest.mark.parametrize("devices", [4, 8, 72])
def test_first_and_last_stage_share_a_domain_where_counting_says(devices):
    plans = batch_plans([plan_of(each) for each in DEGREES])

    nodes = axis_group("embedding", plans, devices).nodes[:, 0]

    for found, degrees in zip(nodes, DEGREES, strict=True):
        table = table_of(degrees, ORDERS[0])[..., [0, -1]]
        assert found == most_nodes(rows_of(table, ("pp",)), domain_of(np.prod(degrees), devices))


@all_cases("devices", [4, 8, 72])
@all_cases("shards", [2, 8, 32])
def test_shards_and_their_replicas_fall_on_domains_as_counting_says(shards, devices):
    chosen = [each for each in DEGREES if each[2] % shards == 0]
    plans = batch_plans([plan_of(each, zero=3, data_shard=shards) for each in chosen])
    found = {axis: axis_group(axis, plans, devices) for axis in ("dp_shard", "dp_replicate")}

    for number, (tp, cp, dp, pp) in enumerate(chosen):
        ranks = np.arange(tp * cp * dp * pp).reshape(pp, dp // shards, shards * cp, tp)
        on = domain_of(ranks.size, devices)
        sharing = np.moveaxis(ranks, 2, -1).reshape(-1, shards * cp)
        holding = np.moveaxis(ranks, 1, -1).reshape(-1, dp // shards)
        assert found["dp_shard"].nodes[number, 0] == most_nodes(sharing, on)
        assert found["dp_replicate"].nodes[number, 0] == most_nodes(holding, on)


@all_cases("devices", [4, 8, 72])
@all_cases("expert_tensor", [1, 2])
def test_ranks_of_experts_fall_on_domains_as_counting_says(expert_tensor, devices):
    chosen = [(each, ep) for each in DEGREES for ep in (2, 16, 64) if each[0] >= expert_tensor]
    chosen = [(d, ep) for d, ep in chosen if d[0] * d[1] * d[2] % (ep * expert_tensor) == 0]
    plans = batch_plans([plan_of(each, ep=ep, etp=expert_tensor) for each, ep in chosen])
    found = {axis: axis_group(axis, plans, devices) for axis in ("etp", "ep", "expert_dp")}

    for number, (degrees, ep) in enumerate(chosen):
        ranks = np.arange(np.prod(degrees)).reshape(degrees[3], -1, ep, expert_tensor)
        on = domain_of(ranks.size, devices)
        for axis, place in (("etp", 3), ("ep", 2), ("expert_dp", 1)):
            rows = np.moveaxis(ranks, place, -1).reshape(-1, ranks.shape[place])
            assert found[axis].nodes[number, 0] == most_nodes(rows, on), (axis, degrees, ep)


@settings(max_examples=100)
@given(ANY, st.sampled_from([1, 2, 3]), ANY, ANY, st.sampled_from(ORDERS), st.sampled_from([4, 8, 72]))
def test_any_degrees_of_one_distance_are_exact_and_others_touch_no_more_domains(
    tp, cp, dp, pp, order, devices
):
    degrees = (tp, cp, dp, pp)
    assume(np.prod(degrees) <= 20_000)
    table = table_of(degrees, order)
    on = domain_of(table.size, devices)

    for axis, members in MEMBERS.items():
        counted = most_nodes(rows_of(table, members), on)
        found = axis_group(axis, one_plan(plan_of(degrees, order)), devices)

        assert found.nodes.item() >= counted
        assert found.ranks.item() == np.prod([degrees[AXES.index(name)] for name in members])
        if len(members) in (1, 4) or "-".join(members) in order:
            assert found.nodes.item() == counted


@all_cases(("world", "ranks"), [(512, 64), (256, 64), (64, 72), (576, 72), (144, 72), (96, 48)])
def test_a_job_takes_equally_many_devices_of_each_rack(world, ranks):
    """512 are eight racks of 64, as a scheduler asked for segments of 16 nodes places them."""
    assert ranks_per_domain(np.array([[float(world)]]), 72).item() == ranks


def test_experts_over_a_whole_share_of_a_rack_stay_in_it():
    plans = one_plan(Plan(dp=512, ep=64, gbs=512))

    assert axis_group("ep", plans, 72).nodes.item() == 1
    assert crossings(one_plan(Plan(dp=64, pp=8, gbs=64)), 0, 8, 72).tolist() == [1] * 8
