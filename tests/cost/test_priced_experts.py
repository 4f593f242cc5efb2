"""Experts priced and played: whole steps, messages of their own kind, curves that stand in.

Elsewhere: sizes of the items (tests/layers/test_experts.py).
"""

import numpy as np
import pytest
from all_cases import all_cases
from alone import seconds_of as kernel_seconds_of
from conftest import make_job

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.features import features_of
from flopcast.cost.placement import Group
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.prediction import predict
from flopcast.render.report_json import as_json
from flopcast.spec.tier import Tier

LINK = Tier(name="link", devices=8, bytes_per_s=400e9, latency_s=2e-6, attained_fraction=1.0)
NETWORK = Tier(name="network", devices=0, bytes_per_s=50e9, latency_s=10e-6, attained_fraction=1.0)


def model(**feed_forward):
    block = {
        "count": 8,
        "norm": "rmsnorm",
        "mixer": {"heads": 16, "kv_heads": 8},
        "feed_forward": {"load_imbalance_ratio": 1.0} | feed_forward,
    }
    return {"hidden": 2048, "vocabulary": 32000, "blocks": [block]}


EXPERTS = {"num_experts": 8, "top_k": 2, "expert_hidden": 3584}


def report(plan, nodes=1, **feed_forward):
    job = make_job(
        model=model(**EXPERTS | feed_forward),
        cluster=f"dgx-h100:{nodes}",
        stack="megatron-core",
        batch={"sequence_length": 4096},
        plan=plan,
    )
    return predict(job, load_book(job.cluster))


@all_cases(
    "plan",
    ["dp=8 ep=8 zero=1 gbs=32", "dp=4 tp=2 sp ep=4 zero=1 gbs=32", "dp=2 tp=4 etp=1 sp ep=8 gbs=32",
     "dp=2 tp=2 pp=2 sp ep=2 gbs=32", "dp=2 tp=2 pp=2 vpp=2 sp ep=4 etp=1 gbs=32 recompute=full"],
)  # fmt: skip
def test_a_step_with_experts_is_no_faster_than_its_active_products_and_its_parts_sum_to_it(plan):
    found = report(plan)

    tokens = 32 * 4096
    layer = 2048 * (2 * 2048 + 2 * 1024 + 2 * 3 * 3584)  # attention and two experts of a token
    fastest_s = 6 * tokens * (8 * layer + 2048 * 32000) / (8 * 989e12)  # NVIDIA H100 data sheet: dense bf16
    assert fastest_s < found.step_time_s < 30 * fastest_s
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time_s)


def test_experts_on_ranks_of_their_own_spend_time_on_the_way_to_them():
    together, spread = report("dp=8 gbs=32"), report("dp=8 ep=8 gbs=32")

    assert "ep_communication" not in together.breakdown
    assert spread.breakdown["ep_communication"] > 0


def test_uneven_loads_cost_time_where_experts_are_spread():
    even, uneven = (report("dp=8 ep=8 gbs=32", load_imbalance_ratio=ratio) for ratio in (1.0, 2.0))

    assert 1.2 < uneven.step_time_s / even.step_time_s < 2.0
    assert uneven.breakdown["experts"] / even.breakdown["experts"] == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("layout", ["forward", "input_gradient", "weight_gradient"])
def test_an_expert_alone_on_its_rank_takes_as_long_as_a_dense_linear(layout):
    cluster, size = catalog.cluster("dgx-h100", 1), {"n": constant(3072), "k": constant(5120)}
    expert = GroupedMatmul(
        groups=constant(1), rows=constant(4096), imbalance=constant(1), dtype="bf16", **size
    )
    linear = Matmul(m=constant(4096), dtype="bf16", **size)

    passes = [
        {one.layout: one for one in (work, *(gradient for _, gradient in work.gradients()))}
        for work in (expert, linear)
    ]

    alone, dense = (kernel_seconds_of(each[layout], cluster).item() for each in passes)
    assert alone == dense


@all_cases("layout", ["forward", "input_gradient", "weight_gradient"])
@all_cases("groups", [2, 16])
def test_separate_experts_take_as_long_as_their_dense_products_one_after_the_other(layout, groups):
    cluster, size = catalog.cluster("dgx-h100", 1), {"n": constant(3072), "k": constant(5120)}
    experts = GroupedMatmul(
        groups=constant(groups), rows=constant(groups * 4096), imbalance=constant(1), dtype="bf16",
        separate=True, **size,
    )  # fmt: skip
    linear = Matmul(m=constant(4096), dtype="bf16", **size)

    passes = [
        {one.layout: one for one in (work, *(gradient for _, gradient in work.gradients()))}
        for work in (experts, linear)
    ]

    together, dense = (kernel_seconds_of(each[layout], cluster).item() for each in passes)
    assert together == pytest.approx(groups * dense, rel=0.015)  # launches of all but one are hidden


def test_experts_in_separate_products_rest_on_the_dense_curve():
    """Curves of groups on H100 are of whole layers that serve; Transformer Engine calls cuBLAS."""
    job = make_job(
        model=model(**EXPERTS), cluster="dgx-h100:1", stack="megatron-core-2025", plan="dp=8 zero=1 gbs=32"
    )

    curves = " ".join(entry.curve for entry in predict(job, load_book(job.cluster)).evidence)

    assert "gemm" in curves
    assert "grouped_gemm" not in curves


def test_plans_with_one_expert_a_rank_and_with_several_are_priced_together_as_apart():
    cluster = catalog.cluster("dgx-h100", 1)
    groups = [1.0, 4.0, 1.0, 8.0]

    def products(several):
        return GroupedMatmul(
            groups=np.array(several).reshape(-1, 1), rows=constant(8192), n=constant(3072),
            k=constant(5120), imbalance=constant(1), dtype="bf16",
        )  # fmt: skip

    together = kernel_seconds_of(products(groups), cluster)

    assert together[:, 0].tolist() == [kernel_seconds_of(products([one]), cluster).item() for one in groups]


def test_a_step_with_one_expert_a_rank_rests_on_no_curve_of_groups():
    plans = "dp=8 ep=8 gbs=32", "dp=8 gbs=32"

    curves = [" ".join(entry.curve for entry in report(plan).evidence) for plan in plans]

    assert ["grouped_gemm" in names for names in curves] == [False, True]


def test_a_report_tells_active_parameters_from_all():
    numbers = as_json(report("dp=8 ep=8 gbs=32"))

    assert numbers["model_parameters"] - numbers["active_parameters"] == 8 * 6 * 3 * 2048 * 3584


def seconds_of(collective, size_bytes, inside, nodes):
    group = Group(inside=constant(inside), nodes=constant(nodes))
    cluster = catalog.cluster("dgx-h100", 4).model_copy(update={"tiers": (LINK, NETWORK)})
    return message_seconds(
        collective, constant(size_bytes), group, cluster, CurveBook(curves={})
    ).alone_s.item()


@pytest.mark.parametrize("collective", ["dispatch", "combine"])
def test_what_tokens_send_to_other_nodes_goes_through_one_card_each(collective):
    """1 GB of each of 16 ranks on 2 nodes: half of it leaves, over 50 GB/s, after one hop."""
    assert seconds_of(collective, 1e9, 8, 2) == pytest.approx(0.5e9 / 50e9 + 10e-6)


@pytest.mark.parametrize("collective", ["dispatch", "combine"])
def test_what_stays_in_a_node_crosses_its_links(collective):
    """1 GB of each of 8 ranks: 7/8 of it leave the rank, over 400 GB/s."""
    assert seconds_of(collective, 1e9, 8, 1) == pytest.approx(7 / 8 * 1e9 / 400e9 + 2e-6)


def test_where_no_product_of_experts_was_measured_the_dense_one_of_all_rows_stands_in():
    book = load_book(catalog.cluster("perlmutter", 1))
    dense = book.curves["a100-sxm4-80gb", "gemm"]
    alone = CurveBook(curves={("a100-sxm4-80gb", "gemm"): dense})

    found = alone.find("a100-sxm4-80gb", "grouped_gemm", launch_s=2e-6)

    one = constant(1)
    shape = GroupedMatmul(
        groups=8 * one, rows=4096 * one, n=512 * one, k=1024 * one, imbalance=one, dtype="bf16"
    ).coordinates()
    assert found.curve is dense
    assert found.class_log_sigma_factor > 0.1
    of_experts = [axis.item() for axis in features_of(found.curve.name).table(shape)]
    assert of_experts == [4096 * 512 * 1024, 1024, 512 / 4096]  # work, length of the sum, columns over rows
