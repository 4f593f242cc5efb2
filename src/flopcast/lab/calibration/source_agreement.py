"""Comparison of two sources that measured the same shapes.

Answers: do the rows of two tables of one kernel class agree?
Elsewhere: the consequences of agreement or disagreement (peer_fit.py).
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import Integers, Logs
from flopcast.lab.calibration.samples import Samples
from flopcast.records import Record

NEAR = 0.1  # in log2 of every coordinate: shapes that two sources share
AGREEMENT = 0.05  # median relative difference below which sources are one


class Disagreement(Record):
    """Ratio of the second source's times to the first's, at the shapes that both measured.

    Times are divided by their bounds, so that similar shapes can be compared. `bias_ratio` is the median
    ratio, which is 1 if the sources agree, and `median_error` is the median distance from 1. Both are NaN
    if the sources share no shape.
    """

    shared: int
    bias_ratio: float
    median_error: float

    @property
    def agrees(self) -> bool:
        """Return whether the two sources may be fitted together."""
        return self.shared > 0 and self.median_error <= AGREEMENT

    def text(self) -> str:
        """Return the comparison as one line."""
        if not self.shared:
            return "no common shapes"
        return (
            f"at {self.shared} common shapes, its times are {self.bias_ratio:.2f} times those of the first"
            f" source, with a median difference of {self.median_error:.1%}"
        )


def disagreement(first: Samples, second: Samples) -> Disagreement:
    """Compare each row of the second source with the nearest row of the first, if the two lie within NEAR
    of each other.

    Examples
    --------
    >>> from dataclasses import replace
    >>> one = Samples(name="x", coordinates=np.array([[4.0, 8.0]]), bound_s=np.ones(2),
    ...               measured_s=np.array([2.0, 2.0]), source="a")
    >>> two = replace(one, measured_s=np.array([2.2, 2.2]))
    >>> round(disagreement(one, two).bias_ratio, 2)
    1.1
    """
    ours, theirs = np.log2(first.coordinates), np.log2(second.coordinates)
    ratios = []
    for number, near in enumerate(_candidates(ours, theirs)):
        if not near.size:
            continue
        distance = np.abs(ours[:, near] - theirs[:, number : number + 1]).max(axis=0, initial=0.0)
        closest = distance.argmin()
        if distance[closest] <= NEAR:
            nearest = near[closest]
            slowness = second.measured_s[number] / second.bound_s[number]
            ratios.append(slowness * first.bound_s[nearest] / first.measured_s[nearest])
    if not ratios:
        return Disagreement(shared=0, bias_ratio=np.nan, median_error=np.nan)
    return Disagreement(
        shared=len(ratios),
        bias_ratio=float(np.median(ratios)),
        median_error=float(np.median(np.abs(np.array(ratios) - 1))),
    )


def _candidates(ours: Logs, theirs: Logs) -> Iterator[Integers]:
    """Yield, for every one of their rows, the rows of ours that are near on the axis with most values."""
    axis = max(range(len(ours)), key=lambda each: len(np.unique(ours[each])))
    order = np.argsort(ours[axis], kind="stable")
    sorted_ours, reach = ours[axis][order], 2.0 * NEAR
    ends = (np.searchsorted(sorted_ours, theirs[axis] + side) for side in (-reach, reach))
    for start, end in zip(*ends, strict=True):
        yield np.sort(order[start:end])
