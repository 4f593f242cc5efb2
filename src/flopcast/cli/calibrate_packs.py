"""`flopcast calibrate fit` on a sample pack of `flopcast measure`.

Answers: which curve file is fitted to this pack?
Elsewhere: published tables (calibrate_fit.py), what a pack's rows measure
(lab/calibration/pack_samples.py).
"""

from collections.abc import Callable
from pathlib import Path

from flopcast.cli.calibrate_fit import tell
from flopcast.errors import Problem, SpecError, spec_error
from flopcast.lab.calibration.pack_samples import LEAST_ROWS, fit_pack, pack_samples
from flopcast.lab.samples.packs import MANIFEST, read_pack
from flopcast.library import catalog
from flopcast.library.curves import write_owner

Say = Callable[[str], None]


def is_pack(data: Path) -> bool:
    """Return whether a folder is a sample pack, which has a manifest."""
    return (data / MANIFEST).is_file()


def fit_own(data: Path, out: Path, device: str | None, say: Say, warn: Say) -> None:
    """Fit the curves of the device that a pack was measured on.

    Parameters
    ----------
    data : Path
        The pack; rows that cannot be read are reported and skipped.
    out : Path
        The folder for the curve file; it is made if it is missing.
    device : str or None
        The name of the device in the catalogue; a pack holds only the name that the driver reports.
    say : callable
        Receives one line for each curve, and one with the classes that have too few rows.
    warn : callable
        Receives one line for each row that is skipped.

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
        warn(f"{problem.where}: left out: {problem.value} (a row needs {problem.allowed})")
    known, source = catalog.device(own_name), f"flopcast measure on {pack.manifest.device}"
    found = pack_samples(pack.samples, known, source)
    curves = fit_pack(found, known)
    if not curves:
        allowed = f"a pack with {LEAST_ROWS} usable rows of at least one class"
        fix = "run flopcast measure again with the same --out: it continues an existing pack"
        raise spec_error("--data", str(data), allowed, "a curve needs that many rows", fix)
    out.mkdir(parents=True, exist_ok=True)
    write_owner(out / f"{own_name}.json", own_name, list(curves.values()))
    tell(own_name, curves, say)
    few = [name for name in found if name not in curves]
    few = [name for name in few if not name.endswith("_gradient")]
    if few:
        say(f"{device:20} fewer than {LEAST_ROWS} rows, no curve: {', '.join(sorted(few))}")


def _which_device(given: str | None, measured: str) -> Problem:
    """Return the fault of a missing or unknown device."""
    if given is not None:
        return catalog.unknown_name("devices", given, "--device")
    allowed = "a name of flopcast catalog devices"
    because = f"the pack holds only the name that the driver reports: {measured!r}"
    return Problem("--device", None, allowed, because, "add --device NAME", fault="is missing")
