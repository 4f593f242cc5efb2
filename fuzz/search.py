"""The loop: choose an input by the rarity of its branches, change it, run it, judge it, keep what is new.

Answers: which inputs are tried, which are kept, and how many branches do they reach?
Elsewhere: changes (mutate.py), rules (oracles.py), the process that runs an input (child.py).
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray

from fuzz import branches
from fuzz.child import Child, Ended
from fuzz.kinds import DEVICES, JOBS, Input, examples, kinds
from fuzz.mutate import mutated
from fuzz.oracles import CHECKS, Failure, judge

JOBS_AT_START = 6
POINT_INPUTS = 50  # from one point of the curve to the next
CHECKED_SHARE, SELDOM_SHARE = 0.3, 0.05  # of inputs without a new branch, accepted quickly or not
SLOW = (*JOBS, "open", "predict", "catalogue", "site", "phases", "plan", "log", "runs")
SLOW_SHARE = 0.25  # of the choices that fall on one of these kinds; others choose again
RARE_SHARE = 0.5  # of choices that begin with a rare branch; the others begin with a kind
RULE_TRIES = 3  # of each rule on an input: the search keeps a failure only if one of them shows it
MOST_S = 15.0  # of a minimisation

Clock = Callable[[], bool]  # whether to go on


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The state of a run after so many seconds of a processor."""

    cpu_s: float
    inputs: int
    branches: int


@dataclass(kw_only=True, slots=True)
class Search:
    """What a run has tried, kept and found."""

    random: Random
    guided: bool = True
    child: Child = field(default_factory=Child)
    kept: list[Input] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    curve: list[Point] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)  # inputs of each kind, as the next two
    accepted: Counter[str] = field(default_factory=Counter)
    slowest_cpu_s: dict[str, float] = field(default_factory=dict)
    new: Callable[[Input], object] = str  # told of every input with a new branch
    _examples: list[tuple[Input, Ended]] = field(default_factory=list)
    _hits: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(branches.MOST_BRANCHES, dtype=np.int64)
    )
    _owners: dict[int, list[int]] = field(default_factory=dict)
    _by_kind: dict[str, list[int]] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """Inputs that were run and judged; examples, and what rules try on the way, are not counted."""
        return self.tried.total()

    @property
    def cpu_s(self) -> float:
        """Seconds of a processor that this process and its children took."""
        return time.process_time() + self.child.cpu_s

    @property
    def num_branches(self) -> int:
        """Branches that were reached."""
        return int(np.count_nonzero(self._hits))

    def start(self, more: list[Input]) -> None:
        """Run the examples, and what an earlier run kept."""
        from fuzz.jobs import job_inputs

        made = [one for seed, kind in enumerate(JOBS) for one in job_inputs(seed, JOBS_AT_START, kind)]
        self._examples = [self._accepted(one) for one in [*examples(), *made]]
        for one, ended in self._examples:
            self._keep(one, ended)
        for one in more:
            self.try_input(one)

    def start_like(self, other: "Search") -> None:
        """Begin with the examples that another search ran; they are not run again."""
        for one, ended in other._examples:
            self._keep(one, ended)

    def _accepted(self, one: Input) -> tuple[Input, Ended]:
        """An example on the fewest devices that are accepted, on 8 where none is."""
        for devices in DEVICES if kinds()[one.kind].is_import else DEVICES[:1]:
            tried = replace(one, devices=devices)
            ended = self.child.run(tried)
            if ended.code == 0:
                return tried, ended
        return one, self.child.run(one)

    def go(self, clock: Clock) -> None:
        """Change inputs until the clock says no."""
        while clock():
            self.try_input(self._next())

    def try_input(self, one: Input) -> None:
        """Run an input, judge it, and keep it where it reaches a new branch."""
        ended = self.child.run(one)
        self.tried[one.kind] += 1
        self.accepted[one.kind] += ended.code == 0
        self.slowest_cpu_s[one.kind] = max(self.slowest_cpu_s.get(one.kind, 0.0), ended.cpu_s)
        if self.inputs % POINT_INPUTS == 1:
            self.mark()
        failure = judge(one, ended)
        if failure is not None:
            self._fail(failure)
            return
        is_new = bool((self._hits[ended.branches] == 0).any())
        if is_new:
            self.new(one)
        if is_new and self.guided:
            self._keep(one, ended)
        self._hits[ended.branches] += 1
        often = ended.code == 0 and one.kind not in SLOW
        if is_new or self.random.random() < (CHECKED_SHARE if often else SELDOM_SHARE):
            for check in CHECKS:
                broken = check(self.random, self.child, one, ended)
                if broken is not None:
                    self._fail(broken)

    def mark(self) -> None:
        """Add a point to the curve."""
        self.curve.append(Point(cpu_s=self.cpu_s, inputs=self.inputs, branches=self.num_branches))

    def _keep(self, one: Input, ended: Ended) -> None:
        number = len(self.kept)
        self.kept.append(one)
        self._by_kind.setdefault(one.kind, []).append(number)
        self._hits[ended.branches] += 1
        for branch in ended.branches.tolist():
            self._owners.setdefault(branch, []).append(number)

    def _next(self) -> Input:
        """A changed input: of an owner of a rare branch, or of any kind."""
        one = self._chosen()
        while one.kind in SLOW and self.random.random() >= SLOW_SHARE:
            one = self._chosen()
        return mutated(self.random, one, self.kept[self.random.choice(self._by_kind[one.kind])])

    def _chosen(self) -> Input:
        if self.guided and self.random.random() < RARE_SHARE:
            found = np.fromiter(self._owners, dtype=np.int64)
            (branch,) = self.random.choices(found.tolist(), (1.0 / self._hits[found]).tolist())
            return self.kept[self.random.choice(self._owners[branch])]
        return self.kept[self.random.choice(self._by_kind[self.random.choice(list(self._by_kind))])]

    def _fail(self, failure: Failure) -> None:
        """Note a failure with a new name, as small as a few tries make it."""
        if failure.name in self.failures:
            return
        self.child.end()  # what ran before may be the cause
        if self._again(failure.input, failure.name):
            self.failures[failure.name] = minimised(failure, lambda one: self._again(one, failure.name))

    def _again(self, one: Input, name: str) -> bool:
        return any(failure.name == name for failure in replay(self.child, one))


def replay(child: Child, one: Input) -> Iterator[Failure]:
    """Every failure of an input: of its end, or of RULE_TRIES tries of each rule about changed inputs."""
    ended = child.run(one)
    failure = judge(one, ended)
    if failure is not None:
        yield failure
        return
    for number in range(RULE_TRIES):
        for check in CHECKS:
            broken = check(Random(number), child, one, ended)
            if broken is not None:
                yield broken


def minimised(failure: Failure, fails: Callable[[Input], bool]) -> Failure:
    """Drop lines, then words, in ever smaller runs, while the failure stays and time is left."""
    best, end_s = failure.input, time.monotonic() + MOST_S
    ways = (lambda data: data.splitlines(keepends=True), lambda data: re.split(rb"(?<=[^\w.])", data))
    for parts in ways:
        size = max(len(parts(best.data)) // 2, 1)
        while size:
            pieces, start = parts(best.data), 0
            while start < len(pieces) and time.monotonic() < end_s:
                tried = replace(best, data=b"".join(pieces[:start] + pieces[start + size :]))
                if tried.data and fails(tried):
                    best, pieces = tried, parts(tried.data)
                else:
                    start += size
            size //= 2
    return replace(failure, input=best)
