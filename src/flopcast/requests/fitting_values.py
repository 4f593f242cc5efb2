"""Fixes of wrong values in a plan: values that the rest of the job allows.

Answers: which number or word of a plan did a user mean, and does the job accept it?
Elsewhere: fixes of other parts of a job (accepted_fixes.py), broken rules (workload/suggested_fixes.py).
"""

import re
from collections.abc import Mapping, Sequence

from flopcast.errors import Problem, SpecError
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.fixes import only_value, set_to
from flopcast.meant_quantities import meant_count
from flopcast.quantities import parse_length, parse_tokens
from flopcast.records import replace
from flopcast.requests.problem_places import with_places
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import NUMERIC
from flopcast.workload.checks import check
from flopcast.workload.suggested_fixes import advised, fields_of, plan_of

RANGE = re.compile(r"\s*[<>]=?\s*\d")
OF_RANGE = "the value is a range; flopcast search takes ranges such as 1..8, and other commands do not"
DIGITS = re.compile(r"[0-9]+")
IN_TOKENS = re.compile(r"(\d[\d.,]*\s*[kKmMbBtT]?)\s*tok(?:en)?s?|(\d[\d.,]*\s*[kKmMbBtT])")


def with_fitting_values(
    problems: Sequence[Problem],
    document: Document,
    data: Mapping[str, object],
    fixed: Mapping[str, object] | None,
) -> list[Problem]:
    """Return the faults of a job's parts, with fixes of its plan's numbers that keep every rule.

    The value of a fix is the whole number in the wrong value, if it is possible. Otherwise, it follows from
    the other fields and the number of devices. If other faults prevent this, the fixes do not change.

    Parameters
    ----------
    problems : faults of the job that `data` describe
    document, data : the job, whose other parts are valid
    fixed : the fields that the user has set, if flopcast completes the plan
    """
    plan = data.get("plan") if fixed is None else fixed
    batch = data.get("batch")
    length = batch.get("sequence_length", batch.get("seq")) if isinstance(batch, Mapping) else None
    problems = [in_sequences(each, length) for each in problems]
    wrong = {problem.field.removeprefix("plan."): problem for problem in problems}
    chosen = only_value(problems[0].fix) if len(problems) == 1 else ""
    name = next(iter(problems[0].edits[0])) if chosen else ""
    numeric = wrong.keys() <= set(NUMERIC) and not any(each.value == "auto" for each in problems)
    if not isinstance(plan, Mapping) or not wrong or not (numeric or name in Plan.model_fields):
        return list(problems)
    rest = {name: value for name, value in plan.items() if name not in wrong}
    try:
        job = build(Job, document, {**data, "plan": rest})
        if chosen and not numeric:
            return with_places(_with_fitting_choice(problems[0], name, chosen, job), document)
    except SpecError:  # other parts are wrong, or the proposed value is no value of the plan
        return list(problems)
    fitting = plan_of(job, fields_of(job.plan))
    numbers = {
        name: _number_in(problem.fix if problem.fault else str(problem.value))
        for name, problem in wrong.items()
    }
    numbers |= {name: job.cluster.node.devices for name, problem in wrong.items() if problem.value == "max"}
    given = {name: number for name, number in numbers.items() if number}
    likely = plan_of(job, {**fields_of(job.plan), **given})
    if any(problem.fault for problem in wrong.values()):
        unit = likely.data_parallel * likely.micro_batch
        whole = max(1, round(likely.global_batch / unit)) * unit
        likely = likely.model_copy(update={"global_batch": whole})
    plans = [each for each in (likely, fitting) if not check(job.model_copy(update={"plan": each}))]
    if not plans:
        return list(problems)
    values = {name: getattr(plans[0], name) for name in wrong}
    fitted = {name: replace(each, fix=set_to({name: values[name]})) for name, each in wrong.items()}
    return [
        replace(each, because=OF_RANGE) if RANGE.match(str(each.value)) else each
        for each in fitted.values()
    ]


def _number_in(text: str) -> int:
    """Return the number that a text contains, or the nearest power of two inside the bound that it states.

    >>> _number_in("8 GPUs"), _number_in("<8"), _number_in(">4"), _number_in("few")
    (8, 4, 8, 0)
    """
    number = DIGITS.search(text)
    value = int(number[0]) if number else 0
    if value > 1 and re.match(r"\s*<(?!=)", text):
        return 1 << (value - 1).bit_length() - 1
    return 1 << value.bit_length() if value and re.match(r"\s*>(?!=)", text) else value


def in_sequences(problem: Problem, length: object) -> Problem:
    """Return the fault of a global batch in tokens; its fix states the nearest number of sequences.

    Parameters
    ----------
    length : tokens of a sequence, if the job states them
    """
    is_batch = problem.field.removeprefix("plan.") == "global_batch"
    found = IN_TOKENS.fullmatch(str(problem.value)) if is_batch else None
    text = found[1] or found[2] if found else ""
    if found is None or not isinstance(length, int) or length < 1 or not meant_count(text):
        return problem
    binary = parse_length(text) if re.fullmatch(r"\d+\s*[kKmM]", text) else 0  # 4M may be 2^22
    tokens = binary if binary and binary % length == 0 else int(parse_tokens(meant_count(text)))
    if found[2] and tokens < length:
        return problem  # a number of sequences
    because = f"{tokens:,} tokens are {tokens / length:,.6g} sequences of {length:,} tokens"
    allowed, fault = "a whole number of sequences", f"= {problem.value!r} is a number of tokens"
    fix = set_to(global_batch=max(1, round(tokens / length)))
    if found[2] and binary and text[-1] in "kK":
        allowed = f"{allowed} without a letter, such as {binary} if you mean {binary:,} sequences"
    return replace(problem, allowed=allowed, because=because, fix=fix, fault=fault)


def _with_fitting_choice(problem: Problem, name: str, word: str, job: Job) -> list[Problem]:
    """Return the fault of one word of a plan; its fix states a similar word that keeps every rule, if any.

    Otherwise the fix also edits the fields that contradict the proposed word. Faults that the plan has
    without this word follow.
    """
    begun = [each for each in re.findall(r"\w+", problem.allowed) if each.startswith(str(problem.value))]
    others = advised(job, fields_of(job.plan))
    known = {(each.field, because) for each in others for _, because in each.conditions}
    left = {
        each: [
            one
            for one in advised(job, fields_of(job.plan) | {name: int(each) if each.isdecimal() else each})
            if known.isdisjoint((one.field, because) for _, because in one.conditions)
        ]
        for each in dict.fromkeys((word, *begun))
    }
    right = next((each for each, faults in left.items() if not faults), word)
    further = [edit for fault in left[right] for edit in fault.edits[:1] if "" not in edit]
    fix = set_to({name: right} | {k: v for edit in further for k, v in edit.items()})
    if any(name in edit for edit in further):
        fix = set_to(further[0])
    mended = {f"plan.{name}" for name in fix.edits[0]}
    return [replace(problem, fix=fix), *(each for each in others if each.field not in mended)]
