"""The passes over the layers of chunks, in the order of a forward or a backward.

Answers: what runs before, between and after the layers of a chunk?
Elsewhere: the passes over one layer (passes.py), the gathers (sharded.py), the end of a step
(gradient_reduction.py).
"""

from collections.abc import Callable

import numpy as np

from flopcast.dtypes import Counts
from flopcast.operators.item import Item, blocking
from flopcast.operators.messages import AllGather
from flopcast.records import Record, replace
from flopcast.workload.low_precision import agreement
from flopcast.workload.passes import Software
from flopcast.workload.program import Accounting, Layer, Segment, account_of
from flopcast.workload.sharded import gathered_segments


class Half(Record, eq=False):
    """The layers of chunks in the order of one pass over them, "forward" or "backward".

    `counts`, (plans, chunk classes, layers), states how many of each layer a chunk holds.
    """

    phase: str
    layers: tuple[Layer, ...]
    counts: Counts
    segments: tuple[Segment, ...]

    def items(self) -> tuple[Item, ...]:
        """Return the items of all segments."""
        return tuple(item for segment in self.segments for item in segment.items)


def _gathers(half: Half, software: Software) -> Half:
    """Gather sharded parameters ahead of the layers that need them."""
    backward, plans = half.phase == "backward", software.workload.plans
    kinds = [layer.kind for layer in half.layers]
    weights = [layer.read_backward if backward else layer.weights for layer in half.layers]
    found = gathered_segments(half.segments, kinds, weights, software.stack, plans, backward)
    return replace(half, segments=found)


def _agreement(half: Half, software: Software) -> Half:
    """Agree on the scales of the pass, under recipes that do."""
    runs = [layer.backward if half.phase == "backward" else layer.forward for layer in half.layers]
    found = agreement(runs, software.workload, half.counts, half.phase)
    return replace(half, segments=(*half.segments, *found)) if found else half


def _received_shares(half: Half, software: Software) -> Half:
    """Gather activations that a neighbour sends in shares first."""
    if not software.scatters_transfers:
        return half
    end = half.counts[:, :, 0]  # the chunk that starts the pass receives nothing
    gather = AllGather(axis="tp", message_bytes=software.workload.boundary_bytes)
    item = replace(blocking("receive.gather", gather, "x.share", "x"), phase=half.phase)
    holds_any = np.minimum(half.counts.sum(axis=2), 1.0)  # a class that pads the batch holds nothing
    first = Segment(items=(item,), repeat=holds_any - np.minimum(end, 1.0))
    return replace(half, segments=(first, *half.segments))


OF_CHUNKS: dict[str, Callable[[Half, Software], Half]] = {
    "gathers": _gathers,
    "agreement": _agreement,
    "received_shares": _received_shares,
}


def run_over_chunks(half: Half, software: Software, accounting: list[Accounting]) -> tuple[Segment, ...]:
    """Return the segments of one pass over chunks, and record the items that do not belong to layers."""
    for name, run in OF_CHUNKS.items():
        before, half = half, run(half, software)
        if half is before:
            continue
        account = account_of(name, half.phase, before.items(), half.items())
        accounting += [account] if account else []
    return half.segments
