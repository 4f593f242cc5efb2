"""Metamorphic laws of a step: what must happen to its time if one thing of the job changes.

    python -m benchmarks.laws --jobs 500 --seed 1 > violations.txt

Answers: does more bandwidth, less latency or more overlap ever make a step longer, and does the time scale?
Elsewhere: the jobs (random_jobs.py), laws whose exceptions are right physics (docs/laws.md).

A law changes a job and compares the seconds of both steps, without jitter, played exactly. It is a line of
LAWS; `violations` tries all of them on one job.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np

from benchmarks.changes import (
    Change,
    all_of,
    always,
    deeper,
    factors,
    host_speed,
    on_device,
    on_tiers,
    one_stage,
    only_replicas,
    reduces,
    reduces_once,
    set_to,
    split_blocks,
    through_json,
    times,
    unchanged,
    where,
    wider,
    without_power_limit,
)
from benchmarks.random_jobs import random_jobs
from flopcast.cost.factors import FactorBook
from flopcast.cost.item_prices import Priced
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.price import price
from flopcast.library import catalog
from flopcast.library.curves import load_book
from flopcast.operators.matmul import GroupedMatmul, Matmul
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan, batch_plans, one_plan
from flopcast.spec.site import Site, SiteFactor
from flopcast.timeline.shared_links import may_share
from flopcast.timeline.step import run_step, simulated_seconds
from flopcast.timeline.uncertainty import sensitivities
from flopcast.workload.checks import check
from flopcast.workload.lower import lower
from flopcast.workload.program import Programs
from flopcast.workload.realise import realise

ROUNDING = 1e-9
NUDGE = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """The step of the changed job lasts between `least` and `most` times as long; None: no such job.

    `of` prepares the job: what the law does not speak of is taken out of it before and after the change.
    `shared_links_ratio` widens both bounds where messages share a link (docs/laws.md).
    """

    change: Change
    of: Change = unchanged
    least_ratio: float = 0.0
    most_ratio: float = float("inf")
    shared_links_ratio: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A job that breaks a law: seconds before and after the change."""

    law: str
    job: Job
    step_s: float
    changed_s: float


def names_of(job: Job) -> Iterable[str]:
    """The named factors of a job."""
    return _priced(job).factors


def host_names_of(job: Job) -> Iterable[str]:
    """The named factors of launches and of the host's step; others multiply with those of copies."""
    return [name for name in names_of(job) if name in ("host", "host_step")]


def reads_weights(job: Job) -> bool:
    """Whether most of the time of products is that of reading weights for few rows (docs/laws.md)."""
    priced, device = _priced(job), job.cluster.node.device
    of_engine_s, of_memory_s = 0.0, 0.0
    for item in {item for each in priced.programs.passes for segment in each for item in segment.items}:
        if isinstance(item.work, (Matmul, GroupedMatmul)):
            need, lasts_s = item.work.work(), float(np.sum(priced.of(item).alone_s * item.count))
            moving_s = np.max(need.moved_bytes) / device.memory_bytes_per_s
            if np.max(need.flop) / device.peak(need.unit) < moving_s:
                of_memory_s += lasts_s
            else:
                of_engine_s += lasts_s
    return of_memory_s > of_engine_s


OUTER, INNER = slice(-1, None), slice(0, 1)
FASTER, SLOWER = {"most_ratio": 1.0}, {"least_ratio": 1.0}
SAME = FASTER | SLOWER
SHARED_LINKS = {"shared_links_ratio": 0.006}  # a shorter layer may add it to messages that share a link
PLAN, STACK = "plan.", "stack."
NO_LAUNCHES = always(STACK + "host.graphs", ("iteration",))
SAME_BUCKETS = always(STACK + "gradients.single_bucket_after_backward", False)
LAWS: dict[str, Law] = {
    # hardware
    "twice the bandwidth of all links": Law(
        change=on_tiers("bytes_per_s", 2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "twice the bandwidth inside": Law(
        change=on_tiers("bytes_per_s", 2.0, INNER), least_ratio=0.5, most_ratio=1.0
    ),
    "twice the bandwidth of the widest tier": Law(
        change=on_tiers("bytes_per_s", 2.0, OUTER), least_ratio=0.5, most_ratio=1.0
    ),
    "half the latency of all links": Law(
        change=on_tiers("latency_s", 0.5), least_ratio=0.5, most_ratio=1.0
    ),
    "ten times the latency inside": Law(change=on_tiers("latency_s", 10.0, INNER), **SLOWER),
    "ten times the latency of the widest tier": Law(change=on_tiers("latency_s", 10.0, OUTER), **SLOWER),
    "no latency at all": Law(change=on_tiers("latency_s", 0.0), **FASTER),
    "a fourth of the links attained": Law(
        change=on_tiers("attained_fraction", 0.25), least_ratio=1.0, most_ratio=4.0
    ),
    "four times as oversubscribed": Law(change=on_tiers("oversubscription_ratio", 4.0), **SLOWER),
    "twice the FLOP/s": Law(
        of=without_power_limit, change=on_device(peak_flop_per_s=2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "twice the memory bandwidth": Law(
        change=on_device(memory_bytes_per_s=2.0), least_ratio=0.5, most_ratio=1.0
    ),
    "twice both": Law(
        of=without_power_limit,
        change=on_device(peak_flop_per_s=2.0, memory_bytes_per_s=2.0),
        least_ratio=0.5,
        most_ratio=1.0,
    ),
    "longer launches on the device": Law(change=on_device(kernel_launch_s=4.0), **SLOWER),
    "a host twice as fast": Law(change=host_speed(2.0), least_ratio=0.5, most_ratio=1.0),
    "messages that take nothing from compute": Law(
        change=on_device(collective_slowdown_fraction=0.0), **FASTER, **SHARED_LINKS
    ),
    "a whole machine twice as fast": Law(
        of=without_power_limit,
        change=all_of(
            on_device(peak_flop_per_s=2.0, memory_bytes_per_s=2.0, kernel_launch_s=0.5),
            on_tiers("bytes_per_s", 2.0),
            on_tiers("latency_s", 0.5),
            host_speed(2.0),
        ),
        least_ratio=0.5,
        most_ratio=1.0,
    ),
    # contention and overlap
    "messages moved by copy engines": Law(
        change=set_to(STACK + "contention.kernel_share", 0.0), **FASTER, **SHARED_LINKS
    ),
    "messages moved by kernels": Law(
        change=set_to(STACK + "contention.kernel_share", 1.0), **SLOWER, **SHARED_LINKS
    ),
    "gradients reduced behind the backward of one stage": Law(
        of=where(one_stage, all_of(SAME_BUCKETS, NO_LAUNCHES)),
        change=set_to(STACK + "gradients.overlap", False),
        **SLOWER,
        **SHARED_LINKS,
    ),
    "gradients reduced behind the backward of a pipeline": Law(
        of=where(only_replicas, all_of(SAME_BUCKETS, NO_LAUNCHES, always(STACK + "gradients.copies", ()))),
        change=set_to(STACK + "gradients.overlap", False),
        **SLOWER,
    ),
    "gradients that no other rank holds reduced beside the backward": Law(
        of=where(lambda job: not reduces(job), always(STACK + "gradients.overlap", False)),
        change=set_to(STACK + "gradients.overlap", True),
        **SAME,
    ),
    "updated parameters gathered under the forward": Law(
        of=where(
            one_stage,
            all_of(
                SAME_BUCKETS,
                NO_LAUNCHES,
                always(STACK + "gradients.bucket_elements", 100_000),
                always(STACK + "gradients.bucket_elements_per_rank", 0),
            ),
        ),
        change=set_to(STACK + "gradients.overlap_gather", True),
        **FASTER,
    ),
    "parameters gathered one unit ahead": Law(
        of=NO_LAUNCHES, change=set_to(STACK + "sharding.prefetch_units", 1), **FASTER
    ),
    "transfers that never block": Law(change=set_to(STACK + "pipeline.transfers", "overlapped"), **FASTER),
    "transfers one by one": Law(change=set_to(STACK + "pipeline.transfers", "sequential"), **SLOWER),
    "exchanges beside another micro-batch": Law(
        of=NO_LAUNCHES,
        change=set_to(STACK + "experts.exchange_overlap", "other_micro_batch"),
        **FASTER,
        **SHARED_LINKS,
    ),
    # host and software
    "longer launches of forward kernels": Law(change=times(STACK + "host.forward_item_s", 3.0), **SLOWER),
    "longer launches of backward kernels": Law(change=times(STACK + "host.backward_item_s", 3.0), **SLOWER),
    "longer synchronisation": Law(change=times(STACK + "host.synchronise_s", 3.0), **SLOWER),
    "a longer step of the host": Law(change=times(STACK + "optimizer.step_host_s", 3.0), **SLOWER),
    "longer posts of transfers": Law(change=set_to(STACK + "pipeline.host_s", 1e-3), **SLOWER),
    "nothing launched by the host": Law(
        change=set_to(STACK + "host.graphs", ("iteration",)), **FASTER, **SHARED_LINKS
    ),
    "a higher derate": Law(change=times(STACK + "derate.ratio", 1.5), least_ratio=1.0, most_ratio=1.5),
    "an optimizer that moves twice as much": Law(
        change=times(STACK + "optimizer.moved_bytes", 2.0), least_ratio=1.0, most_ratio=2.0
    ),
    "one more overflow check": Law(change=set_to(STACK + "gradients.overflow_checks", 3), **SLOWER),
    "one more pass of accumulation": Law(  # without one, products add: in the first micro-batch as well
        change=set_to(STACK + "gradients.accumulate_passes", 3),
        of=always(STACK + "gradients.accumulate_passes", 1),
        **SLOWER,
    ),
    "more elements sent to sharded ranks": Law(change=set_to(STACK + "gradients.dtype", "fp32"), **SLOWER),
    # factors
    "all factors twice as high": Law(change=factors(names_of, 2.0), **SLOWER),
    "all factors half as high": Law(change=factors(names_of, 0.5), **FASTER),
    "products slower": Law(change=factors(names_of, 1.5, "gemm_level"), least_ratio=1.0, most_ratio=1.5),
    "attention slower": Law(
        change=factors(names_of, 1.5, "attention_level"), least_ratio=1.0, most_ratio=1.5
    ),
    "memory-bound kernels slower": Law(
        change=factors(names_of, 1.5, "memory_level"), least_ratio=1.0, most_ratio=1.5
    ),
    "fabrics slower": Law(change=factors(names_of, 1.5, "fabric"), least_ratio=1.0, most_ratio=1.5),
    "the host slower": Law(change=factors(host_names_of, 1.5), least_ratio=1.0, most_ratio=1.5),
    # workload
    "twice the micro-batches": Law(change=times(PLAN + "global_batch", 2), least_ratio=1.0, most_ratio=2.0),
    "sequences twice as long": Law(
        of=where(lambda job: not reads_weights(job), unchanged),
        change=times("batch.sequence_length", 2),
        least_ratio=1.0,
    ),
    "sequences twice as long, where products read weights": Law(  # least: what one product may lose
        of=where(reads_weights, unchanged), change=times("batch.sequence_length", 2), least_ratio=0.64
    ),
    "twice the blocks": Law(change=deeper, least_ratio=1.0, most_ratio=2.2),
    "twice the vocabulary": Law(of=NO_LAUNCHES, change=wider, least_ratio=1.0, most_ratio=2.2),
    "everything recomputed": Law(
        change=set_to(PLAN + "recompute", "full"), least_ratio=1.0, most_ratio=1.7
    ),
    "attention recomputed": Law(
        change=where(lambda job: job.plan.recompute == "none", set_to(PLAN + "recompute", "selective")),
        least_ratio=1.0,
        most_ratio=1.7,
    ),
    "twice the micro-batch in as many micro-batches": Law(
        of=where(lambda job: not reads_weights(job), unchanged),
        change=all_of(times(PLAN + "global_batch", 2), times(PLAN + "micro_batch", 2)),
        least_ratio=1.0,
    ),
    "all forwards before all backwards": Law(
        change=where(
            lambda job: job.plan.virtual_stages == 1 and job.plan.schedule == "auto",
            set_to(PLAN + "schedule", "gpipe"),
        ),
        least_ratio=0.98,
    ),
    # what changes nothing
    "written as JSON and read": Law(change=through_json, **SAME),
    "blocks listed in two entries": Law(change=split_blocks, **SAME),
    "a name of its own": Law(change=set_to("cluster.jitter.ratio", 1.5), **SAME),
    "chunks of one stage": Law(change=where(reduces_once, set_to(PLAN + "schedule", "gpipe")), **SAME),
}


@cache
def book_of(cluster: str) -> CurveBook:
    """The curves of a cluster of the catalogue."""
    return load_book(catalog.cluster(cluster, 1))


_PROGRAMS: list[tuple[Job, Programs]] = []  # the latest: laws of hardware share them


def _programs(job: Job) -> Programs:
    """What a job runs; kept for jobs that differ in their hardware alone."""
    for known, programs in _PROGRAMS:
        same = (known.model, known.plan, known.batch) == (job.model, job.plan, job.batch)
        if same and known.software == job.software:
            return programs
    programs = realise(lower(job.model, one_plan(job.plan), job.batch), job.software)
    _PROGRAMS.insert(0, (job, programs))
    del _PROGRAMS[2:]
    return programs


def _priced(job: Job) -> Priced:
    book = book_of(job.cluster.name)
    return price(_programs(job), job.cluster, book, FactorBook(job.site, book.levels))


def _shares_links(job: Job) -> bool:
    """Return whether messages of one layer may share a link."""
    segments = (segment for each in _programs(job).passes for segment in each)
    return any(may_share(segment.items) for segment in segments)


def step_seconds(job: Job) -> float:
    """Seconds of a step, played exactly, without jitter."""
    return simulated_seconds(_priced(job))


def violations(job: Job, laws: dict[str, Law] | None = None) -> Iterator[Violation]:
    """Every law that a job breaks."""
    base_s = step_seconds(job)
    base = _programs(job)
    for name, law in (laws or LAWS).items():
        prepared = law.of(job)
        changed = law.change(prepared) if prepared is not None else None
        if prepared is None or changed is None or check(prepared) or check(changed):
            continue
        _PROGRAMS[:] = [(job, base)]
        before_s = base_s if prepared is job else step_seconds(prepared)
        changed_s = step_seconds(changed)
        slack = max(ROUNDING, law.shared_links_ratio if _shares_links(job) else 0.0)
        if not law.least_ratio * (1 - slack) <= changed_s / before_s <= law.most_ratio * (1 + slack):
            yield Violation(law=name, job=job, step_s=before_s, changed_s=changed_s)
    yield from _others(job, base_s)


def _others(job: Job, base_s: float) -> Iterator[Violation]:
    """Laws of more than two steps: shares that add up, plans of a batch, derivatives."""
    priced = _priced(job)
    timeline = run_step(priced)
    shares_s = sum(share.path_s for share in timeline.shares)
    stage_s = sum(share.path_s for share in timeline.bottleneck_attribution) + timeline.bottleneck_waits_s
    for name, found_s in (
        ("shares of the critical path sum to the step", shares_s),
        ("shares of the busiest stage and its waiting sum to the step", stage_s),
        ("a step with shares is the step", timeline.step_time_s),
        ("a plan among others takes as long as alone", _among_others(job)),
    ):
        if abs(found_s / base_s - 1.0) > (1e-12 if "among" in name else ROUNDING):
            yield Violation(law=name, job=job, step_s=base_s, changed_s=found_s)
    known = {one.name: one.share for one in sensitivities(timeline, priced, {})}
    for name in sorted(known, key=lambda each: -abs(known[each]))[:2]:
        slopes = [(_nudged(job, name, by) / base_s - 1.0) / by for by in (-NUDGE, NUDGE)]
        if not min(slopes) - 1e-3 <= known[name] <= max(slopes) + 1e-3:
            yield Violation(
                law=f"d log(step) / d log({name})", job=job, step_s=slopes[1], changed_s=known[name]
            )


def _among_others(job: Job) -> float:
    """Seconds of the job's plan in a batch with another one of its structure."""
    other = job.plan.model_copy(update={"global_batch": 2 * job.plan.global_batch})
    if job.plan.num_micro_batches == 1:
        other = job.plan
    plans: list[Plan] = [other, job.plan]
    programs = realise(lower(job.model, batch_plans(plans), job.batch), job.software)
    book = book_of(job.cluster.name)
    priced = price(programs, job.cluster, book, FactorBook(job.site, book.levels))
    return simulated_seconds(priced, 1)


def _nudged(job: Job, factor: str, by_ratio: float) -> float:
    """Seconds with one factor a little higher."""
    site = Site(name="nudged", factors=(SiteFactor(name=factor, ratio=1.0 + by_ratio),))
    return step_seconds(job.model_copy(update={"site": site}))


def main() -> None:
    """Print every violation, one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    found = 0
    for number, job in enumerate(islice(random_jobs(asked.seed), asked.jobs)):
        for one in violations(job):
            found += 1
            plan = job.plan
            print(
                f"{number:4} {one.law}: {one.step_s:.6g} → {one.changed_s:.6g}"
                f" ({one.changed_s / one.step_s - 1:+.3%}) {job.cluster.name} {job.stack.name} {plan}",
                flush=True,
            )
    print(f"{asked.jobs} jobs, {len(LAWS) + 6} laws, {found} violations", file=sys.stderr)


if __name__ == "__main__":
    main()
