"""`flopcast search`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.executors import executor_and_ledger, takes_workers
from flopcast.cli.options import FILE, SERVING, job_options, print_json, writes_document
from flopcast.cli.progress import BROKEN_OFF, INFEASIBLE, OfSearch, broken_off
from flopcast.cli.search_files import Written, files_writer
from flopcast.cli.suggestions import names_of
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_words import serves

if TYPE_CHECKING:
    from flopcast.requests.search_request import SearchRequest
    from flopcast.search.find import SearchResult


LAYOUTS = ("node_order", "group_division", "split_points", "per_layer")  # options that keep the given plan


@click.command("search")
@job_options(
    cluster=click.option(
        "--cluster",
        "clusters",
        multiple=True,
        help='A cluster, or several to compare: "dgx-h100,dgx-b200"; may be repeated. NAME:NODES gives each'
        ' its own size in nodes: "dgx-h100:8,dgx-b200:4". --gpus replaces all of these sizes.',
    ),
    gpus=click.option(
        "--gpus",
        multiple=True,
        callback=lambda _context, _option, given: ",".join(given) or None,
        help='Devices, not nodes, on every cluster: "512", "256,512", "64..1024" (doubling), "64..512:64".'
        " May be repeated.",
    ),
    plan=click.option(
        "--plan", help='Fields to fix or values to try: "tp=8 gbs=1024", "tp=2,4 mbs=1,2 zero=1".'
    ),
    offload=click.option(
        "--offload",
        metavar="auto|KIND=MEMORY[,...]",
        help="Try placements of states outside the devices: auto tries those that the stack has. Several"
        ' are separated by blanks: "none optimizer=host".',
    ),
    stack=click.option(
        "--stack",
        "--framework",
        "stacks",
        multiple=True,
        help="A training stack, or several to compare, separated by commas; may be repeated.",
    ),
    power_limit=click.option(
        "--power-limit",
        "power_limits",
        multiple=True,
        help='Power limit per device, "500 W"; repeat to compare several.',
    ),
    **SERVING
    | {
        "engine": click.option(
            "--engine",
            help="A serving engine, or several separated by commas: search deployments for serving.",
            shell_complete=names_of("engines"),
        )
    },
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    help='Rank by the first objective; the others add axes to the Pareto front: "cost,time_to_train".',
)
@click.option("--deadline", help='Longest time of the run: "30 d".')
@click.option("--budget", help='Highest cost of the run: "2.5M USD".')
@click.option(
    "--headroom",
    help="Fraction of the memory that a plan may use; 1 allows tight plans. Default: plans that fit.",
)
@click.option("--tp-beyond-domain", is_flag=True, help="Allow tensor parallelism across scale-up domains.")
@takes_workers
@click.option(
    "--no-refine", is_flag=True, help="Do not try uneven stages, partial recompute and other rank orders."
)
@click.option(
    "--evolve",
    is_flag=True,
    help="Estimate only a few thousand plans, chosen by an evolutionary algorithm, instead of all plans.",
)
@click.option(
    "--largest",
    is_flag=True,
    help="Find the largest model with layers of this width that fits, with and without states outside the"
    " devices, instead of the best plan.",
)
@click.option(
    "--node-order",
    is_flag=True,
    help="Find the best order of nodes for the given plan on measured links, instead of the best plan.",
)
@click.option(
    "--group-division",
    is_flag=True,
    help="Choose how many blocks of a stage, or how many micro-batches, each group of unequal nodes gets.",
)
@click.option(
    "--split-points",
    is_flag=True,
    help="Cut a model that infers over a chain of devices: the front of latency against throughput.",
)
@click.option(
    "--per-layer",
    is_flag=True,
    help="Find the best tensor parallelism, ZeRO and recompute of every block of the given plan; with"
    " --offload auto, its recompute and what of it is on the host.",
)
@click.option("--pareto", is_flag=True, help="Also show the Pareto front of all objectives.")
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Number of plans to show."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--csv", type=FILE, help="Write every simulated plan as a row.")
@click.option("--parquet", type=FILE, help="Like --csv, as Parquet; needs polars or pyarrow.")
@click.option("--plot", type=FILE, help="Draw the Pareto front: FILE.html or FILE.svg.")
@writes_document
def command(
    request: JobRequest,
    largest: bool,
    pareto: bool,
    top: int,
    wants_json: bool,
    **named: Any,  # noqa: ANN401
) -> None:
    """Find the best plans for a model on a cluster, or the best deployments to serve it.

    The search estimates all plans, simulates the best 64 exactly, and ranks these. A plan is tied with
    the best, and marked "=", if the 90 % interval of its time over the best time contains 1. The simplest
    tied plan within 2 % of the best comes first. Variants that are tied with a plan and differ only in
    virtual stages, ZeRO stage or rank order are counted below it. With several clusters, sizes or stacks,
    the answer contains the best plan for each, or the reason why there is none. Use --plan to set fields
    of the plan, or to list the values to try; the search tries all values of the other fields. If a job
    file contains a plan, the search uses only its global batch, precision and optimizer.

    \b
    flopcast search llama-3-8b --gpus 64
    flopcast search --model llama-2-70b --cluster dgx-h100 --gpus 512 --seq 4096 --plan "gbs=1024"
    flopcast search job.yaml --objective tokens_per_s --gpus 128..1024 --pareto
    flopcast search job.yaml --objective time_to_train --tokens 2T --deadline "60 d" --plot front.html
    flopcast search llama-3.1-70b --engine vllm,sglang --cluster dgx-h100:1 \\
        --traffic "rate=4/s prompt=2000 output=300" --slo "ttft_p99=2s tpot_p99=50ms"

    Objectives: step_time, tokens_per_s, tokens_per_s_per_device, memory; cost and energy (of 1e12 tokens);
    time_to_train and run_cost (of the whole run, including failures). With a single objective, the second
    axis of the Pareto front is memory. Exit code 2: no plan is feasible; the output shows the plan that
    comes closest.

    With --engine, --traffic or --slo, all deployments (degrees, replicas, largest number of tokens in a
    pass) are estimated, and the most promising are simulated. --gpus is then the largest number of devices
    to use. By default the best deployment is the cheapest that keeps up with the traffic and meets --slo.
    Objectives: cost, tokens_per_s_per_device, goodput_per_device, ttft, tpot, end_to_end.
    """
    from flopcast.requests.search_request import SearchRequest

    files = {name: named.pop(name) for name in ("csv", "parquet", "plot")}
    layouts = [name for name in LAYOUTS if named.pop(name)]
    workers = {name: named.pop(name) for name in ("workers", "dask", "ledger")}
    asked = SearchRequest(job=request, **named)
    if largest:
        others = files | workers | {"pareto": pareto, "engine": serves(request), "offload": request.offload}
        others["evolve"] = asked.evolve
        _largest(asked, wants_json, [name for name, value in others.items() if value])
    elif layouts:
        _print_layout(asked, wants_json, layouts[0])
    elif serves(request):
        from flopcast.cli.search_serving import search_deployments

        search_deployments(asked, pareto, top, wants_json, files, workers)
    else:
        _search_plans(asked, pareto, top, wants_json, files, workers)


def _largest(asked: "SearchRequest", wants_json: bool, others: Sequence[str]) -> None:
    """Print the largest models that fit; options named by `others` have no meaning here."""
    if others:
        because = "--largest tries training plans with and without offload, and ranks none"
        raise SpecError(
            [
                Problem(f"--{name}", "--largest", "a search without --largest", because, f"remove --{name}")
                for name in others
            ]
        )
    from flopcast.best_plans import largest_models
    from flopcast.render.largest_models import largest_json, largest_text
    from flopcast.requests.search_request import question_of

    answers = largest_models(question_of(asked))
    if wants_json:
        print_json(largest_json(answers))
    else:
        print_text(largest_text(answers))


def _print_layout(asked: "SearchRequest", wants_json: bool, layout: str) -> None:
    """Print the best layout of the given plan; `layout` is one of LAYOUTS.

    Raises
    ------
    SpecError
        Evolution is to choose plans where the plan is given, or as the functions that are called.
    """
    from flopcast.cli import layouts

    if asked.evolve:
        option = f"--{layout.replace('_', '-')}"
        because = f"{option} keeps the given plan, and evolution chooses plans"
        raise SpecError(
            [Problem("--evolve", option, "a search of plans", because, f"remove --evolve or {option}")]
        )
    prints = {
        "node_order": layouts.print_node_order,
        "group_division": layouts.print_group_division,
        "split_points": layouts.print_split_points,
        "per_layer": layouts.print_per_layer,
    }
    prints[layout](asked, wants_json)


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
    from flopcast.render.offload_advice import placed_json, placed_lines, placed_plans
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
    for path in write(lambda: _written(result)):
        click.echo(f"wrote {path}", err=True)
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
