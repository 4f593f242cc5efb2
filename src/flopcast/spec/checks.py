"""Validity rules: which combinations of model, cluster, plan, stack and batch are possible and built.

Answers: what is wrong with this job, all at once; which plans of a batch are possible?
A rule is a predicate over arrays, shape (plans, 1): `check` tells its violations as Problems, `valid`
uses the same rules as masks. What is not built yet is refused by a rule, never accepted and ignored.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import Problem
from flopcast.spec.batch import Batch
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.model import Model
from flopcast.spec.plan import Plans, one_plan
from flopcast.spec.stack import Stack


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Case:
    """What a rule looks at: one of each noun, and any number of plans of one structure."""

    model: Model
    cluster: Cluster
    stack: Stack
    batch: Batch
    plans: Plans


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Rule:
    """One condition, and how to tell that it is broken.

    Attributes
    ----------
    field : str
        What to blame, as the user writes it.
    holds : callable
        True where the rule is kept: an array of shape (plans, 1), or one truth value where the rule
        looks at the structure alone.
    value, allowed, fix : callables
        Texts about the first plan; they run only where the rule is broken. A fix starts with an edit
        ("set NAME to VALUE") that keeps the rule.
    because : str
        Why there is such a rule at all: a reader who knows it can choose another edit.
    """

    field: str
    holds: Callable[[Case], Counts | np.ndarray | bool]
    value: Callable[[Case], object]
    allowed: Callable[[Case], str]
    because: str
    fix: Callable[[Case], str]


def check(job: Job) -> tuple[Problem, ...]:
    """Every rule that the job breaks.

    Returns
    -------
    tuple of Problem
        In the order of `RULES`, without places: only a reader of files knows lines. Empty where the
        job can be predicted.
    """
    case = Case(
        model=job.model, cluster=job.cluster, stack=job.stack, batch=job.batch, plans=one_plan(job.plan)
    )
    return tuple(
        Problem(
            field=rule.field,
            value=rule.value(case),
            allowed=rule.allowed(case),
            because=rule.because,
            fix=rule.fix(case),
        )
        for rule in RULES
        if not np.all(rule.holds(case))
    )


def valid(case: Case) -> np.ndarray:
    """Mask of shape (plans, 1): plans that keep every rule.

    The same predicates as in `check`, so that search and a single prediction never disagree about a plan.
    """
    mask = np.ones((case.plans.size, 1), dtype=bool)
    for rule in RULES:
        mask &= np.broadcast_to(rule.holds(case), mask.shape)
    return mask


def _first(values: Counts) -> int:
    """The first plan's number: rules are told about it."""
    return int(values[0, 0])


def _divisors(number: int, most: int = 10**9) -> str:
    """The divisors as a reader wants them, the middle left out of long lists."""
    found = [d for d in range(1, number + 1) if number % d == 0 and d <= most]
    return ", ".join(map(str, found if len(found) <= 16 else [*found[:8], "…", *found[-3:]]))


def _nearest_divisor(number: int, wanted: int) -> int:
    """The divisor that changes least; of two the smaller, which needs fewer devices."""
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wanted), d))


def _not_built(field: str, attribute: str, only: object, word: str) -> Rule:
    """A degree or mode of which only one value is built.

    The field stays in the plan: its users see that it is known, and which value is meant meanwhile.
    `attribute` may be a degree, an array over plans, or part of the structure.
    """

    def value(case: Case) -> object:
        column = getattr(case.plans, attribute, None)
        return getattr(case.plans.structure, attribute) if column is None else _first(column)

    def holds(case: Case) -> np.ndarray | bool:
        column = getattr(case.plans, attribute, None)
        if column is None:
            return bool(getattr(case.plans.structure, attribute) == only)
        kept: np.ndarray = column == only
        return kept

    return Rule(
        field=field,
        holds=holds,
        value=value,
        allowed=lambda _: str(only),
        because=f"{word} is not built yet",
        fix=lambda _: f"leave {field.rpartition('.')[2]} at {only}",
    )


def _heads(case: Case) -> int:
    """What a tensor-parallel degree must divide: it cuts the heads of all runs of blocks alike."""
    return int(np.gcd.reduce([block.mixer.heads for block in case.model.blocks]))


def _kv_fits(case: Case) -> np.ndarray:
    """Fewer key/value heads than ranks are repeated, but each rank holds whole ones."""
    tensor = case.plans.tensor_parallel
    kept = np.ones(tensor.shape, dtype=bool)
    for block in case.model.blocks:
        if block.mixer.groups != block.mixer.heads:  # else the rule of heads says it already
            kept &= (block.mixer.groups % tensor == 0) | (tensor % block.mixer.groups == 0)
    return kept


def _devices(case: Case) -> Counts:
    """Devices that each plan uses, shape (plans, 1)."""
    plans = case.plans
    return plans.data_parallel * plans.tensor_parallel * plans.pipeline_parallel * plans.context_parallel


def _fitting_degrees(case: Case) -> str:
    """The edit that makes a plan use every device."""
    used, there = _first(_devices(case)), case.cluster.num_devices
    others = used // _first(case.plans.data_parallel)
    if there % others == 0:
        return f"set data_parallel to {there // others}"
    return f"choose degrees whose product is {there}"


def _per_step(case: Case) -> Counts:
    """Sequences of one micro-batch on all replicas: what a global batch is counted in."""
    return case.plans.data_parallel * case.plans.micro_batch


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: _heads(c) % c.plans.tensor_parallel == 0,
        value=lambda c: _first(c.plans.tensor_parallel),
        allowed=lambda c: f"a divisor of heads = {_heads(c)}: {_divisors(_heads(c))}",
        because="each tensor-parallel rank holds whole attention heads",
        fix=lambda c: (
            f"set tensor_parallel to {_nearest_divisor(_heads(c), _first(c.plans.tensor_parallel))}"
        ),
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=_kv_fits,
        value=lambda c: _first(c.plans.tensor_parallel),
        allowed=lambda c: f"a divisor or multiple of kv_heads = {c.model.blocks[0].mixer.groups}",
        because="key/value heads are split whole or repeated whole",
        fix=lambda c: f"set tensor_parallel to {c.model.blocks[0].mixer.groups}",
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: np.logical_and.reduce(
            [block.feed_forward.ffn_hidden % c.plans.tensor_parallel == 0 for block in c.model.blocks]
        ),
        value=lambda c: _first(c.plans.tensor_parallel),
        allowed=lambda c: f"a divisor of ffn_hidden = {c.model.blocks[0].feed_forward.ffn_hidden}",
        because="the inner width of the MLP is cut evenly",
        fix=lambda _: "choose a tensor_parallel that divides it",
    ),
    Rule(
        field="plan.sequence_parallel",
        holds=lambda c: (
            not c.plans.structure.sequence_parallel
            or c.batch.sequence_length % c.plans.tensor_parallel == 0
        ),
        value=lambda _: True,
        allowed=lambda _: "only where tensor_parallel divides sequence_length",
        because="norms are cut along the sequence",
        fix=lambda _: "set sequence_parallel to false",
    ),
    Rule(
        field="plan.pipeline_parallel",
        holds=lambda c: (
            c.stack.pipeline.partition != "even"
            or c.model.num_blocks % (c.plans.pipeline_parallel * c.plans.virtual_stages) == 0
        ),
        value=lambda c: (
            f"{_first(c.plans.pipeline_parallel)} stages × {_first(c.plans.virtual_stages)} virtual"
        ),
        allowed=lambda c: (
            f"stages · virtual stages that divide {c.model.num_blocks} blocks: "
            f"{_divisors(c.model.num_blocks)}"
        ),
        because="this stack gives every chunk the same number of blocks",
        fix=lambda c: (
            "set pipeline_parallel to "
            f"{_nearest_divisor(c.model.num_blocks, _first(c.plans.pipeline_parallel))}"
            " and virtual_stages to 1"
        ),
    ),
    Rule(
        field="plan.pipeline_parallel",
        holds=lambda c: c.model.num_blocks + 3 >= c.plans.pipeline_parallel,
        value=lambda c: _first(c.plans.pipeline_parallel),
        allowed=lambda c: f"at most {c.model.num_blocks + 3}",
        because="a stage needs at least one layer",
        fix=lambda c: f"set pipeline_parallel to {c.model.num_blocks}",
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.plans.pipeline_parallel > 1),
        value=lambda c: _first(c.plans.virtual_stages),
        allowed=lambda _: "1 without pipeline stages",
        because="chunks are interleaved over stages",
        fix=lambda _: "set virtual_stages to 1",
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.stack.pipeline.partition == "even"),
        value=lambda c: _first(c.plans.virtual_stages),
        allowed=lambda _: "1 on this stack",
        because="its rule for dividing layers knows no virtual stages",
        fix=lambda _: "set virtual_stages to 1 or choose another stack",
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.stack.pipeline.transfers != "sequential"),
        value=lambda c: _first(c.plans.virtual_stages),
        allowed=lambda _: "1 on a stack with sequential transfers",
        because="interleaved stages that block on one message after the other wait for each other forever",
        fix=lambda _: "set virtual_stages to 1, or stack.pipeline.transfers to batched",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: (
            (c.plans.virtual_stages == 1) == (c.plans.structure.pipeline_schedule != "interleaved_1f1b")
        ),
        value=lambda c: c.plans.structure.pipeline_schedule,
        allowed=lambda _: "interleaved_1f1b exactly where virtual_stages > 1",
        because="the schedule and the number of chunks must agree",
        fix=lambda _: "set schedule to auto",
    ),
    Rule(
        field="plan.global_batch",
        holds=lambda c: (c.plans.global_batch % _per_step(c) == 0) & (c.plans.global_batch >= _per_step(c)),
        value=lambda c: _first(c.plans.global_batch),
        allowed=lambda c: f"a multiple of data_parallel · micro_batch = {_first(_per_step(c))}",
        because="every pipeline takes whole micro-batches",
        fix=lambda c: (
            "set global_batch to "
            f"{max(1, round(_first(c.plans.global_batch) / _first(_per_step(c)))) * _first(_per_step(c))}"
        ),
    ),
    Rule(
        field="plan.global_batch",
        holds=lambda c: (
            (c.plans.virtual_stages == 1) | (c.plans.num_micro_batches % c.plans.pipeline_parallel == 0)
        ),
        value=lambda c: f"{_first(c.plans.num_micro_batches)} micro-batches",
        allowed=lambda c: f"a multiple of pipeline_parallel = {_first(c.plans.pipeline_parallel)}",
        because="interleaved chunks take micro-batches in groups of that size",
        fix=lambda _: "change global_batch, or set virtual_stages to 1",
    ),
    Rule(
        field="plan",
        holds=lambda c: _devices(c) == c.cluster.num_devices,
        value=lambda c: f"{_first(_devices(c))} devices",
        allowed=lambda c: f"dp · tp · pp · cp = {c.cluster.num_devices}, the devices of the cluster",
        because="every device has exactly one rank",
        fix=lambda c: (
            f"{_fitting_degrees(c)}, or use {-(-_first(_devices(c)) // c.cluster.node.devices)} nodes"
        ),
    ),
    Rule(
        field="plan.precision",
        holds=lambda c: c.plans.structure.precision in c.cluster.node.device.peak_flop_per_s,
        value=lambda c: c.plans.structure.precision,
        allowed=lambda c: ", ".join(c.cluster.node.device.peak_flop_per_s),
        because="the device has no such matrix engine",
        fix=lambda c: f"set precision to {next(iter(c.cluster.node.device.peak_flop_per_s))}",
    ),
    Rule(
        field="plan.partition_activations",
        holds=lambda c: (
            not c.plans.structure.partition_activations or c.plans.structure.recompute == "full"
        ),
        value=lambda _: True,
        allowed=lambda _: "only with recompute: full",
        because="it cuts the checkpoints that full recompute keeps",
        fix=lambda _: "set recompute to full",
    ),
    Rule(
        field="cluster.groups",
        holds=lambda c: len(c.cluster.groups) == 1,
        value=lambda c: f"{len(c.cluster.groups)} groups",
        allowed=lambda _: "one group of equal nodes",
        because="more than one rank class is not built yet",
        fix=lambda _: "describe one group",
    ),
    _not_built("plan.context_parallel", "context_parallel", 1, "context parallelism"),
    _not_built("plan.expert_parallel", "expert_parallel", 1, "expert parallelism"),
    _not_built("plan.expert_tensor_parallel", "expert_tensor_parallel", 1, "expert tensor parallelism"),
    _not_built("plan.data_shard", "data_shard", 1, "sharded data parallelism (FSDP)"),
    _not_built("plan.offload", "offload", False, "offload"),
    Rule(
        field="plan.zero",
        holds=lambda c: c.plans.structure.zero <= 1,
        value=lambda c: c.plans.structure.zero,
        allowed=lambda _: "0 or 1",
        because="ZeRO-2, ZeRO-3 and FSDP are not built yet",
        fix=lambda _: "set zero to 1",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: c.plans.structure.pipeline_schedule in ("1f1b", "interleaved_1f1b"),
        value=lambda c: c.plans.structure.pipeline_schedule,
        allowed=lambda _: "auto, 1f1b, interleaved_1f1b",
        because="the schedule is not built yet",
        fix=lambda _: "set schedule to auto",
    ),
    Rule(
        field="plan.precision",
        holds=lambda c: c.plans.structure.precision in ("fp16", "bf16"),
        value=lambda c: c.plans.structure.precision,
        allowed=lambda _: "fp16, bf16",
        because="8-bit recipes are not built yet",
        fix=lambda _: "set precision to bf16",
    ),
    Rule(
        field="batch.packed",
        holds=lambda c: not c.batch.packed,
        value=lambda _: True,
        allowed=lambda _: "false",
        because="packing of unequal sequences is not built yet",
        fix=lambda _: "set packed to false",
    ),
)
