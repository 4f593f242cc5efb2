"""The run of a plan: it makes, times and yields each measurement until the time is over.

Answers: how is one planned measurement made, and what happens if this device cannot run it?
Elsewhere: what to measure (sampling_plan.py), how (kernels.py, timing.py), the files of results
(lab/samples/packs.py).

Measurements are yielded one by one, so that a run that is stopped keeps its results.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from flopcast.lab.measure.measured_operators import need_of
from flopcast.lab.measure.sample_pack import Reading, Sample
from flopcast.lab.measure.sampling_plan import HOST_LAUNCHES, LOADED, Effort, Planned, Speed
from flopcast.lab.measure.shapes import Shape
from flopcast.lab.measure.timing import AbstractBench, Run, cold, host_launch, loaded, round_trip, warm_up
from flopcast.records import Record

MOST_SETS = 16  # of operands that a loaded measurement rotates
COOLED_S = 0.5  # idle longer than this, and a loaded device has cooled: it is heated again
CANNOT = (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, ImportError, KeyError)


def heater(speed: Speed) -> Shape:
    """Return the product that heats a device: a 16-bit product, in the first type for which the device
    has a peak.

    A square of 4096 has 1024 tiles of 128 · 128: more than any device has multiprocessors.

    Examples
    --------
    >>> heater(Speed(peak_flop_per_s={"fp32": 15.7e12, "fp16": 125e12}, memory_bytes_per_s=9e11,
    ...              memory_bytes=16e9)).dtype  # a V100 has no bf16
    'fp16'
    """
    side = 64 if speed.tiny else 4096
    dtype = next((name for name in ("bf16", "fp16") if name in speed.peak_flop_per_s), "fp32")
    return Shape(
        kernel="gemm", layout="forward", dtype=dtype, sizes=(("m", side), ("n", side), ("k", side))
    )


class Make(Protocol):
    """Allocated operands, and the run that uses them."""

    def __call__(self, shape: Shape) -> Run:
        """Run the shape; raise one of CANNOT if the device or torch cannot run it."""


class Unsupported(Record):
    """A measurement that was not possible, with the first line of the reason."""

    key: str
    why: str


class BenchmarkDevice(Record, eq=False):
    """The interface of a device for a run.

    `make` allocates operands, `release` frees their memory, `sense` reads clocks, power and temperature;
    `cache_bytes` is the size that operand sets must exceed so that none stays in the cache.
    """

    name: str
    bench: AbstractBench
    make: Make
    release: Callable[[], None]
    sense: Callable[[], Reading]
    cache_bytes: float
    heater: Shape


def measure(
    planned: Iterable[Planned], device: BenchmarkDevice, effort: Effort, deadline_s: float
) -> Iterator[Sample | Unsupported]:
    """Yield samples in the order of the plan, until the bench's clock passes `deadline_s`.

    A shape that cannot run yields `Unsupported`, and the run continues. To continue a pack, leave its
    samples out of `planned`. A measurement that is expected to end after the deadline does not begin; a
    measurement that has begun is finished.
    """
    busy_s = -math.inf
    bench = device.bench
    for item in planned:
        if bench.clock_s() + item.needed_s > deadline_s:
            return
        yield _attempt(item, device, effort, bench.clock_s() - busy_s > COOLED_S)
        if item.condition == LOADED:
            busy_s = bench.clock_s()


def _attempt(item: Planned, device: BenchmarkDevice, effort: Effort, cooled: bool) -> Sample | Unsupported:
    """Return the sample, or the reason why there is none; free the memory of its operands."""
    try:
        if item.condition == LOADED and cooled:
            runs = [device.make(device.heater)]
            once_s = warm_up(runs, device.bench)
            loaded(runs, device.bench, 1, effort.heat_s, once_s, Reading)
        return _one(item, device, effort)
    except CANNOT as error:
        return Unsupported(key=item.key, why=first_line(error))
    finally:
        device.release()


def _one(item: Planned, device: BenchmarkDevice, effort: Effort) -> Sample:
    bench, shape = device.bench, item.shape
    runs = [device.make(shape) for _ in range(_sets(item, device))]
    once_s = warm_up(runs, bench)
    reading = Reading()
    if shape.kernel == "host.launch":
        times = host_launch(runs[0], bench, effort.repetitions, HOST_LAUNCHES)
    elif shape.kernel == "host.round_trip":
        times = round_trip(runs[0], bench, effort.repetitions)
    elif item.condition == LOADED:
        times, reading = loaded(runs, bench, effort.repetitions, effort.load_s, once_s, device.sense)
    else:
        times = cold(runs[0], bench, effort.repetitions, effort.idle_s)
        reading = device.sense()
    return Sample(
        device=device.name,
        shape=shape,
        condition=item.condition,
        repetitions_us=tuple(seconds_s * 1e6 for seconds_s in times),
        reading=reading,
    )


def _sets(item: Planned, device: BenchmarkDevice) -> int:
    """Return operand sets: one set if cold; if loaded, enough sets to exceed twice the cache together.

    Shapes that move more than the cache holds evict their own operands and need one set.
    """
    moved_bytes = need_of(item.shape).moved_bytes
    if item.condition != LOADED or moved_bytes <= 0:
        return 1
    return max(1, min(MOST_SETS, math.ceil(2 * device.cache_bytes / moved_bytes)))


def first_line(error: BaseException) -> str:
    """Return the first line of torch's message, without its advice, as the reason of an `Unsupported`.

    >>> first_line(RuntimeError("CUDA out of memory.\\nTry less."))
    'RuntimeError: CUDA out of memory.'
    """
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"
