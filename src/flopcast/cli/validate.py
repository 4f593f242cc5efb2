"""`flopcast validate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.file_types import InputFile
from flopcast.cli.options import PAGE, print_found, print_json
from flopcast.cli.output_files import write_output
from flopcast.cli.progress import WRONG_INPUT, OfRuns
from flopcast.cli.terminal import print_text
from flopcast.cli.validate_machine import machine_of, takes_machine
from flopcast.cli.validate_measured import print_measured
from flopcast.cli.validate_options import OPTIONS, Judging, ignored, reads_tables, takes_constants
from flopcast.errors import Problem, SpecError

option = DocumentedOptions(__name__)

SUITES = ("paper", "sc21", "korthikanti", "headlines")
OF_MEMORY = ("memory",)
ALL_SUITES = (*SUITES, *OF_MEMORY)
NEEDS_ALL = "the constants are fitted to all runs at once, so there is no partial result"
EXAMPLES = """\b
flopcast validate
flopcast validate --suite paper --json
flopcast validate --runs published_runs.csv --leave-one-source-out"""


@click.command("validate", epilog=EXAMPLES)
@option("--suite", "suites", multiple=True, type=click.Choice(ALL_SUITES))
@option("--runs", "runs", multiple=True, type=InputFile())
@option("--report", type=PAGE)
@option("--leave-out", "left_out", metavar="SOURCE")
@takes_constants
@takes_machine
@option("--decisions", "decides", is_flag=True)
@option("--from-one-run", "calibrates", is_flag=True)
@option("--json", "wants_json", is_flag=True)
@option("--markdown", "wants_markdown", is_flag=True)
@reads_tables
def command(
    suites: tuple[str, ...],
    runs: tuple[str, ...],
    decides: bool,
    calibrates: bool,
    wants_json: bool,
    wants_markdown: bool,
    report: Path | None,
    left_out: str | None,
    device: str | None,
    precision: str | None,
    software: str | None,
    **chosen: bool,
) -> None:
    """Predict runs that others measured, and report the error of each prediction.

    By default, flopcast predicts these suites of runs:

    \b
    paper        ten runs of arXiv:2509.22832, with the time of each component of the step
    sc21         Table 1 of arXiv:2104.04473
    korthikanti  Table 5 of arXiv:2205.05198
    headlines    runs of arXiv:2104.04473 and arXiv:2504.14960, and GPT on V100
    memory       peak memory of Llama-3 70B and DeepSeek-V2, with fewer layers, on 8 B200

    The option --runs reads tables (CSV or YAML), and detects which kind of measurements they contain:

    \b
    - training runs: each row has model, hardware, plan, software and step time of one run
    - training steps that the authors of vTrain or SimuMax measured
    - functional tests of Megatron-LM, with the memory that is allocated after a step
    - latencies and throughputs of serving engines
    - training steps with the optimizer states on the host or on drives
    - models other than decoders: tables of timm, NeuSight, ML.ENERGY and MLPerf Training

    For a table of timm, set --device, --precision and --software, unless its file name states them.

    Predictions of tables use the constants of the catalogue, which were fitted to published runs. If you
    give one of the options --leave-..., flopcast refits the constants without the runs that it predicts.
    Predictions of suites use no fitted constants. With --leave-one-source-out, predictions of suites use
    the constants of the catalogue, which were fitted to other sources. The suite korthikanti does not
    support --leave-one-source-out: flopcast does not refit constants for suites, and the constants of the
    catalogue were fitted to the runs of this suite.

    The option --decisions compares plans of the same model on the same cluster. It reports whether flopcast
    ranks the plans in the measured order, and how much slower the recommended plan is than the fastest
    measured plan.

    The option --from-one-run predicts each run three times: without calibration, after a calibration with
    one other run of the same cluster, and after a calibration with all other runs of this cluster.
    """
    names: Any = tuple(name for name, given in chosen.items() if given)
    measured_on = machine_of(device, precision, software)
    judging = Judging(left_out=left_out, report=report, chosen=names, measured_on=measured_on)
    if calibrates:
        return print_from_one_run(runs, judging, wants_json, wants_markdown)
    if decides:
        named = suites or (() if runs else SUITES)
        return print_decisions(named, runs, judging, wants_json, wants_markdown)
    print_comparison(suites, runs, judging, wants_json, wants_markdown)


def print_comparison(
    suites: Sequence[str], runs: Sequence[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> None:
    """Print the measurements and predictions of suites or tables, by default of all suites.

    An interrupt ends the predictions, and the command prints the finished predictions.
    """
    from flopcast.accuracy import (
        holds_functional_tests,
        rows_of_suite,
        validate_memory,
        validate_runs,
        watched_suite,
    )
    from flopcast.render.suite_comparison import (
        Tables,
        as_json,
        as_markdown,
        marked_text,
        memory_as_json,
        memory_as_markdown,
        memory_as_text,
    )

    if print_measured(runs, judging, wants_json):
        return
    chosen = () if runs else suites or ALL_SUITES
    of_memory = [path for path in runs if holds_functional_tests(path)]
    published = [path for path in runs if path not in of_memory]
    if not published:
        judging.check()
        judging.refuse(of_suites=any(name in SUITES for name in suites))
    with OfRuns(sum(rows_of_suite(name, of_memory=name in OF_MEMORY) for name in chosen)) as watch:
        tables: Tables = {name: (validate_memory(name, watch), {}) for name in chosen if name in OF_MEMORY}
        compared = [
            watched_suite(name, judging.of_suites, watch)
            for name in chosen
            if name in SUITES and not watch.interrupted
        ]
    compared = [suite for suite in compared if suite.rows]
    tables |= {path: validate_runs(path) for path in of_memory}
    published_json: dict[str, object] = {}
    has_predictions = True
    if published:
        watch = OfRuns(whole="" if judging.is_one_pass else NEEDS_ALL)
        published_json, has_predictions = published_runs(
            published, judging, watch, wants_json, wants_markdown
        )
    if not wants_markdown and not wants_json:
        texts = [memory_as_text(name, *data) for name, data in tables.items()]
        for text in (*texts, *map(marked_text, compared)):
            print_text(f"{text}\n")
    if wants_markdown:
        click.echo((as_markdown(compared) if compared else "") + memory_as_markdown(tables), nl=False)
    if wants_json:
        data = as_json(compared) | published_json
        print_json(data | {"memory": memory_as_json(tables)} if tables else data)
    watch.end()
    if not has_predictions:
        click.get_current_context().exit(WRONG_INPUT)


def published_runs(
    paths: list[str], judging: Judging, watch: OfRuns, wants_json: bool, wants_markdown: bool
) -> tuple[dict[str, object], bool]:
    """Print the results of tables of published runs, or return them as JSON data under "published".

    The second value states whether any row could be predicted.

    Parameters
    ----------
    paths : list of str
    judging : Judging
        Constants to use, sources to leave out, and the page to write.
    watch : OfRuns
        Shows the progress. After an interrupt, the finished predictions are kept.
    wants_json, wants_markdown : bool
        Other forms of the output than text.
    """
    from flopcast.accuracy import validate_published
    from flopcast.render.published_tables import runs_as_json, runs_as_markdown
    from flopcast.render.published_text import runs_as_text

    judging.check()
    with watch:
        published = validate_published(paths, judging.constants, judging.sources, watch)
    if judging.report is not None:
        from flopcast.render.published_page import runs_as_html

        write_output("--report", judging.report, runs_as_html(published))
    has_predictions = bool(published.rows) or not published.left_out
    if wants_json:
        return {"published": runs_as_json(published)}, has_predictions
    if wants_markdown:
        click.echo(runs_as_markdown(published))
    else:
        print_text(runs_as_text(published))
    return {}, has_predictions


def print_decisions(
    suites: Sequence[str], paths: Sequence[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> None:
    """Print how well flopcast chooses plans in the sweeps of tables and suites.

    Raises
    ------
    SpecError
        An option does not apply to sweeps.
    """
    from flopcast.accuracy import validate_decisions
    from flopcast.render.decisions import decisions_as_json, decisions_as_markdown, decisions_as_text

    because = "--decisions prints only text, JSON or Markdown"
    page = "no value together with --decisions"
    of_steps, suite = (
        "only a suite of step times together with --decisions",
        "memory" if "memory" in suites else None,
    )
    problems = [
        *ignored({"--report": judging.report}, page, because, f"remove --report {judging.report}"),
        *ignored({"--suite": suite}, of_steps, because, "remove --suite memory"),
    ]
    if problems:
        raise SpecError(problems)
    judging.check()
    if not paths:
        judging.refuse()
    ways = judging.ways if paths else ()
    with OfRuns(whole=NEEDS_ALL) as watch:
        judged = validate_decisions(paths, suites, ways, judging.sources, watch)
    as_text = decisions_as_markdown if wants_markdown else decisions_as_text
    print_found(judged, wants_json, decisions_as_json, as_text, is_page=wants_markdown)


def print_from_one_run(
    paths: Sequence[str], judging: Judging, wants_json: bool, wants_markdown: bool
) -> None:
    """Print how much the runs of a machine help to predict its other runs.

    Raises
    ------
    SpecError
        There is no table, or an option chooses constants that do not apply.
    """
    from flopcast.accuracy import validate_published
    from flopcast.lab.validation.from_one_run import calibrated
    from flopcast.render.from_one_run_tables import (
        from_one_run_as_json,
        from_one_run_as_markdown,
        from_one_run_as_text,
    )

    given: dict[str, object] = {"--leave-out": judging.left_out, "--report": judging.report}
    given |= {OPTIONS[name]: "given" for name in judging.chosen if name not in ("others", "none")}
    allowed = "together with --from-one-run, only --leave-one-source-out or --no-constants"
    because = "predictions before the calibration use either the constants of other sources or no constants"
    problems = ignored(given, allowed, because, "remove {}")
    if not paths:
        allowed = "a table of published runs"
        because, fix = "the suites contain too few runs of the same machine", "add --runs TABLE.csv"
        problems.append(Problem("--runs", None, allowed, because, fix, fault="is missing"))
    if problems:
        raise SpecError(problems)
    judging.check()
    without = "none" in judging.chosen
    with OfRuns(whole=NEEDS_ALL) as watch:
        published = validate_published(paths, "none" if without else "others", (), watch)
    as_text = from_one_run_as_markdown if wants_markdown else from_one_run_as_text
    found = calibrated(published.rows)
    print_found(found, wants_json, from_one_run_as_json, as_text, is_page=wants_markdown)
