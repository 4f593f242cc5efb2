"""The copies of a job's passes: bytes outside the devices, divided by the rates of links, drives and hosts.

Answers: how long do the copies of a pass take, and how long does the host compute?
Elsewhere: how these add to the kernels of a pass (pass_copies.py), the bytes (memory.py).
"""

from flopcast.cost.collectives.collective_time import message_seconds
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.placement import Group
from flopcast.dtypes import ELEMENT_BYTES, constant
from flopcast.serving.memory import block_bytes, fetched_bytes, token_bytes
from flopcast.serving.pass_copies import PassCopies
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import Streaming, fractions_of


def copies_of(job: ServingJob, book: CurveBook) -> PassCopies | None:
    """Return the copies of the passes of a job; None if it copies nothing and unpacks no weights."""
    if job.plan.peer_weight_fraction:
        return PassCopies(weights_s=_peer_s(job, book))
    streaming = job.engine.streaming
    if streaming is None or not (job.plan.streams or _unpack_s(job, streaming)):
        return None
    return _streamed(job, streaming)


def _peer_s(job: ServingJob, book: CurveBook) -> float:
    """Return the seconds in which a pass fetches weights from the memory of a peer."""
    beside = Group(inside=constant(2.0), nodes=constant(1.0))
    moved = constant(fetched_bytes(job))
    cost = message_seconds("send_receive", moved, beside, job.cluster, book)
    return float(cost.alone_s.item())


def _streamed(job: ServingJob, streaming: Streaming) -> PassCopies:
    """Return the copies between a device, its host and its drives, and the work of the host."""
    plan = job.plan
    weights, caches = fractions_of(plan.weights_on), fractions_of(plan.kv_on)
    moved, cached = sum(weights.values()), sum(caches.values())
    link, host = _link_bytes_per_s(job), _host_bytes_per_s(job, streaming)
    reads, writes = _drive_rates(job, streaming)
    weight_bytes, each_bytes = block_bytes(job), token_bytes(job)
    hidden = job.model.hidden * ELEMENT_BYTES["bf16"] * job.model.num_blocks / plan.tensor_parallel
    layers = moved if job.host_computes == "layers" else 0.0
    attention = cached if job.host_computes == "attention" else 0.0
    caches_link = link * streaming.cache_fraction
    copied = max(cached, layers) - attention  # the cache of a layer is where the layer is computed
    return PassCopies(
        weights_s=moved * weight_bytes / (link * streaming.weight_fraction),
        stored_weights_s=weights.get("nvme", 0.0) * weight_bytes / reads,
        read_s=copied * each_bytes / caches_link,
        stored_read_s=caches.get("nvme", 0.0) * each_bytes / reads,
        stored_write_s=caches.get("nvme", 0.0) * each_bytes / writes,
        write_s=max(cached, layers) * each_bytes / caches_link,
        hidden_s=sum(fractions_of(plan.activations_on).values()) * hidden / caches_link,
        unpack_s=_unpack_s(job, streaming),
        attention_s=attention * each_bytes / host,
        device_attention_share=1.0 - attention,
        host_layer_share=layers,
        host_tokens=streaming.host_tokens,
        host_layers_s=layers * weight_bytes / host,
        host_token_s=layers * each_bytes / host,
        beside_share=moved if streaming.whole_layers and moved else 1.0,
        overlapped=streaming.overlapped,
    )


def _unpack_s(job: ServingJob, streaming: Streaming) -> float:
    """Return the seconds in which a device unpacks all of its weights of blocks to 16 bits."""
    if streaming.unpack_fraction is None or job.plan.weights != "int4":
        return 0.0
    wide = job.model_copy(update={"plan": job.plan.model_copy(update={"weights": "bf16"})})
    return block_bytes(wide) / (job.cluster.node.device.memory_bytes_per_s * streaming.unpack_fraction)


def _link_bytes_per_s(job: ServingJob) -> float:
    """Return the rate of one device's link to its host, in one direction, while all devices copy."""
    memory = job.cluster.node.memory
    sharers = 1 if memory is None else min(memory.devices_per_link, job.node_devices)
    return job.cluster.node.device.host_bytes_per_s / sharers


def _host_bytes_per_s(job: ServingJob, streaming: Streaming) -> float:
    """Return the rate at which the host computes for one device; infinity if it computes nothing."""
    memory = job.cluster.node.memory
    if memory is None or job.host_computes == "nothing":
        return float("inf")
    return memory.bytes_per_s * streaming.host_fraction / job.node_devices


def _drive_rates(job: ServingJob, streaming: Streaming) -> tuple[float, float]:
    """Return the rates at which one device reads from and writes to drives; infinity without drives."""
    drives = job.cluster.node.nvme
    if drives is None:
        return float("inf"), float("inf")
    share = streaming.storage_fraction / job.node_devices
    return drives.read_bytes_per_s * share, drives.write_bytes_per_s * share
