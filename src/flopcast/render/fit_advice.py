"""The changes that are proposed for a job that does not fit its devices.

Answers: how are the proposed changes printed as text and as JSON, for a plan and for a search without a
feasible plan?
Elsewhere: how they are found (search/plan_that_fits.py, search/offload_that_fits.py), a plan that flopcast
chooses itself (requests/changes_that_fit.py).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from flopcast.report.memory_report import MemoryReport
from flopcast.spec.job import Job

if TYPE_CHECKING:
    from flopcast.search.find import SearchResult
    from flopcast.search.offload_that_fits import OffloadThatFits
    from flopcast.search.plan_that_fits import PlanThatFits

Change: TypeAlias = "PlanThatFits | OffloadThatFits"
Finders: TypeAlias = "Mapping[str, Callable[[Job], Change | None]]"  # key of JSON → how its change is found
PlacedJob: TypeAlias = "tuple[Job, OffloadThatFits]"  # of a search, and the plan that fits with a placement


def fit_advice(job: Job, memory: MemoryReport, finders: Finders) -> tuple[list[str], dict[str, object]]:
    """Return the changes with which a plan fits its devices, as lines and as keys of JSON.

    `finders` are called if the plan does not fit: `plans_that_fit.CHANGES_THAT_FIT`. Lines and keys are
    empty if the plan fits. The value of a key is None if no change of its kind is enough.
    """
    found = fitting_changes(job, memory, finders)
    lines = [f"{change.option} fits: {change.price}" for change in found.values() if change is not None]
    return lines, {key: change and change.as_json() for key, change in found.items()}


def fitting_changes(job: Job, memory: MemoryReport, finders: Finders) -> "dict[str, Change | None]":
    """Return the change of each kind with which a plan fits; no kind if the plan fits already."""
    return {key: find(job) for key, find in finders.items()} if may_be_fitted(job, memory) else {}


def may_be_fitted(job: Job, memory: MemoryReport) -> bool:
    """Return whether a plan does not fit its devices, and changes of it can be searched."""
    return memory.device_verdict == "does not fit" and not job.batch.listed


def placed_plans(result: "SearchResult") -> list[PlacedJob]:
    """Return the effect of placements outside the devices on each cluster, size and stack of a search.

    The list is empty if a plan is feasible, if the search was interrupted, or if it tried placements
    itself.
    """
    from flopcast.library.curves import load_book
    from flopcast.search.offload_that_fits import offload_for_setting

    question = result.question
    if result.plans or result.partial or not result.possible or question.space.offload:
        return []
    jobs = ((job, offload_for_setting(question, job, load_book(job.cluster))) for job in question.sized())
    return [(job, found) for job, found in jobs if found is not None]


def placed_lines(placed: list[PlacedJob]) -> list[str]:
    """Return the placements as a paragraph of text; empty if there are none."""
    lines = [
        f"  {job.cluster.machine} ({job.cluster.name}), {job.stack.label}: {found.option} fits"
        f" ({found.price})"
        for job, found in placed
    ]
    head = "with states outside the devices (--offload auto tries all placements)"
    return ["\n".join([head, *lines])] if lines else []


def placed_json(placed: list[PlacedJob]) -> dict[str, object]:
    """Return the placements as keys of JSON; empty if there are none."""
    each = [
        {"cluster": job.cluster.name, "num_devices": job.cluster.num_devices, "stack": job.stack.label}
        | found.as_json()
        for job, found in placed
    ]
    return {"offload_that_fits": each} if each else {}
