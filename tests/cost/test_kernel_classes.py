"""What a kernel's name says: its curve, its layout, its kind."""

from pathlib import Path

import pytest
from all_cases import all_cases

from flopcast.cost.kernels.classes import KINDS, class_of
from flopcast.cost.price import MESSAGE_EXTRAPOLATION_LOG_SIGMA
from flopcast.operators.matmul import GroupedMatmul, Matmul


@all_cases("layout", ["forward", "input_gradient", "weight_gradient"])
@all_cases("curve", ["gemm", "gemm.fp8_block", "grouped_gemm", "grouped_gemm.nvfp4"])
def test_layouts_of_a_product_share_its_curve(curve, layout):
    found = class_of(f"{curve}.{layout}")

    assert (found.curve, found.layout) == (curve, layout)
    assert class_of(curve).curve == curve


@all_cases(
    ("kernel", "kind"),
    [
        ("gemm.forward", "products"),
        ("gemm.fp8.forward", "narrow products"),
        ("grouped_gemm.fp8.weight_gradient", "grouped products"),
        ("flash_attention.backward", "attention"),
        ("flash_attention.latent.backward", "attention"),
        ("batched_gemm.scores", "attention"),
        ("softmax.backward", "memory-bound"),
        ("adam", "memory-bound"),
    ],
)
def test_a_kernel_is_of_the_kind_that_its_name_says(kernel, kind):
    assert class_of(kernel).kind.name == kind


def test_a_backward_of_another_class_is_a_curve_of_its_own():
    assert class_of("layernorm.backward").curve == "layernorm.backward"


@pytest.mark.parametrize("operator", [Matmul, GroupedMatmul])
def test_the_layout_of_an_operator_is_found_in_its_kernel(operator):
    fields = dict.fromkeys(
        ("m", "n", "k") if operator is Matmul else ("groups", "rows", "n", "k", "imbalance")
    )

    made = operator(**fields, dtype="bf16", layout="weight_gradient")

    assert class_of(made.kernel).layout == "weight_gradient"


def test_stacks_derate_products_and_neither_fused_attention_nor_passes_over_memory():
    names = ("gemm", "batched_gemm.scores", "flash_attention", "flash_attention.latent.backward", "gelu")

    assert [class_of(name).is_derated for name in names] == [True, True, False, False, False]


def test_kinds_have_names_of_their_own():
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def steps_of_the_page():
    """The table of sigmas in docs/accuracy/kernels.md, which `calibrate score` prints: step → log-sigma."""
    page = Path(__file__).parents[2] / "docs" / "accuracy" / "kernels.md"
    heading = "| use of a curve, group of classes | log-sigma |"
    rows = page.read_text(encoding="utf-8").partition(heading)[2].partition("##")[0]
    cells = [line.split("|")[1:3] for line in rows.splitlines() if line.count("|") == 3]
    return {name.strip(): float(value) for name, value in cells[1:]}


@all_cases("kind", KINDS)
def test_the_sigmas_of_a_kind_are_those_that_the_score_measured(kind):
    steps = steps_of_the_page()

    assert kind.extrapolation_log_sigma_factor == pytest.approx(
        steps[f"extrapolation, {kind.name}"], abs=0.006
    )
    assert kind.other_device_log_sigma_factor == pytest.approx(
        steps[f"other_device, {kind.name}"], abs=0.006
    )


def test_the_sigma_of_messages_outside_of_their_table_is_that_of_the_score():
    measured = steps_of_the_page()["extrapolation, messages"]

    assert pytest.approx(measured, abs=0.006) == MESSAGE_EXTRAPOLATION_LOG_SIGMA
