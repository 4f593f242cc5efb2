"""What ranks send to each other, and what the backward pass sends instead.

Answers: which collective, over which axis of the plan, with how many bytes?
Elsewhere: how long it takes (cost/collectives), which ranks and links form the axis (cost/placement).

Conventions, as in nccl-tests: `message_bytes` is the array that every rank holds for an all-reduce,
the gathered result for an all-gather, the full input of one rank for a reduce-scatter, what is sent for a
point-to-point message, and all copies of one rank's tokens for a dispatch or a combine, the one that stays
included, as in an all-to-all. A collective over one rank costs nothing, by its formula.

A dual is an adjoint: seen as a linear map from what ranks hold before to what they hold after, the
message's transpose carries gradients back. `axis` names the ranks that take part (operators/base.py).
"""

from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts, Floats
from flopcast.operators.base import AbstractMessage


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AllReduce(AbstractMessage):
    """Every rank gets the sum. The gradient of a sum of copies needs no message."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as an all-reduce."""
        return "all_reduce"

    def dual(self) -> "Replicate":
        """Each rank already holds the gradient of its summand."""
        return Replicate(axis=self.axis, message_bytes=self.message_bytes)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Replicate(AbstractMessage):
    """Every rank uses its copy of one array: nothing is sent, but the gradients must be summed.

    Known as `f` in Megatron-LM (arXiv:1909.08053, section 3), as `AllReduce` is its `g`.
    """

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Nothing is sent."""
        return ""

    def dual(self) -> AllReduce:
        """The gradients of the copies are summed."""
        return AllReduce(axis=self.axis, message_bytes=self.message_bytes)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AllGather(AbstractMessage):
    """Every rank gets all shards; `message_bytes` is the gathered array."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as an all-gather."""
        return "all_gather"

    def dual(self) -> "ReduceScatter":
        """The gradient of a gather is a sum, scattered."""
        return ReduceScatter(axis=self.axis, message_bytes=self.message_bytes)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ReduceScatter(AbstractMessage):
    """Every rank gets one shard of the sum; `message_bytes` is the full input of one rank."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as a reduce-scatter."""
        return "reduce_scatter"

    def dual(self) -> AllGather:
        """The gradient of a scatter is a gather."""
        return AllGather(axis=self.axis, message_bytes=self.message_bytes)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class SendReceive(AbstractMessage):
    """One rank sends, its neighbour on the axis receives."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as one point-to-point transfer."""
        return "send_receive"

    def dual(self) -> "SendReceive":
        """The gradient travels the other way."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AllToAll(AbstractMessage):
    """Every rank sends an equal part of its array to each other: what was cut one way is cut another."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as an all-to-all."""
        return "all_to_all"

    def dual(self) -> "AllToAll":
        """The gradients go back the same way."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class RingPass(AbstractMessage):
    """One hop round a ring: every rank sends an array to the next and gets that of the one before it.

    Unlike `SendReceive` all ranks send at once. `order` says which part of a sequence a rank holds
    (spec/plan.py): how much there is to do with what arrives depends on it, not what is sent.
    """

    axis: str
    message_bytes: Floats
    order: str = "zigzag"

    @property
    def collective(self) -> str:
        """Priced as a point-to-point transfer by every rank of the ring."""
        return "ring_pass"

    def dual(self) -> "RingPass":
        """Gradients travel the other way round."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Dispatch(AbstractMessage):
    """Every token goes to the ranks that hold its experts: once to each, however many it uses there.

    `message_bytes` is tokens of a rank · bytes of a token · `expected_copies`. Tokens may have narrow
    elements, and scales beside them, on the way out, and wide ones on the way back.
    """

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as a dispatch."""
        return "dispatch"

    def dual(self) -> "Combine":
        """Gradients of the copies come home and are summed."""
        return Combine(axis=self.axis, message_bytes=self.message_bytes)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Combine(AbstractMessage):
    """What the ranks made of a token's copies comes back to its own rank, and is summed there."""

    axis: str
    message_bytes: Floats

    @property
    def collective(self) -> str:
        """Priced as a combine."""
        return "combine"

    def dual(self) -> Dispatch:
        """The gradient of the sum goes to every rank that gave a summand."""
        return Dispatch(axis=self.axis, message_bytes=self.message_bytes)


def expected_copies(
    experts: Counts, top_k: Counts, ranks: Counts, groups: int = 1, top_groups: int = 1
) -> Counts:
    """How many ranks a token goes to, its own included, where routing is uniform; arrays broadcast.

    Each of n ranks holds E / n experts, and every set of k of the E experts is equally likely. A rank is
    left out where all k lie among the other E − E / n: with probability C(E − E/n, k) / C(E, k), the
    product over i < k of (E − E/n − i) / (E − i). The expectation is n times the rest. As all ranks are
    alike, 1 / n of the copies stays at home: (n − 1) / n crosses the links, as in an all-to-all.

    Group-limited routing (arXiv:2405.04434, section 2.2.2; arXiv:2412.19437, section 2.1.2) makes it
    smaller: experts form `groups` equal groups of neighbours, a token chooses `top_groups` of them, each
    set equally likely, and its experts inside. A rank's experts then lie in one group, or fill several.

    Parameters
    ----------
    ranks : array
        A divisor or a multiple of `groups`.

    Examples
    --------
    DeepSeek-V3's eight of 256 over one node, and one rank, which keeps its tokens:

    >>> one = np.ones(1)
    >>> expected_copies(256 * one, 8 * one, np.array([1.0, 8.0])).round(2).tolist()
    [1.0, 5.29]

    The same over 64 ranks of eight nodes, of which a token may use four:

    >>> expected_copies(256 * one, 8 * one, 64 * one, groups=8, top_groups=4).round(2).tolist()
    [7.36]
    """
    here = np.maximum(groups / ranks, 1.0)  # groups of which a rank holds experts
    held = experts / np.maximum(ranks, groups)  # experts of one of them on the rank
    chosen = _drawn_here(here, groups, top_groups)
    inside = experts * top_groups / groups
    hit = [odds * (1.0 - _missed(drawn * held, inside, top_k)) for drawn, odds in enumerate(chosen)]
    copies: Counts = ranks * sum(hit)
    return copies


def _missed(held: Counts, experts: Counts, top_k: Counts) -> Counts:
    """Odds that no one of `top_k` different experts is among `held` ones of them all."""
    missed: Counts = np.ones(np.broadcast_shapes(held.shape, experts.shape, top_k.shape))
    for pick in range(int(np.max(top_k, initial=0))):
        again = np.maximum(experts - held - pick, 0.0) / np.maximum(experts - pick, 1.0)
        missed = np.where(pick < top_k, missed * again, missed)
    return missed


def _drawn_here(here: Counts, groups: int, drawn: int) -> list[Counts]:
    """Odds that 0, 1, … of `drawn` different groups are among the `here` first ones of them all."""
    odds = [np.ones(here.shape), *(np.zeros(here.shape) for _ in range(drawn))]
    for done in range(drawn):
        left = groups - done
        for number in range(done + 1, -1, -1):
            misses = odds[number] * np.maximum(groups - here - (done - number), 0.0) / left
            hits = odds[number - 1] * np.maximum(here - (number - 1), 0.0) / left if number else 0.0
            odds[number] = misses + hits
    return odds


MESSAGES: dict[str, type[AbstractMessage]] = {
    "all_reduce": AllReduce,
    "replicate": Replicate,
    "all_gather": AllGather,
    "reduce_scatter": ReduceScatter,
    "send_receive": SendReceive,
    "all_to_all": AllToAll,
    "ring_pass": RingPass,
    "dispatch": Dispatch,
    "combine": Combine,
}
