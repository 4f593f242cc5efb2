"""Decode attention and messages that run beside the matrix products of the same pass.

Answers: how long does a pass take whose batch is split, so that one part uses memory and network while the
other computes?
Elsewhere: which engines do that, with which interference (spec/engine.py), seconds of the parts
(pass_times.py).

A kernel that gets a share of the device takes this share from the products. Decode attention of D seconds
alone takes D / p(r) with a share r, in which products lose r D / p(r). The engine chooses the shares with
which a pass is shortest, or does not split it.
"""

from functools import cache
from itertools import product

import numpy as np

from flopcast.dtypes import Floats
from flopcast.spec.engine import Overlap


def together_s(overlap: Overlap, products_s: Floats, memory_s: Floats, network_s: Floats) -> Floats:
    """Return the seconds of products, decode attention and messages together; arrays of one shape.

    Examples
    --------
    >>> half = Overlap(given_fraction=(0.5,), memory_ratio=(1.0,), network_ratio=(1.0,), split_ratio=1.0)
    >>> together_s(half, np.array([4.0]), np.array([1.0]), np.array([1.0])).tolist()
    [5.0]
    """
    memory_lost, memory_ratio, network_lost, network_ratio = _choices(overlap)
    lost_s = memory_lost * memory_s + network_lost * network_s
    split_s = np.maximum(overlap.split_ratio * products_s + lost_s, memory_s / memory_ratio)
    split_s = np.maximum(split_s, network_s / network_ratio)
    found_s: Floats = np.minimum(products_s + memory_s + network_s, split_s.min(axis=0))
    return found_s


@cache
def _choices(overlap: Overlap) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the shares that decode attention and messages may have together, shape (choices, 1).

    Each pair of shares has, for both kinds of kernels, what products lose for each second that the kernel
    takes alone, and its speed.
    """
    given, pairs = overlap.given_fraction, []
    for memory, network in product(range(len(given)), repeat=2):
        if given[memory] + given[network] <= 1.0:
            fast, sent = overlap.memory_ratio[memory], overlap.network_ratio[network]
            pairs.append((given[memory] / fast, fast, given[network] / sent, sent))
    columns = np.array(pairs).T[:, :, None]
    return columns[0], columns[1], columns[2], columns[3]
