"""Code that all commands share: the options that describe a job, and how data is printed and written.

Answers: which options describe a job, how is data printed, which output files are refused at the start?
Elsewhere: which job the options describe (requests/resolve.py).
"""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from functools import wraps
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import click

from flopcast.cli.output_files import check_writable, write_output
from flopcast.cli.suggestions import names_of, of_jobs
from flopcast.cli.terminal import print_text
from flopcast.quantities import parse_length

FILE = click.Path(path_type=Path)  # the type of an option that names a file
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
CLUSTER = "Name of a cluster (flopcast catalog clusters); dgx-h100:4 has 4 nodes"
CLUSTER_OR_NONE = click.option("--cluster", help=f"{CLUSTER}.", shell_complete=names_of("clusters"))
Command = Callable[..., None]
Decorator = Callable[[Command], Command]


class Length(click.IntRange):
    """The type of an option that is a number of tokens, such as 8192 or 8k."""

    described = "a whole number of at least 1, such as 8192 or 8k"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of tokens; fail if the value is not such a number, or too small."""
        length: Any = value
        with suppress(ValueError):
            length = parse_length(str(value).removesuffix(".0"))
        return int(super().convert(length, param, ctx))


class Sequences(click.IntRange):
    """Type of an option that takes a number of sequences.

    A number of tokens passes, because the errors of the job convert it to sequences.
    """

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of sequences, or a text with a number of tokens; fail for all other values."""
        given: Any = value
        return given if re.search(r"\d ?[kKMBT]? ?tok", str(given)) else super().convert(given, param, ctx)


OPTIONS: dict[str, Decorator] = {  # of a request, by the names of its fields
    "model": click.option(
        "--model",
        help=(
            "A model of the catalogue (flopcast catalog models), a Hugging Face config.json or its "
            "folder, or a YAML file."
        ),
        shell_complete=names_of("models", or_files=True),
    ),
    "kind": click.option(
        "--kind", help="Format of the input file. By default, flopcast detects the format."
    ),
    "arg": click.option(
        "--arg",
        multiple=True,
        metavar="N=VALUE",
        help="Positional argument of the launch script: 1=8 sets $1 to 8. May be repeated.",
    ),
    "env": click.option(
        "--env",
        multiple=True,
        metavar="NAME=VALUE",
        help="Environment variable for the launch script, such as NNODES=4. May be repeated.",
    ),
    "cluster": click.option(
        "--cluster", help=f"{CLUSTER}. Default: dgx-h100.", shell_complete=names_of("clusters")
    ),
    "gpus": click.option(
        "--gpus",
        type=click.IntRange(min=1),
        help="Number of GPUs or other devices. It overrides the number of nodes of the cluster.",
    ),
    "plan": click.option(
        "--plan",
        help=(
            'Plan: parallel degrees, batch sizes, recompute and so on, such as "dp=16 tp=8 pp=8 '
            'mbs=1 gbs=1536". Beside a file with a plan, it changes only the fields that it states.'
        ),
    ),
    "offload": click.option(
        "--offload",
        metavar="KIND:MEMORY[,...]",
        help=(
            'What to offload from device memory: "optimizer:host" moves the optimizer states to '
            'host memory, and "activations:nvme:0.5" moves half of the activations to NVMe drives.'
        ),
    ),
    "stack": click.option(
        "--stack",
        "--framework",
        help="Name of the training framework with its version (flopcast catalog stacks).",
        shell_complete=names_of("stacks"),
    ),
    "batch": click.option(
        "--batch",
        type=Sequences(min=1),
        help=(
            "Global batch size: the number of sequences (for an exported graph: samples) that all "
            "devices together process in one training step."
        ),
    ),
    "inference": click.option(
        "--inference",
        is_flag=True,
        help="Predict the forward pass of one batch instead of a training step.",
    ),
    "size": click.option(
        "--size",
        multiple=True,
        metavar="NAME=NUMBER",
        help=(
            "Value of a symbolic dimension of an exported graph (.onnx, .pt2), such as batch=8. May be "
            "repeated."
        ),
    ),
    "autocast": click.option(
        "--autocast",
        is_flag=True,
        help=(
            "Assume that an exported graph runs under torch.autocast: GEMMs in 16 bits, "
            "normalisations and reductions in fp32."
        ),
    ),
    "seq": click.option(
        "--seq", type=Length(min=1), help="Number of tokens in a sequence, such as 4096 or 32k (32,768)."
    ),
    "images": click.option(
        "--images",
        metavar="NxWIDTHxHEIGHT[+...]",
        help=(
            "Images per sequence, for vision-language models: 2x1024x768 means two images of "
            "1024x768 pixels. The tokens of the images count towards --seq."
        ),
    ),
    "lora": click.option("--lora", type=int, metavar="RANK", help="Train only LoRA adapters of this rank."),
    "qlora": click.option(
        "--qlora",
        type=int,
        metavar="RANK",
        help="Train only LoRA adapters of this rank, on frozen 4-bit weights (QLoRA).",
    ),
    "tokens": click.option(
        "--tokens",
        help=(
            'Number of training tokens of the whole run, such as "2T" or "300B". With --epochs: '
            "number of tokens in one epoch."
        ),
    ),
    "samples": click.option(
        "--samples", help='Number of sequences in one epoch, such as "52,000" or "52k".'
    ),
    "epochs": click.option("--epochs", help="Number of epochs: how often the run trains on each sample."),
    "checkpoint": click.option(
        "--checkpoint",
        metavar="METHOD STORAGE ...",
        help=(
            "How the run saves checkpoints: a method, a storage and an interval, such as "
            '"asynchronous nvme every=10min".'
        ),
    ),
    "loader": click.option(
        "--loader",
        metavar="STAGE=VALUE[,...]",
        help=(
            'Stages of data loading. "decode=9ms:8" is a stage in which a sample takes 9 ms, with 8'
            ' parallel workers. "copy=602kB@link" copies 602 kB per sample from the host to the '
            "device."
        ),
    ),
    "site": click.option(
        "--site",
        type=FILE,
        help=(
            "Site file with calibration factors of your cluster: the output of flopcast calibrate or "
            "of flopcast measure."
        ),
    ),
    "slow": click.option(
        "--slow",
        metavar="KIND=INDEX:FRACTION[,...]",
        help=(
            'Slow devices, hosts or links. With "device=3:0.8,host=1:0.7,link=12:0.5", device 3 '
            "runs at 80 % of its normal speed, host 1 at 70 %, and the network link of device 12 at"
            " 50 %."
        ),
    ),
    "power_limit": click.option(
        "--power-limit", help='Power limit of each device, such as "500 W", which lowers its clocks.'
    ),
    "price": click.option(
        "--price",
        help='Price of one device, such as "2.10 USD/h", or the name of a price (flopcast catalog prices).',
        shell_complete=names_of("prices"),
    ),
}
SERVING: dict[str, Any] = {  # options of a request that serves
    "engine": click.option(
        "--engine",
        help=(
            "Predict serving with this engine (vllm, sglang, tensorrt-llm, …) instead of training. "
            "flopcast catalog engines lists all engines."
        ),
        shell_complete=names_of("engines"),
    ),
    "traffic": click.option(
        "--traffic",
        help=(
            "Requests to serve: their rate, and the lengths of prompts and outputs in tokens (2k is "
            '2,048), such as "rate=4/s prompt=2000 output=300".'
        ),
    ),
    "slo": click.option(
        "--slo",
        help=(
            'Latency limits, such as "ttft_p99=2s tpot_p99=50ms": 99 % of requests get their first '
            "token within 2 s, and 99 % need at most 50 ms per output token."
        ),
    ),
}
OF_RUN = ("tokens", "epochs", "checkpoint", "price")  # matter to the time and cost of a whole run alone
SAMPLES = click.option(
    "--samples",
    help=(
        'Predict a fine-tuning job with this number of sequences, such as "52k". Its global '
        "batch is 128 sequences, unless you set another one."
    ),
)
ARGUMENTS = (
    click.argument("job", required=False, metavar="[JOB|MODEL]", shell_complete=of_jobs),
    click.argument("changes", nargs=-1, metavar="[KEY=VALUE]..."),
)
Found = TypeVar("Found")


def job_options(*arguments: Decorator, without: Sequence[str] = (), **options: Decorator) -> Decorator:
    """Return a decorator that adds what describes a job; the command receives it as its `request`.

    Parameters
    ----------
    arguments : take the place of ARGUMENTS
    without : OPTIONS that have no effect on what the command prints, and are therefore no options of it
    options : take the place of the OPTIONS with their names
    """

    def decorated(command: Command) -> Command:
        @wraps(command)
        def requested(*given: object, **named: Any) -> None:  # noqa: ANN401 - click passes any type
            from flopcast.requests.job_request import JobRequest
            from flopcast.requests.words import files_and_changes

            words = [word for word in (named.pop("job", None), *named.pop("changes", ())) if word]
            files, changes = files_and_changes(words)
            fields = {name: named.pop(name) for name in OPTIONS | options if name in named}
            command(*given, request=JobRequest(files=files, changes=changes, **fields), **named)

        shown = {name: option for name, option in (OPTIONS | options).items() if name not in without}
        return with_all((*(arguments or ARGUMENTS), *shown.values()), requested)

    return decorated


def with_all(decorators: Sequence[Decorator], command: Command) -> Command:
    """Return the command with arguments and options, which its help shows in this order."""
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def out_option(content: str) -> Decorator:
    """Return the option `-o FILE` of a command whose output is a file of its own, such as a "model"."""
    text = f"Write the {content} to this file. Default: standard output."
    return click.option("-o", "--out", "--output", "out", type=FILE, help=text)


def writes_document(command: Command) -> Command:
    """Add the option `-o FILE`, which writes the whole output to a file once the command succeeds.

    Apply it directly above the function, below all other options.
    """

    @wraps(command)
    def written(*arguments: object, output: Path | None, **named: object) -> None:
        check_writable("--output", output)
        if output is None:
            command(*arguments, **named)
            return
        with redirect_stdout(StringIO()) as printed:
            command(*arguments, **named)
        write_output("--output", output, printed.getvalue())

    place = FILE
    return click.option(
        "-o", "--output", type=place, help="Write the output to this file. Default: standard output."
    )(written)


def print_json(data: object) -> None:
    """Print one indented JSON document on stdout; letters of any alphabet are not escaped."""
    click.echo(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))


def print_found(
    result: Found,
    wants_json: bool,
    as_json: Callable[[Found], object],
    marked_text: Callable[[Found], str],
    *,
    is_page: bool = False,
) -> None:
    """Print a result as one JSON document, or as text with marks; a page of Markdown as it is.

    Parameters
    ----------
    result : object
    wants_json : bool
    as_json, marked_text : function
        Return the result as plain data, and as text with marks for a terminal.
    is_page : bool
        Whether the text is a page, which is printed without colours.
    """
    if wants_json:
        print_json(as_json(result))
    elif is_page:
        click.echo(marked_text(result))
    else:
        print_text(marked_text(result))
