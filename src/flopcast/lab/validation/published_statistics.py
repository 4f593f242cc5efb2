"""Statistics of published runs: errors by source and by kind of run, compared with the trivial model.

Answers: which numbers about all rows does `flopcast validate --runs` give as JSON?
Elsewhere: the rows (published.py), the printed table (render/published_text.py). Sources are pooled only in
`kinds`, which groups all rows by one property.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from flopcast.cost.factors import FAMILIES
from flopcast.lab.validation.flop_audit import UNKNOWN
from flopcast.lab.validation.left_out import UNREADABLE, LeftOut
from flopcast.lab.validation.published import ComparedRun
from flopcast.lab.validation.repeats import by_configuration, clustered_errors, noise_floor
from flopcast.lab.validation.run import memory_kind
from flopcast.lab.validation.statistics import errors, grouped
from flopcast.units import nine_digits

WORST = 10  # rows of a list of the worst
UNSTATED = ": the row does not state it"  # the end of a reason, behind the field

KINDS: Mapping[str, Callable[[ComparedRun], str]] = {
    "device": lambda row: row.job.cluster.node.device.name,
    "generation": lambda row: f"{row.family} on {row.job.cluster.node.device.generation or 'others'}",
    "family": lambda row: row.family,
    "precision": lambda row: row.job.plan.precision,
    "devices": lambda row: str(2 ** math.ceil(math.log2(row.job.cluster.num_devices))),
    "stack": lambda row: row.job.stack.label,
}


def of_rows(rows: Sequence[ComparedRun]) -> dict[str, float]:
    """Return the errors of the predictions and of the trivial model on the same rows.

    Returns
    -------
    dict
        They are those of `summary.errors`, and `fully_specified` (rows), `coverage` of the 90 % interval,
        `do_not_fit` (rows), `half_width_median` of the intervals, and `memory_rows`, `memory_median` and
        `memory_mape` if rows print memory; `trivial_efficiency`, the geometric mean of these rows'
        efficiencies; `trivial_mape` and `trivial_median` of the baseline (published.py);
        `configurations`, and `clustered_median`, `_mape` and `_p90` with each configuration counted once;
        `noise_within_rows` and `noise_across_rows`: the numbers of repeated measurements of one
        configuration within a release and across releases; `noise_within_mape` and `noise_across_mape`:
        the errors that a perfect prediction of these rows would have, if there are any.
    """
    statistics_of_rows = errors(row.relative_error for row in rows)
    efficiency = math.exp(statistics.mean(math.log(row.ideal_s / row.measured_step_time_s) for row in rows))
    trivial = [abs(row.baseline_error) for row in rows if row.baseline_error is not None]
    memory = [abs(row.memory_error) for row in rows if row.memory_error is not None]
    statistics_of_rows |= {
        "fully_specified": sum(row.run.fully_specified for row in rows),
        "coverage": nine_digits(statistics.mean(row.covered for row in rows)),
        "do_not_fit": sum(not row.fits for row in rows),
        "memory_rows": len(memory),
        "half_width_median": nine_digits(statistics.median(row.half_width_ratio for row in rows)),
        "trivial_efficiency": nine_digits(efficiency),
    }
    if trivial:
        statistics_of_rows["trivial_mape"] = nine_digits(statistics.mean(trivial))
        statistics_of_rows["trivial_median"] = nine_digits(statistics.median(trivial))
    configurations = by_configuration(rows)
    clustered = clustered_errors(configurations)
    statistics_of_rows["configurations"] = clustered["rows"]
    statistics_of_rows |= {f"clustered_{key}": clustered[key] for key in ("median", "mape", "p90")}
    for name, floor in zip(("within", "across"), noise_floor(configurations), strict=True):
        statistics_of_rows[f"noise_{name}_rows"] = floor.rows
        if floor.mean_ratio is not None:
            statistics_of_rows[f"noise_{name}_mape"] = nine_digits(floor.mean_ratio)
    if memory:
        statistics_of_rows["memory_median"] = nine_digits(statistics.median(memory))
        statistics_of_rows["memory_mape"] = nine_digits(statistics.mean(memory))
    return statistics_of_rows


def by_source(rows: Iterable[ComparedRun]) -> dict[str, list[ComparedRun]]:
    """Return rows by the source that published them."""
    return grouped(rows, lambda row: row.run.source)


def by_memory(rows: Iterable[ComparedRun]) -> dict[tuple[str, str, str], list[ComparedRun]]:
    """Return the rows that print peak memory, by framework, family and kind of memory."""

    def key(row: ComparedRun) -> tuple[str, str, str]:
        return row.run.software.framework, row.family, memory_kind(row.run.observed.memory_unit)

    return grouped((row for row in rows if row.memory_error is not None), key)


def by_family(rows: Sequence[ComparedRun]) -> dict[str, dict[str, float]]:
    """Return the statistics (`of_rows`) of dense rows and of rows with experts, for families with rows."""
    families = grouped(rows, KINDS["family"])
    return {family: of_rows(families[family]) for family in FAMILIES if family in families}


def worst(rows: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Return the rows with the largest errors, judged by the ratio of predicted to measured time."""
    return sorted(rows, key=lambda row: -abs(math.log1p(row.relative_error)))[:WORST]


def formulas(rows: Iterable[ComparedRun]) -> dict[str, int]:
    """Return the number of rows by FLOP formula, the most frequent first and unknown ones last."""
    counts = Counter(row.audit.formula for row in rows if row.audit)
    return dict(sorted(counts.items(), key=lambda entry: (entry[0] == UNKNOWN, -entry[1], entry[0])))


def reasons(left_out: Iterable[LeftOut]) -> dict[tuple[str, str], int]:
    """Return the number of left-out rows of each source by reason, the most frequent first.

    Rows that could not be read have no source; their file and line are given instead.
    """
    return dict(
        Counter(
            (
                row.where.rpartition("/")[2] if row.source == UNREADABLE else row.source,
                _together(row.reasons),
            )
            for row in left_out
        ).most_common()
    )


def _together(reasons: Iterable[str]) -> str:
    """Return all reasons of a row as one text, which lists the fields that the row does not state."""
    unstated = [each.removesuffix(UNSTATED) for each in reasons if each.endswith(UNSTATED)]
    others = [each for each in reasons if not each.endswith(UNSTATED)]
    return "; ".join([*others, *([f"the row does not state {', '.join(unstated)}"] if unstated else [])])
