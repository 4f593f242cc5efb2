"""`flopcast calibrate score`: reports the error of the curves on rows that they were not fitted to.

Answers: which measurements are judged, and how is the score printed?
Elsewhere: what a data folder holds (measurement_folder.py), the score (lab/calibration/score.py), its text
(render/kernel_scores.py), curves from the same folder (calibrate_fit.py). The command is attached to its
group in calibrate.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.options import FILE, print_json

if TYPE_CHECKING:
    from flopcast.cli.measurement_folder import MeasurementFolder
    from flopcast.lab.calibration.score import Say, Score
    from flopcast.lab.calibration.subjects import RejectedRows, Subject


@click.command("score")
@click.option("--data", type=FILE, required=True, help="Folder with operators/, peers/ and collectives/.")
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def score(data: Path, wants_json: bool, wants_markdown: bool) -> None:
    """Report the error of curves on rows that they were not fitted to.

    Fits every class of DATA again without some rows, and predicts these rows: a random fifth, models of
    another width, or the largest shapes; also predicts all rows of a device by the curve of another device.
    Prints the errors, how many measurements lie inside the 90 % interval, and the spread of repeated
    measurements. Takes minutes; progress goes to stderr.

    \b
    flopcast calibrate score --data ../shared/data
    flopcast calibrate score --data ../shared/data --markdown > docs/accuracy/kernels.md
    """
    from flopcast.render.kernel_scores import as_json, as_markdown, as_text

    found = score_all(data, lambda line: click.echo(line, err=True))
    if wants_json:
        print_json(as_json(found))
    if wants_markdown:
        click.echo(as_markdown(found), nl=False)
    if not wants_json and not wants_markdown:
        click.echo(as_text(found))


def score_all(data: Path, say: "Say") -> "Score":
    """Return the score of every class that the files of a data folder measure.

    Raises
    ------
    SpecError
        The folder holds no known measurements.
    """
    from flopcast.cli.measurement_folder import MeasurementFolder

    return score_folder(MeasurementFolder(data, say), say)


def score_folder(published: "MeasurementFolder", say: "Say") -> "Score":
    """Return the score of every class that these files measure."""
    from flopcast.cli.measurement_folder import SYSTEMS, by_latency, tier_of
    from flopcast.lab.calibration.peer_fit import peer_devices
    from flopcast.lab.calibration.score import score as judge
    from flopcast.lab.calibration.subjects import (
        fabric_subjects,
        operator_subjects,
        peer_subjects,
        with_peers,
    )
    from flopcast.library import catalog

    found: list[tuple[list[Subject], list[RejectedRows]]] = []
    for system, files in published.systems.items():
        device = catalog.device(SYSTEMS[system])
        subjects, rejected = operator_subjects(system, device, files)
        found.append((with_peers(subjects, device, published.peers), rejected))
    own = {some[0].owner: frozenset(subject.name for subject in some) for some, _ in found if some}
    for name in peer_devices(published.peers):
        found.append(peer_subjects(catalog.device(name), published.peers, own.get(name, frozenset())))
    for tables in published.fabrics.values():
        large, small = by_latency(tables)
        tier = tier_of(tables[0][0])
        found += [fabric_subjects(large, tier), fabric_subjects(small, tier, own_latency=True)]
    subjects = [subject for some, _ in found for subject in some]
    return judge(subjects, [left for _, some in found for left in some], say)
