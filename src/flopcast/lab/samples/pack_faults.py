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
    because = "the row was left out, the others are kept"
    fix = "correct or remove the row, or measure it again: skipped rows do not count as measured"
    return Problem(
        "row", ",".join(str(value) for value in row.values()), allowed, because, fix, where=f"{path}:{line}"
    )


def bad_header(path: Path, found: Iterable[str], missing: list[str]) -> Problem:
    """Return the fault of a file with other columns: perhaps its times have another unit."""
    allowed = f"a header with {', '.join(missing)}"
    because = "only their names give the units and meanings of columns"
    fix = "restore the header, or measure again into a new folder"
    return Problem("header", ",".join(found), allowed, because, fix, where=f"{path}:1")


def not_a_pack(path: Path, because: str) -> Problem:
    """Return the fault of an invalid manifest, or of a file that no pack has."""
    allowed = f"the {path.stem} of a sample pack, format_version {FORMAT_VERSION}"
    fix = "give a folder that flopcast measure wrote, or measure into a new one"
    return Problem(path.stem, path.name, allowed, because, fix, where=str(path))


def other_device(folder: Path, before: str, now: str) -> Problem:
    """Return the fault of continuing a pack on another device."""
    allowed = f"the device that the pack was begun on, {before}"
    because = "rows of two devices must not be fitted to one curve"
    return Problem("--out", now, allowed, because, "give --out a new folder", where=str(folder))


def no_folder(path: Path, because: str) -> Problem:
    """Return the fault of a folder that cannot be written to."""
    allowed = "a folder that can be written: an empty one, or a pack"
    return Problem("--out", str(path), allowed, because, "give another place")
