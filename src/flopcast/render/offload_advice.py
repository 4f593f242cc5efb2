"""What is said about offload where a job does not fit its devices.

Answers: which placement is proposed for a plan, or for a search without a feasible plan; as text and JSON?
Elsewhere: how it is found (search/offload_that_fits.py), a plan that flopcast chooses itself
(requests/changes_that_fit.py).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from flopcast.report.memory_report import MemoryReport
from flopcast.spec.job import Job

if TYPE_CHECKING:
    from flopcast.search.find import SearchResult
    from flopcast.search.offload_that_fits import OffloadThatFits

Advice = tuple[list[str], dict[str, object]]
PlacedJob: TypeAlias = "tuple[Job, OffloadThatFits]"  # of a search, and the plan that fits with a placement
FindPlacement: TypeAlias = "Callable[[Job], OffloadThatFits | None]"


def offload_advice(job: Job, memory: MemoryReport, find: FindPlacement) -> Advice:
    """Return the placement with which a plan fits its devices, as lines and as keys of JSON.

    `find` is called if the plan does not fit, and returns the placement: `api.offload_that_fits`. Both are
    empty if the plan fits its devices. The value of the key is None if no placement is enough.
    """
    if not may_need_offload(job, memory):
        return [], {}
    found = proposed_offload(job, memory, find)
    if found is None:
        return [], {"offload_that_fits": None}
    return [f"{found.option} fits: {found.price}"], {"offload_that_fits": found.as_json()}


def proposed_offload(job: Job, memory: MemoryReport, find: FindPlacement) -> "OffloadThatFits | None":
    """Return the placement with which a plan fits; None if it fits, or no placement is enough."""
    return find(job) if may_need_offload(job, memory) else None


def may_need_offload(job: Job, memory: MemoryReport) -> bool:
    """Return whether a plan does not fit its devices, and placements outside them can be searched."""
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
        f"  {job.cluster.name} × {job.cluster.num_devices}, {job.stack.label}: {found.option} fits"
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
