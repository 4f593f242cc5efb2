"""`flopcast search`."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.executors import executor_and_ledger, takes_workers
from flopcast.cli.file_types import OutputFile
from flopcast.cli.layouts import one_request, print_layout
from flopcast.cli.options import OUTPUT, SERVING, job_options, print_found, print_json, writes_document
from flopcast.cli.progress import BROKEN_OFF, INFEASIBLE, Clock, OfSearch, broken_off
from flopcast.cli.search_files import Written, files_writer
from flopcast.cli.suggestions import names_of
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError, spec_error
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_words import serves

if TYPE_CHECKING:
    from flopcast.requests.search_request import SearchRequest
    from flopcast.search.deployments.find import DeploymentResult, Progress
    from flopcast.search.find import SearchResult

option = DocumentedOptions(__name__)
DRAWING = OutputFile(".html", ".svg", because="the ending of the file name determines the format")
LAYOUTS = ("node_order", "group_division", "split_points", "per_layer")  # options that keep the given plan
ONE_PROCESS = "a search for deployments runs in a single process and takes only seconds"


class _OfDeployments(Clock):
    """Show how many deployments are estimated and simulated."""

    def __call__(self, progress: "Progress") -> None:
        line = f"{progress.estimated:,} deployments estimated"
        if progress.to_simulate:
            line += f", {progress.simulated} of {progress.to_simulate} simulated"
        self.show(self.seconds, line)


def _check(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Check the request of a search, or of the one job of a layout, without searching."""
    from flopcast.requests.checked_request import check_request
    from flopcast.requests.search_request import SearchRequest, question_of
    from flopcast.requests.serving_search import deployment_question

    names = [each.name for each in fields(SearchRequest) if each.name in others]
    asked = SearchRequest(job=request, **{name: others[name] for name in names})
    if any(others[name] for name in LAYOUTS):
        check_request(one_request(asked))
    elif serves(request):
        deployment_question(asked)
    else:
        question_of(asked)


@click.command("search")
@job_options(
    check=_check,
    cluster=option("--cluster", "clusters", multiple=True),
    gpus=option("--gpus", multiple=True, callback=lambda _context, _option, given: ",".join(given) or None),
    plan=option("--plan"),
    offload=option("--offload", metavar="auto|KIND:MEMORY[,...]"),
    stack=option("--stack", "--framework", "stacks", multiple=True),
    power_limit=option("--power-limit", "power_limits", multiple=True),
    **SERVING | {"engine": option("--engine", shell_complete=names_of("engines"))},
)
@option("--objective", "objectives", multiple=True)
@option("--deadline")
@option("--budget")
@option("--headroom")
@option("--tp-beyond-domain", is_flag=True)
@takes_workers
@option("--no-refine", is_flag=True)
@option("--evolve", is_flag=True)
@option("--largest", is_flag=True)
@option("--node-order", is_flag=True)
@option("--group-division", is_flag=True)
@option("--split-points", is_flag=True)
@option("--per-layer", is_flag=True)
@option("--pareto", is_flag=True)
@option("--top", type=click.IntRange(min=1), default=5, show_default=True)
@option("--json", "wants_json", is_flag=True)
@option("--csv", type=OUTPUT)
@option("--parquet", type=OUTPUT)
@option("--plot", type=DRAWING)
@writes_document
def command(
    request: JobRequest,
    largest: bool,
    pareto: bool,
    top: int,
    wants_json: bool,
    **named: Any,  # noqa: ANN401
) -> None:
    """Find the best plans to train a model on a cluster, or the best deployments to serve it.

    The search first estimates the step time of every plan. It then simulates the 32 plans with the shortest
    estimates, and variants of these plans, and ranks all simulated plans. If a plan has the mark "=",
    flopcast cannot say whether it is slower than the best plan: the 90 % interval of the ratio of the two
    step times contains 1. The first plan of the output is the recommended plan: a simple plan that is at
    most 2 % slower than the best. If you give several clusters, numbers of GPUs or stacks, the output shows
    the best plan for each, or why no plan is feasible.

    The option --plan sets fields of the plan ("tp=8") or lists the values to try ("tp=2,4"). The search
    tries all reasonable values of all other fields. If a job file contains a plan, the search keeps only
    its global batch, precision and optimizer.

    \b
    flopcast search llama-3-8b --gpus 64
    flopcast search --model llama-2-70b --cluster dgx-h100 --gpus 512 --seq 4096 --plan "gbs=1024"
    flopcast search job.yaml --objective tokens_per_s --gpus 128..1024 --pareto
    flopcast search job.yaml --objective time_to_train --tokens 2T --deadline "60 d" --plot front.html
    flopcast search llama-3.1-70b --engine vllm,sglang --cluster dgx-h100:1 \\
        --traffic "rate=4/s prompt=2000 output=300" --slo "ttft_p99=2s tpot_p99=50ms"

    Objectives: step_time, tokens_per_s, tokens_per_s_per_device, memory; cost and energy (per 1e12 tokens);
    time_to_train and run_cost (of the whole run, including failures). If you name a single objective, the
    Pareto front trades it off against memory. If no plan is feasible, the exit code is 2, and the output
    shows the plan that exceeds the limits least.

    With --engine, --traffic or --slo, the search finds the best deployment of a serving engine: its
    parallel degrees, its number of replicas, and its limit of tokens per iteration (vLLM's
    max_num_batched_tokens). A deployment uses at most --gpus devices. By default, the best deployment is
    the cheapest one that serves all requests within the limits of --slo. Objectives of deployments: cost,
    tokens_per_s_per_device, goodput_per_device, ttft, tpot, end_to_end.
    """
    from flopcast.requests.search_request import OF_RANKING, OF_SPACE, SearchRequest

    files = {name: named.pop(name) for name in ("csv", "parquet", "plot")}
    layouts = [name for name in LAYOUTS if named.pop(name)]
    workers = {name: named.pop(name) for name in ("workers", "dask", "ledger")}
    asked = SearchRequest(job=request, **named)
    ranking = files | workers | {"pareto": pareto} | {name: getattr(asked, name) for name in OF_RANKING}
    if largest:
        others = {"engine": serves(request), "offload": request.offload} | dict.fromkeys(layouts, True)
        _refuse("largest", ranking | others)
        _largest(asked, wants_json)
    elif layouts:
        ranking |= {name: getattr(asked, name) for name in ("power_limits", *OF_SPACE)}
        _refuse(layouts[0], ranking | dict.fromkeys(layouts[1:], True))
        print_layout(asked, wants_json, layouts[0])
    elif serves(request):
        _search_deployments(asked, pareto, top, wants_json, files, workers)
    else:
        _search_plans(asked, pareto, top, wants_json, files, workers)


def _refuse(option: str, others: Mapping[str, object]) -> None:
    """Raise SpecError if other options are given that a search with this option does not use."""
    option = _written_as(option)
    because = "this search does not rank plans"
    given = [_written_as(name) for name, value in others.items() if value]
    if given:
        allowed, fault = f"no value together with {option}", f"has no effect with {option}"
        fixes = {name: f"remove {name} or {option}" for name in given}
        raise SpecError(
            Problem(name, option, allowed, because, fix, fault=fault) for name, fix in fixes.items()
        )


def _written_as(name: str) -> str:
    """Return the option of a parameter, such as "--power-limit" of `power_limits`."""
    singular = {"objectives": "objective", "power_limits": "power-limit"}
    return "--" + singular.get(name, name.replace("_", "-"))


def _largest(asked: "SearchRequest", wants_json: bool) -> None:
    """Print the largest models that fit."""
    from flopcast.best_plans import largest_models
    from flopcast.render.largest_models import largest_json, largest_text
    from flopcast.requests.search_request import question_of

    print_found(largest_models(question_of(asked)), wants_json, largest_json, largest_text)


def _search_plans(
    asked: "SearchRequest",
    pareto: bool,
    top: int,
    wants_json: bool,
    files: Mapping[str, Path | None],
    workers: Mapping[str, Any],
) -> None:
    """Print the best plans of training, and write the files that are asked for."""
    from flopcast.render.error_json import no_plan
    from flopcast.render.fit_advice import placed_json, placed_lines, placed_plans
    from flopcast.render.search_json import as_json
    from flopcast.render.search_text import marked_text, nearest
    from flopcast.requests.search_request import question_of
    from flopcast.workers.run import answer
    from flopcast.workers.search_tasks import search_of

    write = files_writer(files)
    question = question_of(asked)
    watch = OfSearch()
    search = search_of(question)
    with executor_and_ledger([search], **workers) as (executor, ledger):
        watch.expect(workers=executor.size, settings=len(tuple(question.sized())))
        try:
            result = answer(search, executor, ledger, watch)
        finally:
            watch.clear()
    placed = placed_plans(result)
    advice = placed_lines(placed)
    if wants_json:
        answered = as_json(result, top, watch.seconds, watch.screening_s)
        message = "\n".join([*nearest(result), *advice])
        print_json(answered if result.plans else answered | no_plan(message) | placed_json(placed))
    else:
        print_text("\n\n".join([marked_text(result, top, with_front=pareto), *advice]))
    write(lambda: _written(result))
    if not result.plans:
        click.get_current_context().exit(BROKEN_OFF if result.partial else INFEASIBLE)
    if result.partial:
        click.echo(broken_off("these are the best plans so far", workers["ledger"]), err=True)
        click.get_current_context().exit(BROKEN_OFF)


def _written(result: "SearchResult") -> Written:
    """Return what the files of a search hold."""
    from flopcast.render.search_drawing import drawing_of
    from flopcast.render.search_json import as_rows
    from flopcast.render.search_text import as_text

    heading = f"Plans for {result.question.jobs[0].model.name}"
    return Written(as_rows(result), drawing_of(result), heading, as_text(result))


def _search_deployments(
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
        name, allowed = chosen[0], "no value in a search for deployments"
        raise spec_error(f"--{name}", workers[name], allowed, ONE_PROCESS, f"remove --{name}")
    write = files_writer(files)
    watch = _OfDeployments()
    question = deployment_question(asked)
    try:
        result = answer_of_serving(question, watch)
    finally:
        watch.clear()
    if wants_json:
        print_json(deployments_json.as_json(result, top, watch.seconds))
    else:
        print_text(deployments_text.marked_text(result, top, with_front=pareto))
    write(lambda: _deployments_written(result))
    if result.partial:
        click.echo("interrupted: these are the best deployments so far", err=True)
        click.get_current_context().exit(BROKEN_OFF)
    if not result.deployments:
        click.get_current_context().exit(INFEASIBLE)


def _deployments_written(result: "DeploymentResult") -> Written:
    """Return what the files of a search hold."""
    from flopcast.render.deployments_drawing import drawing_of
    from flopcast.render.deployments_json import as_rows
    from flopcast.render.deployments_text import as_text

    heading = f"Deployments of {result.question.jobs[0].model.name}"
    return Written(as_rows(result), drawing_of(result), heading, as_text(result))
