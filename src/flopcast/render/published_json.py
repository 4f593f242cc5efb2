"""Published runs beside their predictions, as JSON.

Answers: what does `flopcast validate --runs TABLE --json` print?
Elsewhere: the statistics (lab/validation/published_statistics.py).
"""

from flopcast.lab.validation.published import ComparedRun, Published
from flopcast.lab.validation.published_statistics import KINDS, by_family, by_source, formulas, of_rows
from flopcast.lab.validation.statistics import grouped
from flopcast.render.report_json import FORMAT_VERSION, fields_of


def runs_as_json(published: Published) -> dict[str, object]:
    """Return the results as JSON data; keys may be added, never renamed.

    `all`, `fully_specified`, `sources`, `kinds` and `families`, of each source, hold statistics
    (`of_rows`), `formulas` how many rows print FLOP by which formula, `rows` every predicted run,
    `left_out` every other with its reasons, `twice` the ids of rows that an earlier table holds.
    `does_not_fit` lists runs that ran and are said not to fit, with what fills their memory. Unknown
    values are null.
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
        "left_out": [fields_of(row) for row in published.left_out],
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
