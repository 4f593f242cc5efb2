"""Tables of published runs, whatever they are printed as.

Answers: which tables does a page of published runs have, with which headings and cells?
Elsewhere: the page as Markdown (published_markdown.py) and as HTML (published_page.py), the shorter text
(published_text.py), the statistics (lab/validation/published_statistics.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from flopcast.cost.factors import FAMILIES
from flopcast.lab.validation.published import Published
from flopcast.lab.validation.published_statistics import (
    KINDS,
    by_family,
    by_source,
    formulas,
    grouped,
    of_rows,
    reasons,
    worst,
)
from flopcast.render.published_text import HEADINGS, cells, plan_words
from flopcast.units import show_seconds

OF_FAMILY = ("rows", "median", "mean", "p90", "bias", "in 90 %", "width", "once")  # headings of each family
LEGEND = {  # heading → what it holds
    "full": "rows that say all",
    "median, mean, p90": "of absolute errors of the step time, predicted over measured less one",
    "width": "median half-width of the 90 % intervals",
    "once": "the mean where repeats of a configuration count once",
    "repeat, release": "the noise floor, what a perfect prediction would be off by, from repeats inside one"
    " release and from release to release",
    "trivial": "mean error of FLOP × bubble over the efficiency of the other rows with the same device,"
    " precision and family",
    "memory": "median error of peaks, where they are printed",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrintedTable:
    """One table; `title` and `told` stand before it, where they are not empty.

    `lines` are the name of a line, under the heading `first`, and its cells under `headings`.
    """

    first: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, list[str]], ...]
    title: str = ""
    told: str = ""


def tables(published: Published) -> Iterator[PrintedTable]:
    """Yield every table of a page in order; tables of rows only if there are rows."""
    if published.rows:
        yield _sources(published)
        yield _families(published)
        for name, key in KINDS.items():
            kinds = sorted(grouped(published.rows, key).items())
            lines = tuple((kind, cells(of_rows(found))) for kind, found in kinds)
            yield PrintedTable(first=name, headings=HEADINGS, lines=lines)
        yield _worst(published)
        yield _unfitted(published)
        yield _not_fitting(published)
        yield PrintedTable(
            title="FLOP as printed",
            told="Rows that print both FLOP/s and tokens/s, by the formula with which they count FLOP.",
            first="formula",
            headings=("rows",),
            lines=tuple((name, [str(number)]) for name, number in formulas(published.rows).items()),
        )
    told = reasons(published.left_out)
    yield PrintedTable(
        title=f"Left out: {len(published.left_out)} rows",
        first="source",
        headings=("rows", "because"),
        lines=tuple((source, [str(number), why]) for (source, why), number in told.items()),
    )


def _sources(published: Published) -> PrintedTable:
    """Return a table with one line per source, one of all rows, and one of rows without assumptions."""
    rows = published.rows
    full = [row for row in rows if row.run.fully_specified]
    groups = [*by_source(rows).items(), ("all", rows), ("all without assumptions", full)]
    lines = tuple((name, cells(of_rows(members))) for name, members in groups if members)
    return PrintedTable(first="source", headings=HEADINGS, lines=lines)


def _families(published: Published) -> PrintedTable:
    """Return a table with one line per source, which separates dense rows from rows of experts."""
    groups = [*by_source(published.rows).items(), ("all", published.rows)]
    lines = tuple((name, _family_cells(by_family(members))) for name, members in groups)
    headings = tuple(f"{family}: {of}" for family in FAMILIES for of in OF_FAMILY)
    return PrintedTable(first="source", headings=headings, lines=lines)


def _family_cells(families: dict[str, dict[str, float]]) -> list[str]:
    """Return the cells of `OF_FAMILY` for dense rows, then for rows of experts; dashes if none."""
    cells_of = {
        family: dict(zip(HEADINGS, cells(found), strict=True)) for family, found in families.items()
    }
    return [cells_of.get(family, {}).get(of, "–") for family in FAMILIES for of in OF_FAMILY]


def _worst(published: Published) -> PrintedTable:
    """Return a table of the rows with the largest errors, each with its first suspect."""
    lines = tuple(
        (
            row.run.id,
            [
                row.run.model,
                show_seconds(row.measured_step_time_s),
                show_seconds(row.predicted_step_time_s),
                f"{row.relative_error:+.1%}",
                row.likely.phrase(),
                plan_words(row),
            ],
        )
        for row in worst(published.rows)
    )
    headings = ("model", "measured", "predicted", "error", "likely", "plan")
    return PrintedTable(title="Worst rows", first="run", headings=headings, lines=lines)


def _unfitted(published: Published) -> PrintedTable:
    lines = tuple(
        (row.run.id, [f"{row.relative_error:+.1%}", row.run.judged_only]) for row in published.unfitted
    )
    title = f"Scored, but never fitted on: {len(lines)} of {len(published.rows)}"
    return PrintedTable(title=title, first="run", headings=("error", "because"), lines=lines)


def _not_fitting(published: Published) -> PrintedTable:
    """Return a table of runs that ran but are predicted not to fit, fullest first."""
    wrong = sorted((row for row in published.rows if not row.fits), key=lambda row: -row.used_fraction)
    lines = tuple(
        (row.run.id, [f"{row.used_fraction:.0%}", ", ".join(row.largest_categories), plan_words(row)])
        for row in wrong
    )
    title = f"Said not to fit, though they ran: {len(wrong)} of {len(published.rows)}"
    return PrintedTable(
        title=title, first="run", headings=("of the device", "filled by", "plan"), lines=lines
    )
