"""`flopcast import KIND`: convert configurations of other programs to jobs, one command per format."""

from pathlib import Path
from typing import Any

import click

from flopcast.cli.options import FILE, OPTIONS, check_writable, with_all, writing
from flopcast.files.atomic_write import write_whole
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import SCRIPT

TOLD = "Convert {told} to a job file.\n\n{more}"
MORE = """Assumptions and unknown keys are listed on stderr. Nothing is executed, and no other file is read.
Without --cluster, the job file has no cluster: add --cluster when you predict it.

\b
flopcast import {kind} FILE --gpus 16 -o job.yaml
flopcast predict FILE --cluster dgx-h100:2"""


def job_commands() -> list[click.Command]:
    """Return a command for each format of `interop.configs.formats.KINDS`, and one for launch scripts."""
    from flopcast.interop.configs.formats import KINDS

    script = _command(SCRIPT, "a launch script of Megatron-LM", has_helper=False)
    return [script, *(_command(name, kind.told, bool(kind.helper)) for name, kind in KINDS.items())]


def _command(kind: str, told: str, has_helper: bool) -> click.Command:

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from flopcast.interop.configs.formats import helper_text

            click.echo(helper_text(kind), nl=False)
            context.exit()

    told_by = "Print the program that writes such a file, and exit."
    helper = click.option(
        "--dump-helper", is_flag=True, is_eager=True, expose_value=False, callback=show, help=told_by
    )

    options = [
        click.argument("files", metavar="FILE...", nargs=-1, required=True),
        click.option("--model", help="Replace the model: a name, a config.json or a YAML file."),
        OPTIONS["cluster"],
        click.option("--gpus", type=click.IntRange(min=1), help="Number of devices of the job."),
        *([OPTIONS["arg"], OPTIONS["env"]] if kind == SCRIPT else []),
        click.option("-o", "--out", "--output", "out", type=FILE, help="Write the job to this file."),
        *([helper] if has_helper else []),
    ]

    def command(out: Path | None, **named: Any) -> None:  # noqa: ANN401
        _import(JobRequest(kind=kind, **named), out)

    text = TOLD.format(told=told, more=MORE.format(kind=kind))
    return click.command(kind, short_help=f"Convert {told}.", help=text)(with_all(options, command))


def _import(request: JobRequest, out: Path | None) -> None:
    """Read the files, check the job as far as it is complete, and write it."""
    from flopcast.library.job_yaml import job_text
    from flopcast.requests.job_files import job_of
    from flopcast.requests.resolve import made_from

    check_writable("--out", out)
    document = made_from(request, lambda document, _: document)
    data = document.data if isinstance(document.data, dict) else {}
    told = data.get("assumptions")
    for note in told if isinstance(told, list) else []:
        click.echo(f"note: {note}", err=True)
    missing = [noun for noun in ("model", "cluster") if noun not in data]
    if missing:
        click.echo(f"note: without {' and '.join(missing)}: add --{missing[0]} NAME", err=True)
    else:
        job_of(document)
    if out is None:
        click.echo(job_text(data), nl=False)
        return
    with writing("--out", out):
        write_whole(out, job_text(data))
    click.echo(f"{out}: written", err=True)
