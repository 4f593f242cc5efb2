"""`flopcast validate`."""

import click

from flopcast.cli.asking import print_json

SUITES = ("paper", "sc21", "korthikanti")


@click.command("validate")
@click.option("--suite", "suites", multiple=True, type=click.Choice(SUITES), help="Default: all of them.")
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def command(suites: tuple[str, ...], wants_json: bool, wants_markdown: bool) -> None:
    """Predict runs that others measured, and say how far off each is.

    \b
    paper        ten runs of arXiv:2509.22832, with their components
    sc21         Table 1 of arXiv:2104.04473
    korthikanti  Table 5 of arXiv:2205.05198
    """
    from flopcast.api import validate_suite
    from flopcast.validation.summary import as_json, as_markdown, as_text

    compared = []
    for name in suites or SUITES:
        compared.append(validate_suite(name))
        if not wants_json and not wants_markdown:
            click.echo(as_text(compared[-1]) + "\n")
    if wants_markdown:
        click.echo(as_markdown(compared), nl=False)
    if wants_json:
        print_json(as_json(compared))
