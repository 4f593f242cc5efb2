"""Searches done by workers: which tasks there are, in which order, and what becomes of their results.

Answers: how does a question become tasks, and how do their results become its answer, also when some are in
a ledger already, or the search is broken off?
Elsewhere: the answer without workers (search/find.py), tasks (tasks.py), workers (executor.py), the ledger.

A search is a generator: it yields tasks, and is sent what they left. Screening comes first, then the play
of what it kept. Several searches share one crew: the next starts when the tasks of those before run out.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from operator import itemgetter

from flopcast.search import find
from flopcast.search.chunk_text import question_text, read_candidates, read_exact, read_variants
from flopcast.search.chunks import Chunk, chunks
from flopcast.search.exact import Exact, groups
from flopcast.search.find import SearchResult, decided
from flopcast.search.incumbents import NO_INCUMBENTS
from flopcast.search.question import Question
from flopcast.search.settings import CandidatesBySetting, all_refined, probed_each, to_refine
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.job import Job
from flopcast.workers.executor import AbstractExecutor, SerialExecutor
from flopcast.workers.ledger import Ledger
from flopcast.workers.tasks import (
    PLAY,
    REFINE,
    SCREEN,
    Task,
    book_of,
    jobs_of,
    play_task,
    refine_task,
    screen_task,
)

DOING = {SCREEN: "screening", REFINE: "refining", PLAY: "playing"}
REFINED_TOGETHER = 6  # plans whose variants one task makes: neighbours share much
Steps = Generator[tuple[Task, ...], Mapping[str, str], SearchResult]
PlayTasks = Generator[tuple[Task, ...], Mapping[str, str], list[Exact]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """A task is done: of which kind, how much it counts, and whether an earlier start did it.

    `weight` is plans: those of a chunk, or those that are played.
    """

    task: Task
    weight: int
    kept: bool


OnProgress = Callable[[RunSummary], None]


@dataclass(frozen=True, eq=False, slots=True)
class Search:
    """One question, cut into chunks; `name` starts the names of its tasks."""

    question: Question
    name: str = "0"
    parts: tuple[Chunk, ...] = ()
    weights: dict[str, int] = field(default_factory=dict)  # of tasks by name
    probes: tuple[TopCandidates, ...] = ()  # a first look at each of `Question.sized()`, if there was one

    @property
    def num_plans(self) -> int:
        """Return the number of plans in its space."""
        return sum(chunk.number for chunk in self.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """Return names of the tasks that screen its chunks."""
        return tuple(f"{self.name}/{SCREEN}/{place}" for place in range(len(self.parts)))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that screen its chunks."""
        text = question_text(self.question)
        known = [one.incumbents for one in self.probes]
        return tuple(
            screen_task(name, text, chunk, known[chunk.place] if known else NO_INCUMBENTS)
            for name, chunk in zip(self.names, self.parts, strict=True)
        )

    @property
    def asked(self) -> list[object]:
        """Return everything that determines its answer, as plain data."""
        return [question_text(self.question), [asdict(chunk) for chunk in self.parts]]

    def steps(self) -> Steps:
        """Yield tasks and receive their results; if some are missing, the answer is partial."""
        text, tasks = question_text(self.question), self.tasks
        self.weights.update({task.name: part.number for task, part in zip(tasks, self.parts, strict=True)})
        left = yield tasks
        sized = tuple(self.question.sized())
        candidates_by_setting = CandidatesBySetting.empty(self.question)
        for task, part in zip(tasks, self.parts, strict=True):
            if task.name in left:
                later = read_candidates(left[task.name], sized[part.place])
                candidates_by_setting = candidates_by_setting.with_one(
                    part.place, candidates_by_setting.each[part.place].joined(later)
                )
        every = yield from self._played(text, candidates_by_setting)
        return decided(self.question, candidates_by_setting, every, partial=len(left) < len(tasks))

    def _played(self, text: str, candidates_by_setting: CandidatesBySetting) -> PlayTasks:
        """Yield everything that was kept, simulated, in order; variants are made at the same time."""
        asked = find.asked_variants(self.question)
        parts = to_refine(candidates_by_setting, asked)
        each = [one for part in parts for one in part.each]
        best = [one.job for one in candidates_by_setting.to_play()]
        place_of = self._place_of()
        places = [place_of(one.job) for one in each]
        refining = self._named(REFINE, _strips(len(each)))
        playing = self._named(PLAY, groups(best))
        left = yield (
            *(
                refine_task(name, text, [each[i] for i in members], [places[i] for i in members])
                for name, members in refining.items()
            ),
            *_plays(text, playing, best, place_of),
        )
        found = chain.from_iterable(
            read_variants(left[name], [each[i].job for i in members]) for name, members in refining.items()
        )
        more = [*all_refined(candidates_by_setting, asked, parts, found), *self.question.given]
        others = self._named(PLAY, groups(more), first=len(playing))
        later = (yield _plays(text, others, more, place_of)) if more else {}
        return [*_exact(left, playing, best), *_exact(later, others, more)]

    def _named(
        self, kind: str, members: Sequence[tuple[int, ...]], first: int = 0
    ) -> dict[str, tuple[int, ...]]:
        """Return groups of plans by the names of their tasks, which are numbered from `first` on."""
        found = {f"{self.name}/{kind}/{place}": some for place, some in enumerate(members, first)}
        self.weights.update({name: len(some) for name, some in found.items()})
        return found

    def _place_of(self) -> Callable[[Job], int]:
        """Return a function that says which of `jobs_of` has a job's cluster, stack and site."""
        known = tuple(enumerate(jobs_of(self.question)))
        on = {(job.cluster, job.stack, job.site): place for place, job in reversed(known)}
        return lambda job: on[job.cluster, job.stack, job.site]


def _plays(
    text: str, tasks: Mapping[str, tuple[int, ...]], jobs: Sequence[Job], place_of: Callable[[Job], int]
) -> tuple[Task, ...]:
    places = [place_of(job) for job in jobs]
    return tuple(
        play_task(name, text, [jobs[i] for i in members], [places[i] for i in members])
        for name, members in tasks.items()
    )


def _strips(number: int) -> tuple[tuple[int, ...], ...]:
    """Return this many places, cut into parts of REFINED_TOGETHER."""
    step = REFINED_TOGETHER
    return tuple(tuple(range(number)[first : first + step]) for first in range(0, number, step))


def _exact(
    left: Mapping[str, str], tasks: Mapping[str, tuple[int, ...]], jobs: Sequence[Job]
) -> list[Exact]:
    found: dict[int, Exact] = {}
    for name, members in tasks.items():
        found.update(zip(members, read_exact(left[name], [jobs[i] for i in members]), strict=True))
    return [found[place] for place in range(len(jobs))]


def search_of(question: Question, name: str = "0") -> Search:
    """Return a question, cut into chunks.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
    """
    return Search(question, name, chunks(question))


def run(
    searches: Sequence[Search], executor: AbstractExecutor, ledger: Ledger | None, on_progress: OnProgress
) -> Iterator[tuple[int, SearchResult]]:
    """Yield answers as they are found, with the index of their search.

    Raises
    ------
    KeyboardInterrupt
        Of several searches. A single one then plays what it has screened, and its answer is partial.
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
                if len(searches) > 1 or not state.can_break_off:
                    raise
                place = state.break_off()
            yield from state.deliver(place)


def answer(
    search: Search, executor: AbstractExecutor, ledger: Ledger | None, on_progress: find.OnProgress
) -> SearchResult:
    """Return the answer of one question; progress is reported as by `find.find`, which uses one process."""
    if isinstance(executor, SerialExecutor) and ledger is None:
        return find.find(search.question, book_of, on_progress)
    done, kept = Counter[str](), Counter[str]()
    probes = probed_each(search.question, book_of)
    first = find.first_look(search.question, probes, search.num_plans)
    if first.best:
        on_progress(first)
    search = replace(search, probes=probes)

    def hear(did: RunSummary) -> None:
        kind = did.task.kind
        done[kind] += did.weight
        kept[kind] += did.weight if did.kept else 0
        total = sum(weight for name, weight in search.weights.items() if f"/{kind}/" in name)
        on_progress(replace(first, doing=DOING[kind], done=done[kind], total=total, kept=kept[kind]))

    ((_, found),) = run([search], executor, ledger, hear)
    return found


@dataclass(eq=False, slots=True)
class _Open:
    """One search that waits for the results of its tasks."""

    search: Search
    steps: Steps
    missing: set[str]
    left: dict[str, str]


@dataclass(eq=False, slots=True)
class _Run:
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
        """Send a search the results of its tasks, until it has new tasks or an answer."""
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
                    self.on_progress(RunSummary(task=task, weight=search.weights[task.name], kept=True))
                else:
                    self.ready.append((place, task))
            self.ready = deque(sorted(self.ready, key=itemgetter(0)))  # earlier searches end first
            missing = set(found) - set(left)
            if missing:
                self.searches[place] = _Open(search, steps, missing, dict(left))
                return

    def wait(self) -> int:
        """Hand out tasks, wait for one of them and return the place of its search."""
        while self.ready and len(self.given) < 2 * self.executor.size:
            place, task = self.ready.popleft()
            self.given[task.name] = (place, task)
            self.executor.submit(task)
        while True:
            name, text = self.executor.next_done()
            if name in self.given:  # else it was asked for before the search was broken off
                break
        place, task = self.given.pop(name)
        one = self.searches[place]
        one.missing.discard(name)
        one.left[name] = text
        if self.ledger is not None and not self.broken_off:
            self.ledger.keep(name, text)
        self.on_progress(RunSummary(task=task, weight=one.search.weights[name], kept=False))
        return place

    @property
    def can_break_off(self) -> bool:
        """Return whether the finished tasks are of use without the rest, as while plans are screened."""
        return all(task.kind == SCREEN for _, task in (*self.ready, *self.given.values()))

    def break_off(self) -> int:
        """End the screening of the only search, which then plays plans of the part that was screened."""
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
