"""The sampling plan: what fits a budget, in an order that may be stopped."""

from dataclasses import replace

import pytest

from flopcast.lab.measure.measured_operators import need_of
from flopcast.lab.measure.sampling_plan import (
    COLD,
    LOADED,
    MEMORY_FRACTION,
    MOST_RUN_S,
    QUICK,
    TINY,
    Effort,
    Speed,
    plan,
    run_s,
)
from flopcast.lab.measure.shapes import SPACES

H100 = Speed(  # NVIDIA H100 data sheet, SXM, dense
    peak_flop_per_s={"bf16": 989e12, "fp16": 989e12, "fp8": 1979e12, "fp32": 67e12},
    memory_bytes_per_s=3.35e12,
    memory_bytes=80 * 2**30,
    libraries=frozenset({"cuda"}),
)
EFFORT = Effort()


def test_the_measurements_fit_the_budget():
    planned = plan(120.0, H100, EFFORT)

    assert 110.0 < sum(item.needed_s for item in planned) <= 120.0


def test_nothing_is_measured_twice():
    keys = [item.key for item in plan(480.0, H100, EFFORT)]

    assert len(keys) == len(set(keys))


def test_a_smaller_budget_gives_the_beginning_of_the_larger_plan():
    small, large = plan(30.0, H100, EFFORT), plan(60.0, H100, EFFORT)

    assert large[: len(small)] == small


def test_what_a_pack_holds_is_not_planned_again_and_makes_room():
    first = plan(60.0, H100, EFFORT)

    rest = plan(60.0, H100, EFFORT, done={item.key for item in first})

    assert {item.key for item in rest}.isdisjoint(item.key for item in first)
    assert sum(item.needed_s for item in rest) > 55.0


def test_a_minute_reaches_every_class_that_needs_no_other_package():
    classes = {item.shape.kernel for item in plan(60.0, H100, QUICK)}

    assert classes >= {space.kernel for space in SPACES if not space.needs}


def test_a_minute_times_products_attention_and_sums_under_load():
    loaded = {item.shape.kernel for item in plan(60.0, H100, QUICK) if item.condition == LOADED}

    assert loaded >= {"gemm", "flash_attention", "flash_attention.backward", "residual_add"}


def test_cheap_measurements_come_first_within_a_phase():
    planned = plan(60.0, H100, EFFORT)
    phase = [item.needed_s for item in planned[:40] if item.condition == COLD]

    assert phase == sorted(phase)


def test_no_shape_is_loaded_that_would_wait_for_its_launch():
    """An eager call takes the host tens of microseconds; a device needs more work than that."""
    loaded = [item.shape for item in plan(480.0, H100, EFFORT) if item.condition == LOADED]

    assert min(run_s(shape, H100) for shape in loaded) >= 1e-4


def test_every_loaded_shape_is_timed_cold_before():
    cold = set()
    for item in plan(480.0, H100, EFFORT):
        if item.condition == COLD:
            cold.add(item.shape.key)
        else:
            assert item.shape.key in cold


@pytest.mark.parametrize("memory_bytes", [2e9, 16e9, 80e9])
def test_no_shape_needs_more_memory_than_there_is(memory_bytes):
    planned = plan(480.0, replace(H100, memory_bytes=memory_bytes), EFFORT)

    assert max(need_of(item.shape).held_bytes for item in planned) <= MEMORY_FRACTION * memory_bytes


def test_no_shape_takes_longer_than_it_teaches():
    assert max(run_s(item.shape, H100) for item in plan(480.0, H100, EFFORT)) <= MOST_RUN_S


def test_a_device_without_eight_bit_products_is_not_asked_for_them():
    peaks = {name: rate for name, rate in H100.peak_flop_per_s.items() if name != "fp8"}

    planned = plan(480.0, replace(H100, peak_flop_per_s=peaks), EFFORT)

    assert "fp8" in {item.shape.dtype for item in plan(480.0, H100, EFFORT)}
    assert "fp8" not in {item.shape.dtype for item in planned}


@pytest.mark.parametrize(("package", "kernel"), [("triton", "swiglu"), ("triton", "rope.backward")])
def test_compiled_classes_are_measured_where_their_package_is(package, kernel):
    without = {item.shape.kernel for item in plan(480.0, H100, EFFORT)}

    with_it = plan(480.0, replace(H100, libraries=frozenset({package})), EFFORT)

    assert kernel not in without
    assert kernel in {item.shape.kernel for item in with_it}


@pytest.mark.parametrize("library", ["flash_attn", "transformer_engine"])
def test_attention_of_other_libraries_is_measured_where_they_are(library):
    planned = plan(480.0, replace(H100, libraries=frozenset({library})), EFFORT)

    assert any(library in item.shape.flags for item in planned)


def test_a_run_takes_at_least_its_roofline():
    """A bf16 product of 8192³ on a peak of 989 TFLOP/s: 1.11 ms."""
    shape = replace(SPACES[0].shape(0, False, 0), sizes=(("m", 8192), ("n", 8192), ("k", 8192)))

    assert run_s(shape, H100) >= 2 * 8192**3 / 989e12


def test_tiny_plans_measure_every_class_within_seconds():
    slow = Speed(
        peak_flop_per_s={"fp32": 5e10, "bf16": 1e10}, memory_bytes_per_s=5e9, memory_bytes=4e9, tiny=True
    )

    classes = {item.shape.kernel for item in plan(12.0, slow, TINY)}

    assert classes >= {space.kernel for space in SPACES if not space.needs}
