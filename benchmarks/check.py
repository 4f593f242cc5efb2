"""Compare the speed of this tree with its parent commit: `python -m benchmarks check [--against COMMIT]`.

Answers: did a figure take more than 15 % more CPU seconds than at the parent commit?
Elsewhere: the figures themselves (predictions.py, sweeps.py, search.py).

The source of the parent is copied to a temporary folder. The programs of this tree measure the source
of both trees, one after the other in every round, and the medians of five rounds are compared. A figure
that is above the limit is measured once more with as many rounds, and all of its rounds count. Exit
code 1: a figure is above the limit. A figure that the parent cannot run, because its source has other
interfaces, is not judged. This runs on demand: CPU seconds of a busy machine are too uncertain
for a test.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import RUNS, process_s

ROOT = Path(__file__).resolve().parents[1]
LIMIT_RATIO = 1.15
PYTHON = (sys.executable, "-m")
COMMANDS = {  # figure → a process whose CPU seconds are compared
    "help": (*PYTHON, "flopcast", "--help"),
    "cold prediction, plan given": (
        *PYTHON, "flopcast", "predict", "--model", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64",
        "--plan", "dp=32 pp=2 mbs=1 gbs=512",
    ),
    "cold prediction, plan chosen": (
        *PYTHON, "flopcast", "predict", "--model", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "64",
    ),
    "warm predictions of 60 plans": (*PYTHON, "benchmarks.predictions", "--once"),
    "screening of 63,171 plans": (*PYTHON, "benchmarks.search", "llama"),
    "a sweep of 500 scenarios": (*PYTHON, "benchmarks.sweeps", "500"),
}  # fmt: skip
Measure = Callable[[str, Path], float | None]  # figure, tree → seconds; None if the tree cannot run it


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The CPU seconds of one figure in both trees, a value for each round."""

    name: str
    parent_s: tuple[float, ...]
    tree_s: tuple[float, ...]

    @property
    def ratio(self) -> float | None:
        """Return the median of this tree over that of the parent; None if the parent has no value."""
        if not self.parent_s:
            return None
        return statistics.median(self.tree_s) / statistics.median(self.parent_s)

    @property
    def too_slow(self) -> bool:
        """Return whether this tree takes more than the limit."""
        return self.ratio is not None and self.ratio > LIMIT_RATIO


def main(arguments: Sequence[str]) -> int:
    """Print the comparison; return 1 if a figure is above the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks check", description=__doc__.split("\n")[0])
    parser.add_argument("--against", default="HEAD^", metavar="COMMIT", help="default: HEAD^, the parent")
    parser.add_argument("--figure", choices=COMMANDS, action="append", help="only this figure; repeatable")
    given = parser.parse_args(arguments)
    print(f"{'figure':32} {'parent':>9} {'this tree':>10} {'ratio':>7}")
    slow = False
    with checked_out(given.against) as parent:
        for name in given.figure or COMMANDS:
            pair = compared(name, parent, ROOT, processor_s)
            print(line(pair), flush=True)
            slow |= pair.too_slow
    return int(slow)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Yield a temporary folder with the source of a commit; remove it at the end."""
    command = ("git", "-C", str(ROOT), "archive", commit, "src")
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(("tar", "-x", "-C", folder), check=True, input=packed)
        yield Path(folder)


def compared(name: str, parent: Path, tree: Path, measure: Measure, rounds: int = RUNS) -> Pair:
    """Measure a figure in both trees by turns; once more if it is above the limit.

    The first round, which compiles modules, is not counted.
    """
    if measure(name, parent) is None:
        own_s = [measure(name, tree) for _ in range(rounds + 1)]
        return Pair(name=name, parent_s=(), tree_s=_known(name, own_s)[1:])
    measure(name, tree)
    found = _measured(name, parent, tree, measure, rounds)
    if not found.too_slow:
        return found
    again = _measured(name, parent, tree, measure, rounds)
    return Pair(name=name, parent_s=found.parent_s + again.parent_s, tree_s=found.tree_s + again.tree_s)


def _measured(name: str, parent: Path, tree: Path, measure: Measure, rounds: int) -> Pair:
    """Return a figure of both trees; the tree that is measured first changes from round to round."""
    order = [(parent, tree) if number % 2 == 0 else (tree, parent) for number in range(rounds)]
    taken_s = [{place: measure(name, place) for place in places} for places in order]
    parent_s, tree_s = (_known(name, [one[place] for one in taken_s]) for place in (parent, tree))
    return Pair(name=name, parent_s=parent_s, tree_s=tree_s)


def _known(name: str, seconds: Sequence[float | None]) -> tuple[float, ...]:
    """Return measured seconds.

    Raises
    ------
    RuntimeError
        A tree cannot run the figure.
    """
    known = tuple(one for one in seconds if one is not None)
    if len(known) < len(seconds):
        raise RuntimeError(f"the figure {name!r} cannot be measured")
    return known


def processor_s(name: str, tree: Path) -> float | None:
    """Return the CPU seconds of a figure's process with the source of a tree; None if it fails."""
    path = os.pathsep.join((str(tree / "src"), str(ROOT)))
    try:
        return process_s(COMMANDS[name], extra_environment={"PYTHONPATH": path})[0]
    except subprocess.CalledProcessError:
        return None


def line(pair: Pair) -> str:
    """Return a figure's medians, ratio and judgement as a line."""
    own_s = f"{statistics.median(pair.tree_s):8.3f} s"
    if pair.ratio is None:
        return f"{pair.name:32} {'–':>9} {own_s} {'–':>7}  the parent cannot run this"
    text = f"{pair.name:32} {statistics.median(pair.parent_s):7.3f} s {own_s} {pair.ratio:7.3f}"
    return f"{text}  above the limit of {LIMIT_RATIO}" if pair.too_slow else text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
