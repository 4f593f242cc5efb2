"""Content of files that a user uploads: configs, jobs, launch scripts, training logs.

Answers: what does a page show about an uploaded file or log before anything is predicted?
Elsewhere: how files are read (request_fields.py, lab/logs/), the pages (page.py).
"""

from html import escape

from flopcast import api
from flopcast.errors import InfeasibleError, SpecError
from flopcast.lab.diagnosis.diagnose import diagnose
from flopcast.lab.logs import prediction_check
from flopcast.lab.logs.reader import read_log
from flopcast.render import log_comparison
from flopcast.render.page.measured import measured
from flopcast.render.terminal import plain
from flopcast.ui.page import preview
from flopcast.ui.request_fields import brought_from, job_from
from flopcast.ui.request_values import Words
from flopcast.units import show_count, show_seconds


def log_page(words: Words) -> dict[str, object]:
    """Return a page that compares a run's log, the field `log`, with its prediction, and lists suspects."""
    rest = dict(words)
    log, job = read_log(str(rest.pop("log", "")), "log"), job_from(rest)
    compared = plain(log_comparison.marked_text(prediction_check.compare_with_log(api.predict(job), log)))
    section = measured(diagnose(job, api.predict, log))
    html = f"<h2>{section.heading}</h2>{section.html}<h3>In numbers</h3>"
    html += f'<pre tabindex="0">{escape(compared)}</pre>'
    return {"html": html, "fields": {}}


UPLOADED = ("name", "text", "cluster", "gpus", "arg", "env")


def upload_page(words: Words) -> dict[str, object]:
    """Return a page about an uploaded file, and the form fields for it.

    Training logs are recognised too; the page then states where to compare them with a prediction.
    """
    given = {name: str(words.get(name, "")) for name in UPLOADED}
    try:
        brought = brought_from(**given)
        report = api.predict(job_from(brought))
    except (SpecError, InfeasibleError):
        if not (html := _understood_log(given["text"])):
            raise
        return {"html": html, "fields": {}}
    job = report.job
    rows = {
        "Model": f"{job.model.name}: {show_count(job.model.parameters())} parameters,"
        f" {job.model.num_blocks} blocks, hidden size {job.model.hidden}",
        "Machine": f"{job.cluster.machine} ({job.cluster.name})",
        "Software": job.stack.label,
        "Plan": job.plan.short(),
        "Batch": job.batch_text,
    }
    if job.run is not None:
        rows["Run"] = job.run.text()
    return {"html": preview(rows, report.assumptions, brought), "fields": brought}


def _understood_log(text: str) -> str:
    """Return the content of a text that is a training log, as HTML, or "" if it is not a log."""
    try:
        log = read_log(text, "log")
    except SpecError:
        return ""
    step = log.step_time()
    time = f", {show_seconds(step.median_s)} a step" if step is not None else ""
    return (
        '<section class="advice" id="preview"><h2>This is a training log</h2>'
        f"<p>{escape(log.framework)}: {len(log.steps.step)} records{time}. Describe its job on the page"
        ' <a href="/">Predict</a>, or upload its launch script here. Then choose this log under'
        " “Compare with a training log” on the page with the prediction.</p></section>"
    )
