"""Narrow products priced: the 16-bit curve at another peak, or a measurement of one's own."""

from dataclasses import replace

import numpy as np
import pytest
from alone import changed_device, price_items, seconds_of

from flopcast.cost.kernels.book import CurveBook
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.relatives import NARROW_SPEED_UP
from flopcast.cost.placement import axis_group
from flopcast.dtypes import constant
from flopcast.io import catalog
from flopcast.io.curves import load_book
from flopcast.operators.formats import FORMATS
from flopcast.operators.grouped_matmul import GroupedMatmul
from flopcast.operators.item import kernel
from flopcast.operators.matmul import Matmul
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


@pytest.mark.parametrize(("cluster", "formats"), [(H100, ["fp8", "fp8_block"]), (GB200, list(FORMATS))])
@pytest.mark.parametrize("layout", ["forward", "input_gradient", "weight_gradient"])
def test_a_large_narrow_product_is_as_many_times_as_fast_as_a_wide_one_whatever_its_peak(
    cluster, formats, layout
):
    # both products last between 60 us and 0.7 ms, where a busy device slows them alike
    wide = replace(LARGE, m=constant(2048), layout=layout)

    for name in formats:
        found = seconds_of(wide, cluster) / seconds_of(replace(wide, narrow=name), cluster)
        assert found.item() == pytest.approx(NARROW_SPEED_UP[name][0], rel=0.02)


@pytest.mark.parametrize("name", FORMATS)
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
    [((4096, 8192, 16384), 1.39, 0.14), ((1024, 2048, 1024), 0.80, 0.1)],
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
