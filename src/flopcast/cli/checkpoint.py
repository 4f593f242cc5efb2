"""`flopcast checkpoint`."""

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import job_options, print_found, writes_document
from flopcast.requests.job_request import JobRequest
from flopcast.requests.loading_job import resolve_both

option = DocumentedOptions(__name__)

OF_LENGTH = ("tokens", "samples", "epochs", "price")  # matter to the length and cost of a whole run alone


@click.command("checkpoint")
@job_options(without=OF_LENGTH, check=lambda request, others: resolve_both(request, others["to_plan"]))
@option("--to-plan")
@option("--json", "wants_json", is_flag=True)
@writes_document
def command(request: JobRequest, to_plan: str | None, wants_json: bool) -> None:
    """Predict the size of a job's checkpoints, the time to save and load them, and the best interval.

    The command also compares all methods of saving, each with its best interval. The best interval
    minimises the time to save checkpoints plus the time to repeat steps that were lost in failures.

    \b
    flopcast checkpoint llama-3-8b --gpus 64 --checkpoint "lazy host"
    flopcast checkpoint job.yaml --checkpoint "asynchronous file_system every=100"
    flopcast checkpoint job.yaml --to-plan "dp=4 tp=4 pp=1"
    """
    from flopcast.api import predict_checkpoint
    from flopcast.render.checkpoint_text import marked_text, report_as_json

    job, loading = resolve_both(request, to_plan)
    print_found(predict_checkpoint(job, loading), wants_json, report_as_json, marked_text)
