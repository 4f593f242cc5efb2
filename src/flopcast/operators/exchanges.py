"""Messages between ranks of experts, which send tokens to experts and results back.

Answers: how many copies of a token are sent, with how many bytes, and by which library?
Elsewhere: all other messages and their conventions (messages.py), the library of a stack
(spec/expert_software.py), seconds (cost/collectives).
"""

from typing import TypeVar

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats
from flopcast.operators.base import AbstractMessage
from flopcast.records import Record, field, replace

DISPATCH = {"all_to_all": "all_to_all", "deepep": "dispatch", "hybridep": "hybrid_dispatch"}
COMBINE = {"all_to_all": "all_to_all", "deepep": "combine", "hybridep": "hybrid_combine"}
OF_LIBRARIES = tuple(  # collectives that are a library's own, and not NCCL's
    name for names in (DISPATCH, COMBINE) for name in names.values() if name != "all_to_all"
)


class Routing(Record, eq=False):
    """The destinations of the tokens of one rank.

    Attributes
    ----------
    tokens : array of shape (plans, 1)
        The rank's tokens, each counted once, for the fullest rank.
    row_bytes : array of shape (plans, 1)
        Bytes of one token.
    ranks : array of shape (plans, 1)
        Ranks over which the experts are spread.
    experts : array of shape (plans, 1)
        Routed experts of a layer.
    top_k : array of shape (plans, 1)
        Experts that each token chooses.
    groups, top_groups : int
        Groups into which experts are divided, and the number of groups from which a token may choose
        (DeepSeek-V3: 4 of 8, arXiv:2412.19437, section 2.1.2). This limits how many nodes a token is sent
        to.
    """

    tokens: Counts
    row_bytes: Floats
    ranks: Counts
    experts: Counts
    top_k: Counts
    groups: int = 1
    top_groups: int = 1

    def bytes_to(self, places: Counts) -> Floats:
        """Return the bytes if a token is sent once to each of these equal groups of ranks that holds one of
        its experts.
        """
        copies = expected_copies(self.experts, self.top_k, places, self.groups, self.top_groups)
        found_bytes: Floats = self.tokens * self.row_bytes * copies
        return found_bytes

    def scores_ratio(self, domains: Counts) -> Floats:
        """Return the bytes of a token's fp32 scores for all experts of a domain, divided by the bytes of
        its row.
        """
        scores_bytes: Floats = ELEMENT_BYTES["fp32"] * self.experts / domains
        return scores_bytes / self.row_bytes


class AbstractExchange(AbstractMessage):
    """Tokens that are sent to the ranks of their experts, or back, once for each of these ranks.

    `message_bytes` is tokens of a rank · bytes of a token · `expected_copies`. `rows_bytes` counts a row
    for each chosen expert of each token. A library sends these rows if it does not detect which rows are
    copies. Tokens may be sent to the experts in 8 or 4 bits with scales, and back in 16 bits. `library` is
    the library in DISPATCH whose kernels send the tokens; `routing` determines how many copies leave a
    scale-up domain. `dual_ratio` is the bytes of the other direction, divided by those of this direction.
    `with_scores`: each copy of a token is sent with the token's scores for all experts of the scale-up
    domain, as in HybridEP's dispatch in the forward pass and its combine in the backward pass.
    """

    rows_bytes: Floats = field(default_factory=lambda: ZERO)
    routing: Routing | None = None
    library: str = "deepep"
    dual_ratio: float = 1.0
    with_scores: bool = False

    def bytes_in_domains(self, domains: Counts) -> Floats:
        """Return the bytes of all copies, with their scores."""
        return self._with_scores(self.message_bytes, domains)

    def bytes_to_domains(self, domains: Counts) -> Floats:
        """Return the bytes of one copy per domain if the library sends only one, otherwise of all copies.

        DeepEP and HybridEP send a token over the network once for each domain, and distribute it inside the
        domain.
        """
        if self.routing is None or self.library == "all_to_all":
            return self.message_bytes
        return self._with_scores(np.minimum(self.routing.bytes_to(domains), self.message_bytes), domains)

    def _with_scores(self, size_bytes: Floats, domains: Counts) -> Floats:
        if self.routing is None or not self.with_scores:
            return size_bytes
        return size_bytes * (1.0 + self.routing.scores_ratio(domains))

    def _other_way(self, way: "type[Way]") -> "Way":
        """Return the exchange of the same tokens in the other direction."""
        return self._scaled(way, self.dual_ratio, 1.0 / self.dual_ratio)

    def _scaled(self, way: "type[Way]", ratio: float, dual_ratio: float) -> "Way":
        """Return an exchange of the same tokens in a direction, with so many times the bytes of each."""
        routing = self.routing
        return way(
            axis=self.axis,
            message_bytes=self.message_bytes * ratio,
            rows_bytes=self.rows_bytes * ratio,
            routing=routing and replace(routing, row_bytes=routing.row_bytes * ratio),
            library=self.library,
            dual_ratio=dual_ratio,
            with_scores=self.with_scores,
        )


Way = TypeVar("Way", bound=AbstractExchange)


class Dispatch(AbstractExchange):
    """Tokens are sent once to each rank that holds at least one of their experts."""

    @property
    def collective(self) -> str:
        """Return the collective that prices the message: the dispatch of its library."""
        return DISPATCH[self.library]

    def cast(self, ratio: float) -> "Dispatch":
        """Return the dispatch of tokens that were cast before. The bytes of gradients do not change.

        Parameters
        ----------
        ratio : bytes of a cast token divided by those of the original token
        """
        return self._scaled(Dispatch, ratio, 1.0 / ratio)

    def dual(self) -> "Combine":
        """Return the message that sends the gradients of the copies back and sums them."""
        return self._other_way(Combine)


class Combine(AbstractExchange):
    """The results of a token's copies are sent back to its rank and are summed there."""

    @property
    def collective(self) -> str:
        """Return the collective that prices the message: the combine of its library."""
        return COMBINE[self.library]

    def dual(self) -> Dispatch:
        """Return the message that sends the gradient of the sum to every rank of a summand."""
        return self._other_way(Dispatch)


def expected_copies(
    experts: Counts, top_k: Counts, ranks: Counts, groups: int = 1, top_groups: int = 1
) -> Counts:
    """Return the number of ranks to which a token is sent, including its own, under uniform routing; arrays
    broadcast.

    Each of n ranks holds E / n experts, and every set of k of the E experts is equally likely. A rank gets
    no copy if all k experts are among the E − E / n experts of other ranks. This has the probability C(E −
    E/n, k) / C(E, k), the product over i < k of (E − E/n − i) / (E − i). The expectation is n times one
    minus this probability. Because all ranks are equal, 1 / n of the copies stay on their rank, and (n − 1)
    / n cross the links, as in an all-to-all.

    Group-limited routing (arXiv:2405.04434, section 2.2.2; arXiv:2412.19437, section 2.1.2) reduces this
    number: experts form `groups` equal groups of neighbours, and a token chooses its experts from
    `top_groups` groups, where all sets of groups are equally likely. The experts of a rank are then in one
    group, or fill several groups.

    Parameters
    ----------
    ranks : array
        A divisor or a multiple of `groups`.

    Examples
    --------
    Eight of 256 experts, as in DeepSeek-V3, over one node, and on a single rank, which sends no tokens:

    >>> one = np.ones(1)
    >>> expected_copies(256 * one, 8 * one, np.array([1.0, 8.0])).round(2).tolist()
    [1.0, 5.29]

    The same experts over 64 ranks of eight nodes, if a token may use only four nodes:

    >>> expected_copies(256 * one, 8 * one, 64 * one, groups=8, top_groups=4).round(2).tolist()
    [7.36]
    """
    here = np.maximum(groups / ranks, 1.0)  # groups of which a rank holds experts
    held = experts / np.maximum(ranks, groups)  # experts of one of them on the rank
    chosen = _drawn_here(here, groups, top_groups)
    inside = experts * top_groups / groups
    held_of_drawn = np.stack([drawn * held for drawn in range(len(chosen))])
    hit = np.stack(np.broadcast_arrays(*chosen)) * (1.0 - _missed(held_of_drawn, inside, top_k))
    copies: Counts = ranks * hit.sum(axis=0)
    return copies


def _missed(held: Counts, experts: Counts, top_k: Counts) -> Counts:
    """Return the probability that none of `top_k` different experts is among `held` of all."""
    missed: Counts = np.ones(np.broadcast_shapes(held.shape, experts.shape, top_k.shape))
    for pick in range(int(np.max(top_k, initial=0))):
        again = np.maximum(experts - held - pick, 0.0) / np.maximum(experts - pick, 1.0)
        missed = np.where(pick < top_k, missed * again, missed)
    return missed


def _drawn_here(here: Counts, groups: int, drawn: int) -> list[Counts]:
    odds = [np.ones(here.shape), *(np.zeros(here.shape) for _ in range(drawn))]
    for done in range(drawn):
        left = groups - done
        for number in range(done + 1, -1, -1):
            misses = odds[number] * np.maximum(groups - here - (done - number), 0.0) / left
            hits = odds[number - 1] * np.maximum(here - (number - 1), 0.0) / left if number else 0.0
            odds[number] = misses + hits
    return odds
