"""Results of a measurement on the terminal: a site file, and the changes of a cluster.

Answers: which factors and rates did `flopcast measure` find, and where does the user enter them?
Elsewhere: the command (measure.py), the factors (lab/measure/site.py), the rates
(lab/measure/tier_samples.py).
"""

from pathlib import Path

import click
import yaml

from flopcast.cli.output_files import writing
from flopcast.cost.kernels.curve_book import CurveBook
from flopcast.errors import SpecError, spec_error
from flopcast.files.atomic_write import write_whole
from flopcast.lab.measure.device import Identity
from flopcast.lab.measure.site import DEVICES, launch_s, site_of
from flopcast.lab.measure.tier_samples import node_changes
from flopcast.lab.samples.packs import read_pack
from flopcast.lab.samples.sites import site_text
from flopcast.library import catalog
from flopcast.library.curves import load_owner

HOSTS = (
    "the host factor is the launch time of kernels on this host divided by the launch time on the "
    "reference host"
)


def write_site(
    pack_path: Path, site_path: Path, named: str, reference_s: float | None, speed_ratio: float
) -> None:
    """Write the site file of a pack, and print its factors.

    Parameters
    ----------
    pack_path, site_path : Path
        The measurements, and the file to write.
    named : str
        Device of the catalogue whose curves the site scales.
    reference_s : float or None
        Seconds of the host benchmark on a host of known speed. If it is None, there is no factor of the
        host.
    speed_ratio : float
        Speed of that reference host.
    """
    device = catalog.device(named)
    owners = (device.curves or device.name, *device.relatives)
    book = CurveBook(curves={k: curve for owner in owners for k, curve in load_owner(owner).items()})
    pack = read_pack(pack_path)
    for problem in pack.problems:
        click.echo(str(problem), err=True)
    site = site_of(pack.samples, device, book, reference_s, speed_ratio)
    with writing("--site", site_path):
        write_whole(site_path, site_text(site))
    for factor in site.factors:
        sigma = "" if factor.log_sigma_factor is None else f"  log sigma {factor.log_sigma_factor:.3f}"
        click.echo(f"{factor.name:36} ratio {factor.ratio:.3f}{sigma}")
    if reference_s is None:
        way = "pass --reference with measurements on a host of known speed"
        click.echo(f"the site file contains no host factor; to add it, {way}", err=True)


def catalogue_name(given: str, who: Identity) -> str:
    """Return the device whose curves the site file scales.

    It is called before the measurement starts, so that a wrong name costs no time.

    Raises
    ------
    SpecError
        The name is not in the catalogue, or no name is given and torch's name of the device is unknown.
    """
    name = given or DEVICES.get(who.name, "")
    own_name = catalog.known("devices", name)
    if own_name:
        return own_name
    if name:
        raise SpecError([catalog.unknown_name("devices", name, "--as")])
    allowed = "the name of this device in the catalogue (flopcast catalog devices)"
    because = (
        f"a site file applies to the curves of a device in the catalogue, and the catalogue has no device "
        f"named {who.name!r}"
    )
    raise spec_error("--as", None, allowed, because, "add --as NAME, or remove --site", fault="is missing")


def reference_s(path: Path) -> float:
    """Return the seconds of a launch in the pack of a reference host."""
    seconds_s = launch_s(read_pack(path).samples)
    if seconds_s is None:
        fix = "measure the reference host again"
        allowed = "a folder that contains a measurement of host.launch"
        raise spec_error("--reference", str(path), allowed, HOSTS, fix)
    return seconds_s


def show_memories(pack_path: Path, given: str, who: Identity, folder: Path | None, on_gpu: bool) -> None:
    """Print the rates of memory outside the device as changes of a cluster, and a note about missing
    rates.
    """
    if not on_gpu:
        told = "not measured: copies between device and host, because --device cpu has no GPU"
        click.echo(told, err=True)
    if folder is None:
        click.echo("not measured: drives and file systems, because --path is not given", err=True)
    changes = node_changes(read_pack(pack_path).tiers, given or DEVICES.get(who.name, "DEVICE"))
    if changes:
        click.echo("# Measured bandwidths of host memory and storage, for the cluster of a job file:")
        document = {"cluster": {"base": "CLUSTER", "groups": {"0": {"node": changes}}}}
        click.echo(yaml.safe_dump(document, sort_keys=False, width=100).rstrip())
