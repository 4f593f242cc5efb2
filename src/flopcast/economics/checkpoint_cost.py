"""The checkpoints of a job: their size and time, the interval between them, and the cost of a failure.

Answers: how often should this job save, what does saving cost, and is there enough memory and time for it?
Elsewhere: seconds of one checkpoint (checkpoints.py), time lost to failures (failures.py), the report's
text (render/checkpoint_text.py).
"""

import math

from flopcast.economics.checkpoints import SaveRates, SaveTimes, host_limit_bytes, save_times
from flopcast.economics.failures import LostTime, best_interval_s, lost_time
from flopcast.errors import Problem, SpecError
from flopcast.fixes import set_to
from flopcast.records import Record
from flopcast.spec.checkpoints import METHODS, Checkpoint
from flopcast.spec.cluster import Cluster
from flopcast.spec.described_tiers import FIELDS, storage_of
from flopcast.spec.job import Job
from flopcast.spec.operations import Reliability
from flopcast.units import Number, show_memory, show_seconds
from flopcast.workload.program import Programs
from flopcast.workload.saved_states import SavedStates, saved_states

LEAST_S = 1e-6  # of a checkpoint: a time of 0 has no best interval


class CheckpointCost(Record, eq=False):
    """The checkpoints of a job.

    Attributes
    ----------
    checkpoint : the checkpoint settings of the job
    saved : bytes of every rank
    times : of one checkpoint
    step_s : of one step without a checkpoint
    interval_s : seconds of steps between two checkpoints: the stated interval, or the one that loses the
        least time
    reliability : reliability of the cluster, with the times of saving these checkpoints and of reading them
        after a failure
    """

    checkpoint: Checkpoint
    saved: SavedStates
    times: SaveTimes
    step_s: float
    interval_s: float
    reliability: Reliability

    @property
    def interval_steps(self) -> float:
        """Return the steps between two checkpoints, which may be a fraction if the interval is stated in
        seconds.
        """
        return self.interval_s / self.step_s

    @property
    def saved_share(self) -> float:
        """Return the share of the time that checkpoints take."""
        return 1.0 - self.interval_s / self.times.cycle_s(self.interval_s)

    def lost(self, cluster: Cluster) -> LostTime:
        """Return the time that a run of the job loses.

        Raises
        ------
        InfeasibleError
            See `lost_time`.
        """
        return lost_time(self.reliability, cluster.num_devices, cluster.name)


def checkpoint_cost(
    job: Job, checkpoint: Checkpoint, programs: Programs, step_s: Number, update_s: Number, rates: SaveRates
) -> CheckpointCost:
    """Return the cost of the checkpoints of a job.

    Parameters
    ----------
    checkpoint : how the job saves; `job.checkpoint`, or another method to compare with it
    programs : of the job
    step_s, update_s : seconds of a step, and of the optimizer's update in it
    rates : speeds of the software that saves

    Returns
    -------
    CheckpointCost
        After a failure, a run reads the last complete checkpoint and repeats all steps since then,
        including steps during an unfinished write. Both are part of `restart_s`.
    """
    cluster = job.cluster
    saved = saved_states(programs, checkpoint, cluster.node.devices)
    times = save_times(saved, checkpoint, cluster, max(float(step_s - update_s), 0.0), rates)
    mean_s = cluster.reliability.device_time_between_failures_s / cluster.num_devices
    lost_s = max(times.lost_s, LEAST_S)
    best_s = max(best_interval_s(lost_s, mean_s), times.least_work_s, float(step_s))
    stated_s = checkpoint.every_steps * float(step_s) if checkpoint.every_steps else checkpoint.every_s
    interval_s = stated_s or cluster.reliability.checkpoint_interval_s or best_s
    reliability = cluster.reliability.model_copy(
        update={
            "checkpoint_s": lost_s,
            "checkpoint_log_sigma_factor": math.hypot(
                checkpoint.how.log_sigma_factor, rates.log_sigma_factor
            ),
            "checkpoint_interval_s": interval_s,
            "restart_s": cluster.reliability.restart_s + times.restore_s + times.background_s,
        }
    )
    return CheckpointCost(
        checkpoint=checkpoint,
        saved=saved,
        times=times,
        step_s=float(step_s),
        interval_s=interval_s,
        reliability=reliability,
    )


def by_method(
    job: Job, checkpoint: Checkpoint, programs: Programs, step_s: Number, update_s: Number, rates: SaveRates
) -> dict[str, CheckpointCost]:
    """Return the cost of the checkpoints with each method; all other settings are those of `checkpoint`.

    Parameters
    ----------
    job : Job
    checkpoint : Checkpoint
        Target and interval; its method is replaced.
    programs : Programs
        Give the saved states of each rank.
    step_s, update_s : Number
        Seconds of a step, and of its update, during which parameters must not be copied.
    rates : SaveRates
        Rates of copies and writes.
    """
    return {
        name: checkpoint_cost(job, _with_method(checkpoint, name), programs, step_s, update_s, rates)
        for name in METHODS
    }


def _with_method(checkpoint: Checkpoint, name: str) -> Checkpoint:
    return checkpoint.model_copy(update={"method": name})


def checkpoint_problems(cost: CheckpointCost, cluster: Cluster) -> tuple[Problem, ...]:
    """Return the faults of checkpoints: a short period, a full storage, or too little memory of hosts."""
    return (*_period(cost), *_room(cost, cluster), *_host_room(cost, cluster))


def refuse_impossible(cost: CheckpointCost, cluster: Cluster) -> None:
    """Raise a SpecError with the faults of checkpoints if they have any."""
    if problems := checkpoint_problems(cost, cluster):
        raise SpecError(problems)


def _period(cost: CheckpointCost) -> list[Problem]:
    """Return the problem of checkpoints that follow each other before the first is written."""
    checkpoint, times = cost.checkpoint, cost.times
    if cost.interval_s >= times.least_work_s * (1 - 1e-9):
        return []
    slower = f", while training is {times.background_fraction:.0%} slower" * bool(times.background_fraction)
    because = (
        f"writing a checkpoint of {show_memory(cost.saved.total_bytes)} takes "
        f"{show_seconds(times.write_s)}{slower}, and the next checkpoint cannot begin before this "
        "write ends"
    )
    if checkpoint.every_steps is not None:
        least = math.ceil(times.least_work_s / cost.step_s)
        field, value, allowed = "checkpoint.every_steps", checkpoint.every_steps, f"{least} or more"
        return [Problem(field, value, allowed, because, set_to({"checkpoint.every_steps": least}))]
    least_s = f"{math.ceil(times.least_work_s)} s"
    stated = checkpoint.every_s is not None
    field = "checkpoint.every_s" if stated else "cluster.reliability.checkpoint_interval_s"
    return [Problem(field, cost.interval_s, f"{least_s} or more", because, set_to({field: least_s}))]


def _room(cost: CheckpointCost, cluster: Cluster) -> list[Problem]:
    """Return the problem of a checkpoint that its storage cannot hold."""
    name = cost.checkpoint.to
    storage = storage_of(cluster, name)
    if storage is None:
        return []
    on_node = storage is cluster.node.nvme
    of_nodes = cost.saved.of_nodes(cost.saved.written_bytes)
    need_bytes = float(of_nodes.max() if on_node else of_nodes.sum())
    if need_bytes <= storage.capacity_bytes:
        return []
    each = " of a node" if on_node else ""
    because = (
        f"the checkpoint{each} needs {show_memory(need_bytes)} of storage, and {name} has "
        f"{show_memory(storage.capacity_bytes)}"
    )
    need = f"{math.ceil(need_bytes / 1e9)} GB"
    field = f"{FIELDS[name]}.capacity_bytes"
    fix = f"write to another storage, or set {field} to {need}"
    return [Problem("checkpoint.to", name, f"a storage of {need} or more", because, fix)]


def _host_room(cost: CheckpointCost, cluster: Cluster) -> list[Problem]:
    """Return the problem of copies that the memory of a host cannot hold until they are written."""
    how, checkpoint = cost.checkpoint.how, cost.checkpoint
    limit_bytes = host_limit_bytes(checkpoint, cluster)
    staged_bytes = float(cost.saved.of_nodes(cost.saved.copied_bytes).max())
    if how.waits_for_write or how.writes_while_copying or staged_bytes <= limit_bytes:
        return []
    because = (
        f"until an {checkpoint.method} checkpoint is written, it occupies {show_memory(staged_bytes)}"
        f" of the host memory of a node, but checkpoints may use only {show_memory(limit_bytes)}"
    )
    streaming = next(name for name, each in METHODS.items() if each.writes_while_copying)
    fix = f"set checkpoint.method to {streaming}, which writes while it copies"
    if checkpoint.host_bytes is not None:
        need = f"{math.ceil(staged_bytes / 1e9)} GB or more"
        return [Problem("checkpoint.host_bytes", checkpoint.host_bytes, need, because, fix)]
    allowed = "a method whose copies fit into the host memory"
    return [Problem("checkpoint.method", checkpoint.method, allowed, because, fix)]
