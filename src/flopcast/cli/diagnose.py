"""`flopcast diagnose`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from flopcast.cli import options
from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.output_files import write_output
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve

option = DocumentedOptions(__name__)


def _check(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Raise all errors of the job, of the log and of the trace."""
    from flopcast.api import read_measured
    from flopcast.errors import SpecError, problems_of
    from flopcast.requests.checked_request import check_request

    measured = problems_of(lambda: read_measured(others["log"], others["trace"]))
    is_measured = others["log"] is not None or others["trace"] is not None
    check = partial(check_request, request, may_serve=False)
    found = [*measured, *problems_of(check)]  # of the job on the usual cluster if the request names none
    if is_measured:
        unknown = problems_of(partial(check, assume_cluster=False))
        found += [each for each in unknown if each not in found]
    if found:
        raise SpecError(found)


@click.command("diagnose")
@options.job_options(without=options.OF_RUN, samples=options.SAMPLES, check=_check)
@option("--log", type=options.INPUT)
@option("--trace", type=options.INPUT)
@option("--json", "wants_json", is_flag=True)
@option("--report", type=options.PAGE)
@options.writes_document
def command(
    request: JobRequest, log: Path | None, trace: Path | None, wants_json: bool, report: Path | None
) -> None:
    """Find out why a job is slower than it should be.

    Describe the job as for `predict`, preferably with the launch script of the run. The output lists
    possible causes, each with the seconds that it costs, the evidence for and against it, and the setting
    to change. Possible causes are:

    \b
    - settings of the job that cost time;
    - a batch size, number of GPUs or other size that differs between the log and the job;
    - pauses between steps, and step times that grow during the run;
    - components of the step that take longer than predicted, according to a trace or to timers in the log.

    Without a log or a trace, flopcast examines only the settings. With a log or a trace, give the cluster
    of the run (--cluster), unless the job file names it.

    \b
    flopcast diagnose run.sh --cluster dgx-h100 --gpus 512 --log train.log
    flopcast diagnose job.yaml --log train.log --trace rank0.json.gz --report slow.html
    flopcast diagnose llama-3-8b --gpus 64 --plan "dp=64 gbs=512 recompute=full"
    """
    from flopcast.api import diagnose, report_page
    from flopcast.render.diagnosis import as_json, marked_text

    is_measured = log is not None or trace is not None  # then on a cluster that must be known
    found = diagnose(resolve(request, assume_cluster=not is_measured), log, trace)
    options.print_found(found, wants_json, as_json, marked_text)
    if report is not None:
        write_output("--report", report, report_page(found))
