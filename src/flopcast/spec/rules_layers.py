"""The rules about blocks that have their own strategies.

Answers: which strategies are possible with a model, a stage and the rest of a plan, why, and which edit
fixes a violation?
Elsewhere: how strategies are written (layer_strategies.py), the rules of each layout (workload/checks.py),
what a rule is (checks.py).
"""

from collections.abc import Iterator
from itertools import combinations, pairwise

from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.layer_strategies import LayerStrategy, layers_word
from flopcast.spec.plan import Plan
from flopcast.spec.precision import RECIPES

USUAL_ORDERS = ("tp-dp-pp", "tp-pp-dp")  # of ranks, the context-parallel ones left out


def _named(case: Case) -> tuple[LayerStrategy, ...]:
    return case.structure.layers


def _follow_each_other(case: Case) -> bool:
    """Return whether strategies name blocks of the model in order, and each block once."""
    named = _named(case)
    in_order = all(one.last < other.first for one, other in pairwise(named))
    return in_order and all(one.last < case.model.num_blocks for one in named)


def _within_model(case: Case) -> Ways:
    """Return the edit that ends the ranges at the model's last block; all go if they still overlap."""
    last = case.model.num_blocks - 1
    kept = [
        one.model_copy(update={"last": min(one.last, last)}) for one in _named(case) if one.first <= last
    ]
    in_order = all(one.last < other.first for one, other in pairwise(kept))
    return {"layers": layers_word(kept) if kept and in_order else "none"}


def _degrees(case: Case) -> list[int]:
    """Return the different tensor-parallel degrees of a plan, its own included."""
    own = first(case.plans.tensor_parallel)
    return sorted({own, *(one.tensor_parallel or own for one in _named(case))})


def _divide_the_stage(case: Case) -> bool:
    """Return whether every degree divides the next larger one, and the ranks and sequences of a stage."""
    if not _named(case):
        return True
    degrees = _degrees(case)
    ranks = first(case.plans.data_parallel) * first(case.plans.tensor_parallel)
    sequences = first(case.plans.data_parallel) * first(case.plans.micro_batch)
    nested = all(large % small == 0 for small, large in combinations(degrees, 2))
    return nested and all(ranks % one == 0 and sequences % max(ranks // one, 1) == 0 for one in degrees)


def _in_the_way(case: Case) -> Iterator[str]:
    """Yield what the job has that strategies of single blocks do not go with."""
    plan, model, batch = case.structure, case.model, case.batch
    order = "-".join(name for name in plan.rank_order.split("-") if name != "cp")
    ends = case.stack.narrow.wide_first_blocks + case.stack.narrow.wide_last_blocks
    found = {
        "context_parallel above 1": first(case.plans.context_parallel) > 1,
        "experts": model.has_experts,
        "an encoder": model.has_encoder,
        "a vision tower": model.vision is not None,
        "a pattern of blocks": bool(model.pattern),
        "multi-token prediction": bool(model.mtp),
        "adapters, reference models or teachers": bool(model.adapters)
        or model.reference != "none"
        or model.teacher is not None,
        "shard groups": bool(plan.shards) or first(case.plans.data_shard) > 0,
        "recompute of some blocks": _recomputes_some(plan),
        "blocks in 16 bits at the ends": plan.precision in RECIPES and ends > 0,
        f"rank_order={plan.rank_order}": order not in USUAL_ORDERS,
        f"schedule={plan.schedule}": plan.order_rule.splits_backward or plan.order_rule.folds_chunks,
        "activations that tensor-parallel ranks send in shares": case.stack.pipeline.payload == "scattered"
        and first(case.plans.pipeline_parallel) > 1
        and not plan.sequence_parallel,
        "micro-batches of different kinds": len(batch.kinds) > 1 or batch.listed,
        "only a forward pass": batch.forward_only,
        "groups of nodes": len(case.cluster.groups) > 1,
        "slow parts": bool(case.site.slow),
        "measured links": any(tier.links is not None for tier in case.cluster.tiers),
        "checkpoints": case.checkpoint is not None,
    }
    yield from (name for name, there in found.items() if there)


def _recomputes_some(plan: Plan) -> bool:
    alike = plan.recompute_layers == 1 and plan.recompute_method == "uniform"
    return not alike or bool(plan.recompute_blocks) or plan.partition_activations


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.layers",
        holds=_follow_each_other,
        allowed=lambda c: (
            f"ranges of blocks from 0 to {c.model.num_blocks - 1}, in ascending order and without overlap"
        ),
        because="each block can have only one strategy, and blocks are numbered from 0",
        fix=_within_model,
    ),
    Rule(
        field="plan.layers",
        holds=_divide_the_stage,
        allowed=lambda c: (
            "tensor-parallel degrees that divide each other and the "
            f"{first(c.plans.data_parallel) * first(c.plans.tensor_parallel)} ranks of a stage, and "
            "with which data-parallel ranks divide the "
            f"{first(c.plans.data_parallel) * first(c.plans.micro_batch)} sequences of a micro-batch evenly"
        ),
        because="all blocks of a stage run on the same devices and process the same sequences",
        fix={"layers": "none"},
    ),
    Rule(
        field="plan.layers",
        holds=lambda c: not _named(c) or not any(_in_the_way(c)),
        allowed=lambda c: f"the value none, because the job has {', '.join(_in_the_way(c))}",
        because="strategies of single blocks are not supported yet in such jobs",
        fix={"layers": "none"},
    ),
)
