"""Searches that rank no plans: the largest model, strategies of blocks, an order of nodes, a division.

Answers: what does `find` of a request for a search ask for, and what is its answer?
Elsewhere: the searches themselves (best_plans.py, placement.py), their text (render/largest_models.py,
render/layouts.py), searches of plans (responses.py).
"""

from collections.abc import Callable, Mapping
from functools import partial
from html import escape

from flopcast import placement
from flopcast.best_plans import largest_models
from flopcast.errors import spec_error
from flopcast.render import layouts, split_points
from flopcast.render.largest_models import largest_json, largest_text
from flopcast.requests.job_request import JobRequest
from flopcast.requests.layout_jobs import resolve_blocks, resolve_chain
from flopcast.requests.resolve import resolve
from flopcast.requests.search_request import OF_RANKING, OF_SPACE
from flopcast.spec.job import Job
from flopcast.ui.form_fields import FINDS
from flopcast.ui.request_fields import job_from, question_from
from flopcast.ui.request_values import OF_SEARCH, Words, text_of

Found = tuple[str, dict[str, object], Job | None]  # as text, as JSON, and the job with the best layout


def finds(words: Words) -> str | None:
    """Return what a request for a search finds besides plans; None if it finds the best plans.

    Raises
    ------
    SpecError
        There is no such search, or it has no meaning for another field of the request.
    """
    name = text_of(words, "find")
    if name is None:
        return None
    if name not in FINDS:
        allowed, because = (
            ", ".join(FINDS),
            "the page has only these searches (without find, it searches for the best plans)",
        )
        raise spec_error("find", name, allowed, because, "remove it", "request")
    for other in OF_RANKING if name == "largest" else (*OF_RANKING, *OF_SPACE):
        if text_of(words, other) is not None:
            because = f"a search with find={name} does not rank plans"
            raise spec_error(other, words[other], "no value", because, f"remove {other} or find", "request")
    return name


def found(name: str, words: Words) -> Found:
    """Return the answer to one of `FINDS`.

    Raises
    ------
    SpecError
        The fields have faults, or the search has no meaning for the job.
    """
    return _SEARCHES[name](words)


def page_part(text: str, address: str | None) -> str:
    """Return an answer as a part of a page, with a link to the prediction of the best layout."""
    link = "" if address is None else f'<p><a href="{escape(address)}">Predict this plan</a></p>'
    return f"<pre>{escape(text)}</pre>{link}"


def _largest(words: Words) -> Found:
    if text_of(words, "offload") is not None:
        because = "the search tries training with and without states outside the devices"
        raise spec_error("offload", words["offload"], "no value", because, "remove offload", "request")
    rest = {name: value for name, value in words.items() if name != "find"}
    answers = largest_models(question_from(rest))
    return largest_text(answers), largest_json(answers), None


def _one_job(words: Words, resolved: Callable[[JobRequest], Job] = resolve) -> Job:
    return job_from({name: value for name, value in words.items() if name not in OF_SEARCH}, resolved)


def _per_layer(words: Words) -> Found:
    placements = words.get("offload") == "auto"
    words = {**words, "offload": None} if placements else words
    job = _one_job(words, partial(resolve_blocks, placements=placements))
    best = placement.best_strategies(job, placements=placements)
    return layouts.per_layer_text(job, best), layouts.per_layer_json(best), best.job


def _node_order(words: Words) -> Found:
    job = _one_job(words)
    best = placement.best_node_order(job)
    return layouts.node_order_text(job, best), layouts.node_order_json(best), None


def _group_division(words: Words) -> Found:
    best = placement.best_group_division(_one_job(words))
    return layouts.group_division_text(best), layouts.group_division_json(best), None


def _split_points(words: Words) -> Found:
    best = placement.best_split_points(_one_job(words, resolve_chain))
    return split_points.split_points_text(best), split_points.split_points_json(best), None


_SEARCHES: Mapping[str, Callable[[Words], Found]] = {
    "largest": _largest,
    "per_layer": _per_layer,
    "node_order": _node_order,
    "group_division": _group_division,
    "split_points": _split_points,
}
