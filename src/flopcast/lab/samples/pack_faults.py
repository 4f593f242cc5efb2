"""Faults of measured rows and sample packs: what is told of a row, of a header, of a folder.

Answers: which value is wrong in a pack or table, what would be right, and how is it mended?
Elsewhere: how packs are read and written (packs.py), which rows of a table are bad (columns.py).
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from flopcast.errors import Problem
from flopcast.lab.measure.sample_pack import FORMAT_VERSION


def bad_row(path: Path, line: int, row: Mapping[str, object], allowed: str) -> Problem:
    """Return the fault of one row, with its file and line."""
    return Problem(
        where=f"{path}:{line}",
        field="row",
        value=",".join(str(value) for value in row.values()),
        allowed=allowed,
        because="the row was left out, the others are kept",
        fix="correct or remove the row, or measure it again: skipped rows do not count as measured",
    )


def bad_header(path: Path, found: Iterable[str], missing: list[str]) -> Problem:
    """Return the fault of a file with other columns: perhaps its times have another unit."""
    return Problem(
        where=f"{path}:1",
        field="header",
        value=",".join(found),
        allowed=f"a header with {', '.join(missing)}",
        because="only their names give the units and meanings of columns",
        fix="restore the header, or measure again into a new folder",
    )


def not_a_pack(path: Path, because: str) -> Problem:
    """Return the fault of an invalid manifest, or of a file that no pack has."""
    return Problem(
        where=str(path),
        field=path.stem,
        value=path.name,
        allowed=f"the {path.stem} of a sample pack, format_version {FORMAT_VERSION}",
        because=because,
        fix="give a folder that flopcast measure wrote, or measure into a new one",
    )


def other_device(folder: Path, before: str, now: str) -> Problem:
    """Return the fault of continuing a pack on another device."""
    return Problem(
        where=str(folder),
        field="--out",
        value=now,
        allowed=f"the device that the pack was begun on, {before}",
        because="rows of two devices must not be fitted to one curve",
        fix="give --out a new folder",
    )


def no_folder(path: Path, because: str) -> Problem:
    """Return the fault of a folder that cannot be written to."""
    return Problem(
        field="--out",
        value=str(path),
        allowed="a folder that can be written: an empty one, or a pack",
        because=because,
        fix="give another place",
    )
