"""`flopcast import`."""

import click

from flopcast.cli.import_jobs import job_commands
from flopcast.cli.import_models import hf_model, hugging_face
from flopcast.cli.observing import kineto, nccl_tests, nsys


@click.group("import")
def command() -> None:
    """Make a job, a model, or measurements out of what others wrote.

    A description is imported, never code or weights. What was assumed or left out is told on stderr.

    \b
    flopcast import deepspeed ds_config.json --model llama-3-8b --gpus 16 -o job.yaml
    flopcast import hf config.json -o model.yaml
    """


for _one in (*job_commands(), hugging_face, hf_model, nccl_tests, kineto, nsys):
    command.add_command(_one)
