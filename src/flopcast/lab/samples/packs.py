"""Sample packs: folders with manifest.json and tables of samples, which can be written, resumed and read.

Answers: which rows of a pack are good, what is wrong with the others, and how is a pack continued?
Elsewhere: the meaning of a row (lab/measure/sample_pack.py), the measurement (cli/measure.py), site files
(sites.py).

Rows are only appended, and are written to the disk in batches, so that an interrupted run keeps its
measurements. A bad row is reported with its line and left out, and the good rows are kept.
"""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TypeVar

from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.atomic_write import PARTIAL, write_whole
from flopcast.files.inputs import opened
from flopcast.files.named_files import read_file
from flopcast.lab.measure.sample_pack import (
    FORMAT_VERSION,
    MESSAGE_COLUMNS,
    SAMPLE_COLUMNS,
    Manifest,
    MessageSample,
    Sample,
    message_of,
    message_row,
    sample_of,
    sample_row,
)
from flopcast.lab.measure.tier_samples import TIER_COLUMNS, TierSample, tier_of, tier_row
from flopcast.lab.samples.columns import bad_row
from flopcast.records import Record

MANIFEST, SAMPLES, MESSAGES, TIERS = "manifest.json", "samples.csv", "collectives.csv", "tiers.csv"
TABLES = (SAMPLES, MESSAGES, TIERS)
MOST_BYTES = 200_000_000
BATCH_ROWS = 16  # written and synchronised together
AnySample = Sample | MessageSample | TierSample
Row = TypeVar("Row", Sample, MessageSample, TierSample)


class Pack(Record, eq=False):
    """The good rows of a pack, and the faults of the rows that were left out.

    If rows have equal keys, only the last one counts, because it was measured again.
    """

    manifest: Manifest
    samples: tuple[Sample, ...]
    messages: tuple[MessageSample, ...]
    tiers: tuple[TierSample, ...] = ()
    problems: tuple[Problem, ...] = ()


class PackWriter:
    """A pack that grows: call `add` for each row, then `close`.

    `done` holds the keys that it had when it was opened; their shapes need not be measured again.
    """

    def __init__(self, folder: Path, manifest: Manifest, done: frozenset[str]) -> None:
        """Write the manifest; rows are appended to existing files."""
        self.folder: Path = folder
        self.manifest: Manifest = manifest
        self.done: frozenset[str] = done
        self._waiting: dict[str, list[dict[str, str]]] = {name: [] for name in TABLES}
        self._counts = dict(manifest.counts)
        self._added: set[str] = set()
        self._write_manifest(manifest)

    def add(self, sample: AnySample) -> None:
        """Keep a row; it is written to the disk after BATCH_ROWS rows, or when the pack is closed."""
        name, row = _table_and_row(sample)
        self._waiting[name].append(row)
        self._added.add(sample.key)
        self._counts[name] = self._counts.get(name, 0) + 1
        if len(self._waiting[name]) >= BATCH_ROWS:
            self._append(name)

    def close(self, unsupported: Mapping[str, str]) -> None:
        """Write the waiting rows, and a manifest that counts them.

        Shapes that an earlier run could not measure stay `unsupported` until a run has measured them.
        """
        for name in self._waiting:
            self._append(name)
        whole = {**asdict(self.manifest), "counts": self._counts}
        earlier = {key: why for key, why in self.manifest.unsupported.items() if key not in self._added}
        whole["unsupported"] = {**earlier, **unsupported}
        self._write_manifest(Manifest(**whole))

    def _append(self, name: str) -> None:
        """Append the waiting rows and wait until they are on the disk; a new file gets its header."""
        rows, path = self._waiting[name], self.folder / name
        if not rows:
            return
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        if not path.exists() or path.stat().st_size == 0:
            writer.writeheader()
        writer.writerows(rows)
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        rows.clear()

    def _write_manifest(self, manifest: Manifest) -> None:
        write_whole(self.folder / MANIFEST, json.dumps(asdict(manifest), indent=1, sort_keys=True) + "\n")


def _table_and_row(sample: AnySample) -> tuple[str, dict[str, str]]:
    if isinstance(sample, Sample):
        return SAMPLES, sample_row(sample)
    if isinstance(sample, MessageSample):
        return MESSAGES, message_row(sample)
    return TIERS, tier_row(sample)


def open_pack(folder: Path, manifest: Manifest) -> PackWriter:
    """Return a new pack, or the continuation of an existing one.

    An incomplete row at the end of a file, which a killed run may leave, is removed, and so is a row
    without a line end, whose last number may be incomplete. Both are measured again.

    Raises
    ------
    SpecError
        The folder cannot be created, holds something else, or holds a pack of another device, which is
        then left unchanged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in folder.iterdir()} - {MANIFEST, *TABLES}
    except OSError as error:
        raise SpecError([_no_folder(folder, error.strerror or str(error))]) from None
    if not (folder / MANIFEST).exists():
        if others - {MANIFEST + PARTIAL}:
            raise SpecError(
                [
                    _no_folder(
                        folder,
                        f"the folder contains {min(others)} but no {MANIFEST}, so it is not a sample pack",
                    )
                ]
            )
        return PackWriter(folder, manifest, frozenset())
    device = _manifest(folder / MANIFEST).device
    if device != manifest.device:
        allowed = f"{device} (the device of the existing pack)"
        because = "a curve is fitted to rows of one device"
        fix = "give --out a new folder"
        raise spec_error("--out", manifest.device, allowed, because, fix, where=str(folder))
    for name in TABLES:
        _cut_half_row(folder / name)
    before = read_pack(folder)
    rows: tuple[AnySample, ...] = (*before.samples, *before.messages, *before.tiers)
    done = frozenset(row.key for row in rows)
    return PackWriter(folder, _continued(manifest, before, done), done)


def _continued(manifest: Manifest, before: Pack, done: frozenset[str]) -> Manifest:
    """Return the manifest of a resumed run: its own facts, and those that only the existing pack has."""
    kept = {
        "started": before.manifest.started,
        "counts": {
            name: len(rows)
            for name, rows in zip(TABLES, (before.samples, before.messages, before.tiers), strict=True)
        },
        "unsupported": {k: why for k, why in before.manifest.unsupported.items() if k not in done},
    }
    return Manifest(**(asdict(manifest) | kept))


def read_pack(folder: Path) -> Pack:
    """Return a pack's good rows, and the faults of its bad ones.

    Raises
    ------
    SpecError
        The manifest is missing, cannot be read, or belongs to a later version; or a file is too large for
        a pack. A bad row never raises an error.
    """
    manifest = _manifest(folder / MANIFEST)
    problems: list[Problem] = []
    samples = list(_rows(folder / SAMPLES, SAMPLE_COLUMNS, sample_of, manifest.device, problems))
    messages = list(_rows(folder / MESSAGES, MESSAGE_COLUMNS, message_of, manifest.device, problems))
    tiers = list(_rows(folder / TIERS, TIER_COLUMNS, tier_of, manifest.device, problems))
    return Pack(
        manifest=manifest,
        samples=tuple({row.key: row for row in samples}.values()),
        messages=tuple({row.key: row for row in messages}.values()),
        tiers=tuple({row.key: row for row in tiers}.values()),
        problems=tuple(problems),
    )


def _manifest(path: Path) -> Manifest:
    """Return the manifest of a pack; keys of later versions are ignored."""
    try:
        data = json.loads(_whole(path))
        known = {field.name for field in fields(Manifest)}
        manifest = Manifest(**{key: value for key, value in data.items() if key in known})
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError([_not_a_pack(path, f"the manifest is not valid: {error}")]) from None
    words = (manifest.device, manifest.tool_version, manifest.started)
    tables = (manifest.facts, manifest.options, manifest.counts, manifest.unsupported)
    if not all(isinstance(word, str) for word in words) or not all(isinstance(t, dict) for t in tables):
        raise SpecError([_not_a_pack(path, "a field of the manifest has the wrong type")])
    if manifest.format_version != FORMAT_VERSION:
        raise SpecError([_not_a_pack(path, f"the pack has format_version {manifest.format_version!r}")])
    return manifest


def _whole(path: Path) -> bytes:
    """Return the content of the whole file; a part of it would look like a complete pack."""
    held = read_file(path, MOST_BYTES)
    if len(held) > MOST_BYTES:
        raise SpecError([_not_a_pack(path, f"the file has more than {MOST_BYTES} bytes")])
    return held


def _rows(
    path: Path,
    names: tuple[str, ...],
    parse: Callable[[Mapping[str, str], str], Row],
    device: str,
    problems: list[Problem],
) -> Iterator[Row]:
    """Yield the good rows of a file, which may be missing; faults of other rows are added to `problems`.

    If the header lacks columns of this version, no row can be read, and a single fault reports all of them.
    """
    if not path.exists():
        return
    text = _whole(path).decode("utf-8-sig", errors="replace")  # editors put a mark before it
    reader = csv.DictReader(io.StringIO(text, newline=""))
    missing = [name for name in names if name not in (reader.fieldnames or ())]
    if missing:
        allowed = f"a header with {', '.join(missing)}"
        because = "flopcast recognises columns and their units by their names"
        fix = "restore the header, or measure again into a new folder"
        problems.append(
            Problem("header", ",".join(reader.fieldnames or ()), allowed, because, fix, where=f"{path}:1")
        )
        return
    for row in _lines(reader, path, problems):
        try:
            yield parse(row, device)
        except ValueError as error:
            problems.append(bad_row(path, reader.line_num, row, str(error)))


def _lines(
    reader: "csv.DictReader[str]", path: Path, problems: list[Problem]
) -> Iterator[Mapping[str, str]]:
    """Yield rows until the end, or until a row that is not CSV."""
    try:
        yield from reader
    except csv.Error as error:
        problems.append(bad_row(path, reader.line_num, {}, f"a line of CSV ({error})"))


def _cut_half_row(path: Path) -> None:
    """Remove everything after the last line end."""
    with suppress(FileNotFoundError):
        with opened(path) as file:
            raw = file.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) < len(raw):
            with path.open("r+b") as kept:
                kept.truncate(len(whole))


def _not_a_pack(path: Path, because: str) -> Problem:
    """Return the fault of an invalid manifest, or of a file that cannot belong to a pack."""
    allowed = f"the {path.stem} of a sample pack, format_version {FORMAT_VERSION}"
    fix = "give a folder that flopcast measure wrote, or measure into a new one"
    return Problem(path.stem, path.name, allowed, because, fix, where=str(path))


def _no_folder(path: Path, because: str) -> Problem:
    allowed = "an empty folder, or a sample pack, in which you may write files"
    return Problem("--out", str(path), allowed, because, "choose another folder")
