"""The options of `flopcast validate` that choose constants, and which of them exclude each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopcast.errors import Problem, SpecError, spec_error

if TYPE_CHECKING:
    from flopcast.lab.validation.published import Constants


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """The constants for predictions of published runs: none, or fitted on other runs.

    `left_out` names a source to leave out; `each_out` leaves out each source in turn, `generations` each
    device generation and `models` each model. `bare` uses no constants. At most one of them is set.
    """

    left_out: str | None
    each_out: bool
    generations: bool
    models: bool
    bare: bool
    report: Path | None

    @property
    def ways(self) -> "tuple[Constants, ...]":
        """Return the ways of judging that the options choose; all of them if they choose none."""
        from flopcast.lab.validation.published import WAYS

        named = self.left_out or self.each_out or self.generations or self.models or self.bare
        return WAYS if not named else ("others",) if self.left_out else (self.constants,)

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources to leave out."""
        return (self.left_out,) if self.left_out else ()

    @property
    def constants(self) -> "Constants":
        """Return the constants of the predictions, as the API names them."""
        if self.each_out:
            return "others"
        if self.generations or self.models:
            return "generations" if self.generations else "models"
        return "none" if self.bare else "catalogue"

    @property
    def of_suites(self) -> "Constants":
        """Return the constants with which suites are predicted."""
        return "others" if self.each_out else "none"

    def check(self) -> None:
        """Refuse options that choose more than one protocol.

        Raises
        ------
        SpecError
            More than one protocol was chosen.
        """
        if sum((bool(self.left_out), self.each_out, self.generations, self.models, self.bare)) > 1:
            raise spec_error(
                field="--runs",
                value="judged in two ways",
                allowed="one of --leave-out, --leave-one-source-out, --leave-one-generation-out,"
                " --leave-one-model-out and --no-constants",
                because="each of them chooses the constants for all runs",
                fix="keep one of them",
            )

    def refuse(self, of_suites: bool = False) -> None:
        """Refuse every option that needs published runs.

        `of_suites` allows the options that suites accept, too.

        Raises
        ------
        SpecError
            Such an option was given.
        """
        given = {
            "--report": self.report,
            "--leave-out": self.left_out,
            "--leave-one-source-out": (self.each_out and not of_suites) or None,
            "--leave-one-generation-out": self.generations or None,
            "--leave-one-model-out": self.models or None,
            "--no-constants": (self.bare and not of_suites) or None,
        }
        allowed = "together with --runs and a table of published runs"
        because = "it applies to predicted and measured steps of such runs"
        if problems := ignored(given, allowed, because, "add --runs TABLE.csv, or remove {}"):
            raise SpecError(problems)


def ignored(given: Mapping[str, object], allowed: str, because: str, fix: str) -> list[Problem]:
    """Return the faults of options that were given, but that nothing would read; `fix` may name each."""
    return [
        Problem(name, str(value), allowed, because, fix.replace("{}", name))
        for name, value in given.items()
        if value is not None
    ]
