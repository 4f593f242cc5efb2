"""Sizes and degrees that differ between a log and the job.

Answers: does the log describe this job, how much time does each difference cost, and which job ran?
Elsewhere: sizes in logs (lab/logs/facts.py), warnings about the same differences
(lab/logs/prediction_check.py), other contradictions to the job (contradictions.py), recompute that only the
timers show (recompute_shown.py).

All sizes are changed together, because one change alone is often impossible: more replicas need a larger
batch. The cost of a size is the step with all changes minus the step with all other changes. If this is
impossible, it is the effect of the size alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

import numpy as np

from flopcast.errors import SpecError, spec_error
from flopcast.lab.diagnosis.job_edits import with_recompute
from flopcast.lab.diagnosis.suspect import Contradiction, Predict, Suspect
from flopcast.lab.logs.log import Log
from flopcast.records import Record
from flopcast.report.report import Report
from flopcast.search.cluster_sizes import sized
from flopcast.spec.job import Job

Value = int | str


class Kind(Record):
    """A size that a log may state: its name, and its place in the log and in the job.

    Attributes
    ----------
    name
        Its name in a title.
    of_log, of_job
        Functions that return the value of this setting in a log and in a job. The first one returns None if
        the log does not state the setting.
    applied
        The job with another value; raises SpecError if that is impossible.
    text
        A value as it appears in a sentence.
    edit
        The edit that describes a job with a value.
    """

    name: str
    of_log: Callable[[Log], Value | None]
    of_job: Callable[[Job], Value | None]
    applied: Callable[[Job, Value], Job]
    text: str
    edit: str


class Size(Record):
    """A size of the run that differs from that of the job; `kind` is a name of KINDS."""

    kind: str
    theirs: Value
    ours: Value


class Logged(Record, eq=False):
    """The prediction with the sizes in a log, and a suspect and a contradiction for each size.

    `describes_run` is False if flopcast cannot predict the job with these sizes. The report is then that
    of the job, and the suspects state the reason.
    """

    report: Report
    suspects: tuple[Suspect, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    describes_run: bool = True


def as_logged(report: Report, log: Log, predict: Predict) -> Logged:
    """Return the prediction with the sizes in a log, and their contradictions to the job.

    Parameters
    ----------
    report : Report
        The prediction of the original job.
    log : Log
    predict : function
        Predicts another job.

    Returns
    -------
    Logged
        If the job with all sizes of the log breaks a rule, the report is that of the original job, and
        each suspect states why the run cannot be described.
    """
    job, sizes = report.job, list(_sizes(report.job, log))
    contradictions = size_contradictions(report, log).contradictions
    if not sizes:
        return Logged(report=report)
    try:
        logged = predict(_applied(job, sizes))
    except SpecError as error:
        because = "; ".join(f"{one.field} = {one.value}: {one.because}" for one in error.problems)
        against = (f"the job cannot have the sizes that the log states: {because}",)
        suspects = [_suspect(size, None, against) for size in sizes]
        return Logged(
            report=report, suspects=tuple(suspects), contradictions=contradictions, describes_run=False
        )
    suspects = []
    for size in sizes:
        others = [one for one in sizes if one is not size]
        cost_s = _change_s(job, others, sizes, predict)
        suspects.append(
            _suspect(size, _change_s(job, [], [size], predict) if cost_s is None else cost_s, ())
        )
    return Logged(report=logged, suspects=tuple(suspects), contradictions=contradictions)


def size_contradictions(report: Report, log: Log) -> Logged:
    """Return the sizes in a log of another model, which contradict the job without changing it."""
    contradictions = tuple(map(_contradiction, _sizes(report.job, log)))
    return Logged(report=report, contradictions=contradictions, describes_run=False)


def _change_s(job: Job, before: Sequence[Size], after: Sequence[Size], predict: Predict) -> float | None:
    """Return the change of the step between two sets of sizes, or None if either set is impossible."""
    try:
        first, second = predict(_applied(job, before)), predict(_applied(job, after))
    except SpecError:
        return None
    return second.step_time_s - first.step_time_s


def _sizes(job: Job, log: Log) -> Iterator[Size]:
    """Yield the sizes that differ between the log and the job."""
    for name, kind in KINDS.items():
        theirs, ours = kind.of_log(log), kind.of_job(job)
        if theirs is not None and ours is not None and theirs != ours:
            yield Size(kind=name, theirs=theirs, ours=ours)


def _applied(job: Job, sizes: Sequence[Size]) -> Job:
    """Return the job with these sizes. It keeps its devices unless the sizes state another number.

    Raises
    ------
    SpecError
        The plan does not divide the devices, or the cluster cannot have this number of devices.
    """
    for size in sizes:
        job = KINDS[size.kind].applied(job, size.theirs)
    devices = job.cluster.num_devices
    return job if job.plan.devices == devices else _on_devices(job, devices)


def _on_devices(job: Job, number: Value) -> Job:
    """Return the job with the number of replicas that fills a number of devices."""
    plan, devices = job.plan, int(number)
    of_replica = plan.devices // plan.data_parallel
    if devices % of_replica:
        because = f"each replica of the plan of the job has {of_replica} devices"
        allowed, fix = f"a multiple of {of_replica}", "describe the plan of the run"
        raise spec_error("number of devices", devices, allowed, because, fix)
    replicas = devices // of_replica
    changes = {"data_parallel": replicas}
    if plan.data_shard == plan.data_parallel:
        changes["data_shard"] = replicas
    cluster = sized(job.cluster, devices)
    return job.model_copy(update={"cluster": cluster, "plan": plan.model_copy(update=changes)})


def _of_plan(field: str, name: str, of_log: Callable[[Log], Value | None] | None = None) -> Kind:
    """Return a size that is a field of the plan. It is also a field of the log unless `of_log` reads it."""
    return Kind(
        name=name,
        of_log=of_log or attrgetter(field),
        of_job=lambda job: getattr(job.plan, field),
        applied=lambda job, value: job.with_part("plan", **{field: value}),
        text=f"a {name} of {{}}",
        edit=f"plan.{field}={{}}",
    )


def _batch(log: Log) -> int | None:
    printed = log.steps.global_batch[np.isfinite(log.steps.global_batch)]
    return int(printed[-1]) if printed.size else log.global_batch


KINDS: Mapping[str, Kind] = {
    "tensor_parallel": _of_plan("tensor_parallel", "tensor-parallel size"),
    "pipeline_parallel": _of_plan("pipeline_parallel", "pipeline-parallel size"),
    "number_of_devices": Kind(
        name="number of devices",
        of_log=lambda log: log.world_size,
        of_job=lambda job: job.cluster.num_devices,
        applied=_on_devices,
        text="{} devices",
        edit="--gpus {}",
    ),
    "micro_batch": _of_plan("micro_batch", "micro-batch"),
    "global_batch": _of_plan("global_batch", "global batch", _batch),
    "sequence_length": Kind(
        name="sequence length",
        of_log=lambda log: log.sequence_length,
        of_job=lambda job: job.batch.sequence_length if len(job.batch.kinds) == 1 else None,
        applied=lambda job, length: job.with_part("batch", sequence_length=length),
        text="a sequence length of {}",
        edit="batch.sequence_length={}",
    ),
    "recompute": Kind(
        name="kind of recompute",
        of_log=lambda log: log.recompute,
        of_job=lambda job: job.plan.recompute,
        applied=lambda job, value: with_recompute(job, str(value)),
        text="recompute {}",
        edit="plan.recompute={}",
    ),
}


def _contradiction(size: Size) -> Contradiction:
    kind = KINDS[size.kind]
    theirs, ours = kind.text.format(size.theirs), kind.text.format(size.ours)
    return Contradiction(of_log=theirs, of_job=ours, change=f"set {kind.edit.format(size.theirs)}")


def _suspect(size: Size, cost_s: float | None, against: tuple[str, ...]) -> Suspect:
    kind = KINDS[size.kind]
    theirs, ours = kind.text.format(size.theirs), kind.text.format(size.ours)
    described = f"describe the job with {theirs} ({kind.edit.format(size.theirs)})"
    judged = "; the suspects below assume this" if not against else ""
    return Suspect(
        name=f"other_{size.kind}",
        title=f"The {kind.name} of the run is {size.theirs}, but the job states {size.ours}",
        cost_s=cost_s,
        basis="stated",
        evidence=(f"the log states {theirs}{judged}",),
        against=against,
        change=f"use {ours}, or {described}" if (cost_s or 0.0) > 0 else described,
    )
