"""Offloaded states: the copies that forward and backward passes need.

Answers: which items does offload add to a layer, and to an all-gather of parameters?
Elsewhere: updates and their copies (host_updates.py), placements (spec/offload.py), the placements and
copies that a stack supports (spec/offload_software.py), seconds (cost/tier_copies.py), the contents of each
memory (memory/tiers.py).

Copies overlap with compute, on a separate stream for each link and direction. Activations of one layer
leave the device while the next layer computes, and return while the preceding layer of the backward pass
computes. The time of these layers is the longer of compute and copies. Offload changes no FLOP.

References
----------
Parameters: ZeRO-Infinity, arXiv:2104.07857. Activations: SSDTrain, arXiv:2408.10013.
"""

from collections.abc import Iterable

from flopcast.dtypes import ELEMENT_BYTES, ZERO, Counts, Floats, any_of
from flopcast.operators.item import HostWork, Item
from flopcast.operators.messages import Replicate
from flopcast.operators.tier_copies import Link, TierCopy
from flopcast.records import replace
from flopcast.spec.offload import PEER, Placement, fraction_in, placed, used_in_steps
from flopcast.spec.optimizers import FP32_BYTES
from flopcast.spec.plan import Plan, Plans
from flopcast.spec.stack import Stack
from flopcast.units import Number
from flopcast.workload.program import Layer

COMPONENT = "offload"  # of copies to and from the host and storage
PEERS = "peer_copies"  # the component of copies to and from peer devices
OUT: tuple[Link, ...] = ("to_host", "disk_write")
BACK: tuple[Link, ...] = ("disk_read", "to_device")
TO_PEERS: dict[Link, Link] = {"disk_read": "peer_read", "disk_write": "peer_write"}  # in place of storage
LEAVES_IN_FORWARD = 2 / 3


def copies_of(
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
    """Return the copies of a placement's fraction of `size_bytes`, over each of its links.

    The first copy waits for the streams `after`.
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


def wait_for_copies(stream: str) -> Item:
    """Return an item without work, in which compute waits for all earlier copies of a stream."""
    nothing = Replicate(axis="dp", message_bytes=ZERO)
    return Item(
        name=f"{stream}.wait",
        work=nothing,
        component=COMPONENT,
        stream="compute",
        waits=("compute", stream),
    )


def activations_leave(plan: Plan, kept_bytes: Floats, phase: str) -> tuple[Item, ...]:
    """Return the copies of the tensors that a layer keeps, during its "forward" or "backward" pass.

    Two thirds are copied during the forward pass, and the rest during the first half of the backward pass,
    which takes twice as long as the forward pass. Copies therefore use half of the step, as SSDTrain
    assumes for the bandwidth of its drives (section III).
    """
    share = LEAVES_IN_FORWARD if phase == "forward" else 1 - LEAVES_IN_FORWARD
    found: list[Item] = []
    for one in placed(plan.offload, "activations"):
        found += copies_of("activations", OUT, one, kept_bytes * share, phase=phase)
    return tuple(found)


def activations_return(plan: Plan, kept_bytes: Floats) -> tuple[Item, ...]:
    """Return the copies of activations to the device, for the next layer of a backward pass.

    They begin together with the layer that computes, and the next layer waits for them.
    """
    found: list[Item] = []
    for one in placed(plan.offload, "activations"):
        back = copies_of("activations", BACK, one, kept_bytes, phase="backward", after=("compute",))
        found += [*(wait_for_copies(item.stream) for item in back[-1:]), *back]
    return tuple(found)


def with_activations_outside(layer: Layer, plans: Plans) -> Layer:
    """Return a block that copies the tensors that it keeps to a memory outside the device, and back.

    Micro-batches of kinds that are not in `offloads` keep everything on the device.
    """
    plan = plans.structure
    share = fraction_in(plan.offload, "activations") * plans.offloads
    if not any_of(share) or layer.kind != "block":
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
    """Return a block with offloaded states, in which the device waits for the software's bookkeeping."""
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
    if not used_in_steps(plan.offload) or plan.zero < 3 or not seconds:
        return ()
    work = HostWork(kind=f"{phase}_layer")
    return (Item(name=f"host.{work.kind}", work=work, component="host", phase=phase, waits=("compute",)),)


def stored_bytes(stack: Stack, plans: Plans, trained: Counts, frozen: Counts) -> Counts:
    """Return the bytes of parameters as a shard stores them between steps.

    Software without a 16-bit copy of trained parameters stores them in fp32, and casts them on the device.
    Frozen parameters have the dtype of activations.

    References
    ----------
    `torch/distributed/fsdp/_fully_shard/_fsdp_param.py`, `all_gather_inputs`: the shard is copied from the
    host, then cast.
    """
    each_bytes = ELEMENT_BYTES[plans.structure.activations]
    wide = not stack.sharding.keeps_low_precision
    return trained * (FP32_BYTES if wide else each_bytes) + frozen * each_bytes


def parameters_return(
    stack: Stack, plans: Plans, size_bytes: Counts, phase: str, when: str, after: tuple[str, ...]
) -> tuple[Item, ...]:
    """Return the copies of a rank's shard of a unit, of `size_bytes`, before the unit is gathered.

    The copies wait for the streams `after`.
    """
    found: list[Item] = []
    for one in placed(plans.structure.offload, "parameters"):
        found += copies_of(
            "parameters",
            BACK,
            one,
            size_bytes,
            phase=phase,
            when=when,
            after=after,
            link_fraction=stack.offload.pinned_fraction,
        )
    return tuple(found)
