"""The division of a job over unequal parts: blocks of stages, or micro-batches of replicas.

Answers: how many blocks do the stages on each group of nodes hold, or how many micro-batches do the
replicas of each group run, so that all groups take equally long? How many blocks do stages with slow parts
hold?
Elsewhere: groups of nodes (spec/node_groups.py), slow parts (spec/slow_parts.py), the simulation of a
division (timeline/step.py).

If each stage runs on one group, blocks are moved between the stages of groups. If each replica runs on one
group, micro-batches are moved between replicas. In a job with slow parts, stages of equal speed form such a
group. Beginning with an equal division, the method makes the move that shortens the simulated step most,
until no move shortens the step. Divisions that do not fit into memory are left out.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from math import gcd
from typing import TypedDict

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.cost.parts import layout_of
from flopcast.errors import Problem, SpecError
from flopcast.prediction import predict
from flopcast.records import Record
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.node_groups import groups_of_stages, replicas_of_groups

MOST_MOVES = 200
Parts = tuple[int, ...]  # of each group: blocks of all its stages, or micro-batches of each of its replicas
Steps = dict[Parts, float]


class Divided(TypedDict):
    """The fields of every division."""

    job: Job
    parts: Parts
    step_time_s: float
    equal_step_time_s: float


class GroupDivision(Record, eq=False):
    """The best division that was found.

    The steps of this division and of the equal division are both without jitter.

    `what` is "blocks" or "micro_batches". `parts` is the number of these for each group: blocks of all its
    stages, or micro-batches of each of its replicas. `names` are the names of the groups.
    `equal_step_time_s` is infinite if equal parts do not fit.
    """

    job: Job
    what: str
    parts: Parts
    names: tuple[str, ...]
    step_time_s: float
    equal_step_time_s: float

    @property
    def speedup_ratio(self) -> float:
        """Return the step with equal parts, divided by the step with this division."""
        return self.equal_step_time_s / self.step_time_s


def best_group_division(job: Job, book: CurveBook) -> GroupDivision:
    """Return the best division of a job over the groups of its cluster, or over stages with slow parts.

    Raises
    ------
    SpecError
        The cluster has one group and no slow stage, both stages and replicas run on several groups, or no
        division fits.
    """
    if len(job.cluster.groups) == 1:
        kinds = _speeds_of_stages(job)
        if len(set(kinds)) == 1 or job.plan.virtual_stages > 1:
            raise _refused(
                "one group",
                "several groups or slow parts (--slow), and a plan without interleaved stages",
                "all stages are equally fast or interleaved, so flopcast divides the work evenly",
                "describe the groups",
            )
        return _divided_blocks(job, book, kinds, _stages_by_name(kinds))
    stages, replicas = groups_of_stages(job.plan, job.cluster), replicas_of_groups(job.plan, job.cluster)
    names = tuple(
        f"{group.count} × {group.node.devices} {group.node.device.name}" for group in job.cluster.groups
    )
    if all(len(groups) == 1 for groups in stages) and job.plan.virtual_stages == 1:
        return _divided_blocks(job, book, tuple(group for groups in stages for group in groups), names)
    if replicas is not None and job.plan.virtual_stages == 1:
        start = (job.plan.num_micro_batches,) * len(replicas)
        found = _divided(job, book, start, replicas, lambda parts: _with_micro_batches(job, parts))
        return GroupDivision(what="micro_batches", names=names, **found)
    allowed = "a plan without interleaved stages in which each stage, or each replica, runs on one group"
    because = "only such a plan can give groups different numbers of blocks or of micro-batches"
    raise _refused(job.plan.short(), allowed, because, "change the degrees or the rank order of the plan")


def _speeds_of_stages(job: Job) -> tuple[int, ...]:
    """Return a number for each stage; stages whose devices, hosts and links are equally fast share one."""
    layout = layout_of(job.plan, job.cluster, job.site, ())
    if layout is None:
        return (0,) * job.plan.pipeline_parallel
    speeds = list(zip(*(pattern.rows for pattern in layout.patterns), strict=True))
    numbers = {speed: number for number, speed in enumerate(dict.fromkeys(speeds))}
    return tuple(numbers[speed] for speed in speeds)


def _stages_by_name(kinds: tuple[int, ...]) -> tuple[str, ...]:
    """Return what to call the stages of each kind.

    >>> _stages_by_name((0, 1, 0))
    ('stages 0, 2', 'stage 1')
    """
    found = []
    for each in range(max(kinds) + 1):
        members = [str(stage) for stage, kind in enumerate(kinds) if kind == each]
        found.append(f"stage{'s' * (len(members) > 1)} {', '.join(members)}")
    return tuple(found)


def _divided_blocks(
    job: Job, book: CurveBook, kinds: tuple[int, ...], names: tuple[str, ...]
) -> GroupDivision:
    """Return the best division of blocks over stages of these kinds."""
    each = divided_over_chunks(job.model.num_blocks, len(kinds))
    start = tuple(
        sum(blocks for blocks, own in zip(each, kinds, strict=True) if own == kind)
        for kind in range(len(names))
    )
    found = _divided(job, book, start, [1] * len(start), lambda parts: _with_blocks(job, kinds, parts))
    return GroupDivision(what="blocks", names=names, **found)


def _divided(
    job: Job, book: CurveBook, start: Parts, weights: list[int], made: Callable[[Parts], Job]
) -> Divided:
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
    equal_s = step_s(start)
    return {"job": made(best), "parts": best, "step_time_s": steps[best], "equal_step_time_s": equal_s}


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


def _with_blocks(job: Job, kinds: tuple[int, ...], parts: Parts) -> Job:
    """Return the job whose stages of each kind hold so many blocks together."""
    layers = []
    for stage, kind in enumerate(kinds):
        whole, more = divmod(parts[kind], kinds.count(kind))
        layers.append(whole + (kinds[:stage].count(kind) < more))
    return job.with_part("plan", stage_layers=tuple(layers))


def _with_micro_batches(job: Job, parts: Parts) -> Job:
    """Return the job whose replicas on each group run so many micro-batches."""
    groups = tuple(
        group.model_copy(update={"micro_batches": each})
        for group, each in zip(job.cluster.groups, parts, strict=True)
    )
    return job.with_part("cluster", groups=groups)


def _refused(value: str, allowed: str, because: str, fix: str) -> SpecError:
    return SpecError([Problem("cluster.groups", value, allowed, because, fix)])
