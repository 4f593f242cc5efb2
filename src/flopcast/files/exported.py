"""The result of an exporter: files, and notes about settings that they cannot express.

Answers: which files does a kind of export write, with which notes?
Elsewhere: the kinds (interop/exports/kinds.py), whether a file describes the same job
(interop/exports/same_job.py).
"""

from collections.abc import Iterable

from flopcast.errors import Problem
from flopcast.records import Record

Value = bool | int | float | str | None


class Exported(Record, eq=False):
    """Files by name, and notes about settings that they do not contain.

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
    """Return the fault of a value that the target format cannot express, so that the export would change
    the job.

    Parameters
    ----------
    written : the meaning of the exported file, which differs from the job
    change : one KEY=VALUE, or another edit, with which the format can express the job
    """
    because = f"{target} cannot state this value for this job, and the exported run would use another value"
    fault = f"= {value!r} cannot be exported to {target}"
    return Problem(field, value, written, because, change, fault=fault)
