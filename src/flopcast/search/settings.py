"""The settings of a search: each combination of cluster, size, stack and power limit.

Answers: which plans of every setting are simulated, and which plan is the best, or why is no plan feasible?
Elsewhere: the best plans of one stream (top_candidates.py), the best of all settings together (find.py),
how the answer is shown (render/search_text.py, render/search_json.py).

A setting keeps its best plans even if another setting is cheaper or faster, because a user who names two
clusters wants an answer for both.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import islice

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.economics.run import Phase
from flopcast.errors import Problem
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record, replace
from flopcast.search.default_plan import FirstChoice, UsualPlans
from flopcast.search.evolved_plans import evolved
from flopcast.search.exact import Exact
from flopcast.search.grid import batches_on, plan_at
from flopcast.search.objectives import run_of
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, ranked
from flopcast.search.refine import Refinement, Refining, Variants, gathered, refinements
from flopcast.search.top_candidates import BEST, Candidate, TopCandidates
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.units import show_seconds, show_usd
from flopcast.workload.checks import check

BEST_OF_EACH = 8  # screened plans of each setting that are simulated exactly in any case
CHECKED = 64  # plans of an impossible setting whose broken rules are counted


class RejectedPlan(Record, eq=False):
    """The plan that breaks the fewest rules, if no plan keeps all of them."""

    plan: Plan
    problems: tuple[Problem, ...]


class Setting(Record, eq=False, repr=False):
    """One cluster, size, stack and power limit of a search, with its results.

    Attributes
    ----------
    job : Job
        The job on this cluster, with this stack and site. Its plan is not used.
    candidates, possible, feasible : int
        Numbers of plans. `candidates`: all plans of the space. `possible`: those that keep every rule.
        `feasible`: those of them that keep every limit, by estimates.
    best : Ranked or None
        The recommended plan by the first objective (rank.py). Its ratio refers to the best plan of all
        settings.
    run : Phase or None
        The whole run with the best plan, if the question has the tokens of the run.
    nearest : Ranked or None
        If there is no best plan, the simulated plan that exceeds the limits least.
    rejected : RejectedPlan or None
        The plan that breaks fewest rules, if no plan keeps all of them.
    """

    job: Job
    candidates: int
    possible: int
    feasible: int
    best: Ranked | None = None
    run: Phase | None = None
    nearest: Ranked | None = None
    rejected: RejectedPlan | None = None

    def __repr__(self) -> str:
        """Return the cluster and size, and its best plan with the step and the run."""
        cluster = self.job.cluster
        values = ["no plan is feasible"]
        if self.best is not None:
            values = [self.best.played.plan.short(), show_seconds(self.best.played.step_time_s)]
        if self.run is not None:
            values.append(f"the run takes {show_seconds(self.run.wall_s.value)}")
            values += [] if self.run.usd is None else [f"costs {show_usd(self.run.usd.value)}"]
        name = f"{cluster.name} × {cluster.num_devices}, {self.job.stack.label}"
        return f"<Setting: {name}: {', '.join(values)}>"


class CandidatesBySetting(Record):
    """The best plans so far of every setting, in the order of `Question.sized`.

    `chosen` contains the plan that `flopcast predict` chooses for each setting, if there is one.
    `simulated` contains the plans that were simulated to choose them.
    """

    each: tuple[TopCandidates, ...]
    chosen: tuple[Job, ...] = ()
    simulated: tuple[Exact, ...] = ()

    @classmethod
    def empty(
        cls, question: Question, first: Sequence[FirstChoice] = (), seen: Sequence[Candidate] = ()
    ) -> "CandidatesBySetting":
        """Return top candidates that contain only the first choices, and the best of `seen` candidates.

        An interrupted search has seen candidates of settings whose first choice is not known.
        """
        chosen = tuple(one.chosen for one in first if one.chosen is not None)
        return cls(
            each=tuple(TopCandidates() for _ in question.sized()),
            chosen=(*chosen, *best_of_each(seen)),
            simulated=tuple(played for one in first for played in one.simulated),
        )

    @property
    def whole(self) -> TopCandidates:
        """Return the top candidates of all settings together."""
        return reduce(TopCandidates.joined, self.each)

    def with_one(self, place: int, candidates_kept: TopCandidates) -> "CandidatesBySetting":
        """Return the top candidates with those of one setting replaced."""
        return replace(self, each=(*self.each[:place], candidates_kept, *self.each[place + 1 :]))

    def to_play(self) -> tuple[Job, ...]:
        """Return the best plans overall, the best few plans of every setting, and the chosen plans, each
        once.
        """
        jobs = [*(one.job for one in self.kept()), *self.chosen]
        return tuple({plan_key(job): job for job in jobs}.values())

    def known(self, jobs: Sequence[Job]) -> list[Exact | None]:
        """Return the results of jobs that are already simulated, in order; None for every other job."""
        found = {plan_key(one.job): one for one in self.simulated}
        return [found.get(plan_key(job)) for job in jobs]

    def kept(self) -> tuple[Candidate, ...]:
        """Return the screened plans to simulate: the best overall, and the best few of every setting.

        A setting without a feasible plan contributes the plans that are nearest to its limits, so that the
        answer can state what is missing.
        """
        kept = {one.order: one for one in self.whole.to_play()}
        if len(self.each) > 1:
            for candidates_kept in self._placed():
                few = (candidates_kept.best or candidates_kept.near)[: self.most_of_each]
                kept |= {one.order: one for one in few if one.order not in kept}
        return tuple(kept.values())

    @property
    def most_of_each(self) -> int:
        """Return the minimum number of simulated plans per setting, which is smaller for many settings."""
        return max(1, min(BEST_OF_EACH, BEST // len(self.each)))

    def _placed(self) -> Iterator[TopCandidates]:
        """Yield the top candidates, with plans numbered by their place in the whole space."""
        before = 0
        for candidates_kept in self.each:
            yield candidates_kept.after(before)
            before += candidates_kept.candidates


def best_of_each(seen: Sequence[Candidate]) -> tuple[Job, ...]:
    """Return the job with the best estimate of each setting, among candidates of any settings."""
    worst_first = sorted(seen, key=lambda one: one.losses[0], reverse=True)
    return tuple({plan_key(one.job)[:-1]: one.job for one in worst_first}.values())


def screened_each(
    question: Question,
    book_of: Callable[[Cluster], CurveBook],
    usual: Sequence[UsualPlans],
    candidates_by_setting: CandidatesBySetting,
    kept: KeptResults = NOTHING_KEPT,
) -> Iterator[CandidatesBySetting]:
    """Screen all plans of a question; yield the top candidates after every batch.

    Parameters
    ----------
    usual : the usual plans of every setting
    candidates_by_setting : top candidates that contain only the first choices
    kept : as for `screen`

    Raises
    ------
    SpecError
        A number of devices does not fill whole nodes.
    """
    for place, job in enumerate(question.sized()):
        for candidates_kept in _each_of(question, job, book_of, usual[place], kept):
            candidates_by_setting = candidates_by_setting.with_one(place, candidates_kept)
            yield candidates_by_setting


def _each_of(
    question: Question,
    job: Job,
    book_of: Callable[[Cluster], CurveBook],
    usual: UsualPlans,
    kept: KeptResults,
) -> Iterator[TopCandidates]:
    """Yield the top candidates of one setting after every batch, or generation, of its plans."""
    if question.evolve:
        yield from evolved(question, job, book_of, kept)
    else:
        on_job = batches_on(job, question.space)
        yield from TopCandidates().after_each(question, on_job, book_of, kept, usual.incumbents)


class ToRefine(Record):
    """The plans of which the search creates variants.

    Attributes
    ----------
    best : tuple of Job
        Feasible plans, the best first. If there are none, the plans that fit into memory and are nearest to
        the limits.
    lacking : tuple of Job
        Plans that would be better but lack memory.
    each : tuple of Refinement
        The kinds of variants of each plan, in the order of the tasks.
    """

    best: tuple[Job, ...]
    lacking: tuple[Job, ...]
    each: tuple[Refinement, ...]


def to_refine(candidates_by_setting: CandidatesBySetting, asked: Refining) -> tuple[ToRefine, ...]:
    """Return the plans whose variants are tried: the best overall, then the best of each of several
    settings.

    Recompute makes a plan that lacks memory slower. Such a plan is refined only until it is as slow as the
    best feasible plan. The corresponding ratio is stored with the plan.
    """
    whole = candidates_by_setting.whole
    loss = whole.best[0].losses[0] if whole.best else np.inf
    lacking = tuple((one.job, max(1.0, loss / one.losses[0])) for one in whole.lacking)
    parts = [(tuple(one.job for one in whole.leading), lacking)]
    if len(candidates_by_setting.each) > 1:
        most = candidates_by_setting.most_of_each
        parts += [
            (tuple(one.job for one in part.leading[:most]), ()) for part in candidates_by_setting.each
        ]
    return tuple(
        ToRefine(best=best, lacking=tuple(job for job, _ in others), each=refinements(best, others, asked))
        for best, others in parts
    )


def all_refined(
    candidates_by_setting: CandidatesBySetting,
    asked: Refining,
    parts: Sequence[ToRefine],
    found: Iterator[Variants],
) -> tuple[Job, ...]:
    """Return the variants that were not simulated before, each once.

    Parameters
    ----------
    candidates_by_setting : CandidatesBySetting
    asked : Refining
    parts : sequence of ToRefine
    found : iterator of Variants
        The variants of every refinement of all parts, in order.
    """
    jobs: list[Job] = []
    for part in parts:
        jobs += gathered(part.best, part.lacking, asked, list(islice(found, len(part.each))))
    known = {plan_key(job) for job in candidates_by_setting.to_play()}
    return tuple({plan_key(job): job for job in jobs if plan_key(job) not in known}.values())


def settings_of(
    question: Question,
    candidates_by_setting: CandidatesBySetting,
    plans: Sequence[Ranked],
    broken: Sequence[Ranked],
    *,
    partial: bool,
) -> tuple[Setting, ...]:
    """Return every setting with its best plan, or with the reason why it has no plan.

    Parameters
    ----------
    plans : feasible plans of all settings
    broken : simulated plans that break a limit, the smallest excess first
    partial : whether the search was interrupted, so that a setting without plans may still have some
    """
    found = []
    for job, candidates_kept in zip(question.sized(), candidates_by_setting.each, strict=True):
        here = [one for one in plans if same_setting(one.played, job)]
        best = _recommended(question, here, candidates_by_setting.chosen)
        over = (one for one in broken if best is None and same_setting(one.played, job))
        lacks_rules = not candidates_kept.possible and not partial
        found.append(
            Setting(
                job=job,
                candidates=candidates_kept.candidates,
                possible=candidates_kept.possible,
                feasible=candidates_kept.feasible,
                best=best,
                run=None if best is None else run_of(best.played, question.total_tokens),
                nearest=next(over, None),
                rejected=_rejected(question, job) if lacks_rules else None,
            )
        )
    return tuple(found)


def _recommended(question: Question, here: Sequence[Ranked], chosen: Sequence[Job]) -> Ranked | None:
    """Return the plan that a search of one setting alone recommends among its simulated plans."""
    first = next(iter(ranked(question, [one.played for one in here], chosen)), None)
    return next((one for one in here if first is not None and one.played is first.played), None)


def same_setting(played: Exact, job: Job) -> bool:
    """Return whether a plan was simulated on the cluster, stack and site of a job."""
    there = played.job
    return (there.cluster, there.stack, there.site) == (job.cluster, job.stack, job.site)


def plan_key(job: Job) -> tuple[object, ...]:
    """Return the values by which simulated plans are distinguished."""
    return job.cluster, job.stack, job.site, job.plan


def _rejected(question: Question, job: Job) -> RejectedPlan | None:
    """Return the plan of a setting that breaks fewest rules, among a sample from every batch."""
    found: list[RejectedPlan] = []
    for sized, plans in batches_on(job, question.space):
        places = np.unique(np.linspace(0, plans.size - 1, min(4, plans.size)).astype(int))
        for plan in (plan_at(plans, place) for place in places.tolist()):
            problems = check(sized.model_copy(update={"plan": plan}))
            found.append(RejectedPlan(plan=plan, problems=problems))
        if len(found) >= CHECKED:
            break
    return min(found, key=lambda one: len(one.problems), default=None)
