"""Inputs that are called as functions: metamorphic laws of jobs, rewrites in any order, grids of a sweep.

Answers: which laws does this job break, what do rewrites do to each other, is this grid one?
Elsewhere: the laws (benchmarks/laws.py), random jobs (benchmarks/random_jobs.py).
"""

from collections.abc import Iterator
from itertools import islice
from random import Random

import numpy as np

from benchmarks.laws import LAWS, violations
from benchmarks.random_jobs import random_jobs
from flopcast.cli.sweep_file import scenarios_in
from flopcast.files.yaml_text import read_yaml
from flopcast.jobs import dump_job
from flopcast.operators.base import AbstractOperator
from flopcast.operators.item import Item
from flopcast.requests.job_files import job_of
from flopcast.spec.job import Job
from flopcast.spec.plan import one_plan
from flopcast.workload.backward import derive_backward
from flopcast.workload.lower import lower
from flopcast.workload.passes import rewrite_names
from flopcast.workload.realise import realise
from flopcast.workload.rewrites import REWRITES
from fuzz.kinds import Input

ESTIMATED = (1.7, 2.2)  # bounds of laws that hold for hosts and devices as the catalogue has them
SAFE_LAWS = sorted(name for name, law in LAWS.items() if law.most_ratio not in ESTIMATED)
SOME_LAWS = 6
MOST_DEVICES, MOST_MICRO_BATCHES = 512, 64
SKIPS = "flash_attention"  # the one rewrite that changes FLOP: it skips the masked half

Items = tuple[Item, ...]


def job_inputs(seed: int, count: int, kind: str) -> list[Input]:
    """Random jobs as inputs."""
    return [
        Input(kind=kind, suffix=".yaml", data=dump_job(job).encode())
        for job in islice(random_jobs(seed), count)
    ]


def read_job(data: bytes) -> Job:
    """The job of an input.

    Raises
    ------
    SpecError
        It is none, or it contradicts itself.
    """
    return job_of(read_yaml(data, "input.yaml"))


def broken_laws(data: bytes) -> list[str]:
    """Return what a job breaks of some laws, which its contents choose."""
    job, random = read_job(data), Random(data)
    if job.plan.devices > MOST_DEVICES or job.plan.num_micro_batches > MOST_MICRO_BATCHES:
        return []
    laws = {name: LAWS[name] for name in random.sample(SAFE_LAWS, SOME_LAWS)}
    return [f"{one.law}: {one.step_s!r} → {one.changed_s!r} s" for one in violations(job, laws)]


def broken_passes(data: bytes) -> list[str]:
    """Return what goes wrong where the rewrites of a job's stack, and others, apply in a random order."""
    job, random = read_job(data), Random(data)
    names = [*rewrite_names(job.stack), *random.sample(sorted(REWRITES), random.randrange(8))]
    random.shuffle(names)
    order = tuple(name for name in dict.fromkeys(names) if name != SKIPS)
    software = job.stack.model_copy(update={"rewrites": order})
    workload = lower(job.model, one_plan(job.plan), job.batch)
    realise(workload, software)  # raises where a rewrite changes FLOP
    return [
        f"{layer.kind}: {fault}"
        for layer in workload.layers
        for fault in _faults(layer.forward, rewrite_names(software))
    ]


def _faults(items: Items, names: tuple[str, ...]) -> Iterator[str]:
    """Laws of one layer: FLOP stay, every tensor is made before it is read, disjoint rewrites commute."""
    for before, name in enumerate(names):
        rewritten = REWRITES[name](items)
        yield from _conserved(name, items, rewritten)
        for other in names[before + 1 :]:
            if SKIPS not in (name, other):
                yield from _commute(name, other, items)
        items = rewritten


def _conserved(name: str, items: Items, rewritten: Items) -> Iterator[str]:
    passes = [(part, derive_backward(part, frozenset())) for part in (items, rewritten)]
    if name != SKIPS:
        for pass_name, old, new in zip(("forward", "backward"), *passes, strict=True):
            if not np.allclose(totals(old)[0], totals(new)[0], rtol=1e-12):
                yield f"{name} changes the FLOP of the {pass_name}"
    made = {tensor for item in items for tensor in item.inputs} - {item.output for item in items}
    for item in rewritten:
        if not set(item.inputs) <= made:
            yield f"behind {name}, {item.name} reads what no item has made"
        made.add(item.output)
    if len({item.name for item in rewritten}) < len(rewritten):
        yield f"{name} gives two items one name"
    if items and rewritten[-1].output != items[-1].output:
        yield f"{name} loses the output"


def _commute(one: str, other: str, items: Items) -> Iterator[str]:
    """Rewrites that replace different items give the same items in either order."""
    first, second = REWRITES[one](items), REWRITES[other](items)
    gone = [{id(item) for item in items} - {id(item) for item in after} for after in (first, second)]
    if not gone[0] or not gone[1] or gone[0] & gone[1]:
        return
    both = [totals(after) for after in (REWRITES[other](first), REWRITES[one](second))]
    if not all(np.allclose(left, right, rtol=1e-12) for left, right in zip(*both, strict=True)):
        yield f"{one} and {other} replace different items, and their order changes FLOP or bytes"


def totals(items: Items) -> tuple[float, float]:
    """FLOP and moved bytes of the operators among items of one plan."""
    works = [(item.work.work(), item.count) for item in items if isinstance(item.work, AbstractOperator)]
    return (
        float(sum(np.sum(work.flop * count) for work, count in works)),
        float(sum(np.sum(work.moved_bytes * count) for work, count in works)),
    )


def broken_grid(data: bytes) -> list[str]:
    """Read a grid without searching it: a search of thousands of plans is no input of a fuzzer."""
    return [] if scenarios_in(read_yaml(data, "input.yaml")) else ["a grid has no scenario"]


CHECKS = {"laws": broken_laws, "passes": broken_passes}  # of jobs
ALL_CHECKS = CHECKS | {"grid": broken_grid}
