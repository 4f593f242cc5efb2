"""States outside the devices: the copies that bring them, and the updates that the host makes.

Answers: which items does a placement add to a layer, to a gather of parameters, and to the end of a step?
Elsewhere: placements themselves (spec/offload.py), what a stack can place and how it copies
(spec/offload_software.py), seconds (cost/tier_copies.py), what each memory holds (memory/tiers.py).

Copies run on streams of their own, one for each link and direction, beside compute. Activations of one
layer leave the device while the next layer computes, and return while the layer before it in the backward
pass does: so many layers take the longer of both. Offload changes no FLOP.

References
----------
ZeRO-Offload: arXiv:2101.06840. ZeRO-Infinity: arXiv:2104.07857. Subgroups that the device updates: Deep
Optimizer States, arXiv:2410.21316. Activations: SSDTrain, arXiv:2408.10013.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats
from flopcast.operators.item import HostWork, Item
from flopcast.operators.messages import Replicate
from flopcast.operators.tier_copies import HostUpdate, Link, StorageTraffic, TierCopy
from flopcast.records import replace
from flopcast.spec.offload import PEER, Placement, fraction_in, stride_of
from flopcast.spec.optimizers import FP32_BYTES, state_bytes
from flopcast.spec.plan import Plan, Plans
from flopcast.spec.stack import Stack
from flopcast.units import Number
from flopcast.workload.program import Layer

COMPONENT = "offload"  # of copies to and from the host and storage
PEERS = "peer_copies"  # the component of copies to and from peer devices
UPDATE = "host_update"  # the component of updates
BESIDE = "updates"  # the stream of updates that overlap with passes
OUT: tuple[Link, ...] = ("to_host", "disk_write")
BACK: tuple[Link, ...] = ("disk_read", "to_device")
ROUND = (*BACK, *OUT)
TO_PEERS: dict[Link, Link] = {"disk_read": "peer_read", "disk_write": "peer_write"}  # in place of storage
LEAVES_IN_FORWARD = 2 / 3
UPDATED_IN_BACKWARD = 2 / 3  # where updates overlap: the backward pass takes twice as long as the forward


def _copies(
    name: str,
    links: Iterable[Link],
    one: Placement,
    size_bytes: Floats,
    *,
    phase: str,
    when: str = "every",
    after: tuple[str, ...] = (),
    pinned: bool = True,
    link_fraction: Number | None = 1.0,
) -> tuple[Item, ...]:
    """Return the copies of a placement's fraction of `size_bytes`, over one link after the other.

    The first waits for the streams `after`.
    """
    found: list[Item] = []
    for link in _path(one, links):
        size = size_bytes * one.fraction * _share_of_host(one)
        through_buffers = pinned or one.tier != "host"  # files are written from pinned buffers
        work = TierCopy(
            link=link, tier=one.tier, size_bytes=size, pinned=through_buffers, link_fraction=link_fraction
        )
        found.append(
            Item(
                name=f"{name}.{link}",
                work=work,
                component=PEERS if one.tier == PEER else COMPONENT,
                phase=phase,
                when=when,
                stream=link,
                waits=(found[-1].stream,) if found else after,
            )
        )
    return tuple(found)


def _path(one: Placement, links: Iterable[Link]) -> tuple[Link, ...]:
    """Return the links to storage that copies of a placement take: one to the host, others to peers."""
    if one.tier == PEER:
        return tuple(TO_PEERS[link] for link in links if link in TO_PEERS)
    return tuple(link for link in links if one.tier != "host" or link not in TO_PEERS)


def _share_of_host(one: Placement) -> float:
    """Return the fraction of what is placed that the host updates: the device updates one in a stride."""
    return 1.0 - 1.0 / one.stride if one.stride else 1.0


def _placed(plan: Plan, kind: str) -> Sequence[Placement]:
    """Return the placements of a kind of state; gradients without any are where the optimizer is."""
    own = [one for one in plan.offload if one.kind == kind]
    return own if own or kind != "gradients" else _placed(plan, "optimizer")


def wait_for_copies(stream: str) -> Item:
    """Return an item without work: compute waits until all that was put on a stream of copies is done."""
    nothing = Replicate(axis="dp", message_bytes=ZERO)
    return Item(
        name=f"{stream}.wait",
        work=nothing,
        component=COMPONENT,
        stream="compute",
        waits=("compute", stream),
    )


def activations_leave(plan: Plan, kept_bytes: Floats, phase: str) -> tuple[Item, ...]:
    """Return the copies of what a layer has kept, beside its "forward" or its "backward".

    Two thirds leave during the forward pass and the rest during the first half of the backward pass, which
    takes twice as long: half of the step, as SSDTrain plans the bandwidth of its drives (section III).
    """
    share = LEAVES_IN_FORWARD if phase == "forward" else 1 - LEAVES_IN_FORWARD
    found: list[Item] = []
    for one in _placed(plan, "activations"):
        found += _copies("activations", OUT, one, kept_bytes * share, phase=phase)
    return tuple(found)


def activations_return(plan: Plan, kept_bytes: Floats) -> tuple[Item, ...]:
    """Return the copies that bring the activations of the next layer of a backward pass.

    They begin with the layer that computes; the next one waits for them.
    """
    found: list[Item] = []
    for one in _placed(plan, "activations"):
        back = _copies("activations", BACK, one, kept_bytes, phase="backward", after=("compute",))
        found += [*(wait_for_copies(item.stream) for item in back[-1:]), *back]
    return tuple(found)


def with_activations_outside(layer: Layer, plans: Plans) -> Layer:
    """Return a block that copies what it keeps to its place outside the device, and back.

    Of kinds of micro-batches that `offloads` leaves out, all stays.
    """
    plan = plans.structure
    share = fraction_in(plan.offload, "activations") * plans.offloads
    if not share.any() or layer.kind != "block":
        return layer
    whole, kept = layer.kept_bytes, layer.kept_bytes * plans.offloads
    return replace(
        layer,
        forward=(*layer.forward, *activations_leave(plan, kept, "forward")),
        backward=(
            *activations_return(plan, kept),
            *activations_leave(plan, kept, "backward"),
            *layer.backward,
        ),
        kept_bytes=whole * (1.0 - share),
        outside_bytes=whole * share,
    )


def with_bookkeeping(layer: Layer, stack: Stack, plan: Plan) -> Layer:
    """Return a block whose device waits for the software's bookkeeping, with states outside the devices."""
    if layer.kind != "block":
        return layer
    return replace(
        layer,
        forward=(*layer_on_host(stack, plan, "forward"), *layer.forward),
        backward=(*layer_on_host(stack, plan, "backward"), *layer.backward),
    )


def layer_on_host(stack: Stack, plan: Plan, phase: str) -> tuple[Item, ...]:
    """Return the time of a block's pass in which its device waits for the software's bookkeeping."""
    how = stack.offload
    seconds = how.forward_layer_s if phase == "forward" else how.backward_layer_s
    if not plan.offload or plan.zero < 3 or not seconds:
        return ()
    work = HostWork(kind=f"{phase}_layer")
    return (Item(name=f"host.{work.kind}", work=work, component="host", phase=phase, waits=("compute",)),)


def gradients_leave(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the copies of a layer's reduced gradients during the last backward pass, in fp32.

    `stack.offload` says whether they leave layer by layer, or all together at the update. In the last case,
    and below ZeRO-2, there is nothing to copy here. `shard` has the elements of the layer's gradients on
    one rank after the reduction, (plans, 1). Updates that overlap with the passes begin here, too.
    """
    how = stack.offload
    if not how.leaves_in_backward or plans.structure.zero < 2:
        return ()
    found: list[Item] = []
    for one in _placed(plans.structure, "gradients"):
        found += _copies(
            "gradients",
            OUT,
            one,
            shard * FP32_BYTES,
            phase="backward",
            when="last",
            after=("compute", "dp"),
            pinned=how.gradient_copies == "pinned",
            link_fraction=how.pinned_fraction,
        )
        if how.gradient_flush == "blocking":
            found.append(wait_for_copies(found[-1].stream))
    return (*found, *_updated_beside(stack, plans, shard, "backward"))


def updates_before(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return what a layer's first forward pass waits for, if updates on the host overlap with passes."""
    found = _updated_beside(stack, plans, shard, "forward")
    return (*found, replace(wait_for_copies("to_device"), when="first")) if found else ()


def _updated_beside(stack: Stack, plans: Plans, shard: Counts, phase: str) -> tuple[Item, ...]:
    """Return the part of a layer's update on the host that runs beside one pass of the device.

    The host is busy during the whole step, in the order in which the layers of the next forward pass need
    their parameters. Layers are alike here, so each has the same part beside either pass.
    """
    if not stack.offload.overlaps_updates or not _placed(plans.structure, "optimizer"):
        return ()
    back = phase == "backward"
    share = UPDATED_IN_BACKWARD if back else 1.0 - UPDATED_IN_BACKWARD
    update, *copies = _updated_on_host(stack, plans, shard * share)
    update = replace(update, stream=BESIDE, waits=("to_host",) if back else ())
    copies = [replace(copy, waits=(BESIDE, *copy.waits)) for copy in copies]
    return tuple(replace(one, phase=phase, when="last" if back else "first") for one in (update, *copies))


def parameters_return(stack: Stack, plans: Plans, shard: Counts, phase: str, when: str) -> tuple[Item, ...]:
    """Return the copies of a rank's shard of a unit, before the unit is gathered.

    A software without a 16-bit copy of the shard copies the fp32 one, and casts it on the device.

    References
    ----------
    `torch/distributed/fsdp/_fully_shard/_fsdp_param.py`, `all_gather_inputs`: the shard is copied from the
    host, then cast.
    """
    wide = not stack.sharding.keeps_low_precision
    size_bytes = shard * (FP32_BYTES if wide else ELEMENT_BYTES[plans.structure.activations])
    found: list[Item] = []
    for one in _placed(plans.structure, "parameters"):
        found += _copies(
            "parameters",
            BACK,
            one,
            size_bytes,
            phase=phase,
            when=when,
            link_fraction=stack.offload.pinned_fraction,
        )
    return tuple(found)


def updated_outside(stack: Stack, plan: Plan) -> float:
    """Return the fraction of a rank's parameters that its host updates."""
    return fraction_in(plan.offload, "optimizer") if stack.offload.updates_on == "host" else 0.0


def update_outside(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the update of the placed fraction of a rank's shard, (plans, stage classes).

    Where the software updates on the device, the states are copied there and back, beside the update of all
    parameters. Otherwise gradients that have not left during the backward pass do so first. The states of
    AdamW, 12 bytes a parameter, are read and written, and 4 bytes of gradients are read. Then 16-bit
    parameters return to the device, unless their place is outside it, too. All of this is one item where
    the software copies in pieces beside the update.
    """
    plan, placed, how = plans.structure, _placed(plans.structure, "optimizer"), stack.offload
    if not placed or how.overlaps_updates:
        return _parameters_leave(stack, plans, shard)
    copies = partial(_copies, phase="step", link_fraction=how.pinned_fraction)
    found: list[Item] = []
    if not how.leaves_in_backward or plan.zero < 2:
        pinned = how.gradient_copies == "pinned"
        for one in _placed(plan, "gradients"):
            found += copies("gradients", OUT, one, shard * FP32_BYTES, pinned=pinned)
    states = shard * state_bytes(plan.optimizer, stack.optimizer)
    left = _parameters_leave(stack, plans, shard)
    if how.updates_on == "device":
        return (*(copy for one in placed for copy in copies("states", ROUND, one, states)), *left)
    found += [*_updated_on_host(stack, plans, shard), *left]
    return (_beside_update(found),) if how.gradient_flush == "beside_update" else tuple(found)


def _parameters_leave(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the copies of 16-bit parameters that the device has updated to their place outside it."""
    plan, share = plans.structure, 1.0 - updated_outside(stack, plans.structure)
    if not share or not stack.sharding.keeps_low_precision:
        return ()
    copies = partial(_copies, phase="step", link_fraction=stack.offload.pinned_fraction)
    new_bytes = shard * ELEMENT_BYTES[plan.activations] * share
    where = _placed(plan, "parameters")
    return tuple(
        copy for one in where for copy in copies("parameters", OUT, one, new_bytes, after=("compute",))
    )


def _updated_on_host(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the update of some parameters on the host, and the copies that bring the new ones back."""
    plan, placed = plans.structure, _placed(plans.structure, "optimizer")
    copies = partial(_copies, phase="step", link_fraction=stack.offload.pinned_fraction)
    states = shard * state_bytes(plan.optimizer, stack.optimizer)
    updated = updated_outside(stack, plan)
    found = [
        Item(
            name="optimizer.update_on_host",
            work=HostUpdate(
                parameters=shard * updated,
                moved_bytes=(2 * states + shard * FP32_BYTES) * updated,
                stride=stride_of(plan.offload),
                storage=_storage_traffic(plan, states, shard * FP32_BYTES),
            ),
            component=UPDATE,
            phase="step",
            stream="host",
        )
    ]
    new_bytes = shard * ELEMENT_BYTES[plan.activations]
    elsewhere = fraction_in(plan.offload, "parameters")
    for one in placed:
        on_device = one.model_copy(update={"tier": "host"})  # from there, wherever the states are
        found += copies("parameters", BACK, on_device, new_bytes * (1 - elsewhere))
    for one in _placed(plan, "parameters"):
        written = one.model_copy(update={"fraction": one.fraction * updated})
        found += copies("parameters", OUT[1:], written, new_bytes)
    return tuple(found)


def _beside_update(items: Sequence[Item]) -> Item:
    """Return an update on the host with the copies that run beside it."""
    copies = tuple(item.work for item in items if isinstance(item.work, TierCopy))
    ((item, work),) = ((item, item.work) for item in items if isinstance(item.work, HostUpdate))
    return replace(item, work=replace(work, beside=copies))


def _storage_traffic(
    plan: Plan, states_bytes: Floats, gradient_bytes: Floats
) -> tuple[StorageTraffic, ...]:
    """Return what an update reads and writes of each storage."""
    tiers = dict.fromkeys(one.tier for one in plan.offload if one.tier != "host")
    found = []
    for tier in tiers:
        states = states_bytes * fraction_in(plan.offload, "optimizer", tier)
        gradients = gradient_bytes * fraction_in(plan.offload, "gradients", tier)
        found.append(StorageTraffic(tier=tier, read_bytes=states + gradients, written_bytes=states))
    return tuple(found)
