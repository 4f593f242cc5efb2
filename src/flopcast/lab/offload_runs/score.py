"""Predictions of measured runs with states outside the devices, by part of the step.

Answers: how long are the forward pass, the backward pass and the update of a step, and how large are the
errors?
Elsewhere: the tables (lab/measured_tables.py), a prediction (prediction.py), statistics (lab/scores.py),
fits of the rates of a machine and of constants (fit.py).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal

from flopcast.cost.constants import Fitted
from flopcast.cost.tier_constants import LOG_SIGMAS
from flopcast.files.package_table import read_table
from flopcast.kept_results import KeptResults
from flopcast.lab.calibration.observations import Levels
from flopcast.lab.offload_runs.fit import SeenRun, fitted_constants, fitted_site, scaled_parts
from flopcast.lab.offload_runs.rows import MILLISECONDS, ComparedPart, OffloadRun, OffloadScores, Part
from flopcast.library.constants import shipped_levels
from flopcast.library.curves import load_book
from flopcast.prediction import predict
from flopcast.records import replace
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
Constants = Literal["catalogue", "model", "folder", "generation", "none"]
JUDGED: Mapping[Constants, str] = read_table("flopcast.lab", "judged.yaml")["offload"]
OF_DATA_SHEETS: tuple[Constants, ...] = ("generation", "none")  # machines without fitted rates


def part_estimates(report: Report) -> dict[Part, Estimate]:
    """Return the milliseconds of the forward passes, the backward passes, the update, and the whole step.

    The backward pass includes the copies of gradients for which it waits. The interval of a part follows
    from the factors of its items and from the factors of the whole step.
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
    """The predictions of jobs with the curves of the catalogue. Earlier results are reused."""

    def __init__(self) -> None:
        """Start without results."""
        self._books = KeptResults(BOOKS)
        self._results = KeptResults(RESULTS)

    def of(self, job: Job, levels: Levels | None = None) -> Report:
        """Return the prediction of a job, with these constants or with those of the catalogue."""
        book = self._books.of(job.cluster, lambda: load_book(job.cluster))
        used = book if levels is None else replace(book, levels=levels)
        return predict(job, used, self._results)


def score_runs(runs: Sequence[OffloadRun], constants: Constants = "catalogue") -> OffloadScores:
    """Predict every run that has a job.

    With "model" or "folder", the rates of a machine are fitted to its runs of all other models or folders,
    and constants to all runs of other models or folders. A run without other runs on its machine keeps the
    machine's rates. With "generation", constants are fitted to the runs on the other generations of
    devices.
    """
    known = Reports()
    left_out = tuple(run for run in runs if run.job is None)
    own = [run for run in runs if run.job is not None]
    if constants in ("catalogue", "none"):
        levels: Levels | None = None if constants == "catalogue" else {}
        rows = [row for run in own for row in _compared(run, known, levels)]
    else:
        rows = _left_out(own, constants, known)
    return OffloadScores(rows=tuple(rows), left_out=left_out, constants=JUDGED[constants])


def fit_runs(runs: Sequence[OffloadRun]) -> Fitted:
    """Return the constants that follow from the runs of some tables."""
    return fitted_constants(_seen(runs, Reports()))


def _compared(run: OffloadRun, known: Reports, levels: Levels | None) -> list[ComparedPart]:
    """Return the measured parts of a run with their predictions."""
    if run.job is None:
        return []
    parts = part_estimates(known.of(run.job, levels))
    return [ComparedPart(run=run, measured=each, predicted=parts[each.part]) for each in run.measured]


def _seen(runs: Sequence[OffloadRun], reports: Reports) -> list[SeenRun]:
    """Return the runs that have jobs, with the parts of their predictions that rates outside the devices
    scale.

    The predictions use only constants of other tables.
    """
    found = []
    for run in runs:
        if run.job is not None:
            report = reports.of(run.job, _others())
            found.append((run, scaled_parts(report, _seconds(report))))
    return found


def _group(run: OffloadRun, constants: Constants) -> str:
    """Return the key of the group with which a run is left out."""
    if constants == "generation" and run.job is not None:
        return run.job.cluster.node.device.generation
    return run.groups[constants]


@cache
def _others() -> Levels:
    """Return the constants of the catalogue that were fitted to other tables."""
    return {name: level for name, level in shipped_levels().items() if name not in LOG_SIGMAS}


def _left_out(runs: Sequence[OffloadRun], constants: Constants, reports: Reports) -> list[ComparedPart]:
    """Return the runs with constants, and rates of machines, that were fitted to the other groups."""
    known = _seen(runs, reports)
    rows: list[ComparedPart] = []
    for name in dict.fromkeys(_group(run, constants) for run in runs):
        others = [pair for pair in known if _group(pair[0], constants) != name]
        fitted_levels = {**_others(), **fitted_constants(others).levels()}
        sites: dict[str, Site] = {}
        for run in (run for run in runs if run.job is not None and _group(run, constants) == name):
            machine = run.groups["machine"]
            if machine not in sites and constants not in OF_DATA_SHEETS:
                own = [pair for pair in others if pair[0].groups["machine"] == machine]
                sites[machine] = fitted_site(own, fitted_levels)
            site = sites.get(machine, Site())
            job = None if run.job is None else run.job.model_copy(update={"site": site})
            rows += _compared(replace(run, job=job), reports, fitted_levels)
    return rows
