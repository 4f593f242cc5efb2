"""The rules about context parallelism: which sequences and heads ranks may share, and how.

Answers: which conditions must a job with context parallelism satisfy, and why?
Elsewhere: the rules about all other parts (rules.py), what a rule is (checks.py), the messages
(layers/context.py).

A plan with context_parallel 1 breaks none of these rules.
"""

import numpy as np

from flopcast.dtypes import Counts
from flopcast.layers.attention import Attention
from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.divisors import divisors, nearest_divisor


def _alone(case: Case) -> np.ndarray:
    """Return plans whose ranks share no sequence, (plans, 1)."""
    alone: np.ndarray = _sharers(case) == 1
    return alone


def parts(case: Case) -> Counts:
    """Return the slices of a sequence, (plans, 1): two for each rank if their order balances a mask."""
    zigzag = case.structure.context_order == "zigzag"
    return case.plans.context_parallel * case.batch.shared_by * (2.0 if zigzag else 1.0)


def _sharers(case: Case) -> Counts:
    """Return how many ranks share a sequence, (plans, 1)."""
    return case.plans.context_parallel * case.batch.shared_by


def _most_ranks(case: Case) -> int:
    """Return the context-parallel degree nearest to the first plan's that cuts the sequence evenly."""
    each = 2 if case.structure.context_order == "zigzag" else 1
    length, wanted = case.batch.sequence_length, first(case.plans.context_parallel)
    return nearest_divisor(length // each, wanted) if length % each == 0 else 1


def exchanges(case: Case, *kinds: str) -> bool:
    """Return whether the plan's ranks exchange keys in one of these ways."""
    return case.structure.context_exchange in kinds


def _common_heads(case: Case) -> int:
    """Return what tensor · context must divide: key/value heads of all runs; they divide query heads."""
    crossed = [block.cross.heads for block in case.model.blocks if block.cross is not None]
    return int(np.gcd.reduce([*crossed, *(block.mixer.groups for block in case.model.blocks)]))


def _nearest_exchange(case: Case) -> int:
    """Return the degree nearest to the first plan's that gives every rank whole heads."""
    tensor, heads = first(case.plans.tensor_parallel), _common_heads(case)
    if heads % tensor:
        return 1
    return max(d for d in divisors(heads // tensor) if d <= first(case.plans.context_parallel))


def _sloped(case: Case) -> bool:
    return any(isinstance(b.mixer, Attention) and b.mixer.alibi for b in case.model.blocks)


def _windowed(case: Case) -> bool:
    """Return whether some queries attend only to a part of their sequence."""
    length = case.batch.sequence_length
    return any(0.0 < block.mixer.square(length) < float(length) ** 2 for block in case.model.blocks)


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.context_parallel",
        holds=lambda c: _alone(c) | (c.batch.sequence_length % parts(c) == 0),
        allowed=lambda c: (
            f"a degree for which the number of slices (now {first(parts(c))}) divides "
            f"sequence_length = {c.batch.sequence_length}"
        ),
        because=(
            "context parallelism divides a sequence into slices of equal length; a rank holds one "
            "slice, or two in zigzag order"
        ),
        fix=lambda c: {"context_parallel": _most_ranks(c)},
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: (
            _alone(c)
            | (not exchanges(c, "all_to_all"))
            | (_common_heads(c) % (c.plans.tensor_parallel * _sharers(c)) == 0)
        ),
        allowed=lambda c: (
            "a degree for which context_parallel · tensor_parallel divides the "
            f"{_common_heads(c)} key/value heads, because context_exchange is all_to_all"
        ),
        because="each rank computes whole query heads and whole key/value heads",
        fix=lambda c: ({"context_exchange": "ring"}, {"context_parallel": _nearest_exchange(c)}),
    ),
    Rule(
        field="plan.context_order",
        holds=lambda c: (
            _alone(c) | (not exchanges(c, "all_gather")) | (c.structure.context_order == "zigzag")
        ),
        allowed="zigzag, because context_exchange is all_gather",
        because="with all-gathers, context parallelism supports only the zigzag order of tokens",
        fix=({"context_order": "zigzag"}, {"context_exchange": "ring"}),
    ),
    Rule(
        field="stack.attention_kernel",
        holds=lambda c: (
            _alone(c) | (c.stack.fuses_attention or (c.stack.ring_scores and exchanges(c, "ring")))
        ),
        allowed=lambda c: (
            "flash, because "
            + (
                "ring_scores of the stack is false"
                if exchanges(c, "ring")
                else f"context_exchange is {c.structure.context_exchange}"
            )
        ),
        because=(
            "with context parallelism, materialised (unfused) attention needs context_exchange: ring "
            "and a stack with ring_scores"
        ),
        fix=({"context_parallel": 1}, {"stack.attention_kernel": "flash"}),
    ),
    Rule(
        field="plan.context_exchange",
        holds=lambda c: _alone(c) | (not exchanges(c, "ring")) | (not _windowed(c)),
        allowed="all_gather or all_to_all, because the model has attention windows",
        because="ring attention with windows is not supported yet",
        fix={"context_exchange": "all_gather"},
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: _alone(c) | (not c.stack.pipeline.sends_mask),
        allowed="1, because the stack sends the attention mask between stages",
        because=(
            "context parallelism is not supported yet on stacks that send the attention mask between stages"
        ),
        fix=({"context_parallel": 1}, {"stack.pipeline.sends_mask": False}),
    ),
    Rule(
        field="plan.context_exchange",
        holds=lambda c: _alone(c) | (not _sloped(c) or not exchanges(c, "ring")),
        allowed="all_gather or all_to_all, because the model adds positions to its scores (ALiBi, T5)",
        because="ring attention is not supported yet for attention that adds positions to its scores",
        fix={"context_exchange": "all_gather"},
    ),
    Rule(
        field="plan.context_parallel",
        holds=lambda c: _alone(c) | (not any(block.mixer.is_recurrent for block in c.model.blocks)),
        allowed="1, because the model has linear attention",
        because="context parallelism of linear attention is not supported yet",
        fix={"context_parallel": 1},
    ),
)
