"""Splits of measured rows into those to which a curve is fitted and those on which it is tested.

Answers: on which rows is a curve tested that it was not fitted to? There are three splits, from easy to
hard: rows like the fitted ones (random), a model of another width (unseen), and more work than was ever
measured (extrapolation). Two more tests need no split (score.py): the rows of another source on the same
device, and all rows of another device.
"""

from collections.abc import Iterator

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.lab.calibration.samples import Samples
from flopcast.records import Record

RANDOM, UNSEEN, EXTRAPOLATION = "random", "unseen", "extrapolation"
OTHER_SOURCE, OTHER_DEVICE = "other_source", "other_device"
FIRST = f"{RANDOM} 0"  # the split that every class has
SPLITS = (RANDOM, UNSEEN, EXTRAPOLATION, OTHER_SOURCE, OTHER_DEVICE)
RANDOM_SHARE = 0.2
LARGEST_SHARE = 0.3
SEED = 2509
FEW_ROWS = 2000  # below it, one fifth is too small a sample: three fifths are kept aside in turn
FEWEST_ROWS = 10  # to fit, and to judge


class RowSplit(Record, eq=False):
    """The rows that are left out of a fit: `test`, (rows,), boolean.

    `label` distinguishes splits of one kind, for example by the size that was left out.
    """

    kind: str
    label: str
    test: np.ndarray


def splits_of(samples: Samples, most_sizes: int) -> Iterator[RowSplit]:
    """Yield every split of these rows that leaves enough of them on both sides, the random splits first.

    At most `most_sizes` sizes are left out in turn. A label means the same split for every class, so the
    curve of one class can be tested on rows of another class that were left out together with it.
    """
    rows = len(samples.measured_s)
    folds = 3 if rows < FEW_ROWS else 1
    splits = [
        RowSplit(kind=RANDOM, label=f"{RANDOM} {fold}", test=random_rows(rows, fold))
        for fold in range(folds)
    ]
    if samples.size is not None:
        for size in left_out_sizes(samples.size, most_sizes):
            splits.append(RowSplit(kind=UNSEEN, label=f"{UNSEEN} {size:g}", test=samples.size == size))
    splits.append(RowSplit(kind=EXTRAPOLATION, label=EXTRAPOLATION, test=largest_rows(samples.bound_s)))
    yield from (s for s in splits if FEWEST_ROWS <= s.test.sum() <= rows - FEWEST_ROWS)


def random_rows(rows: int, fold: int = 0, seed: int = SEED) -> np.ndarray:
    """Return a mask of a fifth of the rows, (rows,); the five folds of one seed have no rows in common."""
    place = np.random.default_rng(seed).permutation(rows)
    share = int(RANDOM_SHARE * rows)
    test = np.zeros(rows, dtype=bool)
    test[place[fold * share : (fold + 1) * share]] = True
    return test


def left_out_sizes(size: Counts, most: int) -> list[float]:
    """Return at most this many sizes, evenly spread, excluding the smallest and the largest.

    >>> left_out_sizes(np.array([2.0, 4.0, 4.0, 6.0, 8.0, 10.0]), most=2)
    [4.0, 8.0]
    """
    inner = np.unique(size[np.isfinite(size)])[1:-1]
    places = np.linspace(0, len(inner) - 1, min(most, len(inner))).round().astype(int)
    return [float(inner[place]) for place in places]


def largest_rows(bound_s: Floats) -> np.ndarray:
    """Return the 30 % of rows with the most work, by their physical bound; rows with equal work stay
    together.

    >>> largest_rows(np.array([1.0, 5.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0])).nonzero()[0].tolist()
    [7, 8, 9]
    """
    test: np.ndarray = bound_s > np.quantile(bound_s, 1.0 - LARGEST_SHARE)
    return test
