"""How far a search or a sweep is, told while it runs; and how it ends where it finds nothing, or is ended.

Answers: which line stands on a terminal meanwhile, which time is left, which exit code follows?
Elsewhere: the commands (search.py, sweep.py). A pipe is told nothing on the way.
"""

import sys
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from flopcast.io.workers.run import Did
    from flopcast.search.find import Progress

BROKEN_OFF, INFEASIBLE = 130, 2
SHOW_EACH_S = 0.2
WIDTH = 78


class Clock:
    """Seconds since the start, and a line on the terminal, written anew a few times a second."""

    def __init__(self) -> None:
        """Start."""
        self._start_s, self._shown_s = time.perf_counter(), 0.0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start_s

    def show(self, since_s: float, text: str) -> None:
        """Write the line so long after the start, unless that was a moment ago."""
        if sys.stderr.isatty() and since_s - self._shown_s > SHOW_EACH_S:
            self._shown_s = since_s
            click.echo(f"\r{text:{WIDTH}}", err=True, nl=False)

    def clear(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            click.echo("\r" + " " * WIDTH + "\r", err=True, nl=False)


def left(since_s: float, done: int, kept: int, total: int) -> str:
    """The time that is left, as if the rest were like what this start did; nothing where that is nothing.

    >>> left(10.0, 600, 500, 1000), left(10.0, 500, 500, 1000)
    (', about 40 s left', '')
    """
    return f", about {since_s * (total - done) / (done - kept):.0f} s left" if done > kept else ""


class OfSearch:
    """Beside a search: the time that is left is that of the part that is running."""

    def __init__(self) -> None:
        """Start."""
        self._clock, self._doing, self._part_s = Clock(), "", 0.0
        self.screening_s = 0.0

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self._clock.seconds

    def __call__(self, progress: "Progress") -> None:
        """Hear how far the search is."""
        now = self.seconds
        if progress.doing != self._doing:
            self._doing, self._part_s = progress.doing, now if self._doing else 0.0
        if progress.doing == "screening":
            self.screening_s = now
        if progress.done >= progress.total:
            self._clock.clear()
            return
        told = f"{progress.doing} {progress.done} of {progress.total}"
        told += left(now - self._part_s, progress.done, progress.kept, progress.total)
        self._clock.show(now, told)


class OfSweep:
    """Beside a sweep: the time that is left is that of plans like those so far."""

    def __init__(self, scenarios: int, plans: int) -> None:
        """Start."""
        self._clock, self._scenarios, self._plans = Clock(), scenarios, plans
        self._done = self._kept = self.answers = 0

    def __call__(self, did: "Did") -> None:
        """Hear of a task."""
        from flopcast.io.workers.tasks import SCREEN

        if did.task.kind == SCREEN:
            self._done += did.weight
            self._kept += did.weight if did.kept else 0
        since_s = self._clock.seconds
        self._clock.show(since_s, self.told(since_s))

    def told(self, since_s: float) -> str:
        """Counts, and the time that is left so long after the start."""
        text = f"{self.answers} of {self._scenarios} scenarios, {self._done} of {self._plans} plans"
        return text + left(since_s, self._done, self._kept, self._plans)

    def end(self) -> None:
        """Clear the line."""
        self._clock.clear()
