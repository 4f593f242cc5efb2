"""Predictions of the runs in published tables with different constants, each computed once.

Answers: what is the prediction of each run with the constants of the catalogue, with constants fitted to
other runs, and without constants?
Elsewhere: the content of a row (table.py, job.py), the fit (lab/validation/leave_one_out.py), statistics
(lab/validation/published_statistics.py).
"""

import re
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

from flopcast import prediction
from flopcast.cost.constants import SiteResiduals
from flopcast.cost.factors import FASTER_SIDE, FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.levelled import can_be_levelled
from flopcast.cost.price import price
from flopcast.cost.unknown_site import UNKNOWN_SITE
from flopcast.errors import Problem, SpecError, collected
from flopcast.files.nearest_names import nearest
from flopcast.fixes import with_gpus_as
from flopcast.kept_results import KeptResults
from flopcast.lab.calibration.observations import Levels
from flopcast.lab.calibration.watched import Watched
from flopcast.lab.published.headers import PUBLISHED
from flopcast.lab.published.job import reproduce
from flopcast.lab.published.known_names import judged_only
from flopcast.lab.published.table import read_tables
from flopcast.lab.validation import leave_one_out
from flopcast.lab.validation.published import Constants, Published, compare_each
from flopcast.lab.validation.run import Run
from flopcast.lab.validation.site_residuals import residuals_of, without_own_source
from flopcast.library.constants import levels_of_other_runs, shipped
from flopcast.library.curves import load_book
from flopcast.records import replace
from flopcast.report.report import Report, summarise
from flopcast.spec.job import Job
from flopcast.timeline.program import simulate
from flopcast.timeline.step import run_step

MOST_RESULTS = 131072  # programs, times of kernels, prices and times of layers of earlier predictions
COLUMNS = {column.to[1]: title for title, column in PUBLISHED.columns.items() if column.to[0] == "mapping"}
FIELD = re.compile(r"\w+")
LEFT_OUT: tuple[Constants, ...] = ("others", "generations")  # ways that are predicted together
NO_LEVELS: Levels = {}  # one object, as kept prices depend on the identity of their levels


class PublishedTables:
    """Published tables, read once and predicted with different levels of factors.

    Predictions are stored, so each choice of constants is computed once.

    Parameters
    ----------
    together : whether predictions with the constants of the catalogue and without constants are both
        needed, or those without each source and without each device generation; they are then computed
        together, which takes less time

    Raises
    ------
    SpecError
        Files cannot be read or have unknown headers. All of these files are listed.
    """

    def __init__(
        self, paths: Sequence[str | Path], watched: Watched[Run] = iter, together: bool = False
    ) -> None:
        """Read the files."""
        self._watched, self._together = watched, together
        self._without_each = cache(  # source, device generation or model: constants fitted on the others
            lambda ways: leave_one_out.leave_out_each_way(self._predicted_each, self._unfitted, ways)
        )
        self._job_of, self._predicted = cache(_job_or_faults), Predictions()
        self._tables = [
            replace(table, runs=tuple(_marked(run) for run in table.runs))
            for table in read_tables([Path(path) for path in paths])
        ]

    def check_sources(self, sources: Sequence[str]) -> None:
        """Check that every source has a run.

        Raises
        ------
        SpecError
            Some sources have no run. All of these sources are listed.
        """
        known = {run.source for table in self._tables for run in table.runs}
        problems = [
            Problem(
                field="--leave-out",
                value=source,
                allowed=", ".join(sorted(known)) or "no value, because no row of these tables is a run",
                because="no run in these tables has this source",
                fix=f"write {next(iter(nearest(source, known)), min(known))}"
                if known
                else f"remove --leave-out {source}",
            )
            for source in sources
            if source not in known
        ]
        if problems:
            raise SpecError(problems)

    def judged(self, constants: Constants = "catalogue", leave_out: Sequence[str] = ()) -> Published:
        """Return the predicted runs, as `validate_published` does.

        Raises
        ------
        SpecError
            A source that is to be left out has no run.
        """
        self.check_sources(leave_out)
        if leave_out:
            return leave_one_out.leave_out(self.predicted, leave_out, self._unfitted)
        if constants in leave_one_out.GROUPS:
            ways = LEFT_OUT if self._together and constants in LEFT_OUT else (constants,)
            return self._without_each(ways)[ways.index(constants)]
        published = self._unfitted.published if constants == "none" else self._by_catalogue
        return replace(published, constants=constants, fitted_on=_fitted_on())

    @cached_property
    def _unfitted(self) -> leave_one_out.FirstPass:
        return leave_one_out.first_pass(lambda *_: self._both[0] if self._together else self.predicted({}))

    @cached_property
    def _by_catalogue(self) -> Published:
        return self._both[1] if self._together else self.predicted()

    @cached_property
    def _both(self) -> tuple[Published, ...]:
        return self._predicted_with((NO_LEVELS, None))

    def predicted(self, levels: Levels | None = None, ids: frozenset[str] = frozenset()) -> Published:
        """Return predictions of all runs, or of `ids`, with these levels, or with the catalogue's."""
        if levels is None:
            return self._predicted_with((None,), ids)[0]
        return self._predicted_each((levels,), ids)[0]

    def _predicted_each(self, choices: Sequence[Levels], ids: frozenset[str]) -> tuple[Published, ...]:
        """Return predictions of runs with each of these levels, completed by those of other runs."""
        whole = [{**levels_of_other_runs(), **levels} if levels else NO_LEVELS for levels in choices]
        return self._predicted_with(whole, ids)

    def _predicted_with(
        self, choices: Sequence[Levels | None], ids: frozenset[str] = frozenset()
    ) -> tuple[Published, ...]:
        broken = [problem for table in self._tables for problem in table.problems]
        for run in (run for table in self._tables for run in table.corrected):
            with collected(further := list[Problem]()):
                self._reproduced(run)
            broken += [replace(problem, where=run.where) for problem in further]
        unread = {place: name for table in self._tables for place, name in table.unread.items()}
        runs = [
            self._watched([run for run in table.runs if not ids or run.id in ids]) for table in self._tables
        ]
        found = compare_each(
            runs,
            self._reproduced,
            lambda job: self._predicted.each(job, choices),
            len(choices),
            broken,
            unread,
        )
        return tuple(
            each if choice is NO_LEVELS else self._of_other_sites(each)
            for each, choice in zip(found, choices, strict=True)
        )

    def _of_other_sites(self, published: Published) -> Published:
        """Return the runs with intervals whose constants do not depend on runs of their own source."""
        return replace(published, rows=without_own_source(published.rows, shipped().sites))

    def site_residuals(self) -> tuple[SiteResiduals, ...]:
        """Return the residuals of the unknown sites, with constants fitted without their sources."""
        rows = self.judged().rows
        taught = any(row.run.source in _fitted_on() for row in rows)
        return residuals_of(self.judged("others").rows if taught else rows)

    def step_time_s(self, job: Job, of_run: Job) -> float:
        """Return the step time, without constants, of a job that runs the same programs as a run's job.

        The jobs may differ in their devices, and in those fields of a stack that concern prices and
        overlap.
        """
        return self._predicted.step_time_s(job, of_run)

    def _reproduced(self, run: Run) -> Job:
        """Return the job of a run, which `reproduce` creates only once for all predictions."""
        job = self._job_of(run)
        if isinstance(job, SpecError):
            raise job.with_traceback(None)
        return job


def _fitted_on() -> frozenset[str]:
    """Return the sources of the constants; runs are never scored with unknown sites of their source."""
    constants = (one for one in shipped().constants if not one.name.startswith((UNKNOWN_SITE, FASTER_SIDE)))
    return frozenset(source for one in constants for source in one.sources)


def _job_or_faults(run: Run) -> Job | SpecError:
    try:
        return reproduce(run)
    except SpecError as error:
        fixes = (with_gpus_as(each.fix, "set num_gpus to {}") for each in error.problems)
        return SpecError(
            replace(each, fix=FIELD.sub(lambda field: COLUMNS.get(field[0], field[0]), fix))
            for each, fix in zip(error.problems, fixes, strict=True)
        )


def _marked(run: Run) -> Run:
    """Return the run, with the reason why no constant may be fitted to it, if there is such a reason."""
    because = judged_only(run)
    return run.model_copy(update={"judged_only": because}) if because else run


def predict_with(job: Job, levels: Levels | None) -> Report:
    """Return the report of a job with these levels of factors; None uses those of the catalogue."""
    return Predictions().of(job, levels)


class Predictions:
    """Predictions with several levels of factors, for which the programs of a job are computed once."""

    def __init__(self) -> None:
        self._book, self._kept = cache(load_book), KeptResults(MOST_RESULTS)
        self._bare: dict[Job, Priced] = {}

    def of(self, job: Job, levels: Levels | None) -> Report:
        """Return the report of a job (see `predict_with`)."""
        return self.each(job, (levels,))[0]

    def each(self, job: Job, choices: Sequence[Levels | None]) -> tuple[Report, ...]:
        """Return the reports of a job with several sets of levels; memory does not depend on them."""
        book, bare = self._book(job.cluster), self._without_levels(job)
        sets = [book.levels if levels is None else levels for levels in choices]
        if can_be_levelled(bare):
            reports = prediction.predict_each(job, bare, sets)
        else:
            books = [replace(book, levels=levels) for levels in sets]
            reports = tuple(prediction.predict(job, one, self._kept) for one in books)
        memory = self._kept.of(("memory", bare.programs, job.cluster), lambda: reports[0].memory)
        for report in reports:
            vars(report)["memory"] = memory
        return reports

    def _without_levels(self, job: Job) -> Priced:
        """Return the prices of a job without levels, from which those with any levels follow."""
        if job not in self._bare:
            programs, book = prediction.programs_of(job, self._kept), self._known(job, NO_LEVELS)
            self._bare[job] = prediction.priced_job(job, programs, book, self._kept)
        return self._bare[job]

    def step_time_s(self, job: Job, of_run: Job) -> float:
        """Return the step time of a job as `PublishedTables.step_time_s` does."""
        stack = job.software.computing_in(job.plan.precision)
        priced, share = self._without_levels(of_run), of_run.stack.contention.kernel_share
        with_share = job.stack.with_part("contention", kernel_share=share)
        programs = replace(priced.programs, stack=stack)
        if not priced.patterns and job.model_copy(update={"stack": with_share}) == of_run:
            priced = replace(priced, programs=programs)  # no price depends on contention
        else:
            book = self._known(job, NO_LEVELS)
            priced = price(programs, job.cluster, book, FactorBook(job.site, NO_LEVELS), self._kept)
        passes = tuple(simulate(segments, priced, attribute=False) for segments in priced.programs.passes)
        return summarise(job, priced, run_step(priced, passes=passes)).step_time_s

    def _known(self, job: Job, levels: Levels | None) -> CurveBook:
        """Return the curves of a job, with these levels or the catalogue's."""
        book = self._book(job.cluster)
        return book if levels is None else replace(book, levels=levels)
