"""Published runs beside their predictions, as JSON.

Answers: what does `flopcast validate --runs TABLE --json` print?
Elsewhere: the statistics (lab/validation/published_statistics.py).
"""

from flopcast.lab.validation.diagnosis import Diagnosis
from flopcast.lab.validation.published import ComparedRun, Published
from flopcast.lab.validation.published_statistics import (
    KINDS,
    by_family,
    by_source,
    formulas,
    grouped,
    of_rows,
)
from flopcast.units import nine_digits

FORMAT_VERSION = 1


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
            {
                "id": row.run.id,
                "used_fraction": nine_digits(row.used_fraction),
                "largest_categories": list(row.largest_categories),
            }
            for row in rows
            if not row.fits
        ],
        "left_out": [
            {"id": row.id, "source": row.source, "where": row.where, "reasons": list(row.reasons)}
            for row in published.left_out
        ],
        "twice": list(published.twice),
    }


def _row(row: ComparedRun) -> dict[str, object]:
    measured = row.measured_memory_bytes
    return {
        "id": row.run.id,
        "source": row.run.source,
        "where": row.run.where,
        "fully_specified": row.run.fully_specified,
        "plan": row.job.plan.short(),
        "stack": row.job.stack.label,
        "cluster": row.job.cluster.name,
        "measured_step_time_s": nine_digits(row.measured_step_time_s),
        "predicted_step_time_s": nine_digits(row.predicted_step_time_s),
        "low_s": nine_digits(row.low_s),
        "high_s": nine_digits(row.high_s),
        "measured_memory_bytes": None if measured is None else nine_digits(measured),
        "predicted_memory_bytes": nine_digits(row.predicted_memory_bytes),
        "used_fraction": nine_digits(row.used_fraction),
        "assumptions": list(row.assumptions),
        "likely": _diagnosis(row.likely),
        "flop_audit": row.audit
        and {
            "formula": row.audit.formula,
            "nearest": row.audit.nearest,
            "mismatch_ratio": nine_digits(row.audit.mismatch_ratio),
        },
    }


def _diagnosis(suspect: Diagnosis) -> dict[str, object]:
    return {
        "factor": suspect.factor,
        "share": nine_digits(suspect.share),
        "log_sigma_factor": nine_digits(suspect.log_sigma_factor),
        "needed_ratio": None if suspect.needed_ratio is None else nine_digits(suspect.needed_ratio),
        "component": suspect.component,
        "component_share": nine_digits(suspect.component_share),
        "surprise_ratio": nine_digits(suspect.surprise_ratio),
        "extrapolated": list(suspect.extrapolated),
        "phrase": suspect.phrase(),
    }
