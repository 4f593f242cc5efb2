"""A good plan where none is given: a small space of plans, screened, the best few played exactly.

Answers: which plan would somebody who knows this cluster try first, and how much is it ahead of the next?
Elsewhere: plans of a space (grid.py), the best few of them (top_candidates.py), the exact play
(prediction.py).

Greedy in what it offers (`usual_space`), exact in how it decides: sharded states wherever there are
replicas (ZeRO-1, or what the stack has) and sequence parallelism wherever there is tensor parallelism
(unless checkpoints are cut instead), since neither costs time that the other choices could win back; every
degree and recompute mode is tried, and every spread of experts. Where nothing fits so, parameters are
sharded too. Blocks are dealt out anew where stages are unequal, and ranks
are put in another order, where that is worth 1 % (refine.py).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import InfeasibleError, SpecError
from flopcast.kept_results import KeptResults
from flopcast.prediction import predict
from flopcast.search.grid import batches
from flopcast.search.memory_limit import WHOLE_FRACTION, memory_ratio
from flopcast.search.question import Question
from flopcast.search.refine import Refining, refined
from flopcast.search.screen import screen
from flopcast.search.space import Space
from flopcast.search.top_candidates import Candidate, TopCandidates
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name
from flopcast.units import Number, show_memory
from flopcast.workload.suggested_fixes import advised

MICRO_BATCHES = (1, 2, 4, 8)
VIRTUAL_STAGES = (1, 2, 3, 4, 6)
PLAYED = 8  # of the screened plans, exactly
PLAYED_TASKS = 2**18  # of these plans' pipelines together: 8 plans of the largest known runs have fewer
LEAST_GAIN_FRACTION = 0.01  # of the step, for which a plan lists blocks of stages, or orders ranks
MOST_RESULTS = 4096  # that the simulations of one choice share
REORDERED = 3  # of these, with their ranks in another order
SHARDED = 3  # the ZeRO stage that shards parameters
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ChosenPlan:
    """The chosen plan, the number of plans that it was chosen from, and the next best plan.

    `possible` plans keep every rule and `fitting` of them fit. If none fits, `fitting` counts tight plans
    and `tight` is true. `next_ratio` is the step time of `next_best` over that of `plan`, at least 1. If
    only one plan was simulated, `next_best` is None.
    """

    plan: Plan
    possible: int
    fitting: int
    tight: bool
    next_best: Plan | None
    next_ratio: float

    def sentence(self, fixed: Collection[str] = ()) -> str:
        """Return one sentence for the assumptions of a report; it says that not every plan was compared.

        Parameters
        ----------
        fixed : collection of str
            Fields of the plan that were given, by long name; the sentence lists the others.
        """
        own = {short_name(name, Plan.model_fields[name]) for name in fixed} | set(fixed)
        words = self.plan.short().split()
        filled = " ".join(word for word in words if word.partition("=")[0] not in own)
        start = f"plan completed with {filled}" if fixed and filled else "plan chosen"
        fit = "that are tight" if self.tight else "that fit"
        text = f"{start}: the fastest of {self.fitting} usual plans {fit}, of {self.possible} possible"
        if self.next_best is not None:
            text += f"; the next best is {self.next_best.short()}, {self.next_ratio - 1:.1%} slower"
        return f"{text}; flopcast search compares more plans"


class NoPlanFitsError(InfeasibleError):
    """Plans of the job keep every rule, but none fits into the memory of a device.

    `needed_ratio` is the memory that the smallest plan needs over that of a device.
    """

    def __init__(self, text: str, needed_ratio: Number) -> None:
        """Keep the message and the ratio."""
        super().__init__(text, needed_ratio)
        self.needed_ratio = needed_ratio

    def __str__(self) -> str:
        """Return the message alone."""
        return str(self.args[0])


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
        No plan keeps every rule, or (NoPlanFitsError) none fits; the message names the nearest plan.
    """
    asked, spaces = _asked(job, fixed)
    kept = KeptResults(MOST_RESULTS)
    found, room_fraction = _top_candidates(asked, spaces, book, kept)
    if found.nearest is None:
        conflicts = advised(job, fixed)
        if conflicts:
            raise SpecError(conflicts)
        raise InfeasibleError(_impossible(job, fixed, found.candidates))
    if not found.best:
        ratio = found.nearest.used_bytes / job.cluster.node.device.memory_bytes
        raise NoPlanFitsError(_too_large(found.nearest, found.possible), ratio)
    # what is settled stays as it is, where it makes no difference too
    best = [Plan(**(each.job.plan.model_dump() | dict(fixed))) for each in _played(found.best)]
    steps_s = [predict(job.model_copy(update={"plan": plan}), book, kept).step_time_s for plan in best]
    if "stage_layers" not in fixed:
        level = [_level(job, *each, book, room_fraction, kept) for each in zip(best, steps_s, strict=True)]
        best, steps_s = [plan for plan, _ in level], [step_s for _, step_s in level]
    if "rank_order" not in fixed:
        best, steps_s = _reordered(job, best, steps_s, book, kept)
    ranked = [best[index] for index in np.argsort(steps_s, kind="stable")]
    fastest_s, next_s = (sorted(steps_s) * 2)[:2]
    return ChosenPlan(
        plan=ranked[0],
        possible=found.possible,
        fitting=found.feasible,
        tight=room_fraction is not None,
        next_best=ranked[1] if len(ranked) > 1 else None,
        next_ratio=next_s / fastest_s,
    )


def fits(job: Job, fixed: Mapping[str, object], book: CurveBook) -> bool:
    """Return whether a usual plan for the job fits; False also where no plan keeps every rule.

    No step is estimated, and of several micro-batches only the smallest is tried, which needs least.
    """
    try:
        asked, spaces = _asked(job, fixed)
        kept = KeptResults(MOST_RESULTS)
        there = job.cluster.node.device.memory_bytes
        for space in spaces:
            small = space.model_copy(update={"micro_batch": (min(space.micro_batch),)})
            for on, plans in batches(asked, small):
                part = screen(on, plans, book, kept, lambda seen, _: np.zeros_like(seen.fits, dtype=bool))
                ratio = memory_ratio(part.device_used_bytes, part.high_bytes, part.fits, there, None)
                if (part.possible & (ratio <= 1.0)).any():
                    return True
    except SpecError:
        pass
    return False


def _asked(job: Job, fixed: Mapping[str, object]) -> tuple[Job, list[Space]]:
    """Return the job with the fixed fields of its plan, and the spaces of usual plans, in turn."""
    spaces = [usual_space(job, fixed)]
    if "zero" not in fixed and _shards_more(job):
        spaces.append(usual_space(job, dict(fixed) | {"zero": SHARDED}))
    return job.model_copy(update={"plan": Plan(**dict(fixed))}), spaces


def _top_candidates(
    job: Job, spaces: Sequence[Space], book: CurveBook, kept: KeptResults
) -> tuple[TopCandidates, float | None]:
    """Return the fastest plans of the first space that has a plan that fits or, if none has, a tight one.

    The second value is the headroom with which they were judged (memory_limit.py).
    """
    found = TopCandidates(most=PLAYED)
    for room_fraction in (None, WHOLE_FRACTION):
        found = TopCandidates(most=PLAYED)
        for space in spaces:
            question = Question(
                jobs=(job,), space=space.model_copy(update={"headroom_fraction": room_fraction})
            )
            part = TopCandidates(most=PLAYED).after_all(question, batches(job, space), lambda _: book, kept)
            found = found.joined(part)
            if found.best:
                return found, room_fraction
    return found, WHOLE_FRACTION


def _played(best: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the fastest plan by estimate, and as many of the next as can be simulated in seconds.

    A pipeline of many tasks has many micro-batches for each stage, so that its estimate, which is off by a
    turn for each stage at most (timeline/closed_form.py), is nearly exact.
    """
    tasks = np.cumsum([_tasks(each.job.plan) for each in best])
    return best[: max(1, int(np.searchsorted(tasks, PLAYED_TASKS, side="right")))]


def _tasks(plan: Plan) -> int:
    return plan.num_micro_batches * plan.pipeline_parallel * plan.virtual_stages


def _level(
    job: Job, plan: Plan, step_s: Number, book: CurveBook, room_fraction: float | None, kept: KeptResults
) -> tuple[Plan, Number]:
    """Return the plan and its step, with more equal stages if a list of numbers is worth the gain."""
    asked = Refining(recompute=False, orders=False, headroom_fraction=room_fraction)
    for one in refined([job.model_copy(update={"plan": plan})], [], asked, lambda _: book, kept):
        level_s = predict(one, book, kept).step_time_s
        if level_s < step_s * (1.0 - LEAST_GAIN_FRACTION):
            return one.plan, level_s
    return plan, step_s


def _reordered(
    job: Job, plans: list[Plan], steps_s: list[Number], book: CurveBook, kept: KeptResults
) -> tuple[list[Plan], list[Number]]:
    """Return the plans and their steps; the fastest few get another rank order if that is worth it."""
    found = dict(zip(plans, steps_s, strict=True))
    fastest = sorted(found, key=found.__getitem__)[:REORDERED]
    few = [
        job.model_copy(update={"plan": plan})
        for plan in fastest
        if _tasks(plan) <= PLAYED_TASKS // REORDERED
    ]
    for one in refined(few, [], Refining(stages=False, recompute=False), lambda _: book, kept):
        usual = one.plan.model_copy(update={"rank_order": Plan().rank_order})
        step_s = predict(one, book, kept).step_time_s
        if step_s < found[usual] * (1.0 - LEAST_GAIN_FRACTION):
            del found[usual]
            found[one.plan] = step_s
    return list(found), list(found.values())


def usual_space(job: Job, fixed: Mapping[str, object]) -> Space:
    """Return the space of plans to try if the user names none: few values of each open field.

    Context parallelism is tried only if the user sets it.

    Examples
    --------
    >>> from flopcast.requests.job_files import load_catalog_job
    >>> job = load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2")
    >>> usual_space(job, {"micro_batch": 3}).micro_batch
    (3,)
    """
    tried: dict[str, object] = {
        "micro_batch": MICRO_BATCHES,
        "virtual_stages": VIRTUAL_STAGES,
        "context_parallel": 1,
        "data_shard": 0,
        "zero": _zero(job),
        "sequence_parallel": not fixed.get("partition_activations", False),
    }
    settled = {name: value for name, value in fixed.items() if name in Space.model_fields}
    if "recompute" in settled:
        settled["recompute"] = Plan(**dict(fixed)).recompute_word
    return Space(**(tried | settled))


def _zero(job: Job) -> int:
    """Return the default ZeRO stage: the lowest above 0 that the stack has, or 0."""
    stages = sorted(stage for stage in job.stack.sharding.zero_stages if stage)
    return stages[0] if stages else 0


def _shards_more(job: Job) -> bool:
    """Return whether the stack can shard parameters but does not do so by default."""
    return SHARDED in job.stack.sharding.zero_stages and _zero(job) != SHARDED


def _impossible(job: Job, fixed: Mapping[str, object], tried: int) -> str:
    """Return the message that no plan keeps every rule, with the fields that the user fixed."""
    settled = ", ".join(f"{name} = {value}" for name, value in fixed.items()) or "nothing"
    return (
        f"no plan is possible: each of {tried} plans for {job.model.name} on {job.cluster.num_devices}"
        f" devices breaks a rule; fixed was {settled}.\nGive the whole plan to see which rule it breaks."
    )


def _too_large(smallest: Candidate, possible: int) -> str:
    """Return the message that no plan fits, with the smallest plan and the memory that it lacks."""
    cluster, plan = smallest.job.cluster, smallest.job.plan
    needed, there = smallest.used_bytes, cluster.node.device.memory_bytes
    where = " on its fullest stage" if plan.pipeline_parallel > 1 else ""
    return (
        f"no plan fits: of {possible} possible plans for {smallest.job.model.name} on"
        f" {cluster.num_devices} × {cluster.node.device.name}, the smallest is\n"
        f"  {plan.short()}\nwhich needs {show_memory(needed)} of {show_memory(there)}{where}."
    )
