"""The search: it screens a space, and simulates, ranks and explains the best plans.

Answers: which plans are best, how certain is their ranking, and which faster plans exceed a limit?
Elsewhere: the question (question.py), the stream of plans (grid.py, screen.py, top_candidates.py), the
exact simulation (exact.py), the order (rank.py), explanations (render/search_reasons.py), the output
(render/search_*.py).
"""

from collections.abc import Callable, Iterator, Sequence

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.economics.run import Phase
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record, replace
from flopcast.report.summary import Summarised, Summary
from flopcast.search.chunks import num_screened
from flopcast.search.default_plan import UsualPlans, all_usual_plans, first_choice
from flopcast.search.exact import Exact, play_each
from flopcast.search.memory_limit import used_memory_ratio
from flopcast.search.objectives import run_of
from flopcast.search.preferences import Preferred, front_of, preferences_of
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, against, losses_of, over_ratio, ranked
from flopcast.search.refine import asked_variants, variants
from flopcast.search.settings import (
    CandidatesBySetting,
    RejectedPlan,
    Setting,
    all_refined,
    best_of_each,
    screened_each,
    settings_of,
    to_refine,
)
from flopcast.search.top_candidates import Candidate, TopCandidates
from flopcast.search.usual_plans import Told
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.units import show_seconds, show_usd

NEARLY_RATIO = 1.01
SHOWN_PLANS = 10  # if a result is printed
MOST_RESULTS = 4096  # that the parts of one search share


class Progress(Record):
    """Progress of a search: the number of screened candidates, or of simulated plans.

    `kept` is the number of finished plans from an earlier start, which do not count for the current speed.
    `best` is the best plan so far with its estimate; empty if none is known to fit. `processor_s` is the
    processor time of the workers so far; None if it is not known. `latest` is the plan that was simulated
    last.
    """

    doing: str  # "screening" or "simulating"
    done: int
    total: int
    kept: int = 0
    best: str = ""
    processor_s: float | None = None
    latest: Exact | None = None


OnProgress = Callable[[Progress], None]


class SearchResult(Record, Summarised, eq=False, repr=False):
    """The answer of a search.

    Attributes
    ----------
    candidates, possible, in_memory, feasible, played, refined : int
        Numbers of plans. `candidates`: all plans of the space, or those that the evolutionary search chose.
        `possible`: those that keep every rule. `in_memory`: those of them that fit into memory.
        `feasible`: those of them that keep every other limit, by estimates. `played`: plans that were
        simulated exactly. `refined`: variants of the best plans among these (refine.py).
    plans : tuple of Ranked
        Feasible simulated plans, the recommended one first. Empty if nothing is feasible.
    on_front : tuple of Ranked
        Plans that no other plan beats in all objectives, in the order of the first objective.
    nearest : tuple of Ranked
        Plans that break a limit and would otherwise be better than the best, the nearest first. If no plan
        is feasible, the plan that exceeds the limits least, if possible one that fits into memory.
    given : tuple of Ranked
        The plans in the question, feasible or not; empty if no other plan is feasible.
    rejected : RejectedPlan or None
        The plan that breaks fewest rules, if no plan keeps all of them.
    settings : tuple of Setting
        Every cluster, size and stack of the question, with its best plan or the reason why it has none.
    thinned : bool
        Whether the front was too long to simulate all of it.
    partial : bool
        Whether the search was interrupted before its end.
    preferences : tuple of tuples of Preferred
        For every objective except the first: the plans of the front, by the weight of the first one.
    """

    question: Question
    candidates: int
    possible: int
    in_memory: int
    feasible: int
    played: int
    refined: int = 0
    plans: tuple[Ranked, ...]
    on_front: tuple[Ranked, ...]
    nearest: tuple[Ranked, ...]
    given: tuple[Ranked, ...]
    rejected: RejectedPlan | None
    settings: tuple[Setting, ...] = ()
    thinned: bool
    partial: bool

    @property
    def preferences(self) -> tuple[tuple[Preferred, ...], ...]:
        """Return the plans of the front by their weights, for every objective except the first."""
        return preferences_of(self.on_front)

    def summary(self) -> Summary:
        """Return the first SHOWN_PLANS plans and the best of each setting, with the run if it is known.

        The first plan is the recommended one. If nothing is feasible, the table holds the nearest plan.
        """
        from flopcast.render.page.table import Cell, size

        first, plans = self.question.first, self.plans[:SHOWN_PLANS] or self.nearest[:1]
        best = [one.best for one in self.settings if one.best is not None and one.best not in plans]
        runs = [run_of(one.played, self.question.total_tokens) for one in (*plans, *best)]
        rows: list[tuple[Cell, ...]] = [
            (
                str(self.plans.index(one) + 1 if self.plans else 1)
                + " recommended" * (one is next(iter(self.plans), None)),
                one.played.job.plan.short(),
                f"{one.played.job.cluster.name} × {one.played.job.cluster.num_devices}",
                first.show(first.shown(one.losses[0].value)),
                *((_days(run), _usd(run)) if self.question.total_tokens else ()),
                f"{one.ratio - 1:+.1%}{' =' if one.equal else ''}",
                size(one.played.expected_bytes),
            )
            for one, run in zip((*plans, *best), runs, strict=True)
        ]
        job = self.question.jobs[0]
        variants = f" (with {self.refined} variants)" if self.refined else ""
        counts = f"{self.candidates} plans, {self.feasible} feasible, {self.played} simulated{variants}"
        caption = f"{job.model.name}: {counts}"
        if not self.plans:
            caption += "; the closest plan, which is not feasible"
        of_run = ("time of the run", "cost of the run") if self.question.total_tokens else ()
        headings = ("", "plan", "cluster", first.key, *of_run, "against the best", "expected memory")
        return Summary(caption=caption, headings=headings, rows=rows)


def _days(run: Phase | None) -> str:
    return "never ends" if run is None else show_seconds(run.wall_s.value)


def _usd(run: Phase | None) -> str:
    return "unknown" if run is None or run.usd is None else show_usd(run.usd.value)


def find(
    question: Question, book_of: Callable[[Cluster], CurveBook], told: OnProgress | None = None
) -> SearchResult:
    """Search the space of a question and return the best plans.

    Parameters
    ----------
    question : Question
    book_of : returns the curves of a cluster; called once for each batch, so it should store them
    told : called with the progress of the search

    Returns
    -------
    SearchResult
        If no plan is feasible, it holds only the nearest plan. A KeyboardInterrupt ends the screening
        early: the plans seen so far are then simulated and ranked. A second one ends the simulation, and
        the simulated plans are ranked. The answer is then `partial`.

    Raises
    ------
    SpecError
        A number of devices is not one of whole nodes.
    """
    say = told or (lambda _: None)
    kept = KeptResults(MOST_RESULTS)
    candidates_by_setting, partial = _screened(question, book_of, say, kept)
    jobs = to_play(question, candidates_by_setting, book_of, kept)
    known = candidates_by_setting.known(jobs[: len(jobs) - len(question.given)])
    played = {place: one for place, one in enumerate(known) if one is not None}
    new = [place for place in range(len(jobs)) if place not in played]
    try:
        for place, exact in play_each([jobs[place] for place in new], book_of, kept):
            played[new[place]] = exact
            say(Progress(doing="simulating", done=len(played), total=len(jobs), latest=exact))
    except KeyboardInterrupt:
        if not played:
            raise
        partial = True
    every = [played.get(place) for place in range(len(jobs))]
    return decided(question, candidates_by_setting, every, partial=partial)


def to_play(
    question: Question,
    candidates_by_setting: CandidatesBySetting,
    book_of: Callable[[Cluster], CurveBook],
    kept: KeptResults = NOTHING_KEPT,
) -> tuple[Job, ...]:
    """Return the jobs to simulate exactly: the best estimated plans, their variants, and the user's plans.

    Parameters
    ----------
    question : Question
    candidates_by_setting : CandidatesBySetting
        The plans that screening has kept, overall and for each setting.
    book_of : function
        Returns the curves of a cluster.
    kept : KeptResults
    """
    best, asked = candidates_by_setting.to_play(), asked_variants(question)
    parts = to_refine(candidates_by_setting, asked)
    each = (one for part in parts for one in part.each)
    found = (variants(one, asked, book_of(one.job.cluster), kept) for one in each)
    return (*best, *all_refined(candidates_by_setting, asked, parts, found), *question.given)


def decided(
    question: Question,
    candidates_by_setting: CandidatesBySetting,
    played: Sequence[Exact | None],
    *,
    partial: bool,
) -> SearchResult:
    """Return the result, given the simulated jobs of `to_play` in order; None after an interrupt."""
    own, candidates_kept = len(played) - len(question.given), candidates_by_setting.whole
    every, given = ([one for one in part if one is not None] for part in (played[:own], played[own:]))
    feasible = [one for one in every if over_ratio(question, one) <= 1.0]
    plans = ranked(question, feasible, candidates_by_setting.chosen)
    broken = _broken(question, every, plans)
    settings = settings_of(question, candidates_by_setting, plans, broken, partial=partial)
    rejected = [one.rejected for one in settings if one.rejected is not None]
    return SearchResult(
        question=question,
        candidates=candidates_kept.candidates,
        possible=candidates_kept.possible,
        in_memory=candidates_kept.in_memory,
        feasible=candidates_kept.feasible,
        played=len(every),
        refined=own - len(candidates_by_setting.to_play() if partial else candidates_by_setting.kept()),
        plans=plans,
        on_front=front_of(plans),
        nearest=tuple(_each_better(one for one in broken if one.ratio < 1.0)) if plans else broken[:1],
        given=_with_own_plans(question, given, plans),
        rejected=None
        if candidates_kept.possible
        else min(rejected, key=lambda one: len(one.problems), default=None),
        settings=settings,
        thinned=candidates_kept.thinned or len(candidates_kept.on_front) > candidates_kept.most,
        partial=partial,
    )


def _screened(
    question: Question, book_of: Callable[[Cluster], CurveBook], say: OnProgress, kept: KeptResults
) -> tuple[CandidatesBySetting, bool]:
    """Screen every batch of the space; return the top candidates and whether the search was interrupted."""
    candidates_by_setting, heard = CandidatesBySetting.empty(question), list[Candidate]()
    total = num_screened(question)
    try:
        usual = all_usual_plans(question, book_of, kept, first_look(question, total, say, heard))
        first = [
            first_choice(question, plans.jobs, book_of(job.cluster), kept)
            for plans, job in zip(usual, question.sized(), strict=True)
        ]
        candidates_by_setting = CandidatesBySetting.empty(question, first)
        for after in screened_each(question, book_of, usual, candidates_by_setting, kept):
            candidates_by_setting = after
            done = min(total, sum(one.candidates for one in candidates_by_setting.each))
            best = best_so_far(question, usual, candidates_by_setting.each)
            say(Progress(doing="screening", done=done, total=total, best=best))
    except KeyboardInterrupt:
        chosen = candidates_by_setting.chosen or best_of_each(heard)
        return replace(candidates_by_setting, chosen=chosen), True
    return candidates_by_setting, False


def first_look(question: Question, total: int, say: OnProgress, heard: list[Candidate]) -> Told:
    """Return a function that reports usual plans and appends them to `heard`, before any of `total` plans
    is screened.
    """

    def told(one: Candidate | None) -> None:
        heard.extend([one] if one else [])
        say(Progress(doing="screening", done=0, total=total, best=_text(question, heard)))

    return told


def best_so_far(question: Question, usual: Sequence[UsualPlans], seen: Sequence[TopCandidates] = ()) -> str:
    """Return the best of usual and screened plans with its estimate, as text; "" if there is none."""
    each = [one.best for one in usual if one.best is not None]
    each += [candidates_kept.best[0] for candidates_kept in seen if candidates_kept.best]
    return _text(question, each)


def _text(question: Question, each: Sequence[Candidate]) -> str:
    """Return the estimate and the plan of the best candidate; "" without one."""
    if not each:
        return ""
    best, objective = min(each, key=lambda one: one.losses[0]), question.first
    return f"{objective.show(objective.shown(best.losses[0]))}: {best.job.plan.short()}"


def _broken(question: Question, every: Sequence[Exact], plans: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Return plans that break a limit, the smallest excess first, each compared with the best plan.

    Those that fit into memory come first: a deadline and a budget can be relaxed, and memory cannot. If no
    plan is feasible, each is compared with itself.
    """
    room = question.space.headroom_fraction
    ratios = sorted(
        (used_memory_ratio(one, room) > 1.0, over_ratio(question, one), place)
        for place, one in enumerate(every)
    )
    over = [every[place] for _, ratio, place in ratios if ratio > 1.0]
    losses = [losses_of(question, one) for one in over]
    best = min(plans, key=lambda one: one.losses[0].value).losses[0] if plans else None
    return tuple(against(best or each[0], one, each) for one, each in zip(over, losses, strict=True))


def _with_own_plans(
    question: Question, given: Sequence[Exact], plans: Sequence[Ranked]
) -> tuple[Ranked, ...]:
    """Return the plans that the user named, compared with the best."""
    best = min(plans, key=lambda one: one.losses[0].value).losses[0] if plans else None
    return tuple(against(best, one, losses_of(question, one)) for one in given if best is not None)


def _each_better(plans: Iterator[Ranked]) -> Iterator[Ranked]:
    """Yield those plans, in the order of their memory, that are better than all smaller ones.

    Among plans that need nearly the same memory, only the best is returned.
    """
    kept: list[Ranked] = []
    for one in plans:
        if not kept or one.losses[0].value < kept[-1].losses[0].value:
            alike = kept and one.played.device_used_bytes < NEARLY_RATIO * kept[-1].played.device_used_bytes
            kept = [*(kept[:-1] if alike else kept), one]
    yield from kept
