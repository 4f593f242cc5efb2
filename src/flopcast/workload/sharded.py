"""Gathers of sharded parameters: their times, their order, and the items that wait for them.

Answers: when are the parameters of ZeRO-3 (FSDP) gathered in the forward and the backward pass, when are
updated parameters (ZeRO-1, ZeRO-2) gathered during the next forward pass, and in which micro-batches are
sharded gradients reduced?
Elsewhere: reductions and update (gradient_reduction.py), resident memory (memory/sharded.py), the policy of
a stack (spec/stack.py, Sharding), seconds (cost/, timeline/).

A *unit* is gathered by one message. It is a block, or the layers at one end of the model. All messages of
data parallelism share one in-order stream. While unit i computes, unit i + 1 is gathered. The compute of a
unit waits only for the gather of this unit. The stream "gathered" therefore records the end of the gather
before the next message, which is the reduction of unit i in the backward pass.

Arrays have the shape (plans, chunk classes), because the order of units depends on the layers of a chunk.

References
----------
ZeRO-3: arXiv:1910.02054, section 5.3. Units, prefetch and the limit of one gather in flight in FSDP:
arXiv:2304.11277, sections 3.3 and 3.4. Pipeline stages that gather once:
`torch/distributed/pipelining/stage.py`. Gathers under the next forward:
`megatron/core/distributed/param_and_grad_buffer.py`; from the step's start on:
`megatron/core/pipeline_parallel/schedules.py`, `param_sync_func` of the interleaved schedule.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from flopcast.dtypes import ONE, ZERO, Counts, any_of
from flopcast.layers.base import Weight
from flopcast.operators.item import Item
from flopcast.operators.memory_bound import MemoryBound
from flopcast.operators.messages import AllGather, Replicate
from flopcast.records import Record, replace
from flopcast.spec.plan import Plans
from flopcast.spec.shard_groups import axis_of, ranks_of
from flopcast.spec.stack import Stack
from flopcast.workload.host_updates import behind_updates
from flopcast.workload.offload import parameters_return, stored_bytes
from flopcast.workload.parameters import (
    elements,
    is_expert,
    is_frozen,
    is_sent_low,
    spared_elements,
    update_bytes,
)
from flopcast.workload.program import Segment
from flopcast.workload.reductions import Times, bucket_elements
from flopcast.workload.shard_levels import gathered_kind, narrow_bytes, parameter_cast
from flopcast.workload.single_tensors import gathers_of_a_pass, num_tensors, waits
from flopcast.workload.unit_sizes import unit_elements, whole_elements

AT_THE_END = {"final_norm", "head"}  # one unit: the norm alone would hide nothing of the head's gather
AHEAD = "ahead"  # of gathers: in the first micro-batch, but begun with the step


class _Unit(Record, eq=False):
    """The parameters of one all-gather, in the order of the pass: equal layers, or a few parts.

    `repeat` counts equal units in a row, shape (plans, chunk classes); only a run of blocks has more than
    one. `layers` are the items of its parts, each with its own repeats.
    """

    weights: tuple[Weight, ...]
    repeat: Counts
    layers: tuple[Segment, ...]

    @property
    def here(self) -> Counts:
        """Return 1 where a chunk holds the unit, else 0."""
        return np.minimum(self.repeat, 1.0)


def gather_times(stack: Stack, plans: Plans, backward: bool) -> Times:
    """Return the micro-batches in which a pass gathers parameters; "" means never.

    For AHEAD, see `gathers_run_ahead`.

    Parameters that were gathered in the forward pass and kept are not gathered in the backward pass.
    """
    zero, policy = plans.structure.zero, stack.sharding.gathers
    if zero < 3:
        if zero == 0 or backward or not stack.gradients.overlap_gather:
            return (("", ONE),)
        ahead = gathers_run_ahead(plans)
        return (("first", 1.0 - ahead), (AHEAD, ahead))
    once = "" if backward else "first"
    often = "" if backward and policy != "every_pass" else "every"
    if policy == "every_step":
        return ((once, ONE),)
    if not stack.sharding.holds_in_pipeline:
        return ((often, ONE),)
    alone = (plans.pipeline_parallel == 1).astype(np.float64)
    return ((often, alone), (once, 1.0 - alone))


def gathers_run_ahead(plans: Plans) -> Counts:
    """Return 1 if updated parameters are gathered from the start of the step on all stages; (plans, 1).

    With several chunks, Megatron-Core's schedule gathers the parameters of the next chunk while a chunk
    runs, and those of the first two chunks at once (`param_sync_func`). Otherwise, a hook of each layer
    starts the gather, so a stage gathers when its first input has arrived.
    """
    interleaved = (plans.pipeline_parallel > 1) & (plans.virtual_stages > 1)
    return np.asarray(interleaved.astype(np.float64))


def gathered_segments(
    parts: Sequence[Segment],
    kinds: Sequence[str],
    weights: Sequence[tuple[Weight, ...]],
    stack: Stack,
    plans: Plans,
    backward: bool = False,
) -> tuple[Segment, ...]:
    """Return the segments of one pass with the all-gathers that its units need.

    Parameters
    ----------
    parts, kinds, weights
        The items, the kind and the tensors of each run of equal layers, in the order of the pass.

    Returns
    -------
    tuple of Segment
        The same items in the same order, with gathers before them.
    """
    found: list[Segment] = []
    if plans.structure.zero < 3:  # whole in memory: only what was updated arrives
        weights = [tuple(weight for weight in own if weight.trained) for own in weights]
    for when, mask in gather_times(stack, plans, backward):
        chosen = [replace(part, repeat=part.repeat * mask) for part in parts]
        if when == AHEAD:
            how = _Gathering(stack, plans, "first", backward)
            chosen = [_beside(part, own, how) for part, own in zip(chosen, weights, strict=True)]
        elif when:
            chosen = _with_gathers(chosen, kinds, weights, _Gathering(stack, plans, when, backward))
        found += chosen
    return tuple(found) if len(found) == len(parts) else tuple(s for s in found if any_of(s.repeat))


class _Gathering(Record, eq=False, kw_only=False):
    """How the units of one pass are gathered, in the micro-batches `when`."""

    stack: Stack
    plans: Plans
    when: str
    backward: bool

    @property
    def phase(self) -> str:
        """Return the phase of the items: "forward" or "backward"."""
        return "backward" if self.backward else "forward"

    @property
    def begins_gathered(self) -> bool:
        """Return whether the first unit of the pass is already gathered by the previous pass."""
        return self.backward and self.stack.sharding.keeps_last_unit


def _with_gathers(
    parts: Sequence[Segment], kinds: Sequence[str], weights: Sequence[tuple[Weight, ...]], how: _Gathering
) -> list[Segment]:
    """Return units in order: the first is gathered before the pass, each other while one computes."""
    root = how.stack.sharding.ends == "root" and how.plans.structure.zero == 3
    units = _units(parts, kinds, weights, root)
    found: list[Segment] = []
    if root and not how.backward:
        found += [
            Segment(
                items=(*_gather(own, how, ahead=False), wait_for("dp")), repeat=np.minimum(part.repeat, 1.0)
            )
            for part, kind, own in zip(parts, kinds, weights, strict=True)
            if kind != "block"
        ]
    owned = [place for place, unit in enumerate(units) if unit.weights]
    if how.stack.sharding.prefetch_units and not how.begins_gathered:
        found += [
            Segment(items=_gather(units[place].weights, how, ahead=False), repeat=repeat)
            for place, repeat in zip(owned, _first([units[place] for place in owned]), strict=True)
        ]
    for place, unit in enumerate(units):
        if not unit.weights:
            found += unit.layers
        elif how.stack.sharding.prefetch_units:
            found += _ahead(unit, [units[other] for other in owned if other > place], how)
        else:
            gather = (*_gather(unit.weights, how, ahead=False), wait_for("gathered"), *_copies(unit, how))
            found.append(Segment(items=(*gather, *unit.layers[0].items), repeat=unit.repeat))
            found += unit.layers[1:]
    return found


def _beside(part: Segment, weights: tuple[Weight, ...], how: _Gathering) -> Segment:
    """Return a run of layers whose parameters arrive concurrently; nothing here delays their queue.

    When a program may end that needs them is the pipeline's affair (timeline/step.py).
    """
    messages = (
        [item for item in _gather(weights, how, ahead=True) if item.stream == "dp"] if weights else []
    )
    return replace(part, items=(*(replace(item, waits=()) for item in messages), *part.items))


def _units(
    parts: Sequence[Segment], kinds: Sequence[str], weights: Sequence[tuple[Weight, ...]], root: bool
) -> list[_Unit]:
    units: list[_Unit] = []
    before = ""
    for part, kind, own in zip(parts, kinds, weights, strict=True):
        joins = {before, kind} <= AT_THE_END and not root
        before = kind
        last = units.pop() if joins else None
        held = () if root and kind != "block" else own
        units.append(
            _Unit(
                weights=(*last.weights, *held) if last else held,
                repeat=part.repeat,
                layers=(*last.layers, part) if last else (part,),
            )
        )
    return units


def _first(units: Sequence[_Unit]) -> Iterator[Counts]:
    """Yield 1 where a unit is the first that a chunk holds; (plans, chunk classes) each."""
    free: Counts = ONE
    for unit in units:
        yield free * unit.here
        free = free * (1.0 - unit.here)


def _ahead(unit: _Unit, later: Sequence[_Unit], how: _Gathering) -> list[Segment]:
    """Return a run of equal units, each of which gathers the next; the last gathers the unit after the run.

    Each gather is in the segment of the unit that computes meanwhile, whose messages share its links.
    """
    arrive, copies, layer = wait_for("gathered"), _copies(unit, how), unit.layers[0]
    inner = (arrive, *_gather(unit.weights, how, ahead=True), *copies, *layer.items)
    found = [Segment(items=inner, repeat=np.maximum(unit.repeat - 1.0, 0.0))]
    last = unit.here
    for other, follows in zip(later, _first(later), strict=True):
        if any_of(repeat := unit.here * follows):
            gather = _gather(other.weights, how, ahead=True)
            found.append(Segment(items=(arrive, *gather, *copies, *layer.items), repeat=repeat))
        last = last * (1.0 - follows)
        if not any_of(last):
            break
    found.append(Segment(items=(arrive, *copies, *layer.items), repeat=last))
    found = [segment for segment in found if any_of(segment.repeat)]
    return [*found, *unit.layers[1:]]


def _gather(weights: tuple[Weight, ...], how: _Gathering, ahead: bool) -> tuple[Item, ...]:
    """Return the all-gather of a unit, experts on their own axis, with a mark at its end; `ahead`:
    overlapped.

    It begins when the unit before it begins to compute: no more than two are whole at once. Where
    parameters are whole in memory, it is as many messages as they fill buckets.
    """
    stack, plans = how.stack, how.plans
    updates = behind_updates(stack, plans, how.phase)
    held, experts = unit_elements(weights, stack, plans), elements(weights, is_expert)
    found: list[Item] = []
    for name, axis, count in (("", "dp", held - experts), ("_experts", "expert_dp", experts)):
        of_experts = bool(name)
        if of_experts and not any(weight.expert for weight in weights):
            continue
        bucket = np.minimum(bucket_elements(stack, plans), count) if plans.structure.zero < 3 else count
        kind = gathered_kind(plans, how.backward)
        updated_bytes = update_bytes(count, elements(weights, is_sent_low(of_experts)), plans)
        own = tuple(weight for weight in weights if weight.expert == of_experts)
        frozen, spared = elements(own, is_frozen), spared_elements(own, plans)
        usual_bytes = updated_bytes * (1.0 - spared / np.maximum(count, 1.0))
        size_bytes = bucket * (narrow_bytes(plans, kind) or usual_bytes)
        shards = plans.expert_state_shards if of_experts else ranks_of(plans, kind)
        again = gathers_of_a_pass(weights, stack, plans, how.backward)
        messages = num_tensors(weights, stack, plans)
        kept_bytes = stored_bytes(stack, plans, count - frozen, frozen - spared) / shards
        found += (copies := parameters_return(stack, plans, kept_bytes, how.phase, how.when, updates))
        found += parameter_cast(plans, kind, count / shards, ("quantise", how.phase, how.when))
        costs = (shards, messages * again, count * again)
        found += waits(stack, plans, costs, how.phase, how.when)
        found.append(
            Item(
                name=f"parameters.gather{name}",
                work=AllGather(axis=axis_of(plans, kind, axis), message_bytes=size_bytes / messages),
                component="dp_communication",
                phase=how.phase,
                when=how.when,
                stream="dp",
                waits=("compute", "host", *updates, *(copy.stream for copy in copies)),
                count=count / np.maximum(bucket, 1.0) * messages * again,
                overlapped=ahead,
            )
        )
    return (*found, _moment("parameters.gathered", "gathered", ("dp",)))


def _copies(unit: _Unit, how: _Gathering) -> tuple[Item, ...]:
    """Return the passes over a unit that has been gathered: dequantisation, then those of the stack."""
    whole = whole_elements(unit.weights, how.stack, how.plans)
    kind = gathered_kind(how.plans, how.backward)
    cast = parameter_cast(how.plans, kind, whole, ("dequantise", how.phase, how.when))
    return cast + tuple(
        Item(
            name=f"parameters.{kind}",
            work=MemoryBound(kind=kind, elements=whole, dtype=how.plans.structure.activations),
            component="parameters",
            phase=how.phase,
            when=how.when,
        )
        for kind in (how.stack.sharding.unit_copies if how.plans.structure.zero == 3 else ())
    )


def _moment(name: str, stream: str, waits: tuple[str, ...]) -> Item:
    """Return an item without work, which makes `stream` wait for all of `waits`."""
    nothing = Replicate(axis="dp", message_bytes=ZERO)
    return Item(name=name, work=nothing, component="dp_communication", stream=stream, waits=waits)


def next_gather(stack: Stack, plans: Plans) -> tuple[Item, ...]:
    """Return an item that records when gathers of a later backward pass can follow the reductions.

    The result is empty if backward passes gather nothing.
    """
    gathers = any(when for when, _ in gather_times(stack, plans, backward=True))
    return (_moment("parameters.next", "gathered", ("dp",)),) if gathers else ()


def wait_for(stream: str) -> Item:
    """Return an item without work, in which compute waits for all earlier items on `stream`."""
    return _moment(f"{stream}.wait", "compute", ("compute", stream))
