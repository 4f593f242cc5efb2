"""Constants fitted to published runs, and runs predicted with constants that were fitted without them.

Answers: which levels follow from these runs, and how large are the errors of runs that were left out of the
fit?
Elsewhere: the fit to observations (lab/calibration/constant_fit.py), predictions of runs (published.py).

A fit predicts every run, fits the levels, and then predicts and fits again with these levels, because the
overlap of items depends on the levels. Leaving out a source means to fit without its runs and to predict
them with the result. A stack that only this source used then gets the mean of all stacks, and a device
that only it used keeps the level of its kernels. Leaving out a device generation works in the same way:
constants of its devices are missing, and constants of stacks come from other generations. These fits
start from predictions without levels, so a source that is left out does not even affect the point at
which shares are computed.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.constant_transfer import GENERATION
from flopcast.cost.constants import Fitted
from flopcast.cost.factors import SHARED_DERATE
from flopcast.cost.unknown_site import UNKNOWN_SITE
from flopcast.lab.calibration.constant_fit import fit
from flopcast.lab.calibration.observations import Levels, ObservedStep, Prior, Priors
from flopcast.lab.validation.published import ComparedRun, Constants, Published, with_baseline
from flopcast.lab.validation.repeats import configuration, sweep_of
from flopcast.lab.validation.statistics import grouped
from flopcast.records import Record, replace
from flopcast.report.report import JITTER
from flopcast.spec.job import Job
from flopcast.timeline.uncertainty import Sensitivity

PredictRuns = Callable[[Levels, frozenset[str]], Published]
PredictEach = Callable[[Sequence[Levels], frozenset[str]], Sequence[Published]]
GroupOfRun = Callable[[ComparedRun], str]
PASSES = 3  # of prediction and fit; the third moves no level by more than a hundredth
# The host's factors have one name on all hosts and under all stacks, which differ too much for one level.
# Sizes without measurements have nothing in common that a level could describe.
NOT_FITTED = ("host", "host_step", "extrapolated", JITTER, "unexplained", BETWEEN_PLANS, UNKNOWN_SITE)


class FirstPass(Record):
    """Runs that were predicted without levels, as a fit reads them, and the priors.

    Attributes
    ----------
    published : Published
        The runs and their predictions.
    observed : tuple of ObservedStep
        For each run, the shares of its constants and its gap.
    priors : Priors
        Sigma of each constant before the fit.
    """

    published: Published
    observed: tuple[ObservedStep, ...]
    priors: Priors

    def without(self, ids: Collection[str]) -> Fitted:
        """Return the constants fitted to all runs except these."""
        return fit([one for one in self.observed if one.id not in ids], self.priors, {})

    def ids(self, group: GroupOfRun) -> dict[str, frozenset[str]]:
        """Return the ids of the predicted runs of each group; groups are ordered by their first run."""
        groups = grouped(self.published.rows, group)
        return {name: frozenset(row.run.id for row in rows) for name, rows in groups.items()}


def first_pass(predict_runs: PredictRuns) -> FirstPass:
    """Predict the runs once from kernels alone. All fits without some runs start from these predictions."""
    published = predict_runs({}, frozenset())
    fittable = [row for row in published.rows if not row.run.judged_only]
    return FirstPass(published=published, observed=_seen(published), priors=_priors(fittable))


def fit_runs(predict_runs: PredictRuns) -> Fitted:
    """Return the constants fitted to the runs.

    `predict_runs` takes levels and the ids of runs (None means all), and returns these runs with their
    predictions.
    """
    first = first_pass(predict_runs)
    fitted = first.without(())
    for _ in range(PASSES - 1):
        levels = fitted.levels()
        fitted = fit(_seen(predict_runs(levels, frozenset())), first.priors, levels)
    return fitted


GROUPS: Mapping[Constants, GroupOfRun] = {  # what is left out together
    "others": lambda row: row.run.source,
    "generations": lambda row: row.context[GENERATION],
    "models": lambda row: row.job.model.name,
}


def leave_out(
    predict_runs: PredictRuns, sources: Collection[str], known: FirstPass | None = None
) -> Published:
    """Return only the runs of some sources, predicted with constants fitted to all others.

    `known` is the first pass over all runs; without it, the function computes the first pass.
    """
    first = known or first_pass(predict_runs)
    ids = frozenset(row.run.id for row in first.published.rows if row.run.source in sources)
    return replace(
        first.published,
        rows=_judged(predict_runs, first, ids),
        left_out=tuple(row for row in first.published.left_out if row.source in sources),
        twice=(),
        constants="others",
        groups=len(first.ids(GROUPS["others"])),
    )


def leave_out_each_way(
    predict_each: PredictEach, first: FirstPass, ways: Sequence[Constants]
) -> tuple[Published, ...]:
    """Predict every run with constants fitted to the other sources, generations of devices or models.

    `predict_each` takes levels for each of the `ways` and the ids of runs, and returns the predictions of
    these runs with each of the levels.
    """
    groups = [tuple(first.ids(GROUPS[way]).values()) for way in ways]
    levels = [[first.without(ids).levels() for ids in each] for each in groups]
    number_of = [{run: number for number, ids in enumerate(each) for run in ids} for each in groups]
    alike: dict[tuple[int, ...], list[str]] = {}
    for row in first.published.rows:
        alike.setdefault(tuple(numbers[row.run.id] for numbers in number_of), []).append(row.run.id)
    found: tuple[list[ComparedRun], ...] = tuple([] for _ in ways)
    for numbers, ids in alike.items():
        own_levels = [each[number] for each, number in zip(levels, numbers, strict=True)]
        for rows, published in zip(found, predict_each(own_levels, frozenset(ids)), strict=True):
            rows.extend(published.rows)
    place = {row.run.id: number for number, row in enumerate(first.published.rows)}
    for rows, group in zip(found, number_of, strict=True):
        rows.sort(key=lambda row: (group[row.run.id], place[row.run.id]))
    return tuple(
        replace(first.published, rows=with_baseline(rows), constants=way, groups=len(each))
        for rows, way, each in zip(found, ways, groups, strict=True)
    )


def _judged(predict_runs: PredictRuns, known: FirstPass, ids: frozenset[str]) -> tuple[ComparedRun, ...]:
    return predict_runs(known.without(ids).levels(), ids).rows if ids else ()


def _seen(published: Published) -> tuple[ObservedStep, ...]:
    """Return the runs to which constants may be fitted, as the fit reads them."""
    return tuple(_observed(row) for row in published.rows if not row.run.judged_only)


def _observed(row: ComparedRun) -> ObservedStep:
    return ObservedStep(
        id=row.run.id,
        source=row.run.source,
        configuration=configuration(row),
        model=row.job.model.name,
        log_gap_factor=-math.log1p(row.relative_error),
        shares={factor.name: factor.share for factor in row.factors if _fitted(factor)},
        context=row.context,
        sweep=sweep_of(row),
    )


def _fitted(factor: Sensitivity) -> bool:
    """Return whether runs may change the level of a factor."""
    return factor.name.partition("[")[0] not in NOT_FITTED


def _priors(rows: Sequence[ComparedRun]) -> dict[str, Prior]:
    """Return the prior of every factor: the largest sigma that a prediction gave the factor."""
    priors: dict[str, Prior] = {}
    for row in rows:
        for factor in row.factors:
            if _fitted(factor):
                priors[factor.name] = _wider(priors.get(factor.name), factor, row.job)
    return priors


def _wider(known: Prior | None, factor: Sensitivity, job: Job) -> Prior:
    sigma = max(factor.log_sigma_factor, known.log_sigma_factor if known else 0.0)
    shared = factor.name.startswith(f"{SHARED_DERATE}[") and not job.stack.derate.own
    return Prior(log_sigma_factor=sigma, shared=shared)
