"""The part of `flopcast search` that serves: the best deployments for a traffic."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flopcast.cli.options import print_json
from flopcast.cli.progress import BROKEN_OFF, INFEASIBLE, Clock
from flopcast.cli.search_files import Written, files_writer
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError

if TYPE_CHECKING:
    from flopcast.requests.search_request import SearchRequest
    from flopcast.search.deployments.find import DeploymentResult, Progress

ONE_PROCESS = "a search of deployments runs in a single process and takes only seconds"


class _Watch(Clock):
    """Show how many deployments are estimated and simulated."""

    def __call__(self, progress: "Progress") -> None:
        line = f"{progress.estimated:,} deployments estimated"
        if progress.to_simulate:
            line += f", {progress.simulated} of {progress.to_simulate} simulated"
        self.show(self.seconds, line)


def search_deployments(
    asked: "SearchRequest",
    pareto: bool,
    top: int,
    wants_json: bool,
    files: Mapping[str, Path | None],
    workers: Mapping[str, object],
) -> None:
    """Print the best deployments, and write the files that are asked for.

    Raises
    ------
    SpecError
        Faults of the request, or workers are chosen.
    """
    from flopcast.best_deployments import answer_of_serving
    from flopcast.render import deployments_json, deployments_text
    from flopcast.requests.serving_search import deployment_question

    if chosen := [name for name, value in workers.items() if value is not None]:
        because, fix = ONE_PROCESS, f"remove --{chosen[0]}"
        raise SpecError(
            [
                Problem(
                    f"--{chosen[0]}",
                    workers[chosen[0]],
                    "no value in a search for deployments",
                    because,
                    fix,
                )
            ]
        )
    write = files_writer(files)
    watch = _Watch()
    question = deployment_question(asked)
    try:
        result = answer_of_serving(question, watch)
    finally:
        watch.clear()
    if wants_json:
        print_json(deployments_json.as_json(result, top, watch.seconds))
    else:
        print_text(deployments_text.marked_text(result, top, with_front=pareto))
    for path in write(lambda: _written(result)):
        click.echo(f"wrote {path}", err=True)
    if result.partial:
        click.echo("interrupted: these are the best deployments so far", err=True)
        click.get_current_context().exit(BROKEN_OFF)
    if not result.deployments:
        click.get_current_context().exit(INFEASIBLE)


def _written(result: "DeploymentResult") -> Written:
    """Return what the files of a search hold."""
    from flopcast.render.deployments_drawing import drawing_of
    from flopcast.render.deployments_json import as_rows
    from flopcast.render.deployments_text import as_text

    heading = f"Deployments of {result.question.jobs[0].model.name}"
    return Written(as_rows(result), drawing_of(result), heading, as_text(result))
