"""Why is a job slower than it should be? Suspects with seconds and evidence, from its log and a trace.

Answers: which reasons does a log or a trace give for a slow step, and what would a change save?
Elsewhere: patterns of step times (step_series.py), parts of a step (measured_parts.py), settings of the job
(settings.py), how a diagnosis is shown (render/diagnosis.py).

The order of work: sizes that the log states in the place of the job's; pauses and slowing in its steps;
timers and traced kernels beside the prediction; settings that cost time. What is left of the difference,
and belongs to none of these, could be the network, the clocks or the host: what would tell them apart is
said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import SpecError
from flopcast.lab.calibration.trace import Trace
from flopcast.lab.diagnosis.measured_parts import timed_parts, timed_suspects, traced_suspects
from flopcast.lab.diagnosis.settings import Predict, better_plan, slow_settings
from flopcast.lab.diagnosis.step_series import Pauses, pauses_of, slowing_of
from flopcast.lab.diagnosis.suspect import SlowStep, Suspect
from flopcast.lab.logs.log import Log, SteadyTime, steady_records
from flopcast.report.report import Report
from flopcast.search.space import sized
from flopcast.spec.job import Job
from flopcast.units import show_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseKind:
    """What long steps have in common: how they are called, what shows it, and what to do."""

    name: str
    title: str
    evidence: str
    change: str


LEAST_PAUSES = 0.01  # of a mean step, in all pauses together
NEAR_STEPS = 1  # between a pause and the checkpoint or the evaluation that explains it
LEAST_LEFT = 0.02  # of the step, that no suspect explains
POSSIBLE = {  # part → most that it can plausibly be slower by, name, title, what to do
    "communication": (30.0, "network", "The network could be slow", "run nccl-tests between these nodes"),
    "compute": (
        1.7,
        "clocks",
        "The devices could run at a lower clock",
        "compare clocks and power of the devices with their limits (nvidia-smi -q -d CLOCK,POWER)",
    ),
}
CHECKPOINTS = PauseKind(
    name="checkpoints",
    title="The run pauses for checkpoints",
    evidence="the log saves one at these steps",
    change="save less often, or asynchronously (Megatron-LM: --async-save)",
)
EVALUATIONS = PauseKind(
    name="evaluation",
    title="The run pauses for evaluations",
    evidence="the log prints one at these steps",
    change="evaluate less often, or on less data",
)
IRREGULAR = PauseKind(
    name="irregular_pauses",
    title="Some steps are much longer than others, without a pattern",
    evidence="they come at uneven distances",
    change="look at the data loader and the file system first, then at the network and at garbage"
    " collection",
)
TELL_APART = (
    "Timers in the log (Megatron-LM: --timing-log-level 1; DeepSpeed: wall_clock_breakdown) or a trace of"
    " the PyTorch profiler (--trace) would tell these apart"
)


def diagnose(job: Job, predict: Predict, log: Log | None = None, trace: Trace | None = None) -> SlowStep:
    """Return the suspects for a slow step.

    Parameters
    ----------
    job : as it was meant to run
    predict : predicts a job
    log, trace : of a run of this job; without both, only the job's settings are judged

    Raises
    ------
    SpecError
        The job contradicts itself.
    """
    report = predict(job)
    of_run: list[Suspect] = []  # the log's sizes, and the series of its steps
    of_parts: list[Suspect] = []
    cleared: list[str] = []
    step, level_s = None, trace.step_time_s if trace is not None else None
    if log is not None:
        report, of_run = _as_logged(report, log, predict)
        step = _steady(report.job, log)
        if step is not None:
            of_series, level_s = _of_series(report.job, log, step)
            of_run += of_series
            of_parts, cleared = timed_suspects(report, log.timers, level_s)
    if trace is not None:
        traced, as_predicted = traced_suspects(report, trace)
        of_parts, cleared = [*of_parts, *traced], [*cleared, *as_predicted]
    settings = list(slow_settings(report, predict))
    settings += better_plan(report, predict, settings)
    possible = list(_possible(report, level_s, of_parts)) if level_s is not None else []
    suspects = [*of_run, *of_parts, *possible, *settings]
    return SlowStep(
        report=report,
        log_name=log.name if log is not None else "",
        framework=log.framework if log is not None else "",
        step=step,
        trace_name=trace.name if trace is not None else "",
        traced_step_s=trace.step_time_s if trace is not None else None,
        suspects=tuple(sorted(suspects, key=lambda one: -one.rank)),
        cleared=tuple(cleared),
        advice=(TELL_APART,) if possible else (),
    )


def _steady(job: Job, log: Log) -> SteadyTime | None:
    sequences, length = job.plan.global_batch, job.batch.mean_sequence_tokens
    return log.step_time(sequences, length, job.cluster.num_devices)


def _as_logged(report: Report, log: Log, predict: Predict) -> tuple[Report, list[Suspect]]:
    """Return the prediction of the job with the sizes that the log states, and a suspect for each."""
    suspects = []
    for size, theirs, ours, change in _stated(report.job, log):
        try:
            logged = predict(change)
        except SpecError as error:
            because = "; ".join(problem.because for problem in error.problems)
            suspects.append(_mismatch(size, theirs, ours, 0.0, (f"flopcast cannot predict it: {because}",)))
            continue
        extra_s = logged.step_time_s - report.step_time_s
        suspects.append(_mismatch(size, theirs, ours, extra_s, ()))
        report = logged
    return report, suspects


def _stated(job: Job, log: Log) -> Iterator[tuple[str, int, int, Job]]:
    """Yield sizes that differ between log and job: theirs, ours, and the job with all of theirs so far."""
    printed = log.steps.global_batch[np.isfinite(log.steps.global_batch)]
    batch = int(printed[-1]) if printed.size else log.global_batch
    devices, plan = log.world_size, job.plan
    if devices is not None and devices != job.cluster.num_devices:
        replicas = plan.data_parallel * devices // job.cluster.num_devices
        plan = plan.model_copy(update={"data_parallel": max(1, replicas)})
        try:
            cluster = sized(job.cluster, devices)
        except SpecError:
            cluster = job.cluster
        ours = job.cluster.num_devices
        job = job.model_copy(update={"cluster": cluster, "plan": plan})
        yield "number of devices", devices, ours, job
    of_plan = (("micro-batch", "micro_batch", log.micro_batch), ("global batch", "global_batch", batch))
    for name, field, theirs in of_plan:
        ours = getattr(job.plan, field)
        if theirs is not None and theirs != ours:
            job = job.model_copy(update={"plan": job.plan.model_copy(update={field: theirs})})
            yield name, theirs, ours, job
    length = log.sequence_length
    if length is not None and len(job.batch.kinds) == 1 and length != job.batch.sequence_length:
        ours = job.batch.sequence_length
        job = job.model_copy(update={"batch": job.batch.model_copy(update={"sequence_length": length})})
        yield "sequence length", length, ours, job


def _mismatch(size: str, theirs: int, ours: int, extra_s: float, against: tuple[str, ...]) -> Suspect:
    return Suspect(
        name=f"other_{size.replace(' ', '_').replace('-', '_')}",
        title=f"The {size} of the run is {theirs} and not {ours} as in the job",
        cost_s=extra_s,
        basis="stated",
        evidence=(f"the log states a {size} of {theirs}; what follows is judged with it",),
        against=against,
        change=f"use a {size} of {ours}, or describe the job with {theirs}",
    )


def _of_series(job: Job, log: Log, step: SteadyTime) -> tuple[list[Suspect], float]:
    """Return suspects that the step times show, and the level of the steps without them."""
    sequences, length = job.plan.global_batch, job.batch.mean_sequence_tokens
    times_s = log.times_s(sequences, length, job.cluster.num_devices)
    used = steady_records(log.steps.step, log.steps.global_batch) & np.isfinite(times_s)
    steps, times_s = log.steps.step[used], times_s[used]
    suspects: list[Suspect] = []
    level_s = step.median_s
    pauses = pauses_of(steps, times_s)
    suspects += _paused(log, pauses, len(steps), step.mean_s)
    others = np.delete(np.arange(len(steps)), pauses.place)
    slowing = slowing_of(steps[others], times_s[others])
    if slowing is not None:
        level_s = slowing.before_s
        at_once = slowing.since_step is not None
        how = f"since step {slowing.since_step}" if at_once else "gradually"
        suspects.append(
            Suspect(
                name="slower_at_once" if at_once else "slower_gradually",
                title=f"The steps became slower during the run, {how}",
                cost_s=slowing.lost_s,
                basis="measured",
                evidence=(
                    f"steps take {show_seconds(slowing.before_s)} at first and"
                    f" {show_seconds(slowing.after_s)} later",
                ),
                change="look for a node, link or device that changed at that step, or for other jobs on the"
                " same network and storage"
                if at_once
                else "look for clocks that fall with temperature, for memory that fragments, and for"
                " sequences that get longer",
            )
        )
    return suspects, level_s


def _paused(log: Log, pauses: Pauses, num_records: int, mean_s: float) -> Iterator[Suspect]:
    """Yield suspects of long steps: checkpoints, evaluations, and what the log does not explain."""
    saved, evaluated = (_near(pauses.steps, after) for after in (log.saved_after, log.evaluated_after))
    others = pauses.part(~(saved | evaluated))
    for part, kind in (
        (pauses.part(saved), CHECKPOINTS),
        (pauses.part(evaluated & ~saved), EVALUATIONS),
        (others, IRREGULAR if others.every is None else _regular(others.every)),
    ):
        lost_s = float(part.extra_s.sum()) / num_records
        if lost_s > LEAST_PAUSES * mean_s:
            longest = f"the longest adds {show_seconds(float(part.extra_s.max()))}"
            evidence = f"{len(part.steps)} steps are much longer than their neighbours"
            yield Suspect(
                name=kind.name,
                title=kind.title,
                cost_s=lost_s,
                basis="measured",
                evidence=(f"{evidence}; {longest}", kind.evidence),
                change=kind.change,
            )


def _regular(every: int) -> PauseKind:
    return PauseKind(
        name="regular_pauses",
        title=f"The run pauses every {every} steps, as for checkpoints or evaluations",
        evidence=f"they are {every} steps apart",
        change="save checkpoints less often or asynchronously, and evaluate less often",
    )


def _near(steps: Counts, after: Sequence[float]) -> np.ndarray:
    """Return which steps lie within NEAR_STEPS of one of the others; a mask."""
    if not after:
        return np.zeros(len(steps), dtype=bool)
    others = np.sort(np.array(after))
    place = np.clip(np.searchsorted(others, steps), 1, len(others)) - 1
    later = np.minimum(place + 1, len(others) - 1)
    apart = np.minimum(np.abs(others[place] - steps), np.abs(others[later] - steps))
    near: np.ndarray = apart <= NEAR_STEPS
    return near


def _possible(report: Report, measured_s: float, known: Sequence[Suspect]) -> Iterator[Suspect]:
    """Yield what could explain a difference that nothing measured explains.

    Nothing, if the step lies in the interval of the prediction.
    """
    explained_s = sum(one.cost_s for one in known)
    left_s = measured_s - report.step_time_s - explained_s
    if measured_s <= report.step_time_high_s or left_s < LEAST_LEFT * report.step_time_s:
        return
    seconds = timed_parts(report)
    parts = {
        "communication": sum(
            spent_s for name, spent_s in report.breakdown.items() if name.endswith("communication")
        ),
        "compute": seconds["compute"],
    }
    for part, (most_ratio, name, title, change) in POSSIBLE.items():
        spent_s = parts[part]
        ratio = 1.0 + left_s / spent_s if spent_s > 0 else np.inf
        if ratio > most_ratio:
            continue
        yield Suspect(
            name=name,
            title=title,
            cost_s=left_s,
            basis="possible",
            evidence=(
                f"{show_seconds(left_s)} are unexplained; {part} of {show_seconds(spent_s)} would have to"
                f" take {ratio:.2f} times as long",
            ),
            against=("nothing in the log tells it apart from other reasons",),
            change=change,
        )
