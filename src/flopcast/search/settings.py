"""The settings of a search: each cluster, size, stack and limit of power that a question names.

Answers: which plans of every setting are simulated exactly, and which is its best plan, or why has it none?
Elsewhere: the best plans of one stream (sieve.py), the best of all settings together (find.py), how the
answer is shown (found_text.py, found_json.py).

A setting keeps its own best plans even if another is cheaper or faster: a user who names two clusters wants
an answer for both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from flopcast.cost.kernels.book import CurveBook
from flopcast.errors import Problem
from flopcast.search.exact import Exact
from flopcast.search.grid import batches_on, plan_at
from flopcast.search.question import Question
from flopcast.search.rank import Ranked
from flopcast.search.refine import Refining, refined
from flopcast.search.sieve import BEST, Sieve, Sifted
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

BEST_OF_EACH = 8  # screened plans of each setting that are simulated exactly in any case
CHECKED = 64  # plans of an impossible setting whose broken rules are counted


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rejected:
    """The plan that breaks fewest rules, if none keeps all of them."""

    plan: Plan
    problems: tuple[Problem, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Setting:
    """One cluster, size, stack and power limit of a search, with its results.

    Attributes
    ----------
    job : Job
        On the cluster, the stack and the site; its plan is not used.
    candidates, possible, feasible : int
        Numbers of plans: of the space; that keep every rule; that also keep every limit, by their
        estimates.
    best : Ranked or None
        Its best plan by the first objective.
    nearest : Ranked or None
        If there is no best plan, the simulated plan that breaks the limits by least.
    rejected : Rejected or None
        The plan that breaks fewest rules, if no plan keeps all of them.
    """

    job: Job
    candidates: int
    possible: int
    feasible: int
    best: Ranked | None = None
    nearest: Ranked | None = None
    rejected: Rejected | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sieves:
    """The best plans so far of every setting, in the order of `Question.sized`."""

    each: tuple[Sieve, ...]

    @classmethod
    def empty(cls, question: Question) -> "Sieves":
        """Return sieves without plans."""
        return cls(each=tuple(Sieve() for _ in question.sized()))

    @property
    def whole(self) -> Sieve:
        """Return the top candidates of all settings together."""
        return reduce(Sieve.joined, self.each)

    def with_one(self, place: int, sieve: Sieve) -> "Sieves":
        """Return the sieves with the one of a setting replaced."""
        return Sieves(each=(*self.each[:place], sieve, *self.each[place + 1 :]))

    def to_play(self) -> tuple[Sifted, ...]:
        """Return the best plans overall and the best few of every setting, each plan once."""
        kept = {one.order: one for one in self.whole.to_play()}
        if len(self.each) > 1:
            for sieve in self._placed():
                few = sieve.best[: self.most_of_each] or tuple(filter(None, (sieve.nearest,)))
                kept |= {one.order: one for one in few if one.order not in kept}
        return tuple(kept.values())

    @property
    def most_of_each(self) -> int:
        """Return the number of plans per setting to simulate in any case; fewer for many settings."""
        return max(1, min(BEST_OF_EACH, BEST // len(self.each)))

    def _placed(self) -> Iterator[Sieve]:
        """Yield the sieves, with plans numbered by their place in the whole space."""
        before = 0
        for sieve in self.each:
            yield sieve.after(before)
            before += sieve.candidates


def screened_each(question: Question, book_of: Callable[[Cluster], CurveBook]) -> Iterator[Sieves]:
    """Screen all plans of a question; yield the sieves after every batch.

    Raises
    ------
    SpecError
        A number of devices does not fill whole nodes.
    """
    sieves = Sieves.empty(question)
    for place, job in enumerate(question.sized()):
        on_job = batches_on(job, question.space)
        for sieve in Sieve().after_each(question, on_job, book_of):
            sieves = sieves.with_one(place, sieve)
            yield sieves


def refined_each(
    sieves: Sieves, asked: Refining, book_of: Callable[[Cluster], CurveBook]
) -> tuple[Job, ...]:
    """Return variants of the best plans overall and of each setting, each variant once."""
    whole = sieves.whole
    best, lacking = ([one.job for one in part] for part in (whole.best, whole.lacking))
    found = list(refined(best, lacking, asked, book_of))
    if len(sieves.each) > 1:
        for sieve in sieves.each:
            few = [one.job for one in sieve.best[: sieves.most_of_each]]
            found += refined(few, [], asked, book_of)
    known = {_key(one.job) for one in sieves.to_play()}
    return tuple({_key(job): job for job in found if _key(job) not in known}.values())


def settings_of(
    question: Question, sieves: Sieves, plans: Sequence[Ranked], broken: Sequence[Ranked], *, partial: bool
) -> tuple[Setting, ...]:
    """Return every setting with its best plan, or with the reason why it has none.

    Parameters
    ----------
    plans : sequence of Ranked
        Feasible plans of all settings.
    broken : sequence of Ranked
        Simulated plans that break a limit, the smallest excess first.
    partial : bool
        Whether the search was interrupted, so that a setting without plans may still have some.
    """
    found = []
    for job, sieve in zip(question.sized(), sieves.each, strict=True):
        here = [one for one in plans if same_setting(one.played, job)]
        best = min(here, key=lambda one: one.losses[0].value, default=None)
        over = (one for one in broken if best is None and same_setting(one.played, job))
        lacks_rules = not sieve.possible and not partial
        found.append(
            Setting(
                job=job,
                candidates=sieve.candidates,
                possible=sieve.possible,
                feasible=sieve.feasible,
                best=best,
                nearest=next(over, None),
                rejected=_rejected(question, job) if lacks_rules else None,
            )
        )
    return tuple(found)


def same_setting(played: Exact, job: Job) -> bool:
    """Return whether a plan was played on the cluster, stack and site of a job."""
    there = played.job
    return (there.cluster, there.stack, there.site) == (job.cluster, job.stack, job.site)


def _key(job: Job) -> tuple[object, ...]:
    """Return the values by which simulated plans are distinguished."""
    return job.cluster, job.stack, job.site, job.plan


def _rejected(question: Question, job: Job) -> Rejected | None:
    """Return the plan of a setting that breaks fewest rules, among a sample from every batch."""
    found: list[Rejected] = []
    for sized, plans in batches_on(job, question.space):
        places = np.unique(np.linspace(0, plans.size - 1, min(4, plans.size)).astype(int))
        for plan in (plan_at(plans, place) for place in places.tolist()):
            problems = check(sized.model_copy(update={"plan": plan}))
            found.append(Rejected(plan=plan, problems=problems))
        if len(found) >= CHECKED:
            break
    return min(found, key=lambda one: len(one.problems), default=None)
