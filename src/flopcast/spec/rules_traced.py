"""The rules about traced blocks: what of a plan and a stack they cannot take part in.

Answers: what must hold between a model with a traced block, a plan and a stack, why, and what mends it?
Elsewhere: the rules about all other parts (rules.py), what a rule is (checks.py), the layer
(layers/traced.py).
A trace records how many elements its tensors have, not which axis holds the heads or the columns, nor which
product uses which weight. So none of its products can be split.
"""

from collections.abc import Callable

from flopcast.dtypes import Counts
from flopcast.layers.traced import Traced
from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.plan import Plans


def _traced(case: Case) -> bool:
    """Whether any block is traced."""
    return any(isinstance(block.mixer, Traced) for block in case.model.blocks)


def _whole(field: str, degree: Callable[[Plans], Counts]) -> Rule:
    """The rule that a degree of the plan is 1 for a traced block."""
    return Rule(
        field=f"plan.{field}",
        holds=lambda c: not _traced(c) or degree(c.plans) == 1,
        value=lambda c: first(degree(c.plans)),
        allowed=lambda _: "1 for a traced model",
        because="a trace does not record which axis of a tensor holds heads, columns or positions to split",
        fix=lambda _: f"set {field} to 1, and use pipeline stages, ZeRO or recompute to save memory",
    )


RULES: tuple[Rule, ...] = (
    _whole("tensor_parallel", lambda plans: plans.tensor_parallel),
    _whole("context_parallel", lambda plans: plans.context_parallel),
    Rule(
        field="model.mtp",
        holds=lambda c: not _traced(c) or c.model.mtp == 0,
        value=lambda c: c.model.mtp,
        allowed=lambda _: "0 for a traced model",
        because="a trace is one of the decoder without modules of multi-token prediction",
        fix=lambda _: "change mtp to 0",
    ),
)
