"""Waiting for transfers between stages, counted in hops, for the closed form of a pipeline.

Answers: how long does a stage wait for transfers in every micro-batch, and how long do the transfers of the
first micro-batch take on its way through the stages?
Elsewhere: the closed form (closed_form.py), the exact time of each message (pipeline.py, chains.py).

Each of p stages has v chunks. A hop is one transfer over the boundary between two stages. H is the sum of
the times of a forward hop and a backward hop, and h is the longer of both.

    transfers   schedule     every micro-batch, on a stage      the first one, on its way
    sequential  any          H of each of its boundaries        H of every boundary
    batched     1F1B         h of each of its boundaries        H of every boundary
    batched     GPipe        2 h of the slower one              H of every boundary
    batched     interleaved  v h of the slower one              H of every boundary, and of (v - 1) p
                                                                hops from the last stage to the first
    overlapped  1F1B         k / (k + 1) of the mean H of k     H of every boundary
    overlapped  others       nothing                            H as often as they say (`transfers_waited`)

A stage waits for sequential transfers one after another. Transfers that a stage starts together, forward
and backward, overlap. 1F1B starts the transfers with each neighbour separately. Interleaved 1F1B starts
those with both neighbours together, because it has no transfers between a forward and the next backward.
Overlapped transfers delay no stage, but 1F1B still waits: hops over k consecutive boundaries in both
directions must fit into k + 1 turns. The k boundaries with the longest wait determine the time.

The counts come from exact simulations of equal stages. They give the time that transfers add to the
critical path, up to a few transfers for each step of any length (tests/timeline/test_hops.py).
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np

from flopcast.cost.item_prices import Priced
from flopcast.cost.placement import crossings_of_each
from flopcast.dtypes import ONE, ZERO, Counts, Flags, Floats
from flopcast.records import Record
from flopcast.schedules.base import AbstractSchedule
from flopcast.spec.orders import rules_of_rows
from flopcast.spec.plan import Plans
from flopcast.workload.program import StageTransfer


class Waits(Record, eq=False, kw_only=False):
    """Seconds by which transfers delay compute; 0 in a plan with one stage.

    `turn_s` is the delay of every micro-batch on a stage class, (plans, stage classes); `mean_s` that on
    the mean stage if all stages wait for each other, (plans, 1); and `way_s` that of the first micro-batch,
    (plans, 1).
    """

    turn_s: Floats
    mean_s: Floats
    way_s: Floats

    def where(self, rows: Flags, other: "Waits") -> "Waits":
        """Return these waits in the plans of a mask, (plans, 1), and `others` in all other plans."""
        return Waits(
            np.where(rows, self.turn_s, other.turn_s),
            np.where(rows, self.mean_s, other.mean_s),
            np.where(rows, self.way_s, other.way_s),
        )


def waits(priced: Priced) -> Waits:
    """Return the seconds that stages wait for transfers, for plans of one structure.

    Returns
    -------
    Waits
        Arrays of shape (plans, stage classes) for the wait of each micro-batch on a stage, and of shape
        (plans, 1) for the way of the first micro-batch. They are 0 without a pipeline, and for schedules
        whose stages send nothing to each other.
    """
    pipes = _pipes(priced)
    waits_of = {"sequential": _one_by_one, "batched": _together, "overlapped": _ahead}
    plain, interleaved = (
        waits_of[priced.programs.transfers(interleaved=chunks)] for chunks in (False, True)
    )
    one, several = rules_of_rows(pipes.plans)
    found = plain(pipes, one)
    if several is not one or interleaved is not plain:
        found = interleaved(pipes, several).where(pipes.plans.virtual_stages > 1, found)
    return found.where((pipes.plans.pipeline_parallel > 1) & one.hands_on, Waits(ZERO, ZERO, ZERO))


class _TransferSeconds(Record, eq=False, kw_only=False):
    """Seconds over a boundary between stages inside a node, and over one between two nodes; (plans, 1)."""

    inside_s: Floats
    across_s: Floats

    def over(self, boundaries: Counts, leaving: Counts) -> Floats:
        """Return the seconds over this many consecutive boundaries, some of which leave a node."""
        return boundaries * self.inside_s + leaving * (self.across_s - self.inside_s)


class _Leaving(Record, eq=False, kw_only=False):
    """Numbers of hops that leave a node, among the hops between some neighbours; (plans, 1) each."""

    all: Counts  # of the hops between all neighbours
    wrap: Counts  # of the one from the last stage to the first
    first: Counts  # of the first stage's one
    last: Counts
    pair: Counts  # of the two of an inner stage, of all those the worst
    row: Counts  # of those inner stages in a row that wait longest if hops inside a node are free
    row_length: Counts  # and how many hops lie between these


class _Pipelines(Record, eq=False):
    """The pipelines of a batch of plans, and their transfers."""

    plans: Plans
    both: _TransferSeconds  # forward and back
    longer: _TransferSeconds  # of the two
    leaving: _Leaving
    first: Flags  # (plans, stage classes): which is the first stage
    last: Flags

    def of_neighbours(self, hop: _TransferSeconds) -> Floats:
        """Return the seconds over both boundaries of an inner stage, or the one of an end; per class."""
        ends_s = np.where(self.first, hop.over(ONE, self.leaving.first), hop.over(ONE, self.leaving.last))
        return np.where(self.first | self.last, ends_s, hop.over(2.0 * ONE, self.leaving.pair))

    def slower_neighbour(self, hop: _TransferSeconds) -> Floats:
        """Return the seconds over the slower boundary of a stage; per class."""
        ends_s = np.where(self.first, hop.over(ONE, self.leaving.first), hop.over(ONE, self.leaving.last))
        inner_s = hop.over(ONE, np.minimum(self.leaving.pair, 1.0))
        return np.where(self.first | self.last, ends_s, inner_s)

    @property
    def every_s(self) -> Floats:
        """Return the seconds over every boundary, forward and back, (plans, 1)."""
        return self.both.over(self.plans.pipeline_parallel - 1.0, self.leaving.all)


def _pipes(priced: Priced) -> _Pipelines:
    """Return the hops and stages that the waits depend on."""
    programs = priced.programs
    ways = [_ways(hop, priced) for hop in (programs.hop_inside, programs.hop_across)]
    equal, leaves = crossings_of_each(programs.plans, priced.cluster.scale_up_devices)
    counts = np.array([_counted(tuple(each.tolist())) for each in leaves], dtype=np.float64)[equal.group]
    held = programs.stages.stage_counts
    return _Pipelines(
        plans=programs.plans,
        both=_TransferSeconds(*(forward_s + backward_s for forward_s, backward_s in ways)),
        longer=_TransferSeconds(*(np.maximum(*way) for way in ways)),
        leaving=_Leaving(*(counts[:, place, None] for place in range(counts.shape[1]))),
        first=held[:, :, 0] > 0,
        last=held[:, :, -1] > 0,
    )


def _ways(hop: StageTransfer, priced: Priced) -> tuple[Floats, Floats]:
    """Return the seconds of one transfer forward and of one back, (plans, 1)."""
    forward_s, backward_s = (
        sum((priced.of(item).alone_s for item in way), ZERO) for way in (hop.forward, hop.backward)
    )
    return forward_s, backward_s


@lru_cache(maxsize=4096)
def _counted(leaves: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fields of `_Leaving` for one plan, from the `crossings` of each of its stages."""
    inner = leaves[:-1]
    if not inner:
        return (0,) * 7
    pair = max((one + other for one, other in pairwise(inner)), default=0)
    before = np.cumsum([0, *inner[1:-1]])
    first, last = np.triu_indices(len(before))
    left, length = before[last] - before[first], last - first
    most = int((left / (length + 1)).argmax())
    return sum(inner), leaves[-1], inner[0], inner[-1], pair, int(left[most]), int(length[most])


def _one_by_one(pipes: _Pipelines, _: AbstractSchedule) -> Waits:
    """Return the seconds of messages that block one after the other."""
    return Waits(pipes.of_neighbours(pipes.both), ZERO, pipes.every_s)


def _together(pipes: _Pipelines, rule: AbstractSchedule) -> Waits:
    """Return the seconds of messages of one gap that are posted together.

    Of the first group of p micro-batches, the last stage has all forwards but those of the last chunk, and
    all backwards but those of the first, apart from each other: (v - 1) p gaps each, not p of every p v.
    """
    stages, virtual = pipes.plans.pipeline_parallel, pipes.plans.virtual_stages
    leaving = pipes.leaving
    if rule.meets_one_neighbour:
        return Waits(pipes.of_neighbours(pipes.longer), ZERO, pipes.every_s)
    own_s, wrap_s = pipes.slower_neighbour(pipes.longer), pipes.longer.over(ONE, leaving.wrap)
    more_s = np.where(pipes.first | pipes.last, np.maximum(wrap_s - own_s, 0.0), 0.0)
    apart, late = (virtual - 1.0) * stages, (virtual - 1.0) * (stages - 1.0)
    slowest_s = pipes.longer.over(ONE, np.minimum(leaving.all + leaving.wrap, 1.0))
    way_s = pipes.every_s + apart * pipes.both.over(ONE, leaving.wrap) - late * slowest_s
    return Waits(rule.gaps(virtual) * own_s + (virtual - 1.0) * more_s, ZERO, way_s)


def _ahead(pipes: _Pipelines, rule: AbstractSchedule) -> Waits:
    """Return the seconds of messages that delay no stage; only rows with all stages have ends that wait."""
    stages, virtual = pipes.plans.pipeline_parallel, pipes.plans.virtual_stages
    leaving, both = pipes.leaving, pipes.both
    if rule.meets_one_neighbour:
        inner, left = np.maximum(stages - 3.0, 0.0), leaving.all - leaving.first - leaving.last
        rows = ((leaving.row_length, leaving.row), (inner, np.maximum(left, 0.0)))
        row_s = np.maximum(*(both.over(length, row) / (length + 1.0) for length, row in rows))
        inner_s = np.where(pipes.first | pipes.last, 0.0, row_s)
        return Waits(inner_s, pipes.every_s / stages, pipes.every_s)
    rounds = (virtual - 1.0) * (not pipes.plans.structure.order_rule.folds_chunks)
    along = np.maximum(virtual * (stages - 1.0) + rounds, 1.0)
    mean_s = both.over(along, virtual * leaving.all + rounds * leaving.wrap) / along
    return Waits(ZERO, ZERO, rule.transfers_waited(stages, virtual) * mean_s)
