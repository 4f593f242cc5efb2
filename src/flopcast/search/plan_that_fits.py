"""The nearest plan that fits.

It has the same degrees, with sharded states, recompute or smaller micro-batches.

Answers: if a plan does not fit its devices, which settings make it fit without other degrees, and how long
does a step then take?
Elsewhere: placements outside the devices (offload_that_fits.py), plans with other degrees (find.py).
"""

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.records import Record
from flopcast.search.equal_parts import of_parts, with_equal_parts
from flopcast.search.offload_that_fits import estimated_step_s
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.usual_plans import usual_candidates
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.units import nine_digits, show_seconds

FREED = ("zero", "recompute", "sequence_parallel")  # settings that may change; offload and shards stay
SAME = ("offload", "shards", "tables")  # a search takes those of the job's plan unless they are named


class PlanThatFits(Record):
    """A plan that fits, and the estimate of its step."""

    plan: Plan
    step_time_s: float

    @property
    def option(self) -> str:
        """Return the option of the command line, such as '--plan "dp=8 gbs=64 zero=1"'."""
        return f'--plan "{self.plan.short()}"'

    @property
    def price(self) -> str:
        """Return the step as text."""
        return f"a step takes about {show_seconds(self.step_time_s)}"

    def as_json(self) -> dict[str, object]:
        """Return the plan and the seconds as plain data."""
        return {"plan": self.plan.short(), "step_time_s": nine_digits(self.step_time_s)}


def plan_that_fits(job: Job, book: CurveBook, kept: KeptResults = NOTHING_KEPT) -> PlanThatFits | None:
    """Return the fastest plan that fits and has the degrees of the job's own plan; None if there is none.

    The ZeRO stage, the recompute mode and sequence parallelism may differ, and the micro-batch may be
    smaller. The result is None for plans with separate settings for some layers, batches that list their
    micro-batches, and clusters with unequal groups. The estimate assumes that all parts are equally fast.
    """
    plan, job = job.plan, with_equal_parts(job)
    if of_parts(job) is not None:
        return None
    names = [name for name in Plan.model_fields if name in Space.model_fields]
    space = {name: getattr(plan, name) for name in names if name not in (*FREED, *SAME)}
    smaller = [size for size in range(1, plan.micro_batch + 1) if plan.micro_batch % size == 0]
    question = Question(jobs=(job,), space=Space.model_validate(space | {"micro_batch": smaller}))
    try:
        best = usual_candidates(question, job, book, kept, 1).best
    except SpecError:
        return None
    if not best:
        return None
    return PlanThatFits(plan=best[0].job.plan, step_time_s=estimated_step_s(best[0].job, book, kept) or 0.0)
