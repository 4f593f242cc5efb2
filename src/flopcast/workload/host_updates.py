"""Updates of offloaded optimizer states.

Answers: which states does the host update, when, and how are gradients, states and parameters copied?
Elsewhere: placements (spec/offload.py), copies that passes need (offload.py), seconds
(cost/tier_copies.py).

References
----------
ZeRO-Offload: arXiv:2101.06840. ZeRO-Infinity: arXiv:2104.07857. Subgroups that the device updates: Deep
Optimizer States, arXiv:2410.21316. Updates beside the passes: AutoHete, arXiv:2503.01890; with ZeRO-3,
SuperOffload, arXiv:2509.21271.
"""

from collections.abc import Sequence
from functools import partial

from flopcast.dtypes import ELEMENT_BYTES, Counts, Floats
from flopcast.operators.item import Item
from flopcast.operators.tier_copies import HostUpdate, StorageTraffic, TierCopy
from flopcast.records import replace
from flopcast.spec.offload import PEER, Placement, fraction_in, placed, stride_of
from flopcast.spec.optimizers import FP32_BYTES, state_bytes
from flopcast.spec.plan import Plan, Plans
from flopcast.spec.stack import Stack
from flopcast.workload.offload import BACK, OUT, copies_of, wait_for_copies

UPDATE = "host_update"  # the component of updates
BESIDE = "updates"  # the stream of updates that overlap with passes
ROUND = (*BACK, *OUT)


def _updated_on_host(stack: Stack, plan: Plan) -> tuple[Placement, ...]:
    """Return the placements of optimizer states that the host updates; devices update those on peers."""
    on_host = stack.offload.updates_on == "host"
    return tuple(one for one in placed(plan.offload, "optimizer") if on_host and one.tier != PEER)


def buffers_gradients(stack: Stack, plan: Plan) -> bool:
    """Return whether gradients are summed in 16-bit buffers on the host, as the stack's software does."""
    return stack.offload.buffers_gradients and plan.zero == 3 and bool(placed(plan.offload, "optimizer"))


def updated_outside(stack: Stack, plan: Plan) -> float:
    """Return the fraction of a rank's parameters that its host updates."""
    return sum((one.fraction for one in _updated_on_host(stack, plan)), 0.0)


def gradients_leave(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the copies of a layer's reduced gradients during the last backward pass, in fp32.

    `stack.offload` states whether gradients are copied layer by layer, or all together at the update. In
    the latter case, and below ZeRO-2, this function returns no copies. `shard` has the elements of the
    layer's gradients on one rank after the reduction, (plans, 1). It also returns updates that overlap with
    the passes and begin here.
    """
    how = stack.offload
    if not how.leaves_in_backward or plans.structure.zero < 2:
        return ()
    buffered = _through_buffers(stack, plans, shard)
    leaving: list[Item] = []
    for one in placed(plans.structure.offload, "gradients"):
        leaving += copies_of(
            "gradients",
            OUT,
            one,
            shard * FP32_BYTES,
            phase="backward",
            when="last",
            after=("compute", "dp", *(copy.stream for copy in buffered)),
            pinned=how.gradient_copies == "pinned",
            link_fraction=how.pinned_fraction,
        )
    if how.gradient_flush == "blocking":
        leaving = [_blocking(copy) for copy in (*buffered, *leaving)]
        buffered = tuple(replace(copy, when="not_last") for copy in buffered)
    return (*buffered, *leaving, *_updated_beside(stack, plans, shard, "backward"))


def _blocking(copy: Item) -> Item:
    """Return a copy of the last backward pass for which compute waits."""
    return replace(copy, when="last", stream="compute", waits=("dp",))


def _through_buffers(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the copies of reduced 16-bit gradients to buffers on the host and back, in every micro-batch.

    Gradients are summed over micro-batches in these buffers. One stream of the software runs all copies of
    gradients, so that each begins after the one before.

    References
    ----------
    `deepspeed/runtime/zero/stage3.py`, `partition_grads`.
    """
    plan, how = plans.structure, stack.offload
    if not buffers_gradients(stack, plan):
        return ()
    copies = partial(
        copies_of,
        "gradient_buffers",
        one=Placement(kind="gradients", tier="host"),
        size_bytes=shard * ELEMENT_BYTES[plan.activations],
        phase="backward",
        link_fraction=how.pinned_fraction,
    )
    out = copies(links=OUT, after=("compute", "dp", "to_device"))
    return (*out, *copies(links=BACK, after=("to_host",)))


def updates_before(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the items beside a layer's first forward pass, if the host updates during the passes.

    The layer waits for its new parameters. With ZeRO-3, gathers wait for them instead (`behind_updates`).
    """
    found = _updated_beside(stack, plans, shard, "forward")
    if not found or plans.structure.zero == 3:
        return found
    return (*found, replace(wait_for_copies("to_device"), when="first"))


def behind_updates(stack: Stack, plans: Plans, phase: str) -> tuple[str, ...]:
    """Return the streams for which a gather of parameters waits if updates overlap with passes.

    A gather in the forward pass waits for updates that began before it. Updates of the next one or two
    layers may still run.
    """
    how = stack.offload
    waits = phase == "forward" and how.overlaps_updates and how.backward_fraction < 1
    return (BESIDE, "to_device") if waits and _updated_on_host(stack, plans.structure) else ()


def _updated_beside(stack: Stack, plans: Plans, shard: Counts, phase: str) -> tuple[Item, ...]:
    """Return the part of a layer's update on the host that runs beside one pass of the device.

    The host updates in the order in which the layers of the next forward pass need their parameters.
    Layers are alike here, so each has the same part beside either pass.
    """
    back = phase == "backward"
    share = stack.offload.backward_fraction if back else 1.0 - stack.offload.backward_fraction
    if not stack.offload.overlaps_updates or not share or not _updated_on_host(stack, plans.structure):
        return ()
    update, *copies = _host_update(stack, plans, shard * share)
    update = replace(update, stream=BESIDE, waits=("to_host",) if back else ())
    copies = [replace(copy, waits=(BESIDE, *copy.waits)) for copy in copies]
    return tuple(replace(one, phase=phase, when="last" if back else "first") for one in (update, *copies))


def update_outside(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the update of the placed fraction of a rank's shard, (plans, stage classes).

    If the device updates, the states are copied to it and back, concurrently with the update of all
    parameters. If the host updates, gradients that were not copied during the backward pass are copied
    first. The host reads and writes the states of AdamW, 12 bytes per parameter, and reads 4 bytes of
    gradients. Then 16-bit parameters return to the device, unless they are also placed outside it. All of
    this is a single item if the software overlaps copies of pieces with the update.
    """
    plan, how, by_host = plans.structure, stack.offload, _updated_on_host(stack, plans.structure)
    copies = partial(copies_of, phase="step", link_fraction=how.pinned_fraction)
    states = shard * state_bytes(plan.optimizer, stack.optimizer)
    by_device = [one for one in placed(plan.offload, "optimizer") if one not in by_host]
    found = [copy for one in by_device for copy in copies("states", ROUND, one, states)]
    if not by_host or how.overlaps_updates:
        return (*found, *_parameters_leave(stack, plans, shard))
    gradients: list[Item] = []
    if not how.leaves_in_backward or plan.zero < 2:
        pinned = how.gradient_copies == "pinned"
        for one in placed(plan.offload, "gradients"):
            gradients += copies("gradients", OUT, one, shard * FP32_BYTES, pinned=pinned)
    update = (*gradients, *_host_update(stack, plans, shard), *_parameters_leave(stack, plans, shard))
    return (*found, *((_beside_update(update),) if how.gradient_flush == "beside_update" else update))


def _parameters_leave(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the copies of 16-bit parameters that the device has updated to their place outside it."""
    plan, share = plans.structure, 1.0 - updated_outside(stack, plans.structure)
    if not share or not stack.sharding.keeps_low_precision:
        return ()
    copies = partial(copies_of, phase="step", link_fraction=stack.offload.pinned_fraction)
    new_bytes = shard * ELEMENT_BYTES[plan.activations] * share
    where = placed(plan.offload, "parameters")
    return tuple(
        copy for one in where for copy in copies("parameters", OUT, one, new_bytes, after=("compute",))
    )


def _host_update(stack: Stack, plans: Plans, shard: Counts) -> tuple[Item, ...]:
    """Return the update of some parameters on the host, and the copies that bring the new ones back.

    Those whose place is on peers return to the device, which sends them on.
    """
    plan = plans.structure
    copies = partial(copies_of, phase="step", link_fraction=stack.offload.pinned_fraction)
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
    elsewhere = sum(one.fraction for one in placed(plan.offload, "parameters") if one.tier != PEER)
    for one in _updated_on_host(stack, plan) if elsewhere < 1 else ():
        on_device = one.model_copy(update={"tier": "host"})  # from there, wherever the states are
        found += copies("parameters", BACK, on_device, new_bytes * (1 - elsewhere))
    for one in placed(plan.offload, "parameters"):
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
    """Return the bytes that an update reads from and writes to each storage tier."""
    tiers = dict.fromkeys(one.tier for one in plan.offload if one.tier not in ("host", PEER))
    found = []
    for tier in tiers:
        states = states_bytes * fraction_in(plan.offload, "optimizer", tier)
        gradients = gradient_bytes * fraction_in(plan.offload, "gradients", tier)
        found.append(StorageTraffic(tier=tier, read_bytes=states + gradients, written_bytes=states))
    return tuple(found)
