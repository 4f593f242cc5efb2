"""Published runs as tables, as the page that `validate --markdown` prints, and as JSON.

Answers: which tables does a page of published runs have, with which headings and cells, and which keys does
the JSON of `validate --runs` have?
Elsewhere: the page as HTML (published_page.py), the shorter text (published_text.py), the statistics
(lab/validation/published_statistics.py), how tables are written (tables.py).
"""

import statistics
from collections.abc import Iterable, Iterator

from flopcast.cost.factor_kinds import kind_of
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
from flopcast.render.tables import PrintedTable, as_markdown
from flopcast.report.labels import component_label
from flopcast.units import show_seconds

COLUMNS = (  # headings of a page, which has more room than a terminal; in the order of HEADINGS
    "rows", "fully stated", "median", "mean", "p90", "bias", "inside 90 %", "half-width",
    "mean without repeats", "noise of repeats", "noise of releases", "baseline", "memory",
)  # fmt: skip
OF_FAMILY = (  # headings of each family
    "rows", "median", "mean", "p90", "bias", "inside 90 %", "half-width", "mean without repeats",
)  # fmt: skip
LEGEND = {  # heading → what it holds
    "fully stated": "number of runs whose source states all settings, so that flopcast makes no"
    " assumptions",
    "median, mean, p90": "median, mean and 90th percentile of the absolute error of the step time; the"
    " error is the predicted time divided by the measured time, minus 1",
    "bias": "mean error, with its sign; negative if the predicted times are too short on average",
    "inside 90 %": "fraction of the measurements that lie in their predicted 90 % interval",
    "half-width": "median distance between the prediction and the upper end of its 90 % interval, divided"
    " by the prediction",
    "mean without repeats": "mean absolute error if repeated measurements of a configuration count once",
    "noise of repeats": "mean difference between measurements of one configuration with one release of the"
    " software",
    "noise of releases": "mean difference between measurements of one configuration with different"
    " releases",
    "baseline": "mean absolute error of a simple model, which predicts the step time from the FLOP, the"
    " pipeline bubble, and the mean efficiency of other runs with the same device, precision and kind of"
    " model",
    "memory": "median absolute error of the predicted peak memory, for runs with a published peak",
}
CAPTIONS = {  # kind of rows → by what its table divides them
    "device": "device",
    "generation": "device generation",
    "family": "kind of model: dense, mixture of experts (experts) or with Mamba-2 layers (hybrids)",
    "precision": "precision",
    "devices": "number of devices, rounded up to a power of two",
    "stack": "software and its version",
}
HEAD = """# Published runs

This page compares predicted and measured step times of published training runs. If a row of a published
table omits a setting, flopcast uses the documented default of the framework
(`catalog/runs/stacks.yaml`). The [journal](journal.md) explains large errors, and the
[overview](overview.md) explains the words *fitted* and *left out*. `flopcast validate --runs TABLE
--markdown` prints this page; without `--markdown`, the command prints plain text."""


def runs_as_markdown(published: Published) -> str:
    """Return docs/accuracy/runs.md and its like, without the last line break."""
    head = f"{HEAD}\n\n**{published.constants_sentence}**\n\nThe columns of the tables are:"
    return as_markdown(head, LEGEND, tables(published))


def tables(published: Published) -> Iterator[PrintedTable]:
    """Yield every table of a page in order; tables of rows only if there are rows."""
    if published.rows:
        yield _sources(published)
        yield _families(published)
        for name, key in KINDS.items():
            kinds = sorted(grouped(published.rows, key).items())
            lines = tuple((kind, cells(of_rows(rows_of_kind))) for kind, rows_of_kind in kinds)
            yield PrintedTable(caption=f"By {CAPTIONS[name]}:", first=name, headings=COLUMNS, lines=lines)
        yield _worst(published)
        yield _unfitted(published)
        yield memory_table(published.rows)
        yield _not_fitting(published)
        yield PrintedTable(
            title="FLOP as printed",
            caption="If a source states both FLOP/s and tokens/s, their ratio shows by which formula the"
            " authors counted FLOP. `report/flop_conventions.py` defines the formulas.",
            first="formula",
            headings=("rows",),
            lines=tuple((name, [str(number)]) for name, number in formulas(published.rows).items()),
        )
    counts = reasons(published.left_out)
    yield PrintedTable(
        title=f"Runs that flopcast cannot predict: {len(published.left_out)}",
        first="source",
        headings=("rows", "reason"),
        lines=tuple((source, [str(number), why]) for (source, why), number in counts.items()),
    )


def _sources(published: Published) -> PrintedTable:
    """Return a table with one line per source, one of all rows, and one of rows without assumptions."""
    rows = published.rows
    full = [row for row in rows if row.run.fully_specified]
    groups = [*by_source(rows).items(), ("all", rows), ("all without assumptions", full)]
    lines = tuple((name, cells(of_rows(members))) for name, members in groups if members)
    return PrintedTable(caption="By source:", first="source", headings=COLUMNS, lines=lines)


def _families(published: Published) -> PrintedTable:
    """Return a table with one line per source, which separates dense rows from rows of experts."""
    groups = [*by_source(published.rows).items(), ("all", published.rows)]
    lines = tuple((name, _family_cells(by_family(members))) for name, members in groups)
    headings = tuple(f"{family}: {of}" for family in FAMILIES for of in OF_FAMILY)
    caption = "By source and kind of model (dense, experts, or hybrids with Mamba-2 layers):"
    return PrintedTable(caption=caption, first="source", headings=headings, lines=lines)


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
    headings = (
        "model", "measured", "predicted", "error", "error in σ", "likely cause", "part of the step",
        "needed factor", "largest component", "plan",
    )  # fmt: skip
    caption = (
        "One σ is the predicted standard deviation of the step time. The likely cause of an error is the"
        " factor that contributes most to σ. This factor affects only a part of the step. The prediction"
        " would be right if the time of this part were multiplied by the needed factor."
    )
    return PrintedTable(
        title="Largest errors", caption=caption, first="run", headings=headings, lines=lines
    )


def _unfitted(published: Published) -> PrintedTable:
    """Return a table of the rows on which no constant is fitted, with a line for each reason."""
    errors: dict[str, list[float]] = {}
    for row in published.unfitted:
        errors.setdefault(row.run.judged_only, []).append(row.relative_error)
    lines = tuple(
        (why, [str(len(own)), " to ".join(dict.fromkeys(f"{each(own):+.1%}" for each in (min, max)))])
        for why, own in errors.items()
    )
    title = f"Runs on which no constant is fitted: {len(published.unfitted)} of {len(published.rows)}"
    caption = "flopcast predicts these runs, but fits no constant on them, for the reason in the table:"
    return PrintedTable(
        title=title, caption=caption, first="reason", headings=("rows", "errors"), lines=lines
    )


def memory_table(rows: Iterable[ComparedRun]) -> PrintedTable:
    """Return a table of predicted over measured peaks of memory, with a line for each group."""
    lines = []
    for (framework, family, kind), members in sorted(by_memory(rows).items()):
        ratios = sorted(1.0 + (row.memory_error or 0.0) for row in members)
        inside = [row.memory_is_inside for row in members]
        numbers = f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        lines.append(
            (framework, [family, kind, str(len(ratios)), *numbers, f"{statistics.mean(inside):.0%}"])
        )
    return PrintedTable(
        title="Peak memory",
        caption="The table shows the predicted peak divided by the measured peak. *allocated* is the memory"
        " of all allocated tensors, *reserved* also includes the cache of the framework's allocator, and"
        " *device* is the used memory that the driver reports."
        " The last column is the fraction of measured peaks inside their 90 % intervals.",
        first="framework",
        headings=("kind of model", "memory", "rows", "median", "range", "inside 90 %"),
        lines=tuple(lines),
    )


def _not_fitting(published: Published) -> PrintedTable:
    """Return a table of runs that ran but are predicted not to fit, fullest first."""
    wrong = sorted((row for row in published.rows if not row.fits), key=lambda row: -row.used_fraction)
    lines = tuple(
        (row.run.id, [f"{row.used_fraction:.0%}", ", ".join(row.largest_categories), plan_words(row)])
        for row in wrong
    )
    title = (
        f"Runs that flopcast wrongly predicts not to fit in memory: {len(wrong)} of {len(published.rows)}"
    )
    return PrintedTable(
        title=title,
        caption="These runs fitted into memory, but their predicted peak exceeds the memory of a device.",
        first="run",
        headings=("predicted peak, as a fraction of device memory", "largest categories of memory", "plan"),
        lines=lines,
    )


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
