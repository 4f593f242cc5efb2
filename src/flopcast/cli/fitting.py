"""`flopcast calibrate`: measurements in, curve files out.

Answers: which files of a data folder become the curves of which device or fabric?
Elsewhere: what their columns mean (calibration/operator_files.py, collective_files.py; peer_operators.py,
peer_collectives.py for other projects' tables), how a curve is fitted (calibration/fit.py, peer_fit.py),
how it is written (io/curves.py).

The catalogue's curves are made by this module from nothing but the data folder, so that a refit gives
the same bytes. Systems are fitted in the order of SYSTEMS: one that replaces broken measurements by a
relative's comes after that relative.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from flopcast.calibration.broken import replacements
from flopcast.calibration.collective_files import FABRICS, Columns, FabricFile
from flopcast.calibration.fit import file_samples, fit_fabric, fit_operators
from flopcast.calibration.operator_files import FILES
from flopcast.calibration.peer_collectives import WITH_LATENCY, WITHOUT_LATENCY
from flopcast.calibration.peer_fit import borrowed_layouts, compared_with_own, fit_peers, peer_devices
from flopcast.calibration.peer_operators import PEER_FILES
from flopcast.calibration.samples import Samples, join
from flopcast.cost.kernels.curve import Curve
from flopcast.errors import Problem, SpecError
from flopcast.io import catalog
from flopcast.io.curves import write_owner
from flopcast.io.samples.columns import read_columns
from flopcast.spec.cluster import Device, Tier

SYSTEMS = {  # system → device whose curves its files give; relatives first
    "perlmutter-a100-sxm4-80gb": "a100-sxm4-80gb",
    "vista-gh200": "gh200-96gb",
}
PEER_FABRICS = (*WITH_LATENCY, *WITHOUT_LATENCY)
MOST_TOLD = 5  # rows of one file
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
        Receives one line for each curve, and one for each source that was compared with another.

    Raises
    ------
    SpecError
        The folder holds none of the measurements that are known.
    """
    systems = {s: name for s, name in SYSTEMS.items() if list((data / "operators" / s).glob("*.csv"))}
    tables = sorted({file.path for file in PEER_FILES if (data / "peers" / file.path).is_file()})
    fabrics = [file for file in (*FABRICS, *PEER_FABRICS) if (data / file.path).is_file()]
    if not systems and not tables and not fabrics:
        raise SpecError([_nothing_known(data)])
    out.mkdir(parents=True, exist_ok=True)
    fitted: dict[str, dict[str, Curve]] = {}
    for system, name in systems.items():
        fitted[name] = _fit_device(data, system, name, fitted, say)
        _write(out, name, fitted[name], say)
    _fit_fabrics(data, out, fabrics, say)
    _fit_peers(data, out, tables, fitted, say)


def _fit_fabrics(data: Path, out: Path, files: list[FabricFile], say: Say) -> None:
    """One file for each fabric; tables with small messages give curves with a latency of their own."""
    columns = {path: _columns(data / path, say) for path in sorted({file.path for file in files})}
    by_fabric: dict[str, list[FabricFile]] = defaultdict(list)
    for file in files:
        by_fabric[file.fabric].append(file)
    for fabric, entries in by_fabric.items():
        tier = _tier(entries[0])
        small = [(file, columns[file.path]) for file in entries if file in WITH_LATENCY]
        large = [(file, columns[file.path]) for file in entries if file not in WITH_LATENCY]
        _write(out, fabric, fit_fabric(large, tier) | fit_fabric(small, tier, own_latency=True), say)


def _fit_peers(
    data: Path, out: Path, tables: list[str], fitted: dict[str, dict[str, Curve]], say: Say
) -> None:
    """Curves of devices that other projects measured; those of SYSTEMS keep their own and are compared.

    `fitted` gains the curves of each device: a later one may borrow the ratios of its gradients.
    """
    columns = {path: _columns(data / "peers" / path, say) for path in tables}
    own = {name: system for system, name in SYSTEMS.items()}
    for name in peer_devices(tables):
        device = catalog.device(name)
        if name in own:
            lines = compared_with_own(_own_samples(data, own[name], device, say), device, columns)
        else:
            found = fit_peers(device, columns)
            lines, curves = list(found.told), dict(found.curves)
            if "gemm" in curves:
                lenders = (fitted.get(relative, {}).get("gemm") for relative in device.relatives)
                curves["gemm"] = borrowed_layouts(curves["gemm"], filter(None, lenders))
            if curves:
                fitted[name] = curves
                _write(out, name, curves, say)
        for line in lines:
            say(line)


def _own_samples(data: Path, system: str, device: Device, say: Say) -> dict[str, Samples]:
    """What a system of SYSTEMS measured itself, by class, for a comparison."""
    parts: dict[str, list[Samples]] = defaultdict(list)
    for name, columns in _operator_files(data, system, say).items():
        for samples in file_samples(system, name, columns, device):
            parts[samples.name].append(samples)
    return {name: join(found) for name, found in parts.items()}


def _nothing_known(data: Path) -> Problem:
    """The fault of a folder that holds no measurement that is known."""
    return Problem(
        field="--data",
        value=str(data),
        allowed=f"a folder with operators/SYSTEM (known: {', '.join(SYSTEMS)}), collectives/ or peers/",
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
    curves = fit_operators(system, device, _operator_files(data, system, say))
    relative = {k: v for other in device.relatives for k, v in fitted.get(other, {}).items()}
    return curves | replacements(system, device, curves, relative)


def _operator_files(data: Path, system: str, say: Say) -> dict[str, Columns]:
    """The columns of a system's files by name; degrees of one where a file was measured uncut."""
    files: dict[str, Columns] = {}
    for path in sorted((data / "operators" / system).glob("*.csv")):
        if path.stem in FILES:
            columns = _columns(path, say)
            uncut = {"tp": 0 * next(iter(columns.values())) + 1}
            files[path.stem] = uncut | dict(columns)
    return files


def _columns(path: Path, say: Say) -> Columns:
    """The columns of a file; rows that cannot be read are told and left out."""
    measured = read_columns(path)
    for problem in measured.problems[:MOST_TOLD]:
        say(f"{problem.where}: left out: {problem.value} (a row needs {problem.allowed})")
    if len(measured.problems) > MOST_TOLD:
        say(f"{path}: {len(measured.problems) - MOST_TOLD} more rows left out")
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
