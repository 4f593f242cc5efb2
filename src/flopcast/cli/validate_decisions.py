"""`flopcast validate --decisions`."""

from collections.abc import Sequence

import click

from flopcast.cli.options import print_json, with_progress
from flopcast.cli.validate_options import Judging
from flopcast.errors import Problem, SpecError


def print_decisions(
    suites: Sequence[str], paths: Sequence[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> None:
    """Print how well plans were chosen in the sweeps of tables and suites.

    Raises
    ------
    SpecError
        An option does not apply to sweeps.
    """
    from flopcast.accuracy import validate_decisions
    from flopcast.render.decision_json import decisions_as_json
    from flopcast.render.decision_tables import decisions_as_markdown, decisions_as_text

    _check(suites, judging)
    judging.check()
    if not paths:
        judging.refuse()
    left_out = (judging.left_out,) if judging.left_out else ()
    judged = validate_decisions(paths, suites, judging.ways if paths else (), left_out, with_progress)
    if wants_json:
        print_json({"decisions": decisions_as_json(judged)})
    else:
        click.echo(decisions_as_markdown(judged) if wants_markdown else decisions_as_text(judged))


def _check(suites: Sequence[str], judging: Judging) -> None:
    problems = []
    if judging.report is not None:
        problems.append(_fault("--report", str(judging.report), "--json, --markdown or neither"))
    if "memory" in suites:
        problems.append(_fault("--suite", "memory", "suites of step times"))
    if problems:
        raise SpecError(problems)


def _fault(field: str, value: str, allowed: str) -> Problem:
    because = "decisions are printed as text, JSON or a page, and compare step times"
    return Problem(field, value, f"{allowed}, with --decisions", because, f"remove {field} {value}")
