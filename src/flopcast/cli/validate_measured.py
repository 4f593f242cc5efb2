"""`flopcast validate --runs` with tables whose columns are measured quantities (lab/measured_tables.py)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.options import print_json
from flopcast.cli.validate_options import OPTIONS, Judging
from flopcast.errors import spec_error

if TYPE_CHECKING:
    from flopcast.lab.measured_tables import MeasuredTables


def print_measured(paths: Sequence[str], judging: Judging, wants_json: bool) -> bool:
    """Print the measurements and predictions of tables of one kind; return whether there are any.

    If constants are fitted to whole runs, each row may have a second prediction, with constants fitted
    without its model.

    Raises
    ------
    SpecError
        Tables of several kinds are given together, or an option does not apply to theirs.
    """
    from flopcast.lab.measured_tables import KINDS
    from flopcast.render.measured_scores import scores_as_json, scores_as_text

    for kind in KINDS:
        if own := [path for path in paths if kind.holds(Path(path))]:
            _check(kind, own, [path for path in paths if path not in own], judging)
            scores, beside = kind.scores(own, judging.constants, judging.measured_on)
            if wants_json:
                left_out = {} if beside is None else {"published_when_left_out": scores_as_json(beside)}
                print_json({"published": scores_as_json(scores), **left_out})
            else:
                click.echo(scores_as_text(scores, beside))
            return True
    return False


def _check(
    kind: "MeasuredTables[Any]", paths: Sequence[str], others: Sequence[str], judging: Judging
) -> None:
    """Refuse tables of another kind, and options that such a table has no constants for."""
    if others:
        allowed = f"tables of {kind.name} only"
        because = f"the scores of {kind.name} have other columns than the scores of training runs"
        fix = "validate this table in a separate command"
        raise spec_error("--runs", others[0], allowed, because, fix)
    judging.check()
    if judging.sources or judging.constants not in kind.constants or judging.report is not None:
        *flags, last = ("", *(OPTIONS[name] for name in kind.constants if name in OPTIONS))
        allowed = f"{', '.join(flags[1:])} or {last}" if last else "no other option"
        raise spec_error("--runs", paths[0], allowed, kind.because, "choose one of these options")
