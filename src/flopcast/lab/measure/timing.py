"""Timing of one kernel: cold, with an idle device before each run, or loaded, with runs back to back.

Answers: what is a repetition, and what happens between two of them?
Elsewhere: the device itself (device.py), the timed kernels (kernels.py).

Cold: the device idles, its cache is overwritten, and one run lies between two marks. Published tables of
kernels contain such times. Loaded: the device never idles during `load_s`; operand sets rotate so that no
run finds its inputs in the cache; a repetition is the mean over a batch. Under a power limit, the clock
falls within a second, and the loaded time is that of a training step.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import cycle, pairwise
from typing import Any

from flopcast.lab.measure.sample_pack import Reading

BATCH_S = 0.002  # of one loaded repetition: a mark costs microseconds
MOST_RUNS = 200  # in one batch: fewer than a device's queue holds
WARM_UP = 3
Run = Callable[[], object]
Mark = Any  # a device's event, or a processor's time


class AbstractBench(ABC):
    """A device on which runs are queued in order, with marks between them."""

    @abstractmethod
    def mark(self) -> Mark:
        """Queue a mark, which records when all work before it has ended."""

    @abstractmethod
    def wait(self, mark: Mark) -> None:
        """Return when the device has reached a mark."""

    @abstractmethod
    def between_s(self, first: Mark, second: Mark) -> float:
        """Return seconds from one reached mark to another."""

    @abstractmethod
    def flush(self) -> None:
        """Queue work that overwrites the device's cache."""

    @abstractmethod
    def idle(self, seconds_s: float) -> None:
        """Let the device rest."""

    @abstractmethod
    def clock_s(self) -> float:
        """Return the host's clock."""


def mean_run_s(run: Run, bench: AbstractBench, count: int = 1) -> float:
    """Return the mean seconds of `count` consecutive runs between two marks."""
    first = bench.mark()
    for _ in range(count):
        run()
    last = bench.mark()
    bench.wait(last)
    return bench.between_s(first, last) / count


def warm_up(runs: Sequence[Run], bench: AbstractBench) -> float:
    """Run three times, so that libraries are initialised; return the seconds of the last run."""
    for _ in range(WARM_UP - 1):
        runs[-1]()
    return mean_run_s(runs[0], bench)


def cold(run: Run, bench: AbstractBench, repetitions: int, idle_s: float) -> tuple[float, ...]:
    """Return the seconds of each repetition, with an idle device and an overwritten cache before it.

    The overwriting is queued just before the run, which removes the launch of the run from its time. The
    device rests for `idle_s` before each repetition, so that the clock recovers. Kernels were selected
    before (`warm_up`).
    """
    times = []
    for _ in range(repetitions):
        bench.idle(idle_s)
        bench.flush()
        times.append(mean_run_s(run, bench))
    return tuple(times)


def loaded(
    runs: Sequence[Run],
    bench: AbstractBench,
    repetitions: int,
    load_s: float,
    once_s: float,
    sense: Callable[[], Reading],
) -> tuple[tuple[float, ...], Reading]:
    """Return the mean seconds of a run in each of the last `repetitions` batches, and the sensor readings.

    `runs` are the same kernel on different operands, used in turn; one takes about `once_s`. The device
    stays busy for `load_s`, or longer if `repetitions` batches need more time. Only the last batches count,
    because the clocks are steady by then. Two batches are always queued in advance, so that the device has
    no gaps while the host waits.
    """
    size = max(1, min(MOST_RUNS, math.ceil(BATCH_S / max(once_s, 1e-9))))
    turn = cycle(runs)
    start_s = bench.clock_s()
    marks = [bench.mark()]
    while len(marks) <= repetitions + 1 or bench.clock_s() - start_s < load_s:
        for _ in range(size):
            next(turn)()
        marks.append(bench.mark())
        if len(marks) > 3:
            bench.wait(marks[-3])
    reading = sense()
    bench.wait(marks[-1])
    used = marks[-repetitions - 1 :]
    return tuple(bench.between_s(a, b) / size for a, b in pairwise(used)), reading


def host_launch(run: Run, bench: AbstractBench, repetitions: int, launches: int) -> tuple[float, ...]:
    """Return the host's seconds for one launch: the mean over many launches without waiting for the device.

    `launches` must be fewer than the device's queue holds, because a full queue makes the host wait for
    the device. Launches per second are the reciprocal.
    """
    times = []
    for _ in range(repetitions):
        bench.wait(bench.mark())
        start_s = bench.clock_s()
        for _ in range(launches):
            run()
        times.append((bench.clock_s() - start_s) / launches)
    bench.wait(bench.mark())
    return tuple(times)


def round_trip(run: Run, bench: AbstractBench, repetitions: int) -> tuple[float, ...]:
    """Return the seconds from a launch until the host detects the end of the kernel.

    This is the latency of one synchronisation, in which a framework reads a value from the device.
    """
    times = []
    for _ in range(repetitions):
        bench.wait(bench.mark())
        start_s = bench.clock_s()
        run()
        bench.wait(bench.mark())
        times.append(bench.clock_s() - start_s)
    return tuple(times)
