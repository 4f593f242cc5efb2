"""Comparison of two sources that measured the same shapes.

Answers: do the rows of two tables of one kernel class agree?
Elsewhere: the consequences of agreement or disagreement (peer_fit.py).
"""

import numpy as np

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
    for number in range(theirs.shape[1]):
        distance = np.abs(ours - theirs[:, number : number + 1]).max(axis=0, initial=0.0)
        nearest = int(distance.argmin()) if distance.size else 0
        if distance.size and distance[nearest] <= NEAR:
            slowness = second.measured_s[number] / second.bound_s[number]
            ratios.append(slowness * first.bound_s[nearest] / first.measured_s[nearest])
    if not ratios:
        return Disagreement(shared=0, bias_ratio=np.nan, median_error=np.nan)
    return Disagreement(
        shared=len(ratios),
        bias_ratio=float(np.median(ratios)),
        median_error=float(np.median(np.abs(np.array(ratios) - 1))),
    )
