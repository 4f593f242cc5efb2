"""Several tiers inside a node or between nodes: which groups use them, and quantised reductions."""

import numpy as np
import pytest

from flopcast import job, predict
from flopcast.cost.collectives.collective_time import message_seconds, tier_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group, group_on
from flopcast.cost.ranks import members, place_of, rank_at
from flopcast.library import catalog
from flopcast.spec.plan import Plan, one_plan

FRONTIER = catalog.cluster("frontier")
DIES, NODE, NETWORK = range(3)
NVLINK = {"name": "nvlink", "devices": 8, "bytes_per_s": "300 GB/s", "latency_s": "5 us"}
SITE = {"name": "site", "devices": 32, "bytes_per_s": "25 GB/s", "latency_s": "5 us"}


def tier_along(axis, **degrees):
    """Index of the tier that joins the ranks of an axis on Frontier."""
    group = group_on(FRONTIER, axis, one_plan(Plan(**degrees)))
    return int(tier_of(group.nodes, FRONTIER, group.depth).item())


def test_two_ranks_on_one_package_use_its_link_and_ranks_further_apart_do_not():
    assert tier_along("tp", tp=2, dp=8, gbs=8) == DIES
    assert tier_along("dp", tp=2, dp=4, gbs=4) == NODE
    assert tier_along("tp", tp=4, dp=4, gbs=4) == NODE
    assert tier_along("tp", tp=16, dp=1, gbs=1) == NETWORK
    assert tier_along("dp", dp=2, gbs=2) == DIES
    assert tier_along("dp_parameters", dp=64, gbs=64, zero=3, shards="parameters:2") == DIES
    assert tier_along("dp_gradients", dp=64, gbs=64, zero=3, shards="gradients:8") == NODE
    assert tier_along("dp_gradients_apart", dp=64, gbs=64, zero=3, shards="gradients:8") == NETWORK


def test_stages_next_to_each_other_are_not_counted_on_one_package():
    assert tier_along("pp_inside", pp=8, gbs=8) == NODE


def test_a_cluster_without_tiers_inside_its_nodes_has_no_depth():
    cluster = catalog.cluster("dgx-a100")

    group = group_on(cluster, "tp", one_plan(Plan(tp=2, gbs=1)))

    assert cluster.inner_tiers == 0
    assert group.depth.item() == 0


def widest_tier(axis, plan, cluster):
    """Index of the smallest tier whose blocks hold every group along an axis, rank by rank."""
    found = 0
    for rank in range(plan.devices):
        at = place_of(plan, rank)
        pair = (rank, rank_at(plan, at | {"pp": (at["pp"] + 1) % plan.pipeline_parallel}))
        group = pair if axis == "pp" else members(axis, plan, rank)
        blocks = [tier.devices or plan.devices for tier in cluster.tiers]
        joins = [len({each // devices for each in group}) == 1 for devices in blocks]
        found = max(found, joins.index(True))
    return found


def test_groups_of_nodes_that_are_not_neighbours_use_the_network_that_joins_them():
    wan = {"name": "wan", "devices": 0, "bytes_per_s": "1 GB/s", "latency_s": "10 ms"}
    tiers = [NVLINK, SITE, wan]
    cluster = job(
        "gpt3-1.3b", cluster={"base": "dgx-a100:16", "tiers": tiers}, plan="dp=128 gbs=128"
    ).cluster
    for order in ("tp-cp-dp-pp", "tp-cp-pp-dp", "tp-dp-pp-cp"):
        for tp, cp, dp, pp in (
            (8, 1, 4, 4),
            (8, 1, 8, 2),
            (4, 1, 8, 4),
            (4, 4, 4, 2),
            (1, 1, 32, 4),
            (8, 1, 16, 1),
        ):
            plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, gbs=dp * pp, rank_order=order)
            for axis in ("tp", "cp", "dp", "pp") if pp > 1 else ("tp", "cp", "dp"):
                group = group_on(cluster, axis, one_plan(plan))
                tier = int(tier_of(group.nodes, cluster, group.depth).item())
                widest = widest_tier(axis, plan, cluster)
                inside = axis == "pp" and widest == 0  # another price
                assert inside or tier == widest, (order, plan.short(), axis)


def test_a_pipeline_over_two_sites_waits_for_its_messages():
    """Each device sends its slice of the activations to the other site, and receives gradients."""
    wan = {
        "name": "wan",
        "devices": 0,
        "bytes_per_s": "10 MB/s",
        "latency_s": "0 s",
        "attained_fraction": 1,
    }
    tiers = [NVLINK, SITE, wan]
    found = predict(
        job(
            "gpt3-1.3b",
            cluster={"base": "dgx-a100:8", "tiers": tiers},
            stack="megatron-core",
            seq=2048,
            plan="tp=8 dp=4 pp=2 sp mbs=1 gbs=64",
        )
    )
    message_s = 2048 * 2048 * 2 / 8 / 10e6

    assert found.clean_step_time_s > 2 * 16 * message_s
    assert found.clean_step_time_s < 5 * 16 * message_s


def test_more_bandwidth_between_dies_is_never_slower_and_only_matters_where_it_is_used():
    dies, *wider = FRONTIER.tiers
    times = {}
    for tensor in (2, 8):
        one = job("gpt3-1.3b", cluster="frontier:1", seq=2048, plan=f"dp={8 // tensor} tp={tensor} gbs=8")
        for rate in ("100 GB/s", "200 GB/s", "400 GB/s"):
            tiers = (dies.model_copy(update={"bytes_per_s": float(rate.split()[0]) * 1e9}), *wider)
            cluster = one.cluster.model_copy(update={"tiers": tiers})
            times[tensor, rate] = predict(one.model_copy(update={"cluster": cluster})).step_time_s

    assert times[2, "100 GB/s"] > times[2, "200 GB/s"] > times[2, "400 GB/s"]
    assert len({times[8, rate] for rate in ("100 GB/s", "200 GB/s", "400 GB/s")}) == 1


@pytest.mark.parametrize("nodes", [1.0, 4.0])
def test_a_quantised_reduction_is_an_exchange_in_the_node_and_one_between_nodes(nodes):
    size = np.array([1e9])
    book = CurveBook(curves={})

    def seconds(name, size_bytes, inside, over):
        group = Group(inside=np.array([inside]), nodes=np.array([over]))
        return message_seconds(name, size_bytes, group, FRONTIER, book).alone_s.item()

    both = seconds("quantised_reduce_scatter", size, 8.0, nodes)

    near, far = seconds("all_to_all", size, 8.0, 1.0), seconds("all_to_all", size / 8, 1.0, nodes)
    assert both == pytest.approx(near + far)
    network = FRONTIER.tiers[NETWORK]
    least = size.item() / 8 * (nodes - 1) / nodes / network.bytes_per_s  # the sums of a node alone leave it
    assert both > least
