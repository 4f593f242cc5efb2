"""economics/checkpoints.py: seconds of each method in closed form, and laws of rates and sizes."""

from dataclasses import replace

import pytest
from all_cases import all_cases
from saving_cases import STORE, cluster_with, even_states

from flopcast.economics.checkpoints import SaveRates, save_times, slowest_of
from flopcast.library.constants import shipped_levels
from flopcast.spec.checkpoints import METHODS, Checkpoint

RATES = SaveRates.of(shipped_levels())
EXACT = replace(RATES, node_log_sigma_factor=0.0)
SAVED = even_states(80e9)  # 10 GB of each of 8 ranks, 40 GB of a node
COPY_S, FILES_S, WRITE_S = 10 / (RATES.pinned_fraction * 25), 8 * RATES.file_s, 4.0


def times(method, window_s=0.0, rates=EXACT, saved=SAVED, cluster=None, **fields):
    checkpoint = Checkpoint(method=method, **fields)
    return save_times(saved, checkpoint, cluster or cluster_with(), window_s, rates)


def test_what_training_waits_for_is_the_sum_of_the_parts_of_each_method():
    serialise_s = 10e9 / RATES.serialised_bytes_per_s
    expected = {
        ("synchronous", 9.0): (COPY_S + serialise_s + FILES_S + WRITE_S, 0.0),
        ("asynchronous", 9.0): (COPY_S, WRITE_S),
        ("chunked", 9.0): (COPY_S + FILES_S, WRITE_S - COPY_S - FILES_S),
        ("lazy", 9.0): (FILES_S, WRITE_S - FILES_S),
        ("lazy", 0.5): (COPY_S - 0.5 + FILES_S, WRITE_S - COPY_S + 0.5 - FILES_S),
        ("coalesced", 9.0): (0.0, WRITE_S),
    }
    for (method, window_s), seconds in expected.items():
        found = times(method, window_s)

        waits_s = found.blocked_s - RATES.handover_s
        assert (waits_s, found.background_s) == pytest.approx(seconds), method
        assert found.write_s == pytest.approx(WRITE_S)


def test_the_time_between_checkpoints_is_that_of_the_steps_or_of_the_write():
    lazy = times("lazy", 9.0)
    hardly = 1e-9

    assert lazy.cycle_s(100.0) == pytest.approx(100.0 + lazy.lost_s)
    assert lazy.cycle_s(hardly) == pytest.approx(lazy.blocked_s + lazy.background_s)
    assert lazy.cycle_s(lazy.least_work_s) == pytest.approx(lazy.cycle_s(hardly))


def test_shared_storage_is_limited_by_its_nodes_or_by_itself():
    slow = STORE.model_copy(update={"write_bytes_per_s": 5e9})
    cases = {
        "of nodes": ({}, "file_system", 40 / 10),
        "of all": ({"file_system": slow}, "file_system", 80 / 5),
        "drives": ({}, "nvme", 40 / 4),
        "host": ({}, "host", 0.0),
    }
    for name, (changes, to, seconds) in cases.items():
        found = times("asynchronous", to=to, cluster=cluster_with(**changes))
        assert found.write_s == pytest.approx(seconds), name


@all_cases("method", METHODS)
@all_cases("to", ["file_system", "nvme", "host"])
def test_faster_links_and_storage_are_never_slower_and_smaller_states_neither(method, to):
    fast = STORE.model_copy(update={"write_bytes_per_s": 800e9, "read_bytes_per_s": 800e9})
    usual = times(method, 0.2, RATES, to=to)
    others = [
        times(method, 0.2, RATES, to=to, cluster=cluster_with(host_bytes_per_s=60e9)),
        times(method, 0.2, RATES, to=to, cluster=cluster_with(file_system=fast)),
        times(method, 0.2, RATES, to=to, saved=even_states(40e9)),
        times(method, 5.0, RATES, to=to),
    ]
    for other in others:
        assert other.lost_s <= usual.lost_s + 1e-12
        assert other.restore_s <= usual.restore_s + 1e-12
        assert other.cycle_s(1.0) <= usual.cycle_s(1.0) + 1e-12


def test_methods_that_do_more_beside_training_stop_it_for_a_shorter_time():
    waits = [times(method, 9.0, RATES).blocked_s for method in METHODS]

    assert waits[0] > waits[1] > waits[3] > waits[4]
    assert waits[0] > waits[2] > waits[3]


def test_files_take_longer_on_more_nodes_and_none_with_writers_that_open_them():
    saved = [even_states(80e9, nodes, num_files=96) for nodes in (1, 2, 8)]
    waits = [
        [times(method, 9.0, RATES, one, cluster_with(one.num_nodes)).files_s for one in saved]
        for method in ("lazy", "coalesced")
    ]

    assert waits[0] == pytest.approx([96 * RATES.file_s * slowest_of(n, 0.3) for n in (1, 2, 8)])
    assert waits[0][0] < waits[0][1] < waits[0][2]
    assert waits[1] == [0.0] * 3


def test_little_memory_of_the_host_makes_a_copy_as_slow_as_the_write():
    ample, none = times("lazy", 0.0, host_bytes=40e9), times("lazy", 0.0, host_bytes=1.0)

    assert ample.copy_s == pytest.approx(COPY_S)
    assert none.copy_s == pytest.approx(WRITE_S, rel=1e-6)
    assert times("lazy", 0.0, host_bytes=20e9).copy_s == pytest.approx(WRITE_S / 2)


def test_devices_behind_one_link_share_it():
    memory = cluster_with().node.memory.model_copy(update={"devices_per_link": 2})
    group = cluster_with().groups[0]
    node = group.node.model_copy(update={"memory": memory})
    shared = cluster_with(groups=(group.model_copy(update={"node": node}),))

    assert times("asynchronous", cluster=shared).copy_s == pytest.approx(2 * COPY_S)


def test_more_nodes_have_a_slower_slowest_one():
    slowest = [slowest_of(nodes, 0.3) for nodes in (1, 2, 4, 8, 100)]

    assert slowest[0] == 1.0
    assert slowest == sorted(slowest)
