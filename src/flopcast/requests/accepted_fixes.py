"""Trials of the fixes of a job's errors: does the job accept them, and which further errors do they reveal?

Elsewhere: the fixes themselves (files/field_faults.py, spec/), places of errors (problem_places.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence

from flopcast.errors import MISSING, InfeasibleError, Problem, SpecError, shown
from flopcast.files.field_faults import NO_OTHER
from flopcast.files.field_names import ARGUMENT, UNKNOWN_KEY
from flopcast.files.field_paths import dotted, path_of, value_at
from flopcast.files.nearest_names import alternatives
from flopcast.files.yaml_text import Document, Path
from flopcast.fixes import Fix, in_words, set_to, with_text
from flopcast.library.edits import long_names
from flopcast.records import replace
from flopcast.requests.applied_fixes import LONG_NAMES, after_fix, with_stated_homes
from flopcast.requests.problem_places import IN_TEXT, as_typed, of_text
from flopcast.spec.deployment import Deployment
from flopcast.spec.plan import Plan

OTHER_STACK = "choose --stack "  # begins a fix by other software
WORDS = re.compile(r"(?=.*[a-z])[\w.-]+(?:, [\w.-]+)* or [\w.-]+")  # that a field allows
WORD = re.compile(r"[\w.-]+(?=,| or |$)")
MOST_WORDS = 16  # of which each is tried
MOST_FAULTS = 16  # after which no further trial looks for more


def with_accepted_fixes(
    problems: Sequence[Problem], document: Document, check: Callable[[Document], object]
) -> list[Problem]:
    """Return the faults of a job. If the job also refuses the value of a fix, the fault gets its next fix.

    All fixes that edit one value are tried together. Faults that they reveal in the same part of the job
    are added, so that no further run reports them. Several faults of one text have one fix: the text with
    all corrections.

    Parameters
    ----------
    problems, document : the faults of a document
    check : raises an error unless a document describes a job
    """
    problems = with_stated_homes(problems, document)
    several = [each for each in problems if each.edits and len(each.edits[0]) > 1]
    if several and len(several) < len(problems):  # other fixes may remove faults whose fixes are not tried
        causes = _causes(problems, document, check)
        problems = [each for each in problems if each in causes or each not in several]
    every, corrected = after_fixes(problems, document, check)
    once: dict[object, Problem] = {}
    for each in every:  # a value that a fix moves elsewhere is wrong there, too
        once.setdefault((each.where, str(each.value), each.fix) if each.edits else id(each), each)
    every = [each for each in once.values() if not _moved_with(each, problems)]
    for home in IN_TEXT:
        wrong, text = value_at(document.data, home), value_at(corrected.data, home)
        inside = [each for each in every if path_of(each.field)[: len(home)] == home]
        if len(inside) < 2 or not (isinstance(wrong, str) and isinstance(text, str) and wrong != text):
            continue
        if all(path_of(field)[: len(home)] != home for field, _ in _faults_after(check, corrected)):
            fix = of_text(home, text, document)
            written = {dotted(home): wrong}
            own = [replace(each, fix=fix, value=written.get(each.field, each.value)) for each in inside]
            stated = [one for each, one in zip(inside, own, strict=True) if _is_in(each.value, wrong)]
            causes = stated or own[:1]  # a default follows from what the text does not state
            because = dict.fromkeys(each.because for each in own if each not in causes[1:])
            causes[0] = replace(causes[0], because="; ".join(because))
            every = [*(each for each in every if each not in inside), *causes]
    return every


def _is_in(value: object, text: str) -> bool:
    """Return whether a text states a value, which is else the default of its field."""
    return re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", text) is not None


def _moved_with(problem: Problem, problems: Sequence[Problem]) -> bool:
    """Return whether the fix of a key in the wrong section already has the right value of a problem."""
    right = [in_words(value) for edit in problem.edits for value in edit.values()]
    return any(
        each.fix.startswith("move ") and str(each.value) == str(problem.value) and right[0] in each.fix
        for each in problems
        if right and each.field != problem.field
    )


def _with_allowed_words(
    problem: Problem, right: str, document: Document, check: Callable[[Document], object]
) -> Problem:
    """Return the fault of a word; of the words that its field allows, only those that the job allows.

    `document` has the word `right` in place of the wrong one.
    """
    listed = WORD.findall(problem.allowed) if right and WORDS.fullmatch(problem.allowed) else []
    accepted = []
    for word in listed[:MOST_WORDS]:
        proposed = replace(problem, value=right, fix=set_to({problem.field: word}))
        data = document.data if word == right else after_fix(document.data, proposed)
        if all(field != problem.field for field, _ in _faults_after(check, replace(document, data=data))):
            accepted.append(word)
    if accepted in ([], listed):
        return problem
    because = problem.because.replace(NO_OTHER, f"with the rest of this job, {NO_OTHER}")
    return replace(problem, allowed=alternatives(accepted), because=because)


def after_fixes(
    problems: Sequence[Problem],
    document: Document,
    check: Callable[[Document], object],
    earlier: Sequence[Problem] = (),
) -> tuple[list[Problem], Document]:
    """Return the faults of a document and those that their fixes reveal, and the document after all fixes.

    `earlier` are the faults of earlier trials.
    """
    changed, right, new = _all_fixed(problems, document)
    if changed.data == document.data or len(earlier) > MOST_FAULTS:
        return list(problems), document
    left: list[Problem] = []
    try:
        check(changed)
    except SpecError as error:
        parts = {path_of(field)[0] for field in right} | {path[-1] for path in new.values()}
        known = {(each.field, each.because) for each in (*earlier, *problems)}
        certain = _with_other_fixes(problems, document, check)
        left = [
            each
            for each in error.problems
            if (each.field, each.because) not in known or right.get(each.field) == str(each.value)
            if certain is None or path_of(each.field)[0] in parts or (each.field, each.because) in certain
        ]
    except InfeasibleError:
        pass
    parts_alone = [each for each in left if getattr(each.fix, "part", "") not in ("", str(each.value))]
    problems = [_with_allowed_words(each, right.get(each.field, ""), changed, check) for each in problems]
    long = {_long_name(field): field for field in right}  # the user may have written short names
    again = {long[each.field]: each for each in left if each.field in long and each not in parts_alone}
    first = [_refused_twice(each, again.get(each.field), right.get(each.field, "")) for each in problems]
    values = {each.field: each for each in left if each.edits and path_of(each.field) in new.values()}
    first = [_with_value(each, values.get(dotted(new.get(each.field, ())))) for each in first]
    further = [each for each in left if each not in again.values() and each.field not in values]
    _join(first, further, lambda one, second: not second.edits and _wrote(one, right, second))
    known_faults = (*earlier, *problems, *again.values(), *values.values())
    others, corrected = after_fixes(_causes(further, changed, check), changed, check, known_faults)
    _join(first, others, lambda one, second: (one.field, right.get(one.field)) == _value_of(second))
    settings = [f"{path_of(field)[-1]}={value}" for field, value in right.items()]
    others = as_typed(others, changed, (), settings)
    if not again and not values:
        return [*first, *others], corrected
    told, corrected = after_fixes(first, document, check, (*known_faults, *left, *others))
    return [*told[: len(first)], *others, *told[len(first) :]], corrected


def _all_fixed(
    problems: Sequence[Problem], document: Document
) -> tuple[Document, dict[str, str], dict[str, Path]]:
    """Return a document with the fixes of all these problems applied.

    The second result has the corrected value of each field. The third has, for each unknown key, the path
    of the key that was meant.
    """
    data, right, new = document.data, dict[str, str](), dict[str, Path]()
    lines, places = dict(document.lines), dict(document.places)
    for problem in problems:
        before, path = data, path_of(problem.field)
        data = after_fix(data, problem)
        if data == before or not problem.edits:
            continue
        (name, value), *_ = problem.edits[0].items()
        right[problem.field] = in_words(value)
        if problem.fault == UNKNOWN_KEY:
            at = new[problem.field] = (*path[:-1], name)
            lines |= {at: lines[path]} if path in lines else {}
            if document.places.get(path, "").startswith(ARGUMENT):
                place = f"{ARGUMENT}{dotted(at)}={problem.value}"
                places |= {at: document.places[path] if isinstance(value, dict) else place}
    return replace(document, data=data, lines=lines, places=places), right, new


def _long_name(field: str) -> str:
    """Return a field of a plan under its long name: plan.cache for plan.kv of a serving job."""
    home, dot, name = field.rpartition(".")
    return f"{home}{dot}{long_names(Deployment).get(name, long_names(Plan).get(name, name))}"


def _join(first: list[Problem], further: list[Problem], wrote: Callable[[Problem, Problem], bool]) -> None:
    """Move each further fault whose value the fix of a first one wrote into that fault and its fix."""
    for second in list(further):
        for one in [each for each in first if wrote(each, second)][:1]:
            because = f"{one.because}; for {second.value}, {second.because}"
            first[first.index(one)] = replace(one, because=because, fix=f"{one.fix}, and {second.fix}")
            further.remove(second)


def _value_of(problem: Problem) -> tuple[str, str]:
    return problem.field, str(problem.value)


def _with_other_fixes(
    problems: Sequence[Problem], document: Document, check: Callable[[Document], object]
) -> set[tuple[str, str]] | None:
    """Return the faults of a document after other fixes of its problems; None if no fix has an alternative.

    Faults that follow both fixes do not depend on which one was meant. An example of a number is doubled;
    all faults may depend on other examples.
    """
    examples = [each for each in problems if getattr(each.fix, "is_example", False)]
    others = {id(each): _other_number(in_words(*each.edits[0].values())) for each in examples if each.edits}
    if None in others.values() or len(others) < len(examples):
        return set()
    if not examples and all(len(each.edits) < 2 for each in problems):
        return None
    data = document.data
    for each in problems:
        other = others.get(id(each))
        edits = each.edits[::-1] if other is None else (dict.fromkeys(each.edits[0], other),)
        data = after_fix(data, replace(each, fix=Fix(each.fix, edits)))
    return _faults_after(check, replace(document, data=data))


def _other_number(text: str) -> int | float | str | None:
    """Return another number with the unit of a text, twice as large or, below 1, half; None for texts.

    >>> [_other_number(text) for text in ("8", "1.1", "0.9", "50 GB/s", "mine", "2x1024x768")]
    [16, 2.2, 0.45, '100 GB/s', None, None]
    """
    found = re.fullmatch(r"(\d+)(\.\d+)?( ?[A-Za-z/]+)?", text)
    if not found:
        return None
    number = int(found[1]) if found[2] is None else float(found[1] + found[2])
    other = number * 2 if number >= 1 else number / 2
    return f"{other:g}{found[3]}" if found[3] else other


def _wrote(one: Problem, right: Mapping[str, str], second: Problem) -> bool:
    """Return whether the fix of a short form, and not the user, wrote the word that `second` refuses."""
    home, new = path_of(one.field), {*right.get(one.field, "").split()} - {*str(one.value).split()}
    return home in IN_TEXT and path_of(second.field)[:-1] == home and str(second.value) in new


def _faults_after(check: Callable[[Document], object], document: Document) -> set[tuple[str, str]]:
    """Return the field and the reason of each fault of a document."""
    try:
        check(document)
    except SpecError as error:
        return {(each.field, each.because) for each in error.problems}
    except InfeasibleError:
        pass
    return set()


def _causes(
    problems: Sequence[Problem], document: Document, check: Callable[[Document], object]
) -> list[Problem]:
    """Return the faults of a document without those that the fix of another one removes, too."""
    left = list(problems)
    for problem in problems:
        data = after_fix(document.data, problem)
        if problem not in left or len(left) < 2 or data == document.data:
            continue
        after = _faults_after(check, replace(document, data=data))
        left = [each for each in left if each is problem or (each.field, each.because) in after]
    return left


def _with_value(problem: Problem, second: Problem | None) -> Problem:
    """Return the fault of an unknown key; its fix also corrects the value, if `second` refuses it."""
    if second is None or not problem.edits or max(len(problem.edits[0]), len(second.edits[0])) > 1:
        return problem
    ((name, _),), ((changed, value),) = problem.edits[0].items(), second.edits[0].items()
    own = ("", name, second.field, *path_of(second.field)[-1:], second.where)
    is_other = LONG_NAMES.get(changed, changed) not in own  # the fix of the value changes another field
    value, further = (problem.value, f", and {second.fix}") if is_other else (value, "")
    setting = f"{name}: {in_words(value)}"
    if problem.where.startswith(ARGUMENT):
        setting = f'{second.field}="{in_words(value)}"'
    elif not problem.where[-1:].isdigit():
        setting = f"{name}={in_words(value)}".replace(" ", "")
    because = f"{problem.because}; {also_refused(shown(problem.value), second)}"
    return replace(problem, because=because, fix=Fix(f"write {setting}{further}", ({name: value},)))


def _refused_twice(problem: Problem, second: Problem | None, right: str) -> Problem:
    """Return the fault of a value; `second` is that of its usual spelling `right`, if it has one."""
    if second is None:
        return problem
    if problem.edits and second.fix.startswith("add "):  # the right value needs a further field
        because = f"{problem.because}; {second.because}"
        return replace(problem, because=because, fix=f"{problem.fix}, and {second.fix}")
    most = re.search(r"^at most \w+ \((\d+)\)", second.allowed)
    if problem.fault == MISSING and most and right.isdecimal():  # another example fits the rest of the job
        return replace(
            problem, allowed=second.allowed, fix=with_text(problem.fix, problem.fix.replace(right, most[1]))
        )
    if getattr(problem.fix, "is_example", False):
        return replace(problem, fix=second.fix) if second.edits else problem
    part = getattr(problem.fix, "part", "")  # the word that the user wrote
    if part and not second.edits:
        return replace(problem, fix=second.fix.replace(right, part))  # the user has to leave it out
    because, fix = f"{problem.because}; {also_refused(right, second)}", second.fix
    because = problem.because if second.because == problem.because else because
    name = path_of(problem.field)[-1]
    sets_own = any({"", name, problem.field} & {*edit} for edit in second.edits[:1])
    is_whole = sets_own or not problem.edits or fix == f"remove {problem.where}"
    is_whole |= fix.startswith(OTHER_STACK)
    fix = fix if is_whole else f"{problem.fix}, and {fix}"
    if fix.startswith(OTHER_STACK):  # another stack accepts the usual spelling
        stack, mark, rest = fix.partition(", or ")
        sets: str = set_to({str(path_of(problem.field)[-1]): right})
        sets = sets.removeprefix("set ") if " and set " in stack else sets
        fix = Fix(f"{stack} and {sets}{mark}{rest}", second.edits)
    return replace(problem, allowed=second.allowed, because=because, fix=fix)


def also_refused(value: object, second: Problem) -> str:
    """Return the clause that states why the value of a fix is also refused."""
    if NO_OTHER in second.because:
        return f"{path_of(second.field)[-1]} can be {second.allowed}, but not {value}"
    return f"{value} is not allowed either, because {second.because}"
