"""A drawing of a front. Every candidate is a mark, and steps connect the front.

Answers: how are the answers of a search drawn, by two of their objectives?
Elsewhere: which candidates and objectives (search_drawing.py, deployments_drawing.py), axes (drawing.py).

Every text is escaped; each mark has its text as a `<title>`, which browsers show without any script.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape

from flopcast.records import Record
from flopcast.render.page.drawing import WIDTH, Axis, described_svg, grid, label, names
from flopcast.render.page.frame import Section, document
from flopcast.render.page.style import COLOURS, DRAWN, LINED
from flopcast.units import Number

HEIGHT, EDGE = 560, 104
WIDE_RATIO = 10.0  # of the largest value to the smallest: linear, all but one mark would share a corner
OTHER, TIED, ON_FRONT, RECOMMENDED = range(4)  # kinds of marks, those that matter most last, on top
HUES = (7, 2, 0, 1)


class FrontMark(Record):
    """One candidate of a front.

    Attributes
    ----------
    across, up : Number
        Its values in both objectives, in the units of the axes.
    kind : int
        Recommended, on the front, tied or other; decides the shape and colour of the mark.
    text : str
        Shown when the pointer rests on the mark.
    interval : tuple of two numbers, or None
        Ends of the 90 % interval of the first value.
    """

    across: Number
    up: Number
    kind: int
    text: str
    interval: tuple[Number, Number] | None = None


class FrontDrawing(Record, eq=False):
    """The content of a drawing: names of candidates ("plans") and axes, the form of values, and the marks.

    With `joined`, a line connects the marks of the front in their order.
    """

    what: str
    legend: str
    axes: tuple[str, str]
    shows: tuple[Callable[[Number], str], Callable[[Number], str]]
    units: tuple[Number, Number]  # what round values on each axis are multiples of
    marks: Sequence[FrontMark]
    joined: bool = True

    def svg(self) -> str:
        """Return the drawing as SVG with its style, without the page."""
        namespace = 'xmlns="http://www.w3.org/2000/svg" '
        return (
            self.of_page()
            .replace("<svg ", f"<svg {namespace}", 1)
            .replace("</title>", f"</title><style>{COLOURS}{DRAWN}{LINED}</style>", 1)
            + "\n"
        )

    def html(self, heading: str, text: str) -> str:
        """Return a page with the drawing, a legend, and the printed answer."""
        figure = (
            f'<figure><div class="scroll">{self.of_page()}</div>'
            f"<figcaption>{self.legend}</figcaption></figure>"
        )
        printed = f'<pre tabindex="0">{escape(text)}</pre>'
        name = f"{self.what.capitalize()} that were simulated"
        sections = [Section("front", name, html=figure), Section("answer", "The answer", html=printed)]
        return document(heading, sections)

    def of_page(self) -> str:
        """Return the drawing for a page that already contains its style."""
        title = f"{self.axes[0]} against {self.axes[1]} of {len(self.marks)} {self.what}"
        if not self.marks:
            nothing = f"no {self.what.removesuffix('s')} is feasible"
            drawn = label(40, 50, nothing, "start")
            return described_svg("plans", title, f"{nothing.capitalize()}.", 80, drawn)
        across = self._axis([one.across for one in self.marks], 0)
        up = self._axis([one.up for one in self.marks], 1)
        parts = [*grid(across, up, *self.shows), self._line(across, up), *self._marks(across, up)]
        drawn = "".join(parts) + names(across, up, *self.axes)
        return described_svg("plans", title, self.legend, HEIGHT, drawn)

    def _axis(self, values: Sequence[Number], place: int) -> Axis:
        """Return an axis over all values, by logarithms where they differ more than tenfold."""
        low, high, unit = min(values), max(values), self.units[place]
        start, end = (EDGE, WIDTH - 30) if place == 0 else (HEIGHT - 60, 20)
        if 0 < low * WIDE_RATIO < high:
            return Axis(low=low / 1.1, high=high * 1.1, start=start, end=end, logarithmic=True, unit=unit)
        margin = 0.05 * (high - low) or 0.05 * high or 1.0
        return Axis(low=low - margin, high=high + margin, start=start, end=end, unit=unit)

    def _line(self, across: Axis, up: Axis) -> str:
        """Return the front as steps; nothing if it is not joined or is a single point."""
        points = [(across.at(one.across), up.at(one.up)) for one in self.marks if one.kind >= ON_FRONT]
        if not self.joined or len(points) < 2:
            return ""
        corners = [f"M{points[0][0]:.1f},{points[0][1]:.1f}"]
        corners += [f"H{x:.1f}V{y:.1f}" for x, y in points[1:]]
        return f'<path class="line-0" d="{"".join(corners)}"/>'

    def _marks(self, across: Axis, up: Axis) -> Iterator[str]:
        """Yield one mark for each candidate; the most important ones are drawn last, on top."""
        for one in sorted(self.marks, key=lambda mark: mark.kind):
            x, y = across.at(one.across), up.at(one.up)
            bounds = ""
            if one.interval is not None:
                low, high = (across.at(end) for end in one.interval)
                bounds = f'<path class="faint" d="M{low:.1f},{y:.1f}H{high:.1f}"/>'
            hue, radius = HUES[one.kind], 4 + (one.kind >= ON_FRONT)
            yield (
                f"<g><title>{escape(one.text)}</title>{bounds}"
                f'<circle class="hue-{hue}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/></g>'
            )
