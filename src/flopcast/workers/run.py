"""Searches on workers: the order in which tasks are submitted, and the use of their results.

Answers: which task is submitted next, even if a ledger already contains some results, or if the search is
interrupted?
Elsewhere: the tasks of a search and its answer (search_tasks.py), the answer without workers
(search/find.py), tasks (tasks.py), workers (executor.py), the ledger.

Several searches share one executor. A search starts when all tasks of the earlier searches have been
submitted.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter

from flopcast.records import Record, field, replace
from flopcast.search import find
from flopcast.search.chunks import played
from flopcast.search.default_plan import all_usual_plans
from flopcast.search.find import SearchResult
from flopcast.search.settings import CandidatesBySetting
from flopcast.search.top_candidates import Candidate
from flopcast.workers.executor import AbstractExecutor, SerialExecutor
from flopcast.workers.ledger import Ledger
from flopcast.workers.search_tasks import Search, Steps
from flopcast.workers.tasks import KEPT, PLAY, REFINE, SCREEN, Task, book_of

DOING = {SCREEN: "screening", REFINE: "refining", PLAY: "simulating"}


class RunSummary(Record):
    """A finished task: its kind, its weight, and whether an earlier start finished it.

    `weight` is a number of plans: the plans of a chunk, or the simulated plans.
    """

    task: Task
    weight: int
    kept: bool


OnProgress = Callable[[RunSummary], None]


def run(
    searches: Sequence[Search], executor: AbstractExecutor, ledger: Ledger | None, on_progress: OnProgress
) -> Iterator[tuple[int, SearchResult]]:
    """Yield answers as they are found, with the index of their search.

    Raises
    ------
    KeyboardInterrupt
        The user interrupts several searches. A single search instead continues with its results so far: it
        simulates the screened plans, or ranks the simulated plans, and its answer is partial.
    """
    state = _Run(executor, ledger, on_progress)
    waiting = deque(enumerate(searches))
    while waiting or state.searches:
        while waiting and state.num_open < 2 * executor.size:
            place, search = waiting.popleft()
            yield from state.advance(place, search, search.steps(), None)
        if state.num_open:
            try:
                place = state.wait()
            except KeyboardInterrupt:
                if len(searches) > 1:
                    raise
                place = state.break_off()
            yield from state.deliver(place)


def answer(
    search: Search, executor: AbstractExecutor, ledger: Ledger | None, on_progress: find.OnProgress
) -> SearchResult:
    """Return the answer of one question.

    Parameters
    ----------
    search : Search
    executor : AbstractExecutor
        Runs tasks in this process, in other processes, or on other machines.
    ledger : Ledger or None
        Stores the results of this run, and may contain those of an earlier run of the same search.
    on_progress : function
        Called like `told` of `find.find`, which runs a small search in one process.
    """
    if isinstance(executor, SerialExecutor) and ledger is None and len(search.parts) < 2:
        return find.find(search.question, book_of, on_progress)
    done, kept = Counter[str](), Counter[str]()
    heard: list[Candidate] = []
    try:
        told = find.first_look(search.question, search.num_plans, on_progress, heard)
        usual = all_usual_plans(search.question, book_of, KEPT, told)
    except KeyboardInterrupt:  # before anything is screened
        seen = CandidatesBySetting.empty(search.question, seen=heard)
        every = [*played(seen.chosen, book_of, KEPT), *[None] * len(search.question.given)]
        return find.decided(search.question, seen, every, partial=True)
    search = replace(search, usual=usual)

    def hear(did: RunSummary) -> None:
        kind = did.task.kind
        if kind not in DOING:  # the first choice runs beside the screening
            return
        done[kind] += did.weight
        kept[kind] += did.weight if did.kept else 0
        total = sum(weight for name, weight in search.weights.items() if f"/{kind}/" in name)
        best = search.best if kind == SCREEN else ""
        on_progress(
            find.Progress(
                doing=DOING[kind],
                done=done[kind],
                total=total,
                kept=kept[kind],
                best=best,
                processor_s=executor.processor_s,
            )
        )

    ((_, found),) = run([search], executor, ledger, hear)
    return found


class _Open(Record, eq=False, frozen=False, kw_only=False):
    """One search that waits for the results of its tasks."""

    search: Search
    steps: Steps
    missing: set[str]
    left: dict[str, str]


class _Run(Record, eq=False, frozen=False, kw_only=False):
    """The state of a run: open searches, tasks that wait, and those that workers have."""

    executor: AbstractExecutor
    ledger: Ledger | None
    on_progress: OnProgress
    searches: dict[int, _Open] = field(default_factory=dict)
    ready: deque[tuple[int, Task]] = field(default_factory=deque)
    given: dict[str, tuple[int, Task]] = field(default_factory=dict)
    broken_off: bool = False

    @property
    def num_open(self) -> int:
        """Return the number of open tasks."""
        return len(self.ready) + len(self.given)

    def advance(
        self, place: int, search: Search, steps: Steps, left: Mapping[str, str] | None
    ) -> Iterator[tuple[int, SearchResult]]:
        """Send a search the results of its tasks, until it has new tasks or an answer.

        Parameters
        ----------
        place : int
            Number of the search. Tasks of earlier searches are handed out first.
        search : Search
        steps : generator
            The search itself, which yields tasks.
        left : mapping of str or None
            Results by name of the task; None at the beginning.

        Yields
        ------
        tuple
            The place and the result, if the search has ended. Tasks whose results the ledger has are not
            run.
        """
        self.searches.pop(place, None)
        while True:
            try:
                tasks = next(steps) if left is None else steps.send(left)
            except StopIteration as end:
                yield place, end.value
                return
            found = {task.name: self._kept(task.name) for task in tasks}
            left = {name: text for name, text in found.items() if text is not None}
            for task in tasks:
                if task.name in left:
                    search.learn(task, left[task.name])
                    self.on_progress(RunSummary(task=task, weight=search.weights[task.name], kept=True))
                else:
                    self.ready.append((place, task))
            self.ready = deque(sorted(self.ready, key=itemgetter(0)))  # earlier searches end first
            missing = set(found) - set(left)
            if missing:
                self.searches[place] = _Open(search, steps, missing, dict(left))
                return

    def wait(self) -> int:
        """Hand out tasks, wait for one of them and return the place of its search.

        Each worker has up to two tasks, so that none waits for the next one. Bounds for other plans that
        follow from a screened chunk are sent with later tasks (`with_incumbents`).
        """
        while self.ready and len(self.given) < 2 * self.executor.size:
            place, task = self.ready.popleft()
            self.given[task.name] = (place, task)
            self.executor.submit(self.searches[place].search.with_incumbents(task))
        while True:
            name, text = self.executor.next_done()
            if name in self.given:  # else it was asked for before the search was broken off
                break
        place, task = self.given.pop(name)
        one = self.searches[place]
        one.missing.discard(name)
        one.left[name] = text
        one.search.learn(task, text)
        if self.ledger is not None and not self.broken_off:
            self.ledger.keep(name, text)
        self.on_progress(RunSummary(task=task, weight=one.search.weights[name], kept=False))
        return place

    def break_off(self) -> int:
        """End this part of the only search after an interrupt, and return its place.

        Tasks that run are forgotten. The search goes on with the results that it has, so that the user gets
        a partial answer.
        """
        self.broken_off = True
        self.executor.forget()
        self.ready.clear()
        self.given.clear()
        ((place, one),) = self.searches.items()
        one.missing.clear()
        return place

    def deliver(self, place: int) -> Iterator[tuple[int, SearchResult]]:
        """Go on with a search that misses nothing."""
        one = self.searches[place]
        if not one.missing:
            yield from self.advance(place, one.search, one.steps, one.left)

    def _kept(self, name: str) -> str | None:
        """Return the result of a task in the ledger."""
        return self.ledger.get(name) if self.ledger is not None and not self.broken_off else None
