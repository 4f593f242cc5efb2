"""Statistics of a comparison, as numbers and as text: per source, per row, per class of component.

Answers: what does `flopcast validate` print, as text, JSON and Markdown?
Elsewhere: the prediction of a row and its protocol (compare.py). An error is predicted / measured - 1,
which is positive if flopcast is too slow.
"""

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from flopcast.lab.validation.compare import ComparedComponent, ComparedRow
from flopcast.units import nine_digits

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Return rows grouped by one property; groups are ordered by their first row."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def errors(values: Iterable[float]) -> dict[str, float]:
    """Return statistics of relative errors.

    Returns
    -------
    dict
        They are `rows` (their number), `mape` (mean absolute), `median`, `p90` and `worst` of the
        absolute errors, and `bias`, the mean with its sign.

    Examples
    --------
    >>> errors([0.1, -0.2, 0.3])["mape"], errors([0.1, -0.2, 0.3])["worst"]
    (0.2, 0.3)
    """
    ordered = sorted(values, key=abs)
    sizes = [abs(value) for value in ordered]
    return {
        "rows": len(ordered),
        "mape": nine_digits(statistics.mean(sizes)),
        "median": nine_digits(statistics.median(sizes)),
        "p90": nine_digits(sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]),
        "worst": nine_digits(sizes[-1]),
        "bias": nine_digits(statistics.mean(ordered)),
    }


def by_source(rows: Sequence[ComparedRow]) -> list[dict[str, object]]:
    """Return errors and interval coverage, one entry per source, system and reference.

    Systems and references are never pooled, because a mean over best steps and mean steps has no meaning.
    """
    groups = grouped(rows, lambda row: (row.source, row.system, row.reference))
    return [
        {
            "source": source,
            "system": system,
            "reference": reference,
            **errors(row.relative_error for row in members),
            "coverage": nine_digits(statistics.mean(row.covered for row in members)),
        }
        for (source, system, reference), members in groups.items()
    ]


def by_component(components: Sequence[ComparedComponent]) -> dict[str, dict[str, float]]:
    """Return the errors of every class of component, over all rows and stages that measured it.

    A component that the prediction lacks is left out here, and is null in the JSON.
    """
    known = [entry for entry in components if entry.relative_error is not None]
    return {
        name: errors(entry.relative_error or 0.0 for entry in members)
        for name, members in grouped(known, lambda entry: entry.component).items()
    }
