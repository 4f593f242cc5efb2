"""A report as one HTML file: no network, readable without its script, on paper, by eye and by programs.

Answers: which sections does the page of a prediction have, and which data?
Elsewhere: each section (page/), the same as text (text.py) and as JSON (as_json.py, which the page holds).
Every text that a user can choose (names, assumptions, sources) is escaped.
"""

from collections.abc import Sequence

from flopcast.report.as_json import as_json
from flopcast.report.page.answer import answer
from flopcast.report.page.evidence import costs, evidence, repeat
from flopcast.report.page.limits import limits
from flopcast.report.page.memory import memory
from flopcast.report.page.over_time import TIME_UNITS
from flopcast.report.page.pipeline import pipeline, tasks_as_data
from flopcast.report.page.roofline import roofline
from flopcast.report.page.scaling import ScaledStep, scaling
from flopcast.report.page.script import SCRIPT
from flopcast.report.page.shell import document
from flopcast.report.page.where import where
from flopcast.report.report import Report


def as_html(report: Report, scaled: Sequence[ScaledStep] = ()) -> str:
    """Return the page.

    Parameters
    ----------
    report : Report
    scaled : sequence of ScaledStep
        The plan on other numbers of devices, from `search.scaled`; no section without them.

    Returns
    -------
    str
        A whole document, UTF-8, below a megabyte however many stages and micro-batches there are.
    """
    job = report.job
    sections = [where(report), pipeline(report), memory(report), roofline(report)]
    sections += [scaling(scaled)] if scaled else []
    sections += [limits(report), costs(report), evidence(report), repeat(report)]
    return document(
        f"{job.model.name} on {job.cluster.num_devices} × {job.cluster.node.device.name}",
        sections,
        top=answer(report),
        script=SCRIPT,
        data={"report": as_json(report), "time_units": TIME_UNITS, "pipeline": tasks_as_data(report)},
    )
