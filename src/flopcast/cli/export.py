"""`flopcast export`."""

import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.file_types import OutputFile
from flopcast.cli.options import OF_RUN, SAMPLES, SERVING, job_options
from flopcast.cli.output_files import print_notes, write_output, writing
from flopcast.cli.suggestions import words
from flopcast.errors import InfeasibleError, Problem, SpecError, problems_of, spec_error
from flopcast.files.atomic_write import write_whole
from flopcast.files.field_names import UNKNOWN_KEY
from flopcast.files.inputs import exists
from flopcast.files.nearest_names import nearest
from flopcast.records import replace
from flopcast.requests.checked_request import check_after
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.serving_words import is_training_job, serves
from flopcast.requests.words import is_model

if TYPE_CHECKING:
    from flopcast.files.exported import Exported
    from flopcast.spec.job import Job
    from flopcast.spec.serving_job import ServingJob

option = DocumentedOptions(__name__)

USUAL = ("megatron", "deepspeed", "torchtitan", "megatron-bridge", "chakra", "perfetto", "chrome",
         "vllm", "sglang", "trtllm")  # fmt: skip


def _check(target: str, request: JobRequest) -> None:
    """Check the format, and the job of a request; a format of an engine makes it a serving job."""
    from flopcast.interop.exports.kinds import SERVING as ENGINES
    from flopcast.interop.exports.kinds import kind_named

    if wrong := _of_other_engine(target, request):
        served = replace(request, engine=ENGINES[target].engine)
        raise SpecError([*wrong, *problems_of(lambda: _check(target, served))])
    if target and not (exists(target) or is_model(target)):
        found = problems_of(lambda: kind_named(target))
        if found:
            raise SpecError([*found, *problems_of(lambda: check_after(target, request))])

    if target in ENGINES and not serves(request) and not is_training_job(request):
        served = replace(request, engine=ENGINES[target].engine)
        found = problems_of(lambda: check_after(target, served))
        if not _are_of_training(found):
            raise SpecError(found)
        if not found:
            return
    check_after(target, request)


def _of_other_engine(target: str, request: JobRequest) -> list[Problem]:
    """Return the error of an option --engine whose engine the commands of the format do not start."""
    from flopcast.interop.exports.kinds import SERVING as ENGINES
    from flopcast.library import catalog

    name = catalog.known("engines", request.engine or "")
    if name is None or target not in ENGINES:
        return []
    stated, started = {name, catalog.engine(name).base}, ENGINES[target].engine
    if started in stated:
        return []
    own = [each for each in catalog.names("engines") if started in (each, catalog.engine(each).base)]
    because = f"the commands of this format start {started}, whose defaults differ from those of {name}"
    fix = f"write --engine {started}"
    if kind := next((each for each, found in ENGINES.items() if found.engine in stated), ""):
        fix = f"write --engine {started}, or run flopcast export {kind} to start {name}"
    return [Problem("--engine", request.engine, ", ".join(own), because, fix)]


def _are_of_training(problems: Iterable[Problem]) -> bool:
    """Return whether the problems of a serving job are only keys of training."""
    return all(each.fault == UNKNOWN_KEY or each.field == "--engine" for each in problems)


@click.command("export")
@click.argument("target", metavar="KIND", shell_complete=words(*USUAL))
@job_options(
    without=OF_RUN,
    samples=SAMPLES,
    check=lambda request, others: _check(others["target"] or "", request),
    **SERVING,
)
@option("-o", "--output", "--out", "output", type=OutputFile(or_folder=True))
def command(target: str, request: JobRequest, output: Path | None) -> None:
    """Write a job as a file of other software, or its predicted step as a trace.

    A serving job is exported as a script that starts the engine.

    Describe the job as for `predict`. To check the export, flopcast imports the file that it wrote. If the
    imported model, plan or batch differs from that of the job, the command fails and lists the fields that
    differ. Assumptions, and settings that the format cannot express, are listed on stderr. KIND is one of:

    \b
    megatron         a launch script with Megatron-LM's flags
    deepspeed        a configuration of DeepSpeed (JSON)
    torchtitan       a configuration of torchtitan (TOML), with the flags to pass to it
    megatron-bridge  overrides of a recipe of Megatron-Bridge (YAML)
    chakra           a Chakra execution trace for each rank (ASTRA-sim)
    perfetto         a trace of the step for ui.perfetto.dev
    chrome           a trace of the step in Chrome's trace format (JSON)
    vllm             a script with launch commands of vLLM
    sglang           a script with launch commands of SGLang
    trtllm           a script with launch commands of TensorRT-LLM, and a YAML file with options

    \b
    flopcast export megatron job.yaml -o run.sh
    flopcast export megatron llama-3-8b --gpus 64 --plan "dp=64 gbs=512 zero=1"
    flopcast export chakra job.yaml plan.global_batch=64 -o traces/
    flopcast export vllm llama-3.1-70b --cluster dgx-h100:1 --plan "tp=4 weights=fp8" -o serve.sh
    """
    from flopcast.interop.exports.kinds import SERVING as ENGINES
    from flopcast.interop.exports.kinds import exported, kind_named
    from flopcast.render.assumption_lines import with_option

    if exists(target) or is_model(target):
        raise SpecError([_swapped(target, str(next(iter(request.files), "")))])
    kind_named(target)
    if wrong := _of_other_engine(target, request):
        raise SpecError(wrong)
    job = _job(request, ENGINES[target].engine if target in ENGINES else None)
    made = exported(job, target)
    assumed = [text for text in job.assumptions if target not in ENGINES or "traffic " not in text]
    print_notes([*(f"assumed {with_option(text)}" for text in assumed), *made.notes])
    _write(made, output)


def _job(request: JobRequest, engine: str | None) -> "Job | ServingJob":
    """Return the job of a request. If it names no engine, `engine` serves it, where one is given.

    If only keys of training prevent serving, the result is the training job, which no engine can serve.
    """
    from flopcast.requests.serving_request import checked_serving

    if serves(request):
        return checked_serving(request)
    if engine is None:
        return resolve(request)
    try:
        return checked_serving(replace(request, engine=engine))
    except SpecError as error:
        if _are_of_training(error.problems):
            with suppress(InfeasibleError):
                return resolve(request)
        raise


def _swapped(job: str, second: str) -> Problem:
    """Return the fault of a command line that names the job before the format; `second` follows the job."""
    allowed = "flopcast export KIND JOB, where KIND is a format, such as megatron"
    because = f"{job} is a {'file' if exists(job) else 'model'}, and the job comes after KIND"
    near = nearest(second, USUAL) or USUAL
    rest = [word for word in sys.argv[2:] if word != second]
    return Problem("KIND", job, allowed, because, shlex.join(["flopcast", "export", near[0], *rest]))


def _write(made: "Exported", output: Path | None) -> None:
    """Write one file to stdout or to a path, or several files to a folder, which is made if it is missing.

    Raises
    ------
    SpecError
        There are several files and no folder for them, or binary data would go to a terminal.
    """
    files, several = made.files, len(made.files) > 1
    name, content = files[0]
    if output is None:
        if several or (made.binary and sys.stdout.isatty()):
            allowed = "a folder" if several else "a file"
            because = f"{len(files)} files cannot be printed" if several else "the file is binary"
            fix = f"add -o {PurePath(name).stem if several else name}"
            raise spec_error("--output", None, allowed, because, fix, fault="is missing")
        click.echo(content if made.binary else content.decode("utf-8"), nl=False)
        return
    if not several and not output.is_dir():
        write_output("--output", output, content)
        return
    with writing("--output", output):
        output.mkdir(exist_ok=True)
        for name, content in files:
            write_whole(output / name, content)
    click.echo(f"wrote {len(files)} file{'s' * several} into {output}", err=True)
