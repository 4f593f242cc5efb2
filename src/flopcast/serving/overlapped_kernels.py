"""Kernels of one pass that overlap: each with the next one, or messages and decode attention with GEMMs.

Answers: how long do kernels take if each starts before the previous one has ended? How long does a pass
take whose batch is split, so that one part uses memory and network while the other computes? How long does
it take if each message overlaps with the next half of a block?
Elsewhere: which kernels overlap, and how they slow each other (spec/engine.py), seconds of the parts
(pass_times.py).

A kernel that uses a share of the device takes this share from the products. Decode attention that takes D
seconds alone takes D / p(r) seconds with a share r, in which products lose r D / p(r) seconds. The engine
chooses the shares with which a pass is shortest, or does not split it.
"""

from functools import cache
from typing import TypeVar

import numpy as np

from flopcast.dtypes import Floats
from flopcast.spec.kernel_overlap import Overlap

LEAST_KEPT = 0.5  # of the time of kernels that overlap with those before them
Seconds = TypeVar("Seconds", float, Floats)


def overlapping_s(alone_s: Seconds, overlapped_s: Seconds | float) -> Seconds:
    """Return the seconds of kernels, each of which starts before the previous kernel has ended.

    Parameters
    ----------
    alone_s : float or array
        Seconds of all kernels, one after another.
    overlapped_s : float or array
        Time of all overlaps together.

    Examples
    --------
    >>> overlapping_s(3.0, 1.0), overlapping_s(3.0, 2.0)
    (2.0, 1.5)
    """
    if isinstance(alone_s, float):
        return max(alone_s - float(overlapped_s), LEAST_KEPT * alone_s)
    return np.maximum(alone_s - overlapped_s, LEAST_KEPT * alone_s)


def together_s(
    overlap: Overlap, products_s: Floats, memory_s: Floats, network_s: Floats, prompt_s: Floats
) -> Floats:
    """Return the seconds of a pass from those of products, decode attention, messages and prompt attention,
    as arrays of one shape.

    If the engine does not overlap decode attention, messages also run concurrently with all attention.
    Otherwise, prompt attention runs alone.

    Examples
    --------
    >>> half = Overlap(given_fraction=(0.5,), memory_ratio=(1.0,), network_ratio=(1.0,), split_ratio=1.0)
    >>> one = np.array([1.0])
    >>> together_s(half, 4 * one, one, one, 0 * one).tolist()
    [5.0]
    >>> messages = Overlap(given_fraction=(0.0,), network_ratio=(1.0,))
    >>> together_s(messages, 4 * one, one, one, one).tolist()
    [6.0]
    """
    if not overlap.memory_ratio:
        products_s = products_s + memory_s + prompt_s
        memory_s = prompt_s = np.zeros_like(memory_s)
    memory_lost, memory_ratio, network_lost, network_ratio = _choices(overlap)
    lost_s = memory_lost * memory_s + network_lost * network_s
    split_s = np.maximum(overlap.split_ratio * products_s + lost_s, memory_s / memory_ratio)
    split_s = np.maximum(split_s, network_s / network_ratio)
    found_s: Floats = np.minimum(products_s + memory_s + network_s, split_s.min(axis=0)) + prompt_s
    return found_s


@cache
def _choices(overlap: Overlap) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the shares that decode attention and messages may have together, shape (choices, 1).

    Each pair of shares has, for both kinds of kernels, what products lose for each second that the kernel
    takes alone, and its speed.
    """
    given, pairs = overlap.given_fraction, []
    sent = [(share / speed, speed) for share, speed in zip(given, overlap.network_ratio, strict=True)]
    if not overlap.memory_ratio:
        pairs = [(0.0, 1.0, *network) for network in sent]
    for share, speed in zip(given, overlap.memory_ratio, strict=False):
        pairs += [
            (share / speed, speed, *network)
            for other, network in zip(given, sent, strict=True)
            if share + other <= 1.0
        ]
    columns = np.array(pairs).T[:, :, None]
    return columns[0], columns[1], columns[2], columns[3]
