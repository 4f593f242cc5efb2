"""Progress of a search or a sweep on the terminal, and what is said after an interrupt.

Answers: which progress line is shown, and which message and exit code follow an interrupt?
Elsewhere: the commands (search.py, sweep.py), the time that is left (search/time_left.py). Nothing is shown
if stderr is not a terminal that can move its cursor.
"""

import sys
import time
from typing import TYPE_CHECKING

import click

from flopcast.cli.terminal import moves_cursor, width
from flopcast.search.time_left import SearchTime, left, left_text

if TYPE_CHECKING:
    from flopcast.search.find import Progress
    from flopcast.workers.run import RunSummary

BROKEN_OFF, INFEASIBLE = 130, 2
SHOW_EACH_S = 0.2


class Clock:
    """A clock that also keeps a progress line on the terminal, updated a few times a second."""

    def __init__(self) -> None:
        """Start the clock."""
        self._start_s, self._shown_s = time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start_s

    def show(self, since_s: float, text: str) -> None:
        """Show a line, unless the last one was shown a moment ago; `since_s` counts from the start."""
        if moves_cursor(sys.stderr) and since_s - self._shown_s > SHOW_EACH_S:
            self._shown_s, columns = since_s, width() - 1  # the last one would break the line
            click.echo(f"\r{text[:columns]:{columns}}", err=True, nl=False)

    def clear(self) -> None:
        """Clear the line."""
        if moves_cursor(sys.stderr):
            click.echo("\r" + " " * (width() - 1) + "\r", err=True, nl=False)


def broken_off(what: str, ledger: object) -> str:
    """Return the message after an interrupt: what is finished, and how to resume.

    >>> broken_off("2 of 8 scenarios are finished", None)
    'interrupted: 2 of 8 scenarios are finished; nothing is kept: use --ledger FILE to be able to resume'
    """
    again = (
        "run the same command to resume from the ledger"
        if ledger is not None
        else "nothing is kept: use --ledger FILE to be able to resume"
    )
    return f"interrupted: {what}; {again}"


class OfSearch(Clock):
    """Show the progress of a search: its share, the time left, what is done, and the best plan so far."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__()
        self.screening_s: float = 0.0
        self._processor_s = time.process_time()
        self._time, self._best = SearchTime(), ""

    def expect(self, *, workers: int, settings: int) -> None:
        """Say what the search is done with: how many processes, and for how many settings."""
        self._time = SearchTime(workers=workers, settings=settings)

    def __call__(self, progress: "Progress") -> None:
        """Show how far the search is."""
        now_s = self.seconds
        if progress.doing == "screening":
            self.screening_s = now_s
        self._best = progress.best or self._best
        left_s = self._time.left_s(progress, now_s, time.process_time() - self._processor_s)
        share = "" if left_s is None else f"{now_s / (now_s + left_s):.0%}{left_text(left_s)}: "
        line = f"{share}{progress.doing} {progress.done:,} of {progress.total:,} plans"
        self.show(now_s, line + (f"; best so far {self._best}" if self._best else ""))


class OfSweep(Clock):
    """Show the progress of a sweep, with the time left at the present rate of plans."""

    def __init__(self, scenarios: int, plans: int) -> None:
        """Start the clock."""
        super().__init__()
        self._scenarios, self._plans = scenarios, plans
        self._done = self._kept = self.answers = 0

    def __call__(self, did: "RunSummary") -> None:
        """Count a finished task and show the progress."""
        from flopcast.workers.tasks import SCREEN

        if did.task.kind == SCREEN:
            self._done += did.weight
            self._kept += did.weight if did.kept else 0
        since_s = self.seconds
        self.show(since_s, self.text(since_s))

    def text(self, since_s: float) -> str:
        """Return the counts and the time left as text; `since_s` counts from the start."""
        text = f"{self.answers} of {self._scenarios} scenarios, {self._done:,} of {self._plans:,} plans"
        return text + left(since_s, self._done, self._kept, self._plans)
