"""The curves that a prediction used.

Answers: on which measurements are the times of a report based?
Elsewhere: the curves themselves (cost/kernels/curve_book.py), warnings about them
(cost/evidence_warnings.py).
"""

from flopcast.cost.item_prices import Priced
from flopcast.records import Record


class Evidence(Record):
    """One curve that the prediction used.

    `curve` is "owner/name": a kernel class on a device, or a collective on a fabric. `relative_error` is
    the mean error on measured rows that were left out of its fit. `extrapolated` states that a shape of
    this job is outside the measured range, so that the efficiency of the nearest measured shape is used.
    """

    curve: str
    source: str
    relative_error: float
    extrapolated: bool


def evidence_of(priced: Priced) -> tuple[Evidence, ...]:
    """Return the used curves in the order of their first use.

    The source of an estimate from a data sheet states this.
    """
    return tuple(
        Evidence(
            curve=f"{used.curve.owner}/{used.curve.name}",
            source=used.curve.evidence.source,
            relative_error=used.curve.evidence.relative_error,
            extrapolated=used.extrapolated,
        )
        for used in priced.used
    )
