"""Prices of single items: what they are made of, and which factors they name."""

import numpy as np
import pytest
from all_cases import all_cases
from alone import (
    DEVICES,
    OPERATORS,
    bound_of,
    changed_device,
    changed_node,
    message_item,
    price_items,
    seconds_of,
    site_with,
)

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.cost.kernels.sustained import sustained_ratio
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_owner
from flopcast.operators.item import host_work, kernel
from flopcast.operators.matmul import Matmul
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import MESSAGES, AllReduce, Replicate
from flopcast.spec.plan import Plan, batch_plans, one_plan

DGX = catalog.cluster("dgx-a100")
VISTA = catalog.cluster("vista")
UNKNOWN = changed_device(VISTA, name="unknown", curves="", relatives=())
DATA_PARALLEL = one_plan(Plan(data_parallel=8, global_batch=8))


def gemm(size=4096, layout="forward", dtype="fp16"):
    """A square product."""
    side = constant(size)
    return Matmul(m=side, n=side, k=side, dtype=dtype, layout=layout)


def streaming(kind="gelu", elements=2**26, **facts):
    """A memory-bound operator."""
    return MemoryBound(kind=kind, elements=constant(elements), dtype="fp16", **facts)


def item_of(work, phase="forward"):
    """A kernel as an item of a pass."""
    item = kernel("work", work, component="test")
    return item.again() if phase == "recompute" else item


def factors_of(work, cluster):
    """The factors that an operator names, by name."""
    item = item_of(work)
    priced = price_items([item], cluster)
    return {name: priced.factors[name] for name in priced.of(item).factors}


def curve_of(owner, name, efficiency=0.5, launch_s=0.0, **facts):
    """A curve of one efficiency, measured over every size."""
    return Curve(
        name=name,
        owner=owner,
        axes=(np.array([0.0, 60.0]),),
        table=np.full(2, np.log(efficiency)),
        launch_s=launch_s,
        evidence=CurveEvidence(source="made up", rows=9, rejected=0, relative_error=0.01),
        **facts,
    )


def book_of(*curves):
    """A book of these curves."""
    return CurveBook(curves={(curve.owner, curve.name): curve for curve in curves})


def test_a_kernel_takes_its_launch_and_its_bound_over_its_efficiency():
    """2 · 2^26 · 2 bytes at half of A100's 2.039 TB/s, after 7 us."""
    item = item_of(streaming())
    book = book_of(curve_of("a100-sxm4-80gb", "gelu", launch_s=7e-6))

    priced = price_items([item], DGX, book=book)

    assert priced.of(item).alone_s.item() == pytest.approx(7e-6 + 2**28 / 2.039e12 / 0.5)


def test_a_product_is_bound_by_its_flop_or_by_its_bytes():
    """A100: 312 TFLOP/s, and 0.93 of 2.039 TB/s for the 134 MB that no cache holds."""
    long, thin = gemm(8192), Matmul(m=constant(1), n=constant(8192), k=constant(8192), dtype="fp16")
    book = book_of(curve_of("a100-sxm4-80gb", "gemm", efficiency=1.0))
    items = [item_of(long), item_of(thin)]

    priced = price_items(items, DGX, book=book)

    assert priced.of(items[0]).alone_s.item() == pytest.approx(2 * 8192**3 / 312e12)
    assert priced.of(items[1]).alone_s.item() == pytest.approx(2 * (8192**2 + 2 * 8192) / (0.93 * 2.039e12))


def test_an_operator_that_moves_nothing_takes_no_time():
    assert seconds_of(streaming("epilogue_bias"), DGX).item() == 0.0


@all_cases("kernel_class", OPERATORS)
def test_an_empty_operator_takes_no_time(kernel_class):
    make, ranges = OPERATORS[kernel_class]
    sizes = [constant(0.0) for _ in ranges]

    assert seconds_of(make(*sizes), DGX).item() == 0.0


@all_cases("layout", ["input_gradient", "weight_gradient"])
@all_cases("device", DEVICES)
def test_layout_ratios_scale_gradients_and_nothing_else(device, layout):
    ratios = {"input_gradient": 0.8, "weight_gradient": 1.2}
    book = book_of(curve_of(device, "gemm", launch_s=1e-6, layout_ratio=ratios))
    items = [item_of(gemm(layout=name)) for name in ("forward", layout)]

    priced = price_items(items, catalog.cluster(DEVICES[device]), book=book)

    cold_s = np.array([1.0, ratios[layout]])
    cold_s *= 1e-6 + bound_of(gemm(), catalog.device(device)).item() / 0.5
    expected_s = cold_s * sustained_ratio(cold_s, catalog.device(device).sustained)
    assert [priced.of(item).alone_s.item() for item in items] == pytest.approx(expected_s.tolist())


LARGEST = [item_of(make(*(constant(2**high) for _, high in ranges))) for make, ranges in OPERATORS.values()]
OF_EACH_DEVICE = {catalog.cluster(name).node.device: name for name in catalog.names("clusters")}


@all_cases("cluster", OF_EACH_DEVICE.values())
def test_every_kernel_names_factors_that_are_listed(cluster):
    priced = price_items(LARGEST, catalog.cluster(cluster))

    for names in (priced.of(item).factors for item in LARGEST):
        assert names
        assert len(set(names)) == len(names)
        assert set(names) <= set(priced.factors)
    assert all(factor.log_sigma_factor > 0 for factor in priced.factors.values())


@all_cases(
    ("kernel_class", "level"),
    [
        ("gemm.forward", "gemm_level"),
        ("gemm.weight_gradient", "gemm_level"),
        ("flash_attention", "attention_level"),
        ("flash_attention.backward", "attention_level"),
        ("batched_gemm.scores", "unfused_attention_level"),
        ("softmax", "memory_level"),
        ("adam", "memory_level"),
    ],
)
def test_kernels_that_err_together_share_a_level(kernel_class, level):
    make, ranges = OPERATORS[kernel_class]
    work = make(*(constant(2**high) for _, high in ranges))

    assert next(iter(factors_of(work, DGX))) == f"{level}[a100-sxm4-80gb]"


def test_only_matrix_kernels_are_derated_in_training():
    derate = "in_training_derate[megatron-2022@2022-05]"

    assert derate in factors_of(gemm(), DGX)
    assert derate not in factors_of(streaming(), DGX)


@pytest.mark.parametrize("ratio", [1.0, 1.09])
def test_the_level_of_a_stacks_derate_scales_its_products(ratio):
    items = [item_of(gemm()), item_of(streaming())]
    book = book_of(curve_of("a100-sxm4-80gb", "gemm"), curve_of("a100-sxm4-80gb", "gelu"))

    level = FittedLevel(ratio=ratio, log_sigma_factor=0.05)
    levels = {"in_training_derate[megatron-2022@2022-05]": level}

    priced = price_items(items, DGX, book=book, levels=levels)

    product_s, streaming_s = (priced.of(item).alone_s.item() for item in items)
    assert product_s == pytest.approx(ratio * 2 * bound_of(gemm(), DGX.node.device).item())
    assert streaming_s == pytest.approx(2 * bound_of(streaming(), DGX.node.device).item())


def test_a_device_without_curves_is_called_uncalibrated():
    priced = price_items([item_of(gemm())], UNKNOWN)

    assert any("uncalibrated" in warning and "unknown" in warning for warning in priced.warnings)
    assert not any(used.calibrated for used in priced.used)


def test_a_device_without_curves_is_called_uncalibrated_even_on_a_measured_fabric():
    """The fabric's curves say nothing about the kernels."""
    reduce = message_item(AllReduce(axis="dp", message_bytes=constant(1e8)))

    priced = price_items([item_of(gemm()), reduce], UNKNOWN, DATA_PARALLEL)

    assert any("uncalibrated" in warning for warning in priced.warnings)


def own_classes(cluster):
    """Kernel classes that were measured on a cluster's own device."""
    return {name for _, name in load_owner(cluster.node.device.name)}


@all_cases("cluster", [n for n in catalog.names("clusters") if "gemm" in own_classes(catalog.cluster(n))])
def test_a_measured_device_is_not_called_uncalibrated(cluster):
    assert price_items([item_of(gemm())], catalog.cluster(cluster)).warnings == ()


def test_times_without_curves_are_less_certain_than_a_factor_of_a_quarter():
    known, guessed = factors_of(gemm(), VISTA), factors_of(gemm(), UNKNOWN)

    assert max(factor.log_sigma_factor for factor in guessed.values()) >= 0.25
    assert max(factor.log_sigma_factor for factor in known.values()) <= 0.1


def test_a_curve_of_ones_own_is_not_borrowed():
    assert not any(name.startswith("borrowed") for name in factors_of(streaming("gelu"), DGX))


def test_the_doubt_of_borrowing_counts_once():
    """Variances of an item's factors add up to those of the borrowing and of the curve alone."""
    own = factors_of(streaming("gelu"), DGX)
    borrowed = factors_of(streaming("bias_gelu"), DGX)

    variance = sum(factor.log_sigma_factor**2 for factor in borrowed.values())

    expected = sum(factor.log_sigma_factor**2 for factor in own.values())
    assert variance == pytest.approx(expected + FALLBACK_CLASSES["bias_gelu"].log_sigma_factor ** 2)


def test_the_sigma_of_a_level_does_not_hang_on_which_class_comes_first():
    items = [item_of(streaming("gelu")), item_of(streaming("softmax", width=constant(2048.0)))]

    forth, back = (price_items(order, DGX).factors for order in (items, items[::-1]))

    level = "memory_level[a100-sxm4-80gb]"
    assert forth[level].log_sigma_factor == back[level].log_sigma_factor


@pytest.mark.parametrize(("elements", "extrapolates"), [(2**26, False), (2**36, True)])
def test_the_evidence_says_whether_a_curve_was_extrapolated(elements, extrapolates):
    priced = price_items([item_of(streaming()), item_of(streaming(elements=elements))], DGX)

    assert [(used.curve.name, used.extrapolated) for used in priced.used] == [("gelu", extrapolates)]


def test_the_evidence_says_when_a_message_is_smaller_than_any_that_was_measured():
    """vista-ndr: all-reduces of 42 MB and more were measured; this one has 8 bytes."""
    item = message_item(AllReduce(axis="dp", message_bytes=constant(8.0)))

    priced = price_items([item], VISTA, DATA_PARALLEL)

    assert [(used.curve.name, used.extrapolated) for used in priced.used] == [("all_reduce", True)]


def test_operands_of_8_bits_without_a_matrix_engine_are_widened_to_16():
    """A100 has no 8-bit floats: 312 TFLOP/s."""
    book = book_of(curve_of("a100-sxm4-80gb", "gemm", efficiency=1.0))
    item = item_of(gemm(8192, dtype="fp8"))

    priced = price_items([item], DGX, book=book)

    assert priced.of(item).alone_s.item() == pytest.approx(2 * 8192**3 / 312e12)


def test_a_device_that_lists_only_the_precision_of_the_plan_is_priced():
    """What spec/checks.py accepts, pricing accepts: no plan asks for an fp32 peak."""
    device = changed_device(VISTA, peak_flop_per_s={"fp16": 989e12})

    same_s = seconds_of(gemm(), device)

    np.testing.assert_array_equal(same_s, seconds_of(gemm(), VISTA))


@all_cases("collective", MESSAGES)
def test_a_message_to_oneself_is_not_launched(collective):
    item = message_item(MESSAGES[collective](axis="tp", message_bytes=constant(1e8)))

    assert price_items([item], DGX).of(item).host_s == 0.0


def test_a_replica_sends_nothing_and_names_nothing():
    item = message_item(Replicate(axis="dp", message_bytes=constant(1e9)))

    price = price_items([item], DGX, DATA_PARALLEL).of(item)

    assert (price.alone_s.item(), price.host_s.item(), price.factors) == (0.0, 0.0, ())


@pytest.mark.parametrize(("plan", "tier"), [({"data_parallel": 8}, 0), ({"data_parallel": 16}, 1)])
def test_a_message_names_the_fabric_of_its_tier(plan, tier):
    item = message_item(AllReduce(axis="dp", message_bytes=constant(1e8)))
    names = ["fabric[a100-nvswitch]", "fabric[infiniband]"]

    priced = price_items([item], DGX, one_plan(Plan(global_batch=16, **plan)))

    assert priced.of(item).factors == (names[tier],)


def test_an_unmeasured_fabric_is_less_certain_than_a_measured_one():
    item = message_item(AllReduce(axis="dp", message_bytes=constant(1e8)))
    sigmas = [
        price_items([item], DGX, one_plan(Plan(data_parallel=ranks, global_batch=16))).factors
        for ranks in (8, 16)
    ]

    assert sigmas[0]["fabric[a100-nvswitch]"].log_sigma_factor < 0.1
    assert sigmas[1]["fabric[infiniband]"].log_sigma_factor >= 0.2


def test_a_collective_that_borrows_its_curve_is_less_certain_than_one_that_was_measured():
    """vista-ndr has no usable gathers: the all-reduce's efficiency misses the sound ones by a fifth."""
    variances = []
    for collective in ("all_reduce", "all_gather"):
        item = message_item(MESSAGES[collective](axis="dp", message_bytes=constant(1e9)))
        priced = price_items([item], VISTA, DATA_PARALLEL)
        variances.append(sum(priced.factors[n].log_sigma_factor ** 2 for n in priced.of(item).factors))

    assert variances[1] > variances[0]


@pytest.mark.parametrize(("stack", "seconds"), [("gpt-neox-deepspeed", 0.12e-3), ("megatron-2022", 0.0)])
def test_posting_a_blocking_transfer_costs_the_host_time_of_the_stack(stack, seconds):
    item = host_work("transfer", "hop")

    assert price_items([item], DGX, stack=stack).of(item).alone_s.item() == pytest.approx(seconds)


def test_a_slower_host_posts_transfers_more_slowly():
    item = host_work("transfer", "hop")
    site = site_with(host=2.0)

    seconds = price_items([item], DGX, site=site, stack="gpt-neox-deepspeed").of(item).alone_s.item()

    assert seconds == pytest.approx(0.24e-3)


@pytest.mark.parametrize(("phase", "launch_s"), [("forward", 30e-6), ("recompute", 30e-6)])
def test_a_kernel_of_the_forward_costs_the_host_its_launch(phase, launch_s):
    item = item_of(streaming(), phase)

    assert price_items([item], DGX).of(item).host_s == pytest.approx(launch_s)


def test_a_kernel_of_the_backward_is_launched_faster():
    """megatron-2022: 30 us forward, eager Python; 15 us backward, from C++."""
    item = message_item(AllReduce(axis="dp", message_bytes=constant(1.0)), phase="backward")

    assert price_items([item], DGX, DATA_PARALLEL).of(item).host_s == pytest.approx(15e-6)


@pytest.mark.parametrize(
    ("kind", "name", "seconds"), [("synchronise", "host", 0.85e-3), ("step", "host_step", 5e-3)]
)
def test_the_hosts_own_work_takes_what_the_stack_says_and_names_its_factor(kind, name, seconds):
    item = host_work(kind, "step")

    price = price_items([item], DGX, stack="gpt-neox-deepspeed").of(item)

    assert price.alone_s.item() == pytest.approx(seconds)
    assert price.factors == (name,)
    assert price.host_s.item() == 0.0


def test_a_host_twice_as_fast_launches_in_half_the_time_and_waits_as_long():
    fast = changed_node(DGX, host=DGX.node.host.model_copy(update={"speed_ratio": 2.0}))
    launch, dispatch = item_of(streaming()), host_work("sharded_operator", "forward")
    wait = host_work("synchronise", "forward")

    eager = [price_items([launch, dispatch], cluster, stack="torch-fsdp2") for cluster in (DGX, fast)]
    waits_s = [
        price_items([wait], cluster, stack="gpt-neox-deepspeed").of(wait).alone_s.item()
        for cluster in (DGX, fast)
    ]

    before, after = eager
    assert after.of(launch).host_s == pytest.approx(before.of(launch).host_s / 2)
    assert after.of(dispatch).alone_s.item() == pytest.approx(before.of(dispatch).alone_s.item() / 2)
    assert after.of(launch).alone_s.item() == before.of(launch).alone_s.item()
    assert waits_s[0] == waits_s[1] > 0.0


def test_a_curve_may_be_another_devices():
    """`curves: NAME` in a device's file: its own name is not looked up."""
    twin = changed_device(DGX, name="twin", curves="a100-sxm4-80gb")

    np.testing.assert_array_equal(seconds_of(gemm(), twin), seconds_of(gemm(), DGX))


def test_a_small_message_does_not_make_a_large_one_beside_it_uncertain():
    """vista-ndr: all-reduces of 42 MB and more were measured."""
    small, large = (
        message_item(AllReduce(axis="dp", message_bytes=constant(size)), name)
        for name, size in (("small", 8.0), ("large", 1e8))
    )

    priced = price_items([small, large], VISTA, DATA_PARALLEL)

    assert "extrapolated[all_reduce]" in priced.of(small).factors
    assert "extrapolated[all_reduce]" not in priced.of(large).factors


def test_a_shape_beyond_the_measurements_makes_no_other_uncertain():
    inside, beyond = item_of(gemm(4096)), item_of(gemm(2**18))

    priced = price_items([inside, beyond], DGX)

    assert "extrapolated[gemm]" in priced.of(beyond).factors
    assert "extrapolated[gemm]" not in priced.of(inside).factors


def test_what_moves_nothing_lies_in_no_range_and_outside_of_none():
    """A bias that a product adds on the way borrows the curve of a sum, and asks it for nothing."""
    priced = price_items([item_of(streaming("epilogue_bias"))], DGX)

    assert [used.extrapolated for used in priced.used] == [False]


def test_a_plan_is_scaled_by_its_own_doubts_alone():
    """Two plans of one batch: the second's message is one that nobody measured."""
    site, size = site_with(**{"extrapolated[all_reduce]": 2.0}), np.array([[1e8], [8.0]])
    plans = batch_plans([Plan(data_parallel=8, global_batch=8)] * 2)
    item = message_item(AllReduce(axis="dp", message_bytes=size))

    before, after = (price_items([item], VISTA, plans, s).of(item).alone_s.ravel() for s in (None, site))

    np.testing.assert_allclose(after / before, [1.0, 2.0])
