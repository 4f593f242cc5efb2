"""The rules about low-rank adapters: which linear layers can have adapters, and what is not supported.

Answers: which conditions must a model's adapters satisfy, why, and which edit fixes a violation?
Elsewhere: adapters (layers/adapters.py), the rules about all other parts (rules.py), what a rule is
(checks.py).

A model without adapters breaks none of these rules.
"""

from flopcast.layers.adapted_linears import linears
from flopcast.spec.checks import Case, Rule


def _known(case: Case) -> list[str]:
    """Return the linears that every block has, and those of experts, which only mixtures have."""
    blocks = [linears(block, case.model.hidden) for block in case.model.blocks]
    every = [name for name in blocks[0] if all(name in block for block in blocks)]
    experts = [name for block in blocks for name, linear in block.items() if linear.experts]
    return list(dict.fromkeys([*every, *experts]))


def _adapts_experts(case: Case) -> bool:
    """Return whether experts have adapters."""
    targets = case.model.adapters.targets if case.model.adapters else ()
    return any(name.startswith("expert_") for name in targets)


def _unknown(case: Case) -> list[str]:
    targets = case.model.adapters.targets if case.model.adapters else ()
    return [name for name in targets if name not in _known(case)]


def stores_fewer_bits(case: Case) -> bool:
    """Return whether frozen weights are stored in a different dtype."""
    return case.model.adapters is not None and case.model.adapters.base_dtype != "model"


RULES: tuple[Rule, ...] = (
    Rule(
        field="model.adapters.targets",
        holds=lambda c: not _unknown(c),
        value=lambda c: ", ".join(_unknown(c)),
        allowed=lambda c: (
            ", ".join(_known(c))
            or (
                "no linear layer, because none of the layers that all blocks have in common supports "
                "adapters"
            )
        ),
        because=(
            "adapters in shared experts, in latent attention and in traced blocks are not supported yet"
        ),
        fix=lambda c: f"remove {', '.join(_unknown(c))}",
    ),
    Rule(
        field="plan.expert_tensor_parallel",
        holds=lambda c: (c.plans.expert_tensor_parallel == 1) | (not _adapts_experts(c)),
        allowed="1, because experts have adapters",
        because="adapters of experts that are divided over ranks are not supported yet",
        fix={"expert_tensor_parallel": 1},
    ),
    Rule(
        field="model.adapters.base_dtype",
        holds=lambda c: not (stores_fewer_bits(c) and c.model.has_experts),
        allowed="'model' (the precision of the model), because blocks have experts",
        because="experts that are stored in 4 bits are not supported yet",
        fix="set base_dtype to model (--lora instead of --qlora)",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not (c.model.adapters and c.structure.order_rule.splits_backward),
        allowed="auto, 1f1b, eager_1f1b, interleaved_1f1b or gpipe, because the model has adapters",
        because=(
            "zero-bubble schedules delay the computation of weight gradients, but frozen weights have no "
            "gradients"
        ),
        fix={"schedule": "auto"},
    ),
)
