"""Which bytes each rank reads when a checkpoint of one plan is loaded by another.

Answers: how many bytes of each file of the old plan does each rank of the new plan read?
Elsewhere: the size of a checkpoint (saved_states.py), the seconds of reading it (economics/checkpoints.py).

The elements of all tensors form a line, layer after layer. The first dimension of each tensor is the one
that tensor-parallel ranks divide, so that the part of a rank is an interval of this line. The optimizer
states of a data-parallel rank are an interval, too, because shards divide the concatenated tensors of a
rank into equal parts (ZeRO, the distributed optimizer of Megatron-LM). A rank reads those elements of a
file whose intervals overlap with its own. Experts have a separate line, because other ranks hold them.

References
----------
Universal Checkpointing, arXiv:2406.18820, section 3: a tensor of a checkpoint is the union of its parts,
and a rank of another plan loads the part that it holds.
"""

import numpy as np

from flopcast.dtypes import Counts, Floats, Integers
from flopcast.records import Record
from flopcast.spec.optimizers import state_bytes
from flopcast.workload.program import Programs
from flopcast.workload.saved_states import rank_places, saved_outer_bytes, saved_weight_bytes


class Intervals(Record, eq=False):
    """Intervals of the line of all elements, sorted by their starts, and the owner of each.

    The number of an owner combines pipeline stage, tensor-parallel rank and shard.
    """

    start: Counts
    end: Counts
    owner: Integers
    num_owners: int


class Reads(Record, eq=False):
    """The bytes that every rank of a new plan reads from a checkpoint, (ranks,), and their number of parts.

    A part contains the weights, or the states, that one rank of the old plan wrote.
    """

    rank_bytes: Floats
    rank_parts: Counts


def overlaps(new: Intervals, old: Intervals) -> tuple[Integers, Integers, Counts]:
    """Return the pairs of a new and an old owner with common elements, and the numbers of these elements.

    Intervals of `old` do not overlap each other; those of `new` may. Numbers below 2^53 are exact.

    Returns
    -------
    three arrays of shape (pairs,)
        New owner, old owner, and elements; each pair once, sorted.

    Examples
    --------
    Six elements in two halves, read by three owners of two elements each:

    >>> halves = Intervals(
    ...     start=np.array([0., 3.]), end=np.array([3., 6.]), owner=np.array([0, 1]), num_owners=2
    ... )
    >>> thirds = Intervals(
    ...     start=np.array([0., 2., 4.]), end=np.array([2., 4., 6.]), owner=np.arange(3), num_owners=3
    ... )
    >>> [each.tolist() for each in overlaps(thirds, halves)]
    [[0, 1, 1, 2], [0, 0, 1, 1], [2.0, 1.0, 1.0, 2.0]]
    """
    first = np.searchsorted(old.end, new.start, side="right")
    counts = np.maximum(np.searchsorted(old.start, new.end, side="left") - first, 0)
    mine = np.repeat(np.arange(new.start.size), counts)
    theirs = np.arange(mine.size) - np.repeat(np.cumsum(counts) - counts, counts) + first[mine]
    length = np.minimum(new.end[mine], old.end[theirs]) - np.maximum(new.start[mine], old.start[theirs])
    pairs, place = np.unique(new.owner[mine] * old.num_owners + old.owner[theirs], return_inverse=True)
    shared: Counts = np.bincount(place, weights=length, minlength=pairs.size).astype(np.float64)
    return pairs // old.num_owners, pairs % old.num_owners, shared


def held_intervals(
    programs: Programs, shards: int, *, expert: bool = False, once: bool = False
) -> Intervals:
    """Return the owner of each element of the trained tensors.

    Parameters
    ----------
    programs : of one plan, the first of its batch
    shards : replicas that divide what a pipeline stage and tensor-parallel rank holds
    expert : whether the line is that of the experts, which expert-parallel ranks share
    once : whether a tensor that several tensor-parallel ranks hold in full belongs to the first alone

    Returns
    -------
    Intervals
        Intervals of owners, which are numbered (stage · ranks + rank) · shards + shard. Padding has none.
    """
    ranks, stages = _ranks(programs, expert), int(programs.plans.pipeline_parallel.flat[0])
    offsets, totals, elements, stage = _tensors(programs, expert)
    _, is_owner = np.unique(offsets, return_index=True)
    owned = np.isin(np.arange(offsets.size), is_owner)
    found: list[tuple[Counts, Counts, Counts]] = []
    for each in range(stages):
        here = stage == each
        for rank in range(ranks):
            low, high, is_first = _slices(totals[here], elements[here], rank, ranks)
            start, end, tensor, shard = _in_shards(low + offsets[here], high - low, shards)
            kept = (is_first & owned[here])[tensor] if once else np.ones(tensor.size, dtype=bool)
            found.append((start[kept], end[kept], (each * ranks + rank) * shards + shard[kept]))
    start, end, owner = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(start, kind="stable")
    count = stages * ranks * shards
    return Intervals(start=start[order], end=end[order], owner=owner[order].astype(int), num_owners=count)


def _slices(totals: Counts, elements: Counts, rank: int, ranks: int) -> tuple[Counts, Counts, Counts]:
    """Return where a rank's part of each tensor begins and ends, and whether no lower rank holds it.

    Heads of keys and values may be fewer than ranks: then neighbours hold the same ones.
    """
    copies = np.where(elements * ranks >= 2 * totals, np.round(elements * ranks / totals), 1.0)
    low = np.minimum(np.floor(rank / copies) * elements, totals)
    return low, np.minimum(low + elements, totals), rank % copies == 0


def _in_shards(start: Counts, length: Counts, shards: int) -> tuple[Counts, Counts, Integers, Counts]:
    """Return tensors cut where shards of their sum meet: start, end, tensor and shard of each piece."""
    held = np.flatnonzero(length > 0)
    inside = np.concatenate([[0.0], np.cumsum(length[held])])
    size = max(np.ceil(inside[-1] / shards), 1.0)
    cuts = np.unique(np.concatenate([inside, np.minimum(np.arange(1, shards) * size, inside[-1])]))
    begin, stop = cuts[:-1], cuts[1:]
    tensor = np.searchsorted(inside, begin, side="right") - 1
    shift = start[held[tensor]] - inside[tensor]
    return begin + shift, stop + shift, held[tensor], np.floor(begin / size)


def _stages_of_layers(programs: Programs) -> list[Counts]:
    """Return, for each part of the model, the pipeline stage of each of its layers in order."""
    division = programs.stages.of(0)
    counts = division.chunk_counts[division.chunk_class]  # (stages, virtual stages, parts)
    stages, chunks, parts = counts.shape
    in_order = (
        counts.transpose(2, 1, 0).reshape(parts, -1).astype(int)
    )  # chunk c of stage s: c · stages + s
    return [np.repeat(np.tile(np.arange(stages), chunks), of_part) for of_part in in_order]


def _tensors(programs: Programs, expert: bool) -> tuple[Counts, Counts, Counts, Counts]:
    """Return offset on the line, elements in all, elements of a rank, and stage of every trained tensor.

    A tied tensor is that of its owner, the first layer; the stage that uses it again holds it, too.
    """
    found: list[tuple[float, float, float, float]] = []
    end = 0.0
    for layer, stages in zip(programs.layers, _stages_of_layers(programs), strict=True):
        weights = [weight for weight in layer.weights if weight.trained and weight.expert == expert]
        for stage, weight in ((stage, weight) for stage in stages for weight in weights):
            elements = float(weight.elements.flat[0])
            if not weight.tied:
                found.append((end, float(weight.total), elements, float(stage)))
                end += weight.total
                continue
            offset, total, _, own_stage = next(row for row in found if row[2] == elements)
            if own_stage != stage:
                found.append((offset, total, elements, float(stage)))
    offsets, totals, of_rank, stage_of = np.array(found, dtype=np.float64).reshape(-1, 4).T
    return offsets, totals, of_rank, stage_of


def _ranks(programs: Programs, expert: bool) -> int:
    """Return the ranks of a stage that share the tensors of one replica."""
    plans = programs.plans
    if not expert:
        return int(plans.tensor_parallel.flat[0])
    return int(plans.expert_parallel.flat[0] * plans.expert_tensor_parallel.flat[0])


def _shards(programs: Programs, expert: bool) -> int:
    """Return the shards of the optimizer's states."""
    plans = programs.plans
    return int((plans.expert_state_shards if expert else plans.state_shards).flat[0])


def _rank_owners(programs: Programs, shards: int, expert: bool) -> Integers:
    """Return the owner whose elements each rank needs, (ranks,)."""
    places, ranks = rank_places(programs.plans), _ranks(programs, expert)
    rank = places["in_stage"] % ranks if expert else places["tp"]
    contexts = programs.plans.context_parallel.flat[0]
    replica = places["in_stage"] // ranks if expert else places["dp"] * contexts + places["cp"]
    return np.asarray((places["pp"] * ranks + rank) * shards + replica % shards, dtype=int)


def reads(new: Programs, old: Programs) -> Reads:
    """Return the bytes that every rank of a new plan reads from the checkpoint of an old plan.

    Parameters
    ----------
    new, old : programs of the same model and optimizer, one plan each; a rank holds whole experts

    Returns
    -------
    Reads
        Weights are read in the parts of stages and tensor-parallel ranks, or of shards with ZeRO-3. States
        are read in the parts of shards. Every replica reads separately. Weights that the old plan does not
        save in 16 bits are cast from the main weights. Every new peer reads the checkpoint of one old peer.
        A plan without peers reads no outer states. New outer states are initialised from the parameters.
    """
    structure = new.plans.structure
    of_outer = min(saved_outer_bytes(each.plans.structure) for each in (new, old))
    of_states = state_bytes(structure.optimizer, new.stack.optimizer) + of_outer
    of_weights = min(saved_weight_bytes(new), saved_weight_bytes(old))
    kinds = ((of_weights, 3), (of_states, 0))  # with the ZeRO stage that shards them
    total = int(rank_places(new.plans)["pp"].size)
    rank_bytes, rank_parts = np.zeros(total), np.zeros(total)
    for expert in (False, True) if new.trained_experts is not None else (False,):
        for each_bytes, least_stage in (kind for kind in kinds if kind[0]):
            shards, old_shards = (
                _shards(each, expert) if each.plans.structure.zero >= least_stage else 1
                for each in (new, old)
            )
            needed = held_intervals(new, shards, expert=expert)
            there = held_intervals(old, old_shards, expert=expert, once=True)
            reader, _, shared = overlaps(needed, there)
            owner = _rank_owners(new, shards, expert)
            rank_bytes += np.bincount(reader, shared * each_bytes, needed.num_owners)[owner]
            rank_parts += np.bincount(reader, minlength=needed.num_owners)[owner]
    peers = structure.peers
    return Reads(rank_bytes=np.tile(rank_bytes, peers), rank_parts=np.tile(rank_parts, peers))
