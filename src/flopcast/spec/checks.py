"""How rules are applied: as errors of one job, or as a mask over many plans.

Answers: which errors does this job have, and which plans of a batch are possible?
Elsewhere: the rules (rules*.py), and the rules that need modules of higher folders (workload/checks.py).

A rule is a condition on arrays of shape (plans, 1). `broken` returns the violated rules of a job as
Problems, and `kept` returns a mask over plans, from the same conditions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from flopcast.dtypes import Counts
from flopcast.errors import Problem
from flopcast.fixes import Edit, set_to
from flopcast.records import Record, replace
from flopcast.spec.batch import Batch
from flopcast.spec.checkpoints import Checkpoint
from flopcast.spec.cluster import Cluster
from flopcast.spec.job import Job
from flopcast.spec.loader import Loader
from flopcast.spec.model import Model
from flopcast.spec.plan import Plan, Plans
from flopcast.spec.plan_fields import WORDS
from flopcast.spec.rows import of_equal_program, rows_of
from flopcast.spec.shared_sequences import plans_of
from flopcast.spec.site import Site
from flopcast.spec.stack import Stack


class Case(Record, eq=False):
    """The input of a rule: the parts of a job, and any number of plans with the same structure."""

    model: Model
    cluster: Cluster
    stack: Stack
    batch: Batch
    plans: Plans
    site: Site
    checkpoint: Checkpoint | None = None
    loader: Loader | None = None

    @classmethod
    def of(cls, job: Job, plans: Plans) -> "Case":
        """Return the input of the rules for these plans instead of the job's own.

        A batch of one plan gives the problems of a job; a batch of many plans gives a mask.
        """
        names = (each.name for each in fields(cls) if each.name != "plans")
        parts: dict[str, Any] = {name: getattr(job, name) for name in names}
        return cls(plans=plans, **parts)

    @property
    def structure(self) -> Plan:
        """Return the fields that all plans share."""
        return self.plans.structure


Text = str | Callable[[Case], str]
Ways = str | Edit | tuple[str | Edit, ...]  # of correcting the input


class Rule(Record, eq=False):
    """One condition, and the message if it is broken.

    Attributes
    ----------
    field : str or callable
        The field that breaks the rule, as the user writes it.
    holds : callable
        Returns True for plans that keep the rule: an array of shape (plans, 1), or a single value if the
        rule depends only on the structure.
    value, allowed : str or callable
        Texts about the first plan. Callables run only if the rule is broken. Without `value`, the message
        shows the value of the field.
    fix : edit, str, tuple of both, or callable
        Ways to correct the plan. The first one makes the plan keep the rule.
    fault : callable, optional
        What is wrong with the first plan, instead of "= VALUE is not allowed".
    because : str or callable
        Why the rule exists. A reader who knows the reason can choose another fix.
    about_lists : bool
        Whether the rule reads the list of micro-batches of a step. All other rules are checked for each
        kind of micro-batch, as if all micro-batches were of this kind.
    about_steps : bool
        Whether the rule reads the global batch or the number of micro-batches. All other rules are checked
        only once for plans that differ only in these numbers.
    """

    field: Text
    holds: Callable[[Case], Counts | np.ndarray | bool]
    value: Callable[[Case], object] | None = None
    fault: Callable[[Case], str] | None = None
    allowed: Text
    because: Text
    fix: Ways | Callable[[Case], Ways]
    about_lists: bool = False
    about_steps: bool = False


def first(values: Counts) -> int:
    """Return the value of the first plan in an array over plans, for the messages of rules."""
    return int(values[0, 0])


def broken(job: Job, rules: Iterable[Rule]) -> tuple[Problem, ...]:
    """Return every rule that the job breaks.

    Returns
    -------
    tuple of Problem
        In the order of the rules, and without the lines of values, which only a reader of files knows.
        Empty if the job can be predicted.
    """
    case = Case.of(job, plans_of(job.plan, job.batch))
    kinds = _by_kind(case)
    problems = []
    for rule in rules:  # about 180 of them, so that a function call for each takes a third of the time
        for each in (case,) if rule.about_lists else kinds:
            held = rule.holds(each)
            if held is not True and (held is False or not _all(held)):  # it is True for most rules
                problems.append(_problem(rule, each, case))
                break
    return tuple(problems)


class _Structure:
    """Plans without their numbers, so that a rule that reads these raises AttributeError."""

    def __init__(self, structure: Plan) -> None:
        self.structure = structure


def still_open(job: Job, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules that plans of a structure may break; the plan of the job is this structure.

    They are those that read the numbers of a plan, such as degrees. All rules are returned if another one
    is broken, so that `broken` keeps their order.
    """
    of_plans: Any = _Structure(job.plan)
    kinds, found = _by_kind(Case.of(job, of_plans)), []
    for rule in rules:
        try:
            if not all((held := rule.holds(each)) is True or np.all(held) for each in kinds):
                return tuple(rules)
        except AttributeError:
            found.append(rule)
    return tuple(found)


def _all(held: np.ndarray) -> bool:
    """Return whether all values are true; most rules return a single one, for which `all` is slow."""
    return bool(held if held.size == 1 else held.all())


def _by_kind(case: Case) -> tuple[Case, ...]:
    """Return the case as if all micro-batches were of one kind, once for each kind."""
    return tuple(replace(case, batch=kind) for kind in case.batch.kinds)


def _problem(rule: Rule, wrong: Case, case: Case) -> Problem:
    """Return a broken rule as a problem, with the fields of the micro-batch instead of the batch."""
    field, allowed, because = (
        text if isinstance(text, str) else text(wrong) for text in (rule.field, rule.allowed, rule.because)
    )
    fix = rule.fix(wrong) if callable(rule.fix) else rule.fix
    ways = fix if isinstance(fix, tuple) else (fix,)
    value = rule.value(wrong) if rule.value else _value(wrong, field)
    if not rule.about_lists and case.batch.listed:
        place = case.batch.place(wrong.batch)
        part, _, name = field.partition(".")
        field = f"{place}.{name}" if part == "batch" else field
        allowed = f"{allowed}, for {place} too"
    fault = rule.fault(wrong) if rule.fault else ""
    return Problem(field, value, allowed, because, set_to(*ways), fault=fault)


def _value(case: Case, field: str) -> object:
    """Return the value of a field such as "plan.zero"; for a degree, the value of the first plan."""
    noun, *names = field.replace("[", ".").replace("]", "").split(".")
    if noun == "plan":
        (name,) = names
        degrees = getattr(case.plans, name, None)
        value = getattr(case.structure, name) if degrees is None else first(degrees)
        return WORDS[name](value) if name in WORDS else value
    value = getattr(case, noun)
    for name in names:
        value = value[int(name)] if name.isdecimal() else getattr(value, name)
    return value


def kept(case: Case, rules: Iterable[Rule]) -> np.ndarray:
    """Return a mask of shape (plans, 1): plans that keep every rule.

    The predicates are those of `broken`, so a search and a single prediction always agree about a plan.
    """
    equal = of_equal_program(case.plans)
    one_each = replace(rows_of(case.plans, equal.first), global_batch=np.full((equal.size, 1), np.nan))
    rules = tuple(rules)
    of_steps = [rule for rule in rules if rule.about_steps or rule.about_lists]
    of_programs = [rule for rule in rules if not (rule.about_steps or rule.about_lists)]
    kept_once = _all_hold(replace(case, plans=one_each), of_programs)
    return np.asarray(kept_once[equal.group] & _all_hold(case, of_steps))


def _all_hold(case: Case, rules: Iterable[Rule]) -> np.ndarray:
    """Return a mask of shape (plans, 1) of some rules."""
    mask = np.ones((case.plans.size, 1), dtype=bool)
    kinds = _by_kind(case)
    for rule in rules:
        for each in (case,) if rule.about_lists else kinds:
            holds = rule.holds(each)
            if holds is not True:  # as it is for almost all rules
                mask &= holds
    return mask
