"""Sizes that a log states otherwise than the job does.

Answers: does the log describe this job, what does each difference cost, and which job did run?
Elsewhere: sizes in logs (lab/logs/facts.py), the same as warnings (lab/logs/prediction_check.py).

All of them are changed together, since one alone is often impossible: more replicas need a larger batch.
What a size costs is the step with all of them less the step with all others, or else what it changes alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.errors import SpecError, spec_error
from flopcast.lab.diagnosis.suspect import Predict, Suspect
from flopcast.lab.logs.log import Log
from flopcast.report.report import Report
from flopcast.search.space import sized
from flopcast.spec.job import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """A size of the run that is not that of the job."""

    name: str
    theirs: int
    ours: int


def as_logged(report: Report, log: Log, predict: Predict) -> tuple[Report, list[Suspect], bool]:
    """Return the prediction with the sizes that a log states, a suspect for each, and if that is possible.

    If flopcast cannot predict the job with these sizes, the report is the one given, and the suspects say
    why.
    """
    job, sizes = report.job, list(_sizes(report.job, log))
    if not sizes:
        return report, [], True
    try:
        logged = predict(_applied(job, sizes))
    except SpecError as error:
        because = "; ".join(f"{one.field} = {one.value}: {one.because}" for one in error.problems)
        against = (f"the job cannot have the sizes that the log states: {because}",)
        return report, [_suspect(size, None, against) for size in sizes], False
    suspects = []
    for size in sizes:
        others = [one for one in sizes if one is not size]
        cost_s = _change_s(job, others, sizes, predict)
        suspects.append(
            _suspect(size, _change_s(job, [], [size], predict) if cost_s is None else cost_s, ())
        )
    return logged, suspects, True


def _change_s(job: Job, before: Sequence[Size], after: Sequence[Size], predict: Predict) -> float | None:
    """Return by what the step changes from some sizes to others; None if either is impossible."""
    try:
        first, second = predict(_applied(job, before)), predict(_applied(job, after))
    except SpecError:
        return None
    return second.step_time_s - first.step_time_s


def _sizes(job: Job, log: Log) -> Iterator[Size]:
    """Yield sizes that differ between log and job."""
    printed = log.steps.global_batch[np.isfinite(log.steps.global_batch)]
    batch = int(printed[-1]) if printed.size else log.global_batch
    length = log.sequence_length if len(job.batch.kinds) == 1 else None
    stated = (
        (DEVICES, log.world_size, job.cluster.num_devices),
        (MICRO_BATCH, log.micro_batch, job.plan.micro_batch),
        (GLOBAL_BATCH, batch, job.plan.global_batch),
        (LENGTH, length, job.batch.sequence_length),
    )
    for name, theirs, ours in stated:
        if theirs is not None and theirs != ours:
            yield Size(name=name, theirs=theirs, ours=ours)


def _applied(job: Job, sizes: Sequence[Size]) -> Job:
    """Return the job with these sizes.

    Raises
    ------
    SpecError
        The plan does not divide the devices, or the cluster has no such number.
    """
    for size in sizes:
        job = APPLIED[size.name](job, size.theirs)
    return job


def _on_devices(job: Job, devices: int) -> Job:
    """Return the job with as many replicas as fill the devices."""
    plan = job.plan
    of_replica = plan.devices // plan.data_parallel
    if devices % of_replica:
        because = f"each replica of its plan takes {of_replica} devices"
        allowed, fix = f"a multiple of {of_replica}", "describe the plan of the run"
        raise spec_error("number of devices", devices, allowed, because, fix)
    replicas = devices // of_replica
    changes = {"data_parallel": replicas}
    if plan.data_shard == plan.data_parallel:
        changes["data_shard"] = replicas
    cluster = sized(job.cluster, devices)
    return job.model_copy(update={"cluster": cluster, "plan": plan.model_copy(update=changes)})


def _with_plan(job: Job, **changes: int) -> Job:
    return job.model_copy(update={"plan": job.plan.model_copy(update=changes)})


def _with_length(job: Job, length: int) -> Job:
    return job.model_copy(update={"batch": job.batch.model_copy(update={"sequence_length": length})})


DEVICES, MICRO_BATCH, GLOBAL_BATCH, LENGTH = (
    "number of devices",
    "micro-batch",
    "global batch",
    "sequence length",
)
APPLIED: Mapping[str, Callable[[Job, int], Job]] = {
    DEVICES: _on_devices,
    MICRO_BATCH: lambda job, size: _with_plan(job, micro_batch=size),
    GLOBAL_BATCH: lambda job, size: _with_plan(job, global_batch=size),
    LENGTH: _with_length,
}


def _suspect(size: Size, cost_s: float | None, against: tuple[str, ...]) -> Suspect:
    described = f"describe the job with {_text(size, size.theirs)}"
    judged = "; what follows is judged with that" if not against else ""
    return Suspect(
        name=f"other_{size.name.replace(' ', '_').replace('-', '_')}",
        title=f"The {size.name} of the run is {size.theirs} and not {size.ours} as in the job",
        cost_s=cost_s,
        basis="stated",
        evidence=(f"the log states {_text(size, size.theirs)}{judged}",),
        against=against,
        change=f"use {_text(size, size.ours)}, or {described}" if (cost_s or 0.0) > 0 else described,
    )


def _text(size: Size, value: int) -> str:
    """Return a value of a size as it stands in a sentence.

    >>> _text(Size(name=DEVICES, theirs=8, ours=32), 8), _text(Size(name=LENGTH, theirs=1, ours=2), 1)
    ('8 devices', 'a sequence length of 1')
    """
    return f"{value} devices" if size.name == DEVICES else f"a {size.name} of {value}"
