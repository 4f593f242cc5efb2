"""cost/kernels/fallback_classes.py: laws that every borrowed kernel class keeps, and where narrow products
end."""

from itertools import combinations

import numpy as np
import pytest
from all_cases import all_cases

from flopcast.cost.kernels.classes import class_of
from flopcast.cost.kernels.fallback_classes import FALLBACK_CLASSES, LOW_PRECISION_SPEED_UP, FallbackClass
from flopcast.cost.kernels.generations import GENERATIONS, MEASURED, generation_ratio
from flopcast.library import catalog
from flopcast.library.curves import load_serving_book
from flopcast.operators.memory_bound import KINDS

NARROW = [name for name in FALLBACK_CLASSES if name.startswith("narrow_")]


def chain(name):
    """The class, whom it borrows from, whom that one borrows from, and so on."""
    found = [name]
    while found[-1] in FALLBACK_CLASSES:
        found.append(FALLBACK_CLASSES[found[-1]].name)
        assert len(found) <= len(FALLBACK_CLASSES), f"{name} borrows in a circle"
    return found


@pytest.fixture(scope="module")
def a100():
    """What any kernel class finds on an A100."""
    return finder("dgx-a100")


@pytest.fixture(scope="module")
def h100():
    """What any kernel class finds on an H100."""
    return finder("dgx-h100")


def finder(cluster):
    """A function that finds the curve of a kernel class on the devices of a cluster."""
    whole = catalog.cluster(cluster, 1)
    book, device = load_serving_book(whole), whole.node.device
    return lambda name: book.find(device.name, name, 2e-6, device.relatives)


@all_cases("name", FALLBACK_CLASSES)
def test_whoever_borrows_ends_at_a_class_that_is_measured_on_a100_or_h100(name, a100, h100):
    last = chain(name)[-1]

    found = (h100 if last == "gated_delta" else a100)(last)  # A100 was not measured with linear attention
    assert found.calibrated
    assert found.curve.name == last
    assert found.curve.evidence.rows > 0


@all_cases("name", FALLBACK_CLASSES)
def test_what_is_borrowed_is_of_the_same_engine(name):
    """A product's efficiency says nothing of a pass over memory, nor does the reverse."""
    families = {class_of(each).kind.family for each in chain(name)}

    assert len(families) == 1


@all_cases("name", FALLBACK_CLASSES)
def test_a_relative_adds_a_doubt_and_changes_times_by_less_than_five(name):
    relative = FALLBACK_CLASSES[name]

    assert 0 < relative.log_sigma_factor <= 0.5
    assert 0.5 < relative.time_ratio < 5.0  # 8-bit attention is faster than attention in 16 bits
    assert relative.speed_up_ratio is None or 1.0 < relative.speed_up_ratio < 5.0


@all_cases("kind", [name for name in KINDS if f"{name}.backward" in FALLBACK_CLASSES])
def test_a_backward_that_is_borrowed_exists(kind):
    assert KINDS[kind].backward > 0


@all_cases("kind", KINDS)
def test_every_pass_of_every_kind_that_moves_anything_is_priced_somehow(kind, a100):
    passes = [kind] if KINDS[kind].forward else []
    passes += [f"{kind}.backward"] if KINDS[kind].backward else []

    assert all(a100(name).calibrated for name in passes)


@all_cases("name", FALLBACK_CLASSES)
def test_borrowing_is_as_unsure_as_all_its_steps_together(name, a100):
    """Where the class itself was not measured; doubts of independent steps add as squares."""
    found = a100(name)
    steps = chain(name)[: chain(name).index(found.curve.name)] if found.curve.name != name else []

    sigma = np.sqrt(sum(FALLBACK_CLASSES[step].log_sigma_factor ** 2 for step in steps))

    assert found.class_log_sigma_factor == pytest.approx(sigma)


@all_cases("name", FALLBACK_CLASSES)
def test_a_borrowed_curve_is_the_relatives_own_slower_by_every_step(name, a100):
    found = a100(name)
    steps = chain(name)[: chain(name).index(found.curve.name)] if found.curve.name != name else []
    relatives = [FALLBACK_CLASSES[step] for step in steps]
    ratio = np.prod(
        [
            one.time_ratio_on("a100-sxm") if one.speed_up_ratio is None else one.time_ratio_of(1.0)
            for one in relatives
        ]
    )

    own = a100(found.curve.name).curve

    assert np.exp(own.table - found.curve.table) == pytest.approx(np.full(own.table.shape, ratio))


@all_cases("name", NARROW)
@all_cases("engine_ratio", [1.0, 2.0, 4.0, 6.0])
def test_a_narrow_product_is_as_many_times_as_fast_whatever_its_engine_promises(name, engine_ratio):
    relative = FALLBACK_CLASSES[name]
    wide_s, efficiency = 1.0, 0.7

    narrow_bound_s = wide_s * efficiency / engine_ratio
    narrow_s = narrow_bound_s / efficiency * relative.time_ratio_of(engine_ratio)

    assert wide_s / narrow_s == pytest.approx(relative.speed_up_ratio)


@pytest.mark.parametrize("engine_ratio", [0.5, 1.0, 4.0])
def test_a_class_that_names_no_speed_up_asks_for_no_engine(engine_ratio):
    relative = FallbackClass(name="gemm", log_sigma_factor=0.1, time_ratio=1.3)

    assert relative.time_ratio_of(engine_ratio) == 1.3


def test_fewer_bits_are_faster_and_one_scale_for_all_is_faster_than_many():
    speed = {name: ratio for name, (ratio, _) in LOW_PRECISION_SPEED_UP.items()}

    assert speed["nvfp4"] > speed["fp8"] > speed["mxfp8"] > speed["fp8_block"] > 1.0
    assert speed["fp8"] < 2.0  # the engine's own ratio, which no whole product reaches
    assert speed["nvfp4"] < 6.0


@all_cases(
    ("wide_ms", "narrow_ms", "name"),
    [(13.102, 6.812, "fp8"), (31.968, 16.785, "fp8"), (13.102, 7.161, "mxfp8"), (13.102, 3.764, "nvfp4")],
)
def test_published_times_of_linear_layers_lie_inside_the_interval(wide_ms, narrow_ms, name):
    """docs/examples/gemm_profiling of NVIDIA/TransformerEngine."""
    ratio, sigma = LOW_PRECISION_SPEED_UP[name]

    assert abs(np.log(wide_ms / narrow_ms / ratio)) <= 1.6449 * sigma


@all_cases("kernel", ["flash_attention", "flash_attention.backward"])
@all_cases("owner", ["a100-sxm4-80gb", "h100-sxm5-80gb", "b200-sxm-180gb"])
def test_a_kernel_of_its_own_generation_takes_as_long_as_it_takes(kernel, owner):
    ratio, sigma = generation_ratio(MEASURED.get(owner, "flash-2"), kernel, owner)

    assert (ratio, sigma) == (1.0, 0.0)


@pytest.mark.parametrize("kernel", ["flash_attention", "flash_attention.backward"])
def test_from_one_generation_to_another_and_back_nothing_is_lost(kernel):
    """By way of owners that measured each of them: ratios are reciprocal, doubts the same."""
    owner_of = {name: owner for owner, name in MEASURED.items()}
    for (one, its_owner), (other, owner) in combinations(owner_of.items(), 2):
        forth, back = generation_ratio(one, kernel, owner), generation_ratio(other, kernel, its_owner)

        assert forth[0] * back[0] == pytest.approx(1.0)
        assert forth[1] == back[1]


@all_cases("runs", GENERATIONS)
@all_cases("kernel", ["gemm", "batched_gemm", "softmax", "layernorm.backward"])
def test_generations_are_of_fused_attention_alone(runs, kernel):
    assert generation_ratio(runs, kernel, "h100-sxm5-80gb") == (1.0, 0.0)


@pytest.mark.parametrize("backward", [False, True])
def test_every_generation_is_faster_than_the_one_before(backward):
    kernel = "flash_attention.backward" if backward else "flash_attention"

    times = [
        generation_ratio(name, kernel, "h100-sxm5-80gb")[0] for name in ("flash-1", "flash-2", "flash-3")
    ]

    assert times == sorted(times, reverse=True)
    assert times[-1] == 1.0
