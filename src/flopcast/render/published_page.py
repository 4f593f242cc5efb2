"""Published runs as one HTML file with drawings and tables, without network or script, also for print.

Answers: what does `flopcast validate --runs TABLE --report PAGE` write?
Elsewhere: the drawings (published_drawing.py), the tables (published_tables.py), the style that it shares
with the page of one prediction (render/page). Every text of a table of runs is escaped.
"""

import re
from collections.abc import Iterator
from html import escape

from flopcast.lab.validation.published import Published
from flopcast.lab.validation.published_statistics import by_source, of_rows
from flopcast.render.page.frame import Section, document
from flopcast.render.page.table import Cell, Markup
from flopcast.render.page.table import table as as_table
from flopcast.render.published_drawing import mark, ratios_drawing, times_drawing
from flopcast.render.published_tables import LEGEND, tables
from flopcast.render.tables import PrintedTable, legend_lines

NUMBER = re.compile(r"^–$|^[+-]?\d[\d.,]*( ?%| [a-zµ]+)?$")


def runs_as_html(published: Published) -> str:
    """Return the whole page in UTF-8, about a kilobyte per run."""
    sections = [Section("tables", "Tables", html="".join(_tables(published)))]
    top = ""
    if published.rows:
        top = f"<p><strong>{escape(published.constants_sentence)}</strong></p>{_answer(published)}"
        heading = "Predicted against measured"
        sections.insert(0, Section("runs", heading, html="".join(_drawings(published))))
    return document("Published runs, predicted and measured", sections, top=top)


def _drawings(published: Published) -> Iterator[str]:
    """Yield two drawings with a mark for every run, and their legend."""
    rows = published.rows
    sources = list(by_source(rows))
    yield times_drawing(rows, sources)
    yield f'<p class="legend">{"".join(f"<span>{_marked(name, sources)}</span> " for name in sources)}</p>'
    yield (
        "<p>One mark per run, by source. Grey band: within 10 %. Lines through marks: 90 % intervals of"
        " the prediction. Point at a mark to see its run.</p>"
    )
    yield ratios_drawing(rows, sources)


def _tables(published: Published) -> Iterator[str]:
    """Yield the meaning of the headings, then every table."""
    sources = list(by_source(published.rows))
    if published.rows:
        entries = legend_lines(LEGEND, "<em>", "</em>")
        yield f"<ul>{''.join(f'<li>{entry}</li>' for entry in entries)}</ul>"
    for each in tables(published):
        yield _table(each, sources)


def _answer(published: Published) -> str:
    """Return the error of all rows in two sentences."""
    scores = of_rows(published.rows)
    return (
        f'<p class="answer"><strong>{scores["median"]:.1%}</strong> median error of the step time over'
        f" {scores['rows']} runs of {scores['configurations']} configurations</p><p>Mean"
        f" {scores['mape']:.1%}, bias {scores['bias']:+.1%}; {scores['coverage']:.0%} lie inside their 90 %"
        f" interval.{_baseline(scores)} {len(published.left_out)} rows are omitted, see below.</p>"
    )


def _baseline(scores: dict[str, float]) -> str:
    """Return the error of the baseline, which uses the efficiency of similar runs; "" without any."""
    if "trivial_mape" not in scores:
        return ""
    return (
        " A simple model that uses the efficiency of other runs of the same device, precision and family"
        f" has a mean error of {scores['trivial_mape']:.1%}."
    )


def _table(table: PrintedTable, sources: list[str]) -> str:
    """Return a table below its title; names of sources that are drawn have their mark."""
    title = f"<h3>{escape(table.title)}</h3>" if table.title else ""
    numeric = [
        any(NUMBER.match(cells[place]) for _, cells in table.lines)
        and all(not cells[place] or NUMBER.match(cells[place]) for _, cells in table.lines)
        for place in range(len(table.headings))
    ]
    rows: list[tuple[Cell, ...]] = [
        (Markup(_marked(name, sources)) if table.first == "source" else name, *cells)
        for name, cells in table.lines
    ]
    return title + as_table(table.caption, (table.first, *table.headings), rows, (False, *numeric))


def _marked(name: str, sources: list[str]) -> str:
    if name not in sources:
        return escape(name)
    drawn = mark(sources.index(name))
    return f'<svg class="mark" viewBox="-8 -8 16 16" aria-hidden="true">{drawn}</svg> {escape(name)}'
