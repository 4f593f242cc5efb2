"""The run of a plan: what fails is told, the clock ends it, loaded phases are heated once."""

from dataclasses import replace

import pytest
from simulated import HOT_S, SimulatedBench

from flopcast.lab.measure.sample_pack import Reading, Sample
from flopcast.lab.measure.sampling_plan import COLD, LOADED, QUICK, Effort, Planned, Speed
from flopcast.lab.measure.sampling_run import BenchmarkDevice, Unsupported, heater, measure
from flopcast.lab.measure.shapes import Shape
from flopcast.library import catalog

HEATER = Shape(kernel="gemm", layout="forward", dtype="fp16", sizes=(("m", 4096), ("n", 4096), ("k", 4096)))
EFFORT = Effort(repetitions=3, idle_s=0.002, load_s=0.02, heat_s=0.3)


def gemm(m):
    """A small product."""
    return Shape(kernel="gemm", layout="forward", dtype="bf16", sizes=(("m", m), ("n", 64), ("k", 64)))


def planned(m, condition=COLD):
    """One measurement."""
    return Planned(shape=gemm(m), condition=condition, needed_s=0.1)


def device_of(bench, made=None, refused=(), released=None):
    """A device on which every shape takes a millisecond, but those that it refuses."""

    def make(shape):
        if made is not None:
            made.append(shape)
        if shape.size("m") in refused:
            raise RuntimeError("CUDA out of memory.\nTry less.")
        return bench.kernel(1e-3)

    return BenchmarkDevice(
        name="simulated",
        bench=bench,
        make=make,
        release=lambda: None if released is None else released.append(bench.clock_s()),
        sense=lambda: Reading(clock_mhz=1000.0),
        cache_bytes=50e6,
        heater=HEATER,
    )


def test_each_measurement_becomes_a_sample_in_microseconds():
    bench = SimulatedBench()

    (sample,) = measure([planned(64)], device_of(bench), EFFORT, deadline_s=10.0)

    assert sample.repetitions_us == pytest.approx((1000.0, 1000.0, 1000.0))
    assert (sample.device, sample.shape, sample.condition) == ("simulated", gemm(64), COLD)
    assert sample.reading.clock_mhz == 1000.0


def test_what_cannot_run_is_told_and_the_rest_goes_on():
    found = list(measure([planned(1), planned(2)], device_of(SimulatedBench(), refused=(1,)), EFFORT, 10.0))

    assert found[0] == Unsupported(key=planned(1).key, why="RuntimeError: CUDA out of memory.")
    assert isinstance(found[1], Sample)


def test_memory_is_given_back_after_success_and_failure():
    released = []

    list(measure([planned(1), planned(2)], device_of(SimulatedBench(), None, (1,), released), EFFORT, 10.0))

    assert len(released) == 2


def test_nothing_begins_that_would_end_after_the_deadline():
    bench = SimulatedBench()

    found = list(measure([planned(m) for m in range(1, 100)], device_of(bench), EFFORT, deadline_s=0.15))

    assert 0 < len(found) < 99
    assert bench.clock_s() <= 0.15


def test_loaded_measurements_in_a_row_are_heated_once():
    made = []

    list(measure([planned(m, LOADED) for m in (1, 2, 3)], device_of(SimulatedBench(), made), EFFORT, 10.0))

    assert made.count(HEATER) == 1
    assert made[0] == HEATER


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("v100-sxm2-32gb", "fp16"), ("a100-sxm4-80gb", "bf16")],  # bf16 came with the A100 (its whitepaper)
)
def test_a_device_is_heated_in_a_type_that_its_matrix_engine_has(device, dtype):
    known = catalog.device(device)

    found = heater(
        Speed(
            peak_flop_per_s=known.peak_flop_per_s,
            memory_bytes_per_s=known.memory_bytes_per_s,
            memory_bytes=known.memory_bytes,
        )
    )

    assert (found.dtype, found.size("m")) == (dtype, 4096)


@pytest.mark.parametrize("effort", [Effort(), QUICK])
def test_a_device_is_kept_busy_for_two_seconds_before_loaded_times_count(effort):
    """Power controllers take 0.1 s to lower clocks; published sustained tables time a second."""
    bench = SimulatedBench()
    starts = []

    def make(shape):
        starts.append((shape, bench.clock_s()))
        return bench.kernel(1e-3)

    device = replace(device_of(bench), make=make)
    (loaded,) = measure([planned(1, LOADED)], device, effort, 100.0)

    (heating, first_s), (_, second_s), *_ = starts
    assert heating == HEATER
    assert second_s - first_s >= 2.0
    assert loaded.reading.clock_mhz == 1000.0


def test_cold_measurements_are_not_heated():
    made = []

    list(measure([planned(1), planned(2)], device_of(SimulatedBench(), made), EFFORT, 10.0))

    assert HEATER not in made


def test_loaded_time_is_longer_where_power_is_limited():
    bench = SimulatedBench()

    cold, loaded = measure([planned(1), planned(1, LOADED)], device_of(bench), EFFORT, 10.0)

    assert EFFORT.heat_s > HOT_S
    assert loaded.median_s == pytest.approx(2 * cold.median_s)


def test_loaded_operands_together_exceed_twice_the_cache():
    """m = 65536, n = k = 64 in bf16 moves 16.8 MB; twice a cache of 50 MB needs six sets."""
    made = []

    list(measure([planned(65536, LOADED)], device_of(SimulatedBench(), made), EFFORT, 10.0))

    assert made.count(gemm(65536)) == 6


def test_a_run_that_is_closed_early_keeps_what_it_gave():
    found = measure([planned(m) for m in (1, 2, 3)], device_of(SimulatedBench()), EFFORT, 10.0)

    first = next(found)
    found.close()

    assert first.shape == gemm(1)
    assert list(found) == []
