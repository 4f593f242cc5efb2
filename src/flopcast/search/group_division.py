"""The division of a job over unequal groups of nodes: blocks of stages, or micro-batches of replicas.

Answers: how many blocks do the stages on each group hold, or how many micro-batches do its replicas run, so
that the groups need equally long?
Elsewhere: groups of nodes (spec/node_groups.py), the simulation of a division (timeline/step.py).

Where each stage runs on one group, blocks are moved between the stages of groups; where each replica does,
micro-batches between replicas. From equal parts on, the move that shortens the simulated step most is made
until none does. Divisions that do not fit into memory are left out.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from math import gcd

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import Problem, SpecError
from flopcast.prediction import predict
from flopcast.records import dataclass
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.node_groups import groups_of_stages, replicas_of_groups

MOST_MOVES = 200
Parts = tuple[int, ...]  # of each group: blocks of all its stages, or micro-batches of each of its replicas
Steps = dict[Parts, float]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class GroupDivision:
    """The best division that was found, and its step beside that of equal parts, both without jitter.

    `what` is "blocks" or "micro_batches", `parts` how many of these each group has: blocks of all its
    stages, or micro-batches of each of its replicas. `equal_step_time_s` is infinite if equal parts do not
    fit.
    """

    job: Job
    what: str
    parts: Parts
    step_time_s: float
    equal_step_time_s: float

    @property
    def speedup_ratio(self) -> float:
        """Return the step with equal parts over the step with this division."""
        return self.equal_step_time_s / self.step_time_s


def best_group_division(job: Job, book: CurveBook) -> GroupDivision:
    """Return the best division of a job over the groups of its cluster.

    Raises
    ------
    SpecError
        The cluster has one group, stages and replicas both run on several groups, or no division fits.
    """
    if len(job.cluster.groups) == 1:
        raise _refused(
            "one group",
            "several groups",
            "all nodes are equal, so flopcast divides the work evenly",
            "describe the groups",
        )
    stages, replicas = groups_of_stages(job.plan, job.cluster), replicas_of_groups(job.plan, job.cluster)
    if all(len(groups) == 1 for groups in stages) and job.plan.virtual_stages == 1:
        counts = [sum(groups == {each} for groups in stages) for each in range(len(job.cluster.groups))]
        each = divided_over_chunks(job.model.num_blocks, len(stages))
        start = tuple(sum(each[sum(counts[:g]) : sum(counts[: g + 1])]) for g in range(len(counts)))
        weights = [1] * len(counts)
        return _divided(job, book, "blocks", start, weights, lambda parts: _with_blocks(job, counts, parts))
    if replicas is not None and job.plan.virtual_stages == 1:
        start = (job.plan.num_micro_batches,) * len(replicas)
        return _divided(
            job, book, "micro_batches", start, replicas, lambda parts: _with_micro_batches(job, parts)
        )
    allowed = "a plan without interleaved stages in which each stage, or each replica, runs on one group"
    because = "only such a plan can give groups different numbers of blocks or of micro-batches"
    raise _refused(job.plan.short(), allowed, because, "change the degrees or the rank order of the plan")


def _divided(
    job: Job, book: CurveBook, what: str, start: Parts, weights: list[int], made: Callable[[Parts], Job]
) -> GroupDivision:
    """Return the division that no move between two groups improves; `weights` are those of `_moved`."""
    steps: Steps = {}

    def step_s(parts: Parts) -> float:
        if parts not in steps:
            try:
                report = predict(made(parts), book)
                steps[parts] = report.clean_step_time_s if report.memory.fits else float("inf")
            except SpecError:  # more than a rule of the plan allows
                steps[parts] = float("inf")
        return steps[parts]

    best = start
    for _ in range(MOST_MOVES):
        nearest = min(_moved(best, weights), key=step_s, default=best)
        if step_s(nearest) >= step_s(best):
            break
        best = nearest
    if steps[best] == float("inf"):
        raise _refused(job.plan.short(), "a plan that fits", "no division fits", "use more stages or nodes")
    return GroupDivision(
        job=made(best), what=what, parts=best, step_time_s=steps[best], equal_step_time_s=step_s(start)
    )


def _moved(parts: Parts, weights: list[int]) -> Iterator[Parts]:
    """Yield the divisions in which one group gives the least that another can take.

    A part of a group counts `weights` times: once for blocks, for each replica for micro-batches.
    """
    for giver, taker in permutations(range(len(parts)), 2):
        common = gcd(weights[giver], weights[taker])
        changed = list(parts)
        changed[giver] -= weights[taker] // common
        changed[taker] += weights[giver] // common
        if changed[giver] > 0:
            yield tuple(changed)


def _with_blocks(job: Job, counts: list[int], parts: Parts) -> Job:
    """Return the job whose stages on each group hold so many blocks together."""
    layers = [
        blocks // stages + (place < blocks % stages)
        for stages, blocks in zip(counts, parts, strict=True)
        for place in range(stages)
    ]
    return job.model_copy(update={"plan": job.plan.model_copy(update={"stage_layers": tuple(layers)})})


def _with_micro_batches(job: Job, parts: Parts) -> Job:
    """Return the job whose replicas on each group run so many micro-batches."""
    groups = tuple(
        group.model_copy(update={"micro_batches": each})
        for group, each in zip(job.cluster.groups, parts, strict=True)
    )
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": groups})})


def _refused(value: str, allowed: str, because: str, fix: str) -> SpecError:
    return SpecError([Problem("cluster.groups", value, allowed, because, fix)])
