"""`flopcast contention`."""

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import job_options, print_found, writes_document
from flopcast.errors import spec_error
from flopcast.files.inputs import exists
from flopcast.records import replace
from flopcast.requests.checked_request import check_each
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve

option = DocumentedOptions(__name__)


@click.command("contention")
@job_options(
    click.argument("words", nargs=-1, metavar="JOB JOB... [KEY=VALUE]..."),
    check=lambda request, others: check_each(_requests(request, others["words"])[1], may_serve=False),
)
@option(
    "--oversubscription", "oversubscription_ratio", type=click.FloatRange(1), default=1.0, show_default=True
)
@option("--json", "wants_json", is_flag=True)
@writes_document
def command(
    words: tuple[str, ...], request: JobRequest, oversubscription_ratio: float, wants_json: bool
) -> None:
    """Predict how much jobs slow each other down if they share a network.

    Each JOB is a file or a model. Options and KEY=VALUE apply to all jobs. The jobs run at the same time on
    separate nodes, and share the uplinks of the network that connects all nodes. For each job, flopcast
    predicts two step times: one while the other jobs run, and one while the job runs alone. The column "at
    worst" of the output shows the slowdown if all other jobs send data all the time.

    \b
    flopcast contention a.yaml b.yaml --oversubscription 4
    flopcast contention llama-3-8b mixtral-8x7b --cluster dgx-h100 --gpus 64 --oversubscription 2
    """
    from flopcast.predictor import Predictor
    from flopcast.render.shared_network_text import as_json, marked_text
    from flopcast.shared_network import share_network

    names, asked = _requests(request, words)
    if len(names) < 2:
        because = "the command predicts how jobs slow each other down"
        fix = "write at least two jobs, such as flopcast contention a.yaml b.yaml"
        if names:
            fix = f"write a second job, such as flopcast contention {names[0]} {names[0]} for equal jobs"
        field, allowed = "second JOB" if names else "JOB", "at least two job files or models"
        raise spec_error(field, None, allowed, because, fix, fault="is missing")
    shared = share_network([resolve(each) for each in asked], oversubscription_ratio, Predictor().predict)
    print_found(
        shared,
        wants_json,
        lambda found: as_json(found, names, oversubscription_ratio),
        lambda found: marked_text(found, names, oversubscription_ratio),
    )


def _requests(request: JobRequest, words: tuple[str, ...]) -> tuple[list[str], list[JobRequest]]:
    """Return the names of the jobs and their requests."""
    names = [word for word in words if "=" not in word or exists(word)]
    changes = tuple(word for word in words if word not in names)
    return names, [replace(request, files=(name,), changes=changes) for name in names]
