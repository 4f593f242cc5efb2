"""The serving page and its data: fields of a request, the answer, the best deployments.

Answers: which serving job do the fields of a request describe, and how is it answered?
Elsewhere: requests for training (request_fields.py), the page around the answer (page.py), what fields mean
(form_fields.py), sections of the answer (render/serving_page.py).
"""

import time
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import urlencode

from flopcast import api
from flopcast.best_deployments import answer_of_serving
from flopcast.errors import Problem, SpecError, collected
from flopcast.files.yaml_text import resolve
from flopcast.library.edits import long_names
from flopcast.library.traffic_text import traffic_words
from flopcast.records import replace
from flopcast.render import deployments_json, serving_memory_text
from flopcast.render.deployments_drawing import LEGEND, drawing_of
from flopcast.render.deployments_text import groups_of, rows_of, what_would, why_none
from flopcast.render.page.frame import folded
from flopcast.render.page.table import Cell, Markup, table
from flopcast.render.serving_json import as_json
from flopcast.render.serving_page import answer, sections_of
from flopcast.render.terminal import capital
from flopcast.requests.job_request import JobRequest
from flopcast.requests.search_request import SearchRequest
from flopcast.requests.serving_request import Complete, checked_serving, resolve_serving, with_degree
from flopcast.requests.serving_search import deployment_question
from flopcast.requests.serving_words import serves as request_serves
from flopcast.search.deployments.find import DeploymentResult
from flopcast.search.deployments.question import DeploymentQuestion
from flopcast.search.deployments.space import DeploymentSpace
from flopcast.spec.deployment import Deployment
from flopcast.spec.serving_job import ServingJob
from flopcast.ui.form import used_values
from flopcast.ui.request_fields import reported_together, request_of
from flopcast.ui.request_values import (
    OF_DEGREES,
    OF_DEPLOYMENT,
    OF_FORMATS,
    OF_LIMITS,
    OF_SEARCH,
    OF_TRAFFIC,
    OF_TRAFFIC_FIELDS,
    WITH_SERVING,
    Words,
    checked,
    text_of,
)
from flopcast.ui.search_answer import SHOWN_PLANS

LONG_NAMES = long_names(Deployment)
SIMULATED = 24  # deployments
SHOWN = 12


def serves(words: Words) -> bool:
    """Return whether a request asks for serving: by a field, its job, or a change."""
    if any(text_of(words, name) is not None for name in ("engine", "traffic", "slo", *OF_TRAFFIC)):
        return True
    free = {name: value for name in ("job", "changes") if (value := words.get(name))}
    if not free:
        return False
    try:
        request, source = request_of(free)
        return request_serves(replace(request, source=source))
    except SpecError:  # reported with the errors of the other fields
        return False


def serving_job_from(words: Words, complete: Complete | None = None) -> ServingJob:
    """Return the serving job of a request; `complete` chooses what its plan leaves out.

    Raises
    ------
    SpecError
        The fields have faults. All faults are reported together.
    """
    words, problems = checked(words, WITH_SERVING)
    return reported_together(problems, lambda: resolve_serving(_request(words, problems), complete))


def _request(words: Words, problems: list[Problem]) -> JobRequest:
    """Return the request of checked fields; fields of the traffic replace what its text states.

    Faults of this text are added to `problems`.
    """
    request, source = request_of(words)
    stated = {name: text_of(words, name) for name in WITH_SERVING}
    settings = f"{stated['plan'] or ''} {stated['settings'] or ''}".split()
    of_engine = tuple(word for word in settings if word.startswith("engine."))
    plan = [f"{name}={value}" for name in OF_DEPLOYMENT if (value := stated[name]) is not None]
    traffic = dict[str, object]()
    with collected(problems):
        traffic |= traffic_words(stated["traffic"]) if stated["traffic"] else {}
    traffic |= {
        OF_TRAFFIC_FIELDS.get(name, name): resolve(value)
        for name in OF_TRAFFIC
        if (value := stated[name]) is not None
    }
    return replace(
        request,
        source=source,
        changes=(*request.changes, *of_engine),
        engine=stated["engine"],
        plan=" ".join([*plan, *(word for word in settings if word not in of_engine)]) or None,
        traffic=traffic or None,
        slo=stated["slo"],
    )


def serve_data(words: Words) -> dict[str, object]:
    """Return a report, as `flopcast predict --engine … --json` prints it."""
    return as_json(api.predict_serving(serving_job_from(words)))


def memory_data(words: Words) -> dict[str, object]:
    """Return what fills the memory, as `flopcast memory --engine … --json` prints it."""
    words, problems = checked(words, WITH_SERVING)
    job = reported_together(problems, lambda: checked_serving(_request(words, problems), fits=False))
    return serving_memory_text.as_json(job)


def search_data(words: Words) -> dict[str, object]:
    """Return the best deployments, as `flopcast search --engine … --json` prints them."""
    start_s = time.perf_counter()
    words, problems = checked(words, (*WITH_SERVING, *OF_SEARCH), several=("gpus",))
    named: dict[str, Any] = {name: text_of(words, name) for name in OF_SEARCH[2:]}
    named |= {
        key: str(words.get(name) or "").replace(",", " ").split()
        for key, name in (("clusters", "cluster"), ("objectives", "objectives"))
    }

    def made() -> DeploymentQuestion:
        request = replace(_request({**words, "gpus": None}, problems), gpus=text_of(words, "gpus"))
        return deployment_question(SearchRequest(job=request, **named))

    result = answer_of_serving(reported_together(problems, made))
    return deployments_json.as_json(result, SHOWN_PLANS, time.perf_counter() - start_s)


def serve_page(words: Words) -> dict[str, object]:
    """Return the page's answer to a form: the report of the serving job."""
    report = api.predict_serving(serving_job_from(words))
    parts = "".join(
        folded(one.key, escape(one.heading), one.html, " open" if place < 2 else "")
        for place, one in enumerate(sections_of(report))
    )
    used = f'<div id="used"{used_values(_used(report.job))} hidden></div>'
    return {"html": used + answer(report) + parts, "fields": {}}


def _used(job: ServingJob) -> dict[str, str]:
    """Return the deployment and the traffic of a job as form fields."""
    traffic = dict(word.split("=", 1) for word in job.traffic.text().split())
    return fields_of(job) | {name: traffic.get(name, "") for name in OF_TRAFFIC}


def fields_of(job: ServingJob) -> dict[str, str]:
    """Return the form fields of the deployment of a job."""
    plan = job.plan
    values = {name: getattr(plan, LONG_NAMES.get(name, name)) for name in OF_DEPLOYMENT}
    values |= {"replicas": job.replicas}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def deployments_page(words: Words) -> dict[str, object]:
    """Return the best deployments for a form, with the fields of the best one.

    Each deployment links to its own prediction. The number formats stay as the user chose them, because a
    search does not change them. If no deployment sustains the traffic, the page states the reason.
    """
    found = _found(words)
    kept = [each.first for each in groups_of(found.deployments)][:SHOWN]
    if not kept:
        job = found.question.jobs[0]
        sentences = [f"{capital(why_none(found, job))}.", *what_would(found)]
        text = f"<p>{escape(' '.join(sentences))}</p>"
        return {"html": f'<div class="faults" role="alert"><h2>No answer</h2>{text}</div>', "fields": {}}
    headings, rows = rows_of(found, kept)
    lines: list[tuple[Cell, ...]] = []
    for one, row in zip(kept, rows, strict=True):
        address = "/serve?" + urlencode(_with_plan(words, one.report.job))
        link = Markup(f'<a href="{escape(address)}">{escape(row[1])}</a>')
        lines.append((row[0], link, *row[2:]))
    caption = (
        f"{found.possible:,} of {found.candidates:,} deployments fit; {found.simulated} were simulated with"
        f" up to {found.requests:,} requests for each replica. “=” marks those within 1 % of the best."
    )
    drawn = f'<div class="scroll">{drawing_of(found).of_page()}</div><figcaption>{LEGEND}</figcaption>'
    others = table(caption, headings, lines)
    best = kept[0].report
    section = f"<section><h2>The best deployments</h2>{others}<figure>{drawn}</figure></section>"
    fields = {name: value for name, value in fields_of(best.job).items() if name not in OF_FORMATS}
    return {"html": answer(best) + section, "fields": fields}


def _found(words: Words) -> DeploymentResult:
    """Return the answer of a search over degrees, replicas and limits."""
    rest = {name: value for name, value in words.items() if name not in (*OF_DEGREES, *OF_LIMITS)}
    job = serving_job_from(rest, with_degree)
    question = DeploymentQuestion(jobs=(job,), space=DeploymentSpace())
    return answer_of_serving(question, simulated=SIMULATED)


def _with_plan(words: Words, job: ServingJob) -> Mapping[str, object]:
    """Return the fields of a form with another deployment."""
    return {name: value for name, value in (dict(words) | fields_of(job)).items() if value}
