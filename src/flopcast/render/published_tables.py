"""Published runs as tables, as the page that `validate --markdown` prints, and as JSON.

Answers: which tables does a page of published runs have, with which headings and cells, and which keys does
the JSON of `validate --runs` have?
Elsewhere: the page as HTML (published_page.py), the shorter text (published_text.py), the statistics
(lab/validation/published_statistics.py), how tables are written (tables.py).
"""

import statistics
from collections.abc import Iterable, Iterator

from flopcast.cost.factors import FAMILIES
from flopcast.lab.validation.published import ComparedRun, Published
from flopcast.lab.validation.published_statistics import (
    KINDS,
    by_family,
    by_memory,
    by_source,
    formulas,
    of_rows,
    reasons,
    worst,
)
from flopcast.lab.validation.statistics import grouped
from flopcast.render.plain_data import FORMAT_VERSION, fields_of
from flopcast.render.published_text import cells, plan_words
from flopcast.render.tables import PrintedTable, as_markdown, table_of, texts_of
from flopcast.report.labels import component_label
from flopcast.spec.factor_kinds import kind_of
from flopcast.units import show_seconds

TEXTS = texts_of("published_runs")
LEGEND, TABLES = TEXTS["legend"], TEXTS["tables"]
COLUMNS, OF_FAMILY = TEXTS["columns"], TEXTS["of_family"]  # a page has more room than a terminal


def runs_as_markdown(published: Published) -> str:
    """Return a page such as docs/accuracy/runs.md, without the last line break."""
    opening = TEXTS["head"].format(errors=_median_errors(published))
    head = f"{opening}\n\n**{published.constants_sentence}**\n\nThe columns of the tables are:"
    return as_markdown(head, LEGEND, tables(published))


def _median_errors(published: Published) -> str:
    """Return the median error of the rows of each kind of model, as a list in words."""
    texts = [
        f"{errors['median']:.1%} for {errors['rows']:.0f} {TEXTS['runs_of'][family]}"
        for family, errors in by_family(published.rows).items()
    ]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts or ["–"])


def tables(published: Published) -> Iterator[PrintedTable]:
    """Yield every table of a page in order; tables of rows only if there are rows."""
    if published.rows:
        yield _sources(published)
        yield _families(published)
        for name, key in KINDS.items():
            kinds = sorted(grouped(published.rows, key).items())
            lines = ((kind, cells(of_rows(rows_of_kind))) for kind, rows_of_kind in kinds)
            caption = f"By {TEXTS['divided_by'][name]}:"
            yield table_of({"caption": caption, "first": name}, lines, COLUMNS)
        yield _worst(published)
        yield _unfitted(published)
        yield memory_table(published.rows)
        yield _not_fitting(published)
        counted = formulas(published.rows).items()
        yield table_of(TABLES["formulas"], ((name, [str(number)]) for name, number in counted))
    left_out = reasons(published.left_out).items()
    lines = ((source, [str(number), why]) for (source, why), number in left_out)
    yield table_of(TABLES["left_out"], lines, number=len(published.left_out))


def _sources(published: Published) -> PrintedTable:
    """Return a table with one line per source, one of all rows, and one of rows without assumptions."""
    rows = published.rows
    full = [row for row in rows if row.run.fully_specified]
    groups = [*by_source(rows).items(), ("all", rows), ("all without assumptions", full)]
    lines = ((name, cells(of_rows(members))) for name, members in groups if members)
    return table_of(TABLES["sources"], lines, COLUMNS)


def _families(published: Published) -> PrintedTable:
    """Return a table with one line per source, which separates dense rows from rows of experts."""
    groups = [*by_source(published.rows).items(), ("all", published.rows)]
    lines = ((name, _family_cells(by_family(members))) for name, members in groups)
    headings = [f"{family}: {of}" for family in FAMILIES for of in OF_FAMILY]
    return table_of(TABLES["families"], lines, headings)


def _family_cells(families: dict[str, dict[str, float]]) -> list[str]:
    """Return the cells of `OF_FAMILY` for dense rows, then for rows of experts; dashes if none."""
    cells_of = {
        family: dict(zip(COLUMNS, cells(rows_of_family), strict=True))
        for family, rows_of_family in families.items()
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
                f"{row.likely.surprise_ratio:+.1f}",
                kind_of(row.likely.factor).label,
                f"{row.likely.share:.0%}",
                f"× {row.likely.needed_ratio:.2f}" if row.likely.needed_ratio is not None else "–",
                component_label(row.likely.component),
                plan_words(row),
            ],
        )
        for row in worst(published.rows)
    )
    return table_of(TABLES["worst"], lines)


def _unfitted(published: Published) -> PrintedTable:
    """Return a table of the rows on which no constant is fitted, with a line for each reason."""
    errors: dict[str, list[float]] = {}
    for row in published.unfitted:
        errors.setdefault(row.run.judged_only, []).append(row.relative_error)
    lines = tuple(
        (why, [str(len(own)), " to ".join(dict.fromkeys(f"{each(own):+.1%}" for each in (min, max)))])
        for why, own in errors.items()
    )
    return table_of(TABLES["unfitted"], lines, number=len(published.unfitted), rows=len(published.rows))


def memory_table(rows: Iterable[ComparedRun]) -> PrintedTable:
    """Return a table of predicted over measured peaks of memory, with a line for each group."""
    lines = []
    for (framework, family, kind), members in sorted(by_memory(rows).items()):
        ratios = sorted(1.0 + (row.memory_error or 0.0) for row in members)
        inside = [row.memory_is_inside for row in members]
        numbers = f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        cells_of = [family, kind, str(len(ratios)), *numbers, f"{statistics.mean(inside):.0%}"]
        lines.append((framework, cells_of))
    return table_of(TABLES["memory"], lines)


def _not_fitting(published: Published) -> PrintedTable:
    """Return a table of runs that ran but are predicted not to fit, fullest first."""
    wrong = sorted((row for row in published.rows if not row.fits), key=lambda row: -row.used_fraction)
    lines = tuple(
        (row.run.id, [f"{row.used_fraction:.0%}", ", ".join(row.largest_categories), plan_words(row)])
        for row in wrong
    )
    return table_of(TABLES["not_fitting"], lines, number=len(wrong), rows=len(published.rows))


def runs_as_json(published: Published) -> dict[str, object]:
    """Return the results as JSON data; keys may be added, never renamed.

    `all`, `fully_specified`, `sources`, `kinds` and `families`, of each source, hold statistics
    (`of_rows`), `formulas` how many rows print FLOP by which formula, `rows` every predicted run,
    `left_out` every other with its reasons, `twice` the ids of rows that an earlier table holds.
    `does_not_fit` lists runs that are wrongly predicted not to fit, with the largest categories of memory.
    Unknown values are null.
    """
    rows = published.rows
    full = [row for row in rows if row.run.fully_specified]
    return {
        "format_version": FORMAT_VERSION,
        "constants": published.constants,
        "all": of_rows(rows) if rows else None,
        "fully_specified": of_rows(full) if full else None,
        "formulas": formulas(rows),
        "sources": {source: of_rows(members) for source, members in by_source(rows).items()},
        "kinds": {
            name: {value: of_rows(members) for value, members in grouped(rows, key).items()}
            for name, key in KINDS.items()
        },
        "families": {source: by_family(members) for source, members in by_source(rows).items()},
        "rows": [_row(row) for row in rows],
        "does_not_fit": [
            {"id": row.run.id, **fields_of(row, "used_fraction", "largest_categories")}
            for row in rows
            if not row.fits
        ],
        "left_out": [fields_of(row, "id", "source", "where", "reasons") for row in published.left_out],
        "twice": list(published.twice),
    }


def _row(row: ComparedRun) -> dict[str, object]:
    return {
        **fields_of(row.run, "id", "source", "where", "fully_specified"),
        "plan": row.job.plan.short(),
        "stack": row.job.stack.label,
        "cluster": row.job.cluster.name,
        **fields_of(row, "measured_step_time_s", "predicted_step_time_s", "low_s", "high_s"),
        **fields_of(row, "measured_memory_bytes", "predicted_memory_bytes", "used_fraction", "assumptions"),
        "likely": fields_of(row.likely) | {"phrase": row.likely.phrase()},
        "flop_audit": row.audit and fields_of(row.audit),
    }
