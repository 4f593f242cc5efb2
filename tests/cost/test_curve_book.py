"""Which curve prices a kernel class, and what replaces a missing one."""

import numpy as np
import pytest
from all_cases import all_cases
from alone import DEVICES, OPERATORS

from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import UNCALIBRATED_LOG_SIGMA, CurveBook
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES
from flopcast.library import catalog
from flopcast.library.curves import load_book, load_owner
from flopcast.operators.formats import FORMATS

BORROWED = FALLBACK_CLASSES["bias_gelu"]  # of gelu
PLACES = [("ours", "bias_gelu"), ("ours", "gelu"), ("cousin", "bias_gelu"), ("cousin", "gelu")]


def curve_of(owner, name):
    """A curve that tells itself apart by owner and name."""
    return Curve(
        name=name,
        owner=owner,
        axes=(),
        table=np.array(-0.1),
        launch_s=1e-6,
        evidence=CurveEvidence(source="made up", rows=1, rejected=0, relative_error=0.01),
    )


def book_of(*places):
    """A book with a curve at each (owner, name)."""
    return CurveBook(curves={place: curve_of(*place) for place in places})


def find(book):
    """What prices a bias_gelu on `ours`, whose relative is `cousin`."""
    return book.find("ours", "bias_gelu", 3e-6, ("cousin",))


@all_cases("first", range(4))
def test_the_nearest_curve_that_exists_is_used(first):
    """In order: own, own relative class, the cousin's, the cousin's relative class."""
    found = find(book_of(*PLACES[first:]))

    assert (found.curve.owner, found.curve.name) == PLACES[first]
    assert found.calibrated


def test_a_curve_of_ones_own_adds_no_doubt():
    assert find(book_of(*PLACES)).log_sigma_factor == 0.0


def test_a_relative_class_adds_its_sigma():
    assert find(book_of(("ours", "gelu"))).log_sigma_factor == pytest.approx(BORROWED.log_sigma_factor)


def test_sigmas_of_another_device_and_another_class_add_in_quadrature():
    foreign = find(book_of(("cousin", "bias_gelu"))).log_sigma_factor

    both = find(book_of(("cousin", "gelu"))).log_sigma_factor

    assert both**2 == pytest.approx(foreign**2 + BORROWED.log_sigma_factor**2)


def test_without_any_curve_a_data_sheet_estimate_with_a_wide_sigma_is_used():
    found = find(book_of(("stranger", "gelu"), ("ours", "softmax")))

    assert not found.calibrated
    assert found.curve.axes == ()
    assert found.curve.launch_s == 3e-6
    assert found.log_sigma_factor >= 0.3
    assert found.curve.evidence.rows == 0
    assert "uncalibrated" in found.curve.evidence.source


def test_a_data_sheet_estimate_is_the_same_fraction_of_every_bound():
    found = find(book_of())

    assert 0 < float(np.exp(found.curve.table)) < 1


def test_the_first_of_two_cousins_comes_first():
    book = book_of(("second", "gelu"), ("first", "gelu"))

    found = book.find("ours", "gelu", 3e-6, ("first", "second"))

    assert found.curve.owner == "first"


def test_exact_finds_only_what_was_asked():
    book = book_of(("ours", "gelu"))

    assert book.exact("ours", "gelu") is book.curves["ours", "gelu"]
    assert book.exact("ours", "bias_gelu") is None
    assert book.exact("cousin", "gelu") is None


@all_cases("name", FALLBACK_CLASSES)
def test_a_relative_is_another_class_with_some_doubt(name):
    relative = FALLBACK_CLASSES[name]

    assert relative.name != name
    assert 0.02 <= relative.log_sigma_factor <= (0.3 if relative.tested else 0.5)


@all_cases("name", [name for name, relative in FALLBACK_CLASSES.items() if not relative.tested])
def test_an_untested_class_is_less_sure_than_an_estimate_from_a_data_sheet(name):
    assert FALLBACK_CLASSES[name].log_sigma_factor > UNCALIBRATED_LOG_SIGMA


def is_served(name):
    """Whether a class is of serving."""
    return class_of(name).base.serves


@all_cases("name", [name for name in FALLBACK_CLASSES if not is_served(name)])
def test_a_relative_was_itself_measured_where_training_traces_come_from(name):
    """A100 and GH200, the systems of data/operators: what all others borrow from."""
    last = FALLBACK_CLASSES[name].name
    # the relatives of these classes were measured there
    while last.startswith(("grouped_gemm", "expert_gemm", "flash_attention.latent")):
        last = FALLBACK_CLASSES[last].name

    for device in ("a100-sxm4-80gb", "gh200-96gb"):
        assert (device, last) in load_owner(device)


@all_cases("name", FALLBACK_CLASSES)
def test_only_kernel_classes_that_exist_have_relatives(name):
    bases = ("gemm", "expert_gemm", "grouped_gemm")
    products = [f"narrow_{base}.{name}" for base in bases for name in FORMATS]
    kinds = ("fp32", "mxfp8", "fp8", "latent.mxfp8", "latent.fp8")
    attention = [f"flash_attention.{kind}{end}" for kind in kinds for end in ("", ".backward")]

    assert name in (*OPERATORS, *bases, *products, "wide_gemm", *attention) or is_served(name)


PARTLY = [
    name for name in DEVICES if name.startswith(("tpu", "mi3", "gaudi"))
]  # some of their kernels were measured


@all_cases(
    "device", [d for d in DEVICES if d not in PARTLY and (load_owner(d) or catalog.device(d).relatives)]
)
@all_cases("kernel", OPERATORS)
def test_every_kernel_class_is_priced_by_measurements_where_a_device_or_its_relative_was_measured(
    kernel, device
):
    """A new kind of operator needs a curve, or a relative, before it may run."""
    facts = catalog.device(device)
    name = "gemm" if kernel.startswith("gemm.") else kernel
    book = load_book(catalog.cluster(DEVICES[device]))

    found = book.find(device, name, facts.kernel_launch_s, facts.relatives)

    assert found.calibrated


@all_cases("device", PARTLY)
@all_cases("kernel", OPERATORS)
def test_kernels_of_tpu_amd_and_gaudi_that_were_not_measured_are_priced_by_data_sheets(kernel, device):
    """Products of all were measured, and fused attention of AMD and TPU v5p."""
    facts = catalog.device(device)
    attends = device.startswith(("mi3", "tpu-v5p"))
    measured = ("gemm.", "convolution", *(("flash_attention",) if attends else ()))
    book = load_book(catalog.cluster(DEVICES[device]))

    found = book.find(
        device, "gemm" if kernel.startswith("gemm.") else kernel, facts.kernel_launch_s, facts.relatives
    )

    assert found.calibrated == kernel.startswith(measured)


@all_cases("device", DEVICES)
@all_cases("kernel", OPERATORS)
def test_every_kernel_class_tells_its_curve_enough_coordinates(kernel, device):
    make, ranges = OPERATORS[kernel]
    facts = catalog.device(device)
    name = "gemm" if kernel.startswith("gemm.") else kernel
    found = load_book(catalog.cluster(DEVICES[device])).find(device, name, 0.0, facts.relatives)

    coordinates = make(*(np.array([2.0**high]) for _, high in ranges)).coordinates()

    assert len(coordinates) >= len(found.curve.axes)


def test_kernels_of_engines_are_borrowed_of_a_relative_before_those_of_training_of_ones_own():
    """Products of few rows wait for weights, which curves of training's products do not know."""
    training, related = ("ours", "gemm"), ("cousin", "served_gemm")

    def found(name, *places):
        return book_of(*places).find("ours", name, 3e-6, ("cousin",)).curve

    assert found("served_gemm", training, related).owner == "cousin"
    assert found("served_gemm.fp8", training, related).name == "served_gemm"
    assert found("served_gemm", training).name == "gemm"
    assert found("served_gemm.fp8", ("ours", "served_gemm"), ("cousin", "served_gemm.fp8")).owner == "ours"


def test_products_in_fp32_have_the_ratio_of_their_device():
    """Relative to products in 16 bits: 1.18 times on V100, and 0.88 times in the mean of eight devices."""
    for device, ratio in (("v100-sxm2-32gb", 1.18), ("a100-pcie-40gb", 1.3), ("h200-sxm-141gb", 1 / 1.13)):
        found = book_of((device, "gemm")).find(device, "wide_gemm", launch_s=3e-6).curve
        assert np.exp(found.table) == pytest.approx(ratio * np.exp(-0.1)), device
