"""Files of phases: YAML or JSON with a list `phases`.

Answers: which jobs are the phases of a run, and how many tokens does each train?
Elsewhere: the fields of a phase (spec/phases.py), the length of a run without phases (spec/run_length.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.files.named_files import read_file
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.records import replace
from flopcast.requests.accepted_fixes import after_fixes
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import check_training, resolve
from flopcast.requests.training_options import LENGTHS
from flopcast.spec.job import Job
from flopcast.spec.phases import StatedPhase, StatedRun
from flopcast.units import Number


def load_phases(path: Path) -> tuple[tuple[StatedPhase, ...], list[Problem]]:
    """Return the phases of a file after the fixes of its faults, and these faults, each with its line.

    If the fixes do not correct the file, no phases are returned.

    Raises
    ------
    SpecError
        The file cannot be read.
    """
    document, problems = read_yaml(read_file(path), str(path)), list[Problem]()
    if isinstance(document.data, list):
        allowed, because = "a mapping with the key phases", "the file begins with the first phase"
        fix, fault = "write phases: in a line above the list", "is a list"
        whole = replace(document, data={"phases": document.data}, lines={
            ("phases", *place): line for place, line in document.lines.items()})  # fmt: skip
        problems.append(Problem(str(path), None, allowed, because, fix, document.where(()), fault))
        document = whole

    def phases(given: Document) -> tuple[StatedPhase, ...]:
        return build(StatedRun, given, given.data).phases

    wrong: list[Problem] = []
    with collected(wrong):
        return phases(document), problems
    every, corrected = after_fixes(wrong, document, phases)
    every = [*problems, *every]
    with collected([]):
        return phases(corrected), every
    return (), every


def jobs_of_phases(request: JobRequest, path: Path | None) -> list[tuple[str, Number, Job]]:
    """Return name, tokens and job of each phase of a file. Without a file, the job is the only phase.

    Raises
    ------
    SpecError
        Neither or both of the file and the request state the length of the run, or one of their values is
        wrong.
    """
    phases = check_phases(request, path)
    if path is None:
        job = resolve(request)
        return [("phase 1", job.run_tokens or 0.0, job)]
    return [
        (phase.name or f"phase {number}", phase.tokens, resolve(_of_phase(request, phase)))
        for number, phase in enumerate(phases, 1)
    ]


def check_phases(request: JobRequest, path: Path | None) -> tuple[StatedPhase, ...]:
    """Return the phases of a file after a check of each job, without choosing plans.

    Raises
    ------
    SpecError
        See `jobs_of_phases`.
    """
    if path is None:
        if check_training(request).run_tokens is None:
            allowed = "a number of tokens or of samples, or --phases FILE"
            fix, because = "add --tokens 2T", "flopcast needs the length of the run"
            raise spec_error("--tokens", None, allowed, because, fix, fault="is missing")
        return ()
    problems = [
        Problem(
            f"--{name}",
            value,
            "either a length of the run (--tokens, --samples) or --phases FILE",
            "each phase in the file has its own number of tokens",
            f"leave out --{name}, or --phases",
            fault="and --phases cannot be used together",
        )
        for name in LENGTHS
        if (value := getattr(request, name)) is not None
    ]
    of_phases, phases = list[Problem](), tuple[StatedPhase, ...]()
    try:
        phases, found = load_phases(path)
    except SpecError as error:
        found = [replace(each, field="--phases") if not each.where else each for each in error.problems]
    problems += found
    for number, phase in enumerate(phases):
        with collected(of_phases), _changes_of_phase(path, number):
            check_training(_of_phase(request, phase))
    if of_phases or not phases:  # faults of the job itself are reported once
        with collected(problems):
            check_training(_without_length(request))
    known = {(each.field, each.because) for each in problems}
    problems += [each for each in of_phases if (each.field, each.because) not in known]
    if problems:
        raise SpecError(problems)
    return phases


def _of_phase(request: JobRequest, phase: StatedPhase) -> JobRequest:
    """Return the request of the job of a phase."""
    request = _without_length(request)
    return replace(request, changes=(*request.changes, *phase.words))


def _without_length(request: JobRequest) -> JobRequest:
    """Return a request without the length of its run, because each phase states its own."""
    return replace(request, tokens=None, samples=None, epochs=None)


@contextmanager
def _changes_of_phase(path: Path, number: int) -> Iterator[None]:
    """Put the line of a phase's changes, where there are some, before the place of every fault.

    Raises
    ------
    SpecError
        What the block raises.
    """
    try:
        yield
    except SpecError as error:
        document = read_yaml(read_file(path), str(path))
        changes = ("phases", number, "changes")
        if changes not in document.lines:
            raise
        place = document.where(changes)
        raise SpecError(
            replace(problem, where=f"{place}: {problem.where}" if problem.where else place)
            for problem in error.problems
        ) from None
