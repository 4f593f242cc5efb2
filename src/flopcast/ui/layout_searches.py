"""Searches that rank no plans: the largest model, strategies of blocks, an order of nodes, a division.

Answers: which search does the field `find` of a request select, and what is its answer?
Elsewhere: the searches themselves (best_plans.py, placement.py), their text (render/largest_models.py,
render/layouts.py), searches of plans (responses.py).
"""

from functools import partial
from html import escape

from flopcast.best_plans import largest_models
from flopcast.errors import spec_error
from flopcast.files.nearest_names import nearest
from flopcast.layout_answers import LayoutAnswer, layout_answer
from flopcast.render.largest_models import largest_json, largest_text
from flopcast.requests.search_request import OF_RANKING, OF_SPACE
from flopcast.ui.form_fields import FINDS
from flopcast.ui.request_fields import job_from, question_from
from flopcast.ui.request_values import OF_SEARCH, Words, text_of


def finds(words: Words) -> str | None:
    """Return the value of `find` in a request for a search, or None if the request searches for the best
    plans.

    Raises
    ------
    SpecError
        No such search exists, or another field of the request makes it meaningless.
    """
    name = text_of(words, "find")
    if name is None:
        return None
    if name not in FINDS:
        allowed = ", ".join(FINDS)
        because = "the page has only these searches (without find, it searches for the best plans)"
        near = nearest(name, FINDS, least_ratio=0.5)
        fix = f"write {near[0]} in place of {name}" if near else "remove it"
        raise spec_error("find", name, allowed, because, fix, "request")
    for other in OF_RANKING if name == "largest" else (*OF_RANKING, *OF_SPACE):
        if text_of(words, other) is not None:
            because = f"a search with find={name} does not rank plans"
            raise spec_error(other, words[other], "no value", because, f"remove {other} or find", "request")
    return name


def found(name: str, words: Words) -> LayoutAnswer:
    """Return the answer to one of `FINDS`.

    Raises
    ------
    SpecError
        The fields have faults, or the search is meaningless for the job.
    """
    if name == "largest":
        return _largest(words)
    placements = name == "per_layer" and words.get("offload") == "auto"
    left_out = (*OF_SEARCH, *(["offload"] if placements else []))
    job = {field: value for field, value in words.items() if field not in left_out}
    return layout_answer(name, partial(job_from, job), placements=placements)


def page_part(text: str, address: str | None) -> str:
    """Return an answer as a part of a page, with a link to the prediction of the best layout."""
    link = "" if address is None else f'<p><a href="{escape(address)}">Predict this plan</a></p>'
    return f"<pre>{escape(text)}</pre>{link}"


def _largest(words: Words) -> LayoutAnswer:
    if text_of(words, "offload") is not None:
        because = "the search tries training with and without states outside the devices"
        raise spec_error("offload", words["offload"], "no value", because, "remove offload", "request")
    rest = {name: value for name, value in words.items() if name != "find"}
    answers = largest_models(question_from(rest))
    return LayoutAnswer(largest_text(answers), largest_json(answers))
