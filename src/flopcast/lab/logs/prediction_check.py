"""Comparison of a prediction with the log of a run: step, rate, tokens and memory.

Answers: how accurate was the prediction, and does the log belong to this job?
Elsewhere: the log (log.py), the formula by which it counts FLOP (report/flop_conventions.py), reading it
(lab/logs).

The measured step is the median of the log's steady records. Rates in FLOP/s are compared only if the log's
formula is known. A difference is predicted / measured - 1; if it is above 0, the prediction is too high.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.lab.logs.formats import FORMATS
from flopcast.lab.logs.log import Log, SteadyTime
from flopcast.library import catalog
from flopcast.records import Record
from flopcast.report.flop_conventions import CONVENTIONS, Match, match_convention
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.units import Number

MANY_BAD_SHARE = 0.05


class LogComparison(Record):
    """Comparison of one report with one log; a value is None if the log does not state it.

    `step` summarises the steady steps; `inside` is True if their median lies in the 90 % interval of the
    report. `convention` is the formula by which the log counts FLOP; the predicted rate follows the same
    formula, and is None if the formula is unknown. The measured memory is the largest over the ranks that
    print it; the predicted memory belongs to the fullest stage. `warnings` list contradictions between
    the log and the job, which mean that they describe different runs.
    """

    name: str
    framework: str
    step: SteadyTime | None
    predicted_step_time_s: float
    predicted_low_s: float
    predicted_high_s: float
    inside: bool | None
    convention: Match | None
    measured_device_flop_per_s: float | None
    predicted_device_flop_per_s: float | None
    measured_tokens_per_s: float | None
    predicted_tokens_per_s: float
    measured_allocated_bytes: float | None
    predicted_allocated_bytes: float
    measured_reserved_bytes: float | None
    predicted_reserved_bytes: float
    num_restarts: int
    num_bad: int
    num_repeated: int
    warnings: tuple[str, ...]


def compare_with_log(report: Report, log: Log) -> LogComparison:
    """Compare a report with the log of a run of its job, number by number; contradictions become warnings.

    If the log has no step time (torchtitan), the measured step time is the number of tokens in a step
    divided by the printed token rate; the batch is that of the log or, by default, that of the job.
    """
    job = report.job
    sequences, devices = _sequences(job, log), log.world_size or job.cluster.num_devices
    length = log.sequence_length or job.batch.mean_sequence_tokens
    step = log.step_time(sequences, length, devices)
    rate = log.median_of(log.steps.device_flop_per_s)
    convention = None
    if step and rate:
        per_batch = job.plan.global_batch / sequences
        convention = match_convention(job, rate * devices * step.median_s * per_batch, log.framework)
    inside = report.step_time_low_s <= step.median_s <= report.step_time_high_s if step else None
    return LogComparison(
        name=log.name,
        framework=log.framework,
        step=step,
        predicted_step_time_s=report.step_time_s,
        predicted_low_s=report.step_time_low_s,
        predicted_high_s=report.step_time_high_s,
        inside=inside,
        convention=convention,
        measured_device_flop_per_s=rate,
        predicted_device_flop_per_s=_predicted_rate(report, convention),
        measured_tokens_per_s=_tokens_per_s(log, step, sequences * length, devices),
        predicted_tokens_per_s=report.metrics.tokens_per_s,
        measured_allocated_bytes=_largest(log, "max_allocated_bytes"),
        predicted_allocated_bytes=report.memory.allocated_bytes,
        measured_reserved_bytes=_largest(log, "max_reserved_bytes"),
        predicted_reserved_bytes=report.memory.reserved_bytes,
        num_restarts=log.num_restarts,
        num_bad=log.num_bad,
        num_repeated=log.num_repeated,
        warnings=tuple(_warnings(job, log, step)),
    )


def _sequences(job: Job, log: Log) -> float:
    """Return the sequences per step: from the log's last line, else its arguments, else the job."""
    printed = log.steps.global_batch[np.isfinite(log.steps.global_batch)]
    return float(printed[-1]) if printed.size else float(log.global_batch or job.plan.global_batch)


def _predicted_rate(report: Report, convention: Match | None) -> float | None:
    """Return the predicted FLOP/s per device by the formula of the log."""
    if convention is None or not convention.known:
        return None
    flop = CONVENTIONS[convention.name].flop(report.job)
    return flop / (report.step_time_s * report.job.cluster.num_devices)


def _tokens_per_s(log: Log, step: SteadyTime | None, step_tokens: Number, devices: Number) -> float | None:
    """Return the measured tokens/s of the job: as printed, from the rate per device, or from the step."""
    printed = log.median_of(log.steps.tokens_per_s)
    of_device = log.median_of(log.steps.device_tokens_per_s)
    if printed is not None:
        return printed
    if of_device is not None:
        return of_device * devices
    return step_tokens / step.median_s if step else None


def _largest(log: Log, name: str) -> float | None:
    sizes = [size for rank in log.memory if (size := getattr(rank, name)) is not None]
    return max(sizes, default=None)


def _warnings(job: Job, log: Log, step: SteadyTime | None) -> list[str]:
    """Return warnings about sizes that contradict the job, then about doubtful measurements."""
    stated = (
        ("global batch", _sequences(job, log), job.plan.global_batch),
        ("micro-batch", log.micro_batch, job.plan.micro_batch),
        ("sequence length", log.sequence_length, job.batch.sequence_length),
        ("number of devices", log.world_size, job.cluster.num_devices),
    )
    warnings = [*other_software(job, log)]
    warnings += [
        f"the {name} is {theirs:.0f} in the log and {ours} in the job, so the log is of another run"
        for name, theirs, ours in stated
        if theirs is not None and theirs != ours
    ]
    if step is None:
        warnings.append("the log contains no step time, and no values from which it can be computed")
    if log.framework == "hugging-face-trainer":
        warnings.append(
            "the log contains only the mean step time of the whole run, which includes warm-up, "
            "evaluation and checkpoints"
        )
    if log.skipped or log.num_bad > MANY_BAD_SHARE * (log.num_bad + log.steps.step.size):
        warnings.append(log.skipped_text())
    return warnings


def other_software(job: Job, log: Log) -> Iterator[str]:
    """Yield a sentence if software other than the job's stack printed the log, with the stack to set."""
    printed_by, ours = FORMATS[log.framework].software, job.stack.switches.software
    if ours and printed_by and ours not in printed_by:
        stacks = map(catalog.stack, catalog.names("stacks"))
        same = [each for each in stacks if each.switches.software in printed_by]
        same.sort(key=lambda each: (printed_by.index(each.switches.software), len(each.name)))
        such_as = f", such as --stack {same[0].name}" if same else " with --stack"
        yield (
            f"{' or '.join(printed_by)} printed the log, but the stack of the job ({job.stack.label})"
            f" describes {ours}: set the stack of the run{such_as}"
        )
