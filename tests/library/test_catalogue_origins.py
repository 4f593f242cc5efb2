"""No number of the catalogue comes from runs that it is judged by, but for constants, which are refitted.

`fitted_on` of a source names the runs behind a number. Suites that fit such a number on their other rows
(the host's cost, the jitter) may name themselves.
"""

import csv
import re
from pathlib import Path

from all_cases import all_cases
from conftest import SHARED

from flopcast.lab.published.suite_files import load_suite
from flopcast.library import catalog
from flopcast.library.fitted_on import fitted_numbers, origins

VALIDATION = Path(__file__).parents[1] / "lab" / "validation"
DEVELOPMENT = [VALIDATION / "held_out_runs.csv", *VALIDATION.glob("collected_runs*.csv")]
SUITES = ("paper", "sc21", "korthikanti", "headlines", "memory")
SPEAKS_OF_A_FIT = re.compile(r"\bfitted\b|\bfit to\b|\bruns? (?:ask|want|of .* ask)", re.IGNORECASE)


def judged_sources():
    """Names of everything that predictions are compared with."""
    tables = [*DEVELOPMENT, SHARED / "validation" / "published_runs.csv"]
    found = set(SUITES)
    for table in tables:
        if table.is_file():
            with table.open(newline="", encoding="utf-8") as rows:
                found |= {row["source_key"] for row in csv.DictReader(rows)}
    return found


def test_no_number_of_the_catalogue_was_fitted_on_runs_that_judge_it():
    wrong = [
        (origin.where, origin.covers, name)
        for origin in fitted_numbers()
        for name in origin.fitted_on
        if name in judged_sources() and not fits_on_others(name, origin.covers)
    ]

    assert wrong == []


def fits_on_others(suite, covers):
    """Whether a suite fits that number again on its other rows."""
    if suite not in SUITES:
        return False
    protocol = load_suite(suite)
    return (covers == "jitter" and protocol.leave_out_jitter) or (
        covers.startswith("host") and protocol.cross_fit_host
    )


def test_a_source_that_speaks_of_a_fit_names_the_runs():
    wrong = [
        (origin.where, origin.title)
        for origin in origins()
        if SPEAKS_OF_A_FIT.search(origin.title)
        and not origin.fitted_on
        and "not fitted" not in origin.title
    ]

    assert wrong == []


@all_cases("name", catalog.names("stacks"))
def test_no_stack_has_a_derate_of_its_own_number(name):
    assert catalog.stack(name).derate.ratio == 1.0
