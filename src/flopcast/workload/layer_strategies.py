"""Programs of plans whose blocks have different strategies: one layout for each, and messages between them.

Answers: which layouts do the blocks of a stage have, how are activations redistributed between them, and
which programs result?
Elsewhere: the notation of strategies (spec/layer_strategies.py), the memory (memory/layouts.py) and time
(cost/price.py) of each layout, the best strategies (search/per_layer.py).

Each layout (layouts.py) is realised like a separate plan for a model of its blocks. The programs of a stage
take every block from its layout. Embedding, head and the ends of every chunk have the layout of the plan,
so that messages between stages are those of the plan.

Between blocks of different tensor parallelism, ranks exchange activations (Slice-Gather of Galvatron,
arXiv:2211.13878). If the tensor-parallel group becomes larger, a rank gathers the sequences of the added
ranks. If it becomes smaller, the rank keeps a slice of its sequences, and gathers their gradient in the
backward pass. With sequence parallelism, every rank holds equally many tokens in both layouts, and
all-to-alls exchange them in both passes. ZeRO-3 gathers the first unit of a run of blocks before the run;
units of other runs are not prefetched.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from flopcast.dtypes import Counts, any_of
from flopcast.kept_results import NOTHING_KEPT, KeptResults
from flopcast.layers.base import activation_bytes
from flopcast.operators.base import AbstractMessage
from flopcast.operators.item import HostWork, Item
from flopcast.operators.messages import AllGather, AllToAll
from flopcast.records import Record, replace
from flopcast.spec.batch import Batch
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, one_plan
from flopcast.spec.stack import Stack
from flopcast.workload.chunk_passes import Half, run_over_chunks
from flopcast.workload.layouts import layout_of, layouts_of
from flopcast.workload.lower import lower
from flopcast.workload.passes import Software
from flopcast.workload.program import Programs, Segment, StageTransfer
from flopcast.workload.realise import realise
from flopcast.workload.stages import Stages, divide_all

NO_TRANSFER = StageTransfer(forward=(), backward=())


class _Run(Record, eq=False):
    """Layers in a row with one layout: its number, the parts of the model, and 1 for chunks with any."""

    layout: int
    parts: tuple[int, ...]
    here: Counts  # (1, chunk classes)


def by_layout(model: Model, plan: Plan) -> tuple[tuple[Model, Plan], ...]:
    """Return the blocks of each layout as a separate model, with its plan on a single stage.

    A plan without strategies is returned as it is, with the whole model.
    """
    if not plan.layers:
        return ((model, plan),)
    layouts, cut = layouts_of(plan), _cut(model, plan)
    numbers = _layout_of_parts(cut, plan, layouts)[1:]
    alone = {"pipeline_parallel": 1, "virtual_stages": 1, "stage_layers": ()}
    found = []
    for place, layout in enumerate(layouts):
        blocks = tuple(block for block, own in zip(cut.blocks, numbers, strict=False) if own == place)
        if blocks:
            found.append((cut.model_copy(update={"blocks": blocks}), layout.model_copy(update=alone)))
    return tuple(found)


def with_strategies(
    model: Model, plan: Plan, batch: Batch, stack: Stack, kept: KeptResults = NOTHING_KEPT
) -> Programs:
    """Return the programs of a plan whose blocks have separate strategies."""
    layouts = layouts_of(plan)
    cut = _cut(model, plan)
    number = _layout_of_parts(cut, plan, layouts)
    counts = tuple(count for _, count in cut.runs())
    stages = divide_all(counts, one_plan(layouts[0]), stack.pipeline)
    each = [
        realise(
            lower(cut, one_plan(layout), batch, kept),
            stack,
            partial(_masked, stages, np.array([own == place for own in number])),
            kept,
        )
        for place, layout in enumerate(layouts)
    ]
    runs = _runs(number, stages)
    between = _between(each, runs)
    halves = {phase: tuple(_segments(each, runs, phase)) for phase in ("forward", "backward")}
    legs = tuple(
        _leg(one, place, {phase: _of_layout(runs, half, place) for phase, half in halves.items()})
        for place, one in enumerate(each)
    )
    forward = _in_order(runs, halves["forward"], between)
    backward = _in_order(runs, halves["backward"], between, back=True)
    return _joined(legs, number, stages, between, (forward, backward))


def _cut(model: Model, plan: Plan) -> Model:
    """Return the model with runs of blocks cut where strategies begin or end."""
    edges = {edge for one in plan.layers for edge in (one.first, one.last + 1)}
    blocks, before = [], 0
    for block in model.blocks:
        end = before + block.count
        cuts = [before, *sorted(edge for edge in edges if before < edge < end), end]
        blocks += [block.model_copy(update={"count": high - low}) for low, high in pairwise(cuts)]
        before = end
    return model.model_copy(update={"blocks": tuple(blocks)})


def _layout_of_parts(cut: Model, plan: Plan, layouts: Sequence[Plan]) -> tuple[int, ...]:
    """Return the number of the layout of every part of a model that is cut; ends have that of the plan."""
    base, found, before = layouts[0], [0], 0
    for block in cut.blocks:
        own = next((one for one in plan.layers if one.first <= before <= one.last), None)
        found.append(layouts.index(layout_of(base, own.changes)) if own else 0)
        before += block.count
    ends = len(list(cut.runs())) - len(found)
    return (*found, *([0] * ends))


def _masked(stages: Stages, mask: np.ndarray, *_: object) -> Stages:
    """Return the stages with layers of one layout alone; classes of stages and chunks stay the same."""
    return replace(stages, chunk_counts=stages.chunk_counts * mask, stage_counts=stages.stage_counts * mask)


def _runs(number: tuple[int, ...], stages: Stages) -> tuple[_Run, ...]:
    """Return the runs of parts with one layout, in the order of the model."""
    found: list[tuple[int, list[int]]] = []
    for part, layout in enumerate(number):
        if found and found[-1][0] == layout:
            found[-1][1].append(part)
        else:
            found.append((layout, [part]))
    return tuple(
        _Run(
            layout=layout,
            parts=tuple(parts),
            here=np.minimum(stages.chunk_counts[:, :, parts].sum(axis=2), 1.0),
        )
        for layout, parts in found
    )


def _segments(each: Sequence[Programs], runs: Sequence[_Run], phase: str) -> Iterator[tuple[Segment, ...]]:
    """Yield the segments of every run of one pass, with the gathers that its units need."""
    back = phase == "backward"
    for run in runs:
        one = each[run.layout]
        parts = list(run.parts[::-1] if back else run.parts)
        layers = tuple(one.layers[part] for part in parts)
        counts = one.stages.chunk_counts[:, :, parts]
        segments = tuple(
            Segment(items=layer.backward if back else layer.forward, repeat=counts[:, :, place])
            for place, layer in enumerate(layers)
        )
        on_stage = one.parameters.max(axis=1, keepdims=True)
        software = Software(stack=one.stack, workload=one.workload, on_stage=on_stage)
        half = Half(phase=phase, layers=layers, counts=counts, segments=segments)
        yield run_over_chunks(half, software, [])


def _of_layout(
    runs: Sequence[_Run], halves: Sequence[tuple[Segment, ...]], layout: int
) -> tuple[Segment, ...]:
    """Return the segments of the runs of one layout."""
    pairs = zip(runs, halves, strict=True)
    return tuple(segment for run, half in pairs if run.layout == layout for segment in half)


def _leg(one: Programs, place: int, passes: Mapping[str, tuple[Segment, ...]]) -> Programs:
    """Return the programs of one layout with the segments that the stages run.

    Only those of the plan's own layout send activations to other stages, agree on norms, and have the fixed
    work of the host at the end of a step.
    """
    one = replace(one, forward=passes["forward"], backward=passes["backward"], weight=())
    if place == 0:
        return one
    once = [isinstance(item.work, HostWork) and item.work.kind == "step" for item in one.reduce]
    reduce = tuple(item for item, is_once in zip(one.reduce, once, strict=True) if not is_once)
    return replace(one, hop_across=NO_TRANSFER, hop_inside=NO_TRANSFER, synchronise=(), reduce=reduce)


def _in_order(
    runs: Sequence[_Run], halves: Sequence[tuple[Segment, ...]], between: "_Between", *, back: bool = False
) -> tuple[Segment, ...]:
    """Return the segments of one pass of all runs, with the messages between layouts.

    A chunk begins and ends in the layout of the plan, which is the first and the last of all runs.
    """
    found: list[Segment] = []
    for place, (run, half) in enumerate(zip(runs, halves, strict=True)):
        before = runs[place - 1] if place else run
        behind = runs[place + 1] if place + 1 < len(runs) else run
        from_other = between.segment(before.layout, run.layout, before.here * run.here, back)
        from_plan = between.segment(0, run.layout, run.here * (1.0 - before.here), back)
        to_plan = between.segment(run.layout, 0, run.here * (1.0 - behind.here), back)
        around = [*from_other, *from_plan, *half, *to_plan]
        found = [*to_plan, *half, *from_plan, *from_other, *found] if back else [*found, *around]
    return tuple(found)


class _Between(Record, eq=False):
    """Messages between layouts, by the numbers of both: of the forward pass, and of the backward pass.

    `programs` has them as programs of plans whose groups of shards are the ranks that exchange.
    """

    forward: dict[tuple[int, int], Item]
    backward: dict[tuple[int, int], Item]
    programs: tuple[Programs, ...]

    def segment(self, one: int, other: int, repeat: Counts, back: bool) -> list[Segment]:
        """Return the message between two layouts in chunks that change between them; often none."""
        item = (self.backward if back else self.forward).get((one, other))
        return [Segment(items=(item,), repeat=repeat)] if item is not None and any_of(repeat) else []


def _between(each: Sequence[Programs], runs: Sequence[_Run]) -> _Between:
    """Return the messages between all layouts that a chunk may change between."""
    pairs = {(one.layout, other.layout) for one, other in pairwise(runs)}
    pairs |= {pair for run in runs for pair in ((0, run.layout), (run.layout, 0))}
    found: dict[str, dict[tuple[int, int], Item]] = {"forward": {}, "backward": {}}
    programs: list[Programs] = []
    for one, other in sorted(pairs):
        messages = _messages(each[one], each[other])
        items = {phase: _message_item(work, phase) for phase, work in messages.items()}
        for phase, item in items.items():
            found[phase][one, other] = item
        if items:
            programs.append(_program_of(tuple(items.values()), each[one], each[other]))
    return _Between(programs=tuple(programs), **found)


def _messages(one: Programs, other: Programs) -> dict[str, AbstractMessage]:
    """Return the messages of both passes where activations go from one layout to another."""
    tensors = [each.plans.tensor_parallel.item() for each in (one, other)]
    if tensors[0] == tensors[1]:
        return {}
    wide = one if tensors[0] > tensors[1] else other
    size_bytes = activation_bytes(wide.workload.model.hidden, wide.workload.split)
    if wide.plans.structure.sequence_parallel:
        exchange = AllToAll(axis="dp_shard", message_bytes=size_bytes)
        return {"forward": exchange, "backward": exchange}
    gather = AllGather(axis="dp_shard", message_bytes=size_bytes)
    return {"forward" if wide is other else "backward": gather}


def _message_item(work: AbstractMessage, phase: str) -> Item:
    """Return a message that compute waits for."""
    name = "activation" if phase == "forward" else "gradient"
    return Item(name=f"reshard.{name}", work=work, component="resharding", phase=phase, stream="tp")


def _program_of(items: tuple[Item, ...], one: Programs, other: Programs) -> Programs:
    """Return messages as a program of a plan whose groups of shards are the ranks that exchange.

    They are neighbouring replicas of the layout with fewer tensor-parallel ranks.
    """
    narrow, wide = sorted((one, other), key=lambda each: each.plans.tensor_parallel.item())
    ranks = wide.plans.tensor_parallel / narrow.plans.tensor_parallel
    structure = narrow.plans.structure.model_copy(update={"zero": 1})
    plans = replace(narrow.plans, structure=structure, data_shard=ranks)
    return replace(
        narrow,
        workload=replace(narrow.workload, plans=plans),
        layers=(),
        forward=(Segment(items=items, repeat=np.ones((1, 1))),),
        backward=(),
        weight=(),
        hop_across=NO_TRANSFER,
        hop_inside=NO_TRANSFER,
        reduce=(),
        synchronise=(),
        update=(),
    )


def _joined(
    legs: tuple[Programs, ...],
    number: tuple[int, ...],
    stages: Stages,
    between: _Between,
    passes: tuple[tuple[Segment, ...], tuple[Segment, ...]],
) -> Programs:
    """Return one program of all layouts."""
    frozen = [one.frozen_parameters for one in legs if one.frozen_parameters is not None]
    return replace(
        legs[0],
        layers=tuple(legs[layout].layers[part] for part, layout in enumerate(number)),
        stages=stages,
        forward=passes[0],
        backward=passes[1],
        reduce=tuple(item for one in legs for item in one.reduce),
        update=tuple(item for one in legs for item in one.update),
        parameters=sum((one.parameters for one in legs), np.zeros((1, 1))),
        accounting=tuple(account for one in legs for account in one.accounting),
        frozen_parameters=sum(frozen, np.zeros((1, 1))) if frozen else None,
        legs=legs,
        between=between.programs,
    )
