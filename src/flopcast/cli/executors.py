"""Options of `search` and `sweep` that choose the workers and the file of finished chunks.

Answers: does the search run in one process, in several, or on a Dask cluster, and with which ledger?
Elsewhere: workers and ledgers themselves (workers/).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import FILE, Command, with_all
from flopcast.errors import spec_error

if TYPE_CHECKING:
    from flopcast.workers.executor import AbstractExecutor
    from flopcast.workers.ledger import Ledger
    from flopcast.workers.search_tasks import Search

option = DocumentedOptions(__name__)

MANY_PLANS = 16_384  # with this many plans or more, new interpreters save more than their start costs
SOME_PLANS = 1_024  # the same for copies of this process, which start at once

OPTIONS = (
    option("--workers", type=click.IntRange(min=1)),
    option("--dask", metavar="ADDRESS"),
    option("--ledger", type=FILE),
)


def takes_workers(command: Command) -> Command:
    """Add the options that choose the workers: `workers`, `dask`, `ledger`."""
    return with_all(OPTIONS, command)


@contextmanager
def executor_and_ledger(
    searches: "Sequence[Search]", workers: object, dask: object, ledger: object
) -> "Iterator[tuple[AbstractExecutor, Ledger | None]]":
    """Yield the workers and the ledger that the options choose; close both at the end.

    Raises
    ------
    SpecError
        Options contradict each other, the ledger belongs to another search, or an address does not respond.
    """
    if workers is not None and dask is not None:
        because, fix = "a search runs either on local processes or on Dask", "remove --workers or --dask"
        allowed = "no value together with --workers"
        raise spec_error("--dask", dask, allowed, because, fix)
    with ExitStack() as stack:
        kept = stack.enter_context(_ledger(searches, ledger)) if isinstance(ledger, Path) else None
        executor = _executor(sum(search.num_plans for search in searches), workers, dask)
        stack.callback(executor.close)
        yield executor, kept


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _executor(num_plans: int, workers: object, dask: object) -> "AbstractExecutor":
    if isinstance(dask, str):
        from flopcast.workers.dask_executor import DaskExecutor

        return DaskExecutor(dask)
    from flopcast.workers.worker_process import can_fork

    many = num_plans >= (SOME_PLANS if can_fork() else MANY_PLANS)
    size = workers if isinstance(workers, int) else num_cores() if many else 1
    if size == 1:
        from flopcast.workers.executor import SerialExecutor

        return SerialExecutor()
    from flopcast.workers.process_executor import ProcessExecutor

    return ProcessExecutor(size)


@contextmanager
def _ledger(searches: "Sequence[Search]", path: Path) -> "Iterator[Ledger]":
    """Open the ledger of these searches; report on stderr what it already holds."""
    import json

    from flopcast.workers.ledger import open_ledger
    from flopcast.workers.tasks import program_digest

    searched = json.dumps([search.asked for search in searches])
    with open_ledger(path, searched, program_digest()) as found:
        if found.found:
            chunks = sum(len(search.parts) for search in searches)
            screened = sum(found.get(name) is not None for search in searches for name in search.names)
            screened_text = f"{screened} of {chunks} chunks of plans are already done"
            reused = f"{found.found} results of the interrupted search are reused: {screened_text}"
            click.echo(f"{path}: {reused}", err=True)
        yield found
