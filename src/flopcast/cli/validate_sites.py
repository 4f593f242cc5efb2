"""`flopcast validate --from-one-run`."""

from collections.abc import Sequence

import click

from flopcast.cli.options import print_json, with_progress
from flopcast.cli.validate_options import Judging
from flopcast.errors import Problem, SpecError


def print_from_one_run(
    paths: Sequence[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> None:
    """Print how much the runs of a machine help to predict its other runs.

    Raises
    ------
    SpecError
        There is no table, or an option says by which constants that does not go with it.
    """
    from flopcast.accuracy import validate_published
    from flopcast.lab.validation.from_one_run import calibrated
    from flopcast.render.from_one_run_tables import (
        from_one_run_as_json,
        from_one_run_as_markdown,
        from_one_run_as_text,
    )

    _check(paths, judging)
    published = validate_published(paths, "none" if judging.bare else "others", (), with_progress)
    found = calibrated(published.rows)
    if wants_json:
        print_json({"from_one_run": from_one_run_as_json(found)})
    else:
        click.echo(from_one_run_as_markdown(found) if wants_markdown else from_one_run_as_text(found))


def _check(paths: Sequence[str], judging: Judging) -> None:
    given = {"--leave-out": judging.left_out, "--report": judging.report}
    given["--leave-one-generation-out"] = "given" if judging.generations else None
    problems = [
        Problem(
            field=name,
            value=str(value),
            allowed="--leave-one-source-out, --no-constants or neither, beside --from-one-run",
            because="machines are calibrated beyond the constants of other sources, or beyond none",
            fix=f"leave {name} out",
        )
        for name, value in given.items()
        if value is not None
    ]
    if not paths:
        allowed = "a table of published runs"
        because, fix = "suites hold too few runs of one machine", "add --runs TABLE.csv"
        problems.append(Problem("--runs", None, allowed, because, fix, fault="is missing"))
    if problems:
        raise SpecError(problems)
