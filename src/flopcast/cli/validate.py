"""`flopcast validate`."""

from pathlib import Path

import click

from flopcast.cli.asking import check_writable, print_json
from flopcast.errors import Problem, SpecError

SUITES = ("paper", "sc21", "korthikanti", "headlines")
OF_MEMORY = ("memory",)
ALL_SUITES = (*SUITES, *OF_MEMORY)


@click.command("validate")
@click.option(
    "--suite", "suites", multiple=True, type=click.Choice(ALL_SUITES), help="Default: all of them."
)
@click.option(
    "--runs",
    "runs",
    multiple=True,
    type=click.Path(),
    help="A table of runs instead, or several; see below.",
)
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML page of the published runs.")
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def command(
    suites: tuple[str, ...],
    runs: tuple[str, ...],
    report: Path | None,
    wants_json: bool,
    wants_markdown: bool,
) -> None:
    """Predict runs that others measured, and say how far off each is.

    \b
    paper        ten runs of arXiv:2509.22832, with their components
    sc21         Table 1 of arXiv:2104.04473
    korthikanti  Table 5 of arXiv:2205.05198
    headlines    schedules and degrees of arXiv:2104.04473, experts of arXiv:2504.14960, GPT on V100
    memory       peak memory of Llama-3 70B and DeepSeek-V2, cut short, on 8 B200

    --runs takes CSV tables of published runs, told apart by their headers: one row a run with model,
    hardware, mapping, software and step time, of which a job is made; measured steps of vTrain and of
    SimuMax; and Megatron-LM's functional tests, whose log says what stays allocated behind a step.
    """
    from flopcast.api import holds_functional_tests, validate_memory, validate_runs, validate_suite
    from flopcast.validation.memory import Tables, memory_as_json, memory_as_markdown, memory_as_text
    from flopcast.validation.summary import as_json, as_markdown, as_text

    check_writable("--report", report)
    asked = () if runs else suites or ALL_SUITES
    tables: Tables = {name: (validate_memory(name), {}) for name in asked if name in OF_MEMORY}
    of_memory = [path for path in runs if holds_functional_tests(path)]
    tables |= {path: validate_runs(path) for path in of_memory}
    published = [path for path in runs if path not in of_memory]
    if report is not None and not published:
        raise SpecError([_nothing_to_draw(report)])
    told = published_runs(published, report, wants_json, wants_markdown) if published else {}
    if not wants_markdown and not wants_json:
        for name, (rows, left_out) in tables.items():
            click.echo(memory_as_text(name, rows, left_out) + "\n")
    compared = []
    for name in (name for name in asked if name in SUITES):
        compared.append(validate_suite(name))
        if not wants_json and not wants_markdown:
            click.echo(as_text(compared[-1]) + "\n")
    if wants_markdown:
        click.echo((as_markdown(compared) if compared else "") + memory_as_markdown(tables), nl=False)
    if wants_json:
        found = as_json(compared) | told
        print_json(found | {"memory": memory_as_json(tables)} if tables else found)


def published_runs(
    paths: list[str], report: Path | None, wants_json: bool, wants_markdown: bool
) -> dict[str, object]:
    """Print tables of published runs, or return what JSON says of them, under "published"."""
    from flopcast.api import validate_published
    from flopcast.validation.published_page import runs_as_markdown
    from flopcast.validation.published_summary import runs_as_json
    from flopcast.validation.published_text import runs_as_text

    found = validate_published(paths)
    if report is not None:
        from flopcast.validation.published_html import runs_as_html

        report.write_text(runs_as_html(found), encoding="utf-8")
        click.echo(f"wrote {report}", err=True)
    if wants_json:
        return {"published": runs_as_json(found)}
    click.echo(runs_as_markdown(found) if wants_markdown else runs_as_text(found))
    return {}


def _nothing_to_draw(report: Path) -> Problem:
    """The fault of a page without published runs."""
    return Problem(
        field="--report",
        value=str(report),
        allowed="beside --runs with a table of published runs",
        because="the page shows their predicted and measured steps",
        fix="add --runs TABLE.csv, or leave --report out",
    )
