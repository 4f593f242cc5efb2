"""Searches and the results of their chunks, as text that another process can read.

Answers: how are a search, its top candidates and its simulated plans written as text and read back without
loss?
Elsewhere: what a chunk is (chunks.py), where texts are kept (workers/).

Texts are JSON, in which Python writes every float64 without loss. The text of a kept plan states the
differences from an empty plan. The job of this plan is the job of the question.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from flopcast.search.default_plan import FirstChoice
from flopcast.search.exact import Exact
from flopcast.search.pruning import Incumbents
from flopcast.search.question import Question
from flopcast.search.refine import Variants
from flopcast.search.top_candidates import KEPT, Candidate, TopCandidates
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan

QUESTION, EXACT = TypeAdapter(Question), TypeAdapter(Exact)


def question_text(question: Question) -> str:
    """Return a question as text; equal questions give equal texts."""
    return QUESTION.dump_json(question).decode()


def read_question(text: str) -> Question:
    """Return the question that a text describes."""
    return QUESTION.validate_json(text)


def candidates_text(candidates_kept: TopCandidates) -> str:
    """Return the top candidates of a chunk as text, which holds every plan once.

    A plan is often among the best and on the front at the same time. Lists therefore hold positions in the
    order of the space, and the plans themselves follow. `read_candidates` returns equal candidates.
    """
    kept = {one.order: one for name in KEPT for one in getattr(candidates_kept, name)}
    data = {field.name: getattr(candidates_kept, field.name) for field in fields(TopCandidates)}
    data |= {name: [one.order for one in getattr(candidates_kept, name)] for name in KEPT}
    return json.dumps(data | {"kept": [_candidate_text(one) for one in kept.values()]})


def read_candidates(text: str, sized: Job) -> TopCandidates:
    """Return the top candidates of a chunk of plans on one cluster from their text."""
    data = json.loads(text)
    kept = {each["order"]: _candidate(each, sized) for each in data.pop("kept")}
    data |= {name: tuple(kept[order] for order in data[name]) for name in KEPT}
    return TopCandidates(**data)


def _candidate_text(one: Candidate) -> dict[str, object]:
    """Return one kept plan as data, without its job."""
    data = {field.name: getattr(one, field.name) for field in fields(Candidate) if field.name != "job"}
    return data | {"plan": plan_data(one.job.plan)}


def _candidate(data: dict[str, object], sized: Job) -> Candidate:
    """Return one kept plan, on the cluster of its chunk."""
    plan = Plan.model_validate(data.pop("plan"))
    losses = data.pop("losses")
    job = sized.model_copy(update={"plan": plan})
    return Candidate(job=job, losses=tuple(losses), **data)  # type: ignore[arg-type]


def plan_data(plan: Plan) -> dict[str, object]:
    """Return a plan as JSON data: the fields that differ from an empty plan."""
    return plan.model_dump(mode="json", exclude_defaults=True)


def choice_text(choice: FirstChoice) -> str:
    """Return the first choice for one setting as text, without its job."""
    plans = [plan_data(one.job.plan) for one in choice.simulated]
    chosen = None if choice.chosen is None else plan_data(choice.chosen.plan)
    return json.dumps({"chosen": chosen, "plans": plans, "simulated": exact_text(choice.simulated)})


def read_choice(text: str, sized: Job) -> FirstChoice:
    """Return the first choice on its cluster from its text."""

    def job_of(plan: dict[str, object]) -> Job:
        return sized.model_copy(update={"plan": Plan.model_validate(plan)})

    data = json.loads(text)
    return FirstChoice(
        chosen=None if data["chosen"] is None else job_of(data["chosen"]),
        simulated=read_exact(data["simulated"], [job_of(plan) for plan in data["plans"]]),
    )


def read_incumbents(data: dict[str, Any]) -> Incumbents:
    """Return the incumbents that JSON data describe."""
    fronts = {name: tuple(map(tuple, data[name])) for name in ("on_front", "faster")}
    return Incumbents(**(data | fronts))


def variants_text(each: Sequence[Variants]) -> str:
    """Return variants of plans as text, without their jobs."""
    names = [field.name for field in fields(Variants)]
    jobs = ([getattr(one, name) for name in names] for one in each)
    return json.dumps([[[plan_data(job.plan) for job in some] for some in lists] for lists in jobs])


def read_variants(text: str, jobs: Sequence[Job]) -> tuple[Variants, ...]:
    """Return the variants of the plans of these jobs from their text.

    Parameters
    ----------
    text : str
        As `variants_text` writes it: one entry for each job.
    jobs : sequence of Job
        The jobs whose plans were refined, in the same order; a variant changes only the plan.
    """
    names = [field.name for field in fields(Variants)]
    return tuple(
        Variants(
            **{
                name: tuple(job.model_copy(update={"plan": Plan.model_validate(plan)}) for plan in plans)
                for name, plans in zip(names, lists, strict=True)
            }
        )
        for job, lists in zip(jobs, json.loads(text), strict=True)
    )


def exact_text(played: Sequence[Exact]) -> str:
    """Return simulated plans as text, without their jobs."""
    return json.dumps([EXACT.dump_python(one, exclude={"job"}) for one in played])


def read_exact(text: str, jobs: Sequence[Job]) -> tuple[Exact, ...]:
    """Return the exact predictions of these jobs from their text."""
    data = json.loads(text)
    return tuple(EXACT.validate_python(one | {"job": job}) for one, job in zip(data, jobs, strict=True))
