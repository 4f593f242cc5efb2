"""Groups of ranks on nodes, against a numbering of every rank, written out and counted."""

from collections import Counter
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.placement import axis_group, crossings
from flopcast.errors import InternalError
from flopcast.spec.plan import Plan, batch_plans, one_plan

AXES = ("tp", "cp", "dp", "pp")
ORDERS = tuple("-".join(order) for order in permutations(AXES))
VARIED = {  # which degrees the ranks of one group run over
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("cp", "dp"),  # all that hold the same parameters
    "model": ("tp", "pp"),
    "embedding": ("pp",),
    "stage": ("tp", "cp", "dp"),
    "world": AXES,
}


def plan_of(order, degrees):
    """A plan of these degrees: (tp, cp, dp, pp)."""
    tp, cp, dp, pp = degrees
    return Plan(
        tensor_parallel=tp,
        context_parallel=cp,
        data_parallel=dp,
        pipeline_parallel=pp,
        global_batch=dp,
        rank_order=order,
    )


@cache
def numbered(order, degrees):
    """Rank of every (tp, cp, dp, pp) position: the first axis of the order counts fastest."""
    size = dict(zip(AXES, degrees, strict=True))
    names = order.split("-")
    ranks = {}
    counting = product(*(range(size[name]) for name in reversed(names)))
    for rank, places in enumerate(counting):
        place = dict(zip(reversed(names), places, strict=True))
        ranks[tuple(place[name] for name in AXES)] = rank
    return ranks


@cache
def groups(order, degrees, axis):
    """Every group of an axis as the list of its ranks."""
    varied = [AXES.index(name) for name in VARIED[axis]]
    found = {}
    for place, rank in numbered(order, degrees).items():
        if axis == "embedding" and place[3] not in (0, degrees[3] - 1):
            continue
        rest = tuple(-1 if index in varied else part for index, part in enumerate(place))
        found.setdefault(rest, []).append(rank)
    return list(found.values())


@cache
def placed(order, degrees):
    """Degrees as plans; the numbers of nodes do not depend on how many devices a node has."""
    return one_plan(plan_of(order, degrees))


def counted(order, degrees, axis, devices_per_node):
    """Ranks of the widest group on its fullest node, and the nodes that it touches."""
    spread = []
    for group in groups(order, degrees, axis):
        nodes = Counter(rank // devices_per_node for rank in group)
        spread.append((len(nodes), max(nodes.values())))
    nodes, inside = max(spread)
    return inside, nodes


def cases(devices_per_node):
    """Degrees that are powers of two and fill whole nodes."""
    for degrees in product((1, 4), (1, 2), (1, 4), (1, 2, 8)):
        if np.prod(degrees) % devices_per_node == 0:
            yield degrees


@all_cases("devices_per_node", [1, 4, 8])
@all_cases("axis", VARIED)
@all_cases("order", ORDERS)
def test_groups_fall_on_nodes_as_counting_every_rank_says(order, axis, devices_per_node):
    wrong = []
    for degrees in cases(devices_per_node):
        group = axis_group(axis, placed(order, degrees), devices_per_node)
        found = (group.inside.item(), group.nodes.item())
        expected = counted(order, degrees, axis, devices_per_node)
        if found != expected:
            wrong.append((degrees, found, expected))

    assert wrong == []  # (tp, cp, dp, pp), (inside, nodes) found, (inside, nodes) counted


@all_cases("devices_per_node", [1, 2, 4, 8])
@all_cases("order", ORDERS)
def test_a_hop_leaves_a_node_where_any_rank_finds_its_neighbour_elsewhere(order, devices_per_node):
    for degrees in cases(devices_per_node):
        ranks, stages = numbered(order, degrees), degrees[3]
        expected = [0] * stages
        for (tp, cp, dp, stage), rank in ranks.items():
            neighbour = ranks[tp, cp, dp, (stage + 1) % stages]
            expected[stage] |= rank // devices_per_node != neighbour // devices_per_node

        found = crossings(placed(order, degrees), 0, stages, devices_per_node)

        assert found.tolist() == expected


@all_cases("order", ORDERS)
@all_cases("degrees", [(3, 1, 1, 4), (1, 1, 3, 4), (2, 1, 3, 2), (5, 1, 2, 3)])
def test_a_hop_that_only_some_ranks_take_out_of_the_node_leaves_it(degrees, order):
    """Stages that do not fill nodes evenly: the pipeline waits for the slowest rank."""
    ranks, stages = numbered(order, degrees), degrees[3]
    expected = [0] * stages
    for (tp, cp, dp, stage), rank in ranks.items():
        expected[stage] |= rank // 4 != ranks[tp, cp, dp, (stage + 1) % stages] // 4

    found = crossings(one_plan(plan_of(order, degrees)), 0, stages, 4)

    assert found.tolist() == expected


@all_cases("devices_per_node", [1, 4, 8])
@all_cases("shards", [1, 2, 4, 8])
@all_cases("order", ORDERS)
def test_neighbouring_replicas_share_shards_and_the_same_shard_lies_a_group_apart(
    order, shards, devices_per_node
):
    for degrees in ((1, 1, 8, 1), (2, 1, 8, 2), (4, 1, 8, 4)):
        plan = plan_of(order, degrees).model_copy(update={"zero": 3, "data_shard": shards})
        found = {"dp_shard": {}, "dp_replicate": {}}
        for (tp, cp, dp, pp), rank in numbered(order, degrees).items():
            found["dp_shard"].setdefault((tp, cp, dp // shards, pp), []).append(rank)
            found["dp_replicate"].setdefault((tp, cp, dp % shards, pp), []).append(rank)

        for axis, members in found.items():
            spread = [[rank // devices_per_node for rank in ranks] for ranks in members.values()]
            nodes, inside = max((len(set(on)), max(on.count(node) for node in on)) for on in spread)
            group = axis_group(axis, one_plan(plan), devices_per_node)
            assert (group.inside.item(), group.nodes.item()) == (inside, nodes)


def test_experts_are_sharded_over_the_ranks_of_a_group_that_hold_the_same():
    """dp = 16 in groups of 8, ep = 4: two ranks of a group hold an expert, and two groups do."""
    plans = one_plan(Plan(dp=16, ep=4, zero=3, dp_shard=8, gbs=16))

    inside, across = (axis_group(axis, plans, 8) for axis in ("expert_dp_shard", "expert_dp_replicate"))

    assert (inside.inside.item(), inside.nodes.item()) == (2, 1)
    assert (across.inside.item(), across.nodes.item()) == (1, 2)


@pytest.mark.parametrize("stages", [2, 3, 8])
def test_a_hop_joins_two_neighbours_on_two_nodes_or_on_one(stages):
    plans = one_plan(plan_of(ORDERS[0], (2, 1, 2, stages)))

    across, inside = axis_group("pp", plans, 8), axis_group("pp_inside", plans, 8)

    assert (across.inside.item(), across.nodes.item()) == (1, 2)
    assert (inside.inside.item(), inside.nodes.item()) == (2, 1)


@pytest.mark.parametrize("axis", ["pp", "pp_inside"])
def test_a_single_stage_has_no_neighbour(axis):
    assert axis_group(axis, one_plan(plan_of(ORDERS[0], (8, 1, 8, 1))), 8).ranks.item() == 1


def test_megatrons_order_keeps_tensor_parallel_ranks_in_one_node():
    """arXiv:2104.04473, takeaway 1: tensor parallelism inside a DGX, pipeline between them."""
    plans = one_plan(plan_of("tp-cp-dp-pp", (8, 1, 16, 8)))

    tensor, data = axis_group("tp", plans, 8), axis_group("dp", plans, 8)

    assert (tensor.inside.item(), tensor.nodes.item()) == (8, 1)
    assert (data.inside.item(), data.nodes.item()) == (1, 16)
    assert crossings(plans, 0, 8, 8).tolist() == [1] * 8


def test_groups_of_a_batch_are_those_of_its_plans():
    degrees = [(1, 1, 8, 4), (2, 1, 16, 1), (8, 1, 2, 2), (4, 1, 1, 8)]
    plans = [plan_of(ORDERS[0], each) for each in degrees]

    for axis in (*VARIED, "pp", "pp_inside"):
        together = axis_group(axis, batch_plans(plans), 8)
        alone = [axis_group(axis, one_plan(plan), 8) for plan in plans]

        assert together.ranks.shape == (4, 1)
        assert together.inside.ravel().tolist() == [group.inside.item() for group in alone]
        assert together.nodes.ravel().tolist() == [group.nodes.item() for group in alone]


FOLDS = [  # tp, dp, pp, etp, ep
    (1, 8, 1, 1, 4), (2, 8, 2, 2, 4), (2, 8, 2, 1, 4), (4, 4, 2, 1, 8), (4, 4, 1, 4, 2), (8, 4, 2, 1, 32),
]  # fmt: skip


def test_experts_that_are_not_spread_have_the_data_parallel_ranks_as_replicas():
    plans = one_plan(Plan(dp=8, tp=4, gbs=8))

    groups_of = [axis_group(axis, plans, 8) for axis in ("dp", "expert_dp")]

    assert [(g.inside.item(), g.nodes.item()) for g in groups_of] == [(2, 4), (2, 4)]


def test_crossings_belong_to_the_plan_that_is_asked_for():
    plans = batch_plans([plan_of(ORDERS[1], each) for each in [(1, 1, 2, 4), (8, 1, 1, 4)]])

    assert crossings(plans, 0, 4, 4).tolist() == [0, 0, 0, 0]
    assert crossings(plans, 1, 4, 4).tolist() == [1, 1, 1, 1]


def test_an_axis_that_does_not_exist_is_a_bug_of_ours():
    with pytest.raises(InternalError, match="expert"):
        axis_group("expert", one_plan(Plan(global_batch=1)), 8)
