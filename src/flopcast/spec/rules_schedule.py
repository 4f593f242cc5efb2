"""The rules about schedules: which plans and stacks a schedule supports.

Answers: how many chunks does a schedule need, which numbers must agree with a user's own schedule, and
which transfers between stages are possible?
Elsewhere: chunks and micro-batches of interleaved 1F1B, split backward passes (rules.py), the schedules
themselves (schedules/).
"""

import numpy as np

from flopcast.schedules.base import AbstractSchedule
from flopcast.schedules.custom import OwnSchedule
from flopcast.spec.checks import Case, Rule, first
from flopcast.units import counted


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
    counts = " micro-batches" if field == "plan.global_batch" else ""

    def asked(case: Case) -> int:
        wanted: int = getattr(_own(case), listed, 0)
        return wanted

    return Rule(
        field=field,
        about_steps=field == "plan.global_batch",
        holds=lambda c: _own(c) is None or getattr(c.plans, attribute) == asked(c),
        value=lambda c: (
            f"{first(getattr(c.plans, attribute))}{counts}"
            if counts
            else first(getattr(c.plans, attribute))
        ),
        allowed=lambda c: f"{asked(c)}{counts}, as in {_own(c)}",
        because=because,
        fix=lambda c: (
            f"change global_batch or micro_batch to have {asked(c)} micro-batches"
            if field == "plan.global_batch"
            else {attribute: asked(c)}
        ),
    )


def _places_ranks(case: Case) -> bool:
    """Return whether the place of a single rank matters: slow parts, measured links, groups of states."""
    measured = any(tier.links is not None for tier in case.cluster.tiers)
    return measured or bool(case.site.slow or case.structure.shards)


def _fewest(case: Case) -> np.ndarray:
    """Return the fewest micro-batches of a step under the schedule, (plans, 1)."""
    fewest: np.ndarray = case.plans.pipeline_parallel * _rule(case).micro_batches_per_stage
    return fewest


def _fitting_batch(case: Case) -> int:
    """Return the nearest global batch with enough micro-batches, an even number of them under DualPipe."""
    plans, step = case.plans, 2 if _rule(case).mirrors_half else 1
    micro = max(first(plans.num_micro_batches) // step * step, first(_fewest(case)), step)
    return micro * first(plans.data_parallel) * first(plans.micro_batch)


RULES: tuple[Rule, ...] = (
    _as_listed(
        "plan.pipeline_parallel",
        "pipeline_parallel",
        "stages",
        "the table must list the tasks of every stage",
    ),
    _as_listed(
        "plan.virtual_stages", "virtual_stages", "chunks", "the table must list the tasks of every chunk"
    ),
    _as_listed(
        "plan.global_batch", "num_micro_batches", "micro_batches", "the table must list every micro-batch"
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not _rule(c).blocks_because or c.stack.pipeline.transfers != "sequential",
        value=lambda c: str(c.structure.pipeline_schedule),
        allowed="auto, 1f1b or gpipe, because transfers between stages are blocking on this stack",
        because=lambda c: _rule(c).blocks_because,
        fix=({"schedule": "auto"}, {"stack.pipeline.transfers": "batched"}),
    ),
    Rule(
        field="plan.virtual_stages",
        holds=lambda c: not _rule(c).chunks_because or c.plans.virtual_stages <= _rule(c).most_chunks,
        allowed=lambda c: f"{_rule(c).most_chunks}, because schedule is {c.structure.pipeline_schedule}",
        because=lambda c: _rule(c).chunks_because,
        fix=lambda c: {"virtual_stages": _rule(c).most_chunks},
    ),
    Rule(
        field="plan.pipeline_parallel",
        holds=lambda c: not _rule(c).mirrors_half or c.plans.pipeline_parallel % 2 == 0,
        allowed=lambda c: f"an even number, because schedule is {c.structure.pipeline_schedule}",
        because="DualPipe stores the same layers on the stages i and pp - 1 - i",
        fix={"schedule": "auto"},
    ),
    Rule(
        field="plan.global_batch",
        about_steps=True,
        holds=lambda c: c.plans.num_micro_batches >= _fewest(c),
        value=lambda c: counted(first(c.plans.num_micro_batches), "micro-batch"),
        allowed=lambda c: (
            f"at least {first(_fewest(c))} micro-batches, because schedule is "
            f"{c.structure.pipeline_schedule}"
        ),
        because="this schedule overlaps forward and backward passes of different micro-batches",
        fix=lambda c: ({"global_batch": _fitting_batch(c)}, {"schedule": "auto"}),
    ),
    Rule(
        field="plan.global_batch",
        about_steps=True,
        holds=lambda c: not _rule(c).mirrors_half or c.plans.num_micro_batches % 2 == 0,
        value=lambda c: counted(first(c.plans.num_micro_batches), "micro-batch"),
        allowed=lambda c: (
            f"an even number of micro-batches, because schedule is {c.structure.pipeline_schedule}"
        ),
        because="half of the micro-batches start at the first stage, and the other half at the last",
        fix=lambda c: ({"global_batch": _fitting_batch(c)}, {"schedule": "auto"}),
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: not (_rule(c).mirrors_half and _places_ranks(c)),
        allowed=(
            "another schedule, such as dualpipe_v with half as many stages, because the job has slow "
            "parts, measured links or shard groups"
        ),
        because="DualPipe is not supported yet with slow parts, measured links or shard groups",
        fix={"schedule": "auto"},
    ),
    Rule(
        field="plan.schedule",
        holds=lambda c: ~_gathers_what_it_hands_on(c),
        allowed="a schedule other than zb_v and dualpipe_v, unless sequence_parallel is true",
        because=(
            "on this stack, tensor-parallel ranks divide the activations that stages send, which "
            "V-shaped schedules support only with sequence parallelism"
        ),
        fix={"sequence_parallel": True},
    ),
)
