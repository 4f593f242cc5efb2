"""Messages on the tiers of a cluster: zero, monotone, bounded, and equal to what hands compute."""

import numpy as np
import pytest
from all_cases import all_cases
from alone import DEVICES, changed_node
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.collectives.collective_time import RELATIVE_COLLECTIVES, message_seconds, tier_of
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group, axis_group
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.tier import Tier

NO_CURVES = CurveBook(curves={})
LINK = Tier(name="link", devices=4, bytes_per_s=100e9, latency_s=2e-6, attained_fraction=0.5)
NETWORK = Tier(name="network", devices=0, bytes_per_s=10e9, latency_s=20e-6, attained_fraction=0.8)
FEW = settings(max_examples=30, deadline=None)
SIZES = st.floats(1.0, 1e11)
ROUNDING = 1e-4  # of the numbers in a curve file
FALLS = {  # how much less a bigger message may take, at worst, where the measurements say so
    ("a100-nvswitch", "all_gather"): 0.02,
    ("a100-nvswitch", "reduce_scatter"): 0.02,
    ("a100-nvswitch", "all_to_all"): 0.02,
}


def cluster_of(*tiers, devices=4):
    """Nodes of some devices, joined by these tiers."""
    cluster = changed_node(catalog.cluster(DEVICES["a100-sxm4-80gb"]), devices=devices)
    return cluster.model_copy(update={"tiers": tiers})


def groups_of(*shapes):
    """Groups (inside, nodes), as arrays of shape (groups, 1)."""
    inside, nodes = np.array(shapes, dtype=np.float64).T
    return Group(inside=inside[:, None], nodes=nodes[:, None])


def seconds_of(collective, message_bytes, inside, nodes, cluster, book=NO_CURVES):
    """Seconds of one message."""
    size = np.array([[float(message_bytes)]])
    return message_seconds(collective, size, groups_of((inside, nodes)), cluster, book).alone_s.item()


def flat_curve(fabric, name, efficiency):
    """A measured curve of one efficiency."""
    return Curve(
        name=name,
        owner=fabric,
        axes=(np.array([20.0]), np.array([1.0]), np.array([0.0])),
        table=np.full((1, 1, 1), np.log(efficiency)),
        launch_s=0.0,
        evidence=CurveEvidence(source="made up", rows=1, rejected=0, relative_error=0.0),
    )


def shapes_of(cluster, collective):
    """Groups (inside, nodes) of more than one rank that fit a cluster's nodes."""
    inside = [n for n in (1, 2, 4, 8) if n <= cluster.node.devices]
    pairs = [(i, n) for i in inside for n in (1, 2, 3, 8, 64) if i * n > 1]
    return [(i, n) for i, n in pairs if i * n == 2] if collective == "send_receive" else pairs


def test_an_all_reduce_inside_a_node_takes_what_hands_compute():
    """1 GB on 4 ranks: 1.5 GB cross each link of 100 GB/s at half speed, after 4 hops of 2 us."""
    seconds = seconds_of("all_reduce", 1e9, 4, 1, cluster_of(LINK, NETWORK))

    assert seconds == pytest.approx(1.5e9 / 50e9 + 4 * 2e-6)


def test_between_nodes_every_rank_of_a_node_drives_its_own_network_card():
    """1 GB on 2 nodes of 4: 1.75 GB over 4 cards of 10 GB/s at 80 %, after 6 hops of 20 us."""
    seconds = seconds_of("all_reduce", 1e9, 4, 2, cluster_of(LINK, NETWORK))

    assert seconds == pytest.approx(1.75e9 / 32e9 + 6 * 20e-6)


def test_many_network_cards_are_never_faster_than_the_links_inside_the_node():
    fast = NETWORK.model_copy(update={"bytes_per_s": 60e9})

    seconds = seconds_of("all_gather", 1e9, 4, 2, cluster_of(LINK, fast))

    assert seconds == pytest.approx(7 / 8 * 1e9 / (100e9 * 0.8) + 20e-6 + 6 * 2e-6)


def test_a_transfer_between_nodes_uses_one_network_card():
    seconds = seconds_of("send_receive", 1e9, 1, 2, cluster_of(LINK, NETWORK))

    assert seconds == pytest.approx(1e9 / 8e9 + 20e-6)


def test_the_smallest_message_takes_its_hops():
    seconds = seconds_of("all_reduce", 1.0, 4, 8, cluster_of(LINK, NETWORK))

    assert seconds == pytest.approx(10 * 20e-6, rel=1e-3)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter"])
def test_a_ring_over_nodes_goes_through_every_rank_of_each(collective):
    """8 nodes of 4: 7 hops between nodes of 20 us, 24 inside them of 2 us, as NCCL's own model has it."""
    seconds = seconds_of(collective, 1.0, 4, 8, cluster_of(LINK, NETWORK))

    assert seconds == pytest.approx(7 * 20e-6 + 24 * 2e-6, rel=1e-3)


@pytest.mark.parametrize("collective", FORMULAS)
@given(message_bytes=SIZES)
@settings(max_examples=20, deadline=None)
def test_a_message_to_oneself_takes_no_time(collective, message_bytes):
    assert seconds_of(collective, message_bytes, 1, 1, cluster_of(LINK, NETWORK)) == 0.0


@all_cases("collective", FORMULAS)
@all_cases("nodes", [1, 2])
def test_an_empty_message_takes_no_time(collective, nodes):
    assert seconds_of(collective, 0.0, 2, nodes, cluster_of(LINK, NETWORK)) == 0.0


@given(
    collective=st.sampled_from(sorted(FORMULAS)),
    message_bytes=SIZES,
    shape=st.sampled_from([(2, 1), (4, 1), (1, 2), (4, 2), (4, 16)]),
    tier=st.sampled_from([0, 1]),
    faster=st.floats(1.0, 20.0),
)
@FEW
def test_more_bandwidth_is_never_slower(collective, message_bytes, shape, tier, faster):
    tiers = [LINK, NETWORK]
    before = seconds_of(collective, message_bytes, *shape, cluster_of(*tiers))
    tiers[tier] = tiers[tier].model_copy(update={"bytes_per_s": faster * tiers[tier].bytes_per_s})

    after = seconds_of(collective, message_bytes, *shape, cluster_of(*tiers))

    assert after <= before


@given(
    cluster=st.sampled_from(catalog.names("clusters")),
    collective=st.sampled_from(sorted(FORMULAS)),
    message_bytes=SIZES,
    tier=st.integers(0, 1),
    faster=st.floats(1.0, 20.0),
)
@FEW
def test_more_bandwidth_is_never_slower_with_measured_curves(
    cluster, collective, message_bytes, tier, faster
):
    slow = catalog.cluster(cluster)
    tiers = list(slow.tiers)
    index = min(tier, len(tiers) - 1)
    tiers[index] = tiers[index].model_copy(update={"bytes_per_s": faster * tiers[index].bytes_per_s})
    fast = slow.model_copy(update={"tiers": tuple(tiers)})
    book = load_book(slow)

    for shape in shapes_of(slow, collective):
        before = seconds_of(collective, message_bytes, *shape, slow, book)
        assert seconds_of(collective, message_bytes, *shape, fast, book) <= before


@given(message_bytes=SIZES, waits=st.floats(0.0, 1e-3))
@FEW
def test_more_latency_is_never_faster(message_bytes, waits):
    slow = NETWORK.model_copy(update={"latency_s": NETWORK.latency_s + waits})

    before = seconds_of("all_reduce", message_bytes, 4, 4, cluster_of(LINK, NETWORK))
    after = seconds_of("all_reduce", message_bytes, 4, 4, cluster_of(LINK, slow))

    assert after >= before


@all_cases("collective", FORMULAS)
@all_cases("name", catalog.names("clusters"))
def test_a_bigger_message_is_never_faster_than_the_measurements_say(name, collective):
    """Over 1 B to 64 GB in steps of 7 %; a fall of 2 % is the noise of small messages on NVSwitch."""
    cluster = catalog.cluster(name)
    size = 2.0 ** np.arange(0.0, 36.0, 0.1)
    shapes = shapes_of(cluster, collective)
    inside, nodes = np.repeat(np.array(shapes, dtype=np.float64), len(size), axis=0).T[..., None]
    sizes = np.tile(size, len(shapes))[:, None]
    ranks = Group(inside=inside, nodes=nodes)
    cost = message_seconds(collective, sizes, ranks, cluster, load_book(cluster))
    seconds = cost.alone_s.reshape(len(shapes), len(size))
    falls = np.maximum.accumulate(seconds, axis=1) / seconds - 1
    for tier, worst in zip(cost.tier[:: len(size), 0], falls.max(axis=1), strict=True):
        fabric = cluster.tiers[int(tier)].fabric

        assert worst <= FALLS.get((fabric, collective), ROUNDING)


@all_cases("name", catalog.names("clusters"))
@all_cases("ranks", [2, 4, 8, 32, 512])
def test_no_all_reduce_beats_the_network_cards_of_a_node(name, ranks):
    """Whatever the algorithm, a node of N must send (N-1)/N of the message and receive as much, twice."""
    cluster = catalog.cluster(name)
    inside = min(ranks, cluster.node.devices)
    nodes = max(1, ranks // inside)
    cards_bytes_per_s = cluster.node.devices * cluster.tiers[-1].bytes_per_s
    for size in (1e3, 1e6, 1e9, 1e11):
        seconds = seconds_of("all_reduce", size, inside, nodes, cluster, load_book(cluster))

        assert seconds >= 2 * (nodes - 1) / nodes * size / cards_bytes_per_s


@all_cases("name", catalog.names("clusters"))
@all_cases("collective", FORMULAS)
def test_no_message_beats_the_links_of_one_device(name, collective):
    cluster = catalog.cluster(name)
    best_bytes_per_s = max(tier.bytes_per_s for tier in cluster.tiers)
    ranks = groups_of(*shapes_of(cluster, collective))
    share = FORMULAS[collective].share(ranks.inside * ranks.nodes)
    for size in (1.0, 1e4, 1e8, 1e11):
        sizes = np.full(ranks.inside.shape, size)

        seconds = message_seconds(collective, sizes, ranks, cluster, load_book(cluster)).alone_s

        assert (seconds >= share * size / best_bytes_per_s).all()


def test_a_measured_curve_replaces_the_stated_fraction():
    link = LINK.model_copy(update={"fabric": "made-up"})
    book = CurveBook(curves={("made-up", "all_reduce"): flat_curve("made-up", "all_reduce", 0.25)})

    seconds = seconds_of("all_reduce", 1e9, 4, 1, cluster_of(link, NETWORK), book)

    assert seconds == pytest.approx(1.5e9 / 25e9 + 4 * 2e-6)


def test_a_curve_of_one_fabric_says_nothing_of_another():
    link = LINK.model_copy(update={"fabric": "made-up"})
    book = CurveBook(curves={("elsewhere", "all_reduce"): flat_curve("elsewhere", "all_reduce", 0.01)})

    measured = seconds_of("all_reduce", 1e9, 4, 1, cluster_of(link, NETWORK), book)

    assert measured == seconds_of("all_reduce", 1e9, 4, 1, cluster_of(LINK, NETWORK))


@all_cases("collective", FORMULAS)
def test_a_collective_without_measurements_borrows_the_bus_bandwidth_of_the_all_reduce(collective):
    link = LINK.model_copy(update={"fabric": "made-up"})
    book = CurveBook(curves={("made-up", "all_reduce"): flat_curve("made-up", "all_reduce", 0.25)})

    seconds = seconds_of(collective, 1e9, 2, 1, cluster_of(link, NETWORK), book)

    formula, two = FORMULAS[collective], np.array(2.0)
    assert seconds == pytest.approx(formula.share(two) * 1e9 / 25e9 + formula.hops(two) * 2e-6)


def test_a_curve_of_its_own_comes_before_a_borrowed_one():
    link = LINK.model_copy(update={"fabric": "made-up"})
    curves = {
        ("made-up", n): flat_curve("made-up", n, e) for n, e in (("all_reduce", 0.1), ("all_gather", 1))
    }

    seconds = seconds_of("all_gather", 1e9, 4, 1, cluster_of(link, NETWORK), CurveBook(curves=curves))

    assert seconds == pytest.approx(0.75e9 / 100e9 + 2 * 2e-6)


@all_cases("name", RELATIVE_COLLECTIVES)
def test_every_borrowing_ends_at_the_all_reduce(name):
    seen = [name]
    while seen[-1] in RELATIVE_COLLECTIVES:
        seen.append(RELATIVE_COLLECTIVES[seen[-1]])
        assert len(seen) <= len(FORMULAS)

    assert seen[-1] == "all_reduce"
    assert set(seen) <= set(FORMULAS)


@all_cases("name", catalog.names("clusters"))
def test_messages_of_many_groups_cost_what_each_costs_alone(name):
    cluster = catalog.cluster(name)
    book = load_book(cluster)
    shapes = [(1, 1), *shapes_of(cluster, "all_reduce")]
    sizes = np.logspace(2, 10, len(shapes))[:, None]
    group = groups_of(*shapes)

    together = message_seconds("all_reduce", sizes, group, cluster, book).alone_s.ravel()

    alone = [
        seconds_of("all_reduce", size, *shape, cluster, book)
        for size, shape in zip(sizes.ravel(), shapes, strict=True)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_sizes_per_stage_and_groups_per_plan_broadcast():
    sizes = np.array([[1e6, 2e6, 0.0]])
    group = groups_of((4, 1), (4, 2))

    cost = message_seconds("all_reduce", sizes, group, cluster_of(LINK, NETWORK), NO_CURVES)

    assert cost.alone_s.shape == cost.tier.shape == (2, 3)
    assert (cost.alone_s[:, 2] == 0).all()
    assert cost.alone_s[1, 1] == seconds_of("all_reduce", 2e6, 4, 2, cluster_of(LINK, NETWORK))


def test_a_group_uses_the_widest_tier_that_it_needs():
    rack = NETWORK.model_copy(update={"name": "rack", "devices": 32})
    cluster = cluster_of(LINK, rack, NETWORK)

    tiers = tier_of(np.array([1.0, 2.0, 8.0, 9.0, 512.0]), cluster)

    assert tiers.tolist() == [0, 1, 1, 2, 2]


def test_the_only_tier_of_a_cluster_joins_every_group():
    tiers = tier_of(np.array([1.0, 2.0, 512.0]), cluster_of(NETWORK, devices=1))

    assert tiers.tolist() == [0, 0, 0]


def data_parallel_on(cluster, degree):
    """The group of `degree` replicas of one device."""
    plan = Plan(data_parallel=degree, global_batch=degree)
    return axis_group("dp", one_plan(plan), cluster.scale_up_devices)


def test_nodes_inside_one_scale_up_domain_talk_over_its_fast_links():
    """72 devices on one NVLink fabric, 4 to a node: a group of 18 such nodes never leaves it."""
    cluster = cluster_of(LINK.model_copy(update={"devices": 72}), NETWORK)

    tiers = [tier_of(data_parallel_on(cluster, d).nodes, cluster).item() for d in (4, 8, 72, 76)]

    assert tiers == [0, 0, 0, 1]


def test_a_scale_up_domain_has_one_link_a_device_however_many_nodes_it_spans():
    cluster = cluster_of(LINK.model_copy(update={"devices": 72}), NETWORK)
    group = data_parallel_on(cluster, 8)

    cost = message_seconds("all_gather", np.array([[1e9]]), group, cluster, NO_CURVES)

    assert cost.alone_s.item() == pytest.approx(7 / 8 * 1e9 / 50e9 + 3 * 2e-6)


def test_the_curves_asked_are_named_once_for_each_tier():
    link = LINK.model_copy(update={"fabric": "made-up"})
    curve = flat_curve("made-up", "all_reduce", 0.25)
    book = CurveBook(curves={("made-up", "all_reduce"): curve})
    group = groups_of((4, 1), (4, 2), (2, 1))

    cost = message_seconds("all_reduce", np.array([[1e6]]), group, cluster_of(link, NETWORK), book)

    assert tuple(cost.curves.values()) == (curve,)
    assert cost.tier.ravel().tolist() == [0, 1, 0]


# Oversubscribed uplinks: blocks of four nodes of four, two of them, whose uplinks carry an eighth

BLOCK = NETWORK.model_copy(update={"name": "block", "devices": 16})


def oversubscribed(ratio):
    """Two tiers of network over one of links."""
    return cluster_of(LINK, BLOCK, NETWORK.model_copy(update={"oversubscription_ratio": ratio}))


@all_cases(
    ("collective", "slower"),
    [
        ("all_reduce", 8 / 4),  # a ring leaves each block by one of its four nodes: two eighths are missing
        ("all_to_all", 8 * 4 / 7),  # of seven other nodes, four are in the other block
        ("dispatch", 8 * 4 / 7),
        ("send_receive", 8),  # every pair of neighbours crosses at once
    ],
)
def test_uplinks_slow_what_leaves_a_block_by_what_they_cannot_carry(collective, slower):
    large = 1e12  # latency does not count

    narrow_s = seconds_of(collective, large, 1, 8, oversubscribed(8.0))

    wide_s = seconds_of(collective, large, 1, 8, oversubscribed(1.0))
    assert narrow_s / wide_s == pytest.approx(slower, rel=1e-3)


@all_cases("collective", FORMULAS)
def test_inside_a_block_uplinks_do_not_matter(collective):
    narrow_s = seconds_of(collective, 1e9, 4, 4, oversubscribed(8.0))

    assert narrow_s == seconds_of(collective, 1e9, 4, 4, oversubscribed(1.0))


@FEW
@given(
    collective=st.sampled_from(sorted(FORMULAS)),
    nodes=st.integers(1, 64),
    ratios=st.tuples(st.floats(1, 16), st.floats(1, 16)),
)
def test_wider_uplinks_are_never_slower(collective, nodes, ratios):
    wide, narrow = sorted(ratios)

    wide_s = seconds_of(collective, 1e9, 4, nodes, oversubscribed(wide))

    assert wide_s <= seconds_of(collective, 1e9, 4, nodes, oversubscribed(narrow))
