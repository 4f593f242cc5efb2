"""`flopcast import`."""

import click

from flopcast.cli.import_jobs import job_commands
from flopcast.cli.import_measurements import kineto, nccl_tests, nsys
from flopcast.cli.import_models import hf_model, hugging_face


@click.group("import")
def command() -> None:
    """Convert files of other software to a job, a model or measurements.

    Only descriptions are read, never code or weights. Assumptions and ignored settings go to stderr.

    \b
    flopcast import deepspeed ds_config.json --model llama-3-8b --gpus 16 -o job.yaml
    flopcast import hf config.json -o model.yaml
    """


for _one in (*job_commands(), hugging_face, hf_model, nccl_tests, kineto, nsys):
    command.add_command(_one)
