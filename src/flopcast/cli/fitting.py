"""`flopcast calibrate`: measurements in, curve files out.

Answers: which measurements of a data folder become the curves of which device or fabric?
Elsewhere: what the folder holds (published.py), how a curve is fitted (calibration/fit.py, peer_fit.py),
how it is written (io/curves.py).

The catalogue's curves are made by this module from nothing but the data folder, so that a refit gives
the same bytes. A device's own measurements (SYSTEMS, relatives first) come before the tables of peers,
which give the classes that it has not measured and are compared with the others.
"""

from collections.abc import Callable
from pathlib import Path

from flopcast.calibration.broken import replacements
from flopcast.calibration.fit import fit_fabric, fit_operators, samples_by_class
from flopcast.calibration.peer_fit import borrowed_layouts, compared_with_own, fit_peers, peer_devices
from flopcast.cli.published import SYSTEMS, Measured, Published, by_latency, tier_of
from flopcast.cost.kernels.classes import LAYOUTS_SHARE_A_CURVE
from flopcast.cost.kernels.curve import Curve
from flopcast.io import catalog
from flopcast.io.curves import write_owner

Say = Callable[[str], None]
Curves = dict[str, Curve]  # of one owner, by class


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
    published = Published(data, say)
    out.mkdir(parents=True, exist_ok=True)
    fitted: dict[str, Curves] = {}
    for system in published.systems:
        fitted[SYSTEMS[system]] = _fit_own(published, system, fitted)
    for name in peer_devices(published.peers):
        curves = _fit_peers(published, name, fitted, say)
        if curves:
            fitted[name] = curves
    for name, curves in fitted.items():
        write_curves(out, name, curves, say)
    for fabric, files in published.fabrics.items():
        write_curves(out, fabric, _fit_fabric(files), say)


def _fit_own(published: Published, system: str, fitted: dict[str, Curves]) -> Curves:
    """A device's own curves, and those derived for its broken classes from a relative fitted before."""
    device = catalog.device(SYSTEMS[system])
    curves = fit_operators(system, device, published.systems[system])
    relative = {k: v for other in device.relatives for k, v in fitted.get(other, {}).items()}
    return curves | replacements(system, device, curves, relative)


def _fit_peers(published: Published, name: str, fitted: dict[str, Curves], say: Say) -> Curves:
    """All curves of a device: its own, and those of classes that only other projects measured."""
    device = catalog.device(name)
    systems = [system for system in published.systems if SYSTEMS[system] == name]
    samples = samples_by_class(systems[0], device, published.systems[systems[0]]) if systems else {}
    own = fitted.get(name, {})
    found = fit_peers(device, published.peers, frozenset((*samples, *own)))
    for line in (*compared_with_own(samples, device, published.peers), *found.told):
        say(line)
    curves = dict(found.curves)
    for layouts in LAYOUTS_SHARE_A_CURVE:
        if layouts in curves:
            lenders = (fitted.get(relative, {}).get(layouts) for relative in device.relatives)
            curves[layouts] = borrowed_layouts(curves[layouts], filter(None, lenders))
    return curves | own


def _fit_fabric(files: Measured) -> Curves:
    """Curves of a fabric; tables with small messages give curves with a latency of their own."""
    tier = tier_of(files[0][0])
    large, small = by_latency(files)
    return fit_fabric(large, tier) | fit_fabric(small, tier, own_latency=True)


def write_curves(out: Path, owner: str, curves: Curves, say: Say) -> None:
    """One file, and one line for each curve in it: rows used, rows rejected, error."""
    write_owner(out / f"{owner}.json", owner, list(curves.values()))
    for name, curve in sorted(curves.items()):
        evidence = curve.evidence
        say(
            f"{owner:20} {name:34} {evidence.rows:6} rows {evidence.rejected:5} rejected"
            f"  error {evidence.relative_error:6.1%}"
        )
