"""cost/ranks.py: members of groups, held against the sizes and nodes that placement counts."""

from itertools import product

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flopcast.cost.placement import axis_group
from flopcast.cost.ranks import FOLDED, MEMBERS, members, place_of, rank_at
from flopcast.errors import InternalError
from flopcast.spec.plan import Plan, one_plan

AXES = (*MEMBERS, *FOLDED, "dp_shard", "dp_replicate", "embedding")
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp", "pp-dp-cp-tp", "dp-tp-cp-pp")
DEGREE = st.sampled_from([1, 2, 3, 4])
LAWS = settings(max_examples=30, deadline=None)


@st.composite
def plans(draw):
    tp, cp, dp, pp = (draw(DEGREE) for _ in range(4))
    stage = tp * cp * dp
    ep = draw(st.sampled_from([n for n in range(1, stage + 1) if stage % n == 0]))
    etp = draw(st.sampled_from([1, tp]))
    assume(stage % (ep * etp) == 0)
    shard = draw(st.sampled_from([n for n in range(1, dp + 1) if dp % n == 0]))
    replicas = stage // (ep * etp)
    assume(replicas % (dp // shard) == 0)
    order = draw(st.sampled_from(ORDERS))
    return Plan(
        tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, gbs=dp, zero=1, data_shard=shard, rank_order=order
    )


@LAWS
@given(plan=plans(), axis=st.sampled_from(AXES))
def test_groups_of_an_axis_cut_the_ranks_into_parts_of_the_size_that_placement_counts(plan, axis):
    groups = {rank: members(axis, plan, rank) for rank in range(plan.devices)}

    inside = {rank: group for rank, group in groups.items() if rank in group}
    assert all(groups[other] == group for group in inside.values() for other in group)
    sizes = {len(group) for group in groups.values()}
    assert sizes == {int(axis_group(axis, one_plan(plan), 8).ranks.item())}
    if axis != "embedding":  # stages between the ends take no part
        assert len(inside) == plan.devices


@all_cases("order", ORDERS)
@all_cases("axis", MEMBERS)
def test_groups_lie_on_as_many_nodes_as_placement_counts(order, axis):
    for tp, cp, dp, pp in product((1, 2, 4), (1, 2), (1, 4), (1, 4)):
        plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, gbs=dp, rank_order=order)
        width = min(8, plan.devices)

        nodes = [{rank // width for rank in members(axis, plan, r)} for r in range(plan.devices)]

        assert max(map(len, nodes)) == axis_group(axis, one_plan(plan), 8).nodes.item()


@LAWS
@given(plan=plans(), data=st.data())
def test_a_place_and_its_rank_say_the_same(plan, data):
    rank = data.draw(st.integers(0, plan.devices - 1))

    assert rank_at(plan, place_of(plan, rank)) == rank


def test_neighbours_in_the_rank_order_are_tensor_parallel():
    assert members("tp", Plan(tp=4, dp=2, gbs=2), 5) == (4, 5, 6, 7)


def test_experts_fold_the_ranks_of_a_stage_alone():
    plan = Plan(tp=2, dp=4, pp=2, ep=4, etp=1, gbs=4)

    assert members("ep", plan, 9) == (8, 9, 10, 11)
    assert members("expert_dp", plan, 9) == (9, 13)


def test_an_axis_that_nobody_knows_is_a_bug():
    with pytest.raises(InternalError, match="no group along 'rows'"):
        members("rows", Plan(), 0)


def test_all_ranks_are_the_world():
    plan = Plan(tp=2, pp=3, dp=2, gbs=2)

    assert np.array_equal(members("world", plan, 7), np.arange(12))
