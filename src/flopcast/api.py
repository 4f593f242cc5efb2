"""The few functions that a program calls: they load what the pure core needs.

Answers: how do I get from a job to an answer?
Elsewhere: jobs out of words and files (jobs.py); the same without files (prediction.py,
validation/compare.py).
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from flopcast import prediction
from flopcast.errors import Problem, SpecError
from flopcast.io.constants import shipped
from flopcast.io.curves import load_book
from flopcast.io.megatron.functional_tests import functional_rows, is_of_functional_tests, read_runs
from flopcast.io.runs.judged import PublishedTables, Watched, predict_with
from flopcast.io.suites import load_memory_suite, load_suite
from flopcast.report.html import as_html
from flopcast.report.report import MemoryReport, Report
from flopcast.report.versus import Versus, versus
from flopcast.search.find import Found, Told, find
from flopcast.search.question import Question
from flopcast.search.scaled import scaled
from flopcast.search.space import Space
from flopcast.spec.job import Job
from flopcast.validation.compare import Comparison
from flopcast.validation.compare import compare as compare_suite
from flopcast.validation.decisions import Sweep
from flopcast.validation.memory import ComparedMemory, compare_memory
from flopcast.validation.published import WAYS, Constants, Published
from flopcast.validation.suite import Suite
from flopcast.validation.sweeps import sweeps_of_runs, sweeps_of_suite


def predict(job: Job) -> Report:
    """Predict one training step with the curves of the catalogue.

    Raises
    ------
    SpecError
        The job contradicts itself, or asks for what is not supported.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> report = predict(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    >>> report.step_time_low_s < report.step_time_s < report.step_time_high_s
    True
    """
    return prediction.predict(job, load_book(job.cluster))


def predict_memory(job: Job) -> MemoryReport:
    """Return what the job keeps on each device, and whether it fits; also for machines without curves.

    Returns
    -------
    MemoryReport
        The same as `predict(job).memory`, in a fraction of the time.

    Raises
    ------
    SpecError
        As `predict`.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> predict_memory(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")).fits
    True
    """
    return prediction.memory_of(job)


def compare(first: Job | Report, second: Job | Report) -> Versus:
    """Compare two jobs, or their reports; factors that both depend on cancel in their ratio.

    Returns
    -------
    Versus
        Ratios of seconds, dollars and joules per token, the second's over the first's, with intervals.

    Raises
    ------
    SpecError
        As `predict`.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> plan = job.plan.model_copy(update={"recompute": "none", "partition_activations": False})
    >>> compared = compare(job, job.model_copy(update={"plan": plan}))
    >>> compared.low_ratio < compared.time_ratio < compared.high_ratio < 1, compared.sure
    (True, True)
    """
    one, other = (predict(each) if isinstance(each, Job) else each for each in (first, second))
    return versus(one, other)


def report_page(report: Report) -> str:
    """Return the report as one HTML file, with the curve of its plan on other numbers of devices.

    Returns
    -------
    str
        A whole document that loads nothing, below a megabyte.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> page = report_page(predict(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")))
    >>> page.startswith("<!doctype html>"), len(page) < 1_000_000
    (True, True)
    """
    return as_html(report, scaled(report, load_book(report.job.cluster)))


def search_plans(
    jobs: Job | Sequence[Job],
    space: Space | None = None,
    objectives: Sequence[str] = ("step_time",),
    total_tokens: float = 0.0,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    told: Told | None = None,
) -> Found:
    """Return the best plans of a space, simulated exactly, ranked and explained.

    Parameters
    ----------
    jobs : Job, or several that differ in their cluster or stack
        Their plans give the fields that the space does not name (optimizer, rank order).
    space : Space
        What may vary; by default every degree and option that the stack has.
    objectives : names of search.objectives.OBJECTIVES
        Plans are ranked by the first; the front is of all of them.
    total_tokens, deadline_s, budget_usd
        Of the whole run: its tokens, the time by which it must end, and the most that it may cost.
    told : callable
        Called with messages about the progress of the search.

    Raises
    ------
    SpecError
        Every fault of the question.

    Examples
    --------
    >>> from flopcast.io.jobs import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> found = search_plans(job, Space(gbs=64, cp=1, mbs=4, vpp=1, zero=1, recompute="full"))
    >>> found.candidates >= found.possible >= found.feasible >= len(found.plans) - found.refined > 0
    True
    """
    question = Question(
        jobs=(jobs,) if isinstance(jobs, Job) else tuple(jobs),
        space=space or Space(),
        objectives=tuple(objectives),
        total_tokens=total_tokens,
        deadline_s=deadline_s,
        budget_usd=budget_usd,
    )
    return answer(question, told)


def answer(question: Question, told: Told | None = None) -> Found:
    """Answer a complete question as `search_plans` does; the curves of each cluster are read once."""
    return find(question, cache(load_book), told)


def validate_suite(name: str, constants: Constants = "none") -> Comparison:
    """Predict a suite of measured runs: "paper", "sc21", "korthikanti" or "headlines".

    Parameters
    ----------
    constants : str
        "none": predict from kernels and data sheets alone, under the suite's protocol; "others": also use
        the constants of the catalogue. The second needs a suite on which no constant was fitted.

    Raises
    ------
    SpecError
        There is no suite of that name, or constants of the catalogue were fitted on its runs.

    Examples
    --------
    >>> rows = validate_suite("korthikanti").rows
    >>> max(abs(row.predicted_step_time_s / row.measured_step_time_s - 1) for row in rows) < 0.06
    True
    """
    suite = load_suite(name)
    if constants == "none":
        return compare_suite(suite, predict_unfitted)
    fitted_on = {source for constant in shipped().constants for source in constant.sources}
    if suite.published_as in fitted_on:
        raise SpecError([_fitted_on(suite)])
    return compare_suite(suite, predict)


def _fitted_on(suite: Suite) -> Problem:
    """Return the error for a suite on whose runs constants of the catalogue were fitted."""
    return Problem(
        field="--leave-one-source-out",
        value=suite.name,
        allowed="a suite on which no constant was fitted",
        because=f"constants were fitted on its runs, as {suite.published_as} of the published table",
        fix=f"judge them with --runs TABLE --leave-out {suite.published_as}, or with --no-constants",
    )


def validate_memory(name: str) -> tuple[ComparedMemory, ...]:
    """Compare a suite of measured memory: "memory".

    Raises
    ------
    SpecError
        If no suite has that name.

    Examples
    --------
    >>> max(abs(row.relative_error) for row in validate_memory("memory")) < 0.02
    True
    """
    return compare_memory(load_memory_suite(name).rows, prediction.memory_by_class)


def validate_runs(path: str | Path) -> tuple[tuple[ComparedMemory, ...], dict[str, str]]:
    """Compare the runs of a file: Megatron-LM's functional tests, with their logged memory.

    Returns
    -------
    compared, left_out
        The compared rows; and, by name of a row that was left out, the reason.

    Raises
    ------
    SpecError
        The file cannot be read, or is of another kind.
    """
    rows, left_out = functional_rows(read_runs(Path(path)))
    return compare_memory(rows, prediction.memory_by_class), left_out


def holds_functional_tests(path: str | Path) -> bool:
    """Return whether a file is a table of Megatron-LM's functional tests, for `validate_runs`.

    Raises
    ------
    SpecError
        The file cannot be read.
    """
    return is_of_functional_tests(Path(path))


def validate_published(
    paths: Sequence[str | Path],
    constants: Constants = "catalogue",
    leave_out: Sequence[str] = (),
    watched: Watched = iter,
) -> Published:
    """Predict the runs of published tables; a run that is in two tables counts once.

    Rows are left out, with the reason, if they cannot be read, report inference or need an unsupported
    feature.

    Parameters
    ----------
    constants : str
        "catalogue": the constants that every prediction uses; "others": predict each source with constants
        fitted on the other sources; "generations": predict each device generation with constants fitted on
        the others; "models": the same of each model; "none": kernels and data sheets alone.
    leave_out : predict only these sources, with constants fitted on all others
    watched : wraps the iteration over the runs, to report progress

    Raises
    ------
    SpecError
        Files cannot be read or have unknown headers (all of them are listed), or a source that is to be
        left out has no run.
    """
    return PublishedTables(paths, watched).judged(constants, leave_out)


def validate_decisions(
    paths: Sequence[str | Path],
    suites: Sequence[str] = (),
    ways: Sequence[Constants] = WAYS,
    leave_out: Sequence[str] = (),
    watched: Watched = iter,
) -> dict[Constants, tuple[Sweep, ...]]:
    """Return sweeps of plans of published tables and suites, each plan as it was measured and predicted.

    Parameters
    ----------
    suites : names; judged without constants, so they appear under "none" alone
    ways : the ways of judging, as `constants` of `validate_published`
    leave_out, watched : as there

    Raises
    ------
    SpecError
        As `validate_published`, or a suite is not known.
    """
    found: dict[Constants, tuple[Sweep, ...]] = {}
    tables = PublishedTables(paths, watched)
    for way in ways:
        rows = tables.judged(way, leave_out).rows if paths else ()
        found[way] = sweeps_of_runs(rows)
    if suites:
        of_suites = [sweep for name in suites for sweep in sweeps_of_suite(validate_suite(name))]
        found["none"] = (*found.get("none", ()), *of_suites)
    return found


def predict_unfitted(job: Job) -> Report:
    """Predict by kernels, collectives and data sheets alone, without constants of any published run."""
    return predict_with(job, {})
