"""How `flopcast validate` judges published runs: its options, and which of them exclude each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flopcast.errors import Problem, SpecError

if TYPE_CHECKING:
    from flopcast.validation.published import Constants


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """How published runs are judged: without constants, or by such as never saw what they judge.

    `left_out` names one source, `each_out` takes each in turn; `bare` is without any. One of them at most.
    """

    left_out: str | None
    each_out: bool
    bare: bool
    report: Path | None

    @property
    def ways(self) -> "tuple[Constants, ...]":
        """The ways of judging that were asked for; all of them where none was."""
        named = self.left_out or self.each_out or self.bare
        judged: tuple[Constants, ...] = ("catalogue", "others", "none")
        return judged if not named else ("others",) if self.left_out else (self.constants,)

    @property
    def constants(self) -> "Constants":
        """Which constants judge, in the words of the API."""
        return "others" if self.each_out else "none" if self.bare else "catalogue"

    def check(self) -> None:
        """Refuse two protocols at once.

        Raises
        ------
        SpecError
            More than one was asked for.
        """
        if sum((bool(self.left_out), self.each_out, self.bare)) > 1:
            told = Problem(
                field="--runs",
                value="judged in two ways",
                allowed="one of --leave-out, --leave-one-source-out, --no-constants",
                because="each says by which constants all runs are judged",
                fix="keep one of them",
            )
            raise SpecError([told])

    def refuse(self) -> None:
        """Refuse every option that needs published runs.

        Raises
        ------
        SpecError
            Such an option was given.
        """
        given = {
            "--report": self.report,
            "--leave-out": self.left_out,
            "--leave-one-source-out": self.each_out or None,
            "--no-constants": self.bare or None,
        }
        problems = [
            Problem(
                field=name,
                value=str(value),
                allowed="beside --runs with a table of published runs",
                because="it is about predicted and measured steps of such runs",
                fix=f"add --runs TABLE.csv, or leave {name} out",
            )
            for name, value in given.items()
            if value is not None
        ]
        if problems:
            raise SpecError(problems)
