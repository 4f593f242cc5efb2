"""A report as one HTML file that needs no network, and can be read without its script and on paper.

Answers: which sections does the page of a prediction have, and which data?
Elsewhere: each section (render/page/), the same as text (report_text.py) and as JSON (report_json.py, which
the page holds). Every text that a user can choose (names, assumptions, sources) is escaped.

Without the script (page/report.js) nothing is missing. It sorts tables, names what is under the pointer,
and zooms all drawings over time together: + and - around the middle, arrows move, 0 shows all. The mouse
wheel zooms only while Ctrl is held, so that it can scroll the page.
"""

from collections.abc import Sequence

from flopcast.files.package_table import read_text
from flopcast.lab.diagnosis.suspect import SlowStep, Suspect
from flopcast.render.page.evidence import costs, evidence, repeat, saving
from flopcast.render.page.frame import document
from flopcast.render.page.limits import limits
from flopcast.render.page.measured import measured
from flopcast.render.page.memory import memory
from flopcast.render.page.pipeline import pipeline, tasks_as_data
from flopcast.render.page.roofline import roofline
from flopcast.render.page.scaling import scaling
from flopcast.render.page.summary import advice, answer
from flopcast.render.page.time_axis import TIME_UNITS
from flopcast.render.page.time_breakdown import where
from flopcast.render.report_json import as_json
from flopcast.report.report import Report
from flopcast.search.scaled import ScaledStep


def as_html(
    report: Report,
    scaled: Sequence[ScaledStep] = (),
    changes: Sequence[Suspect] | None = None,
    found: SlowStep | None = None,
) -> str:
    """Return the page, which is below a megabyte for any number of stages and micro-batches.

    `scaled` is the plan on other numbers of devices, from `search.scaled`. Without them, the page has no
    such section. `changes` are settings whose change would save time, the best first; None if the page does
    not mention them. `found` is a diagnosis of a run of this job, whose measured steps come first.
    """
    job = report.job
    sections = [] if found is None else [measured(found)]
    sections += [where(report), pipeline(report), memory(report), roofline(report)]
    sections += [scaling(scaled, fine_tunes=report.job.fine_tunes)] if scaled else []
    saved = saving(report)
    sections += [limits(report), costs(report), *([] if saved is None else [saved])]
    sections += [evidence(report), repeat(report)]
    return document(
        f"{job.model.name} on {job.cluster.machine}",
        sections,
        top=answer(report) + ("" if changes is None else advice(changes, report.step_time_s)),
        script=read_text("flopcast.render.page", "report.js"),
        data={"report": as_json(report), "time_units": TIME_UNITS, "pipeline": tasks_as_data(report)},
    )
