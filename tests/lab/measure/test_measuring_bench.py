"""Marks: a GPU's events count milliseconds, a processor's clock counts seconds."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from flopcast.lab.measure.device import Identity, ProcessorBench, identity, open_bench


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
    zeroed: list = field(default_factory=list)


@dataclass
class Memory:
    """A tensor of this many bytes; the device notes when it is overwritten."""

    device: Gpu
    size_bytes: int

    def zero_(self):
        self.device.zeroed.append(self.size_bytes)


@pytest.fixture
def gpu():
    return Gpu()


@pytest.fixture
def bench(gpu):
    """The bench of a device whose cache torch does not tell."""
    return bench_of(gpu, None)


def bench_of(gpu, cache_bytes):
    """A bench whose events are those of `gpu`; it sleeps by moving the clock."""
    torch = SimpleNamespace(
        cuda=SimpleNamespace(Event=lambda enable_timing: Event(gpu, enable_timing)),
        int32=4,
        empty=lambda elements, dtype, device: Memory(gpu, elements * dtype),
    )

    def sleep(seconds_s):
        gpu.now_ms += seconds_s * 1e3

    who = Identity(name="a GPU", torch="2.9.0", cache_bytes=cache_bytes)
    return open_bench(torch, who, "cuda", lambda: gpu.now_ms / 1e3, sleep)


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


@pytest.mark.parametrize(
    ("cache_bytes", "memory_bytes_per_s"),
    [
        (6e6, 0.9e12),  # NVIDIA V100: 6 MB, 900 GB/s (whitepaper WP-08608-001)
        (4e6, 5.3e12),  # AMD Instinct MI300X: 4 MB in each die, 5.3 TB/s (data sheet)
        (50e6, 3.35e12),  # NVIDIA H100 SXM: 50 MB (white paper), 3.35 TB/s (data sheet)
        (None, 3.35e12),  # not told
    ],
)
def test_the_cache_is_overwritten_long_enough_to_hide_a_launch(gpu, cache_bytes, memory_bytes_per_s):
    """An eager backward takes the host about 100 µs."""
    bench_of(gpu, cache_bytes).flush()

    assert sum(gpu.zeroed) / memory_bytes_per_s > 100e-6


@pytest.mark.parametrize("cache_bytes", [6e6, 50e6, 126e6])
def test_what_overwrites_a_cache_is_twice_as_large(gpu, cache_bytes):
    bench_of(gpu, cache_bytes).flush()

    assert min(gpu.zeroed) >= 2 * cache_bytes


def test_no_size_of_a_processor_is_invented():
    """Torch does not tell them; what stands here is a fact of the manifest."""
    who = identity(SimpleNamespace(__version__="2.9.0"), "cpu")

    assert (who.memory_bytes, who.cache_bytes) == (None, None)


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
