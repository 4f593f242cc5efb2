"""Diagnosis of a slow job. The result is a list of suspects with seconds and evidence, from the job's log
and a trace.

Answers: which reasons does a log or a trace give for a slow step, and what would a change save?
Elsewhere: sizes that the log states (size_suspects.py), other contradictions to the job
(contradictions.py), recompute that the timers show (recompute_shown.py), pauses and slowing
(series_suspects.py), timers (timer_suspects.py), traces (trace_suspects.py), settings of the job
(settings.py), a better plan (better_plan.py), how a diagnosis is shown (render/diagnosis.py).

The diagnosis examines, in this order: sizes in the log that differ from the job; pauses and slowing in its
steps; timers and traced kernels, compared with the prediction; settings that cost time. The network, the
clocks or the host could explain the rest of the difference. The diagnosis states which measurement would
distinguish them.
"""

from collections.abc import Iterator, Mapping

from flopcast.lab.calibration.kernel_names import COMMUNICATION
from flopcast.lab.calibration.trace import Trace
from flopcast.lab.diagnosis.better_plan import better_plan
from flopcast.lab.diagnosis.contradictions import of_model, of_rates
from flopcast.lab.diagnosis.excess import known_suspects, texts_of
from flopcast.lab.diagnosis.recompute_shown import PassRatio, other_recompute, ratio_of_passes, with_ratio
from flopcast.lab.diagnosis.series_suspects import series_of
from flopcast.lab.diagnosis.settings import little_saved, slow_settings
from flopcast.lab.diagnosis.size_suspects import as_logged, size_contradictions
from flopcast.lab.diagnosis.stragglers import slow_loader, stated_stragglers
from flopcast.lab.diagnosis.suspect import Contradiction, Predict, SlowStep, Suspect
from flopcast.lab.diagnosis.timer_suspects import longer_than_step, timed_suspects
from flopcast.lab.diagnosis.trace_suspects import COMPUTE, is_one_step, traced_suspects
from flopcast.lab.logs.log import Log, SteadyTime
from flopcast.lab.logs.prediction_check import other_software
from flopcast.lab.logs.timers import Part, TimedPart, parts_in
from flopcast.lab.validation.step_parts import components
from flopcast.records import Record, field
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.units import show_seconds

LEAST_LEFT = 0.02  # of the step, that no suspect explains
MOST_NETWORK, MOST_CLOCKS = 30.0, 1.7  # ratios by which communication and compute can be slower at all
# beyond the usual oversubscription of the upper tiers of a network, two to four ports to one
IMPLAUSIBLE_NETWORK = 4.0
ADVICE: Mapping[str, str] = known_suspects()["advice"]


def diagnose(job: Job, predict: Predict, log: Log | None = None, trace: Trace | None = None) -> SlowStep:
    """Return the suspects for a slow step.

    Parameters
    ----------
    job : the job as it was configured
    predict : predicts a job
    log, trace : those of a run of this job; without both, only the settings of the job are examined

    Raises
    ------
    SpecError
        The job contradicts itself.
    """
    report, found = predict(job), _Findings()
    describes_run = True
    if log is not None:
        other_model = tuple(of_model(job, log))
        logged = size_contradictions(report, log) if other_model else as_logged(report, log, predict)
        found.of_run += logged.suspects
        found.contradictions += [*other_model, *logged.contradictions]
        describes_run = logged.describes_run
        report = _read_log(logged.report, log, found, predict, compare=describes_run)
    if trace is not None and describes_run:
        _read_trace(report, trace, found)
    negligible: list[Suspect] = []
    settings = [
        *stated_stragglers(report),
        *slow_loader(report),
        *slow_settings(report, predict, negligible),
    ]
    settings += better_plan(report, predict, settings)
    left_s = _left_s(report, found) if describes_run else 0.0
    possible = list(_possible(report, left_s)) if left_s > 0 else []
    if len(possible) > 1:
        timed = log is not None and bool(log.timers)
        found.advice.append(_tell_apart(report.job, timed=timed, traced=trace is not None))
    elif left_s > 0:
        found.advice.append(ADVICE["unexplained"])
    listed = (*found.of_run, *found.of_timers, *found.of_trace, *possible, *settings)
    suspects = [with_ratio(one, found.ratio) for one in listed]
    return SlowStep(
        report=report,
        contradictions=tuple(found.contradictions),
        describes_run=describes_run,
        log=log,
        log_name=log.name if log is not None else "",
        framework=log.framework if log is not None else "",
        step=found.step,
        trace_name=trace.name if trace is not None else "",
        traced_step_s=trace.step_time_s if trace is not None else None,
        unexplained_s=left_s,
        suspects=tuple(sorted(suspects, key=lambda one: one.order)),
        cleared=tuple(found.cleared),
        negligible=tuple(map(little_saved, sorted(negligible, key=lambda one: -(one.cost_s or 0.0)))),
        advice=tuple(filter(None, (*found.advice, *_does_not_fit(report)))),
    )


class _Findings(Record, eq=False, frozen=False, kw_only=False):
    """The findings of a diagnosis while it is made: sentences, and suspects by their source.

    `level_s` is the measured step time without pauses, before the run became slower; `ratio` holds the
    times of the backward and forward passes according to the timers.
    """

    of_run: list[Suspect] = field(default_factory=list)
    of_timers: list[Suspect] = field(default_factory=list)
    of_trace: list[Suspect] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    step: SteadyTime | None = None
    level_s: float | None = None
    ratio: PassRatio | None = None


def _read_log(report: Report, log: Log, found: _Findings, predict: Predict, *, compare: bool) -> Report:
    """Add the findings from the step times of a log and, if they are compared, from its timers and rates.

    Returns
    -------
    Report
        The report of the job with the recompute that the timers show.
    """
    job = report.job
    found.advice += [*other_software(job, log), *filter(None, [log.skipped_text()])]
    sequences, length = job.plan.global_batch, job.batch.mean_sequence_tokens
    found.step = log.step_time(sequences, length, job.cluster.num_devices)
    if found.step is None:
        found.advice.append(ADVICE["no_time"])
        return report
    series = series_of(job, log, found.step)
    found.of_run += series.suspects
    found.level_s = series.level_s
    timers = parts_in(log.timers, series.steps)
    if compare:
        report = _read_passes(report, log, timers, found, predict)
    if too_long := longer_than_step(timers, series.level_s):
        found.advice.append(ADVICE["too_long"].format(", ".join(too_long)))
    elif compare:
        found.of_timers, found.cleared = timed_suspects(report, timers, series.level_s)
    if compare:
        found.contradictions += of_rates(report, log)
    return report


def _read_passes(
    report: Report, log: Log, timers: Mapping[Part, TimedPart], found: _Findings, predict: Predict
) -> Report:
    """Add the ratio between the timers of the passes; return the report with the recompute they show."""
    found.ratio = ratio_of_passes(report, timers)
    other = other_recompute(report, found.ratio, predict) if log.recompute is None else None
    if other is None:
        return report
    changed, suspects, contradiction = other
    found.of_run += suspects
    found.contradictions.append(contradiction)
    found.ratio = ratio_of_passes(changed, timers)
    return changed


def _read_trace(report: Report, trace: Trace, found: _Findings) -> None:
    """Add the findings from the kernels of a trace."""
    if found.level_s is None:
        found.level_s = trace.step_time_s
    if not is_one_step(trace, found.level_s or report.step_time_s):
        found.advice.append(ADVICE["no_steps"])
        return
    found.of_trace, cleared = traced_suspects(report, trace)
    found.cleared += cleared


def _does_not_fit(report: Report) -> Iterator[str]:
    """Yield a sentence if the job needs more memory than its devices have; no run can do that."""
    memory = report.memory
    if memory.verdict == "does not fit":
        yield (
            f"The job as described does not fit: {memory.need}. If the real run did not run out"
            " of memory, its plan or precision differs from this description, so check both"
        )


def _left_s(report: Report, found: _Findings) -> float:
    """Return the part of a step that no suspect explains, or 0 if this part is small or the step is in
    the interval.

    Timers and a trace show the same seconds, so only the larger of their sums counts.
    """
    if found.level_s is None or found.level_s <= report.step_time_high_s:
        return 0.0
    explained_s = max(
        sum(one.cost_s or 0.0 for one in suspects) for suspects in (found.of_timers, found.of_trace)
    )
    left_s = found.level_s - report.step_time_s - explained_s
    return left_s if left_s >= LEAST_LEFT * report.step_time_s else 0.0


def _possible(report: Report, left_s: float) -> Iterator[Suspect]:
    """Yield suspects for the seconds that no measurement explains."""
    seconds = components(report)
    exposed_s, compute_s = seconds.get(COMMUNICATION, 0.0), sum(seconds.get(part, 0.0) for part in COMPUTE)
    ratios = {
        "network": 1.0 + left_s / exposed_s if exposed_s > 0 else float("inf"),
        "clocks": 1.0 + left_s / compute_s if compute_s > 0 else float("inf"),
    }
    hides, often = _hides_communication(report.job), report.job.plan.devices > 1
    text = f"{show_seconds(left_s)} are unexplained"

    def possible(name: str, evidence: str, *against: str) -> Suspect:
        texts = texts_of("possible", name)
        return Suspect(
            name=name,
            title=texts["title"],
            change=texts["change"],
            cost_s=left_s,
            basis="possible",
            evidence=(evidence,),
            against=("the measurements do not distinguish this cause from others", *against),
        )

    if often and (hides or ratios["network"] <= MOST_NETWORK):
        spent = show_seconds(exposed_s)
        times = f"{ratios['network']:.2f} times as long"
        fallen_back = (
            f"a factor of {ratios['network']:.0f} is implausible, unless the collectives run over another"
            " network than the cluster describes, such as TCP over Ethernet"
        )
        slower = f"if the network is the only cause, the exposed communication of {spent} takes {times}"
        if hides:
            slower = (
                f"flopcast predicts {spent} of exposed communication; on a slow network, compute hides"
                f" less communication"
            )
        is_implausible = ratios["network"] > IMPLAUSIBLE_NETWORK and not hides
        yield possible("network", f"{text}; {slower}", *[fallen_back] * is_implausible)
    if ratios["clocks"] <= MOST_CLOCKS:
        times = f"{show_seconds(compute_s)} takes {ratios['clocks']:.2f} times as long"
        yield possible("clocks", f"{text}; if low clocks are the only cause, the compute of {times}")
    yield possible("other_causes", text)


def _hides_communication(job: Job) -> bool:
    """Return whether compute hides communication, which a slow network would expose."""
    known, plan = job.stack.gradients, job.plan
    hides = plan.data_parallel > 1 and (known.overlaps(plan.zero) or known.overlap_gather or plan.zero == 3)
    return hides or (plan.tensor_parallel > 1 and job.stack.tensor_overlap != "none")


def _tell_apart(job: Job, *, timed: bool, traced: bool) -> str:
    """Return which measurement would tell possible reasons apart; "" if all were provided."""
    switch = job.stack.switches.text("timers")
    ways = [f"timers in the log ({switch})"] if switch and not timed else []
    ways += ["a trace of the PyTorch profiler (--trace)"] if not traced else []
    return f"To distinguish these causes, use {' or '.join(ways)}" if ways else ""
