"""Faults of a job by their causes: one fault for each cause, with an edit that was tried.

Answers: which edit of a plan mends most of its faults, and keeps what its user asked for?
Elsewhere: the rules and the edits that each of them proposes (spec/rules*.py, checks.py), plans with parts
missing (search/choose.py).

Several rules may break for one reason: three ranks for 64 heads also cut the MLP unevenly and miss the
devices. Every proposed edit is applied to the plan and the rules are asked again. The edit that adds no
fault, leaves the user's own fields alone and mends most is proposed, and all that it mends is one fault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from flopcast.errors import Problem
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.workload.checks import check

DEGREES = ("data_parallel", "pipeline_parallel", "context_parallel", "tensor_parallel")  # the freest first
ONE_EDIT = re.compile(r"(?:set |leave )?(\w+) (?:to|at) ([\w,:.-]+)(?: and (\w+) to (\w+))?")
MOST_REASONS = 4  # that one fault gives
Fields = Mapping[str, object]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class _Tried:
    """An edit of a plan, the fields of the plan after it, and the faults that are left."""

    text: str
    edit: Fields
    fields: Fields
    left: tuple[Problem, ...]


def fields_of(plan: Plan) -> dict[str, object]:
    """The fields that a plan was given, by long name: none that has its default because nobody named it."""
    return {name: getattr(plan, name) for name in plan.model_fields_set}


def plan_of(job: Job, given: Fields) -> Plan:
    """A plan of what is given: replicas on all remaining devices, one micro-batch where no batch is given.

    >>> from flopcast.io.jobs import load_catalog_job
    >>> plan_of(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"), {"tensor_parallel": 4}).short()
    'dp=4 tp=4 mbs=1 gbs=4 precision=bf16'
    """
    plan = Plan(**dict(given))
    if "data_parallel" not in given and job.cluster.num_devices % plan.devices == 0:
        plan = plan.model_copy(update={"data_parallel": job.cluster.num_devices // plan.devices})
    if "global_batch" not in given:
        plan = plan.model_copy(update={"global_batch": plan.data_parallel * plan.micro_batch})
    return plan


def advised(job: Job, given: Fields) -> tuple[Problem, ...]:
    """One fault for each cause that keeps the job from being predicted.

    Parameters
    ----------
    job : Job
        Its own plan is not used.
    given : mapping
        The fields of its plan that a user gave, by long name.

    Returns
    -------
    tuple of Problem
        Empty where the plan of what is given keeps every rule. Whoever follows the fixes of its fields one
        after the other mends each of these faults.
    """
    left = check(_with(job, given))
    found: list[Problem] = []
    fields: Fields = dict(given)
    while left:
        best = _next_edit(job, fields, given, left, left)
        if best is None:
            return (*found, *_by_field(left))
        whole = _completed(job, best, given, left)
        best = whole if _mended(left, whole.left) else best  # further edits may bring the fault back
        found.append(_told(best, _mended(left, best.left)))
        known = _keys(left)
        fields, left = best.fields, tuple(one for one in best.left if _key(one) in known)
    return tuple(found)


def causes(job: Job) -> tuple[Problem, ...]:
    """As `checks.check`, but one fault for each cause: what a user is told of a job."""
    problems = check(job)
    return (advised(job, fields_of(job.plan)) or problems) if problems else ()


def _next_edit(
    job: Job, fields: Fields, given: Fields, wanted: Sequence[Problem], known: Sequence[Problem]
) -> _Tried | None:
    """The best edit for the wanted fault that is hardest to mend, as it may mend others; None for none."""
    tries, best = tuple(_tries(job, fields, wanted)), []
    for problem in wanted:
        mends = [each for each in tries if _key(problem) not in _keys(each.left)]
        if mends:
            best.append(min(mends, key=lambda each: _badness(each, given, known)))
    return max(best, key=lambda each: _badness(each, given, known)[:-1], default=None)


def _completed(job: Job, first: _Tried, given: Fields, known: Sequence[Problem]) -> _Tried:
    """An edit together with those that mend the faults which it adds, so that one fix is enough."""
    whole = first
    for _ in DEGREES:
        added = [one for one in whole.left if _key(one) not in _keys(known)]
        more = _next_edit(job, whole.fields, given, added, [*known, *added]) if added else None
        if more is None or not more.edit.keys().isdisjoint(whole.edit):
            break
        whole = replace(more, edit={**whole.edit, **more.edit}, text="")
    return whole


def _with(job: Job, given: Fields) -> Job:
    """The job with the plan of what is given."""
    return job.model_copy(update={"plan": plan_of(job, given)})


def _key(problem: Problem) -> tuple[str, str]:
    """What tells one broken rule from another."""
    return problem.field, problem.because


def _keys(problems: Sequence[Problem]) -> set[tuple[str, str]]:
    """What tells broken rules from others."""
    return {_key(problem) for problem in problems}


def _mended(before: Sequence[Problem], after: Sequence[Problem]) -> list[Problem]:
    """Faults that an edit mends."""
    left = _keys(after)
    return [problem for problem in before if _key(problem) not in left]


def _badness(tried: _Tried, given: Fields, left: Sequence[Problem]) -> tuple[int, ...]:
    """What speaks against an edit, the weightiest first.

    Faults that it adds; fields of the user that it takes back to their default, and that it changes; mended
    faults, which speak for it.
    """
    known = _keys(left)
    added = sum(_key(problem) not in known for problem in tried.left)
    touched = [name for name in tried.edit if name in given]
    usual = Plan()
    undone = sum(
        name != "data_parallel" and tried.edit[name] == getattr(usual, name) for name in touched
    )  # replicas are what the other degrees leave
    return added, undone, len(touched), -len(_mended(left, tried.left))


def _tries(job: Job, fields: Fields, left: Sequence[Problem]) -> Iterator[_Tried]:
    """Every edit that a fault proposes, or that makes degrees multiply to the devices, as applied."""
    texts = [text for problem in left for text in re.split(r",? or ", problem.fix)]
    edits = {text: _edit_of(text) for text in texts}
    edits |= {_sentence(edit): edit for edit in _degrees(job, fields)}
    for text, edit in edits.items():
        after = {**fields, **edit}
        try:
            left_after = check(_with(job, after)) if edit else ()
        except ValidationError:
            continue
        if edit:
            yield _Tried(text=text, edit=edit, fields=after, left=left_after)


def _edit_of(text: str) -> dict[str, object]:
    """The fields that a text sets; empty where it says something else, or edits no plan.

    >>> _edit_of("set pipeline_parallel to 2 and virtual_stages to 1"), _edit_of("use 2 nodes")
    ({'pipeline_parallel': 2, 'virtual_stages': 1}, {})
    """
    match = ONE_EDIT.fullmatch(text)
    if match is None:
        return {}
    name, value, other, its_value = match.groups()
    edit = {name: _value(value)} | ({other: _value(its_value)} if other else {})
    return edit if edit.keys() <= Plan.model_fields.keys() else {}


def _value(text: str) -> object:
    """A value of a plan as an edit writes it."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isdecimal():
        return int(text)
    parts = text.split(",")
    return tuple(map(int, parts)) if all(part.isdecimal() for part in parts) else text


def _sentence(edit: Fields) -> str:
    """Edits as one sentence.

    >>> _sentence({"tensor_parallel": 4, "stage_layers": (3, 5), "sequence_parallel": True})
    'set tensor_parallel to 4, stage_layers to 3,5 and sequence_parallel to true'
    """
    words = [f"{name} to {_word(value)}" for name, value in edit.items()]
    return f"set {' and '.join([', '.join(words[:-1]), words[-1]] if len(words) > 1 else words)}"


def _word(value: object) -> str:
    """A value of a plan as a user writes it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _degrees(job: Job, fields: Fields) -> Iterator[dict[str, object]]:
    """Edits after which all degrees multiply to the devices, or to a part of them where replicas are open.

    One given degree is changed to the nearest that fits; or one besides replicas, and these with it.
    """
    plan, devices = Plan(**dict(fields)), job.cluster.num_devices
    whole = "data_parallel" in fields
    for name in (name for name in DEGREES if name in fields):
        own: int = getattr(plan, name)
        others = plan.devices // own
        if devices % others == 0:
            allowed = [devices // others] if whole else divisors(devices // others)
            yield {name: _nearest(allowed, own)}
        others //= plan.data_parallel
        if whole and name != "data_parallel" and devices % others == 0:
            degree = _nearest(divisors(devices // others), own)
            yield {name: degree, "data_parallel": devices // others // degree}


def _nearest(degrees: Sequence[int], wanted: int) -> int:
    """The degree that changes least; of two the smaller."""
    return min(degrees, key=lambda degree: (abs(degree - wanted), degree))


def _told(tried: _Tried, mended: Sequence[Problem]) -> Problem:
    """One fault for all that an edit mends, told of the field that it changes."""
    blamed = [one for one in mended if one.field.removeprefix("plan.") in tried.edit]
    blamed += [one for one in mended if one.field == "plan"]
    rest = [one for one in mended if one not in blamed]
    text = tried.text if tried.text.startswith(("set ", "leave ")) else _sentence(tried.edit)
    return replace(_joined([*blamed, *rest]), fix=text)


def _joined(problems: Sequence[Problem]) -> Problem:
    """The first of several faults, with what the others allow and why."""
    few = problems[:MOST_REASONS]
    allowed, because = (
        "; ".join(dict.fromkeys(getattr(one, name) for one in few)) for name in ("allowed", "because")
    )
    return replace(problems[0], allowed=allowed, because=because)


def _by_field(problems: Sequence[Problem]) -> Iterator[Problem]:
    """One fault for each field."""
    fields: dict[str, list[Problem]] = {}
    for problem in problems:
        fields.setdefault(problem.field, []).append(problem)
    for same in fields.values():
        yield _joined(same)
