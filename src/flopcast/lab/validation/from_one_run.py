"""Published runs of one machine, predicted after a calibration with some of these runs.

Answers: how much does one log of a site improve the predictions of its other runs, and do the intervals
still contain 90 % of the measurements? How much do all other logs improve them?
Elsewhere: the update (lab/validation/from_run.py, cost/site_runs.py), the predictions before it
(published.py), the printed tables (render/from_one_run_tables.py).

A machine is the cluster and device of a source with one stack era. Each of its runs in turn calibrates
the prediction of every other run; a predicted run counts once, however many others calibrate it. Each run
is then predicted after a calibration with all others. Predictions change along the shares of their
factors, as in the update: to first order, this equals a prediction with the site file.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from flopcast.cost.factors import NINETY_PERCENT
from flopcast.cost.site_runs import condition, prior_log_sigmas
from flopcast.dtypes import Counts, Floats
from flopcast.lab.validation.from_run import NOISE_LOG_SIGMA, step_run
from flopcast.lab.validation.published import ComparedRun
from flopcast.lab.validation.statistics import grouped
from flopcast.records import Record
from flopcast.spec.site import SiteRun
from flopcast.units import nine_digits

FEWEST_RUNS = 3
Machine = tuple[str, str, str, str]  # source, cluster, device, stack


class Guess(Record):
    """One run, predicted before and after a calibration; the values are logarithms of predicted over
    measured.

    `weight_ratio` is 1 divided by the number of guesses for this run; `moved_share` is the fraction of
    factors that the run does not share with its calibration run, or 0 if there were several calibration
    runs.
    """

    row: ComparedRun
    before_log_factor: float
    after_log_factor: float
    before_log_sigma_factor: float
    after_log_sigma_factor: float
    weight_ratio: float
    moved_share: float = 0.0


def machine_of(row: ComparedRun) -> Machine:
    """Return the common properties of the runs of one machine."""
    job = row.job
    return row.run.source, job.cluster.name, job.cluster.node.device.name, job.stack.label


def machines(rows: Sequence[ComparedRun]) -> dict[Machine, list[ComparedRun]]:
    """Return the runs of each machine with at least three runs.

    Hybrids are left out, because their unmeasured kernels of Mamba-2 contain no information about the
    machine.
    """
    by_machine = grouped([row for row in rows if row.family != "hybrids"], machine_of)
    return {machine: members for machine, members in by_machine.items() if len(members) >= FEWEST_RUNS}


def by_one(rows: Sequence[ComparedRun]) -> Iterator[Guess]:
    """Yield each run of a machine, calibrated with each other run in turn."""
    runs = _runs(rows)
    for place, row in enumerate(rows):
        for other, run in enumerate(runs):
            if other != place:
                yield _guess(row, (run,), 1.0 / (len(rows) - 1))


def by_others(rows: Sequence[ComparedRun]) -> Iterator[Guess]:
    """Yield each run of a machine, calibrated with all others."""
    runs = _runs(rows)
    for place, row in enumerate(rows):
        yield _guess(row, (*runs[:place], *runs[place + 1 :]), 1.0)


def _runs(rows: Sequence[ComparedRun]) -> list[SiteRun]:
    return [step_run(row.factors, 1.0 / (1.0 + row.relative_error), NOISE_LOG_SIGMA) for row in rows]


def _guess(row: ComparedRun, runs: Sequence[SiteRun], weight_ratio: float) -> Guess:
    shares = {factor.name: factor.share for factor in row.factors}
    known = condition(runs, prior_log_sigmas(row.factors))
    here = known.row(shares)
    before = math.log1p(row.relative_error)
    own = math.log(row.high_s / row.predicted_step_time_s) / NINETY_PERCENT
    return Guess(
        row=row,
        before_log_factor=before,
        after_log_factor=before + known.mean(here),
        before_log_sigma_factor=own,
        after_log_sigma_factor=min(own, math.sqrt(max(known.variance(here), known.alone_variance(here)))),
        weight_ratio=weight_ratio,
        moved_share=float(np.abs(known.shares[0] - here).sum()) / 2.0 if len(runs) == 1 else 0.0,
    )


def statistics_of(guesses: Sequence[Guess]) -> dict[str, float]:
    """Return errors and intervals before and after the calibration, with each run counted once.

    They are the number of `runs`, and for each of the prefixes "before" and "after": `mean_` and
    `median_` (of absolute errors of the step), `inside_` (share of measurements inside the 90 %
    intervals) and `width_` (median half-width).
    """
    weights = np.array([guess.weight_ratio for guess in guesses])
    statistics: dict[str, float] = {"runs": len({guess.row.run.id for guess in guesses})}
    for time in ("before", "after"):
        logs = np.array([getattr(guess, f"{time}_log_factor") for guess in guesses])
        reach = NINETY_PERCENT * np.array([getattr(guess, f"{time}_log_sigma_factor") for guess in guesses])
        errors = np.abs(np.expm1(logs))
        statistics[f"mean_{time}"] = float(np.average(errors, weights=weights))
        statistics[f"median_{time}"] = _median(errors, weights)
        statistics[f"inside_{time}"] = float(np.average(np.abs(logs) <= reach, weights=weights))
        statistics[f"width_{time}"] = _median(np.expm1(reach), weights)
    return {name: nine_digits(value) for name, value in statistics.items()}


def _median(any_ratio: Floats, weights: Counts) -> float:
    """Return the value below which half of the weight lies.

    >>> _median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    2.0
    """
    order = np.argsort(any_ratio)
    reached = np.cumsum(weights[order])
    return float(any_ratio[order][int(np.searchsorted(reached, reached[-1] / 2.0))])


def calibrated(rows: Sequence[ComparedRun]) -> dict[str, list[Guess]]:
    """Return the guesses of all machines by kind of calibration: with "one" run, and with all "others"."""
    groups = machines(rows).values()
    return {
        "one": [guess for members in groups for guess in by_one(members)],
        "others": [guess for members in groups for guess in by_others(members)],
    }
