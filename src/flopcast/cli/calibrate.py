"""`flopcast calibrate`."""

from functools import partial
from pathlib import Path

import click

from flopcast.cli.constants import constants
from flopcast.cli.observing import from_run
from flopcast.cli.scoring import score


@click.group("calibrate")
def command() -> None:
    """Fit curves and constants to measurements.

    Measurements of single kernels and collectives become curves (fit). Effects that only whole training
    runs show become the levels of factors (constants, from-run) or the jitter of a cluster.

    \b
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    flopcast calibrate from-run job.yaml --observed-step 12.3 --out site.yaml
    """


@command.command("fit")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder with operators/, peers/ and collectives/.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the curve files.")
@click.option("--device", help="The device of the catalogue that a sample pack was measured on.")
def fit(data: Path, out: Path, device: str | None) -> None:
    """Fit the curves of every device and fabric that DATA has measurements for.

    Writes one JSON file for each device and fabric into OUT, equal bytes for equal measurements, and
    prints rows, rejected rows and error of every curve. DATA is a folder of published tables, or a
    sample pack that `flopcast measure` wrote. A fit that was broken off goes on where it stopped.

    \b
    flopcast calibrate fit --data ../shared/data --out src/flopcast/catalog/curves
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    """
    from flopcast.cli.fitting import fit_all
    from flopcast.cli.fitting_packs import fit_own, is_pack

    if is_pack(data):
        fit_own(data, out, device, click.echo, partial(click.echo, err=True))
    else:
        fit_all(data, out, click.echo)


@command.command("jitter")
@click.option("--suite", required=True, help="Measured runs with best and mean steps.")
def jitter(suite: str) -> None:
    """Mean step over best step of the systems of a suite: what a cluster's `jitter` holds.

    Needs runs whose logs give both; suites that print only a mean have nothing to say.

    \b
    flopcast calibrate jitter --suite paper
    """
    from flopcast.io.suites import load_suite
    from flopcast.validation.compare import jitter_of

    found = jitter_of(load_suite(suite))
    if not found:
        click.echo(f"{suite}: no system has two runs with a best and a mean step", err=True)
    for system, (ratio, sigma, rows) in found.items():
        click.echo(f"{system}: ratio {ratio:.3f}, log sigma {sigma:.3f}, from {rows} runs")


command.add_command(constants)
command.add_command(from_run)
command.add_command(score)
