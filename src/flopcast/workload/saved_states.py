"""The state that a job saves: bytes that each rank writes to a checkpoint, and reads from it.

Answers: how large is a checkpoint, which rank and which node write the most, and in how many files?
Elsewhere: the time of a checkpoint (economics/checkpoints.py), the parts that a rank of another plan reads
(resharding.py).

A checkpoint holds the optimizer's states (main weights and moments), and trained weights in 16 bits unless
these exist only while they are gathered. Frozen weights are not saved. If several ranks hold the same
state, only one of them writes it. Every peer saves its own checkpoint, with its outer parameters and
buffers.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from flopcast.dtypes import ELEMENT_BYTES, Counts, Floats
from flopcast.layers.tables import STORED
from flopcast.operators.dequantise import STORED_BYTES
from flopcast.records import Record
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.offload import OUTER, fraction_in
from flopcast.spec.plan import Plan, Plans
from flopcast.units import Number
from flopcast.workload.gradient_reduction import updated_parameters
from flopcast.workload.optimizer import optimizer_state_bytes
from flopcast.workload.program import Programs


class SavedStates(Record, eq=False):
    """A checkpoint by rank; arrays have shape (ranks,), in the numbering of the plan.

    `copied_bytes` are the part of `written_bytes` that a rank first copies from its device to the host.
    """

    written_bytes: Floats
    copied_bytes: Floats
    read_bytes: Floats
    node_ranks: int  # of one node
    num_files: int

    @property
    def total_bytes(self) -> float:
        """Return the size of the whole checkpoint."""
        return float(self.written_bytes.sum())

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return -(-self.written_bytes.size // self.node_ranks)

    def of_nodes(self, rank_bytes: Floats) -> Floats:
        """Return the sums over the ranks of each node, (nodes,)."""
        padded = np.zeros(self.num_nodes * self.node_ranks)
        padded[: rank_bytes.size] = rank_bytes
        return np.asarray(padded.reshape(self.num_nodes, self.node_ranks).sum(axis=1))


class _Held(Record, eq=False):
    """Parameters of one kind on each rank, and the place of the rank among those that hold them, too.

    `replica` counts ranks with the same weights, `group` the groups that share the optimizer's states.
    """

    elements: Counts
    replica: Counts
    group: Counts
    num_replicas: int
    num_shards: int

    def written(self, weight_bytes: float, state_bytes: float, checkpoint: Checkpoint, zero: int) -> Floats:
        """Return the bytes that each rank writes; the arguments are bytes of one parameter."""
        if checkpoint.writers == "all_ranks":
            return self.elements * (weight_bytes + state_bytes) / self.num_replicas
        shard = self.elements / self.num_shards * (self.group == 0)
        weights = shard if zero == 3 else self.elements * (self.replica == 0)
        written_bytes: Floats = shard * state_bytes + weights * weight_bytes
        return written_bytes

    def read(self, weight_bytes: float, state_bytes: float, zero: int) -> Floats:
        """Return the bytes that each rank reads: its weights, or its shard of them, and its states."""
        shards = self.num_shards if zero == 3 else 1
        read_bytes: Floats = self.elements * (weight_bytes / shards + state_bytes / self.num_shards)
        return read_bytes


def saved_states(programs: Programs, checkpoint: Checkpoint, node_ranks: int) -> SavedStates:
    """Return the bytes that each rank of a job saves in a checkpoint.

    Parameters
    ----------
    programs : of one plan, the first of its batch
    node_ranks : ranks of one node
    """
    plan = programs.plans.structure
    weight_bytes = saved_weight_bytes(programs)
    updated = updated_parameters(programs.plans, programs.trained_parameters, programs.trained_experts)
    inner_bytes = float(optimizer_state_bytes(programs)[0].max() / max(updated[0].max(), 1.0))
    outer_bytes = saved_outer_bytes(plan)
    inner_on_device, outer_on_device = (
        1 - fraction_in(plan.offload, kind) for kind in ("optimizer", OUTER)
    )
    state_bytes = inner_bytes + outer_bytes
    copied_bytes = inner_bytes * inner_on_device + outer_bytes * outer_on_device
    held, tables = _held(programs), _tables(programs)

    def of_all_peers(parts: Iterable[Floats]) -> Floats:
        return np.tile(sum(parts, tables), plan.peers)

    written = of_all_peers(each.written(weight_bytes, state_bytes, checkpoint, plan.zero) for each in held)
    copied = (each.written(weight_bytes, copied_bytes, checkpoint, plan.zero) for each in held)
    return SavedStates(
        written_bytes=written,
        copied_bytes=of_all_peers(copied),
        read_bytes=of_all_peers(each.read(weight_bytes, state_bytes, plan.zero) for each in held),
        node_ranks=min(node_ranks, written.size),
        num_files=_files(programs, checkpoint, int((written > 0).sum())),
    )


def saved_outer_bytes(plan: Plan) -> float:
    """Return the bytes of outer parameters and buffers for each trained parameter; 0 for a single peer."""
    return plan.outer.state_bytes if plan.peers > 1 else 0.0


def saved_weight_bytes(programs: Programs) -> Number:
    """Return the bytes of a weight that are saved in addition to the main weight.

    They are 0 if the weight exists only while it is gathered.

    FSDP shards and saves fp32 parameters, and casts them to 16 bits for each gather.
    """
    plan = programs.plans.structure
    is_cast = plan.zero == 3 and not programs.stack.sharding.keeps_low_precision
    return 0 if is_cast else ELEMENT_BYTES[plan.activations]


def _tables(programs: Programs) -> Floats:
    """Return the bytes of sharded embedding tables that every rank writes and reads: those it holds."""
    places = rank_places(programs.plans)["pp"].astype(int)
    held = programs.narrow_parameters.get(STORED)
    classes = programs.stages.of(0).stage_class[places]
    return np.zeros(places.shape) if held is None else held[0, classes] * STORED_BYTES[STORED]


def _files(programs: Programs, checkpoint: Checkpoint, writers: int) -> int:
    """Return the files of a checkpoint: one of each writing rank, and one of each layer and its slices."""
    if checkpoint.files == "rank":
        return writers
    division = programs.stages.of(0)
    layers = float(division.stage_counts[division.stage_class].sum())
    slices = layers * programs.plans.tensor_parallel.flat[0]
    return writers + int(slices * programs.plans.structure.peers)


def _held(programs: Programs) -> list[_Held]:
    """Return the trained parameters of every rank, experts apart from the others."""
    plans, place = programs.plans, rank_places(programs.plans)
    classes = programs.stages.of(0).stage_class[place["pp"].astype(int)]
    zero = plans.structure.zero
    contexts = _degree(plans.context_parallel)
    shard = (_degree(plans.data_shard) or _degree(plans.data_parallel)) if zero else 1
    replica = place["dp"] * contexts + place["cp"]
    experts = programs.trained_experts
    own = np.zeros_like(programs.trained_parameters) if experts is None else experts
    dense = _Held(
        elements=(programs.trained_parameters - own)[0, classes],
        replica=replica,
        group=place["dp"] // shard if zero else replica,
        num_replicas=_degree(plans.replicas),
        num_shards=_degree(plans.state_shards),
    )
    if experts is None:
        return [dense]
    folded = _degree(plans.expert_parallel) * _degree(plans.expert_tensor_parallel)
    expert_replica = place["in_stage"] // folded
    expert_shards = _degree(plans.expert_state_shards)
    of_experts = _Held(
        elements=experts[0, classes],
        replica=expert_replica,
        group=expert_replica // expert_shards,
        num_replicas=_degree(plans.expert_replicas),
        num_shards=expert_shards,
    )
    return [dense, of_experts]


def rank_places(plans: Plans) -> dict[str, Counts]:
    """Return the position of every rank on each axis, and its number among the ranks of its stage.

    Returns
    -------
    dict from axis to array of shape (ranks,)
        Axes "tp", "cp", "dp" and "pp", numbered in the plan's rank order, in which the first axis varies
        fastest; and "in_stage".

    Examples
    --------
    >>> from flopcast.spec.plan import Plan, one_plan
    >>> places = rank_places(one_plan(Plan(tp=2, dp=2, pp=2, gbs=2)))
    >>> places["dp"].tolist(), places["in_stage"].tolist()
    ([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0, 3.0])
    """
    degrees = {
        "tp": _degree(plans.tensor_parallel),
        "cp": _degree(plans.context_parallel),
        "dp": _degree(plans.data_parallel),
        "pp": _degree(plans.pipeline_parallel),
    }
    rest = np.arange(prod(degrees.values()), dtype=np.float64)
    inside, stride = np.zeros_like(rest), 1
    places: dict[str, Counts] = {}
    for axis in plans.structure.rank_order.split("-"):
        rest, places[axis] = np.divmod(rest, degrees[axis])
        if axis != "pp":
            inside = inside + places[axis] * stride
            stride *= degrees[axis]
    return {**places, "in_stage": inside}


def _degree(degrees: Counts) -> int:
    """Return the degree of the first plan."""
    return int(degrees.flat[0])
