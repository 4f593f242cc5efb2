"""The handoff of all weights, or of adapters, after a step of reinforcement learning.

Answers: how many bytes and tensors does training send to generation, and how long does this take?
Elsewhere: the other phases of a step (step.py), rates of software that writes and loads states
(economics/checkpoints.py).

Over a link, the training broadcasts all weights, tensor by tensor, and each generating device keeps its
part: the handoff takes as long as all weights need over the link of one device to the network. Over files,
one process of the training writes a checkpoint in 16 bits, merged with the adapters if it holds all
weights; then each node reads the file, and each device loads its part. Software also needs time for each
tensor, which matters for the thousands of small adapters of experts.
"""

import math
from collections import Counter
from collections.abc import Mapping

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.tier_constants import HANDED_TENSORS, LOG_SIGMAS, SERIALISING, fitted_ratio
from flopcast.economics.checkpoints import SaveRates
from flopcast.errors import spec_error
from flopcast.fixes import set_to
from flopcast.layers.adapted_linears import FUSED, linears
from flopcast.layers.base import AbstractLayer
from flopcast.layers.block import Block
from flopcast.records import Record
from flopcast.serving.memory import serving_memory
from flopcast.serving.serving_report import Estimate
from flopcast.spec.described_tiers import FIELDS, storage_of
from flopcast.spec.model import WHOLE, Model
from flopcast.spec.rl_plan import RlPlan
from flopcast.spec.serving_job import ServingJob

LINK_LOG_SIGMA_FACTOR = 0.4  # of the time over a link, chosen after nine published handoffs were seen
SENT_BYTES = 2.0  # of an element in a file or of an adapter: 16 bits
# an estimate, made after the published ratios were seen: a tensor is named, written, read and placed in
# four steps of 0.1 ms
TENSOR_S = 4e-4
MATRICES = 2  # of an adapter


class Handoff(Record):
    """The memory of a handoff on each device that generates, and the time of the whole handoff.

    Attributes
    ----------
    received_bytes : float
        Bytes that each device keeps.
    tensors : int
        Number of tensors of the whole model, or of all adapters.
    taken : Estimate
        Seconds until all devices have the new weights.
    """

    received_bytes: float
    tensors: int
    taken: Estimate


def handoff_of(
    rollout: ServingJob, trained: Model, plan: RlPlan, levels: Mapping[str, FittedLevel]
) -> Handoff:
    """Return the handoff of new weights in a step of reinforcement learning.

    Parameters
    ----------
    rollout : ServingJob
        The job that generates, in whose format the devices keep the weights.
    trained : Model
        The model of the training job, with its adapters.
    plan : RlPlan
    levels : mapping
        Fitted constants of software that writes and loads, by name.

    Raises
    ------
    SpecError
        Adapters are to be handed over, but the training has none; or the cluster does not describe the
        storage.
    """
    if plan.handoff == "adapter" and trained.adapters is None:
        because, fix = "the training trains all weights", set_to({"handoff": "full"}, "train with lora")
        raise spec_error("handoff", "adapter", "full if all weights are trained", because, fix)
    all_bytes, tensors = _sent(trained, plan)
    devices = rollout.plan.devices
    received_bytes = (
        all_bytes / devices if plan.handoff == "adapter" else serving_memory(rollout).weight_bytes
    )
    if plan.handoff_over == "link":
        tier, stream_bytes = rollout.cluster.tiers[-1], received_bytes * devices
        taken_s = tier.latency_s + stream_bytes / tier.bytes_per_s
        taken = Estimate.log_normal(taken_s, LINK_LOG_SIGMA_FACTOR)
    else:
        taken_s = _over_files_s(rollout, plan, all_bytes, tensors, levels)
        taken = Estimate.log_normal(taken_s, LOG_SIGMAS[SERIALISING])
    return Handoff(received_bytes=received_bytes, tensors=tensors, taken=taken)


def _sent(trained: Model, plan: RlPlan) -> tuple[float, int]:
    """Return the bytes of all weights or all adapters in 16 bits, and the number of their tensors."""
    if plan.handoff == "adapter":
        return SENT_BYTES * trained.trained_parameters(), _adapter_tensors(trained, plan.packed_experts)
    plain = trained.model_copy(update={"adapters": None})
    return SENT_BYTES * plain.parameters(), _tensors(plain)


def _adapter_tensors(model: Model, packed: bool) -> int:
    """Return the tensors of all adapters: two matrices for each, and for each expert unless `packed`."""
    targets = model.adapters.targets if model.adapters else ()
    known = [(block.count, linears(block, model.hidden)) for block in model.blocks]
    return MATRICES * sum(
        count * (1 if packed else max(found[name].experts, 1))
        for count, found in known
        for name in targets
        if name in found
    )


def _tensors(model: Model) -> int:
    """Return the tensors of a published checkpoint, in which each matrix is one, also of each expert."""
    return sum(
        count * _matrices(layer, model.hidden).get(weight.name, 1)
        for layer, count in model.sequence()
        for weight in layer.weights(model.hidden, WHOLE)
        if not weight.tied
    )


def _matrices(layer: AbstractLayer, hidden: int) -> Counter[str]:
    """Return how many matrices a published checkpoint has for each weight of a block that joins some."""
    found: Counter[str] = Counter()
    for name, linear in (linears(layer, hidden) if isinstance(layer, Block) else {}).items():
        if name not in FUSED:
            found[linear.item] += max(linear.experts, 1)
    return found


def _over_files_s(
    rollout: ServingJob, plan: RlPlan, file_bytes: float, tensors: int, levels: Mapping[str, FittedLevel]
) -> float:
    """Return the seconds in which one process writes the files, and all devices load their part of them."""
    rates = SaveRates.of(levels)
    storage, instance = storage_of(rollout.cluster, plan.handoff_over), rollout.plan.devices
    if storage is None:
        field, because = (
            FIELDS[plan.handoff_over],
            (
                "the handoff takes the time to write and read files, so flopcast needs the rates of "
                "the storage"
            ),
        )
        fix = f"describe {field}, or set handoff_over to link"
        raise spec_error(field, None, "a storage with rates", because, fix, fault="is missing")
    node_bytes_per_s = storage.node_bytes_per_s or math.inf
    write_bytes_per_s = min(storage.write_bytes_per_s, node_bytes_per_s, rates.serialised_bytes_per_s)
    nodes = -(-rollout.devices // rollout.cluster.node.devices)
    sharing = 1 if plan.handoff_over == "nvme" else nodes  # nodes that share the rate of the storage
    read_s = file_bytes / min(storage.read_bytes_per_s / sharing, node_bytes_per_s)
    loaded_s = file_bytes / instance / rates.allocated_bytes_per_s
    tensor_s = plan.handoff_tensor_s
    if tensor_s is None:
        tensor_s = TENSOR_S * fitted_ratio(levels, HANDED_TENSORS)
    return (
        2 * storage.latency_s + file_bytes / write_bytes_per_s + max(read_s, loaded_s) + tensors * tensor_s
    )
