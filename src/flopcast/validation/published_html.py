"""Published runs as one HTML file: drawings and tables, no network, no script, readable on paper.

Answers: what does `flopcast validate --runs TABLE --report PAGE` write?
Elsewhere: the drawings (published_drawing.py), the tables (published_tables.py), the style that it shares
with the page of one prediction (report/html.py). Every text of a table of runs is escaped.
"""

import re
from collections.abc import Iterator
from html import escape

from flopcast.report.html import STYLE
from flopcast.validation.published import Published
from flopcast.validation.published_drawing import mark, ratios_drawing, times_drawing
from flopcast.validation.published_summary import by_source, of_rows
from flopcast.validation.published_tables import LEGEND, Table, tables

OWN_STYLE = """
:root { --source-0: #2f6db3; --source-1: #c9601f; --source-2: #3d8b4f; --source-3: #8a55b0;
  --source-4: #a5822a; --source-5: #b03a5b; }
@media (prefers-color-scheme: dark) { :root { --source-0: #6fa8e6; --source-1: #f09355; --source-2: #74c787;
  --source-3: #c192e8; --source-4: #d8b95c; --source-5: #ec7f9c; } }
body { max-width: 75rem; } table { font-size: .85rem; } svg text { font-size: 14px; fill: currentcolor; }
.wide { overflow-x: auto; }
p span { white-space: nowrap; } p svg, td svg { width: .9rem; height: .9rem; vertical-align: -.1rem; }
.grid { stroke: var(--line); stroke-width: .6; fill: none; }
.band { fill: #8883; stroke: none; } .right { stroke: currentcolor; stroke-width: 1; fill: none; }
.interval { stroke: currentcolor; stroke-width: .8; opacity: .22; fill: none; }
g > path { fill-opacity: .8; }
@media print { body { max-width: none; margin: 0; font-size: 10px; } table { font-size: 8px; }
  tr, svg { break-inside: avoid; } .wide, .scroll { overflow: visible; } }
"""
NUMBER = re.compile(r"^–$|^[+-]?\d[\d.,]*( ?%| [a-zµ]+)?$")


def runs_as_html(published: Published) -> str:
    """The page: a whole document, UTF-8, about a kilobyte a run."""
    title = "Published runs, predicted and measured"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}{OWN_STYLE}</style></head>"
        f"<body><h1>{title}</h1>{''.join(_body(published))}</body></html>\n"
    )


def _body(published: Published) -> Iterator[str]:
    rows = published.rows
    sources = list(by_source(rows))
    if rows:
        yield f"<p><strong>{published.told}</strong></p>"
        yield _answer(published)
        yield times_drawing(rows, sources)
        names = (f"<span>{_marked(name, sources)}</span>" for name in sources)
        yield f"<p>{' &emsp; '.join(names)}</p>"
        yield (
            "<p>A mark a run, by its source; grey band: within 10 %; lines through marks: 90 % intervals of"
            " the prediction. Point at a mark for its run.</p>"
        )
        yield ratios_drawing(rows, sources)
        legend = "; ".join(f"<em>{heading}</em>: {meaning}" for heading, meaning in LEGEND.items())
        yield f"<p>{legend}.</p>"
    for table in tables(published):
        yield _table(table, sources)


def _answer(published: Published) -> str:
    """How far off all rows are, in two sentences."""
    found = of_rows(published.rows)
    return (
        f'<p class="answer"><strong>{found["median"]:.1%}</strong> median error of the step time over'
        f" {found['rows']} runs of {found['configurations']} configurations</p><p>Mean"
        f" {found['mape']:.1%}, bias {found['bias']:+.1%}; {found['coverage']:.0%} lie inside of their 90 %"
        f" interval. One efficiency for all runs, fitted on them, is off by {found['trivial_mape']:.1%} in"
        f" the mean. {len(published.left_out)} rows are left out, with reasons below.</p>"
    )


def _table(table: Table, sources: list[str]) -> str:
    """A table after its title; names of drawn sources have their mark."""
    title = f"<h2>{escape(table.title)}</h2>" if table.title else ""
    told = f"<p>{escape(table.told)}</p>" if table.told else ""
    numeric = [
        any(NUMBER.match(cells[place]) for _, cells in table.lines)
        and all(not cells[place] or NUMBER.match(cells[place]) for _, cells in table.lines)
        for place in range(len(table.headings))
    ]
    kinds = [' class="number"' if number else "" for number in numeric]
    head = f"<th>{escape(table.first)}</th>" + "".join(
        f"<th{kind}>{escape(heading)}</th>" for kind, heading in zip(kinds, table.headings, strict=True)
    )
    lines = "".join(
        f"<tr><td>{_marked(name, sources) if table.first == 'source' else escape(name)}</td>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, cells, strict=True))
        + "</tr>"
        for name, cells in table.lines
    )
    return f'{title}{told}<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _marked(name: str, sources: list[str]) -> str:
    """A source's name behind its mark, where it is drawn."""
    if name not in sources:
        return escape(name)
    return f'<svg viewBox="-8 -8 16 16" aria-hidden="true">{mark(sources.index(name))}</svg> {escape(name)}'
