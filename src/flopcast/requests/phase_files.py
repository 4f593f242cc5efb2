"""Files of phases: YAML or JSON with a list `phases`.

Answers: which phases does this file, or this number of tokens, stand for?
Elsewhere: what a phase says (spec/phases.py), the jobs that they change (cli/run.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from flopcast.errors import SpecError, spec_error
from flopcast.files.validate import build
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.requests.job_files import read_file
from flopcast.spec.phases import StatedPhase, StatedRun


def load_phases(path: Path) -> tuple[StatedPhase, ...]:
    """Return the phases of a file, in their order.

    Raises
    ------
    SpecError
        The file cannot be read, holds no phase, or a fault in one; each with its line.
    """
    document = read_yaml(read_file(path), str(path))
    return build(StatedRun, document, document.data).phases


def stated_phases(tokens: str | None, path: Path | None) -> tuple[StatedPhase, ...]:
    """Return the phases of a file, or a single phase of this number of tokens.

    Raises
    ------
    SpecError
        Both or neither are given, or a fault in what is.
    """
    if (tokens is None) == (path is None):
        allowed = "a number of tokens, or --phases FILE, not both"
        because = "a run ends after this number of tokens"
        fix = "add --tokens 2T" if tokens is None else "leave --phases out, or --tokens"
        raise spec_error(
            "--tokens", tokens, allowed, because, fix, fault="is missing" if tokens is None else ""
        )
    if path is not None:
        return load_phases(path)
    document = Document("--tokens", {"tokens": tokens}, {})
    return (build(StatedPhase, document, document.data),)


@contextmanager
def changes_of_phase(path: Path | None, number: int) -> Iterator[None]:
    """Put the line of a phase's changes, where a file has some, before the place of every fault.

    Raises
    ------
    SpecError
        What the block raises.
    """
    try:
        yield
    except SpecError as error:
        document = None if path is None else read_yaml(read_file(path), str(path))
        changes = ("phases", number, "changes")
        if document is None or changes not in document.lines:
            raise
        place = document.where(changes)
        raise SpecError(
            replace(problem, where=f"{place}: {problem.where}" if problem.where else place)
            for problem in error.problems
        ) from None
