"""Commands that read measurements: `calibrate from-run`, and `import nccl-tests`, `kineto`, `nsys`.

Answers: how are measurements of other tools printed, and where are they written?
Elsewhere: the update (lab/validation/from_run.py), readers (lab/), tables (lab/samples/files.py). Commands
are attached to their groups in calibrate.py and imports.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import CLUSTER_OR_NONE, FILE, INPUT, OF_RUN, OUTPUT, SAMPLES, job_options
from flopcast.cli.output_files import write_output
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError, problems_of
from flopcast.meant_quantities import meant_quantity
from flopcast.quantities import fraction_of, parse_quantity
from flopcast.records import replace
from flopcast.requests.checked_request import check_request
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.units import Number, show, show_seconds

if TYPE_CHECKING:
    from flopcast.lab.calibration.trace import ClassTotal, Trace
    from flopcast.lab.validation.from_run import Observation
    from flopcast.report.report import Report

option = DocumentedOptions(__name__)

MOST_LINES = 20
NOISE = "2%"
STEP_TIME = "a time above 0, such as 12.3 or 385 ms"
TRACED = ("gemm", "attention", "memory_bound")  # and communication, unless ranks wait for a pipeline
WORST_UNKNOWN_SHARE = 0.05  # of a step, in kernels of no known class


def _check_all(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Raise every error of what was measured and of the job."""
    step = others["observed_step"]
    noise = others["noise"] or NOISE
    traced = others["log"] or others["trace"]
    found = problems_of(lambda: _step_and_noise(step, noise, is_measured=bool(traced)))
    if found := [*found, *problems_of(lambda: check_request(request))]:
        raise SpecError(found)


@click.command("from-run", short_help="Calibrate flopcast to your cluster with one measured run.")
@job_options(without=OF_RUN, check=_check_all, cluster=CLUSTER_OR_NONE, samples=SAMPLES)
@option("--observed-step")
@option("--trace", type=INPUT)
@option("--log", type=INPUT)
@option("--noise", default=NOISE, show_default=True)
@option("-o", "--out", type=OUTPUT)
def from_run(
    request: JobRequest,
    observed_step: str | None,
    trace: Path | None,
    log: Path | None,
    noise: str,
    out: Path | None,
) -> None:
    """Calibrate flopcast to your machine with one measured run, and write a site file.

    flopcast changes the factors of the prediction until the predicted step time agrees with the measured
    one. If you give a trace, the components of the step must agree too. The most uncertain factors change
    most. Use the site file (--site) to predict other models and plans on the same machine. The measured
    step time comes from --observed-step, otherwise from --log, otherwise from --trace. The step time of a
    trace is too long, because profiling slows the run.

    \b
    flopcast calibrate from-run job.yaml --observed-step 12.3 --out site.yaml
    flopcast calibrate from-run job.yaml --log train.log --noise 1% --out site.yaml
    flopcast calibrate from-run job.yaml --trace rank0.json.gz --out site.yaml
    flopcast predict job.yaml --site site.yaml
    """
    from flopcast.api import predict
    from flopcast.lab.samples.sites import site_text
    from flopcast.lab.validation.from_run import site_after, update
    from flopcast.render.from_one_run_tables import posterior_text

    sigma, step_s = _step_and_noise(observed_step, noise, is_measured=log is not None or trace is not None)
    job = resolve(request, assume_cluster=False)
    report = predict(job)
    if observed_step and step_s and not observed_step[-1].isalpha():
        _check_unit(observed_step, step_s / report.step_time_s)
    observations = _observations(report, step_s, trace, log, sigma)
    posterior = update(report, observations, job.site.runs)
    title = f"flopcast calibrate from-run on {job.model.name}, {job.plan.short()}"
    site = site_after(posterior, job.site, out.stem if out else "site", title)
    again = predict(job.model_copy(update={"site": site}))
    print_text(posterior_text(posterior))
    print_text(f"again     {show_seconds(again.step_time_s)} predicted with the site file")
    for warning in posterior.warnings:
        click.echo(f"warning   {warning}", err=True)
    if out is not None:
        count = len(site.factors)
        message = f"wrote {out}: {count} factor{'s' * (count != 1)}; use it with --site {out}"
        write_output("--out", out, site_text(site), message)


def _step_and_noise(step: str | None, noise: str, *, is_measured: bool) -> tuple[float, float | None]:
    """Return the noise of the measured step times, and the step time that an option states, if any.

    Raises SpecError if an option is not a quantity, or if nothing is measured.
    """
    problems: list[Problem] = []
    sigma, step_s = _fraction(noise, problems), _seconds(step, problems)
    if step is None and not is_measured:
        because = "a calibration needs at least one measurement"
        problems.append(_option("--observed-step", None, "a step time, or --log or --trace", because))
    if problems:
        raise SpecError(problems)
    return sigma, step_s


def _check_unit(step: str, ratio: float) -> None:
    """Raise SpecError if a step time without a unit agrees better with the prediction in milliseconds.

    `ratio` is the step time in seconds, divided by the predicted step time.
    """
    if ratio > math.sqrt(1000):
        because = (
            f"{step} s is {ratio:,.0f} times the predicted step time; write a unit to confirm {step} s"
        )
        raise SpecError([_option("--observed-step", step, STEP_TIME, because, f'"{step} ms"')])


def _observations(
    report: "Report", step_s: float | None, trace: Path | None, log: Path | None, noise_fraction: float
) -> "tuple[Observation, ...]":
    """Return what was measured: the step from the option, else the log, else the trace; and components."""
    from flopcast.lab.validation.from_run import STEP, Observation

    if log is not None:
        logged_s = _logged_step_s(report, log)
        step_s = logged_s if step_s is None else step_s
    observations: list[Observation] = []
    if trace is not None:
        from flopcast.lab.traces.any_format import read_trace

        measured = read_trace(trace)
        step_s = measured.step_time_s if step_s is None else step_s
        observations = [
            Observation(name=name, observed_s=seconds, log_sigma_factor=noise_fraction)
            for name, seconds in _traced_components(report, measured).items()
        ]
    if step_s is not None:
        observations.insert(0, Observation(name=STEP, observed_s=step_s, log_sigma_factor=noise_fraction))
    return tuple(observations)


def _logged_step_s(report: "Report", path: Path) -> float:
    """Return the seconds of the median steady step of a log; warn on stderr where it contradicts the job.

    Raises
    ------
    SpecError
        The log cannot be read, or has no step time.
    """
    from flopcast.lab.logs.prediction_check import compare_with_log
    from flopcast.lab.logs.reader import read_log_file

    measured = compare_with_log(report, read_log_file(path))
    for warning in measured.warnings:
        click.echo(f"warning   {warning}", err=True)
    if measured.step is None:
        raise SpecError([_option("--log", str(path), "a log with step times", "this log has none")])
    return measured.step.median_s


def _traced_components(report: "Report", trace: "Trace") -> dict[str, float]:
    """Return the measured seconds per step of each component that the trace and the prediction share.

    With a pipeline, communication is omitted: receives wait inside their kernels, so that their time would
    include the bubble.

    Raises
    ------
    SpecError
        The trace has no annotated step.
    """
    from flopcast.lab.calibration.trace import seconds_per_step, unrecognised
    from flopcast.lab.validation.step_parts import components

    for remark in trace.remarks:
        click.echo(f"trace     {remark}", err=True)
    if trace.step_time_s is None:
        because = "the trace has no step annotations, so the time of a step is not known"
        raise SpecError([_option("--trace", trace.name, "a trace with steps (prof.step(), NVTX)", because)])
    unknown_share = sum(total.step_share for total in unrecognised(trace))
    if unknown_share > WORST_UNKNOWN_SHARE:
        click.echo(f"warning   kernels of unknown classes take {unknown_share:.0%} of a step", err=True)
    pipeline = report.job.plan.pipeline_parallel > 1
    if pipeline:
        click.echo("warning   the trace is compared with the busiest pipeline stage", err=True)
    predicted = components(report)
    names = TRACED if pipeline else (*TRACED, "communication")
    measured = seconds_per_step(trace)
    return {name: measured[name] for name in names if name in measured and name in predicted}


def _fraction(text: str, problems: list[Problem]) -> float:
    """Return the fraction in a text such as "2%" or "0.02"; add a fault if it is neither."""
    value = fraction_of(text) or 0.0
    if not 0 < value < 1:
        allowed = "a fraction above 0 and below 1, or a percentage below 100%"
        problem = _option("--noise", text, allowed, "noise is a fraction of the measured time", "2%")
        is_percentage = 1 <= value < 100 and not text.endswith("%")
        problems.append(replace(problem, fix=f"write --noise {value:g}%") if is_percentage else problem)
    return value


def _seconds(text: str | None, problems: list[Problem]) -> float | None:
    """Return the seconds in a text such as "12.3" or "385 ms"; add a fault if it is neither."""
    if text is None:
        return None
    because = "a step takes more than 0 s"
    try:
        value = parse_quantity(text if text[-1:].isalpha() else f"{text} s", ("s", "min", "h"))
    except ValueError:
        value, because = 0.0, "the value is not a time"
    if not 0 < value < float("inf"):
        right = meant_quantity(text.lstrip("-"), ("s", "min", "h")) if set(text) & {*"123456789"} else ""
        example = f'"{right}"' if right else "12.3"
        problems.append(_option("--observed-step", text, STEP_TIME, because, example))
    return value


def _option(name: str, value: object, allowed: str, because: str, example: str = "") -> Problem:
    fix = f"write a value such as {name} {example}" if example else "give another file"
    fix = fix if value is not None else f"add {name}, such as {name} 12.3"
    return Problem(name, value, allowed, because, fix, fault="is missing" if value is None else "")


@click.command("nccl-tests", short_help="Convert the output of nccl-tests or rccl-tests to measured times.")
@click.argument("log", type=FILE)
@option("--collective", default="")
@click.option("-o", "--out", type=OUTPUT, help="Write the measured times to this CSV file.")
def nccl_tests(log: Path, collective: str, out: Path | None) -> None:
    """Convert a log of nccl-tests or rccl-tests to measured times of collectives.

    On stderr, the command lists rows whose columns contradict each other.

    \b
    flopcast import nccl-tests all_reduce.log --out samples.csv
    """
    from flopcast.lab.samples.files import COLLECTIVE_COLUMNS, collective_cells, write_csv
    from flopcast.lab.samples.nccl_tests import read_nccl_tests

    found = read_nccl_tests(log, collective)
    for problem in found.problems:
        click.echo(str(problem), err=True)
    runs: dict[tuple[str, int, int, str], list[float]] = {}
    for row in found.rows:
        run = (row.collective, row.ranks, row.nodes, row.dtype)
        runs.setdefault(run, []).append(row.busbw_bytes_per_s)
    for (name, ranks, nodes, dtype), rates in sorted(runs.items()):
        best = show(max(rates), "B/s")
        place = f"{name:16}{ranks:5} ranks{nodes:5} nodes"
        print_text(f"{place}  {dtype:10}{len(rates):5} rows, busbw up to {best}")
    if out is not None:
        count = write_csv(out, COLLECTIVE_COLUMNS, collective_cells(found.rows))
        click.echo(f"wrote {out}: {count} rows", err=True)


@click.command("kineto", short_help="Convert a trace of the PyTorch profiler to times of operators.")
@click.argument("trace", type=FILE)
@click.option(
    "-o", "--out", type=OUTPUT, help="Write the times of operators and collectives to this CSV file."
)
@option("--events", type=OUTPUT)
def kineto(trace: Path, out: Path | None, events: Path | None) -> None:
    """Convert a trace of torch.profiler (Chrome trace JSON, plain or .gz) to measured times of operators.

    Record the trace with record_shapes=True, and call prof.step() after each training step.

    \b
    flopcast import kineto rank0.json.gz --out samples.csv --events events.csv
    """
    _import_trace(trace, out, events, of_nsight=False)


@click.command("nsys", short_help="Convert a report of Nsight Systems to times of operators.")
@click.argument("trace", type=FILE)
@click.option("-o", "--out", type=OUTPUT, help="Write the measured times of operators to this CSV file.")
@option("--events", type=OUTPUT)
def nsys(trace: Path, out: Path | None, events: Path | None) -> None:
    """Convert a report of Nsight Systems (exported as SQLite) to measured times of operators.

    Run the profiled steps within torch.autograd.profiler.emit_nvtx(record_shapes=True), so that the report
    contains the sizes of operators. Export the report as SQLite, and convert it:

    \b
    nsys export --type sqlite report.nsys-rep
    flopcast import nsys report.sqlite --out samples.csv
    """
    _import_trace(trace, out, events, of_nsight=True)


def _import_trace(path: Path, out: Path | None, events: Path | None, of_nsight: bool) -> None:
    """Read a trace, print a summary, and write its samples and events."""
    from flopcast.lab.calibration.trace import class_totals, unrecognised
    from flopcast.lab.calibration.traced_shapes import samples
    from flopcast.lab.samples.files import (
        EVENT_COLUMNS,
        SAMPLE_COLUMNS,
        event_cells,
        sample_cells,
        write_csv,
    )
    from flopcast.lab.traces.kineto import read_kineto
    from flopcast.lab.traces.nsys import read_nsys

    trace = read_nsys(path) if of_nsight else read_kineto(path)
    for remark in trace.remarks:
        click.echo(f"trace     {remark}", err=True)
    if trace.step_time_s is not None:
        print_text(f"{trace.step_times_s.size} steps, median {show_seconds(trace.step_time_s)}")
    print_text(totals_text(class_totals(trace), "class", len(trace.words)))
    if unknown := unrecognised(trace):
        print_text("\n" + totals_text(unknown, "kernel that flopcast cannot classify", MOST_LINES))
    if out is not None:
        count = write_csv(out, SAMPLE_COLUMNS, sample_cells(samples(trace)))
        click.echo(f"wrote {out}: {count} samples", err=True)
    if events is not None:
        count = write_csv(events, EVENT_COLUMNS, event_cells(trace))
        click.echo(f"wrote {events}: {count} kernels", err=True)


def totals_text(totals: "tuple[ClassTotal, ...]", title: str, most: Number) -> str:
    """Return a table of kernels, seconds and share of steps per class.

    The last line is the sum of all other classes.
    """
    shown, rest = totals[: int(most)], totals[int(most) :]
    lines = [f"{title:44}{'kernels':>9}{'time':>11}{'of steps':>10}"]
    rows = [(one.name or "(no known class)", one.num_kernels, one.total_s, one.step_share) for one in shown]
    if rest:
        counts, seconds_left = sum(one.num_kernels for one in rest), sum(one.total_s for one in rest)
        rows.append((f"({len(rest)} more)", counts, seconds_left, sum(one.step_share for one in rest)))
    for name, count, seconds, share in rows:
        lines.append(f"{name[:43]:44}{count:9}{show_seconds(seconds):>11}{share:10.1%}")
    return "\n".join(lines)
