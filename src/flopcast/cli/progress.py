"""The progress of a search, a sweep or a validation on the terminal, and the message after an interrupt.

Answers: which progress line is shown, and which message and exit code follow an interrupt?
Elsewhere: the commands (search.py, sweep.py, validate.py), the time that is left (search/time_left.py).
Nothing is shown if stderr is not a terminal that can move its cursor.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from flopcast.cli.terminal import moves_cursor, width
from flopcast.search.time_left import FIRST_LOOK, SearchTime, left, left_text

if TYPE_CHECKING:
    from flopcast.search.find import Progress
    from flopcast.workers.run import RunSummary

T = TypeVar("T")
WRONG_INPUT, INFEASIBLE, BROKEN_OFF = 1, 2, 130
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
        """Show a line, unless another line was shown very recently. `since_s` counts from the start."""
        if moves_cursor(sys.stderr) and since_s - self._shown_s > SHOW_EACH_S:
            self._shown_s, columns = since_s, width() - 1  # the last one would break the line
            click.echo(f"\r{text[:columns]:{columns}}", err=True, nl=False)

    def clear(self) -> None:
        """Clear the line."""
        if moves_cursor(sys.stderr):
            click.echo("\r" + " " * (width() - 1) + "\r", err=True, nl=False)


def broken_off(what: str, ledger: object) -> str:
    """Return the message after an interrupt, which states the finished part and how to resume.

    >>> broken_off("2 of 8 scenarios are finished", None)
    'interrupted: 2 of 8 scenarios are finished; partial results are lost; with --ledger FILE, you can
    resume an interrupted search'
    """
    again = "partial results are lost; with --ledger FILE, you can resume an interrupted search"
    if ledger is not None:
        again = "run the same command again to resume the search"
    return f"interrupted: {what}; {again}"


class OfSearch(Clock):
    """Show the progress of a search: the finished share, the time left, the counts, and the best plan so
    far.
    """

    def __init__(self) -> None:
        """Start the clock."""
        super().__init__()
        self.screening_s: float = 0.0
        self._processor_s = time.process_time()
        self._time, self._best = SearchTime(), ""

    def expect(self, *, workers: int, settings: int) -> None:
        """Store how many processes the search uses, and how many settings it tries."""
        self._time = SearchTime(workers=workers, settings=settings)

    def __call__(self, progress: "Progress") -> None:
        """Show how far the search is.

        The share of finished work is estimated from the seconds that are left, since plans that are
        simulated take longer than plans that are screened.
        """
        now_s = self.seconds
        if progress.doing == "screening":
            self.screening_s = now_s
        self._best = progress.best or self._best
        left_s = self._time.left_s(progress, now_s, time.process_time() - self._processor_s)
        share = "" if left_s is None else f"{now_s / (now_s + left_s):.0%}{left_text(left_s)}: "
        line = f"{share}{progress.doing} {progress.done:,} of {progress.total:,} plans"
        if left_s is None and not progress.done:
            line = FIRST_LOOK.format(progress.total)
        self.show(now_s, line + (f"; best so far {self._best}" if self._best else ""))


class OfRuns(Clock):
    """Show how many runs are done and the time left, and print finished results after an interrupt.

    Calling it with a sequence yields its members and counts them. Inside `with OfRuns(...) as watch`, an
    interrupt (Ctrl-C) ends the iteration after the present member, so that the finished results can be
    printed; `interrupted` is then True. A second interrupt ends the command at once. With `whole`, the
    first interrupt also ends the command at once, because finished members have no results of their own.
    """

    def __init__(self, total: int = 0, what: str = "runs", *, whole: str = "") -> None:
        """Start the clock.

        Parameters
        ----------
        total : number of members of all sequences; 0 if each sequence is a pass over all of them
        what : the members are
        whole : what is said after the number of members that are done, if the first interrupt ends all
        """
        super().__init__()
        self._total, self._what, self._whole = total, what, whole
        self._done, self._of, self._since_s = 0, total, 0.0
        self.interrupted = False
        self._before: object = None

    def __enter__(self) -> "OfRuns":
        """Take interrupts; only the main thread can."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Give interrupts back, clear the line, and say how far it came if an interrupt ended it."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
        self.clear()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self._whole:
            click.echo(f"interrupted: {self.counts} are done; {self._whole}", err=True)
            raise click.exceptions.Exit(BROKEN_OFF)

    def _interrupt(self, *_: object) -> None:
        """End the iteration soon, or at once.

        Raises
        ------
        KeyboardInterrupt
            A second time, or if only the whole is a result.
        """
        if self._whole or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def __call__(self, members: Sequence[T]) -> Iterator[T]:
        """Yield the members until an interrupt."""
        if not self._total:
            self._done, self._of, self._since_s = 0, len(members), self.seconds
        for member in members:
            if self.interrupted:
                return
            yield member
            self._done += 1
            self.show(self.seconds, self.line())

    def say(self, text: str, *, err: bool = False) -> None:
        """Print a line instead of the progress line, which is shown again later."""
        self.clear()
        click.echo(text, err=err)

    @property
    def counts(self) -> str:
        """Return the finished part and the whole as text."""
        return f"{self._done:,} of {self._of:,} {self._what}"

    def line(self) -> str:
        """Return the progress line: finished share, time left at the present rate, and counts."""
        since_s = self.seconds - self._since_s
        return f"{self._done / self._of:.0%}{left(since_s, self._done, 0, self._of)}: {self.counts}"

    def end(self) -> None:
        """End the command with a note after it printed a partial result, if it was interrupted.

        Raises
        ------
        click.exceptions.Exit
            It was interrupted.
        """
        if self.interrupted:
            click.echo(f"interrupted: this result is based on {self.counts}", err=True)
            raise click.exceptions.Exit(BROKEN_OFF)


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
