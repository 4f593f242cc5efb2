"""One search as tasks, in which workers screen, refine and simulate plans, and the combination of their
results.

Answers: how does a question become tasks, and how do their results become its answer?
Elsewhere: the order of tasks (run.py), the work of a task (tasks.py), the answer without workers
(search/find.py).

A search is a generator that yields tasks and receives their results. First, plans are screened; then, the
kept plans are simulated.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain

from flopcast.records import Record, field
from flopcast.search.chunk_text import (
    question_text,
    read_candidates,
    read_choice,
    read_exact,
    read_variants,
)
from flopcast.search.chunks import Chunk, chunks, played
from flopcast.search.default_plan import UsualPlans
from flopcast.search.exact import Exact, groups
from flopcast.search.find import SearchResult, best_so_far, decided
from flopcast.search.pruning import NO_INCUMBENTS, Incumbents
from flopcast.search.question import Question
from flopcast.search.refine import asked_variants
from flopcast.search.settings import CandidatesBySetting, all_refined, to_refine
from flopcast.search.top_candidates import TopCandidates
from flopcast.spec.job import Job
from flopcast.workers.tasks import (
    CHOOSE,
    KEPT,
    PLAY,
    REFINE,
    SCREEN,
    Task,
    book_of,
    choose_task,
    jobs_of,
    play_task,
    refine_task,
    screen_task,
)

FEW_PLAYED = 4  # plans that a search simulates that was broken off before any of them was
GOLDEN_RATIO = (5**0.5 - 1) / 2
REFINED_TOGETHER = 6  # plans whose variants one task makes: neighbours share much
Steps = Generator[tuple[Task, ...], Mapping[str, str], SearchResult]
PlayTasks = Generator[tuple[Task, ...], Mapping[str, str], list[Exact | None]]


class Search(Record, eq=False, kw_only=False):
    """One question, divided into chunks. The names of its tasks begin with `name`.

    Until all chunks are finished, `screened` contains the best plans of the finished chunks, by the names
    of their tasks. `known` contains the bounds for other plans that follow from these chunks, by the
    position of their setting.
    """

    question: Question
    name: str = "0"
    parts: tuple[Chunk, ...] = ()
    weights: dict[str, int] = field(default_factory=dict)  # of tasks by name
    usual: tuple[UsualPlans, ...] = ()  # of each of `Question.sized()`; if empty, workers find them
    screened: dict[str, TopCandidates] = field(default_factory=dict)
    known: dict[int, Incumbents] = field(default_factory=dict)

    @property
    def num_plans(self) -> int:
        """Return the number of plans in its space."""
        return sum(chunk.number for chunk in self.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tasks that screen its chunks."""
        return tuple(f"{self.name}/{SCREEN}/{place}" for place in range(len(self.parts)))

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks that screen its chunks."""
        text = question_text(self.question)
        return tuple(
            screen_task(name, text, chunk, self._known(chunk.place))
            for name, chunk in zip(self.names, self.parts, strict=True)
        )

    def with_incumbents(self, task: Task) -> Task:
        """Return a task that screens a chunk, with all incumbents known so far. Other tasks do not change.

        The better the incumbents, the fewer plans of the chunk are estimated. The answer does not depend on
        them.
        """
        if task.kind != SCREEN:
            return task
        chunk = self._chunk_of(task)
        return screen_task(task.name, task.question, chunk, self._known(chunk.place))

    def learn(self, task: Task, text: str) -> None:
        """Store the result of a task that screened a chunk."""
        if task.kind == SCREEN:
            place = self._chunk_of(task).place
            found = read_candidates(text, tuple(self.question.sized())[place])
            self.screened[task.name] = found
            self.known[place] = self._known(place).joined(found.incumbents)

    @property
    def best(self) -> str:
        """Return the best plan so far with its estimate, or ""."""
        return best_so_far(self.question, self.usual, tuple(self.screened.values()))

    def _known(self, place: int) -> Incumbents:
        """Return what is known about the plans of one of `Question.sized()`."""
        usual = self.usual[place].incumbents if self.usual else NO_INCUMBENTS
        return self.known.get(place, usual)

    def _chunk_of(self, task: Task) -> Chunk:
        """Return the chunk that a task screens."""
        return self.parts[self.names.index(task.name)]

    @property
    def asked(self) -> list[object]:
        """Return everything that determines the answer, as plain data."""
        return [question_text(self.question), [asdict(chunk) for chunk in self.parts]]

    def steps(self) -> Steps:
        """Yield tasks and receive their results. If results are missing, the answer is partial.

        Screening comes first, in an order that spreads over the space, together with the first choice of
        each setting if it is not known yet. Refinement and simulation of the kept plans follow.

        Returns
        -------
        SearchResult
            The value with which the generator stops.
        """
        text, tasks = question_text(self.question), self.tasks
        self.weights.update({task.name: part.number for task, part in zip(tasks, self.parts, strict=True)})
        sized = tuple(self.question.sized())
        names = tuple(f"{self.name}/{CHOOSE}/{place}" for place in range(len(sized)))
        self.weights.update(dict.fromkeys(names, 1))
        choosing = tuple(
            choose_task(name, text, place, self.usual[place] if self.usual else None)
            for place, name in enumerate(names)
        )
        left = yield (*choosing, *(tasks[place] for place in spread(len(tasks))))
        choices = zip(names, sized, strict=True)
        first = [read_choice(left[name], job) for name, job in choices if name in left]
        seen = [
            plans.best
            for plans, name in zip(self.usual, names, strict=False)
            if plans.best is not None and name not in left
        ]
        candidates_by_setting = CandidatesBySetting.empty(self.question, first, seen)
        for task, part in zip(tasks, self.parts, strict=True):
            if task.name in left:
                later = self.screened[task.name]
                candidates_by_setting = candidates_by_setting.with_one(
                    part.place, candidates_by_setting.each[part.place].joined(later)
                )
        self.screened.clear()
        every = yield from self._played(text, candidates_by_setting)
        partial = len(left) < len(tasks) + len(choosing) or None in every
        return decided(self.question, candidates_by_setting, every, partial=partial)

    def _played(self, text: str, candidates_by_setting: CandidatesBySetting) -> PlayTasks:
        """Yield everything that was kept, simulated, in order; variants are made at the same time.

        Plans that the first choices have simulated are not simulated again. Plans whose results are
        missing, because the search was broken off, are None; variants are then left out. If no plan was
        simulated by then, the best few are simulated here.
        """
        asked = asked_variants(self.question)
        parts = to_refine(candidates_by_setting, asked)
        each = [one for part in parts for one in part.each]
        best = candidates_by_setting.to_play()
        exact = candidates_by_setting.known(best)
        new = [job for job, one in zip(best, exact, strict=True) if one is None]
        place_of = self._place_of()
        places = [place_of(one.job) for one in each]
        refining = self._named(REFINE, _strips(len(each)))
        playing = self._named(PLAY, groups(new))
        left = yield (
            *(
                refine_task(name, text, [each[i] for i in members], [places[i] for i in members])
                for name, members in refining.items()
            ),
            *_plays(text, playing, new, place_of),
        )
        exact = _completed(exact, _exact(left, playing, new))
        if len(left) < len(refining) + len(playing):
            if not any(exact):
                exact[:FEW_PLAYED] = played(best[:FEW_PLAYED], book_of, KEPT)
            return [*exact, *[None] * len(self.question.given)]
        found = chain.from_iterable(
            read_variants(left[name], [each[i].job for i in members]) for name, members in refining.items()
        )
        refined = all_refined(candidates_by_setting, asked, parts, found)
        known = [*candidates_by_setting.known(refined), *[None] * len(self.question.given)]
        more = [
            job for job, one in zip((*refined, *self.question.given), known, strict=True) if one is None
        ]
        others = self._named(PLAY, groups(more), first=len(playing))
        later = (yield _plays(text, others, more, place_of)) if more else {}
        return [*exact, *_completed(known, _exact(later, others, more))]

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
) -> list[Exact | None]:
    """Return the simulated plans in the order of their jobs; None where a result is missing."""
    found: dict[int, Exact] = {}
    for name, members in tasks.items():
        if name in left:
            found.update(zip(members, read_exact(left[name], [jobs[i] for i in members]), strict=True))
    return [found.get(place) for place in range(len(jobs))]


def _completed(known: Sequence[Exact | None], later: Sequence[Exact | None]) -> list[Exact | None]:
    """Return simulated plans with those that were missing, which are given in the same order."""
    rest = iter(later)
    return [next(rest) if one is None else one for one in known]


def spread(number: int) -> list[int]:
    """Return all positions in an order whose beginning is always spread evenly, by multiples of the golden
    ratio.

    Chunks of one region of a space take similar times, but those of other regions may take much less or
    more. In this order, the finished part always shows how long the rest takes, and an interrupted search
    has screened a part of every region.

    >>> spread(8)
    [0, 5, 2, 7, 4, 1, 6, 3]
    """
    return sorted(range(number), key=lambda place: place * GOLDEN_RATIO % 1.0)


def search_of(question: Question, name: str = "0") -> Search:
    """Return a question, divided into chunks.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
    """
    return Search(question, name, chunks(question))
