"""What a host spends on launches, experts that are alone, and how factors are kept: in closed form."""

import math
from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from alone import price_items, site_with
from hypothesis import given, settings
from hypothesis import strategies as st

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.factors import SHARED_DERATE, FactorBook, unexplained, unexplained_on
from flopcast.cost.host import (
    EXPERT_CAST_S,
    EXPERT_LAUNCH_S,
    EXPERT_LOOP_S,
    SINGLE_CALL_S,
    graphed,
    launch_seconds,
)
from flopcast.cost.pricing import Pricing
from flopcast.cost.single_groups import single_groups, to_price
from flopcast.dtypes import constant
from flopcast.kept_results import NOTHING_KEPT
from flopcast.layers.router import PARTS as ROUTER_PARTS
from flopcast.library import catalog
from flopcast.operators.item import host_work, kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.precision import RECIPES
from flopcast.spec.site import Site, SiteFactor
from flopcast.spec.stack import HostCost
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

LAWS = settings(max_examples=30)
STACKS = catalog.names("stacks")
sigma = st.floats(0.0, 1.0)
ratio = st.floats(0.2, 5.0)


def product(name="mlp.up", phase="forward"):
    work = Matmul(m=constant(8), n=constant(8), k=constant(8), dtype="bf16")
    return replace(kernel(name, work, component="mlp"), phase=phase)


def experts(groups, *, separate=False, layout="forward"):
    groups = np.atleast_2d(np.asarray(groups, dtype=float)).T
    work = GroupedMatmul(
        groups=groups, rows=constant(1024), n=constant(512), k=constant(256), imbalance=constant(1),
        dtype="bf16", layout=layout, separate=separate,
    )  # fmt: skip
    return kernel("experts.up", work, component="experts")


@all_cases("name", STACKS)
@all_cases("phase", ["forward", "recompute", "backward", "step"])
def test_a_launch_costs_what_the_stack_says_of_its_pass_and_nothing_inside_a_whole_graph(name, phase):
    stack = catalog.stack(name)
    host = stack.host
    expected = host.forward_item_s if phase in ("forward", "recompute") else host.backward_item_s

    found = launch_seconds(product(phase=phase), constant(1e-5), stack)

    assert found.item() == (0.0 if "iteration" in host.graphs else expected)


def test_parts_that_run_as_cuda_graphs_are_a_text_or_a_list():
    """A text is what `flopcast diagnose` prints: stack.host.graphs=iteration."""
    for given_parts, parts in (
        ("iteration", ("iteration",)),
        ("attention router", ("attention", "router")),
    ):
        assert HostCost.model_validate({"graphs": given_parts}).graphs == parts
        assert HostCost.model_validate({"graphs": list(parts)}).graphs == parts


@pytest.mark.parametrize("name", STACKS)
@LAWS
@given(groups=st.integers(1, 256))
def test_separate_products_are_launched_one_by_one(name, groups):
    stack = catalog.stack(name)
    if "iteration" in stack.host.graphs:
        return
    one = launch_seconds(experts(groups, separate=True), constant(1e-5), stack)

    assert one.item() == pytest.approx((EXPERT_LAUNCH_S + EXPERT_LOOP_S) * groups)
    assert launch_seconds(experts(groups), constant(1e-5), stack).item() == stack.host.forward_item_s


@all_cases("recipe", RECIPES)
def test_the_kernels_that_find_a_scale_are_launched_with_the_cast_that_needs_it(recipe):
    """Current scaling launches three kernels (`quantize_impl` of Transformer Engine's quantizer)."""
    stack = catalog.stack("megatron-2022")
    casts = 3 if recipe == "fp8_current" else 1
    narrow = one_plan(Plan(mbs=1, gbs=1, precision=recipe))
    lowered = lower(catalog.model("mixtral-8x7b"), narrow, Batch(sequence_length=4096))
    items = realise(lowered, stack).layers[1].forward
    cast = next(item for item in items if item.name == "attention.out_cast")
    grouped = next(item for item in items if isinstance(item.work, GroupedMatmul))
    apart = replace(grouped, work=replace(grouped.work, separate=True))

    cast_s, apart_s = (launch_seconds(item, constant(1e-5), stack).item() for item in (cast, apart))

    host = stack.host
    alone_s = 2 * EXPERT_LAUNCH_S + EXPERT_LOOP_S + (casts - 1) * EXPERT_CAST_S
    assert cast_s == pytest.approx(host.forward_item_s + (casts - 1) * SINGLE_CALL_S)
    assert apart_s == pytest.approx(float(grouped.work.groups.item()) * alone_s)


def test_nothing_is_launched_where_there_is_nothing_to_do():
    stack = catalog.stack("megatron-2022")
    alone_s = np.array([[0.0], [1e-6], [0.0]])

    launched_s = launch_seconds(product(), alone_s, stack)

    assert launched_s.ravel().tolist() == [0.0, stack.host.forward_item_s, 0.0]


@all_cases(
    ("item", "graphs", "replayed"),
    [
        ("mlp.up", (), False),
        ("mlp.up", ("iteration",), True),
        ("mlp.up", ("attention", "router"), False),
        ("attention.q", ("attention",), True),
        ("attention.q", ("router",), False),
        ("attention_norm", ("attention",), False),
        ("experts.up", ("router",), False),
        *((f"experts.{part}", ("router",), True) for part in ROUTER_PARTS),
        *((f"experts.{part}.dgrad", ("router",), True) for part in ROUTER_PARTS),
        *((f"experts.{part}", ("attention",), False) for part in ROUTER_PARTS),
    ],
)
def test_a_graph_replays_the_parts_that_it_was_made_of(item, graphs, replayed):
    assert graphed(product(item), graphs) is replayed


def test_the_hosts_own_work_is_part_of_whole_graphs_alone():
    item = host_work("step", "step")

    assert [graphed(item, (name,)) for name in ("iteration", "attention", "router")] == [True, False, False]


@LAWS
@given(groups=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_experts_are_alone_in_the_plans_that_give_a_rank_one_of_them(groups):
    item = experts(groups)

    found = single_groups([product(), item])

    alone = [number == 1 for number in groups]
    assert [single.where.ravel().tolist() for single in found] == ([alone] if any(alone) else [])
    assert all(single.item is item for single in found)


@pytest.mark.parametrize("layout", ["forward", "input_gradient", "weight_gradient"])
def test_the_dense_product_of_one_expert_needs_the_same_work(layout):
    item = experts(1, layout=layout)

    (single,) = single_groups([item])

    dense, grouped = single.dense.work.work(), item.work.work()
    assert dense.flop.item() == grouped.flop.item()
    assert dense.moved_bytes.item() == grouped.moved_bytes.item()
    assert (single.dense.name, single.dense.component) == (item.name, item.component)


@LAWS
@given(groups=st.lists(st.integers(1, 3), min_size=1, max_size=4))
def test_whatever_runs_has_a_price_and_groups_that_never_do_have_none(groups):
    dense, item = product(), experts(groups)
    singles = single_groups([dense, item])

    priced = to_price([dense, item], singles)

    assert priced[0] is dense
    assert any(one is item for one in priced) is any(number > 1 for number in groups)
    assert any(one.name == "experts.up" and isinstance(one.work, Matmul) for one in priced) is (1 in groups)


@LAWS
@given(own=sigma, said=ratio, level=st.tuples(ratio, sigma), site=st.tuples(ratio, sigma))
def test_what_runs_taught_and_what_a_site_measured_multiply_and_the_nearest_sigma_holds(
    own, said, level, site
):
    taught = {"gemm_level[a]": FittedLevel(ratio=level[0], log_sigma_factor=level[1])}
    here = Site(
        name="here", factors=(SiteFactor(name="gemm_level[a]", ratio=site[0], log_sigma_factor=site[1]),)
    )

    bare, with_level = FactorBook(Site()), FactorBook(Site(), taught)
    with_both = FactorBook(here, taught)

    assert bare.get("gemm_level[a]", own, said).ratio == said
    assert with_level.get("gemm_level[a]", own, said).ratio == said * level[0]
    assert with_both.get("gemm_level[a]", own, said).ratio == pytest.approx(said * level[0] * site[0])
    assert [book.get("gemm_level[a]", own).log_sigma_factor for book in (bare, with_level, with_both)] == [
        own, level[1], site[1]
    ]  # fmt: skip


@LAWS
@given(sigmas=st.lists(sigma, min_size=1, max_size=6))
def test_of_equal_factors_the_first_ratio_and_the_largest_sigma_hold(sigmas):
    state = Pricing(None, None, None, FactorBook(Site()), NOTHING_KEPT, None)

    ratios = {state.ratio_of(state.factors.get("host", each, 1.5)) for each in sigmas}

    assert ratios == {1.5}
    assert list(state.found) == ["host"]
    assert state.found["host"].log_sigma_factor == max(sigmas)


def test_a_prediction_lists_the_factors_that_scale_its_items_and_no_others():
    site = site_with(**{"host": 2.0, "fabric[nvlink]": 3.0})
    priced = price_items([product()], catalog.cluster("dgx-a100", 1), site=site)

    assert priced.factors["host"].ratio == 2.0
    assert "fabric[nvlink]" not in priced.factors


@all_cases("name", STACKS)
def test_a_derate_is_the_stacks_own_and_what_stacks_share_where_no_run_taught_of_it(name):
    stack = catalog.stack(name)
    common = FittedLevel(ratio=1.1, log_sigma_factor=0.04)
    own = f"{SHARED_DERATE}[{stack.label}]"

    alone = FactorBook(Site()).derate(stack)
    shared = FactorBook(Site(), {SHARED_DERATE: common}).derate(stack)
    taught = FactorBook(
        Site(), {SHARED_DERATE: common, own: FittedLevel(ratio=1.3, log_sigma_factor=0.01)}
    ).derate(stack)

    assert {alone.name, shared.name, taught.name} == {own}
    assert (alone.ratio, alone.log_sigma_factor) == (stack.derate.ratio, stack.derate.log_sigma_factor)
    assert taught.ratio == pytest.approx(1.3 * stack.derate.ratio)
    if not stack.derate.own:
        assert shared.ratio == pytest.approx(1.1 * stack.derate.ratio)
        assert shared.log_sigma_factor == pytest.approx(math.hypot(stack.derate.log_sigma_factor, 0.04))
    else:
        assert shared == alone


def test_what_nothing_explains_is_named_by_family_stack_and_machine():
    stack, cluster = catalog.stack("megatron-core"), catalog.cluster("dgx-a100", 1)
    book = FactorBook(Site(), {unexplained("dense"): FittedLevel(ratio=1.0, log_sigma_factor=0.07)})

    factors = {factor.name: factor for factor in book.of_whole_steps(stack, cluster)}

    known = factors[unexplained_on("dense", stack, cluster)]
    assert (known.ratio, known.log_sigma_factor) == (1.0, 0.07)
    # twice as much where no run of a family has been used
    assert factors[unexplained_on("hybrids", stack, cluster)].log_sigma_factor == 0.14
    assert list(FactorBook(Site()).of_whole_steps(stack, cluster)) == []
