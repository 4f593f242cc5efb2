"""Rules about weights and caches outside the devices of a serving job.

Answers: can this engine keep these bytes in the memory of peers, of the host or on drives, and do they fit?
Elsewhere: other rules of serving jobs (checks.py), the bytes (memory.py, tier_memory.py).
"""

from collections.abc import Iterator

from flopcast.errors import Problem
from flopcast.fixes import set_to
from flopcast.serving.memory import fetched_bytes, serving_memory
from flopcast.serving.tier_memory import NAMES, TierMemory
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import DEVICE, Streaming, fractions_of, placement_text
from flopcast.units import show_memory

PLACED = ("weights_on", "kv_on", "activations_on")  # fields of a deployment
FIELDS = {"host": "memory", "nvme": "nvme"}  # of a node, which describe a memory


def of_peers(job: ServingJob) -> Iterator[Problem]:
    """Yield the reason why weights cannot be in the memory of spare devices, if there is one.

    Spare devices are those of the cluster that no instance uses. They must exist, be connected to the
    serving devices by the fastest links, and hold `peer_weight_fraction` of the weights of all replicas in
    the part of their memory that the engine may use. Pools, pipeline stages and offload to the host are not
    supported together with weights of peers.
    """
    plan, spare, because = job.plan, job.cluster.num_devices - job.devices, ""
    if not plan.peer_weight_fraction:
        return
    room_bytes = spare * job.cluster.node.device.memory_bytes * job.engine.memory_fraction
    needed_bytes = job.replicas * plan.devices * fetched_bytes(job)
    if plan.pools or plan.pipeline_parallel > 1:
        because = (
            "pipeline stages or pools together with weights in the memory of peers are not supported yet"
        )
    elif plan.streams:
        because = "weights can be either in the memory of peers, or in host memory and on drives"
    elif spare < 1 or job.devices >= job.cluster.scale_up_devices:
        because = "no spare device is left in the scale-up domain of the serving devices"
    elif needed_bytes > room_bytes:
        because = f"{show_memory(needed_bytes)} of weights do not fit on the spare devices ({spare})"
    if because:
        fix = set_to({"plan.peer_weight_fraction": 0})
        yield Problem("plan.peer_weight_fraction", plan.peer_weight_fraction, "0", because, fix)


def of_streaming(job: ServingJob) -> Iterator[Problem]:
    """Yield an error for everything that the engine or the cluster cannot keep outside the devices.

    The rules concern attention on the host (`host_computes`), the support of the engine for each placement
    of the plan, and the memories that the cluster describes. Pools and pipeline stages are not supported
    together with bytes outside the devices.
    """
    plan, streaming = job.plan, job.engine.streaming
    if plan.host_computes is not None:
        yield from _of_host(job, streaming)
    if not plan.streams:
        return
    first = next(name for name in PLACED if getattr(plan, name) != DEVICE)
    if plan.pools or plan.pipeline_parallel > 1:
        because = (
            "pipeline stages and pools are not supported yet together with weights or caches outside the"
            " devices"
        )
        fix = set_to({f"plan.{first}": DEVICE}, "use neither stages nor pools")
        yield Problem(f"plan.{first}", getattr(plan, first), DEVICE, because, fix)
    for name in PLACED:
        yield from _of_placement(job, streaming, name)


def _of_placement(job: ServingJob, streaming: Streaming | None, name: str) -> Iterator[Problem]:
    """Yield errors in the memory tiers that one field names."""
    value = getattr(job.plan, name)
    kinds = {"weights_on": "weights", "kv_on": "caches", "activations_on": "activations"}
    known: tuple[str, ...] = () if streaming is None else getattr(streaming, kinds[name])
    for memory in fractions_of(value):
        if memory not in known:
            because = f"{job.engine.name} keeps this data on the device" + (
                f" or in {' or '.join(known)} alone" if known else ""
            )
            other = known[0] if known else DEVICE
            fix = set_to({f"plan.{name}": other}, "choose another engine (flopcast catalog engines)")
            yield Problem(f"plan.{name}", value, " or ".join((DEVICE, *known)), because, fix)
        elif getattr(job.cluster.node, FIELDS[memory]) is None:
            field = f"cluster.groups[0].node.{FIELDS[memory]}"
            because = f"{job.cluster.name} does not state the capacity of its {NAMES[memory]}"
            because = because.replace("memory hold", "memory holds")
            rates = "bytes_per_s" if memory == "host" else "read_bytes_per_s and write_bytes_per_s"
            allowed = f"a capacity and rates if plan.{name} is set"
            yield Problem(field, None, allowed, because, f"state {field} with capacity_bytes, {rates}")


def _of_host(job: ServingJob, streaming: Streaming | None) -> Iterator[Problem]:
    """Yield what keeps the host's processor from computing what the deployment says."""
    plan, stated = job.plan, job.plan.host_computes
    known = ("nothing",) if streaming is None else streaming.host_computes
    needed = {"attention": "kv_on", "layers": "weights_on"}.get(str(stated), "")
    if stated not in known:
        because = f"{job.engine.name} supports no other computation on the host"
        fix = set_to({"plan.host_computes": known[0]})
        yield Problem("plan.host_computes", stated, f"one of {', '.join(known)}", because, fix)
    elif needed and "host" not in fractions_of(getattr(plan, needed)):
        because = "the CPUs compute only with data that is in host memory"
        fix = set_to({f"plan.{needed}": "host"}, {"plan.host_computes": "nothing"})
        yield Problem("plan.host_computes", stated, f"{stated} with plan.{needed}=host", because, fix)


def of_overfilled(job: ServingJob) -> Iterator[Problem]:
    """Yield an error for each memory outside the devices that is too small for the bytes placed there.

    The memory of a node is shared by its devices and holds weights and hidden states. The fix names the
    largest fraction that fits.
    """
    tier = serving_memory(job).overfilled
    if tier is None:
        return
    name = next(name for name in PLACED if tier.name in fractions_of(getattr(job.plan, name)))
    because = (
        f"weights and hidden states need {show_memory(tier.weight_bytes + tier.activation_bytes)} of the"
        f" {show_memory(tier.capacity_bytes)} that the {NAMES[tier.name]} of a node"
        f" {'holds' if tier.name == 'host' else 'hold'}"
    )
    yield Problem(
        f"plan.{name}",
        getattr(job.plan, name),
        "a smaller fraction in this memory",
        because,
        _fix_of_tier(job, tier, name),
    )


def _fix_of_tier(job: ServingJob, tier: TierMemory, name: str) -> str:
    """Return an edit with which a memory is not overfilled; drives take the rest of weights if they can."""
    placed = fractions_of(getattr(job.plan, name))
    room = tier.capacity_bytes - tier.activation_bytes
    fraction = placed[tier.name] * max(room, 0.0) / max(tier.weight_bytes, 1.0)
    fraction = int(100 * fraction) / 100
    others = {memory: part for memory, part in placed.items() if memory != tier.name}
    streaming, drives = job.engine.streaming, job.cluster.node.nvme
    if name == PLACED[0] and not others and streaming is not None and drives is not None:
        rest = round(placed[tier.name] - fraction, 2)
        others = {memory: rest for memory in streaming.weights if memory != tier.name}
    smaller = ({tier.name: fraction} if fraction > 0 else {}) | others
    return set_to({f"plan.{name}": placement_text(smaller)}, "use a node with more memory")
