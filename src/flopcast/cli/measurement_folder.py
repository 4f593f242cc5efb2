"""A folder of published measurements, read once.

Answers: which systems, kernel tables of other projects and collective tables does a data folder hold?
Elsewhere: the columns (lab/calibration/operator_files.py, collective_files.py, peers.yaml), the fits
(calibrate_fit.py, calibrate.py).
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from flopcast.errors import spec_error
from flopcast.files.inputs import opened
from flopcast.lab.calibration.collective_files import FABRICS, WITH_LATENCY, WITHOUT_LATENCY, FabricFile
from flopcast.lab.calibration.operator_files import FILES
from flopcast.lab.calibration.peer_tables import PEER_FILES, SERVED_FILES
from flopcast.lab.measure.row_expressions import Columns
from flopcast.lab.samples.columns import read_columns
from flopcast.library import catalog
from flopcast.records import Record
from flopcast.spec.tier import Tier

SYSTEMS = {  # system → device whose curves its files give; fallback devices first
    "perlmutter-a100-sxm4-80gb": "a100-sxm4-80gb",
    "vista-gh200": "gh200-96gb",
}
MOST_SHOWN = 5  # rows of one file
Say = Callable[[str], None]
Measured = list[tuple[FabricFile, Columns]]


class MeasurementFolder(Record, eq=False, kw_only=False, slots=False):
    """The measurements of one folder; `say` receives a line for each row that cannot be read.

    Raises
    ------
    SpecError
        The folder holds no known measurements.
    """

    data: Path
    say: Say

    def __post_init__(self) -> None:
        if not any((self.systems, self._peer_paths, self._fabric_files)):
            systems = " or ".join(f"operators/{system}" for system in SYSTEMS)
            allowed = f"a folder with at least one of collectives/, peers/, {systems}"
            because = "the folder has none of these subfolders with tables that flopcast knows"
            fix = "give a folder that has one of these subfolders, or the output folder of flopcast measure"
            raise spec_error("--data", str(self.data), allowed, because, fix)

    @cached_property
    def systems(self) -> dict[str, dict[str, Columns]]:
        """Return the columns of every file by system and name of the file.

        A file without a column `tp` (fused softmax) was measured without tensor parallelism: degree 1.
        """
        systems: dict[str, dict[str, Columns]] = {}
        for system in SYSTEMS:
            files: dict[str, Columns] = {}
            for path in sorted((self.data / "operators" / system).glob("*.csv")):
                if path.stem in FILES:
                    columns = self._columns(path)
                    files[path.stem] = {"tp": 0 * next(iter(columns.values())) + 1, **columns}
            if files:
                systems[system] = files
        return systems

    @cached_property
    def peers(self) -> dict[str, Columns]:
        """Return the columns of the kernel tables of other projects, by path."""
        return {path: self._columns(self.data / "peers" / path) for path in self._peer_paths}

    @cached_property
    def served(self) -> dict[str, Columns]:
        """Return the columns of the kernel tables of serving, by path."""
        return {path: self._columns(place) for path, place in self._served_places.items()}

    @cached_property
    def fabrics(self) -> dict[str, Measured]:
        """Return the tables of collectives by fabric."""
        paths = sorted({file.path for file in self._fabric_files})
        columns = {path: self._columns(self.data / path) for path in paths}
        by_fabric: dict[str, Measured] = defaultdict(list)
        for file in self._fabric_files:
            by_fabric[file.fabric].append((file, columns[file.path]))
        return dict(by_fabric)

    def digest(self) -> str:
        """Return a digest of the names and bytes of all files; equal folders give equal digests."""
        digest = hashlib.sha256()
        own = [p for s in SYSTEMS for p in sorted((self.data / "operators" / s).glob("*.csv"))]
        peers = [self.data / "peers" / path for path in self._peer_paths]
        peers += [place for place in self._served_places.values() if place not in peers]
        for path in (*own, *peers, *sorted({self.data / file.path for file in self._fabric_files})):
            with opened(path) as file:
                digest.update(path.name.encode() + b"\0" + file.read())
        return digest.hexdigest()

    @property
    def _peer_paths(self) -> list[str]:
        return sorted({f.path for f in PEER_FILES if (self.data / "peers" / f.path).is_file()})

    @property
    def _served_places(self) -> dict[str, Path]:
        places = {file.path: self.data / file.folder / file.path for file in SERVED_FILES}
        return {path: place for path, place in sorted(places.items()) if place.is_file()}

    @property
    def _fabric_files(self) -> list[FabricFile]:
        known = (*FABRICS, *WITH_LATENCY, *WITHOUT_LATENCY)
        return [file for file in known if (self.data / file.path).is_file()]

    @cached_property
    def _read(self) -> dict[Path, Columns]:
        """Return the columns of the files that were read: training and serving share some tables."""
        return {}

    def _columns(self, path: Path) -> Columns:
        if path in self._read:
            return self._read[path]
        measured = read_columns(path)
        for problem in measured.problems[:MOST_SHOWN]:
            self.say(f"{problem.where}: row is ignored: {problem.value} (a row needs {problem.allowed})")
        if len(measured.problems) > MOST_SHOWN:
            self.say(f"{path}: {len(measured.problems) - MOST_SHOWN} more rows are ignored")
        self._read[path] = measured.columns
        return measured.columns


def by_latency(files: Measured) -> tuple[Measured, Measured]:
    """Split tables into tables of large messages only, and tables that also contain small messages.

    For tables of large messages only, the tier gives the latency. For the other tables, the latency is
    fitted.
    """
    large = [entry for entry in files if entry[0] not in WITH_LATENCY]
    return large, [entry for entry in files if entry[0] in WITH_LATENCY]


def tier_of(file: FabricFile) -> Tier:
    """Return the tier whose bandwidth and latency the efficiencies of a fabric refer to."""
    return next(tier for tier in catalog.cluster(file.cluster).tiers if tier.name == file.tier)
