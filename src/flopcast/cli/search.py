"""`flopcast search`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.executors import executor_and_ledger, takes_workers
from flopcast.cli.layouts import print_layout
from flopcast.cli.options import FILE, SERVING, job_options, print_found, print_json, writes_document
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
        help=(
            'A cluster, or several clusters to compare, such as "dgx-h100,dgx-b200". May be '
            'repeated. NAME:NODES sets the number of nodes, as in "dgx-h100:8,dgx-b200:4". If '
            "--gpus is given, it overrides NODES."
        ),
    ),
    gpus=click.option(
        "--gpus",
        multiple=True,
        callback=lambda _context, _option, given: ",".join(given) or None,
        help=(
            'Number of devices (GPUs) of every cluster, or several numbers to compare: "512", '
            '"256,512", "64..1024" (64, 128, 256, …, 1024) or "64..512:64" (64, 128, 192, …, 512). '
            "May be repeated."
        ),
    ),
    plan=click.option(
        "--plan",
        help=(
            'Set fields of the plan, such as "tp=8 gbs=1024", or list the values to try, such as "tp=2,4 '
            'mbs=1,2".'
        ),
    ),
    offload=click.option(
        "--offload",
        metavar="auto|KIND:MEMORY[,...]",
        help=(
            'Also try plans that offload tensors from device memory. "auto" tries everything that '
            'the stack can offload. "none optimizer:host" tries plans without offload, and plans '
            "with the optimizer states in host memory."
        ),
    ),
    stack=click.option(
        "--stack",
        "--framework",
        "stacks",
        multiple=True,
        help="Training framework, or several frameworks to compare, separated by commas. May be repeated.",
    ),
    power_limit=click.option(
        "--power-limit",
        "power_limits",
        multiple=True,
        help='Power limit of each device, such as "500 W". Repeat the option to compare several limits.',
    ),
    **SERVING
    | {
        "engine": click.option(
            "--engine",
            help=(
                "Find the best deployment of this serving engine, such as vllm. To compare engines, "
                "separate their names by commas."
            ),
            shell_complete=names_of("engines"),
        )
    },
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    help=(
        'Objectives, such as "cost,time_to_train". The search ranks plans by the first objective. The '
        "Pareto front compares plans by all objectives."
    ),
)
@click.option(
    "--deadline", help='Consider only plans with which the run takes at most this time, such as "30 d".'
)
@click.option(
    "--budget", help='Consider only plans with which the run costs at most this much, such as "2.5M USD".'
)
@click.option(
    "--headroom",
    help=(
        "Consider only plans whose expected memory is at most this fraction of device memory, "
        "such as 0.9. By default, the upper end of the memory interval of a plan must fit."
    ),
)
@click.option(
    "--tp-beyond-domain",
    is_flag=True,
    help="Also try tensor parallelism across several scale-up (NVLink) domains.",
)
@takes_workers
@click.option(
    "--no-refine",
    is_flag=True,
    help=(
        "Do not try variants of the best plans, such as uneven pipeline stages, partial "
        "recompute or other orders of ranks."
    ),
)
@click.option(
    "--evolve",
    is_flag=True,
    help="Do not estimate all plans, but only a few thousand that an evolutionary algorithm chooses.",
)
@click.option(
    "--largest",
    is_flag=True,
    help=(
        "Instead of the best plan, find the largest number of layers with which this model fits"
        " into memory, with and without offload."
    ),
)
@click.option(
    "--node-order",
    is_flag=True,
    help=(
        "Instead of the best plan, find the assignment of ranks to nodes with which the given "
        "plan is fastest. The cluster must contain measured speeds of its links."
    ),
)
@click.option(
    "--group-division",
    is_flag=True,
    help=(
        "Instead of the best plan, find how many transformer blocks or micro-batches each kind "
        "of node should process, on a cluster with several kinds of nodes. With --slow, find "
        "how many blocks each pipeline stage should hold."
    ),
)
@click.option(
    "--split-points",
    is_flag=True,
    help=(
        "Instead of the best plan, find the best blocks at which to split a model over a chain "
        "of devices. The output is the Pareto front of latency and throughput."
    ),
)
@click.option(
    "--per-layer",
    is_flag=True,
    help=(
        "Instead of the best plan, find the best tensor parallelism, ZeRO stage and recompute "
        "for every block of the given plan. With --offload auto, also find which tensors of "
        "each block to offload to the host."
    ),
)
@click.option("--pareto", is_flag=True, help="Also show the Pareto front of all objectives.")
@click.option(
    "--top", type=click.IntRange(min=1), default=5, show_default=True, help="Number of plans to show."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the result as JSON.")
@click.option("--csv", type=FILE, help="Write all simulated plans to this CSV file.")
@click.option(
    "--parquet", type=FILE, help="Write all simulated plans to this Parquet file; needs polars or pyarrow."
)
@click.option("--plot", type=FILE, help="Draw the Pareto front into this file (.html or .svg).")
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

    The search estimates the step time of every plan, simulates the 32 plans with the best estimates, and
    ranks these 32 plans. If a plan has the mark "=", flopcast cannot say whether it is slower than the best
    plan: the 90 % interval of the ratio of the two step times contains 1. The first plan of the output is
    the simplest of all plans that are at most 2 % slower than the best. If you give several clusters,
    numbers of GPUs or stacks, the output shows the best plan for each, or why no plan is feasible.

    The option --plan sets fields of the plan ("tp=8") or lists the values to try ("tp=2,4"). The search
    tries all values of all other fields. If a job file contains a plan, the search keeps only its global
    batch, precision and optimizer.

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
        from flopcast.cli.search_serving import search_deployments

        search_deployments(asked, pareto, top, wants_json, files, workers)
    else:
        _search_plans(asked, pareto, top, wants_json, files, workers)


def _refuse(option: str, others: Mapping[str, object]) -> None:
    """Raise SpecError if other options are given that a search with this option does not use."""
    option = _written_as(option)
    because = "this search does not rank plans"
    given = [_written_as(name) for name, value in others.items() if value]
    if given:
        raise SpecError(
            Problem(
                name,
                option,
                f"no value together with {option}",
                because,
                f"remove {name} or {option}",
                fault=f"has no effect with {option}",
            )
            for name in given
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
