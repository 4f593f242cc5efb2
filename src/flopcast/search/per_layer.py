"""The best strategy of every block, by dynamic programming.

Answers: which strategy should each block of a plan have, so that the step is shortest and every stage fits?
Elsewhere: strategies (spec/layer_strategies.py), the strategies that are tried (block_options.py), their
prediction (workload/layer_strategies.py), the best plan with equal blocks (find.py).

As in Galvatron (arXiv:2211.13878), stages are independent: each stage gets the strategies with the least
time that fit into its memory. A dynamic program finds them block by block. Its state is the strategy of the
last block and the memory so far. Times and bytes of a block with a strategy are differences of exact
predictions in which all blocks of its kind have it, and changes of layout cost their messages. The memory
of a stage is the maximum over time of a sum over blocks, so it is convex: for mixed strategies, differences
of all blocks overestimate the memory, and those of one block underestimate it. The method tries both with
several budgets, and then small changes of the results. If a choice needs more memory than the host has,
this memory gets a price, which rises until the choice fits. Every result is predicted exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise, product

import numpy as np

from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.dtypes import Floats, Integers
from flopcast.errors import Problem, SpecError
from flopcast.fixes import set_to
from flopcast.kept_results import KeptResults
from flopcast.memory.peak import peak_memory
from flopcast.memory.tiers import outside_ratio
from flopcast.prediction import predict, priced_job, programs_of
from flopcast.records import Record, field
from flopcast.search.block_options import Option, options_of
from flopcast.search.reshard_costs import reshard_seconds
from flopcast.search.stage_strategies import best_of_stage
from flopcast.spec.job import Job
from flopcast.spec.layer_strategies import LayerStrategy
from flopcast.spec.plan import Plan
from flopcast.timeline.step import run_step
from flopcast.units import Number
from flopcast.workload.checks import check
from flopcast.workload.layouts import layout_of
from flopcast.workload.program import Programs

BUDGETS = ((1.0, 1.02, 1.05, 1.1), (1.0, 0.99, 0.97, 0.93))  # by all blocks, and by one
MOST_MOVES = 12  # of single blocks, each the best of all
WORSE = 2  # of these in a row that are no better than the best choice before
FEW_OPTIONS = 6  # of which moves try all; of more, only those that a choice has already
MOST_KEPT = 4096
ALIKE = ((), ("tensor_parallel",), ("tensor_parallel", "zero"))  # fields of options that are tried together
ALIKE_PLACED = ((), ("recompute",), ("offload",))
HOST_PRICES = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # of all of the host's memory, in steps
CHANGE_RATIO = 1e-5  # of the step that a change of strategy has to save
Choice = tuple[int, ...]  # the option of every block
Steps = dict[Plan, "Tried"]


class Tried(Record):
    """A plan with its step, without jitter; infinite if the plan does not fit or breaks a rule."""

    plan: Plan
    step_time_s: float


class PerLayer(Record, eq=False):
    """The best strategies that were found, and the best plan with equal blocks.

    `uniform` has an infinite step if no such plan fits. `predictions` counts all exact predictions.
    """

    job: Job  # with the best plan
    best: Tried
    uniform: Tried
    predictions: int

    @property
    def speedup_ratio(self) -> float:
        """Return the step time of the best plan with equal blocks, divided by that of the best plan."""
        return self.uniform.step_time_s / self.best.step_time_s


class _Search(Record, eq=False, kw_only=False):
    """A job and its options: the fields of every strategy that a block may have."""

    job: Job
    book: CurveBook
    options: tuple[Option, ...]
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
        """Return a plan whose blocks have the chosen options, except those that the plan itself already
        has.
        """
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


def best_per_layer(job: Job, book: CurveBook, *, placements: bool = False) -> PerLayer:
    """Return the best strategies of the blocks of a job's plan, on its stages and micro-batches.

    Parameters
    ----------
    placements : whether strategies differ in recompute and in placements on the host, as in AutoHete
        (arXiv:2503.01890), or else in tensor parallelism, ZeRO and recompute

    Raises
    ------
    SpecError
        The plan has several chunks per stage, strategies do not support the job, or no plan fits.
    """
    plan = job.plan.model_copy(update={"layers": ()})
    if plan.virtual_stages > 1:
        because = "a search for strategies of stages with several chunks is not supported yet"
        fix = set_to({"virtual_stages": 1})
        raise SpecError([Problem("plan.virtual_stages", plan.virtual_stages, "1", because, fix)])
    options = tuple(options_of(job, plan, placements=placements))
    search = _Search(job, book, options)
    uniform = min(
        (search.try_plan(layout_of(plan, option)) for option in options), key=lambda one: one.step_time_s
    )
    found = [uniform]
    for base in _bases(plan, options, uniform):
        choices = dict.fromkeys(_by_programs(search, base))
        tried = [(search.try_plan(search.mixed(base, choice)), choice) for choice in choices]
        if tried:  # if none of them fits, a choice near one of them may fit
            found.append(_moved(search, base, *min(tried, key=lambda one: one[0].step_time_s)))
    best = min(found, key=lambda one: one.step_time_s)
    if not np.isfinite(best.step_time_s):
        because = "no strategies of blocks fit on these stages with these micro-batches"
        raise SpecError(
            [Problem("plan", plan.short(), "a plan that can fit", because, "choose more stages or devices")]
        )
    return PerLayer(
        job=search.with_plan(best.plan), best=best, uniform=uniform, predictions=len(search.tried)
    )


def _bases(plan: Plan, options: Sequence[Option], uniform: Tried) -> tuple[Plan, ...]:
    """Return the layouts of the ends to try: the plan's, one with all states sharded, the best of alike."""
    most = max(int(str(option["zero"])) for option in options)
    sharded = {name: getattr(plan, name) for name in options[0]} | {"zero": most}
    bases = [plan, *([layout_of(plan, sharded)] if sharded in options else [])]
    bases += [uniform.plan] if np.isfinite(uniform.step_time_s) else []
    return tuple(dict.fromkeys(bases))


class _Prices(Record, eq=False):
    """What blocks take and need with every option, in addition to the plan's own.

    `block_s` has shape (options, blocks), `reshard_s` (options, options): seconds of a whole step.
    `block_bytes` has two arrays of shape (options, blocks): by predictions in which all blocks of a kind
    have the option, and in which one has it. `room_bytes` is the memory of every stage that is left.
    `host_share`, of shape (options, blocks), is the share of the host's memory that blocks take, and
    `host_room_share` what is left of it; `step_s` is the step of the plan.
    """

    own: int  # the option of the ends, and of blocks that no strategy names
    block_s: Floats
    block_bytes: tuple[Floats, Floats]
    reshard_s: Floats
    room_bytes: Floats  # (stages,)
    host_share: Floats
    host_room_share: float
    step_s: float
    bounds: Integers  # (stages + 1,): the blocks of every stage


def _by_programs(search: _Search, base: Plan) -> Iterator[Choice]:
    """Yield the choices of the dynamic program: for every budget, with all options and with fewer of them.

    What blocks take together is not quite the sum of what they take alone, least of all where their degrees
    differ: so options with the degree of the plan are tried by themselves, and those that only recompute
    otherwise.
    """
    prices = _prices(search, base)
    own = search.options[prices.own]
    for names in ALIKE_PLACED if "offload" in own else ALIKE:
        some = [
            place
            for place, option in enumerate(search.options)
            if all(option[name] == own[name] for name in names)
        ]
        for block_bytes, budgets in zip(prices.block_bytes, BUDGETS, strict=True):
            for budget in budgets:
                extra = (budget - 1.0) * search.job.cluster.node.device.memory_bytes
                yield from _inside_host(prices, np.array(some), block_bytes, extra)


def _inside_host(
    prices: _Prices, some: Integers, block_bytes: Floats, extra_bytes: Number
) -> Iterator[Choice]:
    """Yield the best choices for rising prices of the host's memory, until one fits into it."""
    for price in HOST_PRICES:
        priced_s = prices.block_s + price * prices.step_s * prices.host_share
        choice = _of_stages(prices, some, block_bytes, extra_bytes, priced_s)
        if choice is None:
            return
        yield choice
        if prices.host_share[list(choice), range(len(choice))].sum() <= prices.host_room_share:
            return


def _of_stages(
    prices: _Prices, some: Integers, block_bytes: Floats, extra_bytes: Number, priced_s: Floats
) -> Choice | None:
    """Return the best choice of `some` options for all stages; None if one has too little memory."""
    choice: list[int] = []
    own = int(np.flatnonzero(some == prices.own)[0])
    block_s, reshard_s = priced_s[some], prices.reshard_s[np.ix_(some, some)]
    for stage, (low, high) in enumerate(pairwise(prices.bounds.tolist())):
        room = prices.room_bytes[stage] + extra_bytes
        found = best_of_stage(block_s[:, low:high], block_bytes[some, low:high], reshard_s, room, own)
        if found is None:
            return None
        choice += found
    return tuple(int(some[place]) for place in choice)


def _prices(search: _Search, base: Plan) -> _Prices:
    """Return the prices of all options from exact predictions, one for each option and kind of blocks."""
    job = search.with_plan(base)
    counts = [block.count for block in job.model.blocks]
    blocks, edges = sum(counts), np.concatenate([[0], np.cumsum(counts)])
    programs = programs_of(job, search.kept)
    division = programs.stages.of(0)
    held = division.stage_counts[division.stage_class][:, 1 : 1 + len(counts)]
    of_block = np.repeat(np.arange(len(held)), held.sum(axis=1).astype(int))
    own_s, own_bytes, own_share = _exact(search, base)
    own_option = next(
        place for place in range(len(search.options)) if not search.mixed(base, (place,)).layers
    )
    block_s, by_all, by_one, host = (np.zeros((len(search.options), blocks)) for _ in range(4))
    for number, kind in product(range(len(search.options)), range(len(counts))):
        part = slice(edges[kind], edges[kind + 1])
        choice = np.full(blocks, own_option)
        choice[part] = number
        if number == own_option:
            continue
        step_s, stage_bytes, host_share = _exact(search, search.mixed(base, tuple(choice.tolist())))
        block_s[number, part] = (step_s - own_s) / counts[kind]
        host[number, part] = (host_share - own_share) / counts[kind]
        each = (stage_bytes - own_bytes) / np.maximum(held[:, kind], 1.0)
        by_all[number, part] = each[of_block[part]]
        choice[part.start + 1 : part.stop] = own_option
        _, stage_bytes, _ = _memory(search, search.mixed(base, tuple(choice.tolist())))
        stage = of_block[part.start]
        by_one[number, part] = stage_bytes[stage] - own_bytes[stage]
    tensors = [layout_of(base, option).tensor_parallel for option in search.options]
    change_s = CHANGE_RATIO * own_s * (1.0 - np.eye(len(tensors)))  # of equal choices, that with fewer runs
    return _Prices(
        own=own_option,
        block_s=block_s,
        block_bytes=(by_all, by_one),
        reshard_s=reshard_seconds(job, search.book, tensors, search.kept) + change_s,
        room_bytes=job.cluster.node.device.memory_bytes - own_bytes,
        host_share=host,
        host_room_share=1.0 - own_share,
        step_s=own_s,
        bounds=np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.intp),
    )


def _exact(search: _Search, plan: Plan) -> tuple[float, Floats, float]:
    """Return the step time of the devices, and what `_memory` returns about the memory of a plan.

    Without a loader: where it is the limit, it would hide what a strategy saves or costs.
    """
    programs, high_bytes, host_share = _memory(search, plan)
    priced = priced_job(search.with_plan(plan), programs, search.book, search.kept)
    return run_step(priced).step_time_s, high_bytes, host_share


def _memory(search: _Search, plan: Plan) -> tuple[Programs, Floats, float]:
    """Return the programs of a plan, the memory of each stage, and the memory of the host.

    The memory of a stage is the upper end of its 90 % interval, in bytes. The memory of the host is a
    fraction of its capacity.
    """
    job = search.with_plan(plan)
    programs = programs_of(job, search.kept)
    high_bytes = peak_memory(programs, search.kept).high_bytes[0][programs.stages.of(0).stage_class]
    return programs, high_bytes, float(outside_ratio(programs, job.cluster).max())


def _moved(search: _Search, base: Plan, best: Tried, choice: Choice) -> Tried:
    """Return the best plan of a series of near choices.

    A move may be slower, because it may free the memory that a faster choice needs. After WORSE such moves
    in a row, the series ends.
    """
    every, visited, worse = range(len(search.options)), {choice}, 0
    for _ in range(MOST_MOVES):
        options = every if len(every) <= FEW_OPTIONS else sorted(set(choice))
        others = [other for other in _near(choice, options) if other not in visited]
        tried = [(search.try_plan(search.mixed(base, other)), other) for other in others]
        nearest, choice = min(tried, key=lambda one: one[0].step_time_s, default=(best, choice))
        visited.add(choice)
        if nearest.step_time_s < best.step_time_s * (1.0 - CHANGE_RATIO):
            best, worse = nearest, 0
        elif (worse := worse + 1) == WORSE:
            break
    return best


def _near(choice: Choice, options: Iterable[int]) -> Iterator[Choice]:
    """Yield choices near another one, without more than one additional run of equal blocks.

    A block at the edge of a run takes another option, or the two blocks at an edge change places.

    >>> sorted(_near((0, 0, 1), (0, 1)))
    [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 1)]
    """
    runs = len(list(groupby(choice)))
    edges = [at for at in range(1, len(choice)) if choice[at] != choice[at - 1]]
    ends = sorted({0, len(choice) - 1, *edges, *(at - 1 for at in edges)})
    near = [(*choice[:at], option, *choice[at + 1 :]) for at, option in product(ends, options)]
    near += [(*choice[: at - 1], choice[at], choice[at - 1], *choice[at + 1 :]) for at in edges]
    for changed in near:
        if changed != choice and len(list(groupby(changed))) <= runs + 1:
            yield changed
