"""Longest paths between streams as matrices of the max-plus algebra: their products and powers.

Answers: when is each stream free after two pieces of work in sequence, or after n equal layers?
Elsewhere: the matrix of one layer (layer.py), programs made of layers (program.py), the same for whole
batches of plans (durations.py).

Every path also has a vector that counts how often it contains each item:
seconds of the items · counts = time of the path.
"""

from functools import cache, lru_cache

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers, all_of, any_of
from flopcast.records import Record

NEVER = -np.inf


class Paths(Record, eq=False, kw_only=False):
    """Longest paths from each stream (first index) to each stream (second index), with their counts.

    This is a matrix of the max-plus algebra. An entry is the time from "stream a is free" before these
    items to "stream b is free" after them, or NEVER if b does not wait for a. `counts` states how often the
    path contains each item.
    """

    longest_s: Floats  # (streams, streams, positions, plans, classes)
    counts: Counts  # time's shape + (columns,)


class Place(Record, eq=False, kw_only=False):
    """The positions of the columns of a layer among the `width` columns of its program.

    `parts` are runs of columns in the program and in the layer.
    """

    width: int
    parts: tuple[tuple[slice, slice], ...]


def repeated(state: Paths, layer: Paths, repeat: Counts, place: Place) -> Paths:
    """Return `state` followed by `layer`, `repeat` times: (plans, classes) whole numbers.

    Powers are computed by squaring: 100 layers take six squarings and three products. Powers of one matrix
    commute, so the bits of `repeat` may come in any order. `state` has the columns of the program.
    """
    times = repeat.astype(np.intp)
    power = layer
    bits = int(times.max()).bit_length() if times.size else 0
    for bit in range(bits):
        wanted = ((times >> bit) & 1).astype(bool)
        if any_of(wanted):
            state = joined(state, power, place, None if all_of(wanted) else wanted)
        if bit + 1 < bits:
            power = joined(power, power)
    return state


def starts(streams: tuple[str, ...], columns: int) -> Paths:
    """Return two states before any layer: all streams except the data-parallel stream are free, or only
    this stream is.

    Without a data-parallel stream, there is only the first state. Two rows are enough between layers,
    although the matrix of a layer has a row for each stream.
    """
    reduces = np.array([name == "dp" for name in streams])
    rows = np.where(np.stack([reduces, ~reduces])[: 1 + reduces.any()], NEVER, 0.0)
    time = rows[..., None, None, None]
    return Paths(time, np.zeros((*time.shape, columns)))


@cache
def identity_s(streams: int) -> Floats:
    """Return the times of the identity of the max-plus algebra, (streams, streams, 1, 1, 1)."""
    return np.where(np.eye(streams, dtype=bool), 0.0, NEVER)[..., None, None, None]


def joined(
    first: Paths, second: Paths, place: Place | None = None, wanted: np.ndarray | None = None
) -> Paths:
    """Return the max-plus product of two matrices: `first` followed by `second`.

    The path from a to c goes through the stream b with the longest path. Its counts are the sums of both
    halves. `place` is the position of the columns of `second` among those of `first`, if they differ. If
    `wanted` is false, the result is `first`.
    """
    through = first.longest_s[:, :, None] + second.longest_s[None]
    best, middle = through.max(axis=1), through.argmax(axis=1)
    if wanted is not None:
        best = np.where(wanted, best, first.longest_s)
        middle = np.where(wanted, middle, np.arange(best.shape[1]).reshape(-1, *(1,) * (best.ndim - 2)))
    if not first.counts.shape[-1]:
        return Paths(best, np.zeros((*best.shape, 0)))
    start, end, *others = _grid(middle.shape)
    both = _chosen(first.counts, (start, middle, *others), middle.shape)
    more = _chosen(second.counts, (middle, end, *others), middle.shape)
    if wanted is not None:
        more *= wanted[..., None]
    for of_program, of_layer in place.parts if place else ((slice(None), slice(None)),):
        both[..., of_program] += more[..., of_layer]
    return Paths(best, both)


def _chosen(counts: Counts, at: tuple[Integers, ...], shape: tuple[int, ...]) -> Counts:
    """Return the counts at places of this shape; an axis of length 1 has the same values at all places."""
    row = np.zeros(shape, dtype=np.intp)
    for size, along in zip(counts.shape, at, strict=False):
        if size > 1:
            row *= size
            row += along
    return counts.reshape(-1, counts.shape[-1]).take(row, axis=0)


@lru_cache(maxsize=64)
def _grid(shape: tuple[int, ...]) -> tuple[Integers, ...]:
    """Return the index of every entry along each axis, as `np.ogrid` does."""
    return tuple(np.ogrid[tuple(slice(size) for size in shape)])
