"""The offload with which a job fits, and the step time with it.

Answers: if a job does not fit its devices, which is the fastest placement with which it fits?
Elsewhere: the placements that are tried (offload_choices.py), a search over placements and plans
(space.py), other changes that make a job fit (plan_that_fits.py, requests/changes_that_fit.py).
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.memory.outside import with_placements_in_memory
from flopcast.memory.peak import peaks
from flopcast.prediction import realised
from flopcast.records import Record, replace
from flopcast.search.default_plan import ALIKE, MOST_RESULTS, asked_for
from flopcast.search.exact import play_each
from flopcast.search.memory_limit import memory_ratio, with_outside, within_memory
from flopcast.search.offload_choices import Placements, offload_choices
from flopcast.search.question import Question
from flopcast.search.screen import Screened, screen
from flopcast.search.usual_plans import usual_candidates
from flopcast.spec.job import Job
from flopcast.spec.offload import offload_word
from flopcast.spec.orders import filled_after
from flopcast.spec.plan import Plan, one_plan
from flopcast.units import nine_digits, show_seconds
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise


class OffloadThatFits(Record):
    """A plan that fits because of its placements outside the devices.

    `step_time_s` is the estimated step. `without_s` is the estimated step with all states on the devices,
    if they had enough memory. `host_update_s` is the part of the step in which the devices wait for the
    optimizer on the host; it does not depend on the batch. `assumed` states whether the batch was assumed
    because none was given.
    """

    plan: Plan
    step_time_s: float
    without_s: float
    host_update_s: float = 0.0
    assumed: bool = False

    @property
    def option(self) -> str:
        """Return the option of the command line, such as "--offload optimizer:host"."""
        return f"--offload {offload_word(self.plan.offload)}"

    @property
    def price(self) -> str:
        """Return the step with and without the placements as text, with the batch and the part of the
        host.
        """
        own, without = (show_seconds(each) for each in (self.step_time_s, self.without_s))
        batch = f"{'the assumed ' * self.assumed}gbs={self.plan.global_batch}"
        instead = f"instead of {without} if the devices had enough memory"
        update = f"; the update on the host takes {show_seconds(self.host_update_s)} for every batch size"
        return f"with {batch}, a step takes about {own}, {instead}{update * (self.host_update_s > 0)}"

    def as_json(self) -> dict[str, object]:
        """Return the placements, the plan and the seconds as plain data."""
        return {
            "offload": offload_word(self.plan.offload),
            "plan": self.plan.short(),
            "step_time_s": nine_digits(self.step_time_s),
            "without_s": nine_digits(self.without_s),
            "host_update_s": nine_digits(self.host_update_s),
        }


def offload_for_plan(job: Job, book: CurveBook, kept: KeptResults = NOTHING_KEPT) -> OffloadThatFits | None:
    """Return the fastest placement with which the job's own plan fits; None if there is none.

    Results of earlier predictions in `kept` are used again.

    Raises
    ------
    SpecError
        The batch lists its micro-batches.
    """
    kept = kept or KeptResults(MOST_RESULTS)
    best = min(_each_that_fits(job, book, kept), key=lambda one: one.step_time_s, default=None)
    return None if best is None else _with_host_update(best, job, book, kept)


def offload_for_job(job: Job, fixed: Mapping[str, object], book: CurveBook) -> OffloadThatFits | None:
    """Return the fastest of the typical plans that fit with a placement; None if none does.

    Parameters
    ----------
    job : its own plan is not used
    fixed : fields of the plan that are fixed, by long name; placements among them are replaced
    """
    try:
        question = asked_for(job, {name: value for name, value in fixed.items() if name != "offload"})
        return offload_for_setting(question, question.jobs[0], book)
    except SpecError:
        return None


def offload_for_setting(question: Question, job: Job, book: CurveBook) -> OffloadThatFits | None:
    """Return the best of the typical plans that are feasible with a placement; None if none is.

    Parameters
    ----------
    question : a search; the placements of its space are replaced
    job : one of `Question.sized()`
    book : the curves of the job's cluster
    """
    placed_question = with_placements(question, job, in_parts=True)
    if placed_question is None:
        return None
    kept = KeptResults(MOST_RESULTS, ALIKE)
    best = usual_candidates(placed_question, job, book, kept, 1).best
    if not best:
        return None
    placed = best[0].job
    plain = placed.with_part("plan", offload=())
    step_s, without_s = (estimated_step_s(each, book, kept) for each in (placed, plain))
    found = OffloadThatFits(plan=placed.plan, step_time_s=step_s or 0.0, without_s=without_s or 0.0)
    found = replace(found, assumed=not question.space.global_batch)
    return _with_host_update(found, job, book, kept)


def _with_host_update(
    found: OffloadThatFits, job: Job, book: CurveBook, kept: KeptResults
) -> OffloadThatFits:
    """Return the plan with the seconds of its simulated step that wait for the optimizer on the host."""
    placed = job.model_copy(update={"plan": found.plan})
    ((_, exact),) = play_each([placed], lambda _: book, kept)
    return replace(found, host_update_s=exact.breakdown.get("host_update", 0.0))


def with_placements(question: Question, job: Job, *, in_parts: bool) -> Question | None:
    """Return the question with all placements, fractions only if `in_parts`; None if the job has none."""
    choices = offload_choices(job, in_parts=in_parts)[1:]
    if not choices:
        return None
    return replace(question, space=question.space.model_copy(update={"offload": choices}))


def _each_that_fits(job: Job, book: CurveBook, kept: KeptResults) -> Iterator[OffloadThatFits]:
    """Yield the placements with which the job's plan keeps every rule and fits."""
    plain, *choices = offload_choices(job)
    without_s: float | None = None
    for choice in _within_device(job, plain, choices, kept):
        placed = job.with_part("plan", offload=choice)
        step_s = estimated_step_s(placed, book, kept, fitting=True)
        if step_s is None:
            continue
        if without_s is None:
            without_s = estimated_step_s(job.with_part("plan", offload=plain), book, kept)
        yield OffloadThatFits(plan=placed.plan, step_time_s=step_s, without_s=without_s or 0.0)


def _within_device(
    job: Job, plain: Placements, choices: Sequence[Placements], kept: KeptResults
) -> Iterator[Placements]:
    """Yield the placements that leave no more on the device than fits; its rules are not checked."""
    if not choices:
        return
    programs = _programs(job, plain, kept)
    micro_batches = filled_after(programs.plans)[:, 0]
    for choice in choices:
        memory = peaks(with_placements_in_memory(programs, choice), np.zeros(1, dtype=int), micro_batches)
        if within_memory(memory, job.cluster, None).all():
            yield choice


def _programs(job: Job, placements: Placements, kept: KeptResults) -> Programs:
    """Return what the plan of a job runs with other placements, in one layout, as `screen` takes it."""
    if placements == job.plan.offload and not job.plan.layers:
        return realised(job, kept)
    plans = one_plan(job.plan.model_copy(update={"offload": placements}))
    return realise(lower(job.model, plans, job.batch, kept), job.software, kept=kept)


def estimated_step_s(
    job: Job, book: CurveBook, kept: KeptResults, *, fitting: bool = False
) -> float | None:
    """Return the estimated step of the job's plan; None if the plan breaks a rule, or if it must fit but
    does not.
    """
    capacity_bytes = job.cluster.node.device.memory_bytes

    def fits(part: Screened) -> bool:
        ratio = memory_ratio(part.device_used_bytes, part.high_bytes, part.fits, capacity_bytes, None)
        return bool(with_outside(ratio, part.outside_ratio, None)[0] <= 1.0)

    part = screen(job, one_plan(job.plan), book, kept, worth=fits if fitting else None)
    seconds = part.step_time_s[0]
    return float(seconds * job.cluster.jitter.ratio) if np.isfinite(seconds) else None
