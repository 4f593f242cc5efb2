"""`flopcast calibrate`: the commands that fit curves to measurements, and that judge such fits.

Elsewhere: which files give which curves (calibrate_fit.py), constants (calibrate_constants.py), the update
by one run (import_measurements.py).
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.calibrate_constants import constants
from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.import_measurements import from_run
from flopcast.cli.options import FILE, FOLDER, further_problems, print_json
from flopcast.cli.progress import OfRuns
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError, collected

if TYPE_CHECKING:
    from flopcast.cli.measurement_folder import MeasurementFolder
    from flopcast.lab.calibration.score import Say, Score
    from flopcast.lab.calibration.subjects import RejectedRows, Subject
    from flopcast.lab.calibration.watched import Watched

option = DocumentedOptions(__name__)


@click.group("calibrate")
def command() -> None:
    """Fit efficiency curves, constants and site files to measurements.

    `fit` fits efficiency curves to measurements of single kernels and collectives, and `score` tests the
    curves. `constants`, `from-run` and `jitter` determine effects that only whole training runs show.

    \b
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    flopcast calibrate from-run job.yaml --observed-step 12.3 --out site.yaml
    """


def _problems_of_device(named: Mapping[str, Any]) -> list[Problem]:
    """Return the error of --device, if it names no device of the catalogue."""
    from flopcast.library import catalog

    given = named["device"]
    is_known = given is None or catalog.known("devices", given) is not None
    return [] if is_known else [catalog.unknown_name("devices", given, "--device")]


@command.command("fit", short_help="Fit efficiency curves to measured times of kernels and collectives.")
@option("--data", type=FOLDER, required=True)
@option("-o", "--out", type=FILE, required=True)
@option("--device")
@further_problems(_problems_of_device)
def fit(data: Path, out: Path, device: str | None) -> None:
    """Fit efficiency curves to the measurements in DATA.

    DATA is a folder of published tables, or the output folder of `flopcast measure`. The command writes one
    JSON file for each device and each network into OUT. It prints the number of measurements, the
    measurements that it rejected, and the error of each curve. To resume an interrupted fit, run the same
    command again.

    \b
    flopcast calibrate fit --data ../shared/data --out src/flopcast/catalog/curves
    flopcast calibrate fit --data pack --device h200-sxm-141gb --out curves
    """
    from flopcast.cli.calibrate_fit import fit_folder, fit_own
    from flopcast.cli.measurement_folder import MeasurementFolder
    from flopcast.lab.samples.packs import MANIFEST

    found = _problems_of_device({"device": device})
    if (data / MANIFEST).is_file():
        with collected(found):
            fit_own(data, out, device, click.echo, partial(click.echo, err=True))
    else:
        resumes = "run the same command again to resume"
        with collected(found), OfRuns(what="devices and fabrics", whole=resumes) as watch:
            published = MeasurementFolder(data, watch.say)
            if not found:
                fit_folder(published, out, watch.say, watched=watch)
    if found:
        raise SpecError(found)


@command.command(
    "jitter", short_help="Print the jitter of measured runs: mean step time divided by best step time."
)
@option("--suite", required=True)
def jitter(suite: str) -> None:
    """Print the mean step time divided by the best step time, for each cluster of a suite.

    The suite must state the mean and the best step time of each run. A job file can contain the jitter as
    the field `cluster.jitter.ratio`.

    \b
    flopcast calibrate jitter --suite paper
    """
    from flopcast.lab.published.suite_files import load_suite
    from flopcast.lab.validation.compare import jitter_of

    ratios = jitter_of(load_suite(suite))
    if not ratios:
        needs = "the jitter follows from two or more runs of a system with a mean and a best step time"
        click.echo(f"{suite}: {needs}", err=True)
    for system, (ratio, sigma, rows) in ratios.items():
        click.echo(
            f"{system}: ratio {ratio:.3f} from {rows} runs; the logarithm of the ratio has a standard "
            f"deviation of {sigma:.3f}"
        )


@command.command("score", short_help="Report the errors of efficiency curves on held-out measurements.")
@option("--data", type=FOLDER, required=True)
@option("--json", "wants_json", is_flag=True)
@option("--markdown", "wants_markdown", is_flag=True)
def score(data: Path, wants_json: bool, wants_markdown: bool) -> None:
    """Report the error of efficiency curves on held-out measurements.

    For every kernel class, the command leaves out some measurements of DATA, fits a curve to the others,
    and predicts the measurements that it left out. The command does this three times: it leaves out a
    random fifth, all measurements of one hidden size, or the measurements with the largest shapes. The
    command also predicts all measurements of a device with the curve of another device. The output lists
    the errors, the share of measurements inside the 90 % interval, and the variation between repeated
    measurements. The command takes minutes, and prints its progress to stderr.

    \b
    flopcast calibrate score --data ../shared/data
    flopcast calibrate score --data ../shared/data --markdown > docs/accuracy/kernels.md
    """
    from flopcast.cli.measurement_folder import MeasurementFolder
    from flopcast.render.kernel_scores import as_json, as_markdown, as_text

    with OfRuns(what="classes") as watch:
        say = partial(watch.say, err=True)
        scores = score_folder(MeasurementFolder(data, say), say, watch)
    if wants_json:
        print_json(as_json(scores))
    if wants_markdown:
        click.echo(as_markdown(scores), nl=False)
    if not wants_json and not wants_markdown:
        print_text(as_text(scores))
    watch.end()


def score_folder(published: "MeasurementFolder", say: "Say", watched: "Watched[Subject]" = iter) -> "Score":
    """Return the score of every class that these files measure (lab/calibration/score.py).

    Parameters
    ----------
    published : MeasurementFolder
    say : function
        Receives lines of progress.
    watched : function
        Wraps the iteration over the subjects, to show the progress.
    """
    from flopcast.cli.measurement_folder import SYSTEMS, by_latency, tier_of
    from flopcast.lab.calibration.peer_fit import peer_devices
    from flopcast.lab.calibration.peer_tables import SERVED_FILES
    from flopcast.lab.calibration.score import score as judge
    from flopcast.lab.calibration.subjects import (
        fabric_subjects,
        operator_subjects,
        peer_subjects,
        with_peers,
    )
    from flopcast.library import catalog

    owners: list[tuple[list[Subject], list[RejectedRows]]] = []
    for system, files in published.systems.items():
        device = catalog.device(SYSTEMS[system])
        subjects, rejected = operator_subjects(system, device, files)
        owners.append((with_peers(subjects, device, published.peers), rejected))
    own = {some[0].owner: frozenset(subject.name for subject in some) for some, _ in owners if some}
    for name in peer_devices(published.peers):
        owners.append(peer_subjects(catalog.device(name), published.peers, own.get(name, frozenset())))
    for name in peer_devices(published.served, SERVED_FILES):
        owners.append(peer_subjects(catalog.device(name), published.served, frozenset(), SERVED_FILES))
    for tables in published.fabrics.values():
        large, small = by_latency(tables)
        tier = tier_of(tables[0][0])
        owners += [fabric_subjects(large, tier), fabric_subjects(small, tier, own_latency=True)]
    subjects = [subject for some, _ in owners for subject in some]
    return judge(subjects, [left for _, some in owners for left in some], say, watched)


command.add_command(constants)
command.add_command(from_run)
