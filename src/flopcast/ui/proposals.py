"""Proposals to place states outside the devices, in answers about a plan that does not fit.

Answers: when does an answer propose a placement, and how does a page apply it?
Elsewhere: the search for a placement and its text (render/offload_advice.py), all other parts of answers
(responses.py).
"""

from html import escape
from urllib.parse import urlencode

from flopcast import api
from flopcast.errors import spec_error
from flopcast.render.offload_advice import may_need_offload, offload_advice, proposed_offload
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.spec.offload import offload_word
from flopcast.ui.request_values import Words

HOW_TO_ASK = "set proposals to true to get a placement outside the devices with which the plan fits"


def asks_for_proposals(words: Words) -> tuple[Words, bool]:
    """Return the other fields of a request, and whether it requests changes that make its plan fit.

    Raises
    ------
    SpecError
        The field is neither true nor false.
    """
    rest = dict(words)
    asked = rest.pop("proposals", False)
    if not isinstance(asked, bool):
        because = "true adds a placement that makes a plan fit which is too large"
        raise spec_error("proposals", asked, "true or false", because, "set proposals to true", "request")
    return rest, asked


def proposals(job: Job, memory: MemoryReport, *, asked: bool) -> dict[str, object]:
    """Return the placement with which a plan fits, if requested; otherwise, how to request it."""
    if asked:
        return offload_advice(job, memory, api.offload_that_fits)[1]
    return {"hint": HOW_TO_ASK} if may_need_offload(job, memory) else {}


def placement_link(report: Report, words: Words) -> str:
    """Return the placement that makes a plan fit, with a link that applies it; empty if it fits already."""
    found = proposed_offload(report.job, report.memory, api.offload_that_fits)
    if found is None:
        return ""
    link = "/?" + urlencode({**words, "offload": offload_word(found.plan.offload)})
    return applied(f"The plan fits with {found.option}: {found.price}", link)


def applied(change: str, link: str) -> str:
    """Return a change that makes a job fit, with a link that applies it."""
    return f'<p class="warning">{escape(change)}. <a class="button" href="{escape(link)}">Apply</a></p>'
