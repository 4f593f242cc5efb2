"""Shard groups of kinds of state: what travels and what stays, against closed forms; ranks of groups."""

import numpy as np
import pytest
from workload_cases import LLAMA, at, realised

from flopcast.cost.placement import axis_group
from flopcast.cost.ranks import members, place_of
from flopcast.library import catalog
from flopcast.memory.categories import STANDING
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.shard_groups import LEVEL_AXES

GENERIC = catalog.stack("generic")
ZERO_PLUS_PLUS = "shards=parameters:all:int8,secondary:8:int8,gradients:all:int4"
THREE_LEVELS = "shards=parameters:2:int8,gradients:8:int4,optimizer:all"


def programs_of(words="", replicas=64, batch=128):
    """The small model on data-parallel ranks of ZeRO-3, with two micro-batches."""
    return realised(LLAMA, GENERIC, f"dp={replicas} gbs={batch} zero=3 {words}".strip())


def messages(segments, name):
    """Axis, and bytes of all repeats, of the messages of one name."""
    found = [
        (item.work.axis, at(item.work.message_bytes) * at(item.count) * at(segment.repeat))
        for segment in segments
        for item in segment.items
        if item.name == name
    ]
    return {axis for axis, _ in found}, sum(size for _, size in found)


def at_the_end(items, name):
    """Axis and bytes of a message at the end of a step."""
    (item,) = [item for item in items if item.name == name]
    return item.work.axis, at(item.work.message_bytes) * at(item.count)


def standing(programs, name):
    return at(STANDING[name](programs))


def test_zero_plus_plus_sends_a_byte_for_two_and_half_a_byte_for_four():
    usual, changed = programs_of(), programs_of(ZERO_PLUS_PLUS)

    (_, wide), (axes, narrow) = (messages(p.forward, "parameters.gather") for p in (usual, changed))
    (back_axes, back) = messages(changed.backward, "parameters.gather")
    (_, summed), (sum_axes, quantised) = (
        messages(p.backward, "gradients.reduce") for p in (usual, changed)
    )

    assert narrow == pytest.approx(wide / 2)  # int8 for 16 bits
    assert back == pytest.approx(wide / 2)
    assert quantised == pytest.approx(summed / 8)  # int4 for fp32
    assert (axes, back_axes, sum_axes) == ({"dp_parameters"}, {"dp_secondary"}, {"dp_gradients"})


def test_each_state_is_as_large_as_its_group_makes_it():
    usual, changed = programs_of(), programs_of(THREE_LEVELS)
    parameters = at(usual.parameters)

    assert standing(changed, "parameters") == pytest.approx(2 * parameters / 2)
    assert standing(changed, "gradients") == pytest.approx(4 * parameters / 8)
    assert standing(changed, "optimizer_states") == pytest.approx(standing(usual, "optimizer_states"))
    assert standing(programs_of("shards=secondary:8"), "secondary_parameters") == pytest.approx(
        2 * parameters / 8
    )
    assert standing(usual, "secondary_parameters") == 0


def test_sums_of_groups_reach_the_owners_of_states_and_updates_return_once_for_each_step():
    programs = programs_of(THREE_LEVELS)
    parameters = at(programs.parameters)

    assert at_the_end(programs.reduce, "gradients.reduce_to_owners") == (
        "dp_gradients_apart",
        pytest.approx(4 * parameters / 8),
    )
    assert at_the_end(programs.update, "gradients.gather_parameters") == (
        "dp_parameters_apart",
        pytest.approx(2 * parameters / 2),
    )


def test_groups_that_are_written_out_say_what_none_say():
    silent, written = programs_of(), programs_of("shards=parameters:all,gradients:all,optimizer:all")

    for name in STANDING:
        assert standing(written, name) == pytest.approx(standing(silent, name), rel=1e-12), name
    for passes in ("forward", "backward"):
        for name in ("parameters.gather", "gradients.reduce"):
            sizes = [messages(getattr(p, passes), name)[1] for p in (silent, written)]
            assert sizes[0] == pytest.approx(sizes[1], rel=1e-12)


@pytest.mark.parametrize("order", ["tp-cp-dp-pp", "cp-tp-dp-pp", "dp-tp-cp-pp"])
def test_members_of_every_group_are_those_that_placement_counts(order):
    plan = Plan(
        dp=16,
        tp=2,
        cp=2,
        pp=2,
        gbs=16,
        zero=3,
        rank_order=order,
        shards="parameters:2,gradients:8,secondary:4",
    )
    wrong = []
    for axis in LEVEL_AXES:
        of_each = [members(axis, plan, rank) for rank in range(plan.devices)]
        nodes = max(len({rank // 8 for rank in group}) for group in of_each)
        group = axis_group(axis, one_plan(plan), 8)
        if {len(each) for each in of_each} != {int(group.ranks.item())} or nodes > group.nodes.item():
            wrong.append((axis, of_each[0], group.ranks.item(), nodes, group.nodes.item()))
        assert all(rank in group for rank, group in enumerate(of_each))

    assert wrong == []


def test_a_group_and_the_one_across_it_meet_in_one_rank():
    plan = Plan(dp=16, tp=2, gbs=16, zero=3, shards="parameters:2,gradients:8")

    for kind in ("parameters", "gradients"):
        for rank in range(plan.devices):
            near, apart = (members(f"dp_{kind}{end}", plan, rank) for end in ("", "_apart"))
            assert set(near) & set(apart) == {rank}
            assert len(near) * len(apart) == 16
            assert {place_of(plan, other)["tp"] for other in (*near, *apart)} == {
                place_of(plan, rank)["tp"]
            }


def test_context_parallel_ranks_share_with_their_neighbours():
    programs = realised(LLAMA, GENERIC, "dp=16 cp=4 gbs=32 zero=3 shards=gradients:4")

    assert standing(programs, "gradients") == pytest.approx(4 * at(programs.parameters) / 16)


def test_plans_of_a_batch_with_groups_are_their_members():
    together = realised(
        LLAMA, GENERIC, f"dp=16 gbs=128 zero=3 {THREE_LEVELS}", f"dp=64 gbs=128 zero=3 {THREE_LEVELS}"
    )

    sizes = [
        np.broadcast_to(STANDING[name](together), (2, 1))[:, 0] for name in ("parameters", "gradients")
    ]
    alone = [
        [standing(programs_of(THREE_LEVELS, dp), name) for dp in (16, 64)]
        for name in ("parameters", "gradients")
    ]

    assert np.allclose(sizes, alone, rtol=1e-12)
