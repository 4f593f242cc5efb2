"""Sweeps of plans: the runs of a source that are choices of one decision.

Answers: which of these runs trained the same model on the same machine with different settings?
Elsewhere: the evaluation of a sweep (decisions.py). Times are in device-seconds per token.

The source, the software and its release, the model and the lengths of sequences are the same throughout a
sweep. Other fields depend on the decision: the plan alone, or also the batch, the precision or the number
of devices. Repeats of one run form one choice, with the geometric mean of their times.
"""

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial

from flopcast.lab.validation.compare import ComparedRow, ComparedStep, ComparedSuite
from flopcast.lab.validation.decisions import Choice, Sweep
from flopcast.lab.validation.published import ComparedRun, ideal_s
from flopcast.lab.validation.statistics import grouped
from flopcast.records import Record, replace
from flopcast.spec.job import Job


class Decision(Record):
    """The fields that are equal in a sweep, and the fields that must differ."""

    kept: Callable[[Job], Hashable]
    varied: Callable[[Job], Hashable]


DECISIONS: Mapping[str, Decision] = {  # what is free beside the plan → what is not
    "plan": Decision(
        kept=lambda job: (job.cluster, job.plan.precision, job.plan.global_batch),
        varied=lambda job: (job.plan, job.stack),
    ),
    "batch": Decision(
        kept=lambda job: (job.cluster, job.plan.precision), varied=lambda job: job.plan.global_batch
    ),
    "precision": Decision(
        kept=lambda job: (job.cluster, job.plan.global_batch), varied=lambda job: job.plan.precision
    ),
    "devices": Decision(
        kept=lambda job: (job.cluster.name, job.cluster.node.device.name, job.plan.precision),
        varied=lambda job: job.cluster.num_devices,
    ),
}


class MeasuredChoice(Record):
    """One run as a choice, with the properties that separate decisions."""

    source: str
    software: Hashable
    job: Job
    choice: Choice


def sweeps_of_runs(rows: Iterable[ComparedRun]) -> tuple[Sweep, ...]:
    """Return the sweeps of published runs, ordered by their varied settings, then by first run."""
    return _sweeps([_of_run(row) for row in rows])


def sweeps_of_suite(compared: ComparedSuite) -> tuple[Sweep, ...]:
    """Return the sweeps of a suite, which is one source. The software is part of the choice in a suite.

    A run that states its best step is scored by this step, because the jitter of its mean step depends on
    its neighbours.
    """
    jobs = {row.id: row.job for row in compared.suite.rows}
    rows: dict[str, ComparedRow] = {}
    for row in compared.rows:
        rows.setdefault(row.id, row)
    return _sweeps([_of_row(row, jobs[row.id]) for row in rows.values()])


def _sweeps(runs: Sequence[MeasuredChoice]) -> tuple[Sweep, ...]:
    sweeps = []
    for free, decision in DECISIONS.items():
        for members in grouped(runs, partial(_kept, decision)).values():
            choices = _choices(members)
            if len(choices) > 1 and len({decision.varied(run.job) for run in members}) > 1:
                sweeps.append(_sweep(free, members, choices))
    return tuple(sweeps)


def _kept(decision: Decision, run: MeasuredChoice) -> Hashable:
    return run.source, run.software, run.job.model, run.job.batch, decision.kept(run.job)


def _sweep(free: str, members: Sequence[MeasuredChoice], choices: tuple[Choice, ...]) -> Sweep:
    jobs = [run.job for run in members]
    facts: dict[str, list[str]] = {
        "model": [job.model.name for job in jobs],
        "cluster": [job.cluster.name for job in jobs],
        "devices": [str(job.cluster.num_devices) for job in jobs],
        "stack": [job.stack.label for job in jobs],
        "sequence_length": [str(job.batch.sequence_length) for job in jobs],
        "global_batch": [str(job.plan.global_batch) for job in jobs],
        "precision": [job.plan.precision for job in jobs],
    }
    fixed = {name: values[0] for name, values in facts.items() if len(set(values)) == 1}
    return Sweep(members[0].source, free, fixed, choices)


def _choices(members: Iterable[MeasuredChoice]) -> tuple[Choice, ...]:
    """Return one choice per job; jobs that differ only in assumptions are one choice."""
    repeats = grouped(members, lambda run: run.job.model_copy(update={"assumptions": ()}))
    return tuple(
        replace(same[0].choice, measured_s=statistics.geometric_mean(run.choice.measured_s for run in same))
        for same in repeats.values()
    )


def _of_run(row: ComparedRun) -> MeasuredChoice:
    software = (row.run.software.framework, row.run.software.version)
    choice = replace(_choice(row, row.run.id, row.job, row.ideal_s), fits=row.fits)
    return MeasuredChoice(source=row.run.source, software=software, job=row.job, choice=choice)


def _of_row(row: ComparedRow, job: Job) -> MeasuredChoice:
    choice = _choice(row, row.id, job, ideal_s(job))
    return MeasuredChoice(source=row.source, software=row.system, job=job, choice=choice)


def _choice(step: ComparedStep, name: str, job: Job, trivial_s: float) -> Choice:
    """Return a step as a choice, with all seconds converted to device-seconds per token."""
    per_token_s = job.cluster.num_devices / job.step_tokens
    return Choice(
        name=name,
        plan=job.plan.short(),
        measured_s=step.measured_step_time_s * per_token_s,
        predicted_s=step.predicted_step_time_s * per_token_s,
        trivial_s=trivial_s * per_token_s,
        factors=step.factors,
        breakdown={name: seconds * per_token_s for name, seconds in step.breakdown.items()},
    )
