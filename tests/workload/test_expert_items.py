"""What a stack makes of items of experts: who carries tokens, waiting, routers, overlap, graphs."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job
from workload_cases import LENGTH, LLAMA, block_of, named, realised, stack_with

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.host import EXPERT_LOOP_S, graphed, launch_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.dtypes import constant
from flopcast.layers.experts import Experts
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.exchanges import Combine, Dispatch, expected_copies
from flopcast.operators.item import HostWork, kernel
from flopcast.operators.matmul import GroupedMatmul
from flopcast.operators.messages import RouteGather
from flopcast.prediction import predict
from flopcast.schedules import SCHEDULES
from flopcast.schedules.base import BACKWARD, FORWARD
from flopcast.workload.program import WHEN, positions

HIDDEN = LLAMA.hidden
PICKS = 4
SPREAD = "dp=8 ep=8 mbs=1 gbs=8"


def mixture(**fields):
    experts = Experts(num_experts=32, top_k=PICKS, expert_hidden=512, load_imbalance_ratio=1.0, **fields)
    blocks = tuple(block.model_copy(update={"feed_forward": experts}) for block in LLAMA.blocks)
    return LLAMA.model_copy(update={"blocks": blocks})


def block(plan=SPREAD, model=None, **experts):
    return block_of(realised(model or mixture(), stack_with(experts=experts), plan))


def exchanges(items):
    return [item for item in items if isinstance(item.work, Dispatch | Combine)]


def test_nccl_sends_every_row_and_the_libraries_a_copy_for_each_rank():
    rows, copies = (
        {item.work.message_bytes.item() for item in exchanges(block(dispatcher=name).forward)}
        for name in ("all_to_all", "hybridep")
    )

    each = LENGTH * HIDDEN * 2
    expected = expected_copies(constant(32), constant(PICKS), constant(8)).item()
    assert rows == {each * PICKS}
    assert copies.pop() == pytest.approx(each * expected)
    assert not copies
    assert expected < PICKS


def test_ranks_of_hybridep_gather_the_routes_of_all_tokens_once_and_read_them():
    routes = LENGTH * 8 * 32  # a byte for each token of eight ranks and each of 32 experts
    for library in ("all_to_all", "deepep", "hybridep"):
        found = block(dispatcher=library)
        gathers = [item.work for item in found.forward if isinstance(item.work, RouteGather)]
        scans = [item.work for item in found.forward if item.name.endswith("scan_routes")]
        assert [work.message_bytes.item() for work in gathers] == [routes] * (library == "hybridep")
        assert [work.work().moved_bytes.item() for work in scans] == [routes] * (library == "hybridep")
        assert not [item for item in found.backward if "routes" in item.name and item.work.collective]
        sent = {item.name: item.work.with_scores for item in exchanges((*found.forward, *found.backward))}
        assert sum(sent.values()) == 2 * (library == "hybridep"), sent


@pytest.mark.parametrize(
    ("dispatcher", "collectives"),
    [
        ("all_to_all", {"all_to_all"}),
        ("deepep", {"dispatch", "combine"}),
        ("hybridep", {"hybrid_dispatch", "hybrid_combine"}),
    ],
)
def test_both_passes_are_priced_as_the_library_s(dispatcher, collectives):
    found = block(dispatcher=dispatcher)

    for items in (found.forward, found.backward):
        assert {item.work.collective for item in exchanges(items)} == collectives


@pytest.mark.parametrize("dispatcher", ["deepep", "hybridep"])
def test_libraries_need_no_pass_over_rows_at_home_unless_all_experts_are_there(dispatcher):
    def moved(plan, name):
        return named(block(plan, dispatcher=dispatcher).forward, f"experts.{name}").work.elements.item()

    assert moved(SPREAD, "permute") == moved(SPREAD, "unpermute") == 0
    assert moved(SPREAD, "sort") == LENGTH * PICKS * HIDDEN
    assert moved("mbs=1 gbs=1", "permute") == LENGTH * PICKS * HIDDEN


def test_the_host_waits_once_a_forward_for_the_number_of_rows():
    """In front of the dispatch, or behind it where its own kernel counts the rows."""
    for library, step in (("all_to_all", -1), ("deepep", -1), ("hybridep", 1)):
        found = block(dispatcher=library, waits_for_counts=True)
        place = [item.name for item in found.forward].index("experts.dispatch")

        waits = [at for at, item in enumerate(found.forward) if isinstance(item.work, HostWork)]
        assert waits == [place + step]
        assert not any(isinstance(item.work, HostWork) for item in found.backward)
    assert not any(isinstance(item.work, HostWork) for item in block().forward)


def test_one_hot_masks_multiply_every_place_of_an_expert_with_every_token_of_its_sequence():
    """The mask that selects tokens has no gradient; the one that weighs results has."""
    padded = mixture(capacity_factor=1.5, pads_to_capacity=True)
    plan = "dp=8 ep=8 mbs=2 gbs=16"
    found = block(plan, padded, one_hot_masks=True)

    flop = 2 * 2 * (LENGTH * PICKS * 1.5) * LENGTH * HIDDEN
    for name, gradients in (("permute", 1), ("unpermute", 2)):
        forward = named(found.forward, f"experts.{name}").work
        backward = [item.work for item in found.backward if item.name.startswith(f"experts.{name}.")]
        assert [work.work().flop.item() for work in (forward, *backward)] == [flop] * (1 + gradients)
    assert [item.name for item in found.forward] == [item.name for item in block(plan, padded).forward]


def test_experts_without_padding_have_no_one_hot_masks():
    one_hot, sorted_rows = (block(one_hot_masks=masks).forward for masks in (True, False))

    assert [type(item.work) for item in one_hot] == [type(item.work) for item in sorted_rows]


def test_a_router_with_fp32_scores_may_multiply_16_bits():
    wide = mixture(router_dtype="fp32")

    dtypes = [
        named(block(model=wide, router_in_16_bits=narrow).forward, "experts.router").work.dtype
        for narrow in (False, True)
    ]

    assert dtypes == ["fp32", "bf16"]


# Forward kernels of the router and of what prepares an exchange, DeepSeek-V3: docs/discussions/
# deepseek-v3-gb200-optimization of NVIDIA/Megatron-LM. Eager ones with HybridEP follow by subtraction.
@all_cases(
    ("kernels", "dispatcher", "expected"),
    [
        ("eager", "all_to_all", 72),
        ("fused", "all_to_all", 31),
        ("fused", "deepep", 17),
        ("fused", "hybridep", 17),
        ("eager", "hybridep", 72 - 31 + 17),
    ],
)
def test_a_router_of_megatron_core_is_as_many_kernels_as_its_authors_counted(kernels, dispatcher, expected):
    deepseek = {"router": "sigmoid", "selection_bias": True, "expert_groups": 8, "top_groups": 4}
    fewer = {"fused": 0, "eager": 9 + 6}[kernels]  # calls for groups and biases that are not fused
    for model, kernels_of_it in ((mixture(**deepseek), expected), (mixture(), expected - fewer)):
        found = block(model=model, router_kernels=kernels, dispatcher=dispatcher)
        router = [item for item in found.forward if graphed(item, ("router",))]
        assert sum(item.count.item() for item in router) == kernels_of_it

        passes_back = [
            [item.name for item in one.backward if graphed(item, ("router",))]
            for one in (found, block(model=model, dispatcher=dispatcher))
        ]
        assert passes_back[0] == passes_back[1]  # masks and counts have no gradients


@pytest.mark.parametrize(("dispatcher", "messages"), [("all_to_all", 1), ("deepep", 0), ("hybridep", 0)])
def test_nccl_sends_a_probability_for_each_row_in_a_message_of_its_own(dispatcher, messages):
    stack = stack_with(
        experts={"dispatcher": dispatcher}, rewrites=("weighted_experts", "separate_experts")
    )
    found = block_of(realised(mixture(), stack, SPREAD))

    for items in (found.forward, found.backward):
        sent = [
            item.work for item in items if item.name.startswith("experts.") and "probabilities" in item.name
        ]
        assert [work.message_bytes.item() for work in sent] == [LENGTH * PICKS * 4.0] * messages


def test_nothing_waits_for_exchanges_that_run_beside_another_micro_batch():
    found = block(exchange_overlap="other_micro_batch")

    for items in (found.forward, found.backward):
        hidden = [item for item in exchanges(items) if item.when.endswith("_beside_other")]
        assert len(hidden) == len(exchanges(items)) / 2
        assert all(item.overlapped and not item.waits for item in hidden)
        assert not any("ep" in item.waits for item in items if item.stream != "compute")


@pytest.mark.parametrize("num_micro_batches", [1, 2, 8])
def test_one_forward_and_one_backward_of_a_step_have_no_partner_that_hides_their_exchanges(
    num_micro_batches,
):
    found = block(exchange_overlap="other_micro_batch")

    order = SCHEDULES["1f1b"].order(1, 1, num_micro_batches)
    places = positions(order, num_micro_batches)
    ends = ((found.forward, FORWARD, 0), (found.backward, BACKWARD, num_micro_batches - 1))
    for items, kind, alone in ends:
        for turn, place in enumerate(places[order.kind == kind]):
            run = [item for item in exchanges(items) if WHEN[item.when][place]]
            assert len(run) == len(exchanges(items)) / 2
            assert {item.overlapped for item in run} == {turn != alone}


def report(exchange_overlap, batch=32, **changes):
    host = {"forward_item_s": "0 s", "backward_item_s": "0 s"}  # which would hide these small exchanges
    stack = {"base": "megatron-bridge", "contention": {"kernel_share": 0.0}, "host": host}
    stack["experts"] = {"exchange_overlap": exchange_overlap, "waits_for_counts": False} | changes
    job = make_job(
        model=mixture().model_dump(), cluster="dgx-h100:1", stack=stack,
        plan=f"dp=8 ep=8 zero=1 gbs={batch}", batch={"sequence_length": 4096},
    )  # fmt: skip
    return predict(job, load_book(job.cluster))


def test_hidden_exchanges_leave_the_longer_of_kernels_and_exchanges():
    waited, hidden = report("none"), report("other_micro_batch")

    exchanged = waited.breakdown["ep_communication"]
    computed = waited.step_time_s - exchanged
    assert max(exchanged, computed) <= hidden.step_time_s * 1.001
    assert hidden.step_time_s < waited.step_time_s


def test_one_micro_batch_has_no_other_that_would_hide_its_exchanges():
    alone, none = report("other_micro_batch", batch=8), report("none", batch=8)

    assert alone.step_time_s == pytest.approx(none.step_time_s, rel=1e-12)


def test_one_expert_s_products_are_launched_one_by_one():
    work = GroupedMatmul(
        groups=constant(16), rows=constant(4096), n=constant(512), k=constant(512), imbalance=constant(1),
        dtype="bf16", separate=True,
    )  # fmt: skip
    item = kernel("experts.up", work, component="experts")
    stack = stack_with(host={"forward_item_s": 3e-5})
    narrow = replace(item, work=replace(work, narrow="fp8"))

    gradient = replace(item, phase="backward", work=replace(work, narrow="fp8", layout="input_gradient"))
    weights = replace(gradient, work=replace(gradient.work, layout="weight_gradient"))

    # the product and, unless another product read the same tensor before, a cast: 30 us each in any pass
    for launched, launches in ((item, 1), (narrow, 2), (gradient, 2), (weights, 1)):
        each_s = launches * 3e-5 + EXPERT_LOOP_S
        assert launch_seconds(launched, constant(1.0), stack).item() == pytest.approx(16 * each_s)
    assert launch_seconds(item, constant(0.0), stack).item() == 0
    graphs = stack_with(host={"graphs": ("iteration",)})
    assert launch_seconds(item, constant(1.0), graphs).item() == 0


def test_a_graph_of_routers_holds_their_kernels_and_no_products():
    forward = block().forward

    held = {item.name for item in forward if graphed(item, ("router",))}

    assert held == {"experts.router", "experts.scores", "experts.pick", "experts.loss"}


def test_between_domains_a_library_sends_one_copy_for_each_domain():
    cluster = catalog.cluster("dgx-h100", 4)
    group = Group(inside=np.full((1, 1), 8.0), nodes=np.full((1, 1), 4.0))
    one = constant(1e9)

    alone_s = message_seconds(
        "dispatch", 6 * one, group, cluster, CurveBook(curves={}), 3 * one
    ).alone_s.item()

    network = cluster.tiers[1]
    sent_s = network.latency_s + 3 / 4 * 3e9 / (network.bytes_per_s * network.library_fraction["dispatch"])
    assert alone_s == pytest.approx(sent_s)
    assert (
        alone_s < message_seconds("dispatch", 6 * one, group, cluster, CurveBook(curves={})).alone_s.item()
    )


def test_a_library_s_own_measurement_comes_before_curves():
    cluster = catalog.cluster("gb200-nvl72", 8)
    group = Group(inside=np.full((1, 1), 32.0), nodes=np.ones((1, 1)))
    # docs/README_Hybrid-EP.md of DeepEP: calls on 32 GB200, 16 multiprocessors, 485.5 GB/s of all copies'
    # bytes, with a copy of these in memory, read and written at 0.93 of 8 TB/s
    called_s, copied_s = 4e8 / 485.5e9, 2 * 4e8 / (0.93 * 8e12)
    found = message_seconds("hybrid_dispatch", constant(4e8), group, cluster, load_book(cluster))

    assert found.alone_s.item() == pytest.approx(called_s - copied_s, rel=0.03)
    assert not found.curves


@pytest.mark.parametrize(
    ("dispatcher", "name"),
    [
        ("all_to_all", "exchange[all_to_all]"),
        ("deepep", "exchange[deepep]"),
        ("hybridep", "exchange[hybridep]"),
    ],
)
def test_exchanges_and_products_of_experts_rest_on_factors_of_their_own(dispatcher, name):
    found = {factor.name: factor.share for factor in report("none", dispatcher=dispatcher).factors}

    assert 0 < found[name] < 1
    assert 0 < found["borrowed[expert_gemm]"] < 1
