"""The largest model of a shape that a cluster can train, with all states on the devices and with offload.

Answers: how many layers of this width fit, and with which placement outside the devices?
Elsewhere: the plans that are tried (usual_plans.py), placements (offload_that_fits.py).

Layers are added to the model's largest run of equal blocks, several at a time, so that the number of blocks
divides over pipeline stages.
"""

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.kept_results import KeptResults
from flopcast.layers.block import Block
from flopcast.records import Record
from flopcast.search.default_plan import MOST_RESULTS
from flopcast.search.offload_that_fits import offload_for_setting, with_placements
from flopcast.search.question import Question
from flopcast.search.usual_plans import some_usual_plan_fits, usual_candidates
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.units import Number

STEP = 8  # layers that are added at a time
MOST = 8192  # layers that are tried


class LargestModel(Record):
    """The largest model that fits, with a plan that trains it.

    `model` differs from the job's model only in the number of blocks. `plan` includes the placement of
    states outside the devices.
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


class LargestOn(Record):
    """The largest models of one cluster, size and stack.

    The key False of `found` holds the model with all states on the devices, and the key True the model with
    states that may be outside the devices. A value is None if no model of the shape fits.
    """

    job: Job
    found: dict[bool, LargestModel | None]


def largest_model(
    question: Question, job: Job, book: CurveBook, *, offload: bool = False
) -> LargestModel | None:
    """Return the largest model of the job's shape that fits with a usual plan.

    Parameters
    ----------
    question : a search whose space limits the plans
    job : one of `Question.sized()`
    offload : whether states may be placed outside the devices

    Returns
    -------
    LargestModel or None
        The number of layers is a multiple of 8. None means that not even the smallest such model fits.
    """
    kept = KeptResults(MOST_RESULTS)

    def trains(layers: int) -> bool:
        """Return whether a plan is feasible. Limits of time are compared with its estimate."""
        if question.limits:
            return plan(layers) is not None
        changed = _changed(job, layers)
        asked = with_placements(question, changed, in_parts=False) if offload else question
        return asked is not None and some_usual_plan_fits(asked, changed, kept)

    def plan(layers: int) -> Plan | None:
        changed = _changed(job, layers)
        if offload:
            found = offload_for_setting(question, changed, book)
            return None if found is None else found.plan
        best = usual_candidates(question, changed, book, kept, 1).best
        return best[0].job.plan if best else None

    low = STEP * (1 + (job.model.num_blocks - _largest_run(job.model).count) // STEP)
    if not trains(low):
        return None
    high = 2 * low
    while high <= MOST and trains(high):
        low, high = high, 2 * high
    while high - low > STEP:
        middle = (low + high) // 2 // STEP * STEP
        low, high = (middle, high) if trains(middle) else (low, middle)
    found = plan(low)
    return None if found is None else LargestModel(model=_changed(job, low).model, plan=found)


def with_layers(model: Model, layers: int) -> Model:
    """Return the model with this number of blocks, after a change of its largest run of equal blocks.

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


def _changed(job: Job, layers: int) -> Job:
    return job.model_copy(update={"model": with_layers(job.model, layers)})
