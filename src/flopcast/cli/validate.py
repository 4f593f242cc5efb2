"""`flopcast validate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.asking import check_writable, print_json, with_progress
from flopcast.errors import Problem, SpecError

if TYPE_CHECKING:
    from flopcast.validation.published import Constants

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
@click.option(
    "--leave-out", "left_out", metavar="SOURCE", help="Judge one source by constants of all the others."
)
@click.option(
    "--leave-one-source-out", "each_out", is_flag=True, help="Judge each source by constants of the others."
)
@click.option("--no-constants", "bare", is_flag=True, help="Judge by kernels alone: what was never fitted.")
@click.option("--json", "wants_json", is_flag=True, help="Print as JSON.")
@click.option("--markdown", "wants_markdown", is_flag=True, help="Print as a page of the documentation.")
def command(
    suites: tuple[str, ...],
    runs: tuple[str, ...],
    report: Path | None,
    left_out: str | None,
    each_out: bool,
    bare: bool,
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
    Predictions use the constants of the catalogue, some of them fitted on published runs (flopcast
    calibrate constants). --leave-out and --leave-one-source-out fit them again without what is judged.
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
    judging = Judging(left_out=left_out, each_out=each_out, bare=bare, report=report)
    if not published:
        judging.refuse()
    told = published_runs(published, judging, wants_json, wants_markdown) if published else {}
    if not wants_markdown and not wants_json:
        for name, compared_memory in tables.items():
            click.echo(memory_as_text(name, *compared_memory) + "\n")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Judging:
    """How published runs are judged: without constants, or by such as never saw what they judge.

    `left_out` names one source, `each_out` takes each in turn; `bare` is without any. One of them at most.
    """

    left_out: str | None
    each_out: bool
    bare: bool
    report: Path | None

    @property
    def constants(self) -> "Constants":
        """Which constants judge, in the words of the API."""
        return "others" if self.each_out else "none" if self.bare else "catalogue"

    def check(self) -> None:
        """Refuse two protocols at once.

        Raises
        ------
        SpecError
            More than one was asked for.
        """
        if sum((bool(self.left_out), self.each_out, self.bare)) > 1:
            told = Problem(
                field="--runs",
                value="judged in two ways",
                allowed="one of --leave-out, --leave-one-source-out, --no-constants",
                because="each says by which constants all runs are judged",
                fix="keep one of them",
            )
            raise SpecError([told])

    def refuse(self) -> None:
        """Refuse every option that needs published runs.

        Raises
        ------
        SpecError
            Such an option was given.
        """
        given = {
            "--report": self.report,
            "--leave-out": self.left_out,
            "--leave-one-source-out": self.each_out or None,
            "--no-constants": self.bare or None,
        }
        problems = [
            Problem(
                field=name,
                value=str(value),
                allowed="beside --runs with a table of published runs",
                because="it is about predicted and measured steps of such runs",
                fix=f"add --runs TABLE.csv, or leave {name} out",
            )
            for name, value in given.items()
            if value is not None
        ]
        if problems:
            raise SpecError(problems)


def published_runs(
    paths: list[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> dict[str, object]:
    """Print tables of published runs, or return what JSON says of them, under "published"."""
    from flopcast.api import validate_published
    from flopcast.validation.published_page import runs_as_markdown
    from flopcast.validation.published_summary import runs_as_json
    from flopcast.validation.published_text import runs_as_text

    judging.check()
    left_out = (judging.left_out,) if judging.left_out else ()
    found = validate_published(paths, judging.constants, left_out, with_progress)
    if judging.report is not None:
        from flopcast.validation.published_html import runs_as_html

        judging.report.write_text(runs_as_html(found), encoding="utf-8")
        click.echo(f"wrote {judging.report}", err=True)
    if wants_json:
        return {"published": runs_as_json(found)}
    click.echo(runs_as_markdown(found) if wants_markdown else runs_as_text(found))
    return {}
