"""The options of `flopcast validate` that choose constants, and which of them cannot be used together."""

from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import Command, further_problems, with_all
from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.files.inputs import exists
from flopcast.records import Record

if TYPE_CHECKING:
    from flopcast.lab.graph_runs.timm import TableFacts
    from flopcast.lab.validation.published import Constants

option = DocumentedOptions(__name__)
OPTIONS: "Mapping[Constants, str]" = {  # constants of the predictions → option
    "others": "--leave-one-source-out",
    "generations": "--leave-one-generation-out",
    "models": "--leave-one-model-out",
    "none": "--no-constants",
}


def takes_constants(command: Command) -> Command:
    """Add the flags of OPTIONS, each named by its constants."""
    return with_all([option(flag, name, is_flag=True) for name, flag in OPTIONS.items()], command)


class Judging(Record):
    """The constants for predictions of published runs: none, or fitted on other runs.

    `left_out` names a source to leave out, `chosen` are the constants whose options were given. At most one
    may be chosen. `measured_on` contains the machine of tables that do not state it, which hold models
    other than decoders.
    """

    left_out: str | None
    chosen: "tuple[Constants, ...]"
    report: Path | None
    measured_on: "TableFacts | None" = None

    @property
    def ways(self) -> "tuple[Constants, ...]":
        """Return the sets of constants that the options request; all sets if they request none."""
        from flopcast.lab.validation.published import WAYS

        return ("others",) if self.left_out else self.chosen or WAYS

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources to leave out."""
        return (self.left_out,) if self.left_out else ()

    @property
    def is_one_pass(self) -> bool:
        """Return whether each run is predicted once, with constants that do not depend on other runs."""
        return not self.left_out and self.constants in ("catalogue", "none")

    @property
    def constants(self) -> "Constants":
        """Return the constants of the predictions, as the API names them."""
        return self.chosen[0] if self.chosen else "catalogue"

    @property
    def of_suites(self) -> "Constants":
        """Return the constants with which suites are predicted."""
        return "others" if "others" in self.chosen else "none"

    def check(self) -> None:
        """Raise an error if options choose more than one set of constants.

        Raises
        ------
        SpecError
            More than one protocol was chosen.
        """
        if len((*self.sources, *self.chosen)) > 1:
            *names, last = ("--leave-out", *OPTIONS.values())
            allowed, fault = f"one of {', '.join(names)} and {last}", "are chosen by several options"
            because = "each of these options determines the constants for all runs"
            raise spec_error("constants", "chosen twice", allowed, because, "keep one of them", fault=fault)

    def refuse(self, of_suites: bool = False) -> None:
        """Raise an error for every option that needs published runs.

        `of_suites` allows the options that suites accept, too.

        Raises
        ------
        SpecError
            Such an option was given.
        """
        accepted = ("others", "none") if of_suites else ()
        given: dict[str, object] = {"--report": self.report, "--leave-out": self.left_out}
        given |= {OPTIONS[name]: True for name in self.chosen if name not in accepted}
        allowed = "no value, unless --runs names a table of published runs"
        because = "the option applies only to tables of published runs"
        if problems := ignored(given, allowed, because, "add --runs TABLE.csv, or remove {}"):
            raise SpecError(problems)


def reads_tables(command: Command) -> Command:
    """Report errors of options together with those of published runs in the tables of --runs."""

    @wraps(command)
    def checked(**named: Any) -> None:  # noqa: ANN401 - click passes any type
        try:
            command(**named)
        except SpecError as error:
            raise SpecError([*error.problems, *_problems_of_tables(named)]) from error

    return further_problems(_problems_of_tables)(checked)


def _problems_of_tables(named: Mapping[str, Any]) -> list[Problem]:
    from flopcast.accuracy import holds_functional_tests
    from flopcast.lab.measured_tables import KINDS
    from flopcast.lab.published.table import read_table

    found: list[Problem] = []
    for path in (Path(each) for each in named["runs"] if exists(each)):
        with collected(found):
            if not (any(kind.holds(path) for kind in KINDS) or holds_functional_tests(path)):
                found.extend(read_table(path).problems)
    return found


def ignored(given: Mapping[str, object], allowed: str, because: str, fix: str) -> list[Problem]:
    """Return the faults of options that were given and would have no effect.

    The text `fix` may name the option.
    """
    return [
        Problem(name, str(value), allowed, because, fix.replace("{}", name))
        for name, value in given.items()
        if value is not None
    ]
