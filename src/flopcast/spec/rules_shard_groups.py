"""The rules about kinds of state that have their own shard groups.

Answers: which groups and message formats are possible with a plan and a stack, why, and which edit fixes a
violation?
Elsewhere: how groups are written (shards.py), the rules about ZeRO and its single group
(rules_sharding.py), what a rule is (checks.py).
"""

from collections.abc import Callable, Iterable

import numpy as np

from flopcast.fixes import Edit
from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.divisors import divisors, listed
from flopcast.spec.offload import OUTER
from flopcast.spec.shard_groups import ranks_of
from flopcast.spec.shards import ShardGroup, group_of, shards_word

LEAST_STAGE = {"optimizer": 1, "gradients": 2, "parameters": 3, "secondary": 3}  # ZeRO, that shards a kind


def _named(case: Case) -> tuple[ShardGroup, ...]:
    return case.structure.shards


def _set(groups: Iterable[ShardGroup]) -> Edit:
    """Return the edit that leaves these groups."""
    return {"shards": shards_word(groups) or "none"}


def _whole_groups(case: Case) -> np.ndarray:
    """Return whether the optimizer's group consists of whole groups of each other kind, (plans, 1)."""
    plans = case.plans
    held = np.ones(plans.data_parallel.shape, dtype=bool)
    for group in _named(case):
        held &= plans.state_shards % ranks_of(plans, group.kind) == 0
        held &= plans.replicas % plans.state_shards == 0
    return held


def _divided(case: Case) -> Edit:
    """Return the edit that gives every group that does not divide the optimizer's the next smaller size."""
    plans = case.plans
    share = first(plans.context_parallel)
    most = first(plans.data_parallel)
    owner = group_of(_named(case), "optimizer")
    owned = owner.ranks if owner and owner.ranks else first(plans.data_shard) or most
    owned = max(size for size in divisors(most) if size <= owned)
    sizes = {
        group.kind: max(
            size for size in divisors(owned) if size <= (first(ranks_of(plans, group.kind)) // share)
        )
        for group in _named(case)
    }
    return _set(group.model_copy(update={"ranks": sizes[group.kind]}) for group in _named(case))


def _copy_is_smaller(case: Case) -> np.ndarray | bool:
    """Return whether the second copy of parameters is shared by fewer ranks than the first."""
    if group_of(_named(case), "secondary") is None:
        return True
    first_copy, second = (ranks_of(case.plans, kind) for kind in ("parameters", "secondary"))
    return np.asarray((second < first_copy) | (first_copy == 1) | (case.plans.data_parallel == 1))


def _without(case: Case, wrong: Callable[[ShardGroup], bool]) -> Edit:
    return _set(group for group in _named(case) if not wrong(group))


def _unsharded(case: Case) -> list[ShardGroup]:
    """Return groups of kinds that the plan's ZeRO stage does not shard."""
    return [group for group in _named(case) if case.structure.zero < LEAST_STAGE[group.kind]]


def _unknown(case: Case) -> list[ShardGroup]:
    """Return groups that the stack does not have, or not with these messages."""
    levels = case.stack.sharding.levels
    return [group for group in _named(case) if not _has(levels, group, case)]


def _has(levels: tuple[str, ...], group: ShardGroup, case: Case) -> bool:
    quantised = not group.messages or f"{group.kind}:{group.messages}" in levels
    usual = group.ranks in (0, first(case.plans.data_shard) or first(case.plans.data_parallel))
    apart = group.kind in levels or (usual and group.kind != "secondary")
    return quantised and apart


def _supported(case: Case) -> Edit:
    """Return the edit that leaves what the stack supports; quantised collectives may need all ranks."""
    groups = []
    for group in _named(case):
        over_all = group.model_copy(update={"ranks": 0})
        wider = [over_all] if group.messages else []  # without a format, this is the default
        groups += [one for one in (group, *wider) if _has(case.stack.sharding.levels, one, case)][:1]
    return _set(groups)


def _placed(case: Case) -> bool:
    return any(one.kind not in ("activations", OUTER) for one in case.structure.offload)


def _levels(case: Case) -> str:
    """Return what a stack has, or that others have more."""
    listed = ", ".join(case.stack.sharding.levels)
    if not listed:
        return "none, because this stack supports no separate shard groups (deepspeed-zero supports them)"
    return f"kinds of state and number formats that stack.sharding.levels lists: {listed}"


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.shards",
        holds=lambda c: not _unsharded(c),
        allowed=lambda c: f"only kinds of state that zero = {c.structure.zero} shards",
        because=("zero = 1 shards optimizer states, zero = 2 also gradients, and zero = 3 also parameters"),
        fix=lambda c: (_without(c, lambda one: one in _unsharded(c)), {"zero": 3}),
    ),
    Rule(
        field="plan.shards",
        holds=lambda c: bool(_unsharded(c)) or not _unknown(c),
        allowed=_levels,
        because=(
            "the stack supports separate shard groups only for these kinds of state; if your software "
            "supports more, list them in stack.sharding.levels"
        ),
        fix=_supported,
    ),
    Rule(
        field="plan.shards",
        holds=_whole_groups,
        allowed=lambda c: (
            f"divisors of data_parallel = {first(c.plans.data_parallel)} "
            f"({listed(divisors(first(c.plans.data_parallel)))}) that also divide the number of ranks over "
            "which optimizer states are sharded"
        ),
        because="each of these groups must lie inside one group over which optimizer states are sharded",
        fix=_divided,
    ),
    Rule(
        field="plan.shards",
        holds=_copy_is_smaller,
        allowed="fewer ranks for secondary than for parameters",
        because="the secondary copy of the weights saves time only if it is gathered over fewer ranks",
        fix=lambda c: _without(c, lambda one: one.kind == "secondary"),
    ),
    Rule(
        field="plan.shards",
        holds=lambda c: all(not one.messages or one.kind != "optimizer" for one in _named(c)),
        allowed="a number format only for parameters, secondary and gradients",
        because="optimizer states are never sent between ranks",
        fix=lambda c: _set(
            one.model_copy(update={"messages": ""}) if one.kind == "optimizer" else one for one in _named(c)
        ),
    ),
    Rule(
        field="plan.shards",
        holds=lambda c: not _named(c) or not c.model.has_experts,
        allowed="the value none, because the model has experts",
        because="separate shard groups for models with experts are not supported yet",
        fix={"shards": "none"},
    ),
    Rule(
        field="plan.shards",
        holds=lambda c: not _named(c) or not _placed(c),
        allowed="the value none, because states are offloaded",
        because="offloading together with separate shard groups is not supported yet",
        fix=({"shards": "none"}, {"offload": "none"}),
    ),
)
