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
    """`share(n)` of the message crosses each rank's link; `hops(n)` latencies follow each other."""

    share: Callable[[Counts], Counts]
    hops: Callable[[Counts], Counts]


def _tree(n: Counts) -> Counts:
    return np.ceil(np.log2(n))


FORMULAS: dict[str, Formula] = {
    "all_reduce": Formula(share=lambda n: 2 * (n - 1) / n, hops=lambda n: 2 * _tree(n)),
    "all_gather": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "reduce_scatter": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "all_to_all": Formula(share=lambda n: (n - 1) / n, hops=_tree),
    "send_receive": Formula(share=lambda n: np.minimum(n - 1, 1.0), hops=lambda n: np.minimum(n - 1, 1.0)),
}
