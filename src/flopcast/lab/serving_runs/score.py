"""Predictions of measured serving, and their errors.

Answers: how large are the errors, by engine, model and device, and with which constants of the engines?
Elsewhere: the tables (lab/measured_tables.py), a prediction (serving/serve.py), fitting the constants
(fit.py), statistics (lab/scores.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from flopcast.errors import SpecError
from flopcast.files.package_table import read_table
from flopcast.lab.serving_runs.copy_rates import with_rates_of, without_rates
from flopcast.lab.serving_runs.fit import by_engine
from flopcast.lab.serving_runs.rows import ComparedServing, ServingRun, ServingScores
from flopcast.library.curves import load_serving_book
from flopcast.records import replace
from flopcast.serving.serve import serve
from flopcast.serving.serving_report import ServingReport
from flopcast.spec.iteration_cost import IterationCost
from flopcast.spec.serving_job import ServingJob

Constants = Literal["catalogue", "model", "device", "none"]
NO_CONSTANTS = IterationCost(host_s=0.0, sequence_s=0.0, log_sigma_factor=0.3)
JUDGED: Mapping[Constants, str] = read_table("flopcast.lab", "judged.yaml")["serving"]
Reports = dict[str, ServingReport]  # by job


def score_runs(
    runs: Sequence[ServingRun], constants: Constants = "catalogue", known: Reports | None = None
) -> ServingScores:
    """Predict every run that has a job; runs with equal jobs are predicted once.

    Parameters
    ----------
    known : existing reports by job with the constants of the catalogue; new reports are added
    """
    reports: Reports = {} if known is None else known
    if constants == "none":
        return _scored([_with_job(run, without_rates) for run in runs], NO_CONSTANTS, {})
    if constants == "catalogue":
        return _scored(runs, None, reports)
    first = _scored(runs, None, reports)
    pairs = [
        (row, reports[_key(row.run.job)])
        for row in first.rows
        if row.measured.teaches and row.run.job is not None
    ]
    if not pairs:  # none of these points teaches constants of iterations: all are left out of their fit
        if not any(run.job is not None and run.job.plan.streams for run in runs):
            return first
        refitted = [_with_other_rates(run, runs, constants) for run in runs]
        return replace(_scored(refitted, None, {}), constants=JUDGED[constants])
    rows: list[ComparedServing] = []
    for name in dict.fromkeys(run.groups[constants] for run in runs):
        fitted = by_engine(pair for pair in pairs if pair[0].run.groups[constants] != name)
        own = [run for run in runs if run.groups[constants] == name and run.job is not None]
        rows += _scored([_with_constants(run, fitted) for run in own], None, {}).rows
    return ServingScores(rows=tuple(rows), left_out=first.left_out, constants=JUDGED[constants])


def fitted_constants(runs: Sequence[ServingRun]) -> dict[str, IterationCost]:
    """Return the constants of each engine, fitted to all runs."""
    reports: Reports = {}
    scores = _scored(runs, None, reports)
    return by_engine(
        (row, reports[_key(row.run.job)])
        for row in scores.rows
        if row.measured.teaches and row.run.job is not None
    )


def _with_job(run: ServingRun, changed: Callable[[ServingJob], ServingJob]) -> ServingRun:
    return run if run.job is None else replace(run, job=changed(run.job))


def _with_other_rates(run: ServingRun, runs: Sequence[ServingRun], group: str) -> ServingRun:
    """Return a run whose engine has copy rates that were fitted to the other groups, if it copies."""
    others = [other for other in runs if other.groups[group] != run.groups[group]]
    if run.job is None or not run.job.plan.streams:
        return run
    return replace(run, job=with_rates_of(run.job, others))


def _with_constants(run: ServingRun, fitted: Mapping[str, IterationCost]) -> ServingRun:
    """Return a run with fitted constants of its engine; with too few measurements, the prior's."""
    if run.job is None:
        return run
    cost = fitted.get(run.groups["engine"], NO_CONSTANTS)
    return replace(run, job=run.job.with_part("engine", iteration=cost))


def _scored(runs: Iterable[ServingRun], cost: IterationCost | None, known: Reports) -> ServingScores:
    """Return the scores of runs; if an iteration cost is given, it applies to all of them."""
    rows: list[ComparedServing] = []
    left_out: list[ServingRun] = []
    for run in runs:
        if run.job is None:
            left_out.append(run)
            continue
        job = run.job if cost is None else run.job.with_part("engine", iteration=cost)
        key = _key(run.job)
        try:
            if key not in known:
                book = load_serving_book(job.cluster)
                known[key] = serve(job, book, run.trace, run.leave_out_share, steady=False)
        except SpecError as error:
            problem = error.problems[0]
            reason = f"{problem.field} = {problem.value}: {problem.because}"
            left_out.append(replace(run, job=None, reason=reason))
            continue
        rows += [
            ComparedServing(run=run, measured=each, predicted=each.read(known[key]))
            for each in run.measured
        ]
    judged = JUDGED["catalogue" if cost is None else "none"]
    return ServingScores(rows=tuple(rows), left_out=tuple(left_out), constants=judged)


def _key(job: ServingJob | None) -> str:
    return "" if job is None else job.model_dump_json()
