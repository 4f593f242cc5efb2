"""Proposals in answers about a plan that does not fit: another plan, or states outside the devices.

Answers: when does an answer propose a change, and how does a page apply it?
Elsewhere: the search for a change and its text (render/fit_advice.py), all other parts of answers
(responses.py).
"""

from collections.abc import Callable
from html import escape

from flopcast.errors import spec_error
from flopcast.plans_that_fit import CHANGES_THAT_FIT
from flopcast.render.fit_advice import fit_advice, fitting_changes, may_be_fitted
from flopcast.report.memory_report import MemoryReport
from flopcast.report.report import Report
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.ui.request_values import Words

HOW_TO_ASK = "set proposals to true to get changes with which the plan fits"


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
        because = "true adds changes with which a plan fits that is too large"
        raise spec_error("proposals", asked, "true or false", because, "set proposals to true", "request")
    return rest, asked


def proposals(job: Job, memory: MemoryReport, *, asked: bool) -> dict[str, object]:
    """Return the changes with which a plan fits, if requested; otherwise, how to request them."""
    if asked:
        return fit_advice(job, memory, CHANGES_THAT_FIT)[1]
    return {"hint": HOW_TO_ASK} if may_be_fitted(job, memory) else {}


def links_that_fit(report: Report, address: Callable[[Plan], str]) -> str:
    """Return the changes that make the plan fit as HTML, each with a link; empty if it fits already.

    `address` returns the address of the page that predicts the job with a plan.
    """
    found = fitting_changes(report.job, report.memory, CHANGES_THAT_FIT).values()
    return "".join(
        applied(f"With {change.option}, the job fits: {change.price}", address(change.plan))
        for change in found
        if change is not None
    )


def applied(change: str, link: str) -> str:
    """Return a change that makes a job fit, with a link that applies it."""
    return f'<p class="warning">{escape(change)}. <a class="button" href="{escape(link)}">Apply</a></p>'
