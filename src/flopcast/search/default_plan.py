"""The plan that flopcast chooses if none is given: it estimates the usual plans and simulates the best few.

Answers: which plan is chosen, and how much faster is it than the next best plan?
Elsewhere: the usual plans (usual_plans.py), the exact simulation (exact.py), which of the simulated plans
is recommended (rank.py), the sentences of a report about the choice (chosen_plan.py).

Variants of the best plans, with less recompute, more equal stages or ranks in another order (refine.py),
are simulated too. These options make a plan less simple. A variant is therefore chosen only if it is faster
by more than the difference between repeats of one run. `choose` completes the plan of a job. A search makes
the same choice for each of its settings (`first_choice`), so that it never recommends a slower plan than
`flopcast predict`. The results of the usual plans rule out most other plans, so that the search need not
estimate them.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flopcast.cost.between_plans import TIED_RATIO
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import InfeasibleError, SpecError
from flopcast.kept_results import KeptResults
from flopcast.records import Record, replace
from flopcast.search.chosen_plan import ChosenPlan, FasterTight
from flopcast.search.exact import Exact, play_each
from flopcast.search.grid import batches_on
from flopcast.search.memory_limit import WHOLE_FRACTION, memory_ratio, with_outside
from flopcast.search.pruning import Incumbents
from flopcast.search.question import Question
from flopcast.search.rank import Ranked, grouped, num_tied, over_ratio, ranked
from flopcast.search.refine import Refining, asked_variants, refined
from flopcast.search.screen import screen
from flopcast.search.space import Space
from flopcast.search.top_candidates import BEST, Candidate, TopCandidates
from flopcast.search.usual_plans import Told, usual_candidates, usual_spaces, usual_zero
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.units import Number, show_memory
from flopcast.workload.suggested_fixes import advised, lasting

PLAYED = 8  # of the screened plans, exactly
PLAYED_TASKS = 2**18  # of these plans' pipelines together: 8 plans of the largest known runs have fewer
MOST_RESULTS = 4096  # that the simulations of one choice share
ALIKE = 256  # plans of a batch of usual plans, whose recompute modes run many of the same kernels
LESSENED = 2  # of these, with less than full recompute
REORDERED = 3  # of these, with their ranks in another order
SEARCHED = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_stages",
    "micro_batch",
    "recompute",
    "expert_parallel",
    "expert_tensor_parallel",
)  # whose settled values may be at fault for that no plan is possible


class NoPlanFitsError(InfeasibleError):
    """Plans of the job keep every rule, but none fits into the memory of a device.

    `needed_ratio` is the memory that the smallest plan needs, divided by the memory of a device.
    """

    def __init__(self, text: str, needed_ratio: Number) -> None:
        """Keep the message and the ratio."""
        super().__init__(text)
        self.args: tuple[object, ...] = (text, needed_ratio)
        self.needed_ratio = needed_ratio


def choose(job: Job, fixed: Mapping[str, object], book: CurveBook) -> ChosenPlan:
    """Choose a plan for the model, cluster, stack and batch of `job`.

    Parameters
    ----------
    job : its own plan is not used
    fixed : fields of the plan that are fixed, by long name; all others are free
    book : curves of the job's cluster

    Returns
    -------
    ChosenPlan
        Its plan uses every device, keeps every rule and fits.

    Raises
    ------
    SpecError
        The fixed fields contradict each other.
    InfeasibleError
        No plan keeps every rule or, as NoPlanFitsError, no plan fits. The message names the nearest plan.
    """
    question, found, kept = asked_for(job, fixed), TopCandidates(), KeptResults(MOST_RESULTS, ALIKE)
    for room_fraction in (None, WHOLE_FRACTION):
        space = question.space.model_copy(update={"headroom_fraction": room_fraction})
        question = replace(question, space=space)
        found = usual_candidates(question, question.jobs[0], book, kept, PLAYED)
        if found.best:
            break
    if not found.best and found.nearest is None:
        implied = {"zero": usual_zero(job)} if "data_shard" in fixed else {}
        conflicts = advised(job, {**implied, **fixed})
        if conflicts:
            raise SpecError(lasting(conflicts, fixed) or conflicts)
        raise InfeasibleError(_impossible(job, fixed, found.candidates))
    if found.nearest is not None:
        ratio = found.nearest.used_bytes / job.cluster.node.device.memory_bytes
        raise NoPlanFitsError(_too_large(found.nearest, found.possible), ratio)
    # what is settled stays as it is, where it makes no difference too
    best = [Plan(**(each.job.plan.model_dump() | dict(fixed))) for each in _played(found.best)]
    wanted = Refining(
        stages="stage_layers" not in fixed,
        recompute="recompute" not in fixed,
        orders="rank_order" not in fixed,
        headroom_fraction=question.space.headroom_fraction,
    )
    jobs = [job.model_copy(update={"plan": plan}) for plan in best]
    simulated = _simulated(jobs, wanted, book, kept, energy=False)
    plans = ranked(question, simulated)
    first, next_best = plans[0], _next_best(plans)
    return ChosenPlan(
        plan=first.played.plan,
        possible=found.possible,
        fitting=found.feasible,
        tight=question.space.headroom_fraction is not None,
        tied=num_tied(plans),
        next_best=None if next_best is None else next_best.played.plan,
        next_ratio=1.0 if next_best is None else next_best.ratio / first.ratio,
        num_variants=len(simulated) - len(jobs),
        faster_tight=_faster_tight(found, first.played, fixed, book, kept),
    )


def fits(job: Job, fixed: Mapping[str, object]) -> bool:
    """Return whether a usual plan for the job fits; False also if no plan keeps every rule.

    The function estimates no step times, and tries only the smallest micro-batch, which needs the least
    memory.
    """
    try:
        asked, kept = asked_for(job, fixed), KeptResults(MOST_RESULTS, ALIKE)
        there = job.cluster.node.device.memory_bytes
        for space in usual_spaces(asked.jobs[0], asked.space):
            small = space.model_copy(update={"micro_batch": (min(space.micro_batch),)})
            for on, plans in batches_on(asked.jobs[0], small):
                part = screen(on, plans, None, kept)
                ratio = memory_ratio(part.device_used_bytes, part.high_bytes, part.fits, there, None)
                ratio = with_outside(ratio, part.outside_ratio, None)
                if (part.possible & (ratio <= 1.0)).any():
                    return True
    except SpecError:
        pass
    return False


class UsualPlans(Record, eq=False):
    """The usual plans of one setting of a search: their numbers, and the best plans.

    `best` is the candidate with the best estimate, or None if no usual plan is feasible. `jobs` are the few
    plans that `first_choice` simulates.
    """

    incumbents: Incumbents
    best: Candidate | None
    jobs: tuple[Job, ...]


class FirstChoice(Record, eq=False):
    """The job with the plan that `flopcast predict` chooses, if one is feasible, and all simulated
    plans.
    """

    chosen: Job | None
    simulated: tuple[Exact, ...]


def all_usual_plans(
    question: Question,
    book_of: Callable[[Cluster], CurveBook],
    kept: KeptResults,
    told: Told = lambda _: None,
) -> tuple[UsualPlans, ...]:
    """Return the usual plans of every setting of a question, in the order of `Question.sized`.

    After every batch, `told` is called with the best plan of the setting so far, or None.

    Raises
    ------
    SpecError
        A number of devices does not fill whole nodes.
    """
    return tuple(usual_plans(question, job, book_of(job.cluster), kept, told) for job in question.sized())


def usual_plans(
    question: Question, job: Job, book: CurveBook, kept: KeptResults, told: Told = lambda _: None
) -> UsualPlans:
    """Return the usual plans for `job`, which is one of `question.sized()`.

    For `told`, see `all_usual_plans`.
    """
    found = usual_candidates(question, job, book, kept, BEST, feasible_only=False, told=told)
    return UsualPlans(
        incumbents=found.incumbents,
        best=found.best[0] if found.best else None,
        jobs=tuple(one.job for one in _played(found.best[:PLAYED])),
    )


def first_choice(
    question: Question, jobs: Sequence[Job], book: CurveBook, kept: KeptResults
) -> FirstChoice:
    """Return the plan that `flopcast predict` chooses for one setting, given the jobs of its usual
    plans.
    """
    simulated = _simulated(jobs, asked_variants(question), book, kept)
    plans = ranked(question, [one for one in simulated if over_ratio(question, one) <= 1.0])
    chosen = plans[0].played.job if plans else None
    return FirstChoice(chosen=chosen, simulated=tuple(simulated))


def asked_for(job: Job, fixed: Mapping[str, object]) -> Question:
    """Return the question of a search for the best plan, with the fixed fields of the plan."""
    settled = {name: value for name, value in fixed.items() if name in Space.model_fields}
    if "recompute" in settled:
        settled["recompute"] = Plan(**dict(fixed)).recompute_word
    job = job.model_copy(update={"plan": Plan(**dict(fixed))})
    return Question(jobs=(job,), space=Space(**settled))


def _played(best: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the fastest plan by estimate, and as many of the next as can be simulated in seconds.

    A pipeline of many tasks has many micro-batches for each stage, so that its estimate, which is off by a
    turn for each stage at most (timeline/closed_form.py), is nearly exact.
    """
    tasks = np.cumsum([_tasks(each.job.plan) for each in best])
    return best[: max(1, int(np.searchsorted(tasks, PLAYED_TASKS, side="right")))]


def _tasks(plan: Plan) -> int:
    return plan.num_micro_batches * plan.pipeline_parallel * plan.virtual_stages


def _faster_tight(
    found: TopCandidates, chosen: Exact, fixed: Mapping[str, object], book: CurveBook, kept: KeptResults
) -> FasterTight | None:
    """Return the fastest of the plans that may not fit, if it is clearly faster than the chosen plan.

    These are plans whose expected memory fits, as in the verdict of a report. The memory in use may exceed
    that of the device, because it includes what the allocator caches.
    """
    for one in sorted(found.faster, key=lambda one: one.losses[0]):
        plan = Plan(**(one.job.plan.model_dump() | dict(fixed)))
        job = chosen.job.model_copy(update={"plan": plan})
        ((_, exact),) = play_each([job], lambda _: book, kept, energy=False)
        if exact.verdict != "tight":
            continue
        ratio = exact.step_time_s / chosen.step_time_s
        if ratio > 1 / TIED_RATIO:
            return None
        sizes_bytes = exact.expected_bytes, exact.high_bytes, exact.capacity_bytes
        expected, high, there = map(show_memory, sizes_bytes)
        need = f"{expected} expected (90 %: up to {high}) of {there}"
        return FasterTight(plan=plan, ratio=ratio, need=need)
    return None


def _next_best(plans: Sequence[Ranked]) -> Ranked | None:
    """Return the fastest plan or, if it is the first, the next one that is no variant of it."""
    first, *others = plans
    if first.ratio > 1.0:
        return others[0]
    _, *groups = grouped(plans)
    return groups[0][0] if groups else next(iter(others), None)


def _simulated(
    jobs: Sequence[Job], wanted: Refining, book: CurveBook, kept: KeptResults, *, energy: bool = True
) -> list[Exact]:
    """Return the simulated plans, with variants that recompute less, or have other stages or rank orders.

    Only the fastest few plans recompute less or get another rank order. `energy` is as for `play_each`.
    """

    def simulated(some: Sequence[Job]) -> list[Exact]:
        in_turn = sorted(play_each(some, lambda _: book, kept, energy=energy), key=lambda pair: pair[0])
        return [one for _, one in in_turn]

    def more(asked: Refining, some: Sequence[Job]) -> list[Exact]:
        return simulated(refined(some, [], asked, lambda _: book, kept))

    every = simulated(jobs)
    if wanted.recompute:
        whole = [one for one in every if one.plan.recompute_word == "full"]
        fastest = sorted(whole, key=lambda one: one.step_time_s)[:LESSENED]
        every += more(replace(wanted, stages=False, orders=False), [one.job for one in fastest])
    if wanted.stages:
        every += more(replace(wanted, recompute=False, orders=False), [one.job for one in every])
    if wanted.orders:
        fastest = sorted(every, key=lambda one: one.step_time_s)[:REORDERED]
        few = [one.job for one in fastest if _tasks(one.plan) <= PLAYED_TASKS // REORDERED]
        every += more(replace(wanted, recompute=False, stages=False), few)
    return every


def _impossible(job: Job, fixed: Mapping[str, object], tried: int) -> str:
    """Return the message that no plan keeps every rule, with the fields that the user fixed."""
    settled = ", ".join(f"{name} = {value}" for name, value in fixed.items()) or "nothing"
    return (
        f"no plan is possible: each of {tried} plans for {job.model.name} on {job.cluster.num_devices}"
        f" devices breaks a rule; you fixed {settled}.\nGive a whole plan to see its broken rules."
    )


def _too_large(smallest: Candidate, possible: int) -> str:
    """Return the message that no plan fits, with the smallest plan and the memory that it lacks."""
    cluster, plan = smallest.job.cluster, smallest.job.plan
    needed, there = smallest.used_bytes, cluster.node.device.memory_bytes
    where = " on its fullest stage" if plan.pipeline_parallel > 1 else ""
    return (
        f"no plan fits: of {possible:,} possible plans for {smallest.job.model.name} on"
        f" {cluster.machine}, the smallest is\n"
        f"  {plan.short()}\nwhich needs {show_memory(needed)}{where}; a device has {show_memory(there)}."
    )
