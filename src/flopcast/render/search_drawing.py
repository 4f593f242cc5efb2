"""The front of a search as one drawing: every played plan a mark, the front joined, nothing to load.

Answers: what does `flopcast search --plot FILE` write?
Elsewhere: the numbers (search/find.py), the style and the frame of every page (render/page). Every text is
escaped; each mark carries its plan as a `<title>`, which browsers show without any script.
"""

from collections.abc import Callable, Iterator
from html import escape

from flopcast.render.page.drawing import WIDTH, Axis, described_svg, grid, label, names
from flopcast.render.page.frame import Section, document
from flopcast.render.page.style import COLOURS, DRAWN, LINED
from flopcast.render.search_table import name_of, objective_name, values_of
from flopcast.search.find import SearchResult
from flopcast.search.rank import Ranked
from flopcast.units import Number

HEIGHT, EDGE = 560, 104
WIDE_RATIO = 10.0  # of the largest value to the smallest: linear, all but one mark would share a corner
HUES = {"plan": 7, "equal": 2, "front": 0, "first": 1}  # those that matter most last, on top
LEGEND = (
    "A mark is a plan, simulated exactly: orange the recommended one, green those that are tied with the"
    " best, blue the front, grey the others. Lines: 90 % interval of the ratio to the best. Point at a mark"
    " for its plan."
)


def as_svg(result: SearchResult) -> str:
    """Return the drawing alone as SVG: the first two objectives against each other.

    Grey marks are plans that were played, green ones equal the best, blue ones stand on the front, the
    recommended one is orange; lines are 90 % intervals of the ratio to the best, at the best's value.
    """
    namespace = 'xmlns="http://www.w3.org/2000/svg" '
    return (
        drawing(result)
        .replace("<svg ", f"<svg {namespace}", 1)
        .replace("</title>", f"</title><style>{COLOURS}{DRAWN}{LINED}</style>", 1)
        + "\n"
    )


def as_html(result: SearchResult, text: str) -> str:
    """Return a page with the drawing, a legend, and the printed result."""
    figure = (
        f'<figure><div class="scroll">{drawing(result)}</div><figcaption>{LEGEND}</figcaption></figure>'
    )
    printed = f'<pre tabindex="0">{escape(text)}</pre>'
    sections = [
        Section(key="front", heading="Plans that were simulated", html=figure),
        Section(key="answer", heading="The answer", html=printed),
    ]
    return document(f"Plans for {result.question.jobs[0].model.name}", sections)


def drawing(result: SearchResult) -> str:
    """Return the drawing for a page that has its style."""
    asked = [objective_name(objective) for objective in result.question.asked[:2]]
    title = f"{asked[0]} against {asked[1]} of {len(result.plans)} plans"
    if not result.plans:
        return described_svg(
            "plans", title, "No plan is feasible.", 80, label(40, 50, "no plan is feasible", "start")
        )
    across, up = (_axis(result, place) for place in (0, 1))
    shows = [objective.show for objective in result.question.asked[:2]]
    drawn = [*grid(across, up, *shows), _line(result, across, up), *_marks(result, across, up)]
    return described_svg("plans", title, LEGEND, HEIGHT, "".join(drawn) + names(across, up, *asked))


def _values(result: SearchResult, place: int) -> Callable[[Ranked], Number]:
    """Return a function from a plan to the value of an objective, in the unit that is shown."""
    objective = result.question.asked[place]
    return lambda one: objective.shown(one.losses[place].value)


def _axis(result: SearchResult, place: int) -> Axis:
    """Return the axis of an objective, over all simulated plans.

    By logarithms where they differ more than tenfold, as fast and frugal plans of a front do.
    """
    value, unit = _values(result, place), result.question.asked[place].axis_unit
    values = [value(one) for one in result.plans]
    low, high = min(values), max(values)
    start, end = (EDGE, WIDTH - 30) if place == 0 else (HEIGHT - 60, 20)
    if 0 < low * WIDE_RATIO < high:
        return Axis(low=low / 1.1, high=high * 1.1, start=start, end=end, logarithmic=True, unit=unit)
    margin = 0.05 * (high - low) or 0.05 * high or 1.0
    return Axis(low=low - margin, high=high + margin, start=start, end=end, unit=unit)


def _line(result: SearchResult, across: Axis, up: Axis) -> str:
    """Return the front as steps; None for more than two objectives."""
    if len(result.question.asked) > 2 or len(result.on_front) < 2:
        return ""
    points = [
        (across.at(_values(result, 0)(one)), up.at(_values(result, 1)(one))) for one in result.on_front
    ]
    corners = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
    corners += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
    return f'<path class="line-0" d="{"".join(corners)}"/>'


def _marks(result: SearchResult, across: Axis, up: Axis) -> Iterator[str]:
    """Yield one mark per plan; the most important ones are drawn last, on top."""
    on_front = set(result.on_front)

    def kind(one: Ranked) -> int:
        return 3 if one is result.plans[0] else 2 if one in on_front else 1 if one.equal else 0

    hues = tuple(HUES.values())
    best = min(one.losses[0].value for one in result.plans)
    for one in sorted(result.plans, key=kind):
        x, y = across.at(_values(result, 0)(one)), up.at(_values(result, 1)(one))
        ends = [
            across.at(result.question.first.shown(best * ratio))
            for ratio in (one.ratio_low, one.ratio_high)
        ]
        bounds = f'<path class="faint" d="M{ends[0]:.1f},{y:.1f}H{ends[1]:.1f}"/>' if kind(one) else ""
        hue, radius = hues[kind(one)], 4 + (kind(one) > 1)
        yield (
            f"<g><title>{escape(_label(one, result))}</title>{bounds}"
            f'<circle class="hue-{hue}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/></g>'
        )


def _label(one: Ranked, result: SearchResult) -> str:
    """Return the text of a plan's mark: plan, cluster and the values of all objectives."""
    values = ", ".join(
        f"{objective_name(objective)} {value}"
        for objective, value in zip(result.question.asked, values_of(result, one), strict=True)
    )
    return f"{one.played.plan.short()} on {name_of(one.played.job, result.question)}: {values}"
