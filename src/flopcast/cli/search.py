"""`flopcast search`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.executors import executor_and_ledger, takes_workers
from flopcast.cli.options import FILE, check_writable, job_options, print_json, writes_document, writing
from flopcast.cli.progress import BROKEN_OFF, INFEASIBLE, OfSearch, broken_off
from flopcast.cli.terminal import print_text
from flopcast.errors import Problem, SpecError
from flopcast.files.atomic_write import write_whole
from flopcast.requests.job_request import JobRequest

if TYPE_CHECKING:
    from flopcast.search.find import SearchResult

DRAWINGS = (".html", ".svg")


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
)
@click.option(
    "--objective",
    "objectives",
    multiple=True,
    help='What to rank by; further ones add axes to the front: "cost,time_to_train"; may be repeated.',
)
@click.option("--deadline", help='Longest time of the run: "30 d".')
@click.option("--budget", help='Highest cost of the run: "2.5M USD".')
@click.option(
    "--headroom", help="Share of the memory to use; 1 allows tight plans. Default: only plans that fit."
)
@click.option("--tp-beyond-domain", is_flag=True, help="Allow tensor parallelism across scale-up domains.")
@takes_workers
@click.option("--no-refine", is_flag=True, help="Try only even stages and full, selective or no recompute.")
@click.option("--pareto", is_flag=True, help="Show the Pareto front of all objectives too.")
@click.option(
    "--top", type=click.IntRange(min=1), default=20, show_default=True, help="Number of plans to show."
)
@click.option("--json", "wants_json", is_flag=True, help="Print the answer as JSON.")
@click.option("--csv", type=FILE, help="Write every simulated plan as a row.")
@click.option("--parquet", type=FILE, help="Like --csv, as Parquet; needs polars or pyarrow.")
@click.option("--plot", type=FILE, help="Draw the Pareto front: FILE.html or FILE.svg.")
@writes_document
def command(request: JobRequest, pareto: bool, top: int, wants_json: bool, **named: Any) -> None:  # noqa: ANN401
    """Find the best plans for a model on a cluster.

    Every plan of a space is screened, and the best 64 are simulated exactly and ranked. Plans that are tied
    with the best, because the 90 % interval of their ratio contains 1, are marked "="; of those within 2 %
    the simplest comes first. Variants in virtual stages, ZeRO stage or rank order are counted below the
    plan that they are tied with. If you name several clusters, sizes or stacks, the answer holds the best
    plan for each, or the reason why there is none. --plan fixes fields of the plan or lists the values that
    they may take; all other fields are free. The plan of a job file fixes the global batch, precision and
    optimizer.

    \b
    flopcast search llama-3-8b --gpus 64
    flopcast search --model llama-2-70b --cluster dgx-h100 --gpus 512 --seq 4096 --plan "gbs=1024"
    flopcast search job.yaml --objective tokens_per_s --gpus 128..1024 --pareto
    flopcast search job.yaml --objective time_to_train --tokens 2T --deadline "60 d" --plot front.html

    Objectives: step_time, tokens_per_s, tokens_per_s_per_device, memory; cost and energy, of 1e12 tokens;
    time_to_train and run_cost, with failures. With a single objective, the Pareto front also takes memory
    into account. Exit code 2: no plan is feasible, and the nearest plan is shown.
    """
    from flopcast.render.error_json import no_plan
    from flopcast.render.search_json import as_json
    from flopcast.render.search_text import marked_text, nearest
    from flopcast.requests.search_request import SearchRequest, question_of
    from flopcast.workers.run import answer
    from flopcast.workers.search_tasks import search_of

    files = {name: named.pop(name) for name in ("csv", "parquet", "plot")}
    for name, path in files.items():
        check_writable(f"--{name}", path if isinstance(path, Path) else None)
    write = _writers(files)
    workers = {name: named.pop(name) for name in ("workers", "dask", "ledger")}
    question = question_of(SearchRequest(job=request, **named))
    watch = OfSearch()
    search = search_of(question)
    with executor_and_ledger([search], **workers) as (executor, ledger):
        watch.expect(workers=executor.size, settings=len(tuple(question.sized())))
        try:
            result = answer(search, executor, ledger, watch)
        finally:
            watch.clear()
    if wants_json:
        answered = as_json(result, top, watch.seconds, watch.screening_s)
        print_json(answered if result.plans else answered | no_plan("\n".join(nearest(result))))
    else:
        print_text(marked_text(result, top, with_front=pareto))
    for path in write(result):
        click.echo(f"wrote {path}", err=True)
    if not result.plans:
        click.get_current_context().exit(BROKEN_OFF if result.partial else INFEASIBLE)
    if result.partial:
        click.echo(broken_off("these are the best plans so far", workers["ledger"]), err=True)
        click.get_current_context().exit(BROKEN_OFF)


def _writers(files: Mapping[str, object]) -> "Callable[[SearchResult], Iterator[Path]]":
    """Return a function that writes the requested files of a result; call this before the search.

    Raises
    ------
    SpecError
        The kind of a drawing is unknown, or no library can write Parquet.
    """
    problems = []
    paths = {name: path for name, path in files.items() if isinstance(path, Path)}
    if "plot" in paths and paths["plot"].suffix not in DRAWINGS:
        allowed = " or ".join(f"a file that ends with {ending}" for ending in DRAWINGS)
        because, fix = "the ending chooses the format", "write front.html"
        problems.append(Problem("--plot", str(paths["plot"]), allowed, because, fix))
    if "parquet" in paths:
        from flopcast.files.tables import parquet_problem

        problems += parquet_problem(paths["parquet"])
    if problems:
        raise SpecError(problems)

    def write(result: "SearchResult") -> Iterator[Path]:
        from flopcast.files.tables import write_csv, write_parquet
        from flopcast.render.search_drawing import as_html, as_svg
        from flopcast.render.search_json import as_rows
        from flopcast.render.search_text import as_text

        for name, path in paths.items():
            with writing(f"--{name}", path):
                if name == "plot":
                    drawn = as_svg(result) if path.suffix == ".svg" else as_html(result, as_text(result))
                    write_whole(path, drawn)
                else:
                    (write_csv if name == "csv" else write_parquet)(path, as_rows(result))
            yield path

    return write
