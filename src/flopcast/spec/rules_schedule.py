"""The rules about schedules: which plans and stacks an order of tasks is made for.

Answers: how many chunks does a schedule ask for, what may a stack do between its stages?
Elsewhere: chunks and micro-batches of interleaved 1F1B, split backwards (rules.py), the orders themselves
(schedules/).
"""

import numpy as np

from flopcast.spec.checks import Case, Rule, first


def _gathers_what_it_hands_on(case: Case) -> np.ndarray:
    """Plans whose folded stages would gather shares that never travelled, (plans, 1)."""
    structure = case.plans.structure
    shared = structure.folds_chunks and not structure.sequence_parallel
    scattered = shared and case.stack.pipeline.payload == "scattered"
    gathers: np.ndarray = scattered & (case.plans.tensor_parallel > 1)
    return gathers


RULES: tuple[Rule, ...] = (
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: (c.plans.virtual_stages <= 2) | (c.plans.structure.pipeline_schedule != "zb_v"),
        value=lambda c: first(c.plans.virtual_stages),
        allowed=lambda _: "2 under zb_v",
        because="ZB-V has one chunk that goes down the stages and one that comes back up",
        fix=lambda _: "set virtual_stages to 2",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: ~_gathers_what_it_hands_on(c),
        value=lambda c: c.plans.structure.pipeline_schedule,
        allowed=lambda _: "schedules whose chunks go round the stages, or sequence_parallel",
        because="a stage that hands shares of an activation to itself is not built yet",
        fix=lambda _: "set sequence_parallel to true",
    ),
)
