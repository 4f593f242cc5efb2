"""Bounds of collectives: bytes over bandwidth, and the hops of a small message.

Answers: how many bytes must cross a rank's link, how many hops does the shortest message take?
Conventions as in operators/messages.py and nccl-tests. `n` is the number of ranks; n = 1 gives zero.
One collective is one line of FORMULAS.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """`share(n)` of the message crosses each rank's link; `hops(n)` latencies follow each other.

    The bandwidth term is `share(n) · message_bytes / bandwidth`, so `share` is the ratio of bus to
    algorithm bandwidth of nccl-tests. Both are functions of arrays, elementwise, so that one call
    serves plans with groups of different sizes.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md: bus bandwidth factors. Thakur, Rabenseifner, Gropp, "Optimization
    of collective communication operations in MPICH", IJHPCA 19(1), 2005: rings and trees.

    Examples
    --------
    >>> FORMULAS["all_reduce"].share(np.array([1.0, 2.0, 8.0])).tolist()
    [0.0, 1.0, 1.75]
    """

    share: Callable[[Counts], Counts]
    hops: Callable[[Counts], Counts]


def _tree(n: Counts) -> Counts:
    """Rounds in which a doubling tree reaches `n` ranks.

    NCCL sends small messages along trees, large ones along rings; the ring's n - 1 hops would count
    latency that a message large enough for a ring hides behind its own bytes.
    """
    return np.ceil(np.log2(n))


def _direct(n: Counts) -> Counts:
    """One hop to however many ranks: each writes into the buffers of all others."""
    return np.minimum(n - 1, 1.0)


FORMULAS: dict[str, Formula] = {
    "all_reduce": Formula(share=lambda n: 2 * (n - 1) / n, hops=lambda n: 2 * _tree(n)),
    "all_gather": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "reduce_scatter": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "all_to_all": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "send_receive": Formula(share=_direct, hops=_direct),
    # copies of tokens, one of n ranks' worth of which stays (operators/messages.py, expected_copies)
    "dispatch": Formula(share=lambda n: (n - 1) / n, hops=_direct),
    "combine": Formula(share=lambda n: (n - 1) / n, hops=_direct),
}
