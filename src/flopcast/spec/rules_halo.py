"""The rules about graph networks whose vertices ranks share.

Answers: which models and plans may share a graph, over how many ranks, and with which halo?
Elsewhere: what the ranks exchange (layers/halo.py), what a rule is (checks.py).
"""

from flopcast.layers.traced import Traced
from flopcast.spec.checks import Rule, first
from flopcast.spec.model import Model


def has_neighbours(model: Model) -> bool:
    """Return whether an operator of an exported graph picks rows of a tensor, as graph networks do."""
    return any(isinstance(block.mixer, Traced) and block.mixer.picking_rows for block in model.blocks)


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.halo",
        holds=lambda c: not c.structure.halo or has_neighbours(c.model),
        allowed="0, because the model is not an exported graph network",
        because="only operators that pick rows of a tensor read vertices of other ranks",
        fix="remove halo",
    ),
    Rule(
        field="plan.halo",
        holds=lambda c: (c.structure.halo <= c.plans.data_parallel - 1) | (c.plans.data_parallel == 1),
        allowed=lambda c: f"at most {first(c.plans.data_parallel) - 1}, the number of other ranks",
        because="each other rank has as many vertices as this one",
        fix=lambda c: f"set halo to {first(c.plans.data_parallel) - 1}",
    ),
    Rule(
        field="plan.expert_parallel",
        holds=lambda c: bool(not c.structure.halo) | (c.plans.expert_parallel == c.plans.data_parallel),
        allowed=lambda c: f"{first(c.plans.data_parallel)}, the value of data_parallel",
        because="the expert-parallel ranks, which are all data-parallel ranks, share the graph",
        fix=lambda c: f"set expert_parallel to {first(c.plans.data_parallel)}",
    ),
)
