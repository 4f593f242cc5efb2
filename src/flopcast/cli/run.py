"""`flopcast run`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import FILE, job_options, print_found, writes_document
from flopcast.requests.job_request import JobRequest

option = DocumentedOptions(__name__)


def _check(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Check the job, or the job of each phase."""
    from flopcast.requests.phase_files import check_phases

    check_phases(request, others["phases"])


@click.command("run")
@job_options(check=_check)
@option("--phases", type=FILE)
@option("--json", "wants_json", is_flag=True)
@writes_document
def command(request: JobRequest, phases: Path | None, wants_json: bool) -> None:
    """Predict a whole training run: its duration, goodput, cost and energy.

    The time and cost include failures, restarts and checkpoints. flopcast uses the rate of failures of
    published runs, unless you set cluster.reliability. If the run has several phases, list them in a file
    (--phases), each with its number of tokens and the fields of the job that it changes:

    \b
    phases:
      - {name: short, tokens: 1.9T, changes: plan.gbs=1024}
      - {name: long, tokens: 100B, changes: batch.seq=32768 plan.gbs=256 plan.cp=4}

    \b
    flopcast run llama-3-8b --gpus 64 --tokens 2T
    flopcast run llama-3-8b --gpus 8 --lora 16 --samples 52k --epochs 3 --seq 1024
    flopcast run job.yaml --phases phases.yaml --price "2.10 USD/h" cluster.reliability.restart_s="5 min"
    """
    from flopcast.api import predict
    from flopcast.render.training_run import as_json, marked_text
    from flopcast.report.training import training
    from flopcast.requests.phase_files import jobs_of_phases

    jobs = jobs_of_phases(request, phases)
    whole = training((name, tokens, predict(job)) for name, tokens, job in jobs)
    print_found(whole, wants_json, as_json, marked_text)
