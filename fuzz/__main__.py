"""Search for inputs that flopcast handles wrongly: python -m fuzz --minutes 10 --seed 1.

Prints inputs, branches and failures as they come; at the end, how many inputs of each kind were accepted,
and the branches that the search and that random jobs (benchmarks/random_jobs.py) reached in the same
processor time, which does not depend on what else the machine does. Failures are made small and written to
fuzz/found, where tests/test_fuzz.py runs them again. Exit code 1: there are new failures.
"""

import argparse
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from fuzz import branches

branches.install()

from fuzz.child import warm_up  # noqa: E402
from fuzz.kinds import FOUND, ROOT, keep, kept  # noqa: E402
from fuzz.search import Point, Search, replay  # noqa: E402

if TYPE_CHECKING:
    from fuzz.oracles import Failure

KEPT = ROOT / ".fuzz"
REPORT_S = 15.0
ROWS = 10  # of the curves


def main() -> None:
    """Run the search, and print what it found."""
    options = arguments()
    warm_up()
    again = replayed() if options.replay else {}
    if options.replay and options.minutes is None and options.inputs is None:
        sys.exit(bool(again))
    search = Search(random=Random(options.seed))
    search.new = lambda one: keep(options.corpus, one) if options.corpus else None
    random_jobs = None
    if options.minutes and not options.no_random_jobs:
        random_jobs = RandomJobs(options.seed, options.minutes)
    for number in (signal.SIGINT, signal.SIGTERM):  # which a shell may have switched off
        signal.signal(number, signal.default_int_handler)
    try:
        search.start(kept(options.corpus) if options.corpus else [])
        search.go(Progress(search, options.minutes, options.inputs))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        if random_jobs:
            random_jobs.stop()
    search.child.end()
    search.mark()
    unguided = unguided_branches(search, options.seed) if options.unguided else None
    if options.json:
        print(json.dumps(as_data(search) | {"replayed": again, "unguided_branches": unguided}))
    else:
        print(summary(search, random_jobs.points() if random_jobs else [], options.corpus))
        if unguided is not None:
            print(f"\n{unguided} branches without guidance, by as many inputs")
    if not options.dry:
        for failure in search.failures.values():
            keep(FOUND, failure.input, slug(failure.name))
    sys.exit(1 if search.failures or again else 0)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="./dev fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="stop after so many minutes of a processor; the default is 10, without --inputs",
    )
    parser.add_argument("--inputs", type=int, help="stop after so many inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, default=KEPT, help="folder of inputs to go on with; .fuzz")
    parser.add_argument(
        "--fresh", action="store_const", const=None, dest="corpus", help="keep no such folder"
    )
    parser.add_argument(
        "--unguided",
        action="store_true",
        help="then change the examples alone, as often, and print how many branches that reaches",
    )
    parser.add_argument("--no-random-jobs", action="store_true", help="print no curve of random jobs")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="first run fuzz/found again; without --minutes and --inputs, nothing else",
    )
    parser.add_argument("--dry", action="store_true", help="write no failures to fuzz/found")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    options = parser.parse_args()
    if options.minutes is None and options.inputs is None and not options.replay:
        options.minutes = 10.0
    return options


class Progress:
    """Decides whether to go on, and prints progress."""

    def __init__(self, search: Search, minutes: float | None, inputs: int | None) -> None:
        self._search, self._inputs = search, inputs
        self._most_cpu_s = 60 * minutes if minutes else float("inf")
        self._next_s = time.monotonic() + REPORT_S
        self._printed = 0  # failures

    def __call__(self) -> bool:
        """Return whether time and inputs are left."""
        now_s, found = time.monotonic(), self._search
        for failure in list(found.failures.values())[self._printed :]:
            print("\n".join(lines_of(failure)), file=sys.stderr)
        self._printed = len(found.failures)
        if now_s >= self._next_s:
            self._next_s = now_s + REPORT_S
            print(
                f"{found.cpu_s:5.0f} s {found.inputs:7} inputs {found.num_branches:6} branches"
                f" {len(found.kept):5} kept {len(found.failures):3} failures",
                file=sys.stderr,
            )
        in_time = self._search.cpu_s < self._most_cpu_s
        return in_time and (self._inputs is None or self._search.inputs < self._inputs)


class RandomJobs:
    """Random jobs under the same laws, in a second process, for as much processor time."""

    def __init__(self, seed: int, minutes: float) -> None:
        context = multiprocessing.get_context("fork")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_random_jobs, args=(there, seed, 60 * minutes), daemon=True)
        self._process.start()
        there.close()

    def stop(self) -> None:
        """End the process now."""
        self._process.kill()

    def points(self) -> list[Point]:
        """Wait for the process to end, and return its curve."""
        found: list[Point] = []
        with suppress(EOFError):
            while True:
                found.append(self._here.recv())
        self._process.join()
        return found


def _random_jobs(connection: Connection, seed: int, most_cpu_s: float) -> None:
    """Try random jobs, as they are, in this process; send how many branches they have reached."""
    from benchmarks.random_jobs import random_jobs
    from flopcast.jobs import dump_job
    from fuzz.jobs import CHECKS

    seen, sent_s = set(branches.taken().tolist()), 0.0
    for number, job in enumerate(random_jobs(seed)):
        for check in CHECKS.values():
            check(dump_job(job).encode())
        seen |= set(branches.taken().tolist())
        cpu_s = time.process_time()
        if cpu_s >= sent_s + 1.0 or cpu_s >= most_cpu_s:
            connection.send(Point(cpu_s=cpu_s, inputs=number + 1, branches=len(seen)))
            sent_s = cpu_s
        if cpu_s >= most_cpu_s:
            return


def slug(name: str) -> str:
    """Return a name of a failure as a part of a file name."""
    return "-".join("".join(c if c.isalnum() else " " for c in name).split())[:80]


def replayed() -> dict[str, str]:
    """Run every input of fuzz/found again, print its failures, and return their texts by input and name."""
    from fuzz.child import Child

    child, failed = Child(), {}
    for one in kept(FOUND):
        for failure in islice(replay(child, one), 1):
            name = f"{one.kind}/{one.name}: {failure.name}"
            failed[name] = failure.text[-3000:]
            print(f"{name}\n{failed[name]}\n", file=sys.stderr)
    child.end()
    return failed


def unguided_branches(search: Search, seed: int) -> int:
    """Return how many branches as many inputs reach if they change the examples alone."""
    other = Search(random=Random(seed), guided=False)
    other.start_like(search)
    other.go(lambda: other.inputs < search.inputs)
    other.child.end()
    search.failures |= other.failures
    return other.num_branches


def as_data(search: Search) -> dict[str, object]:
    """Return the summary as plain data."""
    return {
        "inputs": search.inputs,
        "branches": search.num_branches,
        "accepted": sum(search.accepted.values()),
        "slowest_cpu_s": search.slowest_cpu_s,
        "failures": {name: failure.text[-3000:] for name, failure in search.failures.items()},
    }


def summary(search: Search, others: list[Point], corpus: Path | None) -> str:
    """Return failures, counts and both curves as text."""
    lines = [line for failure in search.failures.values() for line in lines_of(failure)]
    lines += [f"{'kind':18} {'inputs':>7} {'accepted':>9} {'slowest':>9}"]
    for kind, number in sorted(search.tried.items()):
        lines.append(f"{kind:18} {number:7} {search.accepted[kind]:9} {search.slowest_cpu_s[kind]:7.2f} s")
    slowest_s, accepted = max(search.slowest_cpu_s.values()), sum(search.accepted.values())
    lines += [
        f"{'all':18} {search.inputs:7} {accepted:9} {slowest_s:7.2f} s",
        "",
        f"{search.num_branches} of {len(branches.PLACES)} branches, {len(search.failures)} failures",
        "",
        f"{'seconds of CPU':>14} {'inputs':>8} {'branches':>9}   {'random jobs':>11} {'branches':>9}",
    ]
    last_s = search.curve[-1].cpu_s
    for row in range(1, ROWS + 1):
        mine, theirs = (at(curve, last_s * row / ROWS) for curve in (search.curve, others))
        numbers = f"{mine.inputs:8} {mine.branches:9}   {theirs.inputs:11} {theirs.branches:9}"
        lines.append(f"{last_s * row / ROWS:14.0f} {numbers}")
    if corpus:
        lines += ["", f"{corpus} holds what reached new branches: the next run goes on with it"]
    return "\n".join(lines)


def lines_of(failure: "Failure") -> Iterator[str]:
    """Return a failure in a few lines."""
    yield f"{failure.name}: {len(failure.input.data)} bytes, for {failure.input.devices} devices"
    yield from (f"    {line}" for line in failure.text[-2000:].splitlines())
    yield ""


def at(curve: list[Point], cpu_s: float) -> Point:
    """Return the last point before a time."""
    before = [point for point in curve if point.cpu_s <= cpu_s]
    return before[-1] if before else Point(cpu_s=0.0, inputs=0, branches=0)


if __name__ == "__main__":
    main()
