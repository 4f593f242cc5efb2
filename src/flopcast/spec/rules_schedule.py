"""The rules about schedules: which plans and stacks an order of tasks is made for.

Answers: how many chunks does a schedule ask for, which numbers must be those of a user's own, what may a
stack do between its stages?
Elsewhere: chunks and micro-batches of interleaved 1F1B, split backwards (rules.py), the orders themselves
(schedules/).
"""

import numpy as np

from flopcast.spec.checks import Case, Rule, first
from flopcast.spec.custom_schedule import OwnSchedule


def _gathers_what_it_hands_on(case: Case) -> np.ndarray:
    """Return plans whose folded stages would gather shares that were never sent, (plans, 1)."""
    structure = case.plans.structure
    shared = structure.folds_chunks and not structure.sequence_parallel
    scattered = shared and case.stack.pipeline.payload == "scattered"
    gathers: np.ndarray = scattered & (case.plans.tensor_parallel > 1)
    return gathers


def _own(case: Case) -> OwnSchedule | None:
    """Return the user's own schedule, if the plan has one."""
    schedule = case.plans.structure.schedule
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
        holds=lambda c: _own(c) is None or c.stack.pipeline.transfers != "sequential",
        value=lambda c: str(_own(c)),
        allowed=lambda _: "auto, 1f1b, gpipe on a stack with sequential transfers",
        because="a table does not state where a stage blocks on its messages",
        fix=lambda _: "set schedule to auto, or stack.pipeline.transfers to batched",
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: (
            c.plans.structure.schedule != "eager_1f1b" or c.stack.pipeline.transfers != "sequential"
        ),
        value=lambda c: c.plans.structure.pipeline_schedule,
        allowed=lambda _: "auto, 1f1b, gpipe on a stack with sequential transfers",
        because="a stage cannot run ahead of one that takes its messages one by one",
        fix=lambda _: "set schedule to auto, or stack.pipeline.transfers to batched",
    ),
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
        because="a stage that passes shards of an activation to itself is not supported yet",
        fix=lambda _: "set sequence_parallel to true",
    ),
)
