"""The rules: which combinations of model, cluster, plan and batch are possible and supported.

Answers: which conditions must a job satisfy, why, and which edit fixes a violation?
Elsewhere: how rules are applied (checks.py), rules about stacks, heads, experts and shared sequences
(rules_stack.py, rules_heads.py, rules_experts.py, rules_context.py).

Unsupported features break a rule, so they raise an error and are never ignored.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.schedules import SCHEDULES
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.divisors import divided_over_chunks, divisors, listed, nearest_divisor
from flopcast.spec.orders import rules_of_rows, uneven
from flopcast.spec.plan_fields import written_list
from flopcast.spec.rules_heads import RULES as RULES_OF_HEADS
from flopcast.spec.rules_size import MOST_DEVICES
from flopcast.units import counted

EVERY_DEVICE = "every device runs exactly one rank"


def _devices(case: Case) -> Counts:
    """Return devices that each plan uses, shape (plans, 1)."""
    plans = case.plans
    ranks = plans.data_parallel * plans.tensor_parallel * plans.pipeline_parallel * plans.context_parallel
    return plans.structure.peers * ranks


def _fitting_devices(case: Case) -> Ways:
    """Return edits that make a plan use every device: of its degrees, or of the nodes."""
    used, there, per_node = (first(_devices(case)), case.cluster.num_devices, case.cluster.node.devices)
    others = used // first(case.plans.data_parallel)
    nodes = f"use {used // per_node} nodes" if used % per_node == 0 else ""
    if there % others == 0:
        return ({"data_parallel": there // others}, nodes)
    return nodes or f"choose degrees whose product is {there}"


def _unequal_stages(case: Case) -> Ways:
    """Return the edit that fixes a plan whose chunks have unequal numbers of blocks.

    It changes the number of chunks of a stage, lists the blocks of each chunk, or changes the stages.
    """
    blocks, stages = case.model.num_blocks, first(case.plans.pipeline_parallel)
    chunks = stages * first(case.plans.virtual_stages)
    if _uneven_degree(case) == "virtual_stages":
        return {"virtual_stages": nearest_divisor(blocks // stages, chunks // stages)}
    if chunks <= blocks:
        return {"stage_layers": written_list(divided_over_chunks(blocks, chunks))}
    return {"pipeline_parallel": nearest_divisor(blocks, stages), "virtual_stages": 1}


def _dividing_degrees(case: Case) -> str:
    """Return the values of the degree that does not divide the blocks with which the other one does."""
    degrees = {name: first(getattr(case.plans, name)) for name in ("pipeline_parallel", "virtual_stages")}
    del degrees[_uneven_degree(case)]
    ((other, degree),) = degrees.items()
    blocks = case.model.num_blocks
    if degree == 1 or blocks % degree:
        return f"a divisor of the {blocks} blocks: {listed(divisors(blocks))}"
    limit = blocks // degree
    return f"a divisor of {limit} ({blocks} blocks / {other}): {listed(divisors(limit))}"


def _uneven_degree(case: Case) -> str:
    """Return the degree that does not divide the blocks: stages, or only chunks of a stage."""
    stages = first(case.plans.pipeline_parallel)
    return "pipeline_parallel" if case.model.num_blocks % stages else "virtual_stages"


def _two_stages(case: Case) -> Ways:
    """Return the edits for several chunks on one stage: two stages with half the replicas, or one chunk."""
    replicas = first(case.plans.data_parallel)
    one = {"virtual_stages": 1}
    return one if replicas % 2 else ({"pipeline_parallel": 2, "data_parallel": replicas // 2}, one)


def _reducing(case: Case) -> list[int]:
    """Return tiers whose switches would reduce."""
    return [place for place, tier in enumerate(case.cluster.tiers) if tier.in_network_reduction]


def _whole_groups(case: Case) -> int:
    """Return the global batch nearest to the first plan's that interleaved chunks run in whole groups."""
    each = first(_per_step(case) * case.plans.pipeline_parallel)
    return max(1, round(first(case.plans.global_batch) / each)) * each


def _per_step(case: Case) -> Counts:
    """Return sequences of one micro-batch on all replicas, the unit of a global batch."""
    return case.plans.data_parallel * case.plans.micro_batch


def _has_chunks_of_schedule(case: Case) -> np.ndarray | bool:
    """Return plans with one chunk per stage where their schedule has one, several where it has several."""
    one, several = rules_of_rows(case.plans)
    if isinstance(one, OwnSchedule):
        return True
    return np.where(case.plans.virtual_stages == 1, one.least_chunks == 1, several.least_chunks > 1)


def _right_schedules(case: Case) -> str:
    """Return which schedules have as many chunks per stage as the plan: one or several."""
    *names, last = [name for name, rule in SCHEDULES.items() if rule.least_chunks > 1]
    chunks, several = first(case.plans.virtual_stages), f"{', '.join(names)} or {last}"
    allowed = f"auto, {several}" if chunks > 1 else f"a schedule other than {several}"
    return f"{allowed}, because virtual_stages is {chunks}"


RULES: tuple[Rule, ...] = (
    *RULES_OF_HEADS,
    Rule(
        field="batch.sequence_length",
        holds=lambda c: (
            c.model.learned_positions == 0 or c.batch.sequence_length <= c.model.learned_positions
        ),
        allowed=lambda c: f"at most learned_positions ({c.model.learned_positions})",
        because="the position-embedding table has learned_positions rows, one per position of a sequence",
        fix=lambda c: {"learned_positions": c.batch.sequence_length},
    ),
    Rule(
        field="plan.sequence_parallel",
        holds=lambda c: (
            not c.structure.sequence_parallel
            or c.batch.sequence_length % (c.plans.tensor_parallel * c.plans.context_parallel) == 0
        ),
        allowed=lambda c: (
            f"false, unless tensor_parallel ({first(c.plans.tensor_parallel)}) divides sequence_length / "
            f"context_parallel ({c.batch.sequence_length / first(c.plans.context_parallel):g})"
        ),
        because="sequence parallelism gives every rank the same number of tokens",
        fix={"sequence_parallel": False},
    ),
    Rule(
        field=lambda c: f"plan.{_uneven_degree(c)}",
        holds=lambda c: (
            c.stack.pipeline.partition != "even"
            or bool(c.structure.stage_layers)
            or uneven(c.plans)
            | (c.model.num_blocks % (c.plans.pipeline_parallel * c.plans.virtual_stages) == 0)
        ),
        allowed=_dividing_degrees,
        because="without stage_layers, this stack puts the same number of blocks into every chunk",
        fix=_unequal_stages,
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.plans.pipeline_parallel > 1),
        allowed="1, because pipeline_parallel is 1",
        because="interleaving needs at least two pipeline stages",
        fix=_two_stages,
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.stack.pipeline.partition == "even"),
        allowed="1 on this stack",
        because="this stack's rule for dividing layers does not support virtual stages",
        fix=({"virtual_stages": 1}, "choose another stack"),
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages == 1) | (c.stack.pipeline.transfers != "sequential"),
        allowed="1, because transfers between stages are blocking on this stack",
        because="with blocking transfers, interleaved stages would wait for each other forever",
        fix=({"virtual_stages": 1}, {"stack.pipeline.transfers": "batched"}),
    ),
    Rule(
        field="plan.schedule",
        holds=_has_chunks_of_schedule,
        allowed=_right_schedules,
        because="a schedule supports either one chunk or several chunks on each stage, but not both",
        fix={"schedule": "auto"},
    ),
    Rule(
        field="plan.global_batch",
        about_steps=True,
        about_lists=True,
        holds=lambda c: (
            bool(c.batch.ranks)
            | (c.cluster.num_devices > MOST_DEVICES)  # which has its own error
            | (c.plans.global_batch % _per_step(c) == 0) & (c.plans.global_batch >= _per_step(c))
        ),
        allowed=lambda c: (
            f"a multiple of data_parallel · micro_batch ({first(c.plans.data_parallel)} · "
            f"{first(c.plans.micro_batch)} = {first(_per_step(c))})"
        ),
        because="every data-parallel rank runs the same number of whole micro-batches",
        fix=lambda c: {
            "global_batch": max(1, round(first(c.plans.global_batch) / first(_per_step(c))))
            * first(_per_step(c))
        },
    ),
    Rule(
        field="plan.global_batch",
        about_steps=True,
        holds=lambda c: (
            (c.plans.virtual_stages == 1)
            | (not rules_of_rows(c.plans)[1].groups_micro_batches)
            | (c.plans.num_micro_batches % c.plans.pipeline_parallel == 0)
        ),
        value=lambda c: counted(first(c.plans.num_micro_batches), "micro-batch"),
        allowed=lambda c: (
            "a number of micro-batches that is a multiple of pipeline_parallel "
            f"({first(c.plans.pipeline_parallel)})"
        ),
        because="interleaved stages process micro-batches in groups of pipeline_parallel",
        fix=lambda c: ({"global_batch": _whole_groups(c)}, {"virtual_stages": 1}),
    ),
    Rule(
        field="plan",
        holds=lambda c: _devices(c) == c.cluster.num_devices,
        value=lambda c: f"{first(_devices(c))} devices",
        fault=lambda c: f"needs {first(_devices(c))} device{'s' * (first(_devices(c)) != 1)}",
        allowed=lambda c: (
            "data_parallel · tensor_parallel · pipeline_parallel · context_parallel"
            f"{' · peers' * (c.structure.peers > 1)} = "
            f"{c.cluster.num_devices} (the number of devices of the cluster)"
        ),
        because=EVERY_DEVICE,
        fix=_fitting_devices,
    ),
    Rule(
        field="plan.partition_activations",
        holds=lambda c: not c.structure.partition_activations or c.structure.recompute == "full",
        allowed="false, unless recompute is full",
        because="partition_activations shards the block inputs that full recompute saves",
        fix={"recompute": "full"},
    ),
    Rule(
        field="plan.partition_activations",
        holds=lambda c: not (c.structure.partition_activations and c.structure.sequence_parallel),
        allowed="false, because sequence_parallel is true",
        because="sequence parallelism already divides the inputs that partition_activations would divide",
        fix={"partition_activations": False},
    ),
    Rule(
        field=lambda c: f"cluster.tiers[{_reducing(c)[0]}].in_network_reduction",
        holds=lambda c: not _reducing(c),
        value=lambda _: True,
        allowed="false",
        because="reductions inside network switches are not supported yet",
        fix={"in_network_reduction": False},
    ),
)
