"""The division of a model over a chain of devices, with the latency of a sample and the samples per second.

Answers: which blocks run on each device of a chain, so that no other division is better in both?
Elsewhere: divisions with the shortest step (group_division.py), the simulation (timeline/step.py).

A model is inferred in pipeline stages, one on each device. The latency is that of one micro-batch through
all stages; the period is the time between two results once the pipeline is full. A stage sends the tensors
that the first block of the next stage reads. All stages send messages of one size, the largest
(workload/cuts.py).
"""

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import ELEMENT_BYTES
from flopcast.errors import SpecError, spec_error
from flopcast.kept_results import KeptResults
from flopcast.prediction import predict
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.search.pareto_front import front
from flopcast.spec.job import Job
from flopcast.spec.plan import one_plan
from flopcast.spec.precision import activation_dtype
from flopcast.units import Number
from flopcast.workload.cuts import entering_elements

MOST_POINTS, MOST_KEPT = 2000, 4096
FULL = 16  # micro-batches after the first, over which the period is measured


class SplitPoint(Record, eq=False):
    """One division of the blocks over the devices of a chain.

    Attributes
    ----------
    blocks : tuple of int
        Number of blocks on each device; 0 for unused devices.
    sent_bytes : float
        Bytes per micro-batch at the widest cut; 0 if one device runs all blocks.
    latency_s, latency_low_s, latency_high_s : float
        Seconds of a micro-batch through all stages, with its 90 % interval.
    period_s : float
        Seconds between two micro-batches in a full pipeline.
    batch_joules : float or None
        Energy of a micro-batch in a full pipeline; None if it is not known.
    fits : bool
        Whether each device holds its blocks.
    """

    blocks: tuple[int, ...]
    sent_bytes: Number
    latency_s: Number
    latency_low_s: Number
    latency_high_s: Number
    period_s: Number
    batch_joules: Number | None
    fits: bool


class SplitFront(Record, eq=False):
    """All divisions of a job, and the front of latency and period.

    `points` begin with single devices that run all blocks, followed by divisions in the order of their
    cuts. The front begins with the lowest latency. Divisions that do not fit are not on the front.
    """

    job: Job
    points: tuple[SplitPoint, ...]
    on_front: tuple[SplitPoint, ...]


def split_front(job: Job, book: CurveBook) -> SplitFront:
    """Return the divisions of a job over the first devices of a chain, for every number of devices.

    Raises
    ------
    SpecError
        The job trains, its plan has other degrees than pipeline stages, or there are too many divisions.
    """
    _check(job)
    stages, blocks = job.plan.pipeline_parallel, job.model.num_blocks
    kept, entering = (
        KeptResults(MOST_KEPT),
        entering_elements(job.model, one_plan(job.plan).split(job.batch)),
    )
    points = [*_alone(job, book, kept)]
    for number in range(2, stages + 1):
        chain = _first_devices(job, number)
        cuts = combinations(range(1, blocks), number - 1) if chain is not None else ()
        unused = (0,) * (stages - number)
        points += [_point(chain or job, each, unused, entering, book, kept) for each in cuts]
    if not any(point.fits for point in points):
        because = "however the blocks are divided, a device has too little memory for its blocks"
        fix = "choose devices with more memory or a smaller micro-batch, or add devices and stages"
        raise spec_error("plan", job.plan.short(), "a chain whose devices hold the model", because, fix)
    fitting = [point for point in points if point.fits]
    best = front(np.array([[point.latency_s, point.period_s] for point in fitting]))
    chosen = [point for point, is_best in zip(fitting, best, strict=True) if is_best]
    return SplitFront(
        job=job, points=tuple(points), on_front=tuple(sorted(chosen, key=lambda point: point.latency_s))
    )


def _check(job: Job) -> None:
    plan, blocks = job.plan, job.model.num_blocks
    degrees = (plan.data_parallel, plan.tensor_parallel, plan.context_parallel, plan.virtual_stages)
    if not job.batch.forward_only or degrees != (1, 1, 1, 1) or plan.pipeline_parallel < 2:
        allowed = (
            "a plan of only a forward pass (--inference), with two or more pipeline stages and no other"
            " degree"
        )
        raise _refused(
            plan.short(), allowed, "each device of the chain runs the forward pass of some blocks"
        )
    if sum(comb(blocks - 1, number) for number in range(1, plan.pipeline_parallel)) > MOST_POINTS:
        allowed = f"at most {MOST_POINTS} divisions"
        raise _refused(plan.short(), allowed, f"{blocks} blocks can be divided in more ways")


def _refused(value: str, allowed: str, because: str) -> SpecError:
    fix = "use --inference and a plan with few stages, such as pp=2"
    return spec_error("plan", value, allowed, because, fix)


def _point(
    chain: Job,
    cuts: tuple[int, ...],
    unused: tuple[int, ...],
    entering: list[int],
    book: CurveBook,
    kept: KeptResults,
) -> SplitPoint:
    """Return the point of a division over a chain; `unused` has a 0 for each device behind it."""
    parts = tuple(np.diff((0, *cuts, chain.model.num_blocks)).tolist())
    plan = chain.plan.model_copy(update={"stage_layers": parts})
    samples = plan.micro_batch * chain.batch.sequence_length  # a sample of a graph counts as one token
    elements = max(entering[place] for place in cuts)
    sent_bytes = elements * ELEMENT_BYTES[activation_dtype(plan.precision)] * samples
    return _played(chain.model_copy(update={"plan": plan}), (*parts, *unused), sent_bytes, book, kept)


def _first_devices(job: Job, number: int) -> Job | None:
    """Return the job on the first devices of its chain; None if they are not whole nodes."""
    groups, left = [], number
    for group in job.cluster.groups:
        count = min(group.count, left // group.node.devices)
        left -= count * group.node.devices
        groups += [group.model_copy(update={"count": count})] if count else []
        if count < group.count:
            break
    if left:
        return None
    shorter = job.with_part("plan", pipeline_parallel=number, stage_layers=())
    return shorter.with_part("cluster", groups=tuple(groups))


def _alone(job: Job, book: CurveBook, kept: KeptResults) -> Iterator[SplitPoint]:
    """Yield the points of a single device that runs all blocks, one for each kind of device."""
    before = 0
    for group in job.cluster.groups:
        node = group.node.model_copy(update={"devices": 1})
        one = group.model_copy(update={"count": 1, "node": node})
        cluster = job.cluster.model_copy(update={"groups": (one,)})
        plan = job.plan.model_copy(update={"pipeline_parallel": 1, "stage_layers": ()})
        parts = [0] * job.plan.pipeline_parallel
        parts[before] = job.model.num_blocks
        before += group.count * group.node.devices
        yield _played(
            job.model_copy(update={"plan": plan, "cluster": cluster}), tuple(parts), 0.0, book, kept
        )


def _played(
    job: Job, parts: tuple[int, ...], sent_bytes: Number, book: CurveBook, kept: KeptResults
) -> SplitPoint:
    """Return the latency of one micro-batch and the period of a full pipeline, without jitter."""
    one, many = (_report(job, count, book, kept) for count in (1, 1 + FULL))
    period_s = (many.clean_step_time_s - one.clean_step_time_s) / FULL
    energy, jitter_ratio = many.cost.energy, one.step_time_s / one.clean_step_time_s
    return SplitPoint(
        blocks=parts,
        sent_bytes=sent_bytes,
        latency_s=one.clean_step_time_s,
        latency_low_s=one.step_time_low_s / jitter_ratio,
        latency_high_s=one.step_time_high_s / jitter_ratio,
        period_s=period_s,
        batch_joules=None if energy is None else energy.step_j.value / (1 + FULL),
        fits=many.memory.fits,
    )


def _report(job: Job, micro_batches: int, book: CurveBook, kept: KeptResults) -> Report:
    return predict(job.with_part("plan", global_batch=micro_batches * job.plan.micro_batch), book, kept)
