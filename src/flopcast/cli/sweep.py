"""`flopcast sweep`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.executors import executor_and_ledger, takes_workers
from flopcast.cli.options import INPUT, OUTPUT, further_problems, print_json
from flopcast.cli.progress import BROKEN_OFF, INFEASIBLE, OfSweep, broken_off
from flopcast.cli.terminal import print_text

if TYPE_CHECKING:
    from flopcast.errors import Problem

option = DocumentedOptions(__name__)

TIMES = ("seconds", "screened_per_s")  # how long a search took; omitted, so that answers are reproducible
SHORT = {"sequence_length": "seq"}


def _problems_of_grid(named: Mapping[str, Any]) -> "list[Problem]":
    """Return the errors of the file, which do not depend on the options."""
    from flopcast.cli.sweep_file import scenarios_of
    from flopcast.errors import problems_of

    grid = named["grid"]
    return problems_of(lambda: scenarios_of(grid)) if grid is not None else []


@click.command("sweep")
@click.argument("grid", type=INPUT, metavar="GRID.yaml")
@takes_workers
@option("--top", type=click.IntRange(min=1), default=1, show_default=True)
@option("--json", "wants_json", is_flag=True)
@option("--csv", type=OUTPUT)
@further_problems(_problems_of_grid)
def command(grid: Path, top: int, wants_json: bool, csv: Path | None, **workers: object) -> None:
    """Find the best plan for each scenario of a grid.

    In GRID.yaml, model, cluster, gpus, sequence_length, stack and plan can be lists. Each combination of
    their values is a scenario. The fields objective, tokens, deadline, budget, headroom, price and site
    apply to all scenarios. If no plan is feasible, the exit code is 2.

    \b
    flopcast sweep grid.yaml
    flopcast sweep grid.yaml --workers 4 --ledger sweep.sqlite --csv answers.csv

    \b
    model: [llama-3-8b, llama-3-70b]
    cluster: [dgx-a100, dgx-h100]
    gpus: 64..256
    sequence_length: [4096, 8192]
    plan: "gbs=512 cp=1"
    objective: tokens_per_s
    """
    from flopcast.cli.sweep_file import scenarios_of
    from flopcast.files.tables import write_csv
    from flopcast.render.error_json import no_plan
    from flopcast.render.plain_data import FORMAT_VERSION
    from flopcast.render.search_json import as_json
    from flopcast.workers.run import run
    from flopcast.workers.search_tasks import search_of

    scenarios = scenarios_of(grid)
    searches = [search_of(one.question, str(place)) for place, one in enumerate(scenarios)]
    watch = OfSweep(len(searches), sum(search.num_plans for search in searches))
    answers: dict[int, dict[str, Any]] = {}
    try:
        with executor_and_ledger(searches, **workers) as (executor, ledger):
            for place, result in run(searches, executor, ledger, watch):
                data = as_json(result, top, 0, 0)
                fields = {key: value for key, value in data.items() if key not in TIMES}
                answers[place] = scenarios[place].words | fields
                watch.answers += 1
    except KeyboardInterrupt:
        pass  # the scenarios that are finished are still printed
    finally:
        watch.clear()
    ordered, partial = [answers[place] for place in sorted(answers)], len(answers) < len(searches)
    feasible = any(answer["plans"] for answer in ordered)
    if wants_json:
        answered = {"format_version": FORMAT_VERSION, "partial": partial, "scenarios": ordered}
        missing = {} if feasible or partial else no_plan("no scenario has a feasible plan")
        print_json(answered | missing)
    else:
        print_text(marked_text(ordered))
    if csv is not None:
        write_csv(csv, [as_row(answer) for answer in ordered])
        click.echo(f"wrote {csv}", err=True)
    if partial:
        finished = f"{len(answers)} of {len(searches)} scenarios are finished"
        click.echo(broken_off(finished, workers["ledger"]), err=True)
        click.get_current_context().exit(BROKEN_OFF)
    if not feasible:
        click.get_current_context().exit(INFEASIBLE)


def as_row(answer: Mapping[str, Any]) -> dict[str, object]:
    """Return one scenario as a flat row: settings, counts, the recommended plan (empty if none fits)."""
    from flopcast.cli.sweep_file import AXES

    kept = (
        "short", "devices", "step_time_s", "low_s", "high_s", "tokens_per_s", "peak_memory_bytes",
        "memory_verdict", "cost_usd_per_1e12_tokens",
    )  # fmt: skip
    best = answer["plans"][0] if answer["plans"] else {}
    settings = {f"asked_{name}" if name in ("gpus", "plan") else name: answer[name] for name in AXES}
    counts = {name: answer[name] for name in ("candidates", "possible", "feasible", "played")}
    why = best.get("why") or next((one["why"] for one in answer["nearest_infeasible"]), "")
    losses = {name: best.get("objectives", {}).get(name) for name in answer["objectives"]}
    return {**settings, **counts, **losses, **{name: best.get(name) for name in kept}, "why": why}


def marked_text(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per scenario, with the values that vary, and the recommended plan or the reason
    why no plan fits.
    """
    from flopcast.cli.sweep_file import AXES
    from flopcast.render import terminal
    from flopcast.render.tables import aligned
    from flopcast.units import show, show_memory, show_seconds

    several = [name for name in AXES if len({str(answer[name]) for answer in answers}) > 1]
    names = (SHORT.get(name, name) for name in several)
    rows = [[*names, "step", "90 %", "rate", "expected memory", "plan"]]
    for answer in answers:
        row = [str(answer[name]) for name in several]
        if not answer["plans"]:
            near = answer["nearest_infeasible"]
            why = next((f"the closest plan {one['why']}" for one in near), "no plan exists")
            rows.append([*row, "–", "", "", "", terminal.bad(f"none is feasible: {why}")])
            continue
        best = answer["plans"][0]
        step_s = best["step_time_s"]
        bounds = f"{show_seconds(best['low_s'], step_s)} to {show_seconds(best['high_s'], step_s)}"
        row += [terminal.answer(show_seconds(step_s)), terminal.aside(bounds)]
        tight = "" if best["memory_verdict"] == "fits" else f" {best['memory_verdict']}"
        memory = show_memory(best["expected_memory_bytes"]) + terminal.caution(tight)
        row += [show(best["tokens_per_s"], "tokens/s"), memory, best["short"]]
        rows.append(row)
    plans = sum(answer["candidates"] for answer in answers)
    if not answers:
        return "no scenario is finished"
    counts = f"{len(answers)} scenario{'s' if len(answers) > 1 else ''}, {plans} plans"
    return "\n".join([counts, "", *aligned(rows)])
