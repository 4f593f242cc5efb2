"""The functions that compare predictions with published runs.

Answers: how accurate are predictions of a suite, of published tables, and of the order of plans?
Elsewhere: predictions themselves (api.py), the comparisons without files (lab/validation/).
"""

from collections.abc import Sequence
from pathlib import Path

from flopcast import prediction
from flopcast.api import predict
from flopcast.errors import spec_error
from flopcast.lab.calibration.watched import Watched
from flopcast.lab.published.functional_tests import functional_rows, is_of_functional_tests, read_runs
from flopcast.lab.published.predictions import NO_LEVELS, Predictions, PublishedTables, predict_with
from flopcast.lab.published.suite_files import load_memory_suite, load_suite
from flopcast.lab.validation.compare import ComparedSuite
from flopcast.lab.validation.compare import compare as compare_suite
from flopcast.lab.validation.decisions import Sweep
from flopcast.lab.validation.memory import ComparedMemory, MemoryRow, compare_memory
from flopcast.lab.validation.published import WAYS, Constants, Published
from flopcast.lab.validation.run import Run
from flopcast.lab.validation.suite import SuiteRow
from flopcast.lab.validation.sweeps import sweeps_of_runs, sweeps_of_suite
from flopcast.library.constants import shipped
from flopcast.report.report import Report
from flopcast.spec.job import Job


def validate_suite(name: str, constants: Constants = "none") -> ComparedSuite:
    """Predict a suite of measured runs: "paper", "sc21", "korthikanti" or "headlines".

    Parameters
    ----------
    constants : str
        "none": predict from kernel measurements and data sheets only. "others": also use the constants of
        the catalogue, if they were not fitted to the runs of the suite.

    Raises
    ------
    SpecError
        There is no such suite, or `constants` is "others" and the constants of the catalogue were fitted to
        its runs.

    Examples
    --------
    >>> rows = validate_suite("korthikanti").rows
    >>> max(abs(row.predicted_step_time_s / row.measured_step_time_s - 1) for row in rows) < 0.08
    True
    """
    return watched_suite(name, constants, iter)


def watched_suite(name: str, constants: Constants, watched: Watched[SuiteRow]) -> ComparedSuite:
    """Predict a suite as `validate_suite` does; `watched` wraps the iteration over its rows.

    Raises
    ------
    SpecError
        As there.
    """
    suite = load_suite(name)
    if constants == "none":
        predictions = Predictions()
        return compare_suite(suite, lambda job: predictions.of(job, NO_LEVELS), watched)
    fitted_on = {source for constant in shipped().constants for source in constant.sources}
    if suite.published_as in fitted_on:
        allowed = "a suite on which no constant was fitted"
        because = (
            f"constants were fitted on the runs of this suite, which the published table lists as"
            f" {suite.published_as}"
        )
        fix = f"predict them with --runs TABLE --leave-out {suite.published_as}, or with --no-constants"
        raise spec_error("--leave-one-source-out", suite.name, allowed, because, fix)
    return compare_suite(suite, predict, watched)


def rows_of_suite(name: str, *, of_memory: bool) -> int:
    """Return the number of rows of a suite of measured memory, or of measured runs.

    Raises
    ------
    SpecError
        There is no suite of that name.

    Examples
    --------
    >>> rows_of_suite("paper", of_memory=False)
    10
    """
    return len((load_memory_suite if of_memory else load_suite)(name).rows)


def validate_memory(name: str, watched: Watched[MemoryRow] = iter) -> tuple[ComparedMemory, ...]:
    """Compare a suite of measured memory: "memory"; `watched` wraps the iteration over its rows.

    Raises
    ------
    SpecError
        No suite has this name.

    Examples
    --------
    >>> max(abs(row.relative_error) for row in validate_memory("memory")) < 0.02
    True
    """
    return compare_memory(load_memory_suite(name).rows, prediction.memory_by_class, watched)


def validate_runs(path: str | Path) -> tuple[tuple[ComparedMemory, ...], dict[str, str]]:
    """Compare the runs of a file: Megatron-LM's functional tests, with their logged memory.

    Returns
    -------
    compared, left_out
        The compared rows, and the reason for each row that was left out, by its name.

    Raises
    ------
    SpecError
        The file cannot be read, or does not contain functional tests.
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
    watched: Watched[Run] = iter,
) -> Published:
    """Predict the runs of published tables. A run that is in two tables counts once.

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
    watched: Watched[Run] = iter,
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
    sweeps: dict[Constants, tuple[Sweep, ...]] = {}
    tables = PublishedTables(paths, watched, together="catalogue" in ways and len(ways) > 1)
    for way in ways:
        rows = tables.judged(way, leave_out).rows if paths else ()
        sweeps[way] = sweeps_of_runs(rows)
    if suites:
        of_suites = [sweep for name in suites for sweep in sweeps_of_suite(validate_suite(name))]
        sweeps["none"] = (*sweeps.get("none", ()), *of_suites)
    return sweeps


def predict_unfitted(job: Job) -> Report:
    """Predict from measured kernels, collectives and data sheets only, without constants fitted to
    published runs.
    """
    return predict_with(job, NO_LEVELS)
