"""A site from a pack: ratios of measured to predicted times, named as predictions name them."""

import numpy as np
import pytest
from all_cases import all_cases
from conftest import make_job

from flopcast.cost.factors import FactorBook
from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.curve import Curve, CurveEvidence
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.kernels.roofline import roofline
from flopcast.cost.price import price
from flopcast.lab.measure.measured_operators import columns_of, operator_of
from flopcast.lab.measure.sample_pack import Sample
from flopcast.lab.measure.sampling_plan import COLD, LOADED
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.measure.site import DEVICES, LEAST_LOG_SIGMA, launch_s, predicted_s, site_of
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.base import AbstractOperator
from flopcast.prediction import predict
from flopcast.spec.plan import one_plan
from flopcast.spec.site import Site
from flopcast.workload.lower import lower
from flopcast.workload.realise import realise

CLUSTER = catalog.cluster("dgx-a100")
A100 = CLUSTER.node.device
BOOK = load_book(CLUSTER)
PEAK = A100.peak_flop_per_s["fp16"]
HALF = CurveBook(  # every product at half of its bound, no launch
    curves={
        (A100.name, "gemm"): Curve(
            name="gemm",
            owner=A100.name,
            axes=(),
            table=np.array(np.log(0.5)),
            launch_s=0.0,
            evidence=CurveEvidence(source="test", rows=1, rejected=0, relative_error=0.0),
        )
    }
)


def gemm(side, ratio=1.0, condition=LOADED, dtype="fp16", flags=()):
    """A square product that took `ratio` times twice its compute bound."""
    shape = Shape(
        kernel="gemm",
        layout="forward",
        dtype=dtype,
        sizes=(("m", side), ("n", side), ("k", side)),
        flags=flags,
    )
    return sample(shape, ratio * 2 * 2 * side**3 / PEAK, condition)


def sample(shape, seconds, condition=COLD):
    """A sample of one repetition."""
    return Sample(device="A", shape=shape, condition=condition, repetitions_us=(seconds * 1e6,))


def launches(seconds):
    """Launches of the smallest kernel."""
    return sample(Shape(kernel="host.launch", dtype="fp32", sizes=()), seconds)


def factors_of(samples, book=HALF, **options):
    """Factors by name."""
    return {f.name: f for f in site_of(samples, A100, book, **options).factors}


def test_a_machine_a_quarter_slower_has_a_level_of_five_quarters():
    found = factors_of([gemm(side, 1.25) for side in (2048, 4096, 8192)])

    assert found[f"gemm_level[{A100.name}]"].ratio == pytest.approx(1.25, abs=1e-4)


def test_equal_ratios_leave_only_the_least_uncertainty():
    (factor,) = factors_of([gemm(side, 1.25) for side in (2048, 4096, 8192)]).values()

    assert factor.log_sigma_factor == LEAST_LOG_SIGMA


def test_the_level_is_a_geometric_mean_and_its_sigma_the_spread():
    """Ratios 0.8, 1, 1.25: logarithms -a, 0, a with a = 0.2231; their standard deviation is a."""
    (factor,) = factors_of([gemm(s, r) for s, r in ((2048, 0.8), (4096, 1.0), (8192, 1.25))]).values()

    assert factor.ratio == pytest.approx(1.0, abs=1e-4)
    assert factor.log_sigma_factor == pytest.approx(0.2231, abs=1e-4)


def test_two_shapes_say_nothing_about_spread():
    (factor,) = factors_of([gemm(2048, 1.1), gemm(4096, 1.3)]).values()

    assert factor.log_sigma_factor is None


def test_loaded_times_count_where_there_are_any():
    cold = [gemm(side, 1.0, COLD) for side in (2048, 4096, 8192)]
    hot = [gemm(side, 1.5, LOADED) for side in (2048, 4096, 8192)]

    (factor,) = factors_of(cold + hot).values()

    assert factor.ratio == pytest.approx(1.5, abs=1e-4)


def test_classes_that_were_never_loaded_count_cold_beside_those_that_were():
    """Two memory-bound classes of 1.5 and of 1.0 times the curve: the level lies between."""
    rows = []
    for kernel, ratio, condition in (("residual_add", 1.5, LOADED), ("gelu", 1.0, COLD)):
        shape = Shape(kernel=kernel, dtype="fp16", sizes=(("tokens", 16384), ("width", 8192)))
        curve_s = predicted_s(operator_of(shape, columns_of([shape])), A100, BOOK).item()
        rows.append(sample(shape, ratio * curve_s, condition))

    (factor,) = factors_of(rows, BOOK).values()

    assert factor.name == f"memory_level[{A100.name}]"
    assert factor.ratio == pytest.approx(1.5**0.5, abs=1e-4)


def test_kernels_as_short_as_a_launch_say_nothing():
    shape = Shape(kernel="gelu", dtype="fp16", sizes=(("tokens", 64), ("width", 64)))

    assert factors_of([sample(shape, 1.0)], BOOK) == {}


def test_cold_times_count_where_nothing_was_loaded():
    (factor,) = factors_of([gemm(side, 1.1, COLD) for side in (2048, 4096)]).values()

    assert factor.ratio == pytest.approx(1.1, abs=1e-4)


def test_a_cold_pack_and_a_sustained_one_of_a_device_as_catalogued_both_give_a_level_of_one():
    """On H200 products of 0.1 ms take 1.17 times as long on a busy device: each has its own measure."""
    cluster = catalog.cluster("dgx-h200")
    device, book = cluster.node.device, load_book(cluster)
    shapes = [
        Shape(kernel="gemm", layout="forward", dtype="bf16", sizes=tuple((name, side) for name in "mnk"))
        for side in (3072, 3584, 4096)
    ]
    operators = [operator_of(shape, columns_of([shape])) for shape in shapes]
    seconds = {
        condition: [predicted_s(each, device, book, busy=condition == LOADED).item() for each in operators]
        for condition in (COLD, LOADED)
    }
    rows = {
        condition: [sample(shape, each, condition) for shape, each in zip(shapes, told, strict=True)]
        for condition, told in seconds.items()
    }

    levels = [
        site_of(pack, device, book).factors[0].ratio
        for pack in (rows[COLD], rows[LOADED], [*rows[COLD], *rows[LOADED]])
    ]

    assert levels == pytest.approx([1.0, 1.0, 1.0], abs=1e-4)
    assert np.divide(seconds[LOADED], seconds[COLD]) == pytest.approx([1.17] * 3, abs=0.01)


@pytest.mark.parametrize("odd", [gemm(4096, 9.0, dtype="fp8"), gemm(4096, 9.0, flags=("cudnn",))])
def test_precisions_without_a_peak_and_other_libraries_are_passed_over(odd):
    (factor,) = factors_of([gemm(2048), gemm(4096), odd]).values()

    assert factor.ratio == pytest.approx(1.0, abs=1e-4)


def test_without_a_reference_there_is_no_host_factor():
    assert "host" not in factors_of([gemm(4096), launches(8e-6)])


def test_the_host_factor_is_the_ratio_of_two_hosts_launches():
    found = factors_of([launches(6e-6)], reference_launch_s=4e-6)

    assert found["host"].ratio == pytest.approx(1.5)


def test_a_host_that_is_known_to_be_faster_is_not_counted_twice():
    """Twice the reference's speed, and half its launches: nothing is left to explain."""
    found = factors_of([launches(2e-6)], reference_launch_s=4e-6, host_speed_ratio=2.0)

    assert found["host"].ratio == pytest.approx(1.0)


def test_launches_are_found_in_a_pack_that_has_them():
    assert launch_s([gemm(4096), launches(5e-6)]) == pytest.approx(5e-6)
    assert launch_s([gemm(4096)]) is None


def test_an_empty_pack_gives_a_site_without_factors():
    assert site_of([], A100, BOOK) == Site(name="measured")


def test_predicted_times_are_those_that_a_job_is_charged():
    """Every kernel of a job, without the factors that its price multiplies."""
    job = make_job()
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)
    priced = price(programs, job.cluster, load_book(job.cluster), FactorBook(Site()))
    checked = 0

    for item in programs.items():
        if isinstance(item.work, AbstractOperator):
            factors = np.prod([priced.factors[name].ratio for name in priced.of(item).factors])
            charged = priced.of(item).alone_s
            if charged.size == 1 and charged.item() > 0:
                device = job.cluster.node.device
                mine = predicted_s(item.work, device, load_book(job.cluster)) * factors
                least = roofline(item.work.work(), device)[2].ravel()  # no factor makes it faster
                assert np.maximum(mine, least) == pytest.approx(charged.ravel())
                checked += 1

    assert checked > 20


def test_families_are_the_factors_that_prices_name():
    job = make_job()
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.stack)
    priced = price(programs, job.cluster, load_book(job.cluster), FactorBook(Site()))

    for item in programs.items():
        if isinstance(item.work, AbstractOperator):
            level = f"{class_of(item.work.kernel).kind.family}[{job.cluster.node.device.name}]"
            assert level in priced.of(item).factors


def test_a_measured_site_lengthens_the_step_by_the_share_of_its_products():
    job = make_job()
    book = load_book(job.cluster)
    site = site_of([gemm(side, 1.25) for side in (2048, 4096, 8192)], A100, HALF)

    plain = predict(job, book)
    slower = predict(job.model_copy(update={"site": site}), book)

    share = next(f.share for f in plain.factors if f.name == f"gemm_level[{A100.name}]")
    assert slower.step_time_s / plain.step_time_s == pytest.approx(1 + 0.25 * share, rel=0.02)


@all_cases("name", DEVICES.values())
def test_names_of_torch_stand_for_devices_of_the_catalogue(name):
    assert name in catalog.names("devices")
