"""Metamorphic laws of states outside the devices: faster memories and fewer copies never slow a step.

    python -m benchmarks.offload_laws --jobs 100 --seed 1 > violations.txt

Answers: do jobs with states on the host, on peers, on drives or in a file system keep every law?
Elsewhere: the laws of all jobs (laws.py), which are tried on these jobs, too.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from random import Random

from benchmarks.changes import Change, all_of, on_cluster, set_to, with_node
from benchmarks.laws import FASTER, LAWS, SAME, SLOWER, STACK, Law, violations
from benchmarks.random_jobs import random_jobs
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.memory_tiers import HostMemory, Storage
from flopcast.spec.offload import KINDS, OUTER, PEER, TIERS, Placement, fraction_in
from flopcast.spec.offload_software import OffloadSoftware
from flopcast.workload.checks import check

OTHERWISE = {  # laws of all jobs that do not hold here, by right (docs/laws.md)
    "everything recomputed",
    "attention recomputed",
    "gradients that no other rank holds reduced beside the backward",
}
PLACES = tuple(f"{kind}:{tier}" for kind in KINDS for tier in TIERS if (kind, tier) != ("gradients", PEER))
ENDLESS = 1e30


def described(cluster: Cluster, random: Random) -> Cluster:
    """The cluster with memory of its nodes and peers, drives and a file system, fast or slow."""
    fast = random.choice((0.3, 1.0, 10.0))
    memory = HostMemory(capacity_bytes=4e12, bytes_per_s=4e11 * fast, pageable_bytes_per_s=5e9 * fast)
    drives = Storage(capacity_bytes=3e13, read_bytes_per_s=2e10 * fast, write_bytes_per_s=1e10 * fast)
    shared = Storage(
        capacity_bytes=1e16, read_bytes_per_s=5e11, write_bytes_per_s=3e11, node_bytes_per_s=2.5e10
    )
    peers = Storage(capacity_bytes=3e13, read_bytes_per_s=1.6e12 * fast, write_bytes_per_s=1.6e12 * fast)
    found = with_node(cluster, memory=memory, nvme=drives, peer=peers)
    return found.model_copy(update={"file_system": shared})


def placed(job: Job, random: Random) -> Job | None:
    """The job with some states outside its devices; None where a rule refuses what was drawn."""
    kinds = [kind for kind in KINDS if kind != OUTER and random.random() < 0.6] or ["optimizer"]
    placements = tuple(
        Placement(
            kind=kind,
            tier=random.choice(TIERS),
            fraction=random.choice((1.0, 1.0, 0.5, 0.3)),
            stride=random.choice((0, 0, 2, 3)) if kind == "optimizer" else 0,
        )
        for kind in kinds
    )
    how = OffloadSoftware(
        places=PLACES,
        gradient_copies=random.choice(("pageable", "pinned")),
        gradient_flush=random.choice(("blocking", "overlapped", "before_update")),
        updates_on=random.choice(("host", "host", "device")),
        strides=True,
    )
    new = job.model_copy(
        update={
            "plan": job.plan.model_copy(update={"offload": placements}),
            "stack": job.stack.model_copy(update={"offload": how}),
            "cluster": described(job.cluster, random),
        }
    )
    return None if check(new) else new


def placed_jobs(seed: int) -> Iterator[Job]:
    """Valid jobs with states outside their devices, without end."""
    random = Random(seed)
    for job in random_jobs(seed):
        new = placed(job, random)
        if new is not None:
            yield new


def on_memory(**by_factor: float) -> Change:
    """Multiply numbers of the host's memory."""

    def change_of(cluster: Cluster) -> Cluster | None:
        memory = cluster.node.memory
        if memory is None:
            return None
        update = {name: getattr(memory, name) * factor for name, factor in by_factor.items()}
        return with_node(cluster, memory=memory.model_copy(update=update))

    return on_cluster(change_of)


def on_storage(**by_factor: float) -> Change:
    """Multiply numbers of the drives, the peers and the file system."""

    def faster(storage: Storage | None) -> Storage | None:
        if storage is None:
            return None
        update = {
            name: getattr(storage, name) * factor
            for name, factor in by_factor.items()
            if getattr(storage, name) is not None
        }
        return storage.model_copy(update=update)

    def change_of(cluster: Cluster) -> Cluster:
        file_system = faster(cluster.file_system)
        found = with_node(cluster, nvme=faster(cluster.node.nvme), peer=faster(cluster.node.peer))
        return found.model_copy(update={"file_system": file_system})

    return on_cluster(change_of)


def on_link(factor: float) -> Change:
    """Multiply the rate of the link between a device and its host."""

    def change_of(cluster: Cluster) -> Cluster:
        device = cluster.node.device
        rate = device.host_bytes_per_s * factor
        return with_node(cluster, device=device.model_copy(update={"host_bytes_per_s": rate}))

    return on_cluster(change_of)


def _less_placed(job: Job) -> Job | None:
    """Half of each fraction stays on the device."""
    fewer = tuple(one.model_copy(update={"fraction": one.fraction / 2}) for one in job.plan.offload)
    return job.model_copy(update={"plan": job.plan.model_copy(update={"offload": fewer})})


def _may_overlap_updates(job: Job) -> bool:
    """Whether updates may run beside the passes.

    Activations, and parameters of which a part is outside, would wait for copies of new parameters.
    """
    how, plan = job.stack.offload, job.plan
    alone = plan.zero >= 2 and plan.pipeline_parallel == 1 and _only_activations(job) is None
    whole = fraction_in(plan.offload, "parameters") in (0, 1)
    return alone and whole and how.leaves_in_backward and how.updates_on == "host"


def _only_activations(job: Job) -> Job | None:
    kept = tuple(one for one in job.plan.offload if one.kind == "activations")
    return job.model_copy(update={"plan": job.plan.model_copy(update={"offload": kept})}) if kept else None


def _nothing_placed(job: Job) -> Job | None:
    return job.model_copy(update={"plan": job.plan.model_copy(update={"offload": ()})})


ENDLESS_TIERS = all_of(
    on_link(ENDLESS),
    on_memory(bytes_per_s=ENDLESS, pageable_bytes_per_s=ENDLESS),
    on_storage(read_bytes_per_s=ENDLESS, write_bytes_per_s=ENDLESS, node_bytes_per_s=ENDLESS),
)
OFFLOAD_LAWS: dict[str, Law] = {
    "a link to the host twice as fast": Law(change=on_link(2.0), least_ratio=0.5, most_ratio=1.0),
    "a memory of the host twice as fast": Law(
        change=on_memory(bytes_per_s=2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "pageable copies twice as fast": Law(
        change=on_memory(pageable_bytes_per_s=2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "storage twice as fast": Law(
        change=on_storage(read_bytes_per_s=2.0, write_bytes_per_s=2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "a larger memory of the host": Law(change=on_memory(capacity_bytes=2.0), **SAME),
    "gradients in pinned memory": Law(change=set_to(STACK + "offload.gradient_copies", "pinned"), **FASTER),
    "copies of gradients that nothing waits for": Law(
        of=lambda job: job if job.stack.offload.gradient_flush == "blocking" else None,
        change=set_to(STACK + "offload.gradient_flush", "overlapped"),
        **FASTER,
    ),
    "updates of the host beside the passes": Law(
        of=lambda job: job if _may_overlap_updates(job) else None,
        change=set_to(STACK + "offload.overlaps_updates", True),
        **FASTER,
    ),
    "half of it outside": Law(of=_only_activations, change=_less_placed, **FASTER),
    "no activations outside": Law(of=_only_activations, change=_nothing_placed, **FASTER),
    "endless memories for activations": Law(
        of=all_of(_only_activations, ENDLESS_TIERS), change=_nothing_placed, **SAME
    ),
    "a slower storage": Law(change=on_storage(write_bytes_per_s=0.5), **SLOWER),
}


ALL = {name: law for name, law in LAWS.items() if name not in OTHERWISE} | OFFLOAD_LAWS


def main() -> None:
    """Print every violation of some placed jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for job in islice(placed_jobs(options.seed), options.jobs):
        for one in violations(job, ALL):
            ratio = one.changed_s / one.step_s
            print(f"{one.law}: × {ratio:.6f}\n  {job.stack.name} {job.cluster.name} {job.plan.short()}")


if __name__ == "__main__":
    main()
