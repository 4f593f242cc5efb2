"""`flopcast import KIND`: convert configurations of other programs to jobs, one command per format."""

from pathlib import Path

import click

from flopcast.files.atomic_write import write_whole
from flopcast.requests.sources import SCRIPT

PATH = click.Path(path_type=Path)
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
    """Return the command of one format."""

    def run(file: tuple[str, ...], out: Path | None, **named: object) -> None:
        _import(kind, file, out, named)

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from flopcast.interop.configs.formats import helper_text

            click.echo(helper_text(kind), nl=False)
            context.exit()

    told_by = "Print the program that writes such a file, and exit."
    helper = click.Option(["--dump-helper"], is_flag=True, is_eager=True, callback=show, help=told_by)
    return click.Command(
        kind,
        callback=run,
        short_help=f"Convert {told}.",
        help=TOLD.format(told=told, more=MORE.format(kind=kind)),
        params=[
            click.Argument(["file"], metavar="FILE...", nargs=-1, required=True),
            click.Option(["--model"], help="Replace the model: a name, a config.json or a YAML file."),
            click.Option(
                ["--cluster"], help="A cluster of the catalogue, or NAME:NODES for some of its nodes."
            ),
            click.Option(["--gpus"], type=click.IntRange(min=1), help="Number of devices of the job."),
            *(_values_of_scripts() if kind == SCRIPT else []),
            click.Option(["-o", "--out", "--output", "out"], type=PATH, help="Write the job to this file."),
            *([helper] if has_helper else []),
        ],
    )


def _values_of_scripts() -> list[click.Option]:
    """Return the options that set arguments and environment variables of a launch script."""
    arguments = "Set an argument of a launch script: 1=8 sets $1."
    environment = "Set an environment variable of a launch script."
    return [
        click.Option(["--arg"], multiple=True, metavar="N=VALUE", help=arguments),
        click.Option(["--env"], multiple=True, metavar="NAME=VALUE", help=environment),
    ]


def _import(kind: str, files: tuple[str, ...], out: Path | None, named: dict[str, object]) -> None:
    """Read the files, check the job as far as it is complete, and write it."""
    from flopcast.cli.options import check_writable, writing
    from flopcast.library.job_yaml import job_text
    from flopcast.requests.job_files import job_of
    from flopcast.requests.job_request import read_from

    check_writable("--out", out)
    unsaid = dict.fromkeys(("plan", "stack", "site", "seq"))
    document = read_from(files[0], files[1:], lambda found: found, file_kind=kind, **unsaid, **named)
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
