"""Conversion of a request to a job: it reads files, applies options and changes, fills in defaults, and
checks everything.

Answers: which job does a request describe, and where was each of its values given?
Elsewhere: the values of a request (job_request.py), edits of documents (library/edits.py), the conversion
of a document to a job (job_files.py). Later values override earlier ones: options replace values of the
file (--plan replaces only the fields that it states, unless it is a whole plan), and KEY=VALUE changes
both. `gpus` then sets the size of the cluster, and `price` the price of its devices, wherever the cluster
was named.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from flopcast.errors import (
    MEANT,
    InfeasibleError,
    Problem,
    SpecError,
    common_problems,
    problems_of,
    spec_error,
)
from flopcast.files.field_names import ARGUMENT
from flopcast.files.named_files import ReadFile, read_file
from flopcast.files.yaml_text import Document
from flopcast.fixes import only_value
from flopcast.library.edits import edited_document
from flopcast.records import replace
from flopcast.requests.cluster_options import (
    devices_of_plan,
    devices_of_script,
    names_cluster,
    with_gpus,
    with_price,
    with_usual_cluster,
    with_usual_size,
)
from flopcast.requests.corrected_source import (
    source_and_faults,
    with_examples,
    with_later_fixes,
    without_examples,
)
from flopcast.requests.job_files import checked_job, job_of, nodes_of
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.problem_places import as_typed
from flopcast.requests.rl_files import is_step
from flopcast.requests.serving_words import OF_SERVING
from flopcast.requests.stand_ins import faults_with_each, stand_ins, with_files_or_faults
from flopcast.requests.stated_options import with_changed_stack, with_options, with_training_options
from flopcast.requests.training_options import with_adapters, with_run, with_usual_targets
from flopcast.requests.usual_values import stated_cluster, with_defaults
from flopcast.requests.words import is_path, with_named_model
from flopcast.spec.job import Job

Made = TypeVar("Made")
Make = Callable[[Document, ReadFile], Made]  # from a document and what reads the files that it names


def resolve(request: JobRequest, *, assume_cluster: bool = True) -> Job:
    """Return the checked job that a request describes.

    Parameters
    ----------
    assume_cluster : whether a job without a cluster runs on the usual one; otherwise, this is a fault

    Raises
    ------
    SpecError
        Every fault of the files and the other values.
    InfeasibleError
        The request has no plan, and no plan fits.
    """
    make, check = _of_no_serving(job_of), _of_no_serving(checked_job)
    return made_from(request, make, check, assume_cluster=assume_cluster)


def check_training(request: JobRequest, *, assume_cluster: bool = True) -> Job:
    """Return the training job that a request describes, checked as `resolve` does, but without a plan.

    Raises
    ------
    SpecError
        Every fault of the files and the other values.
    """
    return made_from(request, _of_no_serving(checked_job), assume_cluster=assume_cluster)[0]


def _of_no_serving(make: Make[Made]) -> Make[Made]:
    made = of_training(make)
    return lambda document, read: made(_without_serving(document), read)


def of_training(make: Make[Made], *, assume_size: bool = True) -> Make[Made]:
    """Return a function for `made_from` that first adds the usual size, stack and batch to a document."""
    sized = with_usual_size if assume_size else lambda document: document
    return lambda document, read: make(with_defaults(sized(document)), read)


def _without_serving(document: Document) -> Document:
    """Return the document unchanged; raise SpecError if it has a part that only serving jobs have."""
    allowed = "the keys of a training job: model, cluster, stack, plan, batch"
    raise_for = [
        Problem(
            key,
            None,
            allowed,
            f"{key} describes a serving job, and this command predicts training",
            f"remove {key}, or use flopcast predict, which predicts serving jobs, too",
            document.where((key,)),
            "is a key of serving jobs",
        )
        for key in OF_SERVING
        if key in document.mapping
    ]
    if raise_for:
        raise SpecError(raise_for)
    return document


def made_from(
    request: JobRequest, make: Make[Made], check: Make[object] | None = None, *, assume_cluster: bool = True
) -> Made:
    """Return the result of `make` for the document that a request describes.

    Parameters
    ----------
    make : receives the document, and a function that reads the files that it names
    check : finds the same faults as `make` to test fixes, but predicts nothing. By default, `make`.
    assume_cluster : whether a job without a cluster runs on the usual one

    Raises
    ------
    SpecError
        Every fault of the request, and the errors of `make`.
    """
    request = _with_named_model(request, check or make, assume_cluster=assume_cluster)
    source, misread = (request.source, ()) if request.source else _source_of(request, check or make)
    document, read = source.document, _no_file if request.source else read_file
    if not isinstance(document.data, dict):
        return make(document, read)
    _refuse_step(document, misread)
    request = replace(request, model=None) if source.has_model else request
    if request.source is None:
        document, request = with_files_or_faults(document, request, partial(made_from, make=check or make))
    document, stated = with_options(document, request, source.devices), source.devices
    if assume_cluster and not names_cluster(document, request):
        document = with_usual_cluster(document, request)
        stated = stated or devices_of_plan(document)
    document, unpriced = _tried(document, lambda given: with_price(given, request.price, anew=True))
    document, twofold = _tried(document, lambda given: with_training_options(given, request))
    document = with_changed_stack(with_run(document, request), request)
    document, mistyped = _tried(document, lambda given: edited_document(given, request.changes))
    if not twofold:
        document = with_adapters(document, request, anew=False)
    document, untargeted = _tried(document, lambda given: with_usual_targets(given, request))
    document, unsized = _sized(document, _devices(document, request, stated, source.devices))
    if not unpriced:
        document, unpriced = _tried(document, lambda given: with_price(given, request.price, anew=False))
    problems = (*misread, *unpriced, *unsized, *mistyped, *twofold, *untargeted)
    check = check or make
    if mistyped:  # what the changes would have mended is no fault
        raise SpecError(_with_changes_corrected(problems, request, check, adds=True))
    try:
        if not problems:
            return make(document, read)
        check(document, read)
    except SpecError as error:
        from flopcast.requests.accepted_fixes import with_accepted_fixes

        faults = with_accepted_fixes(error.problems, document, lambda given: check(given, read))
        joined = with_later_fixes(problems, [*without_examples(faults, misread)], document.keys)
        every = _with_changes_corrected(as_typed(joined, document, request.changes), request, check)
        named = names_cluster(document, request)
        follows = _follows(named_cluster=named, unsized=bool(unsized), untargeted=bool(untargeted))
        raise SpecError(each for each in every if not _is_of_size(each, follows)) from None
    except InfeasibleError:
        if not problems:  # else no plan is possible on what was not meant
            raise
    raise SpecError(problems)


def _devices(document: Document, request: JobRequest, stated: int | None, own: int | None) -> object:
    """Return the devices that size the cluster; `stated` and `own` are those of the job and its file."""
    gpus = devices_of_script(document, stated) if request.gpus is None else request.gpus
    if own is not None and gpus == own and not stated_cluster(document):
        return None  # the file's plan counts them, and there is no cluster to size
    return gpus


def _sized(document: Document, gpus: object) -> tuple[Document, tuple[Problem, ...]]:
    """Return the document with a number of devices, or with the corrected one, and the faults of its size.

    If the cluster also has a number of nodes, the number of devices replaces it. A wrong number of nodes is
    a fault in any case.
    """
    sized, unsized = _tried(document, lambda given: with_gpus(given, gpus))
    right = re.match(r"set --gpus to (\d+)", unsized[0].fix) if unsized else None
    sized = with_gpus(sized, int(right[1])) if right else sized
    base, new = (str(stated_cluster(each).get("base", "")) for each in (document, sized))
    replaced = ":" in base and ":" not in new
    stated = {key: value for key, value in stated_cluster(document).items() if key == "nodes"}
    replaced = replaced or bool(stated and gpus is not None)
    wrong = problems_of(lambda: nodes_of(base, stated, "cluster", document)) if replaced else []
    return sized, (*unsized, *wrong)


def _with_changes_corrected(
    problems: Sequence[Problem], request: JobRequest, check: Make[object], *, adds: bool = False
) -> list[Problem]:
    """Return problems, of which some concern changes; fixes of changes state values that the job allows.

    `adds` tells whether further problems of the job with the corrected changes are added.
    """
    from flopcast.files.field_names import ARGUMENT, UNKNOWN_KEY
    from flopcast.requests.accepted_fixes import also_refused

    found, changes = list(problems), list(request.changes)
    written: dict[str, Problem] = {}
    for each in problems:
        wrong = str(each.value) if each.field == "argument" else each.where.removeprefix(ARGUMENT)
        key, _, value = wrong.partition("=")
        meant = re.fullmatch(rf"{re.escape(MEANT)}(\w+)\?", each.fix)
        stated = re.fullmatch(r"write ([\w.]+=\S+)", each.fix)
        above = "".join(key.rpartition(".")[:2])
        right = f"{above}{meant[1]}={value}" if meant else stated[1] if stated else ""
        if wrong in changes and (each.fault == UNKNOWN_KEY or "=" not in wrong or each.field == "argument"):
            changes = [right if change == wrong else change for change in changes]
            written |= {f"{ARGUMENT}{right}": each} if right else {}
    corrected = replace(request, changes=tuple(filter(None, changes)))
    if corrected.changes == request.changes:
        return found
    for second in problems_of(lambda: made_from(corrected, check)):
        first, value = written.get(second.where), only_value(second.fix)
        if first is None and adds:  # of two errors of a line, the later one has the fix that the job allows
            place = (second.where, second.field) if second.where[-1:].isdigit() else None
            found = [*(each for each in found if (each.where, each.field) != place), second]
        elif first and value:
            because = f"{first.because}; {also_refused(second.value, second)}"
            key = second.where.removeprefix(ARGUMENT).partition("=")[0]
            found[found.index(first)] = replace(first, because=because, fix=f"write {key}={value}")
    return found


def _is_of_size(problem: Problem, follows: Collection[str]) -> bool:
    """Return whether a fault of one of the fields in `follows` depends on the number of devices."""
    text = f"{problem.allowed} {problem.because}"
    return problem.field in follows and (problem.field != "plan.data_parallel" or "device" in text)


def _follows(*, named_cluster: bool, unsized: bool, untargeted: bool) -> set[str]:
    """Return the fields whose faults follow from other faults, or from the cluster that was assumed."""
    fields = {"plan", "plan.data_parallel"} if unsized else set()  # their devices are unknown then
    fields |= {"model.adapters.targets"} if untargeted else set()
    return fields if named_cluster else fields | {"--gpus"}


def _source_of(request: JobRequest, check: Make[object]) -> tuple[JobSource, tuple[Problem, ...]]:
    """Return what `source_and_faults` returns; an error of files has the faults of the options, too.

    If a script lacks a value from outside, two examples show which faults do not depend on it.
    """
    try:
        return source_and_faults(request)
    except SpecError as error:
        filled = [with_examples(request, error.problems, times) for times in (1, 4)]
        if all(each.field in ("--arg", "--env") for each in error.problems):  # values that no script takes
            filled = [replace(request, arg=(), env=())]
        if [each.where for each in error.problems] == ["argument --kind"]:
            meant = re.fullmatch(rf"{re.escape(MEANT)}(\S+)\?", error.problems[0].fix)
            filled = [replace(request, kind=meant[1] if meant else None)]
        if sized := re.fullmatch(
            r"add the number of devices, such as --gpus (\d+)", error.problems[-1].fix
        ):
            filled = [replace(request, gpus=int(sized[1]) * times) for times in (1, 4)]
        names = ("env", "arg", "kind", "gpus")
        is_filled = any(getattr(each, name) != getattr(request, name) for each in filled for name in names)
        found = [problems_of(partial(made_from, each, check)) for each in filled if is_filled]
        further = tuple(common_problems(found))
        raise SpecError((*error.problems, *_with_options(further, request, check))) from None


def _with_named_model(request: JobRequest, check: Make[object], *, assume_cluster: bool) -> JobRequest:
    """Return the request with its model; the error of an unknown name has the faults of the job, too."""
    try:
        return with_named_model(request)
    except SpecError as error:
        again = partial(made_from, make=check, assume_cluster=assume_cluster)
        with_each = list(faults_with_each(error.problems, request, again))
        raise SpecError((*error.problems, *_with_options(with_each, request, check))) from None


def _with_options(faults: Sequence[Problem], request: JobRequest, check: Make[object]) -> list[Problem]:
    """Return faults, after further ones of options and changes that do not depend on the files."""
    told = {(each.field.removesuffix(".base"), str(each.value)) for each in faults}
    known = request.model is not None and not is_path(str(request.model))
    found = []
    for model in (request.model,) if known else stand_ins():
        alone = replace(request, files=(), model=model, kind=None, size=(), arg=(), env=(), autocast=False)
        found.append(problems_of(partial(made_from, alone, check)))
    own = [x for x in common_problems(found) if (x.where or x.field).startswith(("--", ARGUMENT))]
    return [*(x for x in own if (x.field.removesuffix(".base"), str(x.value)) not in told), *faults]


def _no_file(path: Path, _: int) -> bytes:
    """Refuse a file that a document names."""
    allowed = "a schedule that is part of the request"
    because = "a request over HTTP cannot read files of the server"
    raise spec_error("plan.schedule", str(path), allowed, because, "use the command line", "request")


def _tried(
    document: Document, step: Callable[[Document], Document]
) -> tuple[Document, tuple[Problem, ...]]:
    """Return the document after a step; on faults, the unchanged document and these."""
    try:
        return step(document), ()
    except SpecError as error:
        return document, error.problems


def _refuse_step(document: Document, misread: Sequence[Problem]) -> None:
    """Raise SpecError if the document describes a step of reinforcement learning, which has two jobs.

    If only a misspelt key hid this, its error is raised.
    """
    if misread and is_step(document.data):
        raise SpecError(misread)
    if is_step(document.data):
        because = "the file describes a step of reinforcement learning, which only flopcast predict reads"
        fix = f"run flopcast predict {document.name}, or write one of its jobs into a separate file"
        allowed, fault = "the keys of one job: model, cluster, plan", "is not a key of a job"
        raise SpecError([Problem("rollout", None, allowed, because, fix, document.name, fault)])
