"""Progress of a search or a sweep on the terminal, and their exit codes.

Answers: which progress line is shown, how much time is left, which exit code follows an interrupt?
Elsewhere: the commands (search.py, sweep.py). Nothing is shown if stderr is not a terminal.
"""

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

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
        if _on_terminal() and since_s - self._shown_s > SHOW_EACH_S:
            self._shown_s = since_s
            width = _width()
            click.echo(f"\r{text[:width]:{width}}", err=True, nl=False)

    def clear(self) -> None:
        """Clear the line."""
        if _on_terminal():
            click.echo("\r" + " " * _width() + "\r", err=True, nl=False)


def _on_terminal() -> bool:
    """Return whether stderr is a terminal; a process may have been started without any stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def _width() -> int:
    """Return the number of characters that a line of the terminal holds without a break."""
    return shutil.get_terminal_size().columns - 1


def left(since_s: float, done: int, kept: int, total: int) -> str:
    """Return the time left at the present rate, or "" if this process has done nothing yet.

    `done` counts finished parts, `kept` those that a ledger had already.

    >>> left(10.0, 600, 500, 1000), left(10.0, 500, 500, 1000)
    (', about 40 s left', '')
    """
    return f", about {since_s * (total - done) / (done - kept):.0f} s left" if done > kept else ""


class OfSearch(Clock):
    """Show the progress of a search, with the time left in its current part."""

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__()
        self._doing, self._part_s, self.screening_s = "", 0.0, 0.0

    def __call__(self, progress: "Progress") -> None:
        """Show how far the search is."""
        now = self.seconds
        if progress.doing != self._doing:
            self._doing, self._part_s = progress.doing, now if self._doing else 0.0
        if progress.doing == "screening":
            self.screening_s = now
        if progress.done >= progress.total:
            self.clear()
            return
        line = f"{progress.doing} {progress.done} of {progress.total}"
        line += left(now - self._part_s, progress.done, progress.kept, progress.total)
        line += f"; best so far {progress.best}" if progress.best else ""
        self.show(now, line)


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
        text = f"{self.answers} of {self._scenarios} scenarios, {self._done} of {self._plans} plans"
        return text + left(since_s, self._done, self._kept, self._plans)
