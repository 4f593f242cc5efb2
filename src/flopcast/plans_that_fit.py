"""Changes of a plan that does not fit, for programs: another plan, or states outside the devices.

Answers: how do I get from a job that does not fit to one that does?
Elsewhere: how the changes are found (search/plan_that_fits.py, search/offload_that_fits.py), predictions
(api.py).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from flopcast.spec.job import Job

if TYPE_CHECKING:
    from flopcast.search.offload_that_fits import OffloadThatFits
    from flopcast.search.plan_that_fits import PlanThatFits


def offload_that_fits(job: Job) -> "OffloadThatFits | None":
    """Return the fastest placement of states outside the devices that makes the job's plan fit.

    Returns
    -------
    OffloadThatFits or None
        The plan with the placement, and the estimate of its step. The result is None if the stack supports
        no placement, the cluster describes no memory of its nodes, or no placement makes the plan fit.

    Raises
    ------
    SpecError
        The batch lists its micro-batches.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> found = offload_that_fits(job("llama-3-8b", gpus=8, seq=2048, plan="dp=8 gbs=64 recompute=full"))
    >>> found.option
    '--offload optimizer:host:0.75,activations:host:0.5'
    """
    from flopcast.api import SHARED
    from flopcast.search.offload_that_fits import offload_for_plan

    return offload_for_plan(job, SHARED.book(job), SHARED.results)


def plan_that_fits(job: Job) -> "PlanThatFits | None":
    """Return the fastest plan that fits and has the same degrees as the job's plan.

    Returns
    -------
    PlanThatFits or None
        The plan and the estimate of its step. Its ZeRO stage, recompute mode and sequence parallelism may
        differ, and its micro-batch may be smaller. The result is None if no such plan fits, if the plan has
        separate settings for some layers, or if the batch lists its micro-batches.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> plan_that_fits(job("llama-3-8b", gpus=8, seq=2048, plan="dp=8 gbs=64")).option
    '--plan "dp=8 mbs=1 gbs=64 zero=1 precision=bf16"'
    """
    from flopcast.api import SHARED
    from flopcast.search.plan_that_fits import plan_that_fits as found

    return found(job, SHARED.book(job), SHARED.results)


CHANGES_THAT_FIT: "Mapping[str, Callable[[Job], PlanThatFits | OffloadThatFits | None]]" = {
    "plan_that_fits": plan_that_fits,
    "offload_that_fits": offload_that_fits,
}  # key of JSON → how the change is found with which a plan fits
