"""The work of a stage's ranks in one step as a graph: kernels, messages, and their dependencies.

Answers: which nodes does a rank run, how much work is each, and which nodes must have ended before it?
Elsewhere: the file format (chakra.py), the times of nodes (timeline/, which this graph leaves to a
simulator).

All ranks of a stage share one graph. They differ only in their partners: collectives name an axis, and
transfers name the stage at their other end or the hops along the ring. Nodes are numbered in launch order
and wait only for lower numbers. The rules are those of timeline/program_items.py: an item waits for its
own stream and for the streams in its `waits`; a task begins when the blocking streams of the task before
it have ended and its input has arrived.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from flopcast.cost.item_prices import Priced
from flopcast.cost.placement import crossings
from flopcast.cost.ranks import members
from flopcast.dtypes import Integers
from flopcast.operators.base import AbstractMessage, AbstractOperator
from flopcast.operators.item import EVERY_STREAM, Item
from flopcast.records import Record, field, replace
from flopcast.report.explain.kernels import element_at
from flopcast.report.report import Report
from flopcast.schedules import schedule_of
from flopcast.schedules.base import BACKWARD
from flopcast.timeline.chains import flows
from flopcast.timeline.layer import BLOCKING
from flopcast.workload.program import WHEN

COMPUTE, HOST, COLLECTIVE, SEND, RECEIVE = "compute", "host", "collective", "send", "receive"
BETWEEN_STAGES = ("pp", "pp_inside")
MICROSECONDS = 1e6
Tail = Mapping[str, int]  # by stream, the last node on it that must have ended


class GraphNode(Record):
    """One kernel, message or piece of host work.

    `number` counts from 0; `waits` holds the numbers of nodes that must end first. `axis` names the ranks
    of a collective or a ring. For a transfer between stages, it is "pp", and `peer` is the other stage;
    on a ring, `peer` is the number of hops. Both ends of a transfer have the same `tag`. The bytes of a
    message follow operators/messages.py.
    """

    number: int
    name: str
    kind: str
    waits: tuple[int, ...]
    duration_micros: int
    flop: int = 0
    moved_bytes: int = 0
    collective: str = ""
    axis: str = ""
    message_bytes: int = 0
    peer: int = 0
    tag: int = 0


class _End(Record, kw_only=False):
    """One end of a transfer between stages: SEND or RECEIVE, the other stage, the message's number."""

    kind: str
    stage: int
    tag: int


class _Graph(Record, eq=False, frozen=False, kw_only=False):
    """The nodes so far, and the nodes for which the next one on each stream has to wait.

    The object is mutable and private to one call of `stage_graph`. Durations are whole microseconds: the
    remainder of rounding is added to the next node of the stream, so that sums stay correct.
    """

    priced: Priced
    ranks: Mapping[str, int]  # of the group along each axis
    nodes: list[GraphNode] = field(default_factory=list)
    tails: dict[str, Tail] = field(default_factory=lambda: {name: {} for name in EVERY_STREAM})
    owed_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(EVERY_STREAM, 0.0))

    def join(self, streams: Iterable[str]) -> Tail:
        """Return the last nodes of several streams."""
        merged: dict[str, int] = {}
        for name in streams:
            for stream, number in self.tails[name].items():
                merged[stream] = max(merged.get(stream, -1), number)
        return merged

    def run(self, item: Item, label: str, row: int, stage_class: int, end: _End | None = None) -> None:
        """Add all executions of an item in sequence; an item without time passes on the nodes for which
        it waits.

        Parameters
        ----------
        item : Item
        label : str
            Name of the nodes.
        row, stage_class : int
            The kind of micro-batch and the class of the stage: indices into the arrays of the item.
        end : _End or None
            For a transfer, the stage at its other end.
        """
        before = self.join((item.stream, "host", *item.waits))
        self.tails[item.stream] = before
        if not self._takes_part(item, row, stage_class):
            return
        times = max(round(element_at(item.count, row, stage_class)), 1)
        each_s = self.priced.seconds(item, row, stage_class) / times
        share = element_at(item.count, row, stage_class) / times
        for _ in range(times):
            for unnumbered in _unnumbered(item, share, row, stage_class, end, len(self.nodes)):
                before = self.tails[item.stream]
                node = replace(
                    unnumbered,
                    number=len(self.nodes),
                    name=label,
                    waits=tuple(sorted(set(before.values()))),
                    duration_micros=0 if unnumbered.kind == RECEIVE else self._micros(item.stream, each_s),
                )
                self.nodes.append(node)
                self.tails[item.stream] = {**before, item.stream: node.number}

    def _takes_part(self, item: Item, row: int, stage_class: int) -> bool:
        """Return whether an item takes any time; collectives of one rank and views take none."""
        alone = isinstance(item.work, AbstractMessage) and self.ranks.get(item.work.axis, 2) == 1
        return not alone and self.priced.seconds(item, row, stage_class) > 0

    def _micros(self, stream: str, lasts_s: float) -> int:
        """Return a duration in whole microseconds, including the remainder of the node before."""
        exact = (lasts_s + self.owed_s[stream]) * MICROSECONDS
        whole = max(int(exact + 0.5), 0)
        self.owed_s[stream] = (exact - whole) / MICROSECONDS
        return whole


def _unnumbered(
    item: Item, share: float, row: int, at: int, end: _End | None, number: int
) -> tuple[GraphNode, ...]:
    """Return one execution of an item as nodes without ids; a transfer around a ring gives two."""
    work = item.work
    blank = GraphNode(number=number, name="", kind=HOST, waits=(), duration_micros=0)
    if isinstance(work, AbstractOperator):
        needed = work.work()
        flop, size = (share * element_at(each, row, at) for each in (needed.flop, needed.moved_bytes))
        return (replace(blank, kind=COMPUTE, flop=round(flop), moved_bytes=round(size)),)
    if not isinstance(work, AbstractMessage):
        return (blank,)
    size = round(share * element_at(work.message_bytes, row, at))
    sent = replace(blank, kind=COLLECTIVE, collective=work.collective, axis=work.axis, message_bytes=size)
    if end is not None:
        return (replace(sent, kind=end.kind, axis="pp", peer=end.stage, tag=end.tag),)
    if work.collective == "ring_pass":
        return (
            replace(sent, kind=SEND, peer=1, tag=number),
            replace(sent, kind=RECEIVE, peer=-1, tag=number),
        )
    return (sent,)


def stage_graph(report: Report, stage: int) -> tuple[GraphNode, ...]:
    """Return the nodes of a rank on a pipeline stage over one step, from its first task to its update.

    Parameters
    ----------
    report : the report of one prediction, whose data-parallel ranks are all alike

    Returns
    -------
    tuple of GraphNode
        FLOP and bytes are those of the workload, rounded to whole numbers. An item that runs n times in a
        row is n nodes.
    """
    priced = report.priced
    programs, plan, timeline = priced.programs, report.job.plan, report.timeline
    graph = _Graph(priced, group_sizes(report))
    division = programs.stages.of(0)
    order = schedule_of(plan.pipeline_schedule).order(
        plan.pipeline_parallel, plan.virtual_stages, plan.num_micro_batches
    )
    stages, width = order.kind.shape
    producer, consumer = flows(order)
    crossed = crossings(programs.plans, 0, stages, priced.cluster.scale_up_devices)
    for task in range(stage * width, (stage + 1) * width):
        kind, row = int(timeline.kind[task]), int(timeline.row[task])
        chunk, at = int(timeline.chunk[task]), int(timeline.position[task])
        label = f"{'FBW'[kind]}{timeline.micro_batch[task]}" + (f".{chunk}" if chunk else "")
        if (source := int(producer[task])) >= 0:
            hop = _hop(priced, crossed, source // width, stage, kind)
            _transfer(graph, hop, RECEIVE, source // width, source, row)
        graph.tails |= dict.fromkeys(BLOCKING, graph.join((*BLOCKING, "pp")))
        chunk_class = int(division.chunk_class[stage, chunk])
        for segment in programs.passes[kind]:
            repeat = segment.repeat[min(row, len(segment.repeat) - 1), chunk_class]
            for layer in range(int(repeat)):
                for item in segment.items:
                    if WHEN[item.when][at]:
                        graph.run(item, f"{label} {item.name} [{layer}]", row, 0)
        if (target := int(consumer[task])) >= 0:
            hop = _hop(priced, crossed, stage, target // width, kind)
            _transfer(graph, hop, SEND, target // width, task, row)
    for item in (*programs.reduce, *programs.synchronise, *programs.update):
        graph.run(item, item.name, 0, int(division.stage_class[stage]))
    return tuple(graph.nodes)


def most_nodes(report: Report) -> int:
    """Return the total number of nodes in the graphs of all ranks, to within a factor of two.

    Each item counts as one node, whether it takes time or runs several times in a row. The function is
    fast, so that callers can check the size before they create graphs.
    """
    programs, timeline = report.priced.programs, report.timeline
    chunk_class = programs.stages.of(0).chunk_class[timeline.stage, timeline.chunk]
    tasks = zip(timeline.kind.tolist(), timeline.row.tolist(), chunk_class.tolist(), strict=True)
    total = sum(
        count
        * sum(
            len(segment.items) * int(segment.repeat[min(row, len(segment.repeat) - 1), at])
            for segment in programs.passes[kind]
        )
        for (kind, row, at), count in Counter(tasks).items()
    )
    plan = report.job.plan
    return total * (plan.devices // plan.pipeline_parallel)


def group_sizes(report: Report) -> dict[str, int]:
    """Return the ranks of every group that collectives of the step name, by axis."""
    works = (item.work for item in report.priced.programs.items())
    axes = sorted({work.axis for work in works if isinstance(work, AbstractMessage)} - {*BETWEEN_STAGES})
    return {axis: len(members(axis, report.job.plan, 0)) for axis in axes}


def _hop(priced: Priced, crossed: Integers, sender: int, receiver: int, kind: int) -> tuple[Item, ...]:
    """Return messages from one stage to its neighbour, either between nodes or within a node."""
    lower = sender if (sender + 1) % len(crossed) == receiver else receiver
    hop = priced.programs.hop_across if crossed[lower] else priced.programs.hop_inside
    return hop.backward if kind == BACKWARD else hop.forward


def _transfer(graph: _Graph, items: tuple[Item, ...], kind: str, other: int, task: int, row: int) -> None:
    """Add one end of the messages that carry a task's output to, or from, another stage.

    A stage sends its results before it waits for its inputs; the host's work is part of the sender.
    """
    for number, item in enumerate(items):
        end = _End(kind, other, task * len(items) + number)
        if isinstance(item.work, AbstractMessage) or kind == SEND:
            graph.run(item, item.name, row, 0, end)
