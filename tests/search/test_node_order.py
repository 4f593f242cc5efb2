"""The order of nodes that a search on measured links finds, against all orders."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from conftest import described_model, make_job

from flopcast.errors import SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.search.node_order import best_node_order, with_order
from flopcast.spec.loader import Loader, LoaderStage

PLANS = ("tp=8 pp=5 dp=1 gbs=20", "tp=8 pp=1 dp=5 gbs=20", "tp=4 pp=5 dp=2 gbs=20")
WIDE = described_model(hidden=2048, count=10)


def job_on(rows, plan):
    """A job on five nodes with a matrix in GB/s."""
    matrix = {"rows": np.asarray(rows).tolist(), "unit": "GB/s"}
    cluster = {"base": "dgx-a100:5", "tiers": {"1": {"links": matrix}}}
    return make_job(model=WIDE, cluster=cluster, plan=f"{plan} precision=fp16")


def clean_step_s(job, kept=NOTHING_KEPT):
    """The step of a job without jitter; orders of the same job may share what does not depend on them."""
    return predict(job, load_book(job.cluster), kept).clean_step_time_s


@pytest.mark.parametrize("plan", PLANS)
def test_the_order_is_within_one_percent_of_the_best_of_all_orders(plan):
    rows = np.random.default_rng(len(plan)).uniform(5.0, 20.0, (5, 5))
    job = job_on(rows, plan)

    found = best_node_order(job, load_book(job.cluster))

    kept = KeptResults(4096)
    orders = [order for order in permutations(range(5)) if order[0] < 3]
    steps = {order: clean_step_s(with_order(job, order), kept) for order in orders}
    assert found.step_time_s == pytest.approx(clean_step_s(with_order(job, found.order)), rel=1e-9)
    assert found.default_step_time_s == pytest.approx(steps[tuple(range(5))], rel=1e-9)
    assert found.step_time_s <= 1.01 * min(steps.values())
    assert found.speedup_ratio >= 1.0


def test_a_slow_pair_in_a_chain_of_stages_is_avoided():
    rows = np.full((5, 5), 20.0)
    rows[1, 2] = rows[2, 1] = 5.0
    job = job_on(rows, PLANS[0])

    order = best_node_order(job, load_book(job.cluster)).order

    assert {1, 2} not in [set(pair) for pair in pairwise(order)]


def test_equal_links_keep_the_default_order():
    job = job_on(np.full((5, 5), 20.0), PLANS[0])

    assert best_node_order(job, load_book(job.cluster)).order == (0, 1, 2, 3, 4)


def test_a_loader_that_is_the_limit_leaves_nothing_to_gain_from_an_order():
    rows = np.full((5, 5), 20.0)
    rows[1, 2] = rows[2, 1] = 5.0
    job = job_on(rows, PLANS[0])
    samples, slow = (
        job.plan.global_batch / job.plan.data_parallel,
        LoaderStage(name="decode", sample_s=1000.0),
    )

    found = best_node_order(
        job.model_copy(update={"loader": Loader(stages=(slow,))}), load_book(job.cluster)
    )

    assert found.step_time_s == found.default_step_time_s == pytest.approx(1000.0 * samples)


def test_a_cluster_without_measured_links_has_no_best_order():
    job = make_job()

    with pytest.raises(SpecError, match="a matrix"):
        best_node_order(job, load_book(job.cluster))


def test_the_order_on_the_published_matrix_is_faster_than_the_default_and_random_ones(shared):
    file = shared / "data" / "wan" / "pipette_link_bandwidth_MBps_0.csv"
    rows = np.loadtxt(file, delimiter=",").tolist()
    matrix = {"rows": rows, "unit": "MB/s", "devices": 8}  # one card for the eight devices of a node
    tier = {"bytes_per_s": "3.125 GB/s", "links": matrix}
    job = make_job(
        model="gpt3-175b",
        cluster={"base": "dgx-a100:16", "tiers": {"1": tier}},
        batch={"seq": 2048},
        plan="dp=2 tp=8 pp=8 mbs=1 gbs=256",
    )

    found = best_node_order(job, load_book(job.cluster))

    orders = np.random.default_rng(1).permuted(np.tile(np.arange(16), (10, 1)), axis=1).tolist()
    kept = KeptResults(4096)
    steps = [clean_step_s(with_order(job, tuple(order)), kept) for order in orders]
    assert 1.005 < found.speedup_ratio < 1.03  # of links that differ by up to 17 %
    assert found.step_time_s < min(steps)
