"""`flopcast calibrate score`: how good the curves are on rows that they were not fitted to.

Answers: which files of a data folder are judged, and how is the score printed?
Elsewhere: the score (calibration/score.py), its text (calibration/score_text.py), curves from the same
files (fitting.py). The command is attached to its group in calibrate.py.
"""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.asking import print_json
from flopcast.errors import Problem, SpecError

if TYPE_CHECKING:
    from flopcast.calibration.operator_files import Columns
    from flopcast.calibration.score import Say, Score
    from flopcast.calibration.subjects import Rejected, Subject


@click.command("score")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder with operators/ and collectives/.",
)
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def score(data: Path, wants_json: bool, wants_markdown: bool) -> None:
    """Judge curves by rows that they were not fitted to.

    Every class of DATA is fitted again without some rows, and predicts them: a random fifth, models of
    another width, the largest shapes; and all rows of a device by another device's curve. Prints errors,
    how many measurements lie inside the 90 % interval, and how far repeated measurements lie apart. Takes
    minutes; progress goes to stderr.

    \b
    flopcast calibrate score --data ../shared/data
    flopcast calibrate score --data ../shared/data --markdown > docs/accuracy/kernels.md
    """
    from flopcast.calibration.score_text import as_json, as_markdown, as_text

    found = score_all(data, lambda line: click.echo(line, err=True))
    if wants_json:
        print_json(as_json(found))
    if wants_markdown:
        click.echo(as_markdown(found), nl=False)
    if not wants_json and not wants_markdown:
        click.echo(as_text(found))


def score_all(data: Path, say: "Say") -> "Score":
    """The score of every class that the files of a data folder measure.

    Raises
    ------
    SpecError
        The folder holds none of the measurements that are known.
    """
    from flopcast.calibration.score import score as judge

    subjects, rejected = [], []
    for found, left_out in (*_kernels(data, say), *_messages(data, say)):
        subjects += found
        rejected += left_out
    if not subjects:
        raise SpecError([_nothing_to_judge(data)])
    return judge(subjects, rejected, say)


def _nothing_to_judge(data: Path) -> Problem:
    """The fault of a folder without a usable row."""
    return Problem(
        field="--data",
        value=str(data),
        allowed="a folder with operators/SYSTEM/*.csv or collectives/SYSTEM/*.csv",
        because="curves are judged by measurements",
        fix="give the folder that holds them",
    )


def _kernels(data: Path, say: "Say") -> "list[tuple[list[Subject], list[Rejected]]]":
    """What the files of every system judge; a file without a column `tp` was measured uncut."""
    from flopcast.calibration.operator_files import FILES
    from flopcast.calibration.subjects import operator_subjects
    from flopcast.cli.fitting import SYSTEMS
    from flopcast.io import catalog

    found = []
    for system, name in SYSTEMS.items():
        paths = sorted((data / "operators" / system).glob("*.csv"))
        files = {path.stem: _columns(path, say) for path in paths if path.stem in FILES}
        uncut = {file: {"tp": 0 * next(iter(rows.values())) + 1} for file, rows in files.items()}
        whole = {file: uncut[file] | dict(rows) for file, rows in files.items()}
        found.append(operator_subjects(system, catalog.device(name), whole))
    return found


def _messages(data: Path, say: "Say") -> "list[tuple[list[Subject], list[Rejected]]]":
    """What the tables of every fabric judge, against the tier that its efficiencies refer to."""
    from flopcast.calibration.collective_files import FABRICS, FabricFile
    from flopcast.calibration.subjects import fabric_subjects
    from flopcast.io import catalog

    by_fabric: dict[str, list[FabricFile]] = defaultdict(list)
    for file in FABRICS:
        if (data / file.path).is_file():
            by_fabric[file.fabric].append(file)
    found = []
    for files in by_fabric.values():
        tiers = catalog.cluster(files[0].cluster).tiers
        tier = next(tier for tier in tiers if tier.name == files[0].tier)
        rows = [(file, _columns(data / file.path, say)) for file in files]
        found.append(fabric_subjects(rows, tier))
    return found


def _columns(path: Path, say: "Say") -> "Columns":
    """The columns of a file; rows that cannot be read are told and left out."""
    from flopcast.io.samples.columns import read_columns

    measured = read_columns(path)
    for problem in measured.problems:
        say(f"{problem.where}: left out: {problem.value} (a row needs {problem.allowed})")
    return measured.columns
