"""Bounds of collectives: bytes over bandwidth, and the hops of a small message.

Answers: how many bytes does a rank send over its link, how many links between domains share them, and how
many hops does a message take? Conventions as in operators/messages.py and nccl-tests. `n` is the number of
ranks; n = 1 gives zero. One collective is one line of FORMULAS.
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts
from flopcast.records import Record, replace


def _rails(inside: Counts, nodes: Counts) -> Counts:
    """Return the network cards that a rank's data uses: one ring per rank of a domain, on its own card."""
    return np.where(nodes > 1, inside, 1.0)


def _last_of_block(nodes: Counts, blocks: Counts) -> Counts:
    """Return 1 / (domains per block): a ring leaves a block only at the block's last domain."""
    return blocks / nodes


class Formula(Record):
    """The share of a message that crosses each rank's link, `share(n)`, and the number of consecutive
    latencies, `hops(n)`.

    The bandwidth term is `share(n) · message_bytes / bandwidth`, so `share` is the ratio of bus to
    algorithm bandwidth of nccl-tests. Between domains, this bandwidth is `lanes(inside, nodes)` times that
    of the links of one rank; `lanes` is 1 if the group stays inside one domain. `uplinked(nodes, blocks)`
    is the share of the bytes of a block of domains that leaves the block over the uplinks of an
    oversubscribed network. By default, both are those of a ring. `rings`: there is no tree between domains,
    so a message passes every rank, mostly inside the domains, as in all-gathers and reduce-scatters of
    NCCL. `to_all`: each rank sends to every other rank in turn. `one_copy_a_domain`: one copy is sent to
    each other domain, and is distributed inside this domain. `in_two_steps`: ranks of a domain exchange
    first. Ranks at the same position of their domains then exchange the rest of the message.
    `over_one_rank`: one rank receives the messages of all other ranks and answers each of them. `serves`:
    only serving engines send such messages. All functions work elementwise on arrays, so that one call
    computes plans with groups of different sizes.

    References
    ----------
    nccl-tests, doc/PERFORMANCE.md: bus bandwidth factors. NCCL, src/graph/tuning.cc: the algorithms of each
    collective, and the steps of a ring inside and between nodes. Thakur, Rabenseifner, Gropp, "Optimization
    of collective communication operations in MPICH", IJHPCA 19(1), 2005: rings and trees.

    Examples
    --------
    >>> FORMULAS["all_reduce"].share(np.array([1.0, 2.0, 8.0])).tolist()
    [0.0, 1.0, 1.75]
    """

    share: Callable[[Counts], Counts]
    hops: Callable[[Counts], Counts]
    lanes: Callable[[Counts, Counts], Counts] = _rails
    uplinked: Callable[[Counts, Counts], Counts] = _last_of_block
    rings: bool = False
    to_all: bool = False
    one_copy_a_domain: bool = False
    in_two_steps: bool = False
    over_one_rank: bool = False
    serves: bool = False


def _to_other_blocks(nodes: Counts, blocks: Counts) -> Counts:
    """Return the share of the bytes between domains that goes to other blocks, for equal parts."""
    elsewhere = np.maximum(nodes - nodes / blocks, 0.0)
    return elsewhere / np.maximum(nodes - 1, 1.0)


def _everything(nodes: Counts, blocks: Counts) -> Counts:
    """Return 1: both ends of the transfer are in different blocks."""
    return np.ones(np.broadcast_shapes(nodes.shape, blocks.shape))


def _one_card(inside: Counts, nodes: Counts) -> Counts:
    """Return 1: a transfer uses only the sender's card."""
    return np.ones(np.broadcast_shapes(inside.shape, nodes.shape))


def _own_card(inside: Counts, nodes: Counts) -> Counts:
    """Return the factor on the bandwidth of one card if each rank uses only its own card between domains.

    Of n ranks in m domains, (n - 1) / n of what a rank sends goes to others and (m - 1) / m leaves; their
    ratio is what the bandwidth of one card is multiplied by. What stays inside is hidden behind it.
    """
    ranks = np.rint(inside * nodes)
    leaves = np.where(nodes > 1, (nodes - 1) / nodes, 1.0)
    return np.where(nodes > 1, (ranks - 1) / ranks / leaves, 1.0)


def _others(n: Counts) -> Counts:
    """Return the part of n equal parts that belongs to other ranks."""
    return (n - 1) / n


def _tree(n: Counts) -> Counts:
    """Return the number of rounds in which a doubling tree reaches `n` ranks.

    NCCL sends small messages along trees, large ones along rings; the ring's n - 1 hops would count
    latency that a message large enough for a ring hides behind its own bytes.
    """
    return np.ceil(np.log2(n))


def _chain(n: Counts) -> Counts:
    """Return the number of steps of a chain; NCCL broadcasts and reduces to one rank only along a ring.

    Its own model of time takes the network's latency for every rank (src/graph/tuning.cc, nsteps · lat).
    """
    return n - 1


def _direct(n: Counts) -> Counts:
    """Return 1 hop for any number of ranks: each writes directly into the buffers of all others."""
    return np.minimum(n - 1, 1.0)


ALL_REDUCE = Formula(share=lambda n: 2 * (n - 1) / n, hops=lambda n: 2 * _tree(n))
FORMULAS: dict[str, Formula] = {
    "all_reduce": ALL_REDUCE,
    "served_all_reduce": replace(ALL_REDUCE, serves=True),
    "custom_all_reduce": replace(ALL_REDUCE, serves=True),
    "star_all_reduce": Formula(
        share=lambda n: 2 * (n - 1),
        hops=lambda n: 2 * _direct(n),
        lanes=_one_card,
        over_one_rank=True,
        serves=True,
    ),
    "all_gather": Formula(share=_others, hops=_tree, rings=True),
    "reduce_scatter": Formula(share=_others, hops=_tree, rings=True),
    "broadcast": Formula(share=_direct, hops=_chain),
    "reduce": Formula(share=_direct, hops=_chain),
    "all_to_all": Formula(
        share=_others, hops=_tree, lanes=_own_card, uplinked=_to_other_blocks, to_all=True
    ),
    "quantised_reduce_scatter": Formula(
        share=_others,
        hops=_tree,
        lanes=_own_card,
        uplinked=_to_other_blocks,
        to_all=True,
        in_two_steps=True,
    ),
    "send_receive": Formula(share=_direct, hops=_direct, lanes=_one_card, uplinked=_everything),
    "ring_pass": Formula(share=_direct, hops=_direct, lanes=_one_card, uplinked=_last_of_block),
    # copies of tokens, one of n ranks' worth of which stays (operators/exchanges.py, expected_copies)
    **dict.fromkeys(
        ("dispatch", "combine", "hybrid_dispatch", "hybrid_combine"),
        Formula(
            share=_others,
            hops=_direct,
            lanes=_own_card,
            uplinked=_to_other_blocks,
            to_all=True,
            one_copy_a_domain=True,
        ),
    ),
}
