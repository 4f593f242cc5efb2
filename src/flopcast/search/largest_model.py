"""The largest model of a shape that a cluster trains: with all states on the devices, and with offload.

Answers: how many layers of this width fit, and with which placement outside the devices?
Elsewhere: the plans that are tried (usual_plans.py), placements (offload_that_fits.py).

Layers are added to the model's largest run of equal blocks, several at a time, so that the number of blocks
divides over pipeline stages.
"""

from collections.abc import Callable
from dataclasses import dataclass

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.layers.block import Block
from flopcast.search.default_plan import MOST_RESULTS
from flopcast.search.offload_that_fits import offload_for_setting
from flopcast.search.question import Question
from flopcast.search.usual_plans import usual_candidates
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.units import Number

STEP = 8  # layers that are added at a time
MOST = 8192  # layers that are tried
PlanOf = Callable[[Job], Plan | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class LargestModel:
    """The largest model that fits, with a plan that trains it.

    `model` differs from the job's in the number of blocks alone. `plan` includes its placement outside the
    devices.
    """

    model: Model
    plan: Plan

    @property
    def num_layers(self) -> int:
        """Return the number of blocks."""
        return self.model.num_blocks

    @property
    def num_parameters(self) -> Number:
        """Return the number of parameters."""
        return self.model.parameters()


def largest_model(
    question: Question, job: Job, book: CurveBook, *, offload: bool = False
) -> LargestModel | None:
    """Return the largest model of the shape of the job's that fits with some usual plan.

    Parameters
    ----------
    question : of a search; its space limits the plans
    job : one of `Question.sized()`
    offload : whether states may be placed outside the devices

    Returns
    -------
    LargestModel or None
        Its number of layers is a multiple of 8; None if not even the smallest such model fits.
    """
    plan_of = _placed(question, book) if offload else _on_devices(question, book)
    low = STEP * (1 + (job.model.num_blocks - _largest_run(job.model).count) // STEP)
    found, high = _with_layers(job, low, plan_of), 2 * low
    if found is None:
        return None
    while high <= MOST and (more := _with_layers(job, high, plan_of)) is not None:
        found, low, high = more, high, 2 * high
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        more = _with_layers(job, middle, plan_of)
        found, low, high = (found, low, middle) if more is None else (more, middle, high)
    return found


def with_layers(model: Model, layers: int) -> Model:
    """Return the model with so many blocks, of which its largest run of equal ones has more or fewer.

    Examples
    --------
    >>> from flopcast.library import catalog
    >>> with_layers(catalog.model("deepseek-v3"), 64).num_blocks
    64
    """
    run = _largest_run(model)
    count = run.count + layers - model.num_blocks
    changed = run.model_copy(update={"count": count})
    blocks = tuple(changed if block is run else block for block in model.blocks)
    return model.model_copy(update={"blocks": blocks})


def _largest_run(model: Model) -> Block:
    """Return the run of equal blocks that has the most of them."""
    return max(model.blocks, key=lambda block: block.count)


def _with_layers(job: Job, layers: int, plan_of: PlanOf) -> LargestModel | None:
    changed = job.model_copy(update={"model": with_layers(job.model, layers)})
    plan = plan_of(changed)
    return None if plan is None else LargestModel(model=changed.model, plan=plan)


def _on_devices(question: Question, book: CurveBook) -> PlanOf:
    kept = KeptResults(MOST_RESULTS)

    def plan_of(job: Job) -> Plan | None:
        best = usual_candidates(question, job, book, kept, 1).best
        return best[0].job.plan if best else None

    return plan_of


def _placed(question: Question, book: CurveBook) -> PlanOf:
    def plan_of(job: Job) -> Plan | None:
        found = offload_for_setting(question, job, book)
        return None if found is None else found.plan

    return plan_of
