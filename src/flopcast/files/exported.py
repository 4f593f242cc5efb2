"""The result of an exporter: files, and notes on what they cannot express.

Answers: which files does a kind of export write, with which notes?
Elsewhere: the kinds (interop/exports/kinds.py), whether a file describes the same job
(interop/exports/same_job.py).
"""

from collections.abc import Iterable

from flopcast.errors import Problem
from flopcast.records import Record

Value = bool | int | float | str | None


class Exported(Record, eq=False):
    """Files by name, and notes on what they leave out.

    If the user names no output, a single text file is printed; several files need a folder. `notes` go to
    stderr. They state what the format cannot express, and what the user must add before the file runs.
    """

    files: tuple[tuple[str, bytes], ...]
    notes: tuple[str, ...] = ()
    binary: bool = False  # no text for a terminal


def text_file(name: str, lines: Iterable[str], notes: Iterable[str]) -> Exported:
    """Return one file of lines."""
    return Exported(files=((name, ("\n".join(lines) + "\n").encode("utf-8")),), notes=tuple(notes))


def not_expressible(field: str, value: object, written: str, target: str, change: str) -> Problem:
    """Return the fault of a value that the target format cannot express: the job would be another.

    Parameters
    ----------
    written : what the exported file would mean instead
    change : one KEY=VALUE, or another edit, that makes the job one that the target can say
    """
    because = f"{target} cannot state this value for this job, and the exported run would use another value"
    fault = f"= {value!r} cannot be exported to {target}"
    return Problem(field, value, written, because, change, fault=fault)
