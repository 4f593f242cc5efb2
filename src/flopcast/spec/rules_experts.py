"""The rules about experts: how they may be distributed over ranks and divided, and what is not supported.

Answers: which conditions must a plan for a model with experts satisfy, why, and which edit fixes a
violation?
Elsewhere: the rules about all other parts (rules.py), what a rule is (checks.py), the layer
(layers/experts.py).

A model without experts breaks none of these rules except the first.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.layers.experts import Experts
from flopcast.spec.checks import Case, Rule, Ways, first
from flopcast.spec.divisors import divisors, listed, nearest_divisor


def _experts(case: Case) -> tuple[tuple[int, Experts], ...]:
    """Feed-forwards that are experts, each with the place of its run of blocks."""
    layers = ((place, block.feed_forward) for place, block in enumerate(case.model.blocks))
    return tuple((place, layer) for place, layer in layers if isinstance(layer, Experts))


def _common(numbers: list[int]) -> int:
    """Return what a degree must divide, as it cuts all runs of blocks alike; 0 for none."""
    return int(np.gcd.reduce(numbers)) if numbers else 0


def _num_experts(case: Case) -> int:
    return _common([layer.num_experts for _, layer in _experts(case)])


def _expert_width(case: Case) -> int:
    return _common([layer.expert_hidden for _, layer in _experts(case)])


def _shared_width(case: Case) -> int:
    return _common([layer.shared_width for _, layer in _experts(case)])


def _ranks(case: Case) -> Counts:
    """Return ranks of a stage that experts may be spread over, whole experts or the columns of one each."""
    plans = case.plans
    ranks = plans.data_parallel * plans.context_parallel * plans.tensor_parallel
    return ranks / plans.expert_tensor_parallel


def _cut_otherwise(case: Case) -> np.ndarray:
    """Return plans that cut experts over neither one nor all tensor-parallel ranks, refused by a rule."""
    etp = case.plans.expert_tensor_parallel
    return np.asarray((etp != 1) & (etp != case.plans.tensor_parallel))


def _on_other_devices(case: Case) -> np.ndarray:
    """Return plans whose degrees do not give the devices of the cluster, refused by a rule."""
    plans = case.plans
    ranks = plans.data_parallel * plans.context_parallel * plans.tensor_parallel * plans.pipeline_parallel
    return np.asarray(ranks * case.structure.peers != case.cluster.num_devices)


def _spread(case: Case) -> Ways:
    """Return the edit for a degree that does not divide the experts or their ranks: one for both."""
    common = _common([_num_experts(case), first(_ranks(case))])
    return {"expert_parallel": nearest_divisor(common, first(case.plans.expert_parallel))}


def _groups(case: Case) -> list[int]:
    """Return groups of experts, of each run of blocks that limits a token to some of them."""
    return [layer.expert_groups for _, layer in _experts(case) if layer.expert_groups > 1]


def _groups_fit(case: Case) -> np.ndarray:
    """Return whether a rank's experts are within one group or fill several, shape (plans, 1)."""
    ranks = case.plans.expert_parallel
    kept: np.ndarray = np.logical_and.reduce(
        [np.ones(ranks.shape, dtype=bool)]
        + [(ranks % groups == 0) | (groups % ranks == 0) for groups in _groups(case)]
    )
    return kept


def _or_all(degree: int) -> str:
    """Return the value of tensor_parallel as an alternative to 1; "" if it is 1."""
    return f" or {degree} (tensor_parallel)" if degree > 1 else ", because tensor_parallel is 1"


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: (
            (c.plans.expert_parallel == 1) | bool(_experts(c) or c.structure.tables or c.structure.halo)
        ),
        allowed="1, or a model with experts",
        because="the model is dense: it has no experts that could be distributed over ranks",
        fix={"expert_parallel": 1},
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: not _experts(c) or _num_experts(c) % c.plans.expert_parallel == 0,
        allowed=lambda c: (
            f"a divisor of num_experts ({_num_experts(c)}): {listed(divisors(_num_experts(c)))}"
        ),
        because="each expert-parallel rank holds the same number of experts",
        fix=_spread,
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: (
            not _experts(c)
            or (_ranks(c) % c.plans.expert_parallel == 0) | _cut_otherwise(c) | _on_other_devices(c)
        ),
        allowed=lambda c: (
            "a divisor of data_parallel · context_parallel · tensor_parallel / expert_tensor_parallel "
            f"({_ranks(c)[0, 0]:g})"
        ),
        because="the experts of a layer are distributed over the ranks of one pipeline stage",
        fix=_spread,
    ),
    Rule(
        field="plan.expert_tensor_parallel",
        holds=lambda c: not _experts(c) or ~_cut_otherwise(c),
        allowed=lambda c: f"1{_or_all(first(c.plans.tensor_parallel))}",
        because="dividing an expert over only some of the tensor-parallel ranks is not supported yet",
        fix=lambda c: {"expert_tensor_parallel": first(c.plans.tensor_parallel)},
    ),
    Rule(
        field="plan.expert_tensor_parallel",
        holds=lambda c: (
            not _experts(c) or _cut_otherwise(c) | (_expert_width(c) % c.plans.expert_tensor_parallel == 0)
        ),
        allowed=lambda c: f"a divisor of expert_hidden ({_expert_width(c)})",
        because="every rank holds the same number of columns of an expert",
        fix={"expert_tensor_parallel": 1},
    ),
    Rule(
        field="plan.tensor_parallel",
        holds=lambda c: _shared_width(c) % c.plans.tensor_parallel == 0,
        allowed=lambda c: f"a divisor of {_shared_width(c)} (the width of the shared experts)",
        because="every tensor-parallel rank holds the same number of columns of the shared experts",
        fix=lambda c: {
            "tensor_parallel": nearest_divisor(_shared_width(c), first(c.plans.tensor_parallel))
        },
    ),
    Rule(
        field="plan.sequence_parallel",
        holds=lambda c: not _experts(c) or c.structure.sequence_parallel or c.plans.tensor_parallel == 1,
        allowed="true, because the model has experts and tensor_parallel is above 1",
        because=(
            "without sequence parallelism, all tensor-parallel ranks route the same tokens, which is not "
            "supported yet"
        ),
        fix={"sequence_parallel": True},
    ),
    Rule(
        field="plan.rank_order",
        holds=lambda c: not _experts(c) or c.structure.rank_order == "tp-cp-dp-pp",
        allowed="tp-cp-dp-pp",
        because="expert parallelism with another rank order is not supported yet",
        fix="choose tp-cp-dp-pp",
    ),
    Rule(
        field="plan.expert_parallel",
        holds=_groups_fit,
        allowed=lambda c: f"a divisor or a multiple of expert_groups ({_groups(c)[0]})",
        because="a rank stores either experts of a single group or several whole groups",
        fix=lambda c: {"expert_parallel": _common([_groups(c)[0], first(c.plans.expert_parallel)])},
    ),
    Rule(
        field="stack.experts.exchange_overlap",
        holds=lambda c: (
            (c.stack.experts.exchange_overlap != "other_micro_batch")
            | (c.plans.expert_parallel == 1)
            | (c.structure.recompute != "full")
        ),
        allowed="none or unless_full_recompute, because recompute is full",
        because=(
            "with full recompute, the all-to-alls of experts cannot overlap with the compute of "
            "another micro-batch"
        ),
        fix=({"stack.experts.exchange_overlap": "unless_full_recompute"}, {"recompute": "none"}),
    ),
)
