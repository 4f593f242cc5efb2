"""Memory of a job: the need of every stage with an interval, and whether the job fits.

Answers: which numbers about memory does a report contain?
Elsewhere: the sizes (memory/), the rest of a report (report.py).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from flopcast.dtypes import Floats
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.peak import PeakMemory, peak_memory, seen_bytes
from flopcast.memory.tiers import TierMemory, tier_memories
from flopcast.memory.verdict import VERDICTS, Verdict, allocated_interval, verdict
from flopcast.records import Record, field
from flopcast.report.labels import memory_label
from flopcast.report.summary import Summarised, Summary
from flopcast.spec.cluster import Cluster
from flopcast.spec.node_groups import first_plan, least_memory_bytes
from flopcast.units import show_memory
from flopcast.workload.program import Programs

if TYPE_CHECKING:
    from flopcast.memory.curve import MemoryCurve

MOST_KEPT_FORWARDS = 8192  # of a step whose curves are kept for the drawing of its page: 10 MB


class StageMemory(Record):
    """Bytes of a rank of one pipeline stage when its memory is fullest.

    `moment` is the pass that runs then, "forward", "backward" or "weight", or "update" (gradients are
    applied). `chunk` and `micro_batch` are those of the task, and -1 at the update. The sizes are those of
    MemoryReport. The sum of `by_category` is the allocated memory.
    """

    stage: int
    moment: str
    chunk: int
    micro_batch: int
    standing_bytes: float  # while no activation is in flight
    allocated_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    by_category: dict[str, float]


class MemoryReport(Record, Summarised, slots=False, repr=False):
    """Memory of the fullest stage and of every stage.

    `resident_bytes` remain between steps. `allocated_bytes` is the peak of the framework's allocations
    (`torch.cuda.max_memory_allocated`), `reserved_bytes` the memory that its allocator holds, including
    fragments, and `device_used_bytes` the memory that the driver shows, with its context and communication
    buffers. `expected_bytes` cannot be freed: they are the allocations and the memory of the driver.
    `low_bytes` and `high_bytes` are the ends of a 90 % interval, the high one with the allocator's cache.
    `by_category` sums to `allocated_bytes`. `per_stage` is computed when it is first read, from `programs`,
    the memory of their stage classes (`peaks`), and the memory that the driver shows (`seen_bytes`).
    `tiers` hold the states that the plan places outside the devices.
    """

    allocated_bytes: float
    standing_bytes: float
    resident_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    capacity_bytes: float
    low_bytes: float
    expected_bytes: float
    high_bytes: float
    by_category: dict[str, float]
    programs: Programs = field(repr=False, compare=False)
    peaks: PeakMemory = field(repr=False, compare=False)
    seen_bytes: Floats = field(repr=False, compare=False)
    tiers: tuple[TierMemory, ...] = ()

    @cached_property
    def per_stage(self) -> tuple[StageMemory, ...]:
        """Return the memory of every stage at its own peak."""
        return tuple(_stages_memory(self.programs, self.peaks, self.seen_bytes))

    def curve(self, stage: int, rank_class: int = 0) -> "MemoryCurve":
        """Return the memory of a stage over time, for one class of data-parallel ranks."""
        return _stage_curves(self.programs, self.peaks)[stage][rank_class]

    @property
    def device_verdict(self) -> Verdict:
        """Return the verdict on device memory, without host memory and drives."""
        return verdict(self.expected_bytes, self.high_bytes, self.capacity_bytes)

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict of the device and the tiers: "fits", "tight" or "does not fit"."""
        return max((self.device_verdict, *(tier.verdict for tier in self.tiers)), key=VERDICTS.index)

    @property
    def needs(self) -> tuple[tuple[str, str, Verdict], ...]:
        """Return the name, the need as text and the verdict of the device and of each tier."""
        device = ("memory", self.need, self.device_verdict)
        return (device, *((tier.name, tier.need, tier.verdict) for tier in self.tiers))

    @property
    def fits(self) -> bool:
        """Return whether the job fits, possibly with the verdict "tight"."""
        return self.verdict != "does not fit"

    @property
    def need(self) -> str:
        """Return the expected need, its 90 % interval and the device's memory, as text."""
        sizes_bytes = self.expected_bytes, self.low_bytes, self.high_bytes, self.capacity_bytes
        expected, low, high, there = map(show_memory, sizes_bytes)
        return f"{expected} expected (90 %: {low} to {high}) of {there}{self.where}"

    @property
    def allocated_interval_bytes(self) -> tuple[float, float]:
        """Return the ends of the 90 % interval of the memory that the framework allocates on the fullest
        stage.
        """
        low, high = allocated_interval(
            np.array(self.standing_bytes), np.array(self.allocated_bytes), self.programs.stack.memory
        )
        return float(low), float(high)

    def summary(self) -> Summary:
        """Return the memory by category, the largest first, as a table."""
        rows = [
            (memory_label(name), show_memory(size_bytes))
            for name, size_bytes in sorted(self.by_category.items(), key=lambda pair: -pair[1])
        ]
        caption = f"{self.need}: {self.verdict}"
        return Summary(caption=caption, headings=("peak memory", "size"), rows=rows)

    @property
    def num_stages(self) -> int:
        """Return the number of pipeline stages."""
        return len(self.programs.stages.of(0).chunk_class)

    @property
    def where(self) -> str:
        """Return " on the fullest stage" if there are several stages, otherwise ""."""
        return " on the fullest stage" if self.num_stages > 1 else ""


def memory_report(programs: Programs, cluster: Cluster, kept: KeptResults = NOTHING_KEPT) -> MemoryReport:
    """Return the memory of the fullest stage and of all stages of the first plan.

    The memory of equal stages is that of the fullest of them (memory/peak.py). The memory of a single stage
    follows from its own order of tasks (memory/curve.py). `kept` holds results of earlier programs.
    """
    return _report_of(programs, cluster, peak_memory(programs, kept))


@lru_cache(maxsize=8)  # the memory is often needed before the prediction
def _report_of(programs: Programs, cluster: Cluster, memory: PeakMemory) -> MemoryReport:
    worst, capacity_bytes = _fullest(programs, memory, cluster)
    of_fullest = {name: _first_plan(size, worst) for name, size in memory.by_category.items()}
    seen = seen_bytes(memory, cluster)
    return MemoryReport(
        allocated_bytes=float(memory.allocated_bytes[0, worst]),
        standing_bytes=_first_plan(memory.standing_bytes, worst),
        resident_bytes=float(memory.resident_bytes[0, worst]),
        reserved_bytes=float(memory.reserved_bytes[0, worst]),
        device_used_bytes=float(seen[0, worst]),
        capacity_bytes=capacity_bytes,
        low_bytes=_of_fullest(memory.low_bytes, worst, cluster),
        expected_bytes=_of_fullest(memory.needed_bytes, worst, cluster),
        high_bytes=_of_fullest(memory.high_bytes, worst, cluster),
        by_category={name: size_bytes for name, size_bytes in of_fullest.items() if size_bytes > 0},
        programs=programs,
        peaks=memory,
        seen_bytes=seen,
        tiers=tuple(tier_memories(programs, cluster)),
    )


def _first_plan(sizes_bytes: Floats, at: int) -> float:
    """Return the size of the first plan on one stage class; a single column is the same for all classes."""
    return float(sizes_bytes[0, at if sizes_bytes.shape[1] > 1 else 0])


def _fullest(programs: Programs, memory: PeakMemory, cluster: Cluster) -> tuple[int, float]:
    """Return the stage class that fills its devices most, and the memory of a device.

    On groups of nodes with other devices, a class is judged by the smallest device that it runs on.
    """
    if not cluster.has_mixed_devices:
        return memory.worst(), cluster.node.device.memory_bytes
    stage_class = programs.stages.of(0).stage_class
    least_bytes = np.array(least_memory_bytes(first_plan(programs.plans), cluster))
    of_class = [float(least_bytes[stage_class == at].min()) for at in range(int(stage_class.max()) + 1)]
    worst = int(np.argmax(memory.needed_bytes[0, : len(of_class)] / np.array(of_class)))
    return worst, of_class[worst]


def _of_fullest(sizes_bytes: Floats, worst: int, cluster: Cluster) -> float:
    """Return the largest size of the first plan; of the fullest class where devices differ."""
    return float(sizes_bytes[0, worst] if cluster.has_mixed_devices else sizes_bytes[0].max())


@lru_cache(maxsize=1)  # the tables and the drawing of a page read them one after the other
def _stage_curves(programs: Programs, memory: PeakMemory) -> "tuple[tuple[MemoryCurve, ...], ...]":
    """Return the memory over time of the first plan, by stage and class of data-parallel ranks."""
    return tuple(_curves_of_stages(programs, memory))


def _curves_of_stages(programs: Programs, memory: PeakMemory) -> "Iterator[tuple[MemoryCurve, ...]]":
    """Yield the curves of the classes of data-parallel ranks of one stage after the other."""
    stages, ranks = len(programs.stages.of(0).stage_class), len(programs.workload.rows) or 1
    from flopcast.memory.curve import memory_curves

    curves = memory_curves(programs, memory, range(stages), range(ranks))
    return (tuple(islice(curves, ranks)) for _ in range(stages))


def _stages_memory(programs: Programs, memory: PeakMemory, seen_bytes: Floats) -> Iterator[StageMemory]:
    """Yield the memory of every stage; of long steps, only one stage's curves are in memory at a time."""
    stage_class, passes = programs.stages.of(0).stage_class.tolist(), programs.stages.of(0).chunk_class.size
    is_short = passes * float(programs.plans.num_micro_batches[0, 0]) <= MOST_KEPT_FORWARDS
    curves_of = _stage_curves if is_short else _curves_of_stages
    for stage, curves in enumerate(curves_of(programs, memory)):
        yield _stage_memory(curves, memory, seen_bytes, stage, stage_class[stage])


def _stage_memory(
    curves: "Sequence[MemoryCurve]", memory: PeakMemory, seen_bytes: Floats, stage: int, at: int
) -> StageMemory:
    """Return one stage at its own peak; the driver's part is that of its class, `at`.

    A device shows no more than it has: the allocator's cache is then what is left. If the micro-batches of
    data-parallel ranks differ, the stage is that of the fullest rank.
    """
    from flopcast.memory.curve import peak_of

    peaks = [(peak_of(curve), curve) for curve in curves]
    peak, curve = max(peaks, key=lambda pair: pair[0].allocated_bytes)
    cached = memory.reserved_bytes[0, at] / memory.allocated_bytes[0, at]
    beside = memory.device_used_bytes[0, at] - memory.reserved_bytes[0, at]
    return StageMemory(
        stage=stage,
        moment=peak.moment,
        chunk=peak.chunk,
        micro_batch=peak.micro_batch,
        standing_bytes=curve.standing_bytes,
        allocated_bytes=peak.allocated_bytes,
        reserved_bytes=float(peak.allocated_bytes * cached),
        device_used_bytes=float(min(peak.allocated_bytes * cached + beside, seen_bytes[0, at])),
        by_category=peak.by_category,
    )


def memory_warnings(memory: MemoryReport) -> list[str]:
    """Return warnings about memory that is too small, or full."""
    warnings = []
    if memory.device_verdict == "does not fit":
        over = memory.expected_bytes / memory.capacity_bytes
        needs = "the fullest stage needs" if memory.num_stages > 1 else "the job needs"
        warnings.append(f"does not fit: {needs} {over:.0%} of the device's memory")
    elif memory.device_verdict == "tight":
        warnings.append(
            f"tight: the job is expected to need {show_memory(memory.expected_bytes)} of"
            f" {show_memory(memory.capacity_bytes)}, but may need up to {show_memory(memory.high_bytes)}."
            " It may run out of memory, or its steps may be longer than predicted, because the allocator"
            " empties its cache"
        )
        if not memory.programs.stack.memory.verified:
            warnings[-1] += (
                ". The interval is wide, because measured peaks of such frameworks often differ from "
                "predictions. If one of your runs needed the expected memory, set "
                "stack.memory.verified=true"
            )
    return warnings + [_of_tier(tier) for tier in memory.tiers if tier.verdict != "fits"]


def _of_tier(tier: TierMemory) -> str:
    """Return a warning about a memory outside the devices that may not hold what the plan places there."""
    share = f"{tier.expected_bytes / tier.capacity_bytes:.0%} of the {tier.label} of {tier.owner}"
    if tier.verdict == "does not fit":
        return f"does not fit: the states that the plan places outside the devices need {share}"
    return f"tight: the plan fills {share}, and buffers that flopcast does not count may need the rest"
