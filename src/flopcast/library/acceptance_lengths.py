"""Measured acceptance lengths of drafted tokens, from `catalog/acceptance_lengths.yaml`.

Answers: how many tokens does a pass yield with this kind of draft by default?
Elsewhere: the description of drafting (spec/drafting.py).
"""

from collections.abc import Mapping
from functools import lru_cache

from flopcast.files.package_table import read_table


def measured_acceptance(draft: str, drafted: int) -> float | None:
    """Return the mean number of tokens in a pass, over the measured models; None if none was measured.

    >>> measured_acceptance("mtp", 1), measured_acceptance("eagle", 3), measured_acceptance("ngram", 1)
    (1.79, 2.855, None)
    """
    rows = [row[drafted - 1] for row in _entries().get(draft, []) if 1 <= drafted <= len(row)]
    return sum(rows) / len(rows) if rows else None


@lru_cache(maxsize=1)
def _entries() -> Mapping[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {}
    for entry in read_table("flopcast", "catalog/acceptance_lengths.yaml")["entries"]:
        found.setdefault(entry["draft"], []).append(entry["accepted"])
    return found
