"""The search: a space screened in a stream, the best of it played exactly, ranked and explained.

Answers: which plans answer a question best, how sure is that, what would be faster and why is it not
possible?
Elsewhere: the question (question.py), the stream (grid.py, screen.py, sieve.py), the exact play (exact.py),
the order (rank.py), sentences (why.py), how it is shown (found_text.py, found_json.py, found_drawing.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from flopcast.cost.kernels.book import CurveBook
from flopcast.errors import Problem
from flopcast.search.exact import Exact, play_each
from flopcast.search.front import front
from flopcast.search.grid import batches, num_plans, plan_at
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, against, losses_of, ranked
from flopcast.search.refine import Refining, refined
from flopcast.search.room import played_ratio
from flopcast.search.sieve import Sieve
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

NEARLY_RATIO = 1.01
USUAL_ORDER = Plan().rank_order
ASKED = 64  # plans of an impossible space that are asked which rules they break


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a search is: so many of the candidates, or of the plans that are played, are done.

    `kept` of those done are from an earlier start: how fast this one is does not follow from them.
    """

    doing: str  # "screening" or "playing"
    done: int
    total: int
    kept: int = 0


Told = Callable[[Progress], None]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rejected:
    """The plan that breaks fewest rules, where none keeps all of them."""

    plan: Plan
    problems: tuple[Problem, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Found:
    """The answer of a search.

    Attributes
    ----------
    candidates, possible, feasible, played, refined : int
        Plans of the space; that keep every rule; that also keep every limit, as screened; that were played;
        of these, variants of the best (refine.py).
    plans : tuple of Ranked
        Feasible played ones, the recommended first. Empty where nothing is feasible.
    on_front : tuple of Ranked
        Those of them that no other beats in all objectives, by the first one.
    nearest : tuple of Ranked
        Plans that break a limit: those that would be better than the best, the nearest first; or, where
        nothing is feasible, the one that breaks the limits by least.
    given : tuple of Ranked
        The plans of the question's own, feasible or not; none where nothing else is feasible.
    rejected : Rejected or None
        Where no plan keeps the rules.
    thinned : bool
        Whether the front was too long to be played whole.
    partial : bool
        Whether the search was broken off before its end.
    """

    question: Question
    candidates: int
    possible: int
    feasible: int
    played: int
    refined: int = 0
    plans: tuple[Ranked, ...]
    on_front: tuple[Ranked, ...]
    nearest: tuple[Ranked, ...]
    given: tuple[Ranked, ...]
    rejected: Rejected | None
    thinned: bool
    partial: bool


def find(question: Question, book_of: Callable[[Cluster], CurveBook], told: Told | None = None) -> Found:
    """Search.

    Parameters
    ----------
    question : Question
    book_of : callable
        The curves of a cluster; asked once for each batch, so it should remember them.
    told : callable or None
        Hears how far the search is.

    Returns
    -------
    Found
        Where nothing is feasible, without plans, and with the nearest one. KeyboardInterrupt ends the
        screening early: what was seen so far is then played and ranked; a second one ends the play, and
        what was played is ranked. The answer says `partial`.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
    """
    say = told or (lambda _: None)
    sieve, partial = _sifted(question, book_of, say)
    jobs = to_play(question, sieve, book_of)
    played: dict[int, Exact] = {}
    try:
        for place, exact in play_each(jobs, book_of):
            played[place] = exact
            say(Progress(doing="playing", done=len(played), total=len(jobs)))
    except KeyboardInterrupt:
        if not played:
            raise
        partial = True
    return decided(question, sieve, [played.get(place) for place in range(len(jobs))], partial=partial)


def to_play(question: Question, sieve: Sieve, book_of: Callable[[Cluster], CurveBook]) -> tuple[Job, ...]:
    """Jobs that are played exactly: what the sieve kept, variants of its best, plans of one's own."""
    kept = (one.job for one in sieve.to_play())
    return (*kept, *_refined(question, sieve, book_of), *question.given)


def decided(question: Question, sieve: Sieve, played: Sequence[Exact | None], *, partial: bool) -> Found:
    """The answer, when the jobs of `to_play` have been played, in their order; None: it was broken off."""
    own = len(played) - len(question.given)
    every, given = ([one for one in part if one is not None] for part in (played[:own], played[own:]))
    plans = ranked(question, [one for one in every if _over_ratio(question, one) <= 1.0])
    return Found(
        question=question,
        candidates=sieve.candidates,
        possible=sieve.possible,
        feasible=sieve.feasible,
        played=len(every),
        refined=own - len(sieve.to_play()),
        plans=plans,
        on_front=_front(plans),
        nearest=_nearest(question, every, plans),
        given=_beside(question, given, plans),
        rejected=None if sieve.possible or partial else _rejected(question),
        thinned=sieve.thinned or len(sieve.on_front) > sieve.most,
        partial=partial,
    )


def _sifted(question: Question, book_of: Callable[[Cluster], CurveBook], say: Told) -> tuple[Sieve, bool]:
    """Every batch of the space through the sieve, and whether it was broken off."""
    sieve, total = Sieve(), sum(num_plans(job, question.space) for job in question.jobs)
    every = chain.from_iterable(batches(job, question.space) for job in question.jobs)
    try:
        for after in Sieve().after_each(question, every, book_of):
            sieve = after
            say(Progress(doing="screening", done=sieve.candidates, total=total))
    except KeyboardInterrupt:
        return sieve, True
    return sieve, False


def _refined(question: Question, sieve: Sieve, book_of: Callable[[Cluster], CurveBook]) -> tuple[Job, ...]:
    """Variants of the best plans, and of those that would be better but lack memory."""
    space = question.space
    asked = Refining(
        stages=space.refine and not any(job.plan.stage_layers for job in question.jobs),
        recompute=space.refine and len(space.recompute) > 1 and "full" in space.recompute,
        orders=space.refine and all(job.plan.rank_order == USUAL_ORDER for job in question.jobs),
        headroom_fraction=space.headroom_fraction,
    )
    best, lacking = ([one.job for one in part] for part in (sieve.best, sieve.lacking))
    return refined(best, lacking, asked, book_of)


def _over_ratio(question: Question, played: Exact) -> float:
    """The largest of what a played plan needs over what there is."""
    tokens = question.total_tokens
    over = [played_ratio(played, question.space.headroom_fraction)]
    over += [limit.objective.exact(played, tokens).value / limit.most for limit in question.limits]
    return max(over)


def _front(plans: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Plans that no other one beats in everything, by the first objective."""
    if not plans:
        return ()
    here = front(np.array([[loss.value for loss in one.losses] for one in plans]))
    kept = [one for one, stays in zip(plans, here.tolist(), strict=True) if stays]
    return tuple(sorted(kept, key=lambda one: tuple(loss.value for loss in one.losses)))


def _nearest(question: Question, every: Sequence[Exact], plans: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Plans that break a limit and would be better than the best; without a best, the nearest alone."""
    broken = sorted((_over_ratio(question, one), place) for place, one in enumerate(every))
    over = [every[place] for ratio, place in broken if ratio > 1.0]
    losses = [losses_of(question, one) for one in over]
    if not plans:
        return tuple(against(each[0], one, each) for one, each in zip(over[:1], losses, strict=False))
    best = min(plans, key=lambda one: one.losses[0].value).losses[0]
    found = (against(best, one, each) for one, each in zip(over, losses, strict=True))
    return tuple(_each_better(one for one in found if one.ratio < 1.0))


def _beside(question: Question, given: Sequence[Exact], plans: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Plans of the question's own against the best."""
    if not plans:
        return ()
    best = min(plans, key=lambda one: one.losses[0].value).losses[0]
    return tuple(against(best, one, losses_of(question, one)) for one in given)


def _each_better(plans: Iterator[Ranked]) -> Iterator[Ranked]:
    """Of plans that need more and more, those that are better than all before.

    Of several that need nearly the same, the best: whoever finds so much room finds a little more.
    """
    kept: list[Ranked] = []
    for one in plans:
        if not kept or one.losses[0].value < kept[-1].losses[0].value:
            alike = kept and one.played.device_used_bytes < NEARLY_RATIO * kept[-1].played.device_used_bytes
            kept = [*(kept[:-1] if alike else kept), one]
    yield from kept


def _rejected(question: Question) -> Rejected | None:
    """The plan of the space that breaks fewest rules, of some from every batch."""
    found: list[Rejected] = []
    for job in question.jobs:
        for sized, plans in batches(job, question.space):
            places = np.unique(np.linspace(0, plans.size - 1, min(4, plans.size)).astype(int))
            found += [_with_problems(sized, plan_at(plans, place)) for place in places.tolist()]
            if len(found) >= ASKED:
                break
    return min(found, key=lambda one: len(one.problems), default=None)


def _with_problems(job: Job, plan: Plan) -> Rejected:
    """A plan and the rules that it breaks."""
    return Rejected(plan=plan, problems=check(job.model_copy(update={"plan": plan})))
