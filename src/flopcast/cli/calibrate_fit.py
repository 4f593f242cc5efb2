"""`flopcast calibrate fit`: fits curve files to a folder of published measurements.

Answers: which measurements of a data folder give the curves of which device or fabric?
Elsewhere: what the folder holds (measurement_folder.py), how a curve is fitted
(lab/calibration/curve_fit.py, peer_fit.py), how it is written (library/curves.py).

The curves of the catalogue depend only on the data folder, so that fitting again gives the same bytes. Our
measurements of a device (SYSTEMS, fallback devices first) take precedence over tables of other projects.
Those supply the missing classes; where both exist, they are compared.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flopcast.cli.fit_progress import open_fit_progress
from flopcast.cli.measurement_folder import SYSTEMS, Measured, MeasurementFolder, by_latency, tier_of
from flopcast.cost.kernels.classes import BASES
from flopcast.cost.kernels.curve import Curve
from flopcast.lab.calibration.broken_operators import replacements
from flopcast.lab.calibration.curve_fit import fit_fabric, fit_operators, samples_by_class
from flopcast.lab.calibration.peer_fit import borrowed_layouts, compared_with_own, fit_peers, peer_devices
from flopcast.library import catalog

LENDERS_OF_LAYOUTS = (
    "a100-pcie-80gb",
)  # times gradients separately; fitted before the devices that borrow its ratios
Say = Callable[[str], None]
Curves = dict[str, Curve]  # of one owner, by class


def fit_all(data: Path, out: Path, say: Say) -> None:
    """Fit every curve that `data` has measurements for, as `fit_folder` does.

    Parameters
    ----------
    data : Path
        A folder with operators/SYSTEM/*.csv, collectives/ and peers/.

    Raises
    ------
    SpecError
        The folder holds no known measurements.
    """
    fit_folder(MeasurementFolder(data, say), out, say)


def fit_folder(published: MeasurementFolder, out: Path, say: Say) -> None:
    """Fit every curve that these measurements give, and write one file per device and fabric.

    An interrupted fit resumes where it stopped (fit_progress.py).

    Parameters
    ----------
    out : Path
        The folder for the curve files; it is made if it is missing.
    say : callable
        Receives one line for each curve and for each comparison of two sources.
    """
    ledger = open_fit_progress(out, published.digest())
    fitted: dict[str, Curves] = {}

    def finish(owner: str, fit: Callable[[], Curves]) -> Curves:
        """Return the curves of an owner as its file holds them; fit them if the file is not finished."""
        found = ledger.finished(owner)
        if found is None:
            found = ledger.write(owner, fit())
        tell(owner, found, say)
        return found

    own = {SYSTEMS[system]: system for system in published.systems}
    peers = peer_devices(published.peers)
    first = [name for name in LENDERS_OF_LAYOUTS if name in peers]
    for name in dict.fromkeys((*first, *own, *peers)):
        fitted[name] = finish(name, partial(_fit_device, published, name, own.get(name), fitted, say))
    for fabric, files in published.fabrics.items():
        finish(fabric, partial(_fit_fabric, files))
    ledger.close()


def _fit_device(
    published: MeasurementFolder, name: str, system: str | None, fitted: dict[str, Curves], say: Say
) -> Curves:
    """Return all curves of a device, including those of classes that only other projects measured."""
    own = {} if system is None else _fit_own(published, system, fitted)
    return _fit_peers(published, name, system, own, fitted, say)


def _fit_own(published: MeasurementFolder, system: str, fitted: dict[str, Curves]) -> Curves:
    """Return a device's own curves; those of broken classes are derived from a fallback device."""
    device = catalog.device(SYSTEMS[system])
    curves = fit_operators(system, device, published.systems[system])
    relative = {k: v for other in device.relatives for k, v in fitted.get(other, {}).items()}
    return curves | replacements(system, device, curves, relative)


def _fit_peers(
    published: MeasurementFolder,
    name: str,
    system: str | None,
    own: Curves,
    fitted: dict[str, Curves],
    say: Say,
) -> Curves:
    """Return a device's curves with those of missing classes added; report how sources compare."""
    device = catalog.device(name)
    samples = {} if system is None else samples_by_class(system, device, published.systems[system])
    found = fit_peers(device, published.peers, frozenset((*samples, *own)))
    for line in (*compared_with_own(samples, device, published.peers), *found.told):
        say(line)
    curves = {**found.curves, **own}
    for layouts, base in BASES.items():
        if base.layouts_share_a_curve and layouts in curves:
            lenders = (fitted.get(relative, {}).get(layouts) for relative in device.relatives)
            curves[layouts] = borrowed_layouts(curves[layouts], filter(None, lenders))
    return curves


def _fit_fabric(files: Measured) -> Curves:
    """Return the curves of a fabric; only tables with small messages give a fitted latency."""
    tier = tier_of(files[0][0])
    large, small = by_latency(files)
    return fit_fabric(large, tier) | fit_fabric(small, tier, own_latency=True)


def tell(owner: str, curves: Curves, say: Say) -> None:
    """Report one line for each curve of an owner: rows used, rows rejected, error."""
    for name, curve in sorted(curves.items()):
        evidence = curve.evidence
        say(
            f"{owner:20} {name:34} {evidence.rows:6} rows {evidence.rejected:5} rejected"
            f"  error {evidence.relative_error:6.1%}"
        )
