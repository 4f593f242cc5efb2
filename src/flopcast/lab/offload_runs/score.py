"""Predictions of measured runs with states outside the devices, by part of the step.

Answers: how long are forward, backward and update of a step, and how far are they from what was measured?
Elsewhere: the tables (tables.py), a prediction (prediction.py), statistics (lab/scores.py), fitting the
rates of a machine (fit.py).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from flopcast.kept_results import KeptResults
from flopcast.lab.offload_runs.fit import Scaled, fitted_site, scaled_parts
from flopcast.lab.offload_runs.measured import MILLISECONDS, ComparedPart, OffloadRun, OffloadScores, Part
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.report.report import Report
from flopcast.serving.serving_report import Estimate
from flopcast.spec.job import Job
from flopcast.spec.site import Site

BOOKS, RESULTS = 16, 4096  # that are held
PART_OF_PHASE: Mapping[str, Part] = {
    "forward": "forward",
    "recompute": "backward",
    "backward": "backward",
    "step": "update",
}
Constants = Literal["catalogue", "model", "folder", "none"]
JUDGED: Mapping[Constants, str] = {
    "catalogue": "Fitted: rates of each machine, and the constants of offload, were fitted on these runs.",
    "model": "Left out: for each model, rates of the machine were fitted on the other models.",
    "folder": "Left out: for each folder of logs, rates of the machine were fitted on the other folders.",
    "none": "Data sheets: nothing was fitted on the machine, nor the host's time for layers and steps.",
}


def part_estimates(report: Report) -> dict[Part, Estimate]:
    """Return milliseconds of the forward passes, the backward passes, the update, and the whole step.

    The backward pass includes the copies of gradients that it waits for. The interval of a part follows
    from the factors of its items, and from those of the whole step.
    """
    seconds = _seconds(report)
    sigmas = _log_sigmas(report)
    ratio = report.step_time_s / report.timeline.step_time_s
    found = {
        part: Estimate.log_normal(MILLISECONDS * ratio * part_s, sigmas[part])
        for part, part_s in seconds.items()
    }
    low_s, high_s = report.bounds_s
    found["iteration"] = Estimate(
        value=MILLISECONDS * report.step_time_s, low=MILLISECONDS * low_s, high=MILLISECONDS * high_s
    )
    return found


def _seconds(report: Report) -> dict[Part, float]:
    """Return the seconds of all passes and of the update, without jitter."""
    forward_s, backward_s = report.timeline.pass_seconds[:2]
    return {
        "forward": float(forward_s),
        "backward": float(backward_s),
        "update": float(report.timeline.update_s.max()),
    }


def _log_sigmas(report: Report) -> dict[Part, float]:
    """Return the sigma of the logarithm of each part's seconds."""
    slopes: dict[Part, dict[str, float]] = {part: defaultdict(float) for part in PART_OF_PHASE.values()}
    totals: dict[Part, float] = defaultdict(float)
    for share in report.timeline.bottleneck_attribution:
        part = PART_OF_PHASE.get(share.item.phase) if share.item else None
        if part is None:
            continue
        totals[part] += share.path_s
        for name in share.factors(report.priced):
            slopes[part][name] += share.slope_s
    sigmas = {name: factor.log_sigma_factor for name, factor in report.priced.factors.items()}
    whole = sum(factor.log_sigma_factor**2 for factor in report.whole.values())
    return {
        part: math.sqrt(
            whole + sum((slope / totals[part] * sigmas[name]) ** 2 for name, slope in own.items())
        )
        for part, own in slopes.items()
    }


class Reports:
    """The predictions of jobs, with the curves of the catalogue; results of earlier ones are used again."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._books = KeptResults(BOOKS)
        self._results = KeptResults(RESULTS)

    def of(self, job: Job) -> Report:
        """Return the prediction of a job."""
        book = self._books.of(job.cluster, lambda: load_book(job.cluster))
        return predict(job, book, self._results)


def score_runs(runs: Sequence[OffloadRun], constants: Constants = "catalogue") -> OffloadScores:
    """Predict every run that has a job.

    With "model" or "folder", the rates of a machine are fitted on its runs of the other models or folders;
    a run of a machine without any keeps those of the machine.
    """
    known = Reports()
    left_out = tuple(run for run in runs if run.job is None)
    own = [run for run in runs if run.job is not None]
    if constants in ("model", "folder"):
        own = _refitted(own, constants, known)
    rows = [row for run in own for row in _compared(run, known)]
    return OffloadScores(rows=tuple(rows), left_out=left_out, constants=JUDGED[constants])


def _compared(run: OffloadRun, known: Reports) -> list[ComparedPart]:
    """Return the measured parts of a run beside their predictions."""
    if run.job is None:
        return []
    parts = part_estimates(known.of(run.job))
    return [ComparedPart(run=run, measured=each, predicted=parts[each.part]) for each in run.measured]


def _refitted(runs: Sequence[OffloadRun], group: str, reports: Reports) -> list[OffloadRun]:
    """Return the runs with the rates that were fitted on the other groups of the same machine."""
    known: list[tuple[OffloadRun, tuple[Scaled, ...]]] = []
    for run in runs:
        if run.job is not None:
            report = reports.of(run.job)
            known.append((run, scaled_parts(report, _seconds(report))))
    sites: dict[tuple[str, str], Site] = {}
    for run, _ in known:
        key = run.groups["machine"], run.groups[group]
        if key not in sites:
            others = [
                pair
                for pair in known
                if pair[0].groups["machine"] == key[0] and pair[0].groups[group] != key[1]
            ]
            sites[key] = fitted_site(others)
    return [
        replace(run, job=run.job.model_copy(update={"site": sites[key]}))
        for run in runs
        if run.job is not None and (key := (run.groups["machine"], run.groups[group]))
    ]
