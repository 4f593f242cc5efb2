"""`flopcast compare`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import SERVING, job_options, print_found, writes_document
from flopcast.errors import Problem, collected, spec_error
from flopcast.files.inputs import exists
from flopcast.records import replace
from flopcast.requests.checked_request import check_each
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.serving_words import is_training_job, serves

option = DocumentedOptions(__name__)


def _check(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Check both jobs of a comparison."""
    words = others["words"]
    asked = [replace(request, files=(word,)) for word in words if "=" not in word]
    problems = list[Problem]()
    with collected(problems):
        _, asked = _requests(request, words)
    check_each(asked, problems)


@click.command("compare")
@job_options(click.argument("words", nargs=-1, metavar="[A] [B] [KEY=VALUE]..."), check=_check, **SERVING)
@option("--json", "wants_json", is_flag=True)
@writes_document
def command(words: tuple[str, ...], request: JobRequest, wants_json: bool) -> None:
    """Compare two jobs side by side, with an interval for each difference.

    If you give two files or models, options and KEY=VALUE apply to both jobs. If you give only one file or
    model, the second job is a copy of the first. Options then apply to both jobs, and KEY=VALUE changes
    only the second job. The command compares time, cost and energy per token, and states a 90 % interval
    for each difference. An interval that contains zero means that either job can be the better one. The
    output then says that the order is uncertain.

    \b
    flopcast compare a.yaml b.yaml
    flopcast compare llama-3-8b llama-2-7b --gpus 16
    flopcast compare llama-3-8b --gpus 16 cluster=dgx-a100
    flopcast compare job.yaml plan.recompute=selective
    flopcast compare --model gpt3-175b --cluster selene --gpus 1024 --stack megatron-2022 \\
        --plan "dp=16 tp=8 pp=8 gbs=1536" plan.vpp=3
    flopcast compare llama-3.1-70b --engine vllm --cluster dgx-h100:1 --plan "tp=4" plan.tp=8

    With --engine, --traffic or --slo, flopcast compares the latency, throughput, cost and energy of
    serving.
    """
    from flopcast.api import predict
    from flopcast.render.comparison import as_json, marked_text
    from flopcast.report.versus import versus

    names, asked = _requests(request, words)
    if len(asked[0].files) == 1 and asked[0].changes:
        click.echo(f"{' '.join(asked[0].changes)} changes both jobs", err=True)
    if any(map(serves, asked)):
        if any(is_training_job(each) for each in asked if not serves(each)):
            allowed, fix = "two training jobs or two serving jobs", "compare two jobs of the same kind"
            because = "a training step and a serving job have no metrics in common"
            raise spec_error("compare", " ".join(words), allowed, because, fix)
        _compare_serving(asked, names, wants_json)
        return
    check_each(asked)  # the choice of a plan takes longer
    compared = versus(*map(predict, [resolve(each) for each in asked]))
    print_found(compared, wants_json, as_json, lambda found: marked_text(found, names))


def _compare_serving(asked: list[JobRequest], names: tuple[str, str], wants_json: bool) -> None:
    """Compare two serving jobs."""
    from flopcast.api import compare
    from flopcast.render.serving_comparison import as_json, marked_text
    from flopcast.requests.serving_request import resolve_serving

    compared = compare(*map(resolve_serving, asked))
    print_found(compared, wants_json, as_json, lambda found: marked_text(found, names))


def _requests(request: JobRequest, words: tuple[str, ...]) -> tuple[tuple[str, str], list[JobRequest]]:
    """Return the names of the two jobs and their requests.

    Raises
    ------
    SpecError
        There are three jobs, or nothing distinguishes the two jobs.
    """
    files = [word for word in words if "=" not in word or exists(word)]
    changes = tuple(word for word in words if word not in files)
    if len(files) > 2 or (len(files) < 2 and not changes):
        allowed = "two job files or models, or one job and at least one KEY=VALUE"
        fix = "flopcast compare a.yaml b.yaml, or flopcast compare job.yaml plan.micro_batch=2"
        if len(files) > 2:
            fix = f"write flopcast compare {files[0]} {files[1]}, and compare {files[2]} in another command"
        if len(files) == 1:
            fix = f"add a second job, or write flopcast compare {files[0]} plan.micro_batch=2"
        field, fault = "second JOB" if files else "JOB", "is missing"
        if len(files) > 2:
            field, fault = "compare", ""
        given, because = " ".join(words) if len(files) > 2 else None, "a comparison needs two jobs"
        raise spec_error(field, given, allowed, because, fix, fault=fault)
    if len(files) == 2 and files[0] == files[1] != "-":
        allowed, because = "two different jobs", "both jobs are the same"
        fix = f"run flopcast compare {' '.join((files[0], *(changes or ('plan.micro_batch=2',))))}"
        raise spec_error("compare", " ".join(words), allowed, because, fix)
    if len(files) == 2:
        short = (Path(files[0]).name, Path(files[1]).name)
        names = short if short[0] != short[1] else (files[0], files[1])
        return names, [replace(request, files=(file,), changes=changes) for file in files]
    name = Path(files[0]).name if files else "as given"
    sides = [replace(request, files=tuple(files), changes=own) for own in ((), changes)]
    return (name, " ".join(changes)), sides
