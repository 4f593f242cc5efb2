"""The rules about schedules: which plans and stacks an order of tasks is made for.

Answers: how many chunks does a schedule ask for, which numbers must be those of a user's own, what may a
stack do between its stages?
Elsewhere: chunks and micro-batches of interleaved 1F1B, split backwards (rules.py), the orders themselves
(schedules/).
"""

import numpy as np

from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.checks import Case, Rule, first


def _gathers_what_it_hands_on(case: Case) -> np.ndarray:
    """Return plans whose folded stages would gather shares that were never sent, (plans, 1)."""
    structure = case.structure
    shared = structure.order_rule.folds_chunks and not structure.sequence_parallel
    scattered = shared and case.stack.pipeline.payload == "scattered"
    gathers: np.ndarray = scattered & (case.plans.tensor_parallel > 1)
    return gathers


def _rule(case: Case) -> AbstractSchedule:
    return case.structure.order_rule


def _own(case: Case) -> OwnSchedule | None:
    schedule = case.structure.schedule
    return schedule if isinstance(schedule, OwnSchedule) else None


def _as_listed(field: str, attribute: str, listed: str, because: str) -> Rule:
    """Return the rule for a number of the plan that must be the table's."""

    def asked(case: Case) -> int:
        wanted: int = getattr(_own(case), listed, 0)
        return wanted

    return Rule(
        field=field,
        about_steps=field == "plan.global_batch",
        holds=lambda c: _own(c) is None or getattr(c.plans, attribute) == asked(c),
        value=lambda c: first(getattr(c.plans, attribute)),
        allowed=lambda c: f"{asked(c)}, as {_own(c)} lists",
        because=because,
        fix=lambda c: (
            f"change global_batch or micro_batch to have {asked(c)} micro-batches"
            if field == "plan.global_batch"
            else f"set {attribute} to {asked(c)}"
        ),
    )


RULES: tuple[Rule, ...] = (
    _as_listed(
        "plan.pipeline_parallel", "pipeline_parallel", "stages", "a table lists the tasks of every stage"
    ),
    _as_listed("plan.virtual_stages", "virtual_stages", "chunks", "a table lists the tasks of every chunk"),
    _as_listed(
        "plan.global_batch", "num_micro_batches", "micro_batches", "a table lists every micro-batch"
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not _rule(c).blocks_because or c.stack.pipeline.transfers != "sequential",
        value=lambda c: str(c.structure.pipeline_schedule),
        allowed="auto, 1f1b, gpipe on a stack with sequential transfers",
        because=lambda c: _rule(c).blocks_because,
        fix="set schedule to auto, or stack.pipeline.transfers to batched",
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: not _rule(c).chunks_because or c.plans.virtual_stages <= _rule(c).most_chunks,
        allowed=lambda c: f"{_rule(c).most_chunks} under {c.structure.pipeline_schedule}",
        because=lambda c: _rule(c).chunks_because,
        fix=lambda c: f"set virtual_stages to {_rule(c).most_chunks}",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: ~_gathers_what_it_hands_on(c),
        value=lambda c: c.structure.pipeline_schedule,
        allowed="schedules that place consecutive chunks on different stages, or sequence_parallel",
        because="a stage that passes shards of an activation to itself is not supported yet",
        fix="set sequence_parallel to true",
    ),
)
