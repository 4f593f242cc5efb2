"""Cold and loaded times, on a simulated device whose times are known."""

from statistics import median

import pytest
from simulated import COOL_S, HOT_S, SimulatedBench

from flopcast.lab.measure.sample_pack import Reading
from flopcast.lab.measure.timing import BATCH_S, cold, host_launch, loaded, round_trip, warm_up

HOT = Reading(clock_mhz=1200.0, power_w=700.0)


def test_a_cold_time_is_that_of_one_run_on_a_cool_device():
    bench = SimulatedBench()

    times = cold(bench.kernel(3e-3), bench, repetitions=100, idle_s=2 * COOL_S)

    assert len(times) == 100
    assert times == pytest.approx([3e-3] * 100)


def test_between_cold_runs_the_device_idles_and_its_cache_is_overwritten():
    bench = SimulatedBench()

    cold(bench.kernel(1e-3), bench, repetitions=2, idle_s=0.01)

    assert bench.told == ["idle", "flush", "run"] * 2


def test_a_loaded_time_is_that_of_a_device_that_has_slowed_down():
    bench = SimulatedBench()

    times, _ = loaded([bench.kernel(1e-3)], bench, 5, load_s=3 * HOT_S, once_s=1e-3, sense=Reading)

    assert times == pytest.approx([2e-3] * 5)


def test_under_load_the_device_never_idles():
    bench = SimulatedBench()

    loaded([bench.kernel(1e-3)], bench, 5, load_s=0.2, once_s=1e-3, sense=Reading)

    assert max(bench.gaps_s[1:]) == 0.0


def test_load_lasts_as_long_as_asked():
    bench = SimulatedBench()

    loaded([bench.kernel(1e-3)], bench, 3, load_s=0.5, once_s=1e-3, sense=Reading)

    assert 0.5 <= bench.device_s <= 0.55


def test_short_runs_are_timed_in_batches_that_outlast_the_resolution_of_a_mark():
    bench = SimulatedBench(launch_s=1e-7)

    times, _ = loaded([bench.kernel(20e-6)], bench, 3, load_s=0.01, once_s=20e-6, sense=Reading)

    assert times == pytest.approx([20e-6] * 3)
    assert len(bench.told) >= 4 * BATCH_S / 20e-6


def test_operand_sets_are_used_in_turn():
    bench = SimulatedBench()
    used = []

    loaded([lambda n=n: (used.append(n), bench.run(1e-3)) for n in range(3)], bench, 3, 0.02, 1e-3, Reading)

    assert used[:6] == [0, 1, 2, 0, 1, 2]


def test_sensors_are_read_before_the_load_ends():
    bench = SimulatedBench()
    host_s_when_read = []

    _, reading = loaded(
        [bench.kernel(1e-3)], bench, 3, 0.05, 1e-3, lambda: (host_s_when_read.append(bench.host_s), HOT)[1]
    )

    assert reading == HOT
    assert host_s_when_read[0] < bench.device_s


def test_a_launch_takes_the_host_what_it_takes_however_slow_the_device():
    bench = SimulatedBench(launch_s=7e-6)

    times = host_launch(bench.kernel(1e-3), bench, repetitions=4, launches=100)

    assert times == pytest.approx([7e-6] * 4)


def test_a_round_trip_is_a_launch_and_a_run():
    bench = SimulatedBench(launch_s=7e-6)

    assert median(round_trip(bench.kernel(1e-3), bench, 3)) == pytest.approx(1.007e-3)


def test_warming_up_gives_the_time_of_one_run():
    bench = SimulatedBench()

    once_s = warm_up([bench.kernel(4e-3)], bench)

    assert once_s == pytest.approx(4e-3)
    assert bench.told == ["run"] * 3
