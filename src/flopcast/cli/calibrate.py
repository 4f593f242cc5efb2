"""`flopcast calibrate`."""

from functools import partial
from pathlib import Path

import click

from flopcast.cli.calibrate_constants import constants
from flopcast.cli.calibrate_score import score
from flopcast.cli.import_measurements import from_run
from flopcast.cli.options import FILE


@click.group("calibrate")
def command() -> None:
    """Fit curves and constants to measurements.

    `fit` turns measurements of single kernels and collectives into curves. Some effects show only in whole
    training runs: `constants` and `from-run` fit them as levels of factors, `jitter` as the jitter of a
    cluster.

    \b
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    flopcast calibrate from-run job.yaml --observed-step 12.3 --out site.yaml
    """


@command.command("fit")
@click.option("--data", type=FILE, required=True, help="Folder with operators/, peers/ and collectives/.")
@click.option("--out", type=FILE, required=True, help="Folder for the curve files.")
@click.option(
    "--device", help="The device on which a sample pack was measured, by its name in the catalogue."
)
def fit(data: Path, out: Path, device: str | None) -> None:
    """Fit the curves of every device and fabric that DATA has measurements for.

    Writes one JSON file for each device and fabric into OUT, and prints the rows, rejected rows and error
    of every curve. Equal measurements give equal bytes. DATA is a folder of published tables, or a sample
    pack of `flopcast measure`. An interrupted fit resumes where it stopped.

    \b
    flopcast calibrate fit --data ../shared/data --out src/flopcast/catalog/curves
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    """
    from flopcast.cli.calibrate_fit import fit_all
    from flopcast.cli.calibrate_packs import fit_own, is_pack

    if is_pack(data):
        fit_own(data, out, device, click.echo, partial(click.echo, err=True))
    else:
        fit_all(data, out, click.echo)


@command.command("jitter")
@click.option("--suite", required=True, help="Measured runs with best and mean steps.")
def jitter(suite: str) -> None:
    """Print the ratio of mean to best step time of each system of a suite, for a cluster's `jitter`.

    Needs runs whose logs give both step times; suites that state only a mean cannot be used.

    \b
    flopcast calibrate jitter --suite paper
    """
    from flopcast.lab.published.suite_files import load_suite
    from flopcast.lab.validation.compare import jitter_of

    found = jitter_of(load_suite(suite))
    if not found:
        click.echo(f"{suite}: no system has two runs with a best and a mean step", err=True)
    for system, (ratio, sigma, rows) in found.items():
        click.echo(f"{system}: ratio {ratio:.3f}, log sigma {sigma:.3f}, from {rows} runs")


command.add_command(constants)
command.add_command(from_run)
command.add_command(score)
