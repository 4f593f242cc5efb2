"""A measured trace: kernels of one device as columns, and sums over them.

Answers: which share of a step does each class of kernels take, and how much communication does compute not
hide?
Elsewhere: reading traces (lab/traces), classes (kernel_names.py), samples for curves (traced_shapes.py),
the comparison with a prediction (lab/validation/from_run.py).

The columns are those of predicted events (report/events.py) that a profiler also records: operator, phase,
stream, start_s, end_s. A profiler does not record the stage, chunk, micro-batch or layer. Streams are
"compute", "copy", and "tp", "dp" or "pp" if the description of the process group states it, and
"communication" otherwise. A profiler slows the host down, so gaps and step times are upper bounds, while
times of kernels are accurate.
"""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.lab.calibration.kernel_names import COMMUNICATION, COPY, UNKNOWN, kind_of
from flopcast.records import Record

NO_STEP = -1


class Words:
    """Words, numbered in the order of first use, so that columns can store numbers; number 0 is ""."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, word: str) -> int:
        """Return the number of a word, assigned on first use."""
        return self.numbers.setdefault(word, len(self.numbers))

    def all(self) -> tuple[str, ...]:
        """Return every word, at the index of its number."""
        return tuple(self.numbers)


class Trace(Record, eq=False):
    """One device's kernels, one entry each, in the order of their start times: all arrays have shape
    (kernels,).

    Columns of words (`kernel` to `stream`) hold positions in `words`. `call` is the number of the operator
    call that launched a kernel, -1 if it is unknown. `step` is the number of the annotated step, -1 outside
    all steps. Sizes of messages follow operators/messages.py; they are NaN for kernels that send nothing
    and if the trace does not state them. Seconds are counted from the start of the first kernel.
    """

    name: str
    words: tuple[str, ...]
    kernel: Integers
    operator: Integers
    shapes: Integers  # as the profiler prints them: "[[4096, 1024], [1024, 8]]"
    dtypes: Integers  # "c10::BFloat16", of the first input
    kernel_class: Integers
    phase: Integers  # forward, backward, or "" where no operator is known
    stream: Integers
    call: Integers
    queue: Integers  # the device's own number of the stream
    step: Integers
    start_s: Floats
    end_s: Floats
    message_bytes: Floats
    ranks: Counts
    step_times_s: Floats  # (steps,): annotated steps with a kernel
    device: int
    remarks: tuple[str, ...] = ()

    @property
    def step_time_s(self) -> float | None:
        """Return the median of the annotated steps after the first, a warm-up; None if there is none."""
        used = self.step_times_s[1:] if self.step_times_s.size > 1 else self.step_times_s
        return float(np.median(used)) if used.size else None

    @property
    def span_s(self) -> float:
        """Return the seconds of all steps, or of the whole trace if no step is annotated."""
        whole_s = float(self.end_s.max() - self.start_s.min()) if self.start_s.size else 0.0
        return float(self.step_times_s.sum()) or whole_s

    @property
    def used(self) -> np.ndarray:
        """Return a mask of kernels that count: those of annotated steps, or all if no step is annotated."""
        return self.step != NO_STEP if self.step_times_s.size else np.ones(len(self.step), dtype=bool)


class ClassTotal(Record):
    """Kernels of one class, or of one name that belongs to no class.

    `step_share` is their time divided by that of the steps. Kernels run concurrently, so the sum of the
    shares may exceed 1. The remaining share, up to 1, is time in which the stream waits.
    """

    name: str
    num_kernels: int
    total_s: float
    step_share: float


def class_totals(trace: Trace) -> tuple[ClassTotal, ...]:
    """Return totals by class over the steps, the longest first; kernels without a class are under ""."""
    return _totals(trace, trace.kernel_class, trace.used)


def unrecognised(trace: Trace) -> tuple[ClassTotal, ...]:
    """Return totals of kernels without a class by kernel name, the longest first."""
    return _totals(trace, trace.kernel, trace.used & (trace.kernel_class == trace.words.index(UNKNOWN)))


def _totals(trace: Trace, column: Integers, chosen: np.ndarray) -> tuple[ClassTotal, ...]:
    seconds = np.bincount(column[chosen], (trace.end_s - trace.start_s)[chosen], len(trace.words))
    counts = np.bincount(column[chosen], minlength=len(trace.words))
    totals = [
        ClassTotal(
            name=trace.words[number],
            num_kernels=int(counts[number]),
            total_s=float(seconds[number]),
            step_share=float(seconds[number]) / trace.span_s if trace.span_s else 0.0,
        )
        for number in np.flatnonzero(counts).tolist()
    ]
    return tuple(sorted(totals, key=lambda total: (-total.total_s, total.name)))


def seconds_per_step(trace: Trace) -> dict[str, float]:
    """Return the kernel seconds of a mean step by kind: gemm, attention, memory_bound, exposed
    communication.

    "communication" contains only the time during which no compute kernel runs (the time that it adds to
    the step); the other kinds are sums of their kernels. Copies, unrecognised kernels and kinds without
    kernels have no entry. A trace without annotated steps counts as one step.
    """
    steps = max(1, trace.step_times_s.size)
    seconds: dict[str, float] = defaultdict(float)
    for total in class_totals(trace):
        kind = kind_of(total.name)
        if kind not in (UNKNOWN, COPY, COMMUNICATION):
            seconds[kind] += total.total_s / steps
    if (exposed := exposed_communication_s(trace)) > 0:
        seconds[COMMUNICATION] = exposed / steps
    return dict(seconds)


def exposed_communication_s(trace: Trace) -> float:
    """Return the seconds of the steps in which only collectives run.

    Collectives wait inside their kernels for the slowest rank, and receives wait for the data of the
    neighbour. With a pipeline or stragglers, the result includes this waiting.
    """
    kinds = np.array([kind_of(word) == COMMUNICATION for word in trace.words])[trace.kernel_class]
    sends, computes = trace.used & kinds, trace.used & ~kinds
    computing_s = _covered_s(trace.start_s[computes], trace.end_s[computes])
    busy_s = _covered_s(trace.start_s[trace.used], trace.end_s[trace.used])
    return max(0.0, busy_s - computing_s) if sends.any() else 0.0


def busy_seconds_per_step(trace: Trace) -> float:
    """Return the seconds of a mean step in which the device runs a kernel or a copy."""
    used_s = _covered_s(trace.start_s[trace.used], trace.end_s[trace.used])
    return used_s / max(1, trace.step_times_s.size)


def _covered_s(start_s: Floats, end_s: Floats) -> float:
    """Return the length of the union of intervals."""
    if not start_s.size:
        return 0.0
    order = np.argsort(start_s, kind="stable")
    start, until = start_s[order], np.maximum.accumulate(end_s[order])
    before = np.concatenate([[start[0]], until[:-1]])
    return float(np.maximum(until - np.maximum(start, before), 0.0).sum())


def inside(moments_s: Floats, start_s: Floats, end_s: Floats) -> Integers:
    """Return the index of the interval that contains each time, (times,), or -1. Intervals do not overlap.

    >>> inside(np.array([0.5, 1.5, 2.5]), np.array([0.0, 2.0]), np.array([1.0, 3.0])).tolist()
    [0, -1, 1]
    """
    if not start_s.size:
        return np.full(len(moments_s), -1)
    order = np.argsort(start_s, kind="stable")
    place = np.searchsorted(start_s[order], moments_s, side="right") - 1
    interval = order[np.maximum(place, 0)]
    return np.where((place >= 0) & (moments_s <= end_s[interval]), interval, -1)


def stream_of(kind: str, group: str) -> str:
    """Return the stream of a kernel, from its kind and the description of its process group.

    >>> stream_of("communication", "TENSOR_MODEL_PARALLEL_GROUP"), stream_of("gemm", "")
    ('tp', 'compute')
    """
    if kind != COMMUNICATION:
        return COPY if kind == COPY else "compute"
    low = group.lower()
    axes: Iterable[tuple[str, tuple[str, ...]]] = (
        ("tp", ("tensor_model_parallel", "tensor_parallel", "mesh_tp")),
        ("pp", ("pipeline", "mesh_pp")),
        ("dp", ("data_parallel", "mesh_dp", "mesh_fsdp", "fsdp", "ddp")),
    )
    return next((axis for axis, words in axes if any(word in low for word in words)), COMMUNICATION)
