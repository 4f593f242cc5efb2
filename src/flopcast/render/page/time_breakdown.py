"""The section that divides the step time into components, and each component into operators.

Answers: which operators make a component of the breakdown, in which pass, for how long?
Elsewhere: the components themselves (report/report.py), how close each kernel comes to its bound
(roofline.py).
Seconds are those of the busiest stage over a whole step; work that compute hides is not included. The
operators of a component sum to the component, and the components to the step.
"""

from collections import defaultdict
from html import escape

from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import Item
from flopcast.records import Record
from flopcast.render.loader_text import loader_lines
from flopcast.render.outer_text import outer_head, outer_rows, peer_rows
from flopcast.render.page.drawing import WIDTH, figure, legend
from flopcast.render.page.frame import Parts, Section, shows, unfolding
from flopcast.render.page.style import HUES
from flopcast.render.page.table import markup, part_row, rate, seconds, share, table
from flopcast.report.labels import component_label
from flopcast.report.report import LAUNCH, Report
from flopcast.units import show_seconds

WHERE, OPERATORS = "Where the time goes", "Operators of each component"  # headings
BAR_HEIGHT, LEAST_NAMED = 34, 0.06  # dots; of the step, for a component that is named in the drawing


class OperatorTime(Record):
    """One operator of a component in one pass, with its kernel or collective and its seconds per step."""

    operator: str
    phase: str
    runs_as: str  # a kernel class or a collective
    path_s: float


def operators_of(report: Report) -> dict[str, tuple[OperatorTime, ...]]:
    """Return the operators of every component, longest first; bubble and jitter have none.

    Operators are distinguished by name, pass, and kernel or collective, so that the GEMMs of the forward
    and the backward pass count separately. Seconds of a component's operators add up to the component.
    """
    path_s: dict[tuple[str, str, str, str], float] = defaultdict(float)
    for each in report.timeline.bottleneck_attribution:
        path_s[_place(each.item)] += each.path_s
    operators: dict[str, list[OperatorTime]] = {name: [] for name in report.breakdown}
    for (component, operator, phase, runs_as), spent_s in path_s.items():
        part = OperatorTime(operator=operator, phase=phase, runs_as=runs_as, path_s=spent_s)
        operators[component].append(part)
    return {
        name: tuple(sorted(each, key=lambda part: (-part.path_s, part.operator, part.phase)))
        for name, each in operators.items()
    }


def _place(item: Item | None) -> tuple[str, str, str, str]:
    """Return component, operator, pass and kernel of an item; launches belong to the host."""
    if item is None:
        return LAUNCH, "launches", "every", "host"
    work = item.work
    runs_as = "host"
    if isinstance(work, AbstractOperator):
        runs_as = work.kernel
    elif isinstance(work, AbstractMessage):
        runs_as = work.collective or "nothing"
    return item.component, item.name, item.phase, runs_as


def one_step(report: Report) -> str:
    """Return the subject of the times in a caption: the busiest stage of several, or the step."""
    return "One step of the busiest stage" if report.job.plan.pipeline_parallel > 1 else "One step"


def _stragglers(report: Report) -> str:
    """Return what slow parts of the machine cost; nothing if the job states none."""
    found = report.stragglers
    if found is None:
        return ""
    rows = [
        (each.part.label, share(each.part.speed_fraction), seconds(each.alone_s)) for each in found.each
    ]
    caption = (
        f"Slow parts cost {seconds(found.lost_s).shown} a step, {share(found.lost_fraction).shown} of it."
    )
    return table(caption, ("slow part", "speed", "costs alone"), rows)


def _loader(report: Report) -> str:
    """Return the stages of the input pipeline; nothing if the job describes none."""
    found = report.loader
    if found is None:
        return ""
    rows = [
        (
            each.stage.name,
            seconds(each.step_s),
            rate(each.samples_per_s, "samples/s"),
            "overlapped" if each.stage.overlapped else "exposed",
        )
        for each in found.stages
    ]
    caption = f"{loader_lines(found)[0].capitalize()}."
    return table(caption, ("stage", "time of a step", "rate alone", ""), rows)


def _outer(report: Report) -> str:
    """Return the outer round; nothing if the plan has one peer."""
    if report.outer is None:
        return ""
    head = outer_head(report.outer)
    drawn = table(f"{head[0].upper()}{head[1:]}.", ("part of a round", "", ""), outer_rows(report.outer))
    if report.peers:
        drawn += table(
            "Inner steps of unequal peers.", ("peers", "inner step", ""), peer_rows(report.peers)
        )
    return drawn


def where(report: Report, parts: Parts = None) -> Section:
    """Return the section: the step as one bar, then a line per component that unfolds to its operators."""
    rows = [
        part_row(component_label(component), seconds(spent_s), spent_s / report.step_time_s, _hue(number))
        for number, (component, spent_s) in enumerate(report.breakdown.items())
    ]
    html = (
        _drawing(report)
        + table(f"{one_step(report)}, by component.", ("component", "time", "share", ""), rows)
        + _loader(report)
        + _outer(report)
        + _stragglers(report)
        + unfolding("operators", OPERATORS, _operators(report) if shows("operators", parts) else None)
    )
    return Section("time", WHERE, html=html)


def _operators(report: Report) -> str:
    """Return the HTML of all components, each with a table of its operators."""
    inside = operators_of(report)
    return "".join(_component(report, name, inside[name]) for name in report.breakdown if inside[name])


def _hue(number: int) -> int:
    """Return the hue of a component; hues repeat, and the names distinguish components of equal hue."""
    return number % HUES


def _drawing(report: Report) -> str:
    """Return the step as a bar with its components side by side."""
    left, drawn = 0.0, []
    for number, (name, spent_s) in enumerate(report.breakdown.items()):
        width = spent_s / report.step_time_s * WIDTH
        label = f"{component_label(name)}: {show_seconds(spent_s)} ({spent_s / report.step_time_s:.1%})"
        drawn.append(
            f'<rect class="hue-{_hue(number)}" x="{left:.2f}" y="0" width="{width:.2f}"'
            f' height="{BAR_HEIGHT}"><title>{escape(label)}</title></rect>'
        )
        left += width
    named = [
        (_hue(number), f"{component_label(name)} {spent_s / report.step_time_s:.0%}")
        for number, (name, spent_s) in enumerate(report.breakdown.items())
        if spent_s >= LEAST_NAMED * report.step_time_s
    ]
    described = f"The step of {show_seconds(report.step_time_s)} as a bar: " + ", ".join(
        f"{component_label(name)} {spent_s / report.step_time_s:.1%}"
        for name, spent_s in report.breakdown.items()
    )
    title = "The step by component"
    return figure("time-drawing", title, described, BAR_HEIGHT, "".join(drawn), legend(named))


def _component(report: Report, component: str, inside: tuple[OperatorTime, ...]) -> str:
    """Return one component as HTML: its name and time, and its operators when unfolded."""
    spent_s = report.breakdown[component]
    step_s, spent = report.step_time_s, [part for part in inside if part.path_s]
    rows = [
        (part.operator, part.phase, part.runs_as, seconds(part.path_s), share(part.path_s / step_s))
        for part in spent
    ]
    headings = ("operator", "pass", "runs as", "time", "share of the step")
    name = component_label(component)
    summary = f"{escape(name)}: {markup(seconds(spent_s))}, {markup(share(spent_s / report.step_time_s))}"
    operators = table(f"{name}, operator by operator.", headings, rows)
    return f"<details><summary>{summary}</summary>{operators}</details>"
