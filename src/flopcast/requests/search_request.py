"""The settings of a search, which are the same for the command line, Python and HTTP.

Answers: which question does a request contain, and which faults does the request have?
Elsewhere: the job of a request (resolve.py), the question itself (search/question.py), the command
(cli/search.py).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, product
from typing import TypeVar

from flopcast.errors import Problem, SpecError, collected, problems_of, spec_error
from flopcast.files.field_names import unknown_field
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document
from flopcast.files.yaml_text import Path as Place
from flopcast.fixes import Fix, in_words, set_to, with_names
from flopcast.library.edits import long_names, plan_words
from flopcast.quantities import fraction_of
from flopcast.records import Record, field, replace
from flopcast.requests.cluster_options import with_whole_nodes
from flopcast.requests.fitting_values import in_sequences
from flopcast.requests.job_files import open_job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.resolve import made_from, of_training
from flopcast.requests.search_values import dollars, flag, seconds
from flopcast.search.question import Question
from flopcast.search.space import Space
from flopcast.search.space_words import space_values
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.units import Number
from flopcast.workload.suggested_fixes import ALONE, impossible_degrees

Made = TypeVar("Made")
OF_JOBS = ("jobs", "tokens")  # fields of a question that come from its jobs
OF_RANKING = ("objectives", "deadline", "budget", "headroom", "evolve")  # fields that rank or choose plans
NO_LIMIT: Number | None = 1e15  # s or USD; in place of a wrong limit, so that the rest is checked, too
OPTION_OF = {"objective": "--objective", "tokens": "--tokens"}  # faults of a question
COMPARED = ("stack.tensor_overlap",)  # settings of which a change may list several values to try
OF_SPACE = ("tp_beyond_domain", "no_refine")  # fields that widen or narrow the space of plans


class SearchRequest(Record, eq=False):
    """The values that a user entered for a search; None or empty for values that were not entered.

    Parameters
    ----------
    job : its plan fixes fields or lists their values, and its `gpus` are sizes: "256,512" or "64..1024"
    clusters, stacks, power_limits : values to compare, instead of those of the job
    objectives, deadline, budget, headroom : see the options of `flopcast search`

    A text of `clusters`, `stacks` or `objectives` may hold several names, separated by commas. The last
    three fields are flags: True, "yes" or "true" sets them.
    """

    job: JobRequest
    clusters: Sequence[object] = ()
    stacks: Sequence[object] = ()
    power_limits: Sequence[str] = ()
    objectives: Sequence[str] = ()
    deadline: object = None
    budget: object = None
    headroom: object = None
    tp_beyond_domain: object = False
    no_refine: object = False
    evolve: object = False


def question_of(request: SearchRequest) -> Question:
    """Return the question of a request. Changes of the plan fix its fields.

    Raises
    ------
    SpecError
        Every fault of the job, of the space and of the other settings.
    """
    faults = Faults()
    settled, changes = split_changes(request.job.changes)
    words = _plan_words(" ".join([str(request.job.plan or ""), *settled]), faults)
    if request.job.offload is not None:
        words |= {"offload": request.job.offload}
    own = {name: value for name, value in words.items() if name not in Space.model_fields}
    if words.get("zero") in range(4):  # the usual stack of the job is one that has this stage
        own["zero"] = words["zero"]
    plan = _plan_text(own) if own or request.job.plan is not None else None
    job = replace(request.job, gpus=None, plan=plan, offload=None)
    clusters, stacks = (each_once(names(each)) for each in (request.clusters, request.stacks))
    limits = map(_limited, each_once(request.power_limits))
    make = of_training(open_job_of, assume_size=request.job.gpus is None)
    opened = []
    for cluster, stack, limit, varied in product(clusters, stacks, limits, _varied(changes)):
        one = replace(job, changes=(*varied, *limit), cluster=cluster, stack=stack)
        opened.append(faults.of(partial(made_from, one, make), None))
    jobs = [each for each in opened if each is not None]
    fixed = _settled(jobs[0].settled) if jobs else {}
    allowed = fixed | {name: value for name, value in words.items() if name in Space.model_fields}
    space = faults.of(lambda: _space(allowed, request), None) or _corrected(faults.found, allowed, request)
    of_jobs = tuple(each.job for each in jobs)
    checked = of_jobs or _stand_in(request.job)  # the size is checked even if no job is right
    plain = partial(Question, jobs=checked, objectives=("tokens_per_s",))
    if checked and (unsized := problems_of(lambda: tuple(plain(space=space or Space()).sized()))):
        faults.found.extend(map(_of_gpus, unsized))
        space = _corrected(faults.found, allowed, request)
    deadline_s = faults.of(partial(seconds, request.deadline), NO_LIMIT)
    budget_usd = faults.of(partial(dollars, request.budget), NO_LIMIT)
    evolve = faults.of(lambda: flag("--evolve", request.evolve), False)
    question = faults.of(
        lambda: Question(
            jobs=of_jobs,
            given=tuple(each.job.model_copy(update={"plan": each.given}) for each in jobs if each.given),
            space=space or Space(),
            objectives=_objectives(request),
            total_tokens=(jobs[0].job.run_tokens if jobs else None) or 0.0,
            deadline_s=deadline_s,
            budget_usd=budget_usd,
            evolve=evolve,
        ),
        None,
    )
    if checked:
        with collected(faults.found):
            faults.found[:] = _joined(faults.found, plain(space=space or Space()), words)
    if question is None or faults.found:
        length = jobs[0].job.batch.sequence_length if jobs else None
        problems = [in_sequences(each, length) for each in faults.relevant(without_job=not jobs)]
        raise SpecError(replace(each, field=OPTION_OF.get(each.field, each.field)) for each in problems)
    return question


def _stand_in(job: JobRequest) -> tuple[Job, ...]:
    """Return a job with the model and the cluster of a request whose other parts are wrong; () if one of
    the two is unknown.
    """
    alone = JobRequest(
        model=job.model or next(iter(job.files), None), cluster=job.cluster or USUAL["cluster"]
    )
    with suppress(SpecError):
        return (made_from(alone, of_training(open_job_of)).job,)
    return ()


def _objectives(request: SearchRequest) -> tuple[str, ...]:
    """Return the names of the objectives; by default, the step time."""
    return tuple(" ".join(map(str, request.objectives)).replace(",", " ").split()) or ("step_time",)


def _of_gpus(problem: Problem) -> Problem:
    """Return the fault of a number of devices with the option that states it."""
    fix = with_names(problem.fix, {"gpus": "--gpus"})
    return replace(problem, where="--gpus", fix=fix) if problem.field == "gpus" else problem


def _joined(faults: Sequence[Problem], question: Question, words: Mapping[str, object]) -> list[Problem]:
    """Return faults and those of impossible degrees, whose fix also those of the same text have."""
    of_field = {(each.where, each.field): each for each in _impossible_degrees(question, words)}
    both = ((each, of_field.get((each.where, f"plan.{each.field}"), each)) for each in faults)
    return [*(replace(each, field=one.field, fix=one.fix) for each, one in both), *of_field.values()]


def _impossible_degrees(question: Question, words: Mapping[str, object]) -> Iterator[Problem]:
    """Yield faults of degrees that are possible for no job; a range may also contain possible ones."""
    jobs = tuple(question.sized())
    for name in (each for each in ALONE if each in words and getattr(question.space, each)):
        possible, broken = list[object](), list[Problem]()
        for value in getattr(question.space, name):
            of_jobs = [impossible_degrees(job, {name: value}) for job in jobs]
            if all(of_jobs):
                broken += chain.from_iterable(of_jobs)
            else:
                possible.append(value)
        if broken and (not possible or "," in str(words[name])):
            nearest = possible or [edit[name] for each in broken for edit in each.edits if name in edit]
            fix = set_to({name: tuple(dict.fromkeys(nearest))}) if nearest else broken[0].fix
            yield replace(broken[0], value=str(words[name]), fix=fix, where="--plan")


def _varied(changes: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the changes with each value of those that list several.

    >>> _varied(["stack.tensor_overlap=none,tiles", "batch.sequence_length=4096"])[1]
    ('stack.tensor_overlap=tiles', 'batch.sequence_length=4096')
    """
    each = []
    for change in changes:
        key, _, value = change.partition("=")
        each.append([f"{key}={one.strip()}" for one in value.split(",")] if key in COMPARED else [change])
    return list(product(*each))


def _limited(watts: object) -> tuple[str, ...]:
    """Return the change that sets the power limit of a device; none if no limit is given."""
    if re.fullmatch(r"[\d.]+(,[\d. W]+)+", str(watts)):
        allowed, because = "one limit", "each power limit needs an option of its own"
        limits = re.findall(r"[\d.]+", str(watts))
        fix = f"write {' '.join(f'--power-limit {each}W' for each in limits)}"
        raise spec_error("--power-limit", watts, allowed, because, fix)
    if re.fullmatch(r"[\d.]+", str(watts)):
        allowed, because = "a number and a unit, such as 500 W", "the number has no unit"
        raise spec_error("--power-limit", watts, allowed, because, f'write --power-limit "{watts} W"')
    return () if watts is None else (f"site.power_limit_w={watts}",)


def each_once(values: Sequence[object]) -> tuple[object, ...]:
    """Return the values of an option that may be given several times; (None,) if it is not given."""
    return tuple(dict.fromkeys(values)) or (None,)


def names(values: Sequence[object]) -> tuple[object, ...]:
    """Return the names in texts, each of which may hold several names separated by commas.

    >>> names(["dgx-h100, dgx-b200", "vista"])
    ('dgx-h100', 'dgx-b200', 'vista')
    """
    lists = (re.split(r"\s*,\s*", value.strip()) if isinstance(value, str) else [value] for value in values)
    return tuple(chain.from_iterable(lists))


class Faults(Record, kw_only=False):
    """Faults of several steps, without repetition; the steps after a failed step also report theirs."""

    found: list[Problem] = field(default_factory=list)

    def of(self, step: Callable[[], Made], instead: Made) -> Made:
        """Return the result of a step; if it fails, keep its faults."""
        with collected(self.found):
            return step()
        return instead

    def relevant(self, *, without_job: bool) -> list[Problem]:
        """Return all faults, without those that only follow from faults of the job."""
        return [one for one in self.found if not (without_job and one.field in OF_JOBS)]


def _plan_words(text: str, faults: Faults) -> dict[str, object]:
    """Return the words of a plan; a misspelt name with several values is a fault, and counts as meant."""
    words: dict[str, object] = faults.of(lambda: plan_words(text, "--plan"), {})
    long = long_names(Plan)
    for name, value in [*words.items()]:
        if name in {**Plan.model_fields, **Space.model_fields} or not re.search(r",|\.\.", str(value)):
            continue
        problem = unknown_field(name, value, [*long, *Plan.model_fields], f"plan.{name}", "--plan")
        right = next((long.get(each, each) for edit in problem.edits for each in edit), "")
        if right in Space.model_fields and right not in words:
            faults.found.append(problem)
            words[right] = words.pop(name)
    return words


def split_changes(changes: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Return the changes of the plan, in short form, and all others."""
    of_plan = [change.removeprefix("plan.") for change in changes if change.startswith("plan.")]
    return of_plan, tuple(change for change in changes if not change.startswith("plan."))


def _plan_text(own: Mapping[str, object]) -> str:
    """Return a plan in which these fields are fixed and the rest is open."""
    words = (name if value is True else f"{name}={value}" for name, value in own.items() if name != "auto")
    return " ".join(["auto", *words])


def _settled(fixed: Mapping[str, object]) -> dict[str, object]:
    """Return the fixed fields of a job's plan that a space has."""
    settled = {name: value for name, value in fixed.items() if name in Space.model_fields}
    if "recompute" in fixed:
        settled["recompute"] = Plan(**dict(fixed)).recompute_word
    return settled


def _corrected(
    problems: Sequence[Problem], fields: Mapping[str, object], request: SearchRequest
) -> Space | None:
    """Return the space after the first fixes of its faults, to check the rest; None if this fails."""
    edits = [(each.field, edit) for each in problems for edit in each.edits[:1]]
    right = {(name or own).removeprefix("--"): value for own, edit in edits for name, value in edit.items()}
    known = {*Space.model_fields, "gpus"}
    with suppress(SpecError):
        return _space(fields, request, {name: right[name] for name in right if name in known})
    return None


def _space(
    fields: Mapping[str, object], request: SearchRequest, right: Mapping[str, object] | None = None
) -> Space:
    """Return what may vary, from the plan's text and options; `right` are corrected values."""
    places: dict[Place, str] = {(): "--plan", ("gpus",): "--gpus", ("headroom_fraction",): "--headroom"}
    for change in split_changes(request.job.changes)[0]:
        name = change.partition("=")[0]
        places[(long_names(Plan).get(name, name),)] = f"argument plan.{change}"
    if request.job.offload is not None:
        places[("offload",)] = "--offload"
    data = space_values(fields)
    stated = {"gpus": request.job.gpus, "headroom_fraction": request.headroom}
    data |= {name: value for name, value in stated.items() if value is not None}
    if flag("--no-refine", request.no_refine):
        data["refine"] = False
    if flag("--tp-beyond-domain", request.tp_beyond_domain):
        data["tensor_in_domain"] = False
    data |= right or {}
    try:
        return build(Space, Document("--plan", data, {}, places), data)
    except SpecError as error:
        several = str(data.get("offload", "")).split()
        percent = fraction_of(f"{request.headroom}%") or 0.0  # 95 means 95 %
        meant = {"--headroom": set_to({"--headroom": percent})} if 0.01 < percent <= 1 else {}
        cluster = each_once(names(request.clusters))[0] or request.job.cluster
        found = (with_whole_nodes(each, cluster) for each in error.problems)
        problems = [replace(each, fix=meant.get(each.where, each.fix)) for each in found]
        raise SpecError(_in_several(problems, several)) from None


def _in_several(problems: Sequence[Problem], values: Sequence[str]) -> list[Problem]:
    """Return faults of which those of one of several values of `--offload` keep the other values."""
    wrong = [each for each in problems if each.where == "--offload" and each.value in values and each.edits]
    right = {each.value: in_words(*each.edits[0].values()) for each in wrong if len(each.edits[0]) == 1}
    text = " ".join(right.get(value, value) for value in values)
    fix = Fix(f'write --offload "{text}"', ({"offload": text},))
    return [
        replace(each, fix=fix) if len(values) > 1 and each in wrong and each.value in right else each
        for each in problems
    ]
