"""Answers to requests: parts of pages, data and files.

Answers: what does each task return for the fields of a request?
Elsewhere: the fields (request_fields.py), the caller of tasks (worker.py), the frame of pages (page.py),
sections of a report (render/page/). The answer to a page's task is JSON with `html` and `fields`, the form
fields of the predicted plan.
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from urllib.parse import urlencode

from flopcast import api, best_plans
from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.lab.diagnosis.diagnose import diagnose
from flopcast.lab.diagnosis.settings import best_changes
from flopcast.lab.logs.reader import read_log
from flopcast.library import catalog
from flopcast.render import comparison, diagnosis, search_json, serving_comparison
from flopcast.render.fit_advice import placed_json, placed_plans
from flopcast.render.page.evidence import COSTS, EVIDENCE, costs, evidence, saving
from flopcast.render.page.frame import Parts, Section, folded, shows
from flopcast.render.page.limits import LIMITING, limits
from flopcast.render.page.memory import MEMORY, memory
from flopcast.render.page.pipeline import heading, pipeline
from flopcast.render.page.summary import advice, answer
from flopcast.render.page.table import table
from flopcast.render.page.time_breakdown import WHERE, where
from flopcast.render.plain_data import FORMAT_VERSION
from flopcast.render.report_json import as_json, memory_as_json
from flopcast.render.terminal import capital
from flopcast.report import versus
from flopcast.report.report import Report
from flopcast.search.find import SearchResult
from flopcast.spec.job import Job
from flopcast.spec.job_file import job_text
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name
from flopcast.ui import brought_files, serving
from flopcast.ui.chosen_plan import PARTS
from flopcast.ui.compared_jobs import compared_jobs
from flopcast.ui.form import used_values
from flopcast.ui.layout_searches import finds, found, page_part
from flopcast.ui.live_search import LiveSearch
from flopcast.ui.proposals import applied, asks_for_proposals, links_that_fit, proposals
from flopcast.ui.request_fields import job_from, question_from
from flopcast.ui.request_values import OF_JOB, OF_PLAN, Words
from flopcast.ui.search_answer import SHOWN_PLANS, search_parts
from flopcast.units import show_count

JSON, HTML, YAML = "application/json", "text/html", "application/yaml"
OnProgress = Callable[[str], None]
Made = tuple[str, str]  # a media type, a text
Task = Callable[[Words, OnProgress], Made]
DEGREES = ("tp", "pp", "vpp", "cp", "ep")  # whose value is 1 where a plan's short form leaves them out
SAME_JOBS = "Both jobs are the same: change a field of B, such as its cluster or its plan"
Make = Callable[[Report], Section | None]
SECTIONS: Mapping[str, Make] = {
    "time": where, "memory": memory, "pipeline": pipeline, "limits": limits, "costs": costs,
    "saving": saving, "evidence": evidence,
}  # fmt: skip
OPENED = dict.fromkeys(("time", "memory", "pipeline"), " open")  # sections that are shown unfolded
HEADINGS = {"time": WHERE, "memory": MEMORY, "limits": LIMITING, "costs": COSTS, "evidence": EVIDENCE}


def fields_of(plan: Plan) -> dict[str, str]:
    """Return the form fields of a plan; the number of devices determines the replicas.

    >>> fields_of(Plan(tensor_parallel=8, global_batch=64, sequence_parallel=True))["tp"]
    '8'
    """
    pairs = [word.partition("=") for word in plan.short().split()]
    own = {name: value for name, _, value in pairs if name in OF_PLAN and name != "dp"}
    rest = " ".join("".join(parts) for parts in pairs if parts[0] not in OF_PLAN)
    unsaid = dict.fromkeys(DEGREES, "1") | {"zero": "0", "recompute": "none"}
    return unsaid | own | {"dp": "", "plan": rest}


def predict_page(words: Words, _: OnProgress) -> Made:
    """Return the report of the job that a form describes, as HTML.

    The entry `parts` of the form lists the sections, and the parts inside them, that are unfolded and in
    view, separated by blanks. If the form has this entry, the others have only a heading, and the script
    asks for them when a reader unfolds them or scrolls to them.
    """
    job = {name: value for name, value in words.items() if name != PARTS}
    parts = str(words[PARTS]).split() if PARTS in words else None
    return report_parts(api.predict(job_from(job)), parts)


def report_parts(report: Report, parts: Parts = None) -> Made:
    """Return a report as parts of a page, with the fields of its plan for the form.

    Only the sections in `parts` are complete; with None, all sections are complete.
    """
    html = [answer(report), _place_of_advice(report)]
    headings = HEADINGS | {"pipeline": heading(report)}
    sections: dict[str, Make] = {**SECTIONS, "time": partial(where, parts=parts)}
    for key, section in sections.items():
        left_out = key in headings and not shows(key, parts)
        made = Section(key, headings[key], html="") if left_out else section(report)
        state = OPENED.get(key, "") + " data-later" * left_out
        html += [] if made is None else [folded(key, escape(made.heading), made.html, state)]
    return JSON, json.dumps({"html": "".join(html), "fields": fields_of(report.job.plan)})


def _place_of_advice(report: Report) -> str:
    """Return the placeholder for the advice, which takes longer, with values for empty fields."""
    used = {"seq": f"{report.job.batch.mean_sequence_tokens:.0f}", "stack-pick": report.job.stack.name}
    return f'<div id="advice" class="scripted" aria-live="polite"{used_values(used)} hidden></div>'


def advice_page(words: Words, _: OnProgress) -> Made:
    """Return the settings whose change would speed up a job most, each with a link that applies it.

    If the plan does not fit, the changes that make it fit come first.
    """
    report = api.predict(job_from(words))
    changes = best_changes(report, api.predict)
    links = ["/?" + urlencode(_with_edits(words, one.edits, report.job)) for one in changes]
    fitting = links_that_fit(report, lambda plan: "/?" + urlencode(_with_plan(words, plan)))
    html = fitting + advice(changes, report.step_time_s, links)
    return JSON, json.dumps({"html": html, "fields": {}})


def _with_plan(words: Words, plan: Plan) -> dict[str, object]:
    """Return the fields of a form with another plan."""
    kept = {name: value for name, value in words.items() if name not in (*OF_PLAN, "plan")}
    return kept | {name: value for name, value in fields_of(plan).items() if value}


def _with_edits(words: Words, edits: str, job: Job) -> dict[str, object]:
    """Return the fields of a form with edits: those of the plan in their fields, others among changes."""
    named = {"stack": job.stack.name} if "stack." in edits else {}  # its changes need its name
    fields, rest = named | dict(words), []
    for edit in edits.split():
        name, _, value = edit.removeprefix("plan.").partition("=")
        own = short_name(name, Plan.model_fields[name]) if name in Plan.model_fields else ""
        if edit.startswith("plan.") and own in OF_PLAN:
            fields[own] = value
        else:
            rest.append(edit)
    if rest:
        fields["changes"] = " ".join([*str(words.get("changes") or "").split(), *rest])
    return fields


def facts_page(_: Words, __: OnProgress) -> Made:
    """Return a short description of each model and each cluster in the lists: its size, and its devices."""
    models = {name: catalog.model(name) for name in catalog.names("models")}
    clusters = {name: catalog.cluster(name) for name in catalog.names("clusters")}
    facts = {
        "model": {name: _size(each) for name, each in models.items()},
        "cluster": {
            name: f"{each.node.devices} × {each.node.device.name} a node" for name, each in clusters.items()
        },
    }
    return JSON, json.dumps(facts)


def _size(model: Model) -> str:
    """Return the parameters of a model and, for a mixture of experts, the parameters that a token uses."""
    total, active = model.parameters(), model.active_parameters()
    used = f", {show_count(active)} active" if active < total else ""
    return f"{show_count(total)} parameters{used}"


def compare_page(words: Words, _: OnProgress) -> Made:
    """Return a page that compares two jobs.

    The JSON has the verdicts, both answers next to each other, and a table in `html`. `fields` holds the
    fields of both plans with the prefixes "a." and "b.".
    """
    first, second = map(api.predict, compared_jobs(words))
    compared = versus.versus(first, second)
    texts = [SAME_JOBS] if first.job == second.job else map(capital, comparison.verdicts(compared))
    verdicts = "".join(f"<p>{escape(text)}.</p>" for text in texts)
    sides = "".join(
        f"<div><h2>{label}</h2>{answer(each)}</div>"
        for label, each in zip(comparison.LABELS, (first, second), strict=True)
    )
    head, *rows = comparison.rows_of(compared)
    lines = table("Side by side", ("quantity", *head[1:]), rows)
    html = f'<div class="verdict">{verdicts}</div><div class="pair">{sides}</div>{lines}'
    fields = {f"a.{name}": value for name, value in fields_of(first.job.plan).items()}
    fields |= {f"b.{name}": value for name, value in fields_of(second.job.plan).items()}
    return JSON, json.dumps({"html": html, "fields": fields})


def search_page(words: Words, on_progress: OnProgress) -> Made:
    """Return the result of a search as a page: the front as a drawing, the plans as text."""
    if name := finds(words):
        text, _, best = found(name, words)
        address = None if best is None else _address(best, words)
        return JSON, json.dumps({"html": page_part(text, address), "fields": {}})
    result, _, _ = _found(words, on_progress)
    html = search_parts(result, lambda job: _address(job, words))
    for job, placed in placed_plans(result):
        where = f"{job.cluster.machine} ({job.cluster.name})"
        own = job.model_copy(update={"plan": placed.plan})
        fits = f"The model fits on {where} with {placed.option}: {placed.price}"
        html += applied(fits, _address(own, words))
    return JSON, json.dumps({"html": html, "fields": {}})


def predict_data(words: Words, _: OnProgress) -> Made:
    """Return a report as `flopcast predict --json` prints it, with proposals only on request."""
    words, asked = asks_for_proposals(words)
    report = api.predict(job_from(words))
    return JSON, _json(as_json(report) | proposals(report.job, report.memory, asked=asked))


def memory_data(words: Words, _: OnProgress) -> Made:
    """Return the memory of a job as `flopcast memory --json` prints it, with proposals on request."""
    words, asked = asks_for_proposals(words)
    job = job_from(words)
    memory = api.predict_memory(job)
    told = proposals(job, memory, asked=asked)
    return JSON, _json({"format_version": FORMAT_VERSION, "memory": memory_as_json(memory)} | told)


def compare_data(words: Words, _: OnProgress) -> Made:
    """Return a comparison of two jobs, as `flopcast compare --json` prints it."""
    compared = api.compare(*compared_jobs(words, serving_too=True))
    if isinstance(compared, versus.ReportComparison):
        return JSON, _json(comparison.as_json(compared))
    return JSON, _json(serving_comparison.as_json(compared))


def diagnose_data(words: Words, _: OnProgress) -> Made:
    """Return the suspects for a slow job, as `flopcast diagnose --json` prints them.

    Parameters
    ----------
    words : mapping
        Fields of the job; `log` is the text of a log, not its path.

    Raises
    ------
    SpecError
        `log` is not a text, or the job has faults.
    """
    problems, text = list[Problem](), (rest := dict(words)).pop("log", None)
    with collected(problems):
        if not isinstance(text, str | None):
            raise spec_error("log", text, "a text", "a log is what a run printed", "give it as a string")
        log = None if text is None else read_log(text, "log")
    with collected(problems):
        job = job_from(rest)
    if problems:
        raise SpecError(problems)
    return JSON, _json(diagnosis.as_json(diagnose(job, api.predict, log)))


def search_data(words: Words, on_progress: OnProgress) -> Made:
    """Return plans as `flopcast search --json` prints them, or the result that `find` selects."""
    if name := finds(words):
        return JSON, _json(found(name, words)[1])
    result, seconds, screening_s = _found(words, on_progress)
    answered = search_json.as_json(result, SHOWN_PLANS, seconds, screening_s)
    return JSON, _json(answered | placed_json(placed_plans(result)))


def job_file(words: Words, _: OnProgress) -> Made:
    """Return the complete job file."""
    return YAML, job_text(job_from(words))


def report_file(words: Words, _: OnProgress) -> Made:
    """Return the whole report as a page of its own."""
    return HTML, api.report_page(api.predict(job_from(words)))


def _of_either_kind(training: Task, of_serving: Callable[[Words], object]) -> Task:
    """Return a task that answers requests for serving with `of_serving`, and all others with `training`."""
    return lambda words, told: (
        (JSON, _json(of_serving(words))) if serving.serves(words) else training(words, told)
    )


TASKS: Mapping[str, Task] = {
    "page.predict": predict_page,
    "page.compare": compare_page,
    "page.search": search_page,
    "page.advice": advice_page,
    "page.facts": facts_page,
    "page.log": lambda words, _: (JSON, json.dumps(brought_files.log_page(words))),
    "page.upload": lambda words, _: (JSON, json.dumps(brought_files.upload_page(words))),
    "page.serve": lambda words, _: (JSON, json.dumps(serving.serve_page(words))),
    "page.deployments": lambda words, _: (JSON, json.dumps(serving.deployments_page(words))),
    "api.serve": lambda words, _: (JSON, _json(serving.serve_data(words))),
    "api.predict": _of_either_kind(predict_data, serving.serve_data),
    "api.memory": _of_either_kind(memory_data, serving.memory_data),
    "api.compare": compare_data,
    "api.diagnose": diagnose_data,
    "api.search": _of_either_kind(search_data, serving.search_data),
    "file.job": job_file,
    "file.report": report_file,
}


def warm() -> None:
    """Load everything that predictions need, so that the first request does not have to wait."""
    job = job_from({"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": 8, "plan": "gbs=64 tp=8"})
    as_json(api.predict(job))


def _address(job: Job, words: Words) -> str:
    """Return the address of the page that predicts a job of the search that `words` describe."""
    named = (name for name in (*OF_JOB, "changes", "job") if name not in ("cluster", "gpus"))
    rest = {name: words[name] for name in named if name in words}
    machine = {"cluster": job.cluster.name, "gpus": job.cluster.num_devices}
    return f"/?{urlencode(_with_plan(rest | machine, job.plan))}"


def _found(words: Words, on_progress: OnProgress) -> tuple[SearchResult, float, float]:
    """Return the result of a search, its duration in seconds, and the duration of its screening."""
    start_s, question = time.perf_counter(), question_from(words)
    live = LiveSearch(question, on_progress, lambda job: _address(job, words))
    result = best_plans.answer(question, live.hear)
    return result, time.perf_counter() - start_s, live.screened_s - start_s


def _json(data: object) -> str:
    """Return JSON in one line, which takes a tenth of the time of indented JSON."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False)
