"""The best strategy of every block: tensor parallelism, ZeRO and recompute, by dynamic programming.

Answers: which blocks of a plan should have a strategy of their own, so that the step is shortest and every
stage fits?
Elsewhere: what a strategy is (spec/layer_strategies.py), its prediction (workload/layer_strategies.py), the
best plan whose blocks are alike (find.py).

As in Galvatron (arXiv:2211.13878), stages are independent: each has the strategies with the least time that
fit into its memory, found block by block, where the state is the strategy of the last block and the memory
so far. Times and bytes of a block with a strategy are differences of exact predictions in which all blocks
of its kind have it, and changes of layout cost their messages. The memory of a stage is the maximum over
moments of sums over blocks: a mixture never needs more than the differences say, and some that seem too
large fit. So several budgets are tried, and moves of single blocks follow. Every result is predicted
exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby, product

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats, Integers
from flopcast.errors import Problem, SpecError
from flopcast.kept_results import KeptResults
from flopcast.memory.peak import peak_memory
from flopcast.prediction import predict, programs_of
from flopcast.search.reshard_costs import reshard_seconds
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import LayerStrategy
from flopcast.spec.plan import Plan
from flopcast.units import Number
from flopcast.workload.checks import check
from flopcast.workload.layouts import layout_of

BUCKETS = 256  # of the memory of a stage
BUDGETS = (1.0, 1.02, 1.05, 1.1)  # of the memory that the differences may say, before the exact check
MOST_MOVES = 12  # of single blocks, each the best of all
MOST_KEPT = 4096
CHANGE_RATIO = 1e-5  # of the step that a change of strategy has to save
RECOMPUTES = ("none", "selective", "full")
Choice = tuple[int, ...]  # the option of every block
Steps = dict[Plan, "Tried"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """A plan with its step, without jitter; infinite if it does not fit, or breaks a rule."""

    plan: Plan
    step_time_s: float


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PerLayer:
    """The best strategies that were found, and the best plan whose blocks are alike.

    `uniform` has an infinite step if no such plan fits. `predictions` counts all exact predictions.
    """

    job: Job  # with the best plan
    best: Tried
    uniform: Tried
    predictions: int

    @property
    def speedup_ratio(self) -> float:
        """Return the step of the best plan whose blocks are alike over the step of the best plan."""
        return self.uniform.step_time_s / self.best.step_time_s


@dataclass(frozen=True, eq=False, slots=True)
class _Search:
    """A job and its options: the fields of every strategy that a block may have."""

    job: Job
    book: CurveBook
    options: tuple[dict[str, object], ...]
    kept: KeptResults = field(default_factory=lambda: KeptResults(MOST_KEPT))
    tried: Steps = field(default_factory=dict)

    def with_plan(self, plan: Plan) -> Job:
        """Return the job with a plan."""
        return self.job.model_copy(update={"plan": plan})

    def try_plan(self, plan: Plan) -> Tried:
        """Return a plan with its exact step."""
        if plan not in self.tried:
            step_s = float("inf")
            job = self.with_plan(plan)
            if not check(job):
                report = predict(job, self.book, self.kept)
                if report.memory.verdict == "fits":
                    step_s = report.clean_step_time_s
            self.tried[plan] = Tried(plan=plan, step_time_s=step_s)
        return self.tried[plan]

    def mixed(self, base: Plan, choice: Choice) -> Plan:
        """Return a plan whose blocks have the options of a choice, without what the plan itself says."""
        found, before = [], 0
        for option, blocks in groupby(choice):
            number = len(list(blocks))
            changes = {
                name: value for name, value in self.options[option].items() if getattr(base, name) != value
            }
            if changes:
                found.append(LayerStrategy(first=before, last=before + number - 1, **changes))
            before += number
        return base.model_copy(update={"layers": tuple(found)})


def best_per_layer(job: Job, book: CurveBook) -> PerLayer:
    """Return the best strategies of the blocks of a job's plan, on its stages and micro-batches.

    Raises
    ------
    SpecError
        The plan has several chunks for each stage, the job is one that strategies do not go with, or
        nothing fits.
    """
    plan = job.plan.model_copy(update={"layers": ()})
    if plan.virtual_stages > 1:
        because = "a search for strategies of stages with several chunks is not supported yet"
        fix = "set virtual_stages to 1"
        raise SpecError([Problem("plan.virtual_stages", plan.virtual_stages, "1", because, fix)])
    options = tuple(_options(job, plan))
    search = _Search(job, book, options)
    uniform = min(
        (search.try_plan(layout_of(plan, option)) for option in options), key=lambda one: one.step_time_s
    )
    bases = dict.fromkeys((plan, *([uniform.plan] if np.isfinite(uniform.step_time_s) else [])))
    found = [uniform]
    for base in bases:
        choices = [each for each in _by_programs(search, base) if each is not None]
        tried = [(search.try_plan(search.mixed(base, choice)), choice) for choice in choices]
        fit = [one for one in tried if np.isfinite(one[0].step_time_s)]
        if fit:
            found.append(_moved(search, base, *min(fit, key=lambda one: one[0].step_time_s)))
    best = min(found, key=lambda one: one.step_time_s)
    if not np.isfinite(best.step_time_s):
        because = "no strategies of blocks fit on these stages with these micro-batches"
        raise SpecError(
            [Problem("plan", plan.short(), "a plan that can fit", because, "choose more stages or devices")]
        )
    return PerLayer(
        job=search.with_plan(best.plan), best=best, uniform=uniform, predictions=len(search.tried)
    )


def _options(job: Job, plan: Plan) -> Iterator[dict[str, object]]:
    """Yield the strategies that blocks may have, the plan's own first: those whose layouts keep all rules.

    Raises
    ------
    SpecError
        No strategy goes with the job.
    """
    ranks = plan.data_parallel * plan.tensor_parallel
    domain = job.cluster.scale_up_devices
    own = {name: getattr(plan, name) for name in ("tensor_parallel", "zero", "recompute")}
    yield own
    degrees = [one for one in divisors(ranks) if one <= domain]
    degrees = [
        one for one in degrees if max(one, plan.tensor_parallel) % min(one, plan.tensor_parallel) == 0
    ]
    zeros = sorted(set(job.stack.sharding.zero_stages)) if ranks > 1 else [plan.zero]
    problems: tuple[Problem, ...] = ()
    others = 0
    for degree, zero, recompute in product(degrees, zeros, RECOMPUTES):
        option = {"tensor_parallel": degree, "zero": zero, "recompute": recompute}
        changes = {name: value for name, value in option.items() if value != own[name]}
        if not changes or (zero and ranks == degree):
            continue
        strategy = LayerStrategy(first=0, last=job.model.num_blocks - 1, **changes)
        faults = check(job.model_copy(update={"plan": plan.model_copy(update={"layers": (strategy,)})}))
        problems = problems or faults
        if not faults:
            others += 1
            yield option
    if not others and problems:
        raise SpecError(problems[:1])


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Prices:
    """What blocks take and need with every option, in addition to the plan's own.

    `block_s` and `block_bytes` have shape (options, blocks), `reshard_s` (options, options): seconds of a
    whole step. `room_bytes` of every stage is its memory without its blocks' differences.
    """

    block_s: Floats
    block_bytes: Floats
    reshard_s: Floats
    room_bytes: Floats  # (stages,)
    bounds: Integers  # (stages + 1,): the blocks of every stage


def _by_programs(search: _Search, base: Plan) -> Iterator[Choice | None]:
    """Yield the choice of the dynamic program for every budget; None where no choice keeps it."""
    prices = _prices(search, base)
    for budget in BUDGETS:
        choice: list[int] = []
        capacity = search.job.cluster.node.device.memory_bytes
        for stage, (low, high) in enumerate(zip(prices.bounds[:-1], prices.bounds[1:], strict=True)):
            room = prices.room_bytes[stage] + (budget - 1.0) * capacity
            found = _of_stage(
                prices.block_s[:, low:high], prices.block_bytes[:, low:high], prices.reshard_s, room
            )
            if found is None:
                break
            choice += found
        yield tuple(choice) if len(choice) == prices.bounds[-1] else None


def _prices(search: _Search, base: Plan) -> _Prices:
    """Return the prices of all options from exact predictions, one for each option and kind of blocks."""
    job = search.with_plan(base)
    counts = [block.count for block in job.model.blocks]
    blocks, edges = sum(counts), np.concatenate([[0], np.cumsum(counts)])
    programs = programs_of(job, search.kept)
    division = programs.stages.of(0)
    held = division.stage_counts[division.stage_class][:, 1 : 1 + len(counts)]
    of_block = np.repeat(np.arange(len(held)), held.sum(axis=1).astype(int))
    own_s, own_bytes = _exact(search, base)
    block_s, block_bytes = (np.zeros((len(search.options), blocks)) for _ in range(2))
    for number in range(len(search.options)):
        for kind, count in enumerate(counts):
            own = [0] * len(counts)
            own[kind] = number
            choice = tuple(np.repeat(own, counts).tolist())
            plan = search.mixed(base, choice)
            if not plan.layers:
                continue
            step_s, stage_bytes = _exact(search, plan)
            part = slice(edges[kind], edges[kind + 1])
            block_s[number, part] = (step_s - own_s) / count
            here = held[:, kind] > 0
            each = np.where(here, (stage_bytes - own_bytes) / np.maximum(held[:, kind], 1.0), 0.0)
            block_bytes[number, part] = each[of_block[part]]
    tensors = [int(str(option["tensor_parallel"])) for option in search.options]
    change_s = CHANGE_RATIO * own_s * (1.0 - np.eye(len(tensors)))  # of equal choices, that with fewer runs
    return _Prices(
        block_s=block_s,
        block_bytes=block_bytes,
        reshard_s=reshard_seconds(job, search.book, tensors, search.kept) + change_s,
        room_bytes=job.cluster.node.device.memory_bytes - own_bytes,
        bounds=np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.intp),
    )


def _exact(search: _Search, plan: Plan) -> tuple[Number, Floats]:
    """Return the step of a plan, and the high end of the memory of every stage."""
    job = search.with_plan(plan)
    programs = programs_of(job, search.kept)
    high_bytes = peak_memory(programs).high_bytes[0][programs.stages.of(0).stage_class]
    return predict(job, search.book, search.kept).clean_step_time_s, high_bytes


def _of_stage(
    block_s: Floats, block_bytes: Floats, reshard_s: Floats, room_bytes: Number
) -> list[int] | None:
    """Return the options of the blocks of one stage with the least time inside the room, or None.

    Parameters
    ----------
    block_s, block_bytes : arrays of shape (options, blocks)
    reshard_s : array of shape (options, options)
        Of a change of layout; a stage begins and ends in the layout of the first option.
    room_bytes : number
        What the blocks may need together.

    Examples
    --------
    Two blocks, of which one has to take the slower option that needs less:

    >>> seconds, need = np.array([[0.0, 0.0], [1.0, 3.0]]), np.array([[4.0, 4.0], [0.0, 0.0]])
    >>> _of_stage(seconds, need, np.zeros((2, 2)), 4.0)
    [1, 0]
    """
    least = block_bytes.min(axis=0)
    room = room_bytes - least.sum()
    if room < 0:
        return None
    width = max(room, 1.0) / BUCKETS
    need = np.ceil((block_bytes - least) / width - 1e-9).astype(np.intp)
    options, blocks = block_s.shape
    level = np.full(
        (options, BUCKETS + 1), np.inf
    )  # least seconds by last option and buckets that are used
    before: list[Integers] = []
    for block in range(blocks):
        if block == 0:
            start = np.full((options, BUCKETS + 1), np.inf)
            start[:, 0] = reshard_s[0]
            came = np.zeros((options, BUCKETS + 1), dtype=np.intp)
        else:
            through = level[:, None] + reshard_s[:, :, None]
            came = through.argmin(axis=0)
            start = through.min(axis=0)
        level = np.full((options, BUCKETS + 1), np.inf)
        for option in range(options):
            shift = need[option, block]
            if shift <= BUCKETS:
                level[option, shift:] = start[option, : BUCKETS + 1 - shift] + block_s[option, block]
        before.append(came)
    last_s = level + reshard_s[:, :1]
    if not np.isfinite(last_s).any():
        return None
    option, bucket = (int(at) for at in np.unravel_index(last_s.argmin(), last_s.shape))
    choice = []
    for block in range(blocks - 1, -1, -1):
        choice.append(option)
        bucket -= int(need[option, block])
        option = int(before[block][option, bucket])
    return choice[::-1]


def _moved(search: _Search, base: Plan, best: Tried, choice: Choice) -> Tried:
    """Return the plan that no change of one block at the edge of a run improves."""
    for _ in range(MOST_MOVES):
        tried = [(search.try_plan(search.mixed(base, other)), other) for other in _near(choice)]
        nearest, other = min(tried, key=lambda one: one[0].step_time_s, default=(best, choice))
        if nearest.step_time_s >= best.step_time_s * (1.0 - CHANGE_RATIO):
            break
        best, choice = nearest, other
    return best


def _near(choice: Choice) -> Iterator[Choice]:
    """Yield choices in which one block at the edge of a run joins its neighbours, or another used option.

    >>> sorted(_near((0, 0, 1)))
    [(0, 0, 0), (0, 1, 1), (1, 0, 1)]
    """
    used = sorted(set(choice))
    edges = {0, len(choice) - 1}
    edges |= {at for at in range(1, len(choice)) if choice[at] != choice[at - 1]}
    edges |= {at - 1 for at in edges if at}
    for at, option in product(sorted(edges), used):
        changed = (*choice[:at], option, *choice[at + 1 :])
        runs = len(list(groupby(changed)))
        if changed != choice and runs <= len(list(groupby(choice))) + 1:
            yield changed
