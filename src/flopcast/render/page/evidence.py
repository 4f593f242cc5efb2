"""The evidence of a prediction: measured curves, assumptions and prices; and the job that repeats it.

Answers: which measurements support the numbers, and how can a reader reproduce them?
Elsewhere: how curves are fitted (lab/calibration/), the text of the job (spec/job_file.py).
"""

from base64 import b64encode
from html import escape

from flopcast.render.checkpoint_text import checkpoint_lines
from flopcast.render.page.frame import Section
from flopcast.render.page.table import Cell, listing, share, table
from flopcast.render.report_text import cost_lines
from flopcast.report.report import Report
from flopcast.spec.job_file import job_text

COSTS, EVIDENCE = "What it costs", "Evidence and assumptions"  # headings of sections
NOTHING_ASSUMED = "<p>flopcast assumed no setting, because the job states all of them.</p>"


def costs(report: Report) -> Section:
    """Return the section about cost, price, energy and power, with the lines of the text report."""
    pairs = [line.split(maxsplit=1) for line in cost_lines(report)[1:]]
    rows = [(name, value) for name, value in pairs]
    html = table("Cost and energy of the devices, and their power.", ("quantity", "value"), rows)
    return Section("costs", COSTS, html=html)


def saving(report: Report) -> Section | None:
    """Return the section about checkpoints, with the lines of the text report; None if there are none."""
    if report.checkpoint is None:
        return None
    head, *lines = checkpoint_lines(report.checkpoint)
    rows = [(name, value) for name, value in (line.split(maxsplit=1) for line in lines)]
    html = table(f"{head[0].upper()}{head[1:]}.", ("quantity", "value"), rows)
    return Section("checkpoints", "What saving takes", html=html)


def evidence(report: Report) -> Section:
    """Return the section that lists the curves from which the times are computed, and the assumptions."""
    rows: list[tuple[Cell, ...]] = [
        (each.curve, share(each.relative_error), "outside" if each.extrapolated else "inside", each.source)
        for each in report.evidence
    ]
    caption = (
        "All efficiency curves that the prediction uses. The error is the mean error on measurements to"
        " which the curve was not fitted. The third column states whether the shapes of this job lie inside"
        " the measured range of the curve."
    )
    html = (
        table(caption, ("curve", "error", "measured range", "source"), rows)
        + "<h3>Assumed</h3>"
        + (listing(report.assumptions) or NOTHING_ASSUMED)
    )
    return Section("evidence", EVIDENCE, html=html)


def repeat(report: Report) -> Section:
    """Return the section with the complete job file, which needs no catalogue."""
    text = job_text(report.job)
    data = b64encode(text.encode()).decode()
    html = (
        "<p>Save the file as job.yaml; <code>flopcast predict job.yaml</code> then gives this report"
        " again. The file is complete: it contains the device, the links, the stack and all sources."
        f' <a download="job.yaml" href="data:application/yaml;base64,{data}">Save job.yaml</a></p>'
        f'<details><summary>Show the file</summary><pre tabindex="0">{escape(text)}</pre></details>'
    )
    return Section("job", "Job file that reproduces this prediction", html=html)
