"""Exchanges that send one copy for each domain, libraries' own fractions, terms of a message: by hand."""

import numpy as np
import pytest
from all_cases import all_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from test_network import LINK, NETWORK, NO_CURVES, cluster_of, flat_curve, groups_of, shapes_of

from flopcast.cost.collectives.collective_time import message_seconds, message_terms
from flopcast.cost.collectives.formulas import FORMULAS
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.exchanges import Dispatch, Routing
from flopcast.records import replace

FEW = settings(max_examples=30, deadline=None)
MADE = "made-up"
ONE_COPY_A_DOMAIN = [name for name, formula in FORMULAS.items() if formula.one_copy_a_domain]


def routing_of(picks, experts=16, row_bytes=1024.0):
    """The routes of as many tokens as have a million bytes in all."""
    return Routing(
        tokens=np.array([[1e6 / row_bytes]]),
        row_bytes=np.array([[row_bytes]]),
        ranks=np.array([[8.0]]),
        experts=np.array([[float(experts)]]),
        top_k=np.array([[float(picks)]]),
    )


def cost_of(collective, copies_bytes, domain_bytes, inside, nodes, cluster=None, book=NO_CURVES):
    across = None if domain_bytes is None else np.array([[float(domain_bytes)]])
    size = np.array([[float(copies_bytes)]])
    return message_seconds(
        collective, size, groups_of((inside, nodes)), cluster or cluster_of(LINK, NETWORK), book, across
    )


@all_cases("collective", ONE_COPY_A_DOMAIN)
@all_cases(
    ("copies_bytes", "domain_bytes", "expected_s"),
    [
        (1e9, 8e8, 20e-6 + 0.5 * 8e8 / 8e9),  # half of it for the other of two domains: 10 GB/s at 80 %
        (1e9, 1e6, 2e-6 + 0.75 * 1e9 / 50e9),  # inside: three of four ranks over 100 GB/s at 50 %
    ],
)
def test_copies_inside_and_one_a_domain_go_on_at_once(collective, copies_bytes, domain_bytes, expected_s):
    cost = cost_of(collective, copies_bytes, domain_bytes, 4, 2)

    assert cost.alone_s.item() == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("domain_bytes", "bound_s"),
    [(8e8, 0.5 * 8e8 / 10e9), (1e6, 0.75 * 1e9 / 100e9)],
    ids=["network", "links"],
)
def test_no_exchange_is_faster_than_the_whole_bandwidth_of_either(domain_bytes, bound_s):
    assert cost_of("dispatch", 1e9, domain_bytes, 4, 2).bound_s.item() == pytest.approx(bound_s)


@all_cases("collective", [name for name in FORMULAS if name not in ONE_COPY_A_DOMAIN])
def test_what_knows_no_domains_sends_all_of_its_bytes(collective):
    shape = (1, 2) if collective in ("send_receive", "ring_pass") else (4, 2)

    told, untold = (cost_of(collective, 1e9, across, *shape) for across in (1e3, None))

    assert told.alone_s.item() == untold.alone_s.item()


@all_cases("collective", ONE_COPY_A_DOMAIN)
def test_inside_one_domain_it_is_no_matter_what_would_leave_it(collective):
    assert cost_of(collective, 1e9, 1e15, 4, 1).alone_s == cost_of(collective, 1e9, None, 4, 1).alone_s


@FEW
@given(
    copies_bytes=st.floats(1e3, 1e10),
    domain_bytes=st.floats(1e3, 1e10),
    more=st.floats(1.0, 10.0),
    nodes=st.integers(2, 16),
)
def test_more_bytes_on_either_way_are_never_faster(copies_bytes, domain_bytes, more, nodes):
    usual_s = cost_of("dispatch", copies_bytes, domain_bytes, 4, nodes).alone_s.item()

    assert cost_of("dispatch", copies_bytes * more, domain_bytes, 4, nodes).alone_s.item() >= usual_s
    assert cost_of("dispatch", copies_bytes, domain_bytes * more, 4, nodes).alone_s.item() >= usual_s


def test_the_curve_of_a_network_says_nothing_of_copies_that_are_sent_otherwise():
    """It is of all ranks' messages on all cards: neither evidence nor a doubt of one copy a domain."""
    network = NETWORK.model_copy(update={"fabric": MADE})
    book = CurveBook(curves={(MADE, "all_reduce"): flat_curve(MADE, "all_reduce", 0.01)})
    cluster = cluster_of(LINK, network)

    cost = cost_of("dispatch", 1e9, 8e8, 4, 2, cluster, book)

    assert cost.alone_s.item() == pytest.approx(20e-6 + 0.5 * 8e8 / 8e9)
    assert (cost.curves, cost.borrowed.item(), cost.extrapolated.item()) == ({}, False, False)
    assert tuple(cost_of("all_to_all", 1e9, None, 4, 2, cluster, book).curves) == (1,)


@pytest.mark.parametrize(("domain_bytes", "decides"), [(1e6, True), (8e9, False)])
def test_the_curve_inside_a_domain_is_evidence_where_its_copies_take_longest(domain_bytes, decides):
    link = LINK.model_copy(update={"fabric": MADE})
    curve = flat_curve(MADE, "all_to_all", 0.25)
    book = CurveBook(curves={(MADE, "all_to_all"): curve})

    cost = cost_of("dispatch", 1e9, domain_bytes, 4, 2, cluster_of(link, NETWORK), book)

    inside_s, across_s = 2e-6 + 0.75 * 1e9 / 25e9, 20e-6 + 0.5 * domain_bytes / 8e9
    assert cost.alone_s.item() == pytest.approx(max(inside_s, across_s))
    assert (cost.curves == {0: curve}, cost.borrowed.item()) == (decides, decides)


def test_a_library_that_publishes_its_own_fraction_has_that_and_others_have_the_curve():
    link = LINK.model_copy(update={"fabric": MADE, "library_fraction": {"hybrid_dispatch": 0.9}})
    book = CurveBook(curves={(MADE, "all_to_all"): flat_curve(MADE, "all_to_all", 0.25)})
    cluster = cluster_of(link, NETWORK)

    own, other = (
        cost_of(name, 1e9, None, 4, 1, cluster, book) for name in ("hybrid_dispatch", "hybrid_combine")
    )

    assert own.alone_s.item() == pytest.approx(2e-6 + 0.75 * 1e9 / 90e9)
    assert other.alone_s.item() == pytest.approx(2e-6 + 0.75 * 1e9 / 25e9)
    assert (own.borrowed.item(), other.borrowed.item()) == (False, True)


@pytest.mark.parametrize("domains", [1, 2, 4])
def test_a_token_goes_once_to_each_domain_that_has_one_of_its_experts(domains):
    """Counted over every pair of experts: 16 of them in equal parts on domains, two a token."""
    home = np.arange(16) // (16 // domains)
    pairs = [(one, two) for one in range(16) for two in range(16) if one != two]
    copies = np.mean([len({home[one], home[two]}) for one, two in pairs])
    routing = routing_of(picks=2)
    message = Dispatch(axis="ep", message_bytes=np.array([[2e6]]), routing=routing)

    assert message.bytes_to_domains(np.array([[float(domains)]])).item() == pytest.approx(1e6 * copies)


@pytest.mark.parametrize("domains", [1.0, 4.0])
def test_one_copy_a_domain_is_never_more_than_all_copies_and_nccl_sends_those(domains):
    routing = routing_of(picks=8)
    few, plain = (
        Dispatch(axis="ep", message_bytes=np.array([[1.1e6]]), routing=routing, library=library)
        for library in ("hybridep", "all_to_all")
    )

    assert few.bytes_to_domains(np.array([[domains]])).item() <= 1.1e6
    assert plain.bytes_to_domains(np.array([[domains]])).item() == 1.1e6


def test_scores_for_all_experts_of_a_domain_travel_with_each_copy_on_the_way_there_and_back():
    """On 8 B200, rows of 1 KiB take 185.1 us with 256 scores, else 95.8 us (workload/expert_items.py)."""
    domains = np.array([[2.0]])
    for experts in (16, 256):
        routing = routing_of(picks=8, experts=experts)
        plain = Dispatch(axis="ep", message_bytes=np.array([[4e6]]), routing=routing, library="hybridep")
        sent = replace(plain, with_scores=True)
        for whole, parts in ((np.ones((1, 1)), 1.0), (domains, 2.0)):
            ratio = 1.0 + 4.0 * experts / parts / 1024.0
            for message in (sent, sent.dual()):
                assert message.bytes_in_domains(whole).item() == pytest.approx(4e6 * ratio)
        assert sent.dual().with_scores
        assert plain.dual().bytes_in_domains(domains).item() == 4e6
        across = [each.bytes_to_domains(domains).item() for each in (sent, plain)]
        assert across[0] == pytest.approx(across[1] * (1.0 + 2.0 * experts / 1024.0))
    assert sent.bytes_in_domains(np.ones((1, 1))).item() / 4e6 == pytest.approx(185.1 / 95.8, rel=0.04)


@all_cases(
    "collective",
    [name for name, one in FORMULAS.items() if name not in ONE_COPY_A_DOMAIN and not one.in_two_steps],
)
@all_cases("name", ["selene", "perlmutter-tcp", "dgx-h100", "vista", "gb200-nvl72"])
def test_terms_of_a_message_make_up_its_seconds(name, collective):
    """As they are told: latency, and the share of the bytes over the bandwidth that is attained."""
    cluster = catalog.cluster(name)
    book = load_book(cluster)
    for inside, nodes in shapes_of(cluster, collective):
        size = np.array([1e3, 1e6, 1e9])
        group = Group(inside=np.full(3, float(inside)), nodes=np.full(3, float(nodes)))

        tier, terms, curve = message_terms(collective, size, group, cluster, book)

        cost = message_seconds(collective, size, group, cluster, book)
        attained = terms.bus_bytes_per_s * terms.efficiency
        told_s = terms.latency_s + terms.share * terms.sent_bytes / attained
        np.testing.assert_allclose(told_s, cost.alone_s, rtol=1e-12)
        assert tier is cluster.tiers[cost.tier[0]]
        assert tuple(cost.curves.values()) == ((curve,) if curve else ())
        assert (terms.efficiency <= 1).all()
        assert (cost.bound_s <= cost.alone_s).all()


def test_a_curve_with_a_launch_holds_small_messages_at_the_smallest_that_was_measured():
    link = LINK.model_copy(update={"fabric": MADE})
    curve = flat_curve(MADE, "all_reduce", 0.25)
    launched = type(curve)(
        name=curve.name,
        owner=curve.owner,
        axes=curve.axes,  # from 2^20 bytes on
        table=curve.table,
        launch_s=30e-6,
        evidence=curve.evidence,
    )
    book = CurveBook(curves={(MADE, "all_reduce"): launched})
    cluster = cluster_of(link, NETWORK)

    seconds = [
        cost_of("all_reduce", size, None, 4, 1, cluster, book).alone_s.item() for size in (1, 2**20, 2**21)
    ]

    assert seconds == pytest.approx([30e-6 + 1.5 * max(size, 2**20) / 25e9 for size in (1, 2**20, 2**21)])
