"""Answers of the searches about one plan, as text and as data.

Answers: what do the command line and the pages show about the best order of nodes, the best division over
groups, strategies of blocks, split points, and the largest values that fit?
Elsewhere: the searches (placement.py, search/largest_values.py), their texts (render/layouts.py,
render/split_points.py, render/largest_values.py).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from flopcast import placement
from flopcast.render import layouts
from flopcast.render.largest_values import largest_values_json, largest_values_text
from flopcast.render.split_points import split_points_json, split_points_text
from flopcast.requests.job_request import JobRequest
from flopcast.requests.layout_jobs import resolve_blocks, resolve_chain
from flopcast.requests.resolve import resolve
from flopcast.search.largest_values import largest_values
from flopcast.spec.job import Job

LARGEST = "largest_"  # begins the names of searches for the largest value


class LayoutAnswer(NamedTuple):
    """The best layout as text and as JSON data, and the job with this plan if the layout is a plan."""

    text: str
    data: dict[str, object]
    job: Job | None = None


def layout_answer(
    name: str, job_of: Callable[[Callable[[JobRequest], Job]], Job], *, placements: bool
) -> LayoutAnswer:
    """Return the best layout of the plan of a job.

    Parameters
    ----------
    name : "node_order", "group_division", "split_points" or "per_layer", or "largest_batch",
        "largest_seq" or "largest_rank" for the largest value that fits
    job_of : returns the job, given the function that resolves its request
    placements : whether strategies of blocks are recompute and placements on the host

    Raises
    ------
    SpecError
        The request has faults, or the search has no meaning for the job.
    """
    if name == "per_layer":
        job = job_of(partial(resolve_blocks, placements=placements))
        best = placement.best_strategies(job, placements=placements)
        return LayoutAnswer(layouts.per_layer_text(job, best), layouts.per_layer_json(best), best.job)
    if name == "split_points":
        front = placement.best_split_points(job_of(resolve_chain))
        return LayoutAnswer(split_points_text(front), split_points_json(front))
    job = job_of(resolve)
    if name.startswith(LARGEST):
        value = name.removeprefix(LARGEST)
        found = largest_values(job, value)
        return LayoutAnswer(largest_values_text(job, value, found), largest_values_json(value, found))
    if name == "node_order":
        order = placement.best_node_order(job)
        return LayoutAnswer(layouts.node_order_text(job, order), layouts.node_order_json(order))
    divided = placement.best_group_division(job)
    return LayoutAnswer(layouts.group_division_text(divided), layouts.group_division_json(divided))
