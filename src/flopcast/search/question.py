"""What is asked of a search: jobs, a space of plans, objectives, limits.

Answers: what may be asked together, and what is wrong with a question that makes no sense?
Elsewhere: the space (space.py), objectives (objectives.py), the answer (find.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from flopcast.errors import Problem, SpecError
from flopcast.search.objectives import OBJECTIVES, Objective
from flopcast.search.screen import of_lists
from flopcast.search.space import Space, usual_batch
from flopcast.spec.job import Job
from flopcast.units import Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """What a plan may take at most, in the unit of an objective's loss."""

    name: str
    objective: Objective
    most: Number


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One search.

    Attributes
    ----------
    jobs : tuple of Job
        One for each cluster: alike in all else. Their plans say what the space does not name.
    space : Space
        What may vary, for each of them.
    objectives : tuple of str
        Names of `OBJECTIVES`: plans are ranked by the first, the front is of all of them. One alone has
        memory beside it.
    total_tokens : float
        Of the whole run; 0 where nobody asks how long it takes.
    deadline_s : float or None
        The run must be done by then.

    Raises
    ------
    SpecError
        Every fault of the question at once.
    """

    jobs: tuple[Job, ...]
    space: Space = field(default_factory=Space)
    objectives: tuple[str, ...] = ("step_time",)
    total_tokens: float = 0.0
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        problems = tuple(_faults(self))
        if problems:
            raise SpecError(problems)

    @property
    def asked(self) -> tuple[Objective, ...]:
        """The objectives; where there is one alone, memory beside it."""
        names = self.objectives if len(self.objectives) > 1 else (*self.objectives, "memory")
        return tuple(OBJECTIVES[name] for name in dict.fromkeys(names))

    @property
    def first(self) -> Objective:
        """What plans are ranked by."""
        return self.asked[0]

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What every plan must keep besides memory."""
        if self.deadline_s is None:
            return ()
        return (Limit(name="deadline", objective=OBJECTIVES["time_to_train"], most=self.deadline_s),)

    def sized(self) -> Iterator[Job]:
        """The jobs on clusters of every size."""
        for job in self.jobs:
            yield from self.space.jobs(job)


def _faults(question: Question) -> Iterator[Problem]:
    """Everything that is wrong with a question."""
    if not question.jobs:
        yield _fault("jobs", "none", "at least one job", "plans are made for a job", "give a job")
    for name in question.objectives:
        if name not in OBJECTIVES:
            yield _unknown(name)
    if not question.objectives:
        yield _fault("objectives", "none", ", ".join(OBJECTIVES), "plans are ranked by one", "name one")
    yield from _of_tokens(question)
    for job in question.jobs:
        if job.batch.listed:
            yield of_lists(job)
    known = [OBJECTIVES[name] for name in question.objectives if name in OBJECTIVES]
    if any(objective.per_step for objective in known):
        yield from _of_batches(question)


def _of_tokens(question: Question) -> Iterator[Problem]:
    """Faults of what only a run of so many tokens has."""
    if question.total_tokens < 0:
        yield _fault("tokens", question.total_tokens, "above 0", "a run trains some", "write 2e12")
    needing = [name for name in question.objectives if name in OBJECTIVES and OBJECTIVES[name].needs_tokens]
    needing += ["deadline"] if question.deadline_s is not None else []
    if needing and not question.total_tokens:
        because = f"{needing[0]} is of a whole run"
        yield _fault("tokens", "none", "how many tokens the run trains", because, "add --tokens 2e12")
    if question.deadline_s is not None and question.deadline_s <= 0:
        yield _fault("deadline", question.deadline_s, "above 0 s", "a run takes time", "write 30 d")


def _of_batches(question: Question) -> Iterator[Problem]:
    """Steps of different batches are not comparable."""
    batches = set(question.space.global_batch)
    if not batches:
        try:
            batches = {usual_batch(job) for job in question.sized()}
        except SpecError as error:
            yield from error.problems
    if len(batches) > 1:
        yield _fault(
            "objective",
            "step_time",
            "tokens_per_s, where global batches differ",
            f"a step of {max(batches)} sequences takes longer than one of {min(batches)} by itself",
            "ask for tokens_per_s, or settle one global batch",
        )


def _unknown(name: str) -> Problem:
    """The fault of an objective that there is not, with one that is near."""
    import difflib

    near = difflib.get_close_matches(name, OBJECTIVES, n=1)
    return _fault(
        "objective",
        name,
        ", ".join(OBJECTIVES),
        "plans are ranked by what is known of them",
        f"write {near[0] if near else 'step_time'}",
    )


def _fault(field: str, value: object, allowed: str, because: str, fix: str) -> Problem:
    """One fault of a question."""
    return Problem(field=field, value=value, allowed=allowed, because=because, fix=fix)
