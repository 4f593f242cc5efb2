"""Errors in a job by cause: one error for each cause, with a fix that was tried.

Answers: which edit of a plan fixes most of its faults and changes fewest fields that the user gave?
Elsewhere: the rules and their proposed edits (spec/rules*.py, checks.py), incomplete plans
(search/default_plan.py).

One wrong value may break several rules: a tensor-parallel degree of 3 divides neither 64 heads nor the MLP
nor the number of devices. flopcast applies every proposed edit to the plan and checks the rules again. The
best edit adds no fault, changes no field that the user gave, and fixes most faults. All faults that it
fixes are reported as one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from flopcast.errors import Problem
from flopcast.fixes import set_to
from flopcast.records import Record, replace
from flopcast.spec.divisors import divisors
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import DEGREES
from flopcast.strict_model import cached_results
from flopcast.workload.checks import check
from flopcast.workload.joined_faults import by_field, joined

ALONE = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
MOST_COMPLETED = 8  # edits for which further edits are sought that mend the faults they add
Fields = Mapping[str, object]


class _Tried(Record, eq=False):
    """An edit of a plan, the fields of the plan after it, and the faults that are left."""

    edit: Fields
    fields: Fields
    left: tuple[Problem, ...]


class _Fix(Record, eq=False):
    """An edit, and the faults of the user's plan that it mends."""

    edit: Fields
    mended: tuple[Problem, ...]


def fields_of(plan: Plan) -> dict[str, object]:
    """Return the fields that were set in a plan, by long name, without those that have their default."""
    return {name: getattr(plan, name) for name in plan.model_fields_set}


def plan_of(job: Job, user_fields: Fields) -> Plan:
    """Return a plan of the given fields.

    By default replicas use all remaining devices, and the global batch is one micro-batch for each stage of
    each replica.

    >>> from flopcast.requests.job_files import load_catalog_job
    >>> plan_of(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"), {"tensor_parallel": 4}).short()
    'dp=4 tp=4 mbs=1 gbs=4 precision=bf16'
    """
    plan = Plan(**dict(user_fields))
    if "data_parallel" not in user_fields and job.cluster.num_devices % plan.devices == 0:
        plan = plan.model_copy(update={"data_parallel": job.cluster.num_devices // plan.devices})
    if "global_batch" not in user_fields:
        plan = plan.model_copy(
            update={"global_batch": plan.data_parallel * plan.pipeline_parallel * plan.micro_batch}
        )
    return plan


def advised(job: Job, user_fields: Fields) -> tuple[Problem, ...]:
    """Return one fault for each cause that prevents a prediction of the job.

    Parameters
    ----------
    job : its plan is not used
    user_fields : the fields of its plan that a user gave, by long name

    Returns
    -------
    tuple of Problem
        Empty if the plan of the given fields keeps every rule. Each fault states the values that the user
        gave. A fix that was found by trying edits removes the faults of the fields that it edits, and all
        such fixes together remove all of these faults. If no such fixes are found, there is one fault for
        each field that breaks a rule, with the fix of that rule.
    """
    problems = left = _faults(job, user_fields)
    original = {_key(problem): problem for problem in problems}
    fields: Fields = dict(user_fields)
    fixes: list[_Fix] = []
    while left:
        ranked = _ranked_edits(job, fields, user_fields, left, left)
        if not ranked:
            break
        best = _best_completed(job, ranked, user_fields, left)
        mended = tuple(original[_key(problem)] for problem in _mended(left, best.left))
        fixes = _with_fix(job, user_fields, fixes, _Fix(edit=best.edit, mended=mended))
        known = _keys(left)
        fields, left = best.fields, tuple(one for one in best.left if _key(one) in known)
    left = tuple(one for one in _faults(job, fields) if _key(one) in original)  # some may be back
    fixes = [replace(fix, mended=tuple(_mended(fix.mended, left))) for fix in fixes]
    edited = {name for fix in fixes for name in fix.edit}
    contradicted = any(not edited.isdisjoint(edit) for one in left for edit in one.edits[:1])
    if contradicted or not all(fix.mended and _holds(job, user_fields, fix) for fix in fixes):
        told = tuple(by_field(problems))
    else:
        told = (*(_problem_of(job, user_fields, fix) for fix in fixes), *by_field(left))
    return tuple(_of_degree(each, plan_of(job, user_fields)) for each in told)


def _of_degree(problem: Problem, plan: Plan) -> Problem:
    """Return a fault of all degrees together as that of the degree which its fix sets first."""
    name = next(iter(problem.edits[0])) if problem.field == "plan" and problem.edits else ""
    value = getattr(plan, name, None)
    return replace(problem, field=f"plan.{name}", value=value, fault="") if name else problem


def _with_fix(job: Job, user_fields: Fields, fixes: Sequence[_Fix], new: _Fix) -> list[_Fix]:
    """Return the fixes and a new one; it is joined with earlier ones if it changes or needs their edits."""
    changed = [fix for fix in fixes if not fix.edit.keys().isdisjoint(new.edit)]
    for more in ([], *([fix] for fix in fixes), fixes):
        some = [fix for fix in fixes if fix in changed or fix in more]
        whole = _joined_fix([*some, new], user_fields) if some else new
        if _holds(job, user_fields, whole):
            return [*(fix for fix in fixes if fix not in some), whole]
    return [_joined_fix([*fixes, new], user_fields)]


def _joined_fix(fixes: Sequence[_Fix], user_fields: Fields) -> _Fix:
    """Return one fix that makes all edits in order, without those that restore a given value."""
    edit = {name: value for fix in fixes for name, value in fix.edit.items()}
    changes = {name: value for name, value in edit.items() if user_fields.get(name) != value}
    return _Fix(edit=changes, mended=tuple(problem for fix in fixes for problem in fix.mended))


def _holds(job: Job, user_fields: Fields, fix: _Fix) -> bool:
    """Return whether a fix alone mends the faults of the fields that it edits, in the user's plan."""
    own = _of_edited_fields(fix) or list(fix.mended)
    try:
        left = _faults(job, {**user_fields, **fix.edit})
    except ValueError:
        return False
    return len(_mended(own, left)) == len(own)


def _of_edited_fields(fix: _Fix) -> list[Problem]:
    return [one for one in fix.mended if one.field.removeprefix("plan.") in fix.edit]


def lasting(problems: Sequence[Problem], given: Fields) -> tuple[Problem, ...]:
    """Return the faults that remain for every choice of the fields that the user omitted."""

    def mended(names: Iterable[str]) -> bool:
        return all(name in Plan.model_fields and name not in given for name in names)

    return tuple(each for each in problems if not each.edits or not mended(each.edits[0]))


def impossible_degrees(job: Job, given: Fields) -> tuple[Problem, ...]:
    """Return the faults of degrees that no choice of the other fields of the plan can fix.

    Their fixes also change given fields that contradict them.
    """
    alone = ({name: given[name]} for name in ALONE if name in given)
    faults = [each for fields in alone for each in lasting(advised(job, fields), fields)]
    found = [each for each in faults if each.field.removeprefix("plan.") in ALONE]
    together = {each.field: each for each in advised(job, given)} if found else {}
    return tuple(together.get(each.field, each) for each in found)


@cached_results(256, "plan", "checkpoint")  # a reader of jobs asks, and a prediction asks again
def causes(job: Job) -> tuple[Problem, ...]:
    """Return the errors that a user sees: those of `checks.check`, but only one for each cause."""
    problems = check(job)
    return (advised(job, fields_of(job.plan)) or problems) if problems else ()


def _ranked_edits(
    job: Job, fields: Fields, user_fields: Fields, wanted: Sequence[Problem], known: Sequence[Problem]
) -> list[_Tried]:
    """Return the edits that mend the wanted fault that is hardest to mend, the best edit first.

    The hardest fault comes first because its edit may mend others, too. Faults that no edit mends are left
    out.
    """
    tries, ranked = tuple(_tries(job, fields, wanted)), []
    for problem in wanted:
        mends = [each for each in tries if _key(problem) not in _keys(each.left)]
        if mends and not problem.field.startswith("site."):  # a description of the machine
            ranked.append(sorted(mends, key=lambda each: _badness(each, user_fields, known)))
    return max(ranked, key=lambda edits: _badness(edits[0], user_fields, known)[:-1], default=[])


def _best_completed(
    job: Job, ranked: Sequence[_Tried], user_fields: Fields, known: Sequence[Problem]
) -> _Tried:
    """Return the best edit that adds no fault once it is completed; the best of all if there is none."""
    for edit in ranked[:MOST_COMPLETED]:
        whole = _completed(job, edit, user_fields, known)
        if _keys(whole.left) <= _keys(known) and _mended(known, whole.left):
            return whole
    first = _completed(job, ranked[0], user_fields, known)
    return first if _mended(known, first.left) else ranked[0]  # further edits may bring the fault back


def _completed(job: Job, first: _Tried, user_fields: Fields, known: Sequence[Problem]) -> _Tried:
    """Return an edit together with edits that mend the faults which it adds, so that one fix is enough."""
    whole = first
    for _ in DEGREES:
        added = [one for one in whole.left if _key(one) not in _keys(known)]
        more = _ranked_edits(job, whole.fields, user_fields, added, [*known, *added])[:1] if added else []
        if not more or not more[0].edit.keys().isdisjoint(whole.edit):
            break
        whole = replace(more[0], edit={**whole.edit, **more[0].edit})
    return whole


def _faults(job: Job, user_fields: Fields) -> tuple[Problem, ...]:
    return check(job.model_copy(update={"plan": plan_of(job, user_fields)}))


def _key(problem: Problem) -> tuple[str, str]:
    """Return the key that identifies a broken rule."""
    return problem.field, problem.because


def _keys(problems: Sequence[Problem]) -> set[tuple[str, str]]:
    return {_key(problem) for problem in problems}


def _mended(before: Sequence[Problem], after: Sequence[Problem]) -> list[Problem]:
    left = _keys(after)
    return [problem for problem in before if _key(problem) not in left]


def _badness(tried: _Tried, user_fields: Fields, left: Sequence[Problem]) -> tuple[int, ...]:
    """Return the disadvantages of an edit as a sort key, the most important first.

    These are the faults that it adds, the user's fields that it resets to their default, the user's fields
    that it changes, and minus the number of faults that it mends.
    """
    known = _keys(left)
    added = sum(_key(problem) not in known for problem in tried.left)
    touched = [name for name in tried.edit if name in user_fields]
    usual = Plan()
    # the number of replicas follows from the other degrees, so that changing it undoes nothing
    undone = sum(name != "data_parallel" and tried.edit[name] == getattr(usual, name) for name in touched)
    return added, undone, len(touched), -len(_mended(left, tried.left))


def _tries(job: Job, fields: Fields, left: Sequence[Problem]) -> Iterator[_Tried]:
    """Try every edit that a fault proposes or that makes degrees multiply to the devices."""
    stated = (edit for problem in left for edit in problem.edits if edit.keys() <= Plan.model_fields.keys())
    edits = {set_to(edit): edit for edit in (*stated, *_degrees(job, fields))}
    for edit in edits.values():
        after = {**fields, **edit}
        try:
            left_after = _faults(job, after)
        except ValueError:
            continue
        yield _Tried(edit=edit, fields=after, left=left_after)


def _degrees(job: Job, fields: Fields) -> Iterator[dict[str, object]]:
    """Yield edits after which degrees multiply to the devices, or divide them if replicas are not given.

    Each edit changes one given degree, or one given degree and the number of replicas; the nearest values
    come first.
    """
    plan, devices = Plan(**dict(fields)), job.cluster.num_devices
    whole = "data_parallel" in fields
    for name in (name for name in DEGREES if name in fields):
        own: int = getattr(plan, name)
        others = plan.devices // own
        if devices % others == 0:
            allowed = [devices // others] if whole else divisors(devices // others)
            for degree in _nearest_first(allowed, own):
                yield {name: degree}
        others //= plan.data_parallel
        if whole and name != "data_parallel" and devices % others == 0:
            for degree in _nearest_first(divisors(devices // others), own):
                yield {name: degree, "data_parallel": devices // others // degree}


def _nearest_first(degrees: Sequence[int], own: int) -> list[int]:
    """Return the degrees other than `own`, the nearest first; of two equally near, the smaller first."""
    others = (degree for degree in degrees if degree != own)
    return sorted(others, key=lambda degree: (abs(degree - own), degree))


def _problem_of(job: Job, user_fields: Fields, fix: _Fix) -> Problem:
    """Return one fault for all that a fix mends, reported on a field that the fix edits.

    Numbers of other fields that the fix also mends follow from these faults, and are left out. Named
    settings do not follow from them.
    """
    blamed = _of_edited_fields(fix)
    blamed += [one for one in fix.mended if one.field == "plan"]
    blamed += [one for one in fix.mended if one not in blamed and isinstance(one.value, str)]
    reasons = _after_other_edits(job, user_fields, fix, blamed) or fix.mended
    devices = next((one for one in reasons if one.field == "plan"), None)
    needed = plan_of(job, user_fields).devices
    if devices and needed > job.cluster.num_devices and len(fix.edit) == 1:  # its limit implies the numbers
        named = [one for one in reasons[1:] if isinstance(one.value, str)]
        reasons = [replace(reasons[0], allowed=devices.allowed, because=devices.because), *named]
    worded = (one.fix for one in reasons if one.edits == (fix.edit,) and not one.fix.startswith("set "))
    return replace(joined(reasons), fix=next(worded, set_to(fix.edit)))


def _after_other_edits(
    job: Job, user_fields: Fields, fix: _Fix, blamed: Sequence[Problem]
) -> list[Problem]:
    """Return faults with what is allowed for their field once the other fields are edited."""
    result: list[Problem] = []
    for one in blamed:
        others = {name: value for name, value in fix.edit.items() if f"plan.{name}" != one.field}
        try:
            left = _faults(job, {**user_fields, **others}) if len(fix.edit) > 1 else ()
        except ValueError:
            left = ()
        same = [each for each in left if each.field == one.field and each.because == one.because]
        result.append(replace(one, allowed=same[0].allowed) if same else one)
    return result
