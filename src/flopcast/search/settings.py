"""The settings of a search: each cluster, size, stack and limit of power that a question names.

Answers: which plans of every setting are played, and which is its best plan, or why has it none?
Elsewhere: what is kept of one stream of plans (sieve.py), the best of all settings together (find.py), how
the answer is shown (found_text.py, found_json.py).

A setting that is dearer or slower than another keeps its own best plans: a reader who names two clusters
wants to know what each of them can do.
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

BEST_OF_EACH = 8  # screened plans of each setting that are played, whatever the others reach
CHECKED = 64  # plans of an impossible setting whose broken rules are counted


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rejected:
    """The plan that breaks fewest rules, where none keeps all of them."""

    plan: Plan
    problems: tuple[Problem, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Setting:
    """One cluster, size, stack and limit of power that was asked for, and what the search found there.

    Attributes
    ----------
    job : Job
        On the cluster, the stack and the site; its plan is not used.
    candidates, possible, feasible : int
        Plans of the space on this setting; that keep every rule; that also keep every limit, as screened.
    best : Ranked or None
        Its best plan by the first objective.
    nearest : Ranked or None
        Where there is no best plan: the played one that breaks the limits by least.
    rejected : Rejected or None
        Where no plan keeps the rules.
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
    """What is left of the plans of every setting, in the order of `Question.sized`."""

    each: tuple[Sieve, ...]

    @classmethod
    def empty(cls, question: Question) -> "Sieves":
        """Sieves that have seen nothing."""
        return cls(each=tuple(Sieve() for _ in question.sized()))

    @property
    def whole(self) -> Sieve:
        """The sieve of all settings together."""
        return reduce(Sieve.joined, self.each)

    def with_one(self, place: int, sieve: Sieve) -> "Sieves":
        """The sieves with that of one setting replaced."""
        return Sieves(each=(*self.each[:place], sieve, *self.each[place + 1 :]))

    def to_play(self) -> tuple[Sifted, ...]:
        """Plans that the whole search keeps, and the best few of every setting, each plan once."""
        kept = {one.order: one for one in self.whole.to_play()}
        if len(self.each) > 1:
            for sieve in self._placed():
                few = sieve.best[: self.most_of_each] or tuple(filter(None, (sieve.nearest,)))
                kept |= {one.order: one for one in few if one.order not in kept}
        return tuple(kept.values())

    @property
    def most_of_each(self) -> int:
        """How many plans of each setting are played in any case: fewer where there are many settings."""
        return max(1, min(BEST_OF_EACH, BEST // len(self.each)))

    def _placed(self) -> Iterator[Sieve]:
        """The sieves with the places that their plans have in the whole space."""
        before = 0
        for sieve in self.each:
            yield sieve.after(before)
            before += sieve.candidates


def screened_each(question: Question, book_of: Callable[[Cluster], CurveBook]) -> Iterator[Sieves]:
    """Screen all plans of a question: the sieves after every batch.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
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
    """Variants of the best plans of all settings together, and of each setting, each variant once."""
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
    """Every setting with its best plan, or what stands in the way of one.

    Parameters
    ----------
    plans : sequence of Ranked
        Feasible plans of all settings.
    broken : sequence of Ranked
        Played plans that break a limit, those that break it by least first.
    partial : bool
        Whether the search was broken off: a setting without plans may then have some.
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
    """Whether a plan was played on the cluster, the stack and the site of a job."""
    there = played.job
    return (there.cluster, there.stack, there.site) == (job.cluster, job.stack, job.site)


def _key(job: Job) -> tuple[object, ...]:
    """What tells one played plan from another."""
    return job.cluster, job.stack, job.site, job.plan


def _rejected(question: Question, job: Job) -> Rejected | None:
    """The plan of a setting that breaks fewest rules, of some from every batch."""
    found: list[Rejected] = []
    for sized, plans in batches_on(job, question.space):
        places = np.unique(np.linspace(0, plans.size - 1, min(4, plans.size)).astype(int))
        for plan in (plan_at(plans, place) for place in places.tolist()):
            problems = check(sized.model_copy(update={"plan": plan}))
            found.append(Rejected(plan=plan, problems=problems))
        if len(found) >= CHECKED:
            break
    return min(found, key=lambda one: len(one.problems), default=None)
