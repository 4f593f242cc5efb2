"""Collectives: groups on every tier, sizes that may be cut short, keys that packs share."""

import pytest
from all_cases import all_cases

from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.errors import SpecError
from flopcast.lab.measure import collectives
from flopcast.lab.measure.collective_runs import COLLECTIVES
from flopcast.lab.measure.sample_pack import ALONE, OVERLAPPED, MessageSample

TORCHRUN = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}


def test_every_collective_of_torch_that_is_priced_is_measured():
    """Libraries of experts, DeepEP and its branch HybridEP, exchange tokens through buffers of their own.

    A pass around a ring is made of transfers between neighbours, which are measured; a quantised
    reduce-scatter, of exchanges. Serving engines have an all-reduce of their own.
    """
    of_other_libraries = {"dispatch", "combine", "hybrid_dispatch", "hybrid_combine"}

    assert set(COLLECTIVES) | of_other_libraries | {"ring_pass", "quantised_reduce_scatter"} == {
        name for name, formula in FORMULAS.items() if not formula.serves
    }


def test_one_process_has_no_peers():
    assert collectives.ranks_of({}) is None
    assert collectives.ranks_of({"WORLD_SIZE": "1"}) is None


def test_half_an_environment_is_refused_with_all_its_gaps():
    with pytest.raises(SpecError) as caught:
        collectives.ranks_of({"WORLD_SIZE": "16", "RANK": "x"})

    assert [p.field for p in caught.value.problems] == ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"]


def test_ranks_are_read_as_torchrun_numbers_them():
    ranks = collectives.ranks_of(TORCHRUN)

    assert (ranks.rank, ranks.world, ranks.local_rank, ranks.local_world) == (9, 16, 1, 8)


def test_a_node_has_groups_of_every_power_of_two_and_the_whole():
    assert {(g.inside, g.nodes) for g in collectives.groups_of(8, 8)} == {(2, 1), (4, 1), (8, 1)}


def test_nodes_of_one_device_have_groups_across_nodes_only():
    assert {(g.inside, g.nodes) for g in collectives.groups_of(4, 1)} == {(1, 4), (1, 2)}


def test_a_rail_takes_one_rank_of_each_node():
    (rail,) = [g for g in collectives.groups_of(16, 8) if (g.inside, g.nodes) == (1, 2)]

    assert rail.ranks == (0, 8)


@all_cases(("world", "local"), [(2, 2), (8, 8), (16, 8), (24, 8), (4, 1), (12, 4)])
def test_groups_hold_the_first_rank_and_as_many_as_they_say(world, local):
    for group in collectives.groups_of(world, local):
        assert group.ranks[0] == 0
        assert len(set(group.ranks)) == group.inside * group.nodes
        assert max(group.ranks) < world


def test_no_group_is_made_twice():
    ranks = [group.ranks for group in collectives.groups_of(24, 8)]

    assert len(ranks) == len(set(ranks))


def test_sizes_span_a_kilobyte_to_a_gigabyte():
    assert (
        (collectives.SIZES[0], collectives.SIZES[-1])
        == (collectives.LEAST_BYTES, collectives.MOST_BYTES)
        == (2**10, 2**30)
    )
    assert sorted(collectives.ORDER) == list(range(len(collectives.SIZES)))


def test_the_first_three_sizes_already_span_the_range():
    sizes = [collectives.SIZES[index] for index in collectives.ORDER[:3]]

    assert min(sizes) == 2**10
    assert max(sizes) >= 2**26


def test_transfers_are_measured_between_two_ranks_only():
    listed = collectives.entries(collectives.groups_of(8, 8), 80e9)

    assert {len(e.group.ranks) for e in listed if e.collective == "send_receive"} == {2}


def test_messages_that_do_not_fit_are_left_out():
    listed = collectives.entries(collectives.groups_of(8, 8), 1e9)

    assert max(entry.message_bytes for entry in listed if entry.condition == ALONE) <= 0.15e9


def test_overlap_is_measured_after_the_first_sizes_of_everything():
    listed = collectives.entries(collectives.groups_of(8, 8), 80e9)

    first = next(i for i, entry in enumerate(listed) if entry.condition == OVERLAPPED)

    assert {entry.collective for entry in listed[:first]} == set(COLLECTIVES)
    assert len({entry.message_bytes for entry in listed[:first]}) == 4
    assert first < len(listed) / 2


def test_no_entry_is_listed_twice():
    keys = [entry.key for entry in collectives.entries(collectives.groups_of(16, 8), 80e9)]

    assert len(keys) == len(set(keys))


def test_an_entry_and_its_sample_have_one_key():
    (entry, *_) = collectives.entries(collectives.groups_of(16, 8), 80e9)

    sample = MessageSample(
        device="d",
        collective=entry.collective,
        message_bytes=entry.message_bytes,
        inside=entry.group.inside,
        nodes=entry.group.nodes,
        condition=entry.condition,
        repetitions_us=(1.0,),
    )

    assert sample.key == entry.key
