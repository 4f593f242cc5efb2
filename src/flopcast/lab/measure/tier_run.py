"""Measurement of the host's memory: copies to and from a device, and an optimizer update.

Answers: how fast are copies between one device and its host, and how fast do the processors update an
optimizer?
Elsewhere: rows and the fields that they set (tier_samples.py), the bench (timing.py), drives and file
systems (lab/samples/storage.py).

One device copies alone; devices that share a link are slower together.
"""

from collections.abc import Callable, Container, Iterator
from functools import partial

from flopcast.lab.measure.device import Place, ProcessorBench
from flopcast.lab.measure.sampling_run import CANNOT, Unsupported, first_line
from flopcast.lab.measure.tier_samples import COPIES, HOST_UPDATE, PINNED, STORAGE, TierSample, tier_key
from flopcast.lab.measure.timing import AbstractBench, Run, mean_run_s, warm_up
from flopcast.records import Record

UPDATE_BYTES = 28  # a parameter of AdamW: 16 read (gradient, weight, two moments), 12 written
MOST_STORAGE_S = 10.0  # of each direction
COPY_S = 0.3  # an estimate, as the next ones: for the seconds of a plan only
NEEDED_S = {HOST_UPDATE: 2.0, **dict.fromkeys(STORAGE, MOST_STORAGE_S)}


class TierEffort(Record):
    """Bytes of one copy, parameters of the update, bytes of the files, and repetitions."""

    copy_bytes: int = 256 * 2**20
    parameters: int = 32 * 2**20
    file_bytes: int = 4 * 2**30
    repetitions: int = 5


QUICK_TIERS = TierEffort(file_bytes=2**30)
TINY_TIERS = TierEffort(parameters=2**20, file_bytes=2**26, repetitions=3)  # to show that the code works


def measure_memories(
    place: Place, bench: AbstractBench, device: str, effort: TierEffort, done: Container[str] = ()
) -> Iterator[TierSample | Unsupported]:
    """Yield the missing samples of copies (only with a GPU) and of the update on the host.

    Parameters
    ----------
    device : str
        Name of the device in the rows.
    """
    if place.device != "cpu":
        for kind in COPIES:
            if tier_key(kind) not in done:
                make = partial(_copy, kind, place, effort)
                yield _timed(kind, effort.copy_bytes, make, bench, device, effort)
    if tier_key(HOST_UPDATE) not in done:
        size_bytes = UPDATE_BYTES * effort.parameters
        host = ProcessorBench(clock=bench.clock_s, sleep=bench.idle)
        yield _timed(HOST_UPDATE, size_bytes, partial(_update, place, effort), host, device, effort)


def planned_memories(on_gpu: bool, storage: bool) -> tuple[tuple[str, float], ...]:
    """Return the measurements that precede the kernels, with their expected seconds.

    >>> planned_memories(on_gpu=False, storage=False)
    (('host_update', 2.0),)
    """
    kinds = (*(COPIES if on_gpu else ()), HOST_UPDATE, *(STORAGE if storage else ()))
    return tuple((kind, NEEDED_S.get(kind, COPY_S)) for kind in kinds)


def _timed(
    kind: str,
    size_bytes: int,
    make: Callable[[], Run],
    bench: AbstractBench,
    device: str,
    effort: TierEffort,
) -> TierSample | Unsupported:
    """Return the sample of a run, or the reason why it could not run."""
    try:
        run = make()
        warm_up([run], bench)
        times = tuple(mean_run_s(run, bench) * 1e6 for _ in range(effort.repetitions))
    except CANNOT as error:
        return Unsupported(key=tier_key(kind), why=first_line(error))
    return TierSample(device=device, kind=kind, size_bytes=size_bytes, repetitions_us=times)


def _copy(kind: str, place: Place, effort: TierEffort) -> Run:
    """Return a copy between the device and pinned or pageable memory of the host."""
    torch = place.torch
    on_host = torch.ones(effort.copy_bytes, dtype=torch.uint8)
    on_host = on_host.pin_memory() if kind in PINNED else on_host
    on_device = torch.ones(effort.copy_bytes, dtype=torch.uint8, device=place.device)
    to, source = (on_device, on_host) if kind.endswith("to_device") else (on_host, on_device)
    return lambda: to.copy_(source, non_blocking=True)


def _update(place: Place, effort: TierEffort) -> Run:
    """Return a step of torch's fused AdamW over fp32 states in the host's memory."""
    torch = place.torch
    weights = torch.nn.Parameter(torch.zeros(effort.parameters, dtype=torch.float32))
    weights.grad = torch.ones(effort.parameters, dtype=torch.float32)
    step: Run = torch.optim.AdamW([weights], fused=True).step
    return step
