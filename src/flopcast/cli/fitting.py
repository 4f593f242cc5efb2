"""`flopcast calibrate`: measurements in, curve files out.

Answers: which files of a data folder become the curves of which device or fabric?
Elsewhere: what their columns mean (calibration/operator_files.py, collective_files.py), how a curve is
fitted (calibration/fit.py), how it is written (io/curves.py).

The catalogue's curves are made by this module from nothing but the data folder, so that a refit gives
the same bytes. Systems are fitted in the order of SYSTEMS: one that replaces broken measurements by a
relative's comes after that relative.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from flopcast.calibration.broken import replacements
from flopcast.calibration.collective_files import FABRICS, Columns, FabricFile
from flopcast.calibration.fit import fit_fabric, fit_operators
from flopcast.calibration.operator_files import FILES
from flopcast.cost.kernels.curve import Curve
from flopcast.errors import Problem, SpecError
from flopcast.io import catalog
from flopcast.io.curves import write_owner
from flopcast.io.samples.columns import read_columns
from flopcast.spec.cluster import Tier

SYSTEMS = {  # system → device whose curves its files give; relatives first
    "perlmutter-a100-sxm4-80gb": "a100-sxm4-80gb",
    "vista-gh200": "gh200-96gb",
}
Say = Callable[[str], None]


def fit_all(data: Path, out: Path, say: Say) -> None:
    """Fit every curve that `data` has measurements for; one file per device and fabric.

    Parameters
    ----------
    data : Path
        A folder with operators/SYSTEM/*.csv, collectives/ and peers/.
    out : Path
        The folder for the curve files; it is made where it is missing.
    say : callable
        Receives one line for each curve.

    Raises
    ------
    SpecError
        The folder holds none of the measurements that are known.
    """
    systems = {s: name for s, name in SYSTEMS.items() if list((data / "operators" / s).glob("*.csv"))}
    by_fabric: dict[str, list[FabricFile]] = defaultdict(list)
    for file in FABRICS:
        if (data / file.path).is_file():
            by_fabric[file.fabric].append(file)
    if not systems and not by_fabric:
        raise SpecError([_nothing_known(data)])
    out.mkdir(parents=True, exist_ok=True)
    fitted: dict[str, dict[str, Curve]] = {}
    for system, name in systems.items():
        fitted[name] = _fit_device(data, system, name, fitted, say)
        _write(out, name, fitted[name], say)
    for fabric, files in by_fabric.items():
        rows = [(file, _columns(data / file.path, say)) for file in files]
        _write(out, fabric, fit_fabric(rows, _tier(files[0])), say)


def _nothing_known(data: Path) -> Problem:
    """The fault of a folder that holds no measurement that is known."""
    return Problem(
        field="--data",
        value=str(data),
        allowed=f"a folder with operators/SYSTEM (known: {', '.join(SYSTEMS)}) or collectives/",
        because="that is where measurements are looked for",
        fix="give the folder that holds them",
    )


def _fit_device(
    data: Path, system: str, name: str, fitted: dict[str, dict[str, Curve]], say: Say
) -> dict[str, Curve]:
    """A device's own curves, and those derived for its broken classes from a relative fitted before.

    A file without a column `tp` (fused softmax) was measured uncut: all of its rows are of degree 1.
    """
    device = catalog.device(name)
    files: dict[str, Columns] = {}
    for path in sorted((data / "operators" / system).glob("*.csv")):
        if path.stem in FILES:
            columns = _columns(path, say)
            uncut = {"tp": 0 * next(iter(columns.values())) + 1}
            files[path.stem] = uncut | dict(columns)
    curves = fit_operators(system, device, files)
    relative = {k: v for other in device.relatives for k, v in fitted.get(other, {}).items()}
    return curves | replacements(system, device, curves, relative)


def _columns(path: Path, say: Say) -> Columns:
    """The columns of a file; rows that cannot be read are told and left out."""
    measured = read_columns(path)
    for problem in measured.problems:
        say(f"{problem.where}: left out: {problem.value} (a row needs {problem.allowed})")
    return measured.columns


def _tier(file: FabricFile) -> Tier:
    """The tier whose bandwidth and latency a fabric's efficiencies refer to."""
    cluster = catalog.cluster(file.cluster)
    return next(tier for tier in cluster.tiers if tier.name == file.tier)


def _write(out: Path, owner: str, curves: dict[str, Curve], say: Say) -> None:
    """One file, and one line for each curve in it: rows used, rows rejected, error."""
    write_owner(out / f"{owner}.json", owner, list(curves.values()))
    for name, curve in sorted(curves.items()):
        evidence = curve.evidence
        say(
            f"{owner:20} {name:34} {evidence.rows:6} rows {evidence.rejected:5} rejected"
            f"  error {evidence.relative_error:6.1%}"
        )
