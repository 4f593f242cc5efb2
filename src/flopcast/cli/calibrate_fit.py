"""`flopcast calibrate fit`: fits curve files to a folder of published measurements, or to a sample pack.

Answers: which measurements give the curves of a device or fabric, and how does an interrupted fit resume?
Elsewhere: the contents of the folder (measurement_folder.py), the fit of a curve (lab/calibration), its
file (library/curves.py).

The curves of the catalogue depend only on the data folder, so that fitting again gives the same bytes. Our
measurements of a device (SYSTEMS, fallback devices first) take precedence over tables of other projects.
Those tables supply the missing classes. For classes in both, the two are compared.

A fit takes minutes. The file of each owner (a device or a fabric) is written as soon as its curves are
fitted, and a ledger in the same folder then lists the owner. A later fit into that folder skips the listed
owners and gives the same bytes as an uninterrupted fit. The ledger is valid for one state of the
measurements and one version of the program; otherwise it is ignored. A fit that completes deletes it.
"""

import json
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import flopcast
from flopcast.cli.measurement_folder import SYSTEMS, Measured, MeasurementFolder, by_latency, tier_of
from flopcast.cost.kernels.classes import BASES
from flopcast.cost.kernels.curve import Curve
from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.atomic_write import write_whole
from flopcast.lab.calibration.broken_operators import replacements
from flopcast.lab.calibration.curve_fit import fit_fabric, fit_operators, samples_by_class
from flopcast.lab.calibration.pack_samples import LEAST_ROWS, fit_pack, pack_samples
from flopcast.lab.calibration.peer_fit import borrowed_layouts, compared_with_own, fit_peers, peer_devices
from flopcast.lab.calibration.peer_tables import SERVED_FILES, PeerFile
from flopcast.lab.calibration.watched import Watched
from flopcast.lab.samples.packs import read_pack
from flopcast.library import catalog
from flopcast.library.curves import read_curves, serves, write_curves
from flopcast.records import Record, field

# times gradients separately; fitted before the devices that borrow its ratios
LENDERS_OF_LAYOUTS = ("a100-pcie-80gb",)
TRAINED_FILES = tuple(file for file in SERVED_FILES if not serves(file.name))  # kernels of both
LEDGER = "unfinished-fit.json"
Say = Callable[[str], None]
Curves = dict[str, Curve]  # of one owner, by class
Fit = Callable[[], Curves]


def fit_folder(
    published: MeasurementFolder,
    out: Path,
    say: Say,
    served: Collection[str] | None = None,
    watched: Watched[tuple[str, Fit]] = iter,
) -> None:
    """Fit all curves for which there are measurements, and write one file per device and fabric.

    Curves that only serving uses are in a second file, in the folder "serving".

    Parameters
    ----------
    out : the folder for the curve files; it is made if it is missing
    say : receives one line for each curve and for each comparison of two sources
    served : the devices whose curves of serving are fitted; None for all
    watched : wraps the iteration over devices and fabrics, to report progress
    """
    ledger = open_fit_progress(out, published.digest())
    fitted: dict[str, Curves] = {}

    def finish(owner: str, fit: Fit) -> Curves:
        """Return the curves of an owner from its file; fit them if the file is not finished."""
        curves = ledger.finished(owner)
        if curves is None:
            curves = ledger.write(owner, fit())
        tell(owner, curves, say)
        return curves

    own = {SYSTEMS[system]: system for system in published.systems}
    peers = (*peer_devices(published.peers), *peer_devices(published.served, SERVED_FILES))
    first = [name for name in LENDERS_OF_LAYOUTS if name in peers]
    owners: list[tuple[str, Fit]] = []
    for name in dict.fromkeys((*first, *own, *peers)):
        files = SERVED_FILES if served is None or name in served else TRAINED_FILES
        owners.append((name, partial(_fit_device, published, name, own.get(name), fitted, files, say)))
    owners += [(fabric, partial(_fit_fabric, files)) for fabric, files in published.fabrics.items()]
    for owner, fit in watched(owners):
        fitted[owner] = finish(owner, fit)
    ledger.close()


def _fit_device(
    published: MeasurementFolder,
    name: str,
    system: str | None,
    fitted: dict[str, Curves],
    served: Sequence[PeerFile],
    say: Say,
) -> Curves:
    """Return a device's own curves and those of the classes it lacks; report how sources compare."""
    own = {} if system is None else _fit_own(published, system, fitted)
    device = catalog.device(name)
    samples = {} if system is None else samples_by_class(system, device, published.systems[system])
    peer_fit = fit_peers(device, published.peers, frozenset((*samples, *own)))
    served_fit = fit_peers(device, published.served, files=served)
    compared = compared_with_own(samples, device, published.peers)
    for line in (*compared, *peer_fit.messages, *served_fit.messages):
        say(line)
    curves = {**peer_fit.curves, **served_fit.curves, **own}
    for layouts, base in BASES.items():
        if base.layouts_share_a_curve and layouts in curves:
            lenders = (fitted.get(relative, {}).get(layouts) for relative in device.relatives)
            curves[layouts] = borrowed_layouts(curves[layouts], filter(None, lenders))
    return curves


def _fit_own(published: MeasurementFolder, system: str, fitted: dict[str, Curves]) -> Curves:
    """Return a device's own curves; those of broken classes are derived from a fallback device."""
    device = catalog.device(SYSTEMS[system])
    curves = fit_operators(system, device, published.systems[system])
    relative = {k: v for other in device.relatives for k, v in fitted.get(other, {}).items()}
    return curves | replacements(system, device, curves, relative)


def _fit_fabric(files: Measured) -> Curves:
    """Return the curves of a fabric; only tables with small messages give a fitted latency."""
    tier = tier_of(files[0][0])
    large, small = by_latency(files)
    return fit_fabric(large, tier) | fit_fabric(small, tier, own_latency=True)


def tell(owner: str, curves: Curves, say: Say) -> None:
    """Report one line for each curve of an owner, with the used rows, the rejected rows, and the error."""
    for name, curve in sorted(curves.items()):
        evidence = curve.evidence
        say(
            f"{owner:20} {name:34} {evidence.rows:6} rows {evidence.rejected:5} rejected"
            f"  error {evidence.relative_error:6.1%}"
        )


class FitProgress(Record, eq=False, kw_only=False):
    """Devices and fabrics with finished curves in a folder; `digest` identifies the measurements."""

    folder: Path
    digest: str
    done: list[str] = field(default_factory=list)

    def finished(self, owner: str) -> dict[str, Curve] | None:
        """Return the curves of an owner by class, or None if its file is not finished."""
        if owner not in self.done:
            return None
        return read_curves(self.folder, owner)

    def write(self, owner: str, curves: dict[str, Curve]) -> dict[str, Curve]:
        """Write the file of an owner, and then its name into the ledger. Without curves, write nothing.

        Returns
        -------
        dict
            The curves as rounded in the file, so that a resumed fit and an uninterrupted one agree.
        """
        if not curves:
            return {}
        write_curves(self.folder, owner, list(curves.values()))
        self.done.append(owner)
        entries = {"digest": self.digest, "version": flopcast.__version__, "done": self.done}
        write_whole(self.folder / LEDGER, json.dumps(entries))
        return self.finished(owner) or {}

    def close(self) -> None:
        """Delete the ledger at the end of a complete fit."""
        (self.folder / LEDGER).unlink(missing_ok=True)


def open_fit_progress(folder: Path, digest: str) -> FitProgress:
    """Return the ledger of a folder, and make the folder if it is missing.

    The ledger is empty if it is missing, cannot be read, or belongs to other measurements or to another
    version of the program. An owner without a curve file counts as unfinished.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        ledger = json.loads((folder / LEDGER).read_text(encoding="utf-8"))
        same = (ledger["digest"], ledger["version"]) == (digest, flopcast.__version__)
        done = [name for name in ledger["done"] if (folder / f"{name}.json").is_file()] if same else []
    except (OSError, ValueError, KeyError, TypeError):
        done = []
    return FitProgress(folder, digest, done)


def fit_own(data: Path, out: Path, device: str | None, say: Say, warn: Say) -> None:
    """Fit the curves of the device on which a pack was measured.

    Rows that cannot be read are reported to `warn`, one line each, and skipped. `device` is the name of the
    device in the catalogue; a pack holds only the name that the driver reports. `say` receives one line for
    each curve, and one with the classes that have too few rows.

    Raises
    ------
    SpecError
        The device is missing or unknown, or the pack has too few usable rows.
    """
    pack = read_pack(data)
    own_name = catalog.known("devices", device or "")
    if own_name is None:
        raise SpecError([_which_device(device, pack.manifest.device)])
    for problem in pack.problems:
        warn(f"{problem.where}: row is ignored: {problem.value} (a row needs {problem.allowed})")
    known, source = catalog.device(own_name), f"flopcast measure on {pack.manifest.device}"
    samples = pack_samples(pack.samples, known, source)
    curves = fit_pack(samples, known)
    if not curves:
        allowed = f"samples with at least {LEAST_ROWS} valid rows of one kernel class"
        fix = "run flopcast measure again with the same --out: it continues existing measurements"
        raise spec_error("--data", str(data), allowed, "a curve needs at least this many rows", fix)
    out.mkdir(parents=True, exist_ok=True)
    write_curves(out, own_name, list(curves.values()))
    tell(own_name, curves, say)
    few = [name for name in samples if name not in curves]
    few = [name for name in few if not name.endswith("_gradient")]
    if few:
        because = f"because each has fewer than {LEAST_ROWS} rows: {', '.join(sorted(few))}"
        say(f"{device:20} no curves for these kernel classes, {because}")


def _which_device(given: str | None, measured: str) -> Problem:
    """Return the fault of a missing or unknown device."""
    if given is not None:
        return catalog.unknown_name("devices", given, "--device")
    allowed = "the name of a device in the catalogue (flopcast catalog devices)"
    because = f"the samples contain only the name that the driver reports: {measured!r}"
    return Problem("--device", None, allowed, because, "add --device NAME", fault="is missing")
