"""Narrow products priced: the 16-bit curve at another peak, or a measurement of one's own."""

from dataclasses import replace

import numpy as np
import pytest
from all_cases import all_cases
from alone import changed_device, price_items, seconds_of

from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.fallback_classes import LOW_PRECISION_SPEED_UP
from flopcast.cost.placement import axis_group
from flopcast.dtypes import constant
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.formats import FORMATS
from flopcast.operators.item import kernel
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.operators.quantise import Quantise
from flopcast.spec.cluster import Sustained
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.precision import RECIPES, NarrowProducts
from flopcast.workload.backward import derive_backward
from flopcast.workload.casts import weight_casts
from flopcast.workload.rewrites.quantise import quantise

H100, GB200 = catalog.cluster("dgx-h100"), catalog.cluster("gb200-nvl72")
LARGE = Matmul(m=constant(8192), n=constant(8192), k=constant(8192), dtype="bf16")


def linear(tokens, inputs, outputs):
    work = Matmul(m=constant(tokens), n=constant(outputs), k=constant(inputs), dtype="bf16")
    return (kernel("linear", work, ("x",), "y", component="mlp"),)


def both_passes_s(forward, cluster):
    """Forward, backward and casts of one linear layer on one device."""
    items = forward + derive_backward(forward, frozenset())
    priced = price_items(items, cluster)
    return sum(priced.of(item).alone_s.item() for item in items)


@all_cases(("cluster", "formats"), [(H100, ["fp8", "fp8_block"]), (GB200, list(FORMATS))])
@all_cases("layout", ["forward", "input_gradient", "weight_gradient"])
def test_a_large_narrow_product_is_as_many_times_as_fast_as_a_wide_one_whatever_its_peak(
    cluster, formats, layout
):
    # both products last between 60 us and 0.7 ms, where a busy device slows them alike
    wide = replace(LARGE, m=constant(2048), layout=layout)

    for name in formats:
        found = seconds_of(wide, cluster) / seconds_of(replace(wide, narrow=name), cluster)
        assert found.item() == pytest.approx(LOW_PRECISION_SPEED_UP[name][0], rel=0.02)


@all_cases("name", FORMATS)
def test_no_narrow_product_beats_its_own_peak_or_the_memory(name):
    device = GB200.node.device
    for size in (64, 1024, 32768):
        work = replace(LARGE, m=constant(size), narrow=name)
        need = work.work()
        bound = max(need.flop / device.peak(need.unit), need.moved_bytes / device.memory_bytes_per_s)
        assert seconds_of(work, GB200).item() >= bound.item()


def test_products_of_experts_borrow_from_experts_where_they_were_measured_and_else_from_products():
    book = load_book(H100)
    only = CurveBook(curves={key: curve for key, curve in book.curves.items() if key[1] == "gemm"})

    found = [b.find("h100-sxm5-80gb", "narrow_grouped_gemm.mxfp8", 2e-6) for b in (book, only)]

    assert [f.curve.name for f in found] == ["grouped_gemm", "gemm"]
    assert found[1].class_log_sigma_factor > found[0].class_log_sigma_factor


def test_a_curve_of_ones_own_takes_the_place_of_the_ratio():
    book = load_book(H100)
    own = replace(book.curves["h100-sxm5-80gb", "gemm"], name="narrow_gemm.fp8")
    measured = CurveBook(curves={**book.curves, ("h100-sxm5-80gb", "narrow_gemm.fp8"): own})

    found = measured.find("h100-sxm5-80gb", "narrow_gemm.fp8", 2e-6)

    assert found.curve is own
    assert found.log_sigma_factor == 0


def test_serving_tables_do_not_price_training():
    found = load_book(H100).find("h100-sxm5-80gb", class_of("narrow_gemm.fp8.forward").curve, 2e-6)

    assert "serving" not in found.curve.evidence.source


def test_products_of_experts_are_of_their_kind_and_dense_ones_of_theirs():
    assert class_of("narrow_gemm.mxfp8.weight_gradient").kind.name == "products"
    assert class_of("narrow_grouped_gemm.mxfp8.forward").kind.name == "grouped products"
    work = GroupedMatmul(
        **dict.fromkeys(("groups", "rows", "n", "k", "imbalance"), constant(1)), dtype="bf16", narrow="fp8"
    )
    assert class_of(work.kernel).curve == "narrow_grouped_gemm.fp8"


@pytest.mark.parametrize(
    ("shape", "speed_up", "within"),
    [((4096, 8192, 16384), 1.39, 0.11), ((1024, 2048, 1024), 0.80, 0.05)],
    ids=str,
)
def test_one_linear_layer_speeds_up_as_torchao_measured_on_h100(shape, speed_up, within):
    """pytorch/ao, torchao/float8/README.md, Performance: both passes, dynamic scaling of all tensors.

    The speed-up of the products is that of Transformer Engine, on operands cast before.
    """
    wide = linear(*shape)
    recipe, stack = RECIPES["fp8_current"], NarrowProducts(weight_caching=False)
    narrow = weight_casts(wide, recipe, stack) + quantise(wide, recipe, stack, constant(1))

    found = both_passes_s(wide, H100) / both_passes_s(narrow, H100)

    assert found == pytest.approx(speed_up, rel=within)


def test_wide_products_of_a_model_of_5b_take_what_transformer_engine_measured_on_b300():
    """Its tutorial on GEMM profiling: 12.758 and 13.102 ms for the linears of a layer, 15,872 tokens."""
    # it times each product for milliseconds, on a device that is not hot
    cluster = changed_device(catalog.cluster("dgx-b300"), sustained=Sustained())
    shapes = ((4096, 12288), (4096, 4096), (4096, 16384), (16384, 4096))

    layer_s = sum(both_passes_s(linear(15872, inputs, outputs), cluster) for inputs, outputs in shapes)

    assert layer_s == pytest.approx(12.93e-3, rel=0.05)


@pytest.mark.parametrize(("plan", "ranks"), [("tp=4 pp=2", 4), ("dp=2 tp=2 pp=4", 4), ("dp=8", 8)])
def test_ranks_of_a_stage_are_all_but_those_of_other_stages(plan, ranks):
    words = dict(word.split("=") for word in plan.split())
    group = axis_group("stage", one_plan(Plan(**{k: int(v) for k, v in words.items()}, gbs=8)), 8)

    np.testing.assert_array_equal(group.ranks, [[ranks]])


# additional columns, 2048 to 7168, of products of 8192 rows on GB200 (data/peers/aiconfigurator): sums of
# 768 and 1024 take 34 and 44 us more in bf16, 28 and 34 us more in 8 bits, whose casts are the same
@pytest.mark.parametrize(("inner", "measured_ratio"), [(768, 34 / 28), (1024, 44 / 34)])
def test_results_in_16_bits_keep_short_sums_from_gaining_what_long_ones_gain(inner, measured_ratio):
    def added_s(narrow):
        few, many = (
            seconds_of(
                GroupedMatmul(
                    groups=constant(2), rows=constant(2 * 8192), n=constant(n), k=constant(inner),
                    imbalance=constant(1), dtype="bf16", narrow=narrow, separate=True,
                ),
                GB200,
            ).item()
            for n in (2048, 7168)
        )  # fmt: skip
        return many - few

    found = added_s("") / added_s("fp8")

    assert found == pytest.approx(measured_ratio, rel=0.2)
    assert found < 0.85 * LOW_PRECISION_SPEED_UP["fp8"][0]


# 32 groups of 1024 rows and 64 of 512, by 4096 x 7168, on B200 (data/peers/simumax): gradients that are
# added to sums of fp32 take 2961 and 3902 us, to sums of bf16 2465 and 2958 us
@pytest.mark.parametrize(("groups", "rows", "measured_s"), [(32, 1024, 496e-6), (64, 512, 944e-6)])
def test_wider_sums_cost_what_their_bytes_take_beside_nothing_else(groups, rows, measured_s):
    cluster = catalog.cluster("dgx-b200")

    def gradient_s(sum_bytes):
        work = GroupedMatmul(
            groups=constant(groups), rows=constant(groups * rows), n=constant(4096), k=constant(7168),
            imbalance=constant(1), dtype="bf16", layout="weight_gradient", separate=True,
            sum_bytes=sum_bytes,
        )  # fmt: skip
        return seconds_of(work, cluster).item()

    assert gradient_s(4.0) - gradient_s(2.0) == pytest.approx(measured_s, rel=0.12)


def test_casts_of_one_expert_after_another_take_as_long_as_one_as_many_times():
    def cast_s(groups):
        elements = constant(groups * 2.0**22)
        work = Quantise(elements=elements, each_bytes=4.0, dtype="bf16", groups=constant(groups))
        return seconds_of(work, GB200).item()

    assert cast_s(16) == pytest.approx(16 * cast_s(1))


TORCHAO = [  # on GB200: columns of a tensor with 2,048 rows, and microseconds of both kernels of a cast
    ("inputs", 14336, 31.744 + 65.856),
    ("inputs", 28672, 46.048 + 117.296),
    ("gradients", 14336, 31.744 + 91.168),
    ("gradients", 28672, 46.048 + 166.624),
]


def test_casts_of_torchao_to_nvfp4_take_at_least_the_time_of_their_instructions():
    """benchmarks/prototype/nvfp4_training/README.md of pytorch/ao; kernels also take time to start."""
    stack = catalog.stack("torch-fsdp2").narrow
    recipe = RECIPES["nvfp4"]
    seconds = {}
    for tensors, columns, measured_us in TORCHAO:
        sizes = (2048, columns, 256) if tensors == "inputs" else (2048, 256, columns)
        items = quantise(linear(*sizes), recipe, stack, constant(1))
        name = {"inputs": "linear_cast", "gradients": "linear_gradient_cast"}[tensors]
        work = next(item.work for item in items if item.name == name)
        seconds[tensors, columns] = seconds_of(replace(work, of_gradient=False), GB200).item()

        assert 0.5 < seconds[tensors, columns] / (measured_us * 1e-6) < 1.05, (tensors, columns)
    for tensors, small, large in (("inputs", 97.6, 163.344), ("gradients", 122.912, 212.672)):
        more_s = seconds[tensors, 28672] - seconds[tensors, 14336]
        assert more_s == pytest.approx((large - small) * 1e-6, rel=0.03), tensors

    fast = quantise(linear(2048, 28672, 256), recipe, NarrowProducts(), constant(1))
    assert seconds_of(fast[0].work, GB200).item() < 0.5 * seconds["inputs", 28672]
