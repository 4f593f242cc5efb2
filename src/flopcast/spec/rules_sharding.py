"""The rules about sharded data parallelism: ZeRO, FSDP, HSDP.

Answers: over which replicas can states, gradients and parameters be sharded, with which stacks and
schedules, and which edit fixes a violation?
Elsewhere: the rules about all other parts (rules.py), what a rule is (checks.py), when shards are sent
(workload/sharded.py).
"""

from math import gcd

import numpy as np

from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.divisors import divisors, listed, nearest_divisor
from flopcast.spec.rules_stack import names_operators


def _zero(case: Case) -> int:
    return case.structure.zero


def _stages(case: Case) -> str:
    """Return the ZeRO stages of the stack, as a sentence lists them."""
    return listed(sorted(case.stack.sharding.zero_stages))


def _nearest_stage(case: Case) -> int:
    """Return the stage of the stack that is closest to the plan's; the lower of two."""
    return min(sorted(case.stack.sharding.zero_stages), key=lambda stage: abs(stage - _zero(case)))


def _pipeline_stages(case: Case) -> list[int]:
    """Return the ZeRO stages that the stack supports together with several pipeline stages."""
    both = {*case.stack.sharding.zero_stages} & {*case.stack.sharding.pipeline_zero_stages}
    return sorted(both) or [0]


def _whole_expert_shards(case: Case) -> np.ndarray:
    """Return whether the ranks of each shard group hold experts equally often; True for dense models."""
    plans = case.plans
    if _zero(case) == 0 or not case.model.has_experts:
        return np.ones(plans.data_shard.shape, dtype=bool)
    whole = plans.expert_replicas % plans.shard_groups == 0
    uneven = plans.replicas % plans.state_shards != 0  # another rule says so
    return np.asarray(whole | (plans.shard_groups == 1) | uneven)


def _whole_sets(case: Case) -> int:
    """Return the fewest data-parallel ranks whose ranks hold every expert equally often."""
    experts = first(case.plans.expert_parallel * case.plans.expert_tensor_parallel)
    return experts // gcd(experts, first(case.plans.context_parallel * case.plans.tensor_parallel))


def _nearest_group(replicas: int, wanted: int) -> int:
    """Return the nearest size of a shard group; it is not 1, which would switch ZeRO off."""
    return nearest_divisor(replicas, wanted, min(replicas, 2))


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.data_shard",
        holds=lambda c: c.plans.replicas % c.plans.state_shards == 0,
        allowed=lambda c: (
            f"a divisor of data_parallel ({first(c.plans.data_parallel)}): "
            f"{listed(divisors(first(c.plans.data_parallel)))}"
        ),
        because=(
            "data_shard divides the data-parallel ranks into groups of this size, and each group "
            "holds a whole copy of the states"
        ),
        fix=lambda c: {
            "data_shard": _nearest_group(first(c.plans.data_parallel), first(c.plans.data_shard))
        },
    ),
    Rule(
        field="plan.data_shard",
        holds=lambda c: (c.plans.data_shard <= 1) | (_zero(c) >= 1),
        allowed="0 or 1 without ZeRO (zero = 0)",
        because="data_shard is the number of ranks over which ZeRO shards states",
        fix=lambda c: ({"zero": max(c.stack.sharding.zero_stages)}, {"data_shard": 0}),
    ),
    Rule(
        field="plan.data_shard",
        holds=_whole_expert_shards,
        allowed=lambda c: f"0 (all ranks), or a multiple of {_whole_sets(c)}",
        because=(
            "each shard group (data_shard · cp · tp ranks) must contain complete sets of experts, and "
            "a set takes ep · etp ranks"
        ),
        fix={"data_shard": 0},
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: (
            (c.plans.tensor_parallel == 1) | (_zero(c) <= 1) | c.stack.gradients.overlap_with_tensor
        ),
        allowed="0 or 1, because gradients.overlap_with_tensor of the stack is false",
        because="ZeRO-2 and ZeRO-3 with tensor parallelism are not supported yet on this stack",
        fix=({"zero": 1}, {"stack.gradients.overlap_with_tensor": True}),
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: _zero(c) in c.stack.sharding.zero_stages,
        allowed=_stages,
        because="the stack supports only these ZeRO stages",
        fix=lambda c: ({"zero": _nearest_stage(c)}, "choose another stack"),
    ),
    Rule(
        field="plan.zero",
        holds=lambda c: (
            (c.plans.pipeline_parallel == 1)
            | (_zero(c) in _pipeline_stages(c))
            | (_zero(c) not in c.stack.sharding.zero_stages)
        ),
        allowed=lambda c: (
            f"{listed(_pipeline_stages(c))}, because pipeline_parallel is "
            f"{first(c.plans.pipeline_parallel)}"
        ),
        because="the stack does not support higher ZeRO stages together with pipeline parallelism",
        fix=lambda c: ({"zero": _pipeline_stages(c)[-1]}, "use a single pipeline stage"),
    ),
    names_operators("stack.sharding.unit_copies", lambda stack: stack.sharding.unit_copies),
)
