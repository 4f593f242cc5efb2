"""Marks: a GPU's events count milliseconds, a processor's clock counts seconds."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from flopcast.measure.bench import FLUSHES, GpuBench, ProcessorBench


@dataclass
class Event:
    """An event as torch has it: recorded at a time of the device, differences in milliseconds."""

    device: "Gpu"
    enable_timing: bool
    at_ms: float = -1.0

    def record(self):
        self.at_ms = self.device.now_ms

    def elapsed_time(self, later):
        return later.at_ms - self.at_ms

    def synchronize(self):
        self.device.waited_for.append(self)


@dataclass
class Gpu:
    """A clock, and what was waited for or overwritten."""

    now_ms: float = 0.0
    waited_for: list = field(default_factory=list)
    zeroed: int = 0

    def zero_(self):
        self.zeroed += 1


@pytest.fixture
def gpu():
    return Gpu()


@pytest.fixture
def bench(gpu):
    """A bench whose events are those of `gpu`; it sleeps by moving the clock."""
    torch = SimpleNamespace(cuda=SimpleNamespace(Event=lambda enable_timing: Event(gpu, enable_timing)))

    def sleep(seconds_s):
        gpu.now_ms += seconds_s * 1e3

    return GpuBench(torch=torch, flushed=gpu, clock=lambda: gpu.now_ms / 1e3, sleep=sleep)


def test_milliseconds_between_events_become_seconds(bench, gpu):
    first = bench.mark()
    gpu.now_ms += 2.5
    last = bench.mark()

    assert bench.between_s(first, last) == pytest.approx(0.0025)


def test_events_are_made_for_timing(bench):
    assert bench.mark().enable_timing


def test_waiting_is_for_the_mark_and_not_for_the_whole_device(bench, gpu):
    first, _ = bench.mark(), bench.mark()

    bench.wait(first)

    assert gpu.waited_for == [first]


def test_the_cache_is_overwritten_long_enough_to_hide_a_launch(bench, gpu):
    """Twice the 50 MB of an H100 at 3.35 TB/s take 30 µs; an eager backward takes the host about 100."""
    bench.flush()

    assert gpu.zeroed == FLUSHES
    assert FLUSHES * 100e6 / 3.35e12 > 100e-6


def test_idling_lets_time_pass(bench):
    bench.idle(0.25)

    assert bench.clock_s() == 0.25


def test_a_processor_is_timed_by_its_clock():
    times = iter((1.0, 1.5))
    bench = ProcessorBench(clock=lambda: next(times), sleep=lambda _: None)

    assert bench.between_s(bench.mark(), bench.mark()) == 0.5


def test_a_clock_that_stands_still_gives_no_time_of_zero():
    """A time of zero would be refused by the pack and have no logarithm."""
    bench = ProcessorBench(clock=lambda: 1.0, sleep=lambda _: None)

    assert bench.between_s(bench.mark(), bench.mark()) > 0


def test_a_processor_overwrites_its_cache_too():
    written = []
    bench = ProcessorBench(clock=lambda: 0.0, sleep=lambda _: None, write=lambda: written.append(1))

    bench.flush()

    assert written == [1]
