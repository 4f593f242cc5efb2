"""The source of a job after the fixes of its faults, which may hide faults of the job that it describes.

Answers: which job do a file or a command describe once every fault that its reader found is corrected?
Elsewhere: reading files (sources.py), fixes of faults of a job (accepted_fixes.py).
"""

import re
from collections.abc import Sequence
from pathlib import Path

from flopcast.errors import MEANT, Problem, SpecError
from flopcast.fixes import in_words
from flopcast.requests.job_files import read_file
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.sources import COMMAND, read_source, reader_in, source_of
from flopcast.requests.words import is_command


def source_and_faults(request: JobRequest) -> tuple[JobSource, tuple[Problem, ...]]:
    """Return what the files of a request hold, and the faults in them if their fixes correct the files.

    Raises
    ------
    SpecError
        Faults whose fixes do not.
    """
    try:
        return read_source(request), ()
    except SpecError as error:
        if (source := _corrected(request, error.problems)) is None:
            raise
        return source, error.problems


def _corrected(request: JobRequest, problems: Sequence[Problem]) -> JobSource | None:
    """Return what the only file, or the command, of a request holds after all fixes; None if this fails."""
    if len(request.files) != 1:
        return None
    (word,) = request.files
    name, folder = (COMMAND, Path()) if is_command(word) else (word, Path(word).parent)
    try:
        text = word if name == COMMAND else read_file(Path(word)).decode()
        for problem in problems:
            wrong, right = _correction(problem)
            before, text = text, re.sub(rf"(?<![\w-]){re.escape(wrong)}(?![\w-])", right, text)
            if not right or before == text:
                return None
        return source_of(text.encode(), name, request, reader_in(folder))
    except (SpecError, UnicodeDecodeError):
        return None


def _correction(problem: Problem) -> tuple[str, str]:
    """Return the wrong text of a problem and the right one; "" where its fix states no single text."""
    wrong = problem.field if problem.fault else str(problem.value)
    if meant := re.fullmatch(rf"{MEANT}([^ ,?]+)\?", problem.fix):
        return wrong, meant[1]
    if swapped := re.fullmatch(r"write (\S+) in place of (\S+)", problem.fix):
        return swapped[2], swapped[1]
    edit = problem.edits[0] if problem.edits else {}
    right = in_words(*edit.values()) if len(edit) == 1 else ""
    return getattr(problem.fix, "part", "") or wrong, "" if " " in right else right
