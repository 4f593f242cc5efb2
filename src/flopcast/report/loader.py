"""The time of data loading, and the step time if devices wait for samples.

Answers: how long does each stage need for the samples of a step, and is the loader the limit?
Elsewhere: the notation of stages (spec/loader.py), the step of the devices alone (timeline/step.py).

Overlapped stages prepare later batches while the devices compute, each at its own rate, so the longest of
them limits the step; stages on the same link, memory or storage share its rate, and their times add up.
Every step waits for a stage that is not overlapped.
"""

from collections import defaultdict
from math import ceil

import numpy as np

from flopcast.cost.between_plans import BETWEEN_PLANS
from flopcast.cost.factors import Factor, FactorBook
from flopcast.cost.tier_copies import (
    PAGEABLE_LOG_SIGMA,
    PINNED_LOG_SIGMA,
    STORAGE_LOG_SIGMA,
    described_storage,
    host_memory,
)
from flopcast.dtypes import Floats
from flopcast.records import Record, replace
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.loader import OF_LINK, LoaderStage
from flopcast.spec.plan import Plans
from flopcast.timeline.uncertainty import Sensitivity
from flopcast.units import Number, show_seconds

LOADER = "loader"  # the component of a breakdown
LINK_LINE_BYTES, HOST_LINE_BYTES = 128, 64  # a request of a device to its host; a line of a host's cache
GATHER_PASSES = 3  # over the host's memory: the row is read, and its copy is fetched and written
STATED_LOG_SIGMA, GATHER_LOG_SIGMA = 0.1, 0.4  # of seconds that a job states; of gathers at the peak rate


class StageTime(Record):
    """Seconds of a stage for the samples of a step on one data-parallel rank, including its factor."""

    stage: LoaderStage
    step_s: Number
    samples_per_s: Number  # of all ranks together, if the stage runs alone
    factor: Factor

    @property
    def shared(self) -> str:
        """Return the resource that the stage shares with other stages: the link, a memory or a storage; the
        stage itself if there is none.
        """
        if self.stage.sample_bytes is None:
            return f"workers of {self.stage.name}"
        return "link" if self.stage.through in OF_LINK else self.stage.through


class LoadedStep(Record, eq=False):
    """A step of the devices, and the time that the input pipeline adds.

    Attributes
    ----------
    device_step_s : float
        The step if samples always arrived in time.
    stages : tuple of StageTime
        Times of the stages.
    exposed_s : float
        Seconds of the stages that every step waits for.
    overlapped_s : float
        Seconds of the slowest overlapped stages, a lower bound of the step.
    slowest : tuple of str
        Names of these stages, which share a link, a memory or a storage.
    """

    device_step_s: Number
    stages: tuple[StageTime, ...]
    exposed_s: Number
    overlapped_s: Number
    slowest: tuple[str, ...]

    @property
    def step_time_s(self) -> Number:
        """Return the step with its input pipeline."""
        return max(self.device_step_s + self.exposed_s, self.overlapped_s)

    @property
    def wait_s(self) -> Number:
        """Return the seconds of a step in which the devices wait for samples."""
        return self.step_time_s - self.device_step_s

    @property
    def is_limit(self) -> bool:
        """Return whether overlapped stages, not the devices, determine the step."""
        return self.overlapped_s > self.device_step_s + self.exposed_s

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning if the devices wait because overlapped stages are the limit."""
        if not self.is_limit:
            return ()
        need = "needs" if len(self.slowest) == 1 else "need"
        loading, computing = (show_seconds(each) for each in (self.overlapped_s, self.device_step_s))
        return (
            f"the loader is the limit: {' and '.join(self.slowest)} {need} {loading} for the samples of a"
            f" step, and the devices need {computing}",
        )

    def factors(self, of_device: tuple[Sensitivity, ...]) -> tuple[Sensitivity, ...]:
        """Return the factors of the step from those of the devices, the most uncertain contribution first.

        If overlapped stages are the limit, the step depends only on their factors.
        """
        kept = 0.0 if self.is_limit else self.device_step_s / self.step_time_s
        found = {
            one.name: replace(one, share=one.share * kept)
            for one in of_device
            if kept or one.name == BETWEEN_PLANS
        }
        for each in self.stages:
            if each.stage.name in self.slowest if self.is_limit else not each.stage.overlapped:
                name, log_sigma = each.factor.name, each.factor.log_sigma_factor
                known = found.get(name, Sensitivity(name=name, log_sigma_factor=log_sigma, share=0.0))
                found[name] = replace(
                    known,
                    log_sigma_factor=max(known.log_sigma_factor, log_sigma),
                    share=known.share + each.step_s / self.step_time_s,
                )
        return tuple(sorted(found.values(), key=lambda one: (-one.share * one.log_sigma_factor, one.name)))

    def breakdown(self, of_device: dict[str, float]) -> dict[str, float]:
        """Return the breakdown of the step, given the breakdown without data loading."""
        found = of_device | ({LOADER: self.wait_s} if self.wait_s > 0 else {})
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def loaded_step(job: Job, factors: FactorBook, device_step_s: Number) -> LoadedStep | None:
    """Return the step of a job with its input pipeline; None if the job describes none."""
    samples = job.plan.global_batch / job.plan.data_parallel
    found = _loading(job, factors, samples, job.plan.peers * job.plan.data_parallel)
    return None if found is None else replace(found, device_step_s=device_step_s)


def with_loader(step_s: Floats, job: Job, plans: Plans, factors: FactorBook) -> Floats:
    """Return step times of many plans with the input pipeline of their job; both arrays (plans,).

    A lower bound for the steps of the devices becomes a lower bound for the whole steps.
    """
    if job.loader is None:
        return step_s
    degrees = np.broadcast_to(plans.data_parallel[:, 0], step_s.shape)
    samples = plans.global_batch[:, 0] / degrees
    exposed_s, overlapped_s = np.zeros(step_s.shape), np.zeros(step_s.shape)
    for replicas in np.unique(degrees).tolist():
        rows = degrees == replicas
        if (one := _loading(job, factors, 1.0, replicas * plans.structure.peers)) is not None:
            exposed_s[rows], overlapped_s[rows] = one.exposed_s, one.overlapped_s
    loaded_s: Floats = np.maximum(step_s + samples * exposed_s, samples * overlapped_s)
    return loaded_s


def _loading(job: Job, factors: FactorBook, samples: Number, replicas: int) -> LoadedStep | None:
    """Return the times of stages for the samples of each replica, with devices that need no time."""
    if job.loader is None:
        return None
    stages = tuple(_time(stage, job.cluster, factors, samples, replicas) for stage in job.loader.stages)
    together_s: dict[str, Number] = defaultdict(float)
    for each in stages:
        if each.stage.overlapped:
            together_s[each.shared] += each.step_s
    slowest = max(together_s, key=lambda name: together_s[name], default="")
    return LoadedStep(
        device_step_s=0.0,
        stages=stages,
        exposed_s=sum(each.step_s for each in stages if not each.stage.overlapped),
        overlapped_s=together_s.get(slowest, 0.0),
        slowest=tuple(e.stage.name for e in stages if e.stage.overlapped and e.shared == slowest),
    )


def _time(
    stage: LoaderStage, cluster: Cluster, factors: FactorBook, samples: Number, replicas: int
) -> StageTime:
    """Return the time of a stage for the samples of one replica, of which all load at the same time."""
    if stage.sample_s is not None:
        each_s, factor = (
            stage.sample_s / stage.workers,
            factors.get(f"{LOADER}[{stage.name}]", STATED_LOG_SIGMA),
        )
    else:
        each_s, factor = _moved(stage, stage.sample_bytes or 0.0, cluster, factors, replicas)
    step_s = samples * each_s * factor.ratio
    return StageTime(stage=stage, step_s=step_s, samples_per_s=samples * replicas / step_s, factor=factor)


def _moved(
    stage: LoaderStage, sample_bytes: float, cluster: Cluster, factors: FactorBook, replicas: int
) -> tuple[Number, Factor]:
    """Return the seconds in which a replica moves the bytes of a sample, and their factor."""
    device, host, way = cluster.node.device, cluster.node.host.name, stage.through
    per_node = ceil(replicas * cluster.node.devices / cluster.num_devices)  # of the fullest node
    if way in OF_LINK:
        lines = _in_lines(stage, sample_bytes, LINK_LINE_BYTES)
        rate, memory = device.host_bytes_per_s, cluster.node.memory
        if memory is not None:
            rate = min(rate / min(memory.devices_per_link, per_node), memory.bytes_per_s / per_node)
        if way == "pageable":
            rate = min(rate, host_memory(cluster).pageable_bytes_per_s)
            return lines / rate, factors.get(f"host_link_pageable[{device.name}]", PAGEABLE_LOG_SIGMA)
        return lines / rate, factors.get(f"host_link[{device.name}]", PINNED_LOG_SIGMA)
    if way == "peers":
        factor = factors.get(f"{LOADER}_peers[{device.name}]", GATHER_LOG_SIGMA)
        return sample_bytes * _peer_s(cluster), factor
    if way == "host":
        lines = _in_lines(stage, sample_bytes, HOST_LINE_BYTES)
        rate = host_memory(cluster).bytes_per_s / GATHER_PASSES / per_node
        return lines / rate, factors.get(f"{LOADER}_gather[{host}]", GATHER_LOG_SIGMA)
    storage = described_storage(cluster, way)
    rate = storage.read_bytes_per_s / (per_node if way == "nvme" else replicas)
    if storage.node_bytes_per_s is not None:
        rate = min(rate, storage.node_bytes_per_s / per_node)
    return sample_bytes / rate, factors.get(f"storage[{way} of {cluster.name}]", STORAGE_LOG_SIGMA)


def _peer_s(cluster: Cluster) -> Number:
    """Return the seconds for each byte of rows that are sharded over the memories of several devices.

    A device reads its own shard from its memory, and all others over the fastest network.
    """
    tier, own_s = cluster.tiers[0], 1.0 / cluster.node.device.memory_bytes_per_s
    devices = min(tier.devices or cluster.num_devices, cluster.num_devices)
    remote_s = 1.0 / (tier.bytes_per_s * tier.attained_fraction)
    return (own_s + (devices - 1) * remote_s) / devices


def _in_lines(stage: LoaderStage, sample_bytes: Number, line_bytes: int) -> Number:
    """Return the bytes of a sample if each of its rows occupies whole lines.

    >>> rows = LoaderStage(name="gather", sample_bytes=4000, through="zero_copy", row_bytes=400)
    >>> _in_lines(rows, 4000, 128)
    5120.0
    """
    row = stage.row_bytes
    return sample_bytes if row is None else sample_bytes / row * ceil(row / line_bytes) * line_bytes
