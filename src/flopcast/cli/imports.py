"""`flopcast import KIND`: configurations of other programs become jobs, and models of Hugging Face models.

Elsewhere: measurements (import_measurements.py), the formats (interop/configs/, interop/hugging_face/).
"""

import json
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.import_graph import graph, write_model
from flopcast.cli.import_measurements import kineto, nccl_tests, nsys
from flopcast.cli.options import (
    CLUSTER_OR_NONE,
    FILE,
    OPTIONS,
    Decorator,
    further_problems,
    out_option,
    with_all,
)
from flopcast.cli.output_files import print_notes, print_or_write
from flopcast.errors import SpecError, problems_of, spec_error
from flopcast.files.yaml_text import Document
from flopcast.requests.job_request import JobRequest
from flopcast.requests.rl_files import OF_STEP
from flopcast.requests.sources import SCRIPT

option = DocumentedOptions(__name__)

HELP = "Make a job file from {description}.\n\n{more}"
if TYPE_CHECKING:
    from flopcast.errors import Problem

MORE = """The command prints assumptions and unknown keys to stderr. It reads FILE without executing it.
If you omit --cluster here, the job file contains no cluster. In that case, give --cluster to flopcast
predict, which otherwise assumes dgx-h100.

\b
flopcast import {kind} FILE --gpus 16 -o job.yaml
flopcast predict job.yaml --cluster dgx-h100:2"""


class _Kinds(click.Group):
    """Commands by kind; a file instead of a kind is imported as the kind that its contents have."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from flopcast.files.inputs import exists
        from flopcast.requests.words import is_command

        if self.get_command(context, args[0]) is None and (exists(args[0]) or is_command(args[0])):
            return "FILE", _any_job(), args
        return super().resolve_command(context, args)


@click.group("import", cls=_Kinds)
def command() -> None:
    """Convert files of other software to job files, models or measurements.

    The command does not execute these files, and reads no weights. It lists assumptions and ignored
    settings on stderr. If you give only a file, flopcast detects its format. In place of a file, you can
    also give the command line of a serving engine.

    \b
    flopcast import deepspeed ds_config.json --model llama-3-8b --gpus 16 -o job.yaml
    flopcast import serve.sh -o serve.yaml
    flopcast import hf config.json -o model.yaml
    """


def _job_commands() -> list[click.Command]:
    """Return a command for each format of training and of serving, and one for launch scripts."""
    from flopcast.interop.configs.formats import KINDS
    from flopcast.interop.serving.sources import DESCRIPTIONS

    script = _job_command(SCRIPT, "a launch script of Megatron-LM", has_helper=False, values=True)
    kinds = (_job_command(name, one.description, bool(one.helper)) for name, one in KINDS.items())
    served = (
        _job_command(name, text, has_helper=False, values=True) for name, text in DESCRIPTIONS.items()
    )
    return [script, *kinds, *served]


def _any_job() -> click.Command:
    """Return the command for a file whose contents say its kind."""
    return _job_command("", "a file of a format that flopcast recognises", has_helper=False, values=True)


def _job_command(kind: str, description: str, has_helper: bool, values: bool = False) -> click.Command:
    """Return the command for one kind; `values` adds those that a script takes from outside."""

    def show(context: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted:
            from flopcast.interop.configs.formats import helper_text

            click.echo(helper_text(kind), nl=False)
            context.exit()

    text = "Print a Python program that converts a Python configuration to a file for flopcast, and exit."
    helper = click.option(
        "--dump-helper", is_flag=True, is_eager=True, expose_value=False, callback=show, help=text
    )

    options: list[Decorator] = [
        click.argument("files", metavar="FILE...", nargs=-1, required=True),
        option("--model"),
        CLUSTER_OR_NONE,
        option("--gpus", type=click.IntRange(min=1)),
        *([OPTIONS["arg"], OPTIONS["env"]] if values else []),
        out_option("job"),
        *([helper] if has_helper else []),
    ]

    def command(out: Path | None, **named: Any) -> None:  # noqa: ANN401
        _import_job(JobRequest(kind=kind or None, **named), out)

    def problems_of_job(named: dict[str, Any]) -> list["Problem"]:
        from flopcast.errors import problems_of
        from flopcast.requests.resolve import made_from, of_training

        fields = {name: value for name, value in named.items() if name != "out"}
        request, make = JobRequest(kind=kind or None, **fields), of_training(lambda document, _: document)
        return problems_of(lambda: made_from(request, make, assume_cluster=False))

    further_problems(problems_of_job)(command)
    text = HELP.format(description=description, more=MORE.format(kind=kind))
    return click.command(kind, short_help=f"Convert {description}.", help=text)(with_all(options, command))


def _import_job(request: JobRequest, out: Path | None) -> None:
    """Read the files, check the job as far as it is complete, and write it."""
    from flopcast.files.named_files import read_file
    from flopcast.library.job_yaml import job_text
    from flopcast.requests.job_files import job_of
    from flopcast.requests.resolve import made_from, of_training
    from flopcast.requests.rl_request import rl_document
    from flopcast.requests.serving_request import serving_job_of
    from flopcast.requests.serving_words import OF_SERVING

    if (step := rl_document(request)) is not None:
        _deliver_step(step, out)
        return
    document = made_from(request, of_training(lambda document, _: document), assume_cluster=False)
    if not document.mapping.keys() & {"model", "cluster", "plan", *OF_SERVING}:
        allowed = "a job file, or a file of a program that flopcast supports"
        because = "the file contains no model, no cluster, no plan and no command"
        fix = "give a script, a configuration or a job file that has content"
        raise spec_error("file", document.name, allowed, because, fix)
    data = document.mapping
    assumptions = data.get("assumptions")
    print_notes(assumptions if isinstance(assumptions, list) else [])
    missing = [noun for noun in ("model", "cluster") if noun not in data]
    if missing:
        options = " and ".join(f"--{one} NAME" for one in missing)
        print_notes([f"the file states no {' and no '.join(missing)}: add {options}"])
    elif any(name in data for name in OF_SERVING):
        serving_job_of(document, read_file)
    else:
        job_of(document)
    print_or_write(job_text(data), out, "written")


def _deliver_step(step: Document, out: Path | None) -> None:
    """Check a step of reinforcement learning and write it; its assumptions go to stderr."""
    from flopcast.library.job_yaml import job_text
    from flopcast.requests.rl_request import rl_request

    jobs = rl_request(step)
    print_notes(jobs.training.assumptions)
    data = dict(step.mapping)
    parts = {part: indent(job_text(data.pop(part)), "  ") for part in OF_STEP}
    text = "".join(f"{part}:\n{lines.rstrip()}\n" for part, lines in parts.items())
    print_or_write(text + job_text(data), out, "written")


def _problems_of_config(named: dict[str, Any]) -> list["Problem"]:
    """Return the errors of the config.json that `import hf` reads."""
    from flopcast.errors import problems_of

    return problems_of(lambda: _model_of(str(named["config"]))) if named["config"] else []


@click.command("hf", short_help="Convert a Hugging Face config.json to a model and print it as YAML.")
@click.argument("config", type=FILE, metavar="CONFIG.json")
@out_option("model")
@further_problems(_problems_of_config)
def hugging_face(config: Path, out: Path | None) -> None:
    """Print the model of a Hugging Face config.json, or of its folder, as YAML.

    The model must be a decoder whose layers flopcast supports. You can paste the output below `model:` in a
    job file.

    \b
    flopcast import hf config.json
    flopcast import hf config.json -o model.yaml
    """
    _import_model(str(config), out)


@click.command(
    "hf-model",
    short_help="Convert a model of the transformers library to YAML, from its configuration or its code.",
)
@click.argument("model", metavar="CONFIG|FOLDER|NAME")
@option("--trace", is_flag=True)
@option("--counts", is_flag=True)
@option("--sequences", default=2, show_default=True, type=click.IntRange(1))
@option("--length", default=512, show_default=True, type=click.IntRange(16))
@out_option("model")
def hf_model(model: str, trace: bool, counts: bool, sequences: int, length: int, out: Path | None) -> None:
    """Print a model of Hugging Face transformers as YAML, from its config or from a trace of its code.

    Without --trace, this command does the same as `import hf`. With --trace, it runs the forward and
    backward pass of the model's code in transformers, and writes the model as a list of operators. Use
    --trace for architectures that `import hf` does not support. --trace needs torch and transformers. The
    command never runs code that comes with a checkpoint, and reads no weights. If NAME is not a file, the
    command downloads the config from the Hugging Face hub.

    \b
    flopcast import hf-model my-model/ --trace -o model.yaml
    flopcast import hf-model config.json --trace --counts
    """
    if not trace:
        _import_model(model, out)
        return
    from flopcast.interop.tracing.blocks import traced_model
    from flopcast.interop.tracing.counts import count
    from flopcast.interop.tracing.weightless import load_libraries
    from flopcast.requests.model_to_trace import config_of

    libraries = load_libraries()
    config = config_of(libraries, model)
    if counts:
        click.echo(json.dumps(count(libraries, config, sequences, length), indent=1))
        return
    mapping, notes = traced_model(libraries, config)
    write_model(Document(model, mapping, {}), mapping, notes, out)


def _import_model(config: str, out: Path | None) -> None:
    document, mapping, notes = _model_of(config)
    write_model(document, mapping, notes, out)


def _model_of(config: str) -> tuple[Document, dict[str, object], tuple[str, ...]]:
    """Return the document of a config, its model, and notes on it; raise SpecError with all its errors."""
    from flopcast.interop.hugging_face.config import model_from_config
    from flopcast.requests.checked_request import check_request
    from flopcast.requests.sources import read_model_file

    document = read_model_file(config)
    try:
        return document, *model_from_config(document)
    except SpecError as error:
        further = problems_of(lambda: check_request(JobRequest(files=(config,), gpus=1)))
        raise SpecError([*error.problems, *further]) from None


for _one in (*_job_commands(), hugging_face, hf_model, graph, nccl_tests, kineto, nsys):
    command.add_command(_one)
