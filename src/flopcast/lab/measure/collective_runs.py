"""Functions that run the collectives of torch, one for each collective, over the ranks of a group.

Answers: how does torch run each collective, and on which memory?
Elsewhere: the groups and sizes that are measured, and their order (collectives.py), the definition of
message sizes (operators/messages.py).
"""

from collections.abc import Callable, Mapping
from typing import Any

from flopcast.lab.measure.device import Tensor, Torch
from flopcast.lab.measure.sample_pack import ALONE
from flopcast.lab.measure.timing import AbstractBench, Run
from flopcast.records import Record

ELEMENT_BYTES = 2  # messages of bf16


class Ranks(Record):
    """The ranks and sizes that torchrun gives to this process."""

    rank: int
    world: int
    local_rank: int
    local_world: int


class RankGroup(Record):
    """The ranks of one collective: their numbers, and the `inside` ranks on each of `nodes` nodes."""

    inside: int
    nodes: int
    ranks: tuple[int, ...]


class Entry(Record):
    """One collective of one size over one group; an overlapped one runs concurrently with a product."""

    collective: str
    message_bytes: int
    group: RankGroup
    condition: str = ALONE

    @property
    def key(self) -> str:
        """Return the key of the sample that this measurement produces (`MessageSample.key`)."""
        group = self.group
        return f"{self.collective}|{self.message_bytes}|{group.inside}|{group.nodes}|{self.condition}"


class Peers(Record, eq=False):
    """Torch's distributed package after its setup; `handles` holds its groups by their ranks."""

    torch: Torch
    device: str
    ranks: Ranks
    handles: Mapping[tuple[int, ...], Any]
    bench: AbstractBench


def message_buffer(peers: Peers, size_bytes: int) -> Tensor:
    """Return memory for a message. The time does not depend on its values."""
    torch = peers.torch
    return torch.zeros(max(1, size_bytes // ELEMENT_BYTES), device=peers.device, dtype=torch.bfloat16)


def _all_reduce(entry: Entry, peers: Peers) -> Run:
    array, group = message_buffer(peers, entry.message_bytes), peers.handles[entry.group.ranks]
    return lambda: peers.torch.distributed.all_reduce(array, group=group)


def _sharded(name: str, before: str, gathers: bool) -> Callable[[Entry, Peers], Run]:
    """Return an all-gather or a reduce-scatter from its name in torch and its name before torch 2.13.

    `message_bytes` is the gathered array, in whole shards, or the full input of one rank.
    """

    def make(entry: Entry, peers: Peers) -> Run:
        ranks, package = entry.group.ranks, peers.torch.distributed
        shard = message_buffer(peers, entry.message_bytes // len(ranks))
        full = message_buffer(peers, shard.numel() * len(ranks) * ELEMENT_BYTES)
        arrays = (full, shard) if gathers else (shard, full)
        collective = getattr(package, name, None) or getattr(package, before)
        return lambda: collective(*arrays, group=peers.handles[ranks])

    return make


def _rooted(name: str) -> Callable[[Entry, Peers], Run]:
    """Return a collective whose root is the group's first rank; each rank holds `message_bytes`."""

    def make(entry: Entry, peers: Peers) -> Run:
        array, ranks = message_buffer(peers, entry.message_bytes), entry.group.ranks
        collective = getattr(peers.torch.distributed, name)
        return lambda: collective(array, ranks[0], group=peers.handles[ranks])

    return make


def _all_to_all(entry: Entry, peers: Peers) -> Run:
    """Return an all-to-all; `message_bytes` is the full input of one rank, with one part for each rank."""
    ranks, group = len(entry.group.ranks), peers.handles[entry.group.ranks]
    sent = message_buffer(peers, entry.message_bytes // ranks * ranks)
    sent = sent[: sent.numel() // ranks * ranks]
    received = peers.torch.empty_like(sent)
    return lambda: peers.torch.distributed.all_to_all_single(received, sent, group=group)


def _send_receive(entry: Entry, peers: Peers) -> Run:
    """Return a transfer from the first rank of a pair to the second."""
    array, group = message_buffer(peers, entry.message_bytes), peers.handles[entry.group.ranks]
    first, second = entry.group.ranks
    if peers.ranks.rank == first:
        return lambda: peers.torch.distributed.send(array, second, group=group)
    return lambda: peers.torch.distributed.recv(array, first, group=group)


COLLECTIVES: dict[str, Callable[[Entry, Peers], Run]] = {
    "all_reduce": _all_reduce,
    "all_gather": _sharded("all_gather_single", "all_gather_into_tensor", gathers=True),
    "reduce_scatter": _sharded("reduce_scatter_single", "reduce_scatter_tensor", gathers=False),
    "broadcast": _rooted("broadcast"),
    "reduce": _rooted("reduce"),  # to the sum of the summands
    "all_to_all": _all_to_all,
    "send_receive": _send_receive,
}
