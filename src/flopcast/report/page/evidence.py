"""What a prediction rests on: measured curves, assumptions, prices; and the job that repeats it.

Answers: why should a reader believe the numbers, and how does he get them again?
Elsewhere: how curves came to be (calibration/), the text of the job (spec/job_text.py).
"""

from base64 import b64encode
from html import escape

from flopcast.report.costs import as_text as cost_lines
from flopcast.report.page.shell import Section
from flopcast.report.page.table import Cell, share, table
from flopcast.report.report import Report
from flopcast.spec.job_text import job_text


def costs(report: Report) -> Section:
    """Money, its price, energy and power: a row each, in the words of the text."""
    pairs = [line.split(maxsplit=1) for line in cost_lines(report.cost, report.watts)[1:]]
    rows = [(name, told) for name, told in pairs]
    return Section(
        key="costs",
        heading="What it costs",
        html=table("One step, and 1e12 tokens.", ("of", "takes"), rows),
    )


def evidence(report: Report) -> Section:
    """The curves that were asked, what was assumed."""
    rows: list[tuple[Cell, ...]] = [
        (each.curve, share(each.relative_error), "outside" if each.extrapolated else "inside", each.source)
        for each in report.evidence
    ]
    told = (
        "Every curve behind the times: its mean error on measurements that its fit did not see, and whether"
        " this job's shapes lie inside of the measured range."
    )
    assumed = "".join(f"<li>{escape(text)}</li>" for text in report.assumptions)
    return Section(
        key="evidence",
        heading="Evidence and assumptions",
        html=table(told, ("curve", "error", "measured range", "source"), rows)
        + "<h3>Assumed</h3>"
        + (f"<ul>{assumed}</ul>" if assumed else "<p>Nothing: the job says everything.</p>"),
    )


def repeat(report: Report) -> Section:
    """The job as a file that holds all of it: no name in it has to be looked up."""
    text = job_text(report.job)
    data = b64encode(text.encode()).decode()
    return Section(
        key="job",
        heading="The job, to repeat it",
        html=(
            "<p>Saved as job.yaml, <code>flopcast predict job.yaml</code> gives this report again. It is"
            " complete: device, links, stack and sources are in it."
            f' <a download="job.yaml" href="data:application/yaml;base64,{data}">Save job.yaml</a></p>'
            f'<details><summary>Show the file</summary><pre tabindex="0">{escape(text)}</pre></details>'
        ),
    )
