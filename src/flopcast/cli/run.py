"""`flopcast run`."""

from dataclasses import replace
from pathlib import Path

import click

from flopcast.cli.options import FILE, job_options, print_found, writes_document
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve


@click.command("run")
@job_options()
@click.option("--tokens", help="Tokens to train: 2e12, 2T or 300B.")
@click.option("--phases", type=FILE, help="A file of phases, instead of --tokens.")
@click.option("--json", "wants_json", is_flag=True, help="Print the run as JSON.")
@writes_document
def command(request: JobRequest, tokens: str | None, phases: Path | None, wants_json: bool) -> None:
    """Predict a whole training run: days, goodput, dollars, kilowatt-hours.

    The time and cost include failures, restarts and checkpoints. Set them in cluster.reliability; otherwise
    published rates are used. A file of phases lists the tokens of each phase and what it changes:

    \b
    phases:
      - {name: short, tokens: 1.9T, changes: plan.gbs=1024}
      - {name: long, tokens: 100B, changes: batch.seq=32768 plan.gbs=256 plan.cp=4}

    \b
    flopcast run llama-3-8b --gpus 64 --tokens 2T
    flopcast run job.yaml --tokens 2T
    flopcast run job.yaml --phases phases.yaml --price "2.10 USD/h" cluster.reliability.restart_s="5 min"
    """
    from flopcast.api import predict
    from flopcast.render.training_run import as_json, as_text
    from flopcast.report.training import training
    from flopcast.requests.phase_files import changes_of_phase, stated_phases

    stated = stated_phases(tokens, phases)
    jobs = []
    for number, phase in enumerate(stated):
        with changes_of_phase(phases, number):
            jobs.append(resolve(replace(request, changes=(*request.changes, *phase.words))))
    whole = training(
        (phase.name or f"phase {number}", phase.tokens, predict(made))
        for number, (phase, made) in enumerate(zip(stated, jobs, strict=True), 1)
    )
    print_found(whole, wants_json, as_json, as_text)
