"""The time of checkpoints: how long training waits, what runs in the background, and what a restore reads.

Answers: how long does training wait for a checkpoint, how short can the interval be, and how long does
loading take?
Elsewhere: methods (spec/checkpoints.py), bytes of each rank (workload/saved_states.py), the interval that
loses the least time (failures.py).

A checkpoint is copied from the devices to the host, serialised, and written to storage. Methods differ in
the parts of this work for which training waits. Most also wait until the ranks have agreed on the files of
a checkpoint.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist

from flopcast.cost.constant_transfer import FittedLevel
from flopcast.cost.tier_constants import (
    ALLOCATED_COPIES,
    CHUNKED_COPIES,
    HANDOVER,
    INTERFERENCE,
    LOG_SIGMAS,
    OPENED_FILES,
    SERIALISING,
    STATE_COPIES,
    fitted_ratio,
)
from flopcast.cost.tier_copies import device_rate
from flopcast.dtypes import Floats
from flopcast.records import Record
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import storage_of
from flopcast.spec.memory_tiers import Storage
from flopcast.workload.saved_states import SavedStates

UNPINNED_BYTES_PER_S = 4e9  # an estimate: one processor clears the pages that it writes to
FILE_S = 2e-3  # an estimate: one file that a parallel file system creates
HANDOVER_S = 0.02  # an estimate: some thousand objects that each rank pickles, and a barrier
INTERFERENCE_FRACTION = 0.2  # an estimate: of the training speed, to a writer in Python


class SaveRates(Record):
    """Speeds of the software that saves checkpoints.

    Attributes
    ----------
    serialised_bytes_per_s : rate of one rank that pickles its state (torch.save)
    allocated_bytes_per_s : rate of one rank that copies to newly allocated memory
    chunked_bytes_per_s : rate of such copies if chunks are written and freed while others are copied
    file_s : seconds for each file until all ranks have agreed on it and opened it, on a typical node
    handover_s : seconds until the ranks of a typical node have listed their tensors, pickled all other
        objects and synchronised
    most_files : number of files of the largest measured run; more files are assumed to take no longer
    node_log_sigma_factor : spread of the times of copies and of the handover between nodes; a checkpoint
        waits for the slowest node
    pinned_fraction : fraction of the link to the host that copies of many tensors from all devices of a
        node reach
    background_fraction : training speed that is lost to an asynchronous write in Python
    log_sigma_factor : uncertainty of these numbers, in addition to that of the method

    References
    ----------
    The spread between nodes: five models on Polaris (arXiv:2406.10707, Figures 7 and 8), which are
    compatible with every value from 0.2 to 0.4. The constant of the handover: logs of DataStates-LLM with
    State Providers, which opens files in the background (github.com/mauryaavinash95/llm-restart-perf,
    models of 3B and 7B on Polaris, October 2025): 34 and 65 ms on one node, 36 and 84 ms on two.
    """

    serialised_bytes_per_s: float = UNPINNED_BYTES_PER_S
    allocated_bytes_per_s: float = UNPINNED_BYTES_PER_S
    chunked_bytes_per_s: float = UNPINNED_BYTES_PER_S
    file_s: float = FILE_S
    handover_s: float = HANDOVER_S
    most_files: int = 412
    node_log_sigma_factor: float = 0.3
    pinned_fraction: float = 1.0
    background_fraction: float = INTERFERENCE_FRACTION
    log_sigma_factor: float = LOG_SIGMAS[SERIALISING]

    @classmethod
    def of(cls, levels: Mapping[str, FittedLevel]) -> "SaveRates":
        """Return the speeds with fitted constants, or uncertain estimates for constants that were not
        fitted.

        >>> SaveRates.of({}) == SaveRates()
        True
        """
        known = SERIALISING in levels
        return cls(
            serialised_bytes_per_s=UNPINNED_BYTES_PER_S / fitted_ratio(levels, SERIALISING),
            allocated_bytes_per_s=UNPINNED_BYTES_PER_S / fitted_ratio(levels, ALLOCATED_COPIES),
            chunked_bytes_per_s=UNPINNED_BYTES_PER_S / fitted_ratio(levels, CHUNKED_COPIES),
            file_s=FILE_S * fitted_ratio(levels, OPENED_FILES),
            handover_s=HANDOVER_S * fitted_ratio(levels, HANDOVER),
            pinned_fraction=1.0 / fitted_ratio(levels, STATE_COPIES),
            background_fraction=INTERFERENCE_FRACTION * fitted_ratio(levels, INTERFERENCE),
            log_sigma_factor=0.0 if known else LOG_SIGMAS[SERIALISING],
        )


class SaveTimes(Record):
    """The seconds of one checkpoint.

    Attributes
    ----------
    copy_s : copy of the slowest rank from its device to the host
    serialise_s : serialisation of the rank with the most bytes, if training waits for it; 0 if the
        checkpoint stays in host memory
    files_s : seconds until the ranks have agreed on the files, if training waits for this
    handover_s : seconds until the ranks have handed over their states
    write_s : write of the slowest node to storage
    blocked_s : seconds in which training waits
    background_s : seconds of the write in the background
    background_fraction : share of the training speed that is lost during the background write
    restore_s : seconds in which all ranks read the checkpoint
    """

    copy_s: float
    serialise_s: float
    files_s: float
    handover_s: float
    write_s: float
    blocked_s: float
    background_s: float
    background_fraction: float
    restore_s: float

    @property
    def lost_s(self) -> float:
        """Return the training time that a checkpoint costs: waiting, and slower steps during its write."""
        return self.blocked_s + self.background_fraction * self.background_s

    @property
    def least_work_s(self) -> float:
        """Return the least time of steps between two checkpoints, in which a write can end before the
        next one begins.
        """
        return (1.0 - self.background_fraction) * self.background_s

    def cycle_s(self, work_s: float) -> float:
        """Return the time from one checkpoint to the next, given the seconds of steps between them.

        Training waits for a write that takes longer than these steps.
        """
        slowed_s = work_s + self.background_fraction * self.background_s
        return self.blocked_s + max(slowed_s, self.background_s)


def save_times(
    saved: SavedStates, checkpoint: Checkpoint, cluster: Cluster, window_s: float, rates: SaveRates
) -> SaveTimes:
    """Return the seconds of a checkpoint.

    Parameters
    ----------
    saved : bytes that each rank writes
    cluster : cluster with the storage that the checkpoint names
    window_s : seconds of the forward and backward passes of a step, with which a lazy copy overlaps,
        because the state changes only in the update
    """
    method, storage = checkpoint.how, storage_of(cluster, checkpoint.to)
    write_s = 0.0 if storage is None else transfer_s(saved, saved.written_bytes, storage, cluster, "write")
    copy_s = _copy_s(saved, checkpoint, cluster, write_s, rates)
    waits_for_files = storage is not None and not method.opens_files_later
    files_s = files_time_s(saved.num_files, saved.num_nodes, rates) if waits_for_files else 0.0
    fraction = rates.background_fraction if method.writes_in_python else method.background_fraction
    handover_s = rates.handover_s * slowest_of(saved.num_nodes, rates.node_log_sigma_factor)
    serialise_s = 0.0
    if method.waits_for_write:
        if storage is not None:
            serialise_s = float(saved.written_bytes.max()) / rates.serialised_bytes_per_s
            serialise_s *= slowest_of(saved.num_nodes, rates.node_log_sigma_factor)
        blocked_s, background_s = copy_s + serialise_s + files_s + write_s, 0.0
    else:
        blocked_s = files_s + (max(copy_s - window_s, 0.0) if method.hides_copy else copy_s)
        background_s = max(write_s - blocked_s, 0.0) if method.writes_while_copying else write_s
    return SaveTimes(
        copy_s=copy_s,
        serialise_s=serialise_s,
        files_s=files_s,
        handover_s=handover_s,
        write_s=write_s,
        blocked_s=handover_s + blocked_s,
        background_s=background_s,
        background_fraction=fraction,
        restore_s=restore_s(saved, saved.read_bytes, checkpoint, cluster, rates),
    )


def files_time_s(num_files: int, nodes: int, rates: SaveRates) -> float:
    """Return the seconds until the slowest node has opened its part of the files."""
    return min(num_files, rates.most_files) * rates.file_s * slowest_of(nodes, rates.node_log_sigma_factor)


def slowest_of(nodes: int, log_sigma_factor: float) -> float:
    """Return the time of the slowest of this number of nodes divided by that of a typical node.

    This is the median of a log-normal maximum: the quantile n / (n + 1).

    >>> round(slowest_of(1, 0.3), 2), round(slowest_of(20, 0.3), 2)
    (1.0, 1.65)
    """
    if log_sigma_factor == 0:
        return 1.0
    return math.exp(log_sigma_factor * NormalDist().inv_cdf(nodes / (nodes + 1)))


def pinned_bytes_per_s(cluster: Cluster, rates: SaveRates) -> float:
    """Return the rate of copies to pinned memory per device, if all devices of the node copy at once."""
    if cluster.node.memory is None:
        return rates.pinned_fraction * cluster.node.device.host_bytes_per_s
    return device_rate(cluster, pinned=True, link_fraction=rates.pinned_fraction)


def _copy_s(
    saved: SavedStates, checkpoint: Checkpoint, cluster: Cluster, write_s: float, rates: SaveRates
) -> float:
    """Return the seconds until every rank has copied its state to the host.

    A method that writes while it copies needs no more memory than it is given: what exceeds it is copied
    as fast as the rest is written.
    """
    most_bytes = float(saved.copied_bytes.max())
    if checkpoint.staging == "pinned" or checkpoint.how.waits_for_write:
        copy_s = most_bytes / pinned_bytes_per_s(cluster, rates)
    else:
        chunked = checkpoint.how.writes_while_copying
        rate = rates.chunked_bytes_per_s if chunked else rates.allocated_bytes_per_s
        copy_s = most_bytes / rate * slowest_of(saved.num_nodes, rates.node_log_sigma_factor)
    staged_bytes = float(saved.of_nodes(saved.copied_bytes).max())
    limit_bytes = host_limit_bytes(checkpoint, cluster)
    if checkpoint.how.writes_while_copying and staged_bytes > limit_bytes:
        copy_s = max(copy_s, write_s * (1.0 - limit_bytes / staged_bytes))
    return copy_s


def host_limit_bytes(checkpoint: Checkpoint, cluster: Cluster) -> float:
    """Return the memory of a node that copies may use; infinite without a limit."""
    memory = cluster.node.memory
    return checkpoint.host_bytes or (math.inf if memory is None else memory.capacity_bytes)


def restore_s(
    saved: SavedStates, read_bytes: Floats, checkpoint: Checkpoint, cluster: Cluster, rates: SaveRates
) -> float:
    """Return the seconds in which each rank reads its bytes, (ranks,), and copies them to its device."""
    storage = storage_of(cluster, checkpoint.to)
    copy_s = float(read_bytes.max()) / pinned_bytes_per_s(cluster, rates)
    return copy_s if storage is None else copy_s + transfer_s(saved, read_bytes, storage, cluster, "read")


def transfer_s(
    saved: SavedStates, rank_bytes: Floats, storage: Storage, cluster: Cluster, direction: str
) -> float:
    """Return the seconds in which each rank reads or writes its bytes, (ranks,).

    Drives belong to a node. All nodes together have the rates of shared storage, and each node has a limit.
    """
    rate = storage.read_bytes_per_s if direction == "read" else storage.write_bytes_per_s
    of_nodes = saved.of_nodes(rank_bytes)
    if storage is cluster.node.nvme:
        return storage.latency_s + float(of_nodes.max()) / rate
    node_s = 0.0 if storage.node_bytes_per_s is None else float(of_nodes.max()) / storage.node_bytes_per_s
    return storage.latency_s + max(node_s, float(of_nodes.sum()) / rate)
