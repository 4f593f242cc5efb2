"""`flopcast predict`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flopcast.cli import options
from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.file_types import OutputFile
from flopcast.cli.output_files import write_output, writing
from flopcast.cli.terminal import print_text
from flopcast.errors import spec_error
from flopcast.files.yaml_text import Document
from flopcast.records import replace
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import resolve
from flopcast.requests.rl_request import rl_document
from flopcast.requests.serving_words import serves, states_traffic

option = DocumentedOptions(__name__)

LENGTHS = ("prompt_tokens", "output_tokens", "trace")  # fields of a traffic that state lengths

if TYPE_CHECKING:
    from flopcast.report.report import Report
    from flopcast.serving.serving_report import ServingReport


def _check(request: JobRequest, others: Mapping[str, Any]) -> None:
    """Check the job of a request, and the log beside it."""
    from flopcast.errors import SpecError, problems_of
    from flopcast.requests.checked_request import check_request

    log = None if serves(request) else others["log"]
    if found := [*problems_of(lambda: _log_reader(log)), *problems_of(lambda: check_request(request))]:
        raise SpecError(found)


TRACE = OutputFile(  # anything but JSON is written in the format of Perfetto
    *(".json", ".pftrace", ".perfetto-trace", ".pb", ""),
    because="flopcast predict writes the predicted trace here; flopcast diagnose reads a measured trace",
)


@click.command("predict")
@options.job_options(check=_check, **options.SERVING)
@option("--log", type=options.INPUT)
@option("--json", "wants_json", is_flag=True)
@option("--allow-unknown", is_flag=True)
@option("--report", type=options.PAGE)
@option("--trace", type=TRACE)
@options.writes_document
def command(
    request: JobRequest,
    log: Path | None,
    wants_json: bool,
    allow_unknown: bool,
    report: Path | None,
    trace: Path | None,
) -> None:
    """Predict one training step of a job, or how an engine serves requests.

    The command prints the step time with its 90 % interval, tokens per second, MFU, memory, a breakdown of
    the step time, and the measurements behind these numbers. Describe the job by the name of a model, a
    YAML or JSON file, a launch script of Megatron-LM, or options. If you give a file, options replace parts
    of the job (such as its cluster), and KEY=VALUE changes a single field. If you give no plan (parallel
    degrees and batch sizes), flopcast chooses one and prints it. If you give the length of the training run
    (--tokens, or --samples and --epochs), the report also states the time and cost of the whole run. The
    report ends with a list of all assumptions.

    \b
    flopcast predict llama-3-8b --gpus 16
    flopcast predict llama-3-8b --gpus 64 --tokens 2T
    flopcast predict llama-3-8b --gpus 8 --lora 16 --samples 52k --epochs 3 --seq 1024
    flopcast predict --model ./config.json --cluster dgx-h100 --gpus 64
    flopcast predict run.sh --cluster dgx-h100 --gpus 512 --log train.log
    flopcast predict job.yaml
    flopcast predict rl.yaml training.cluster=dgx-b200:2
    flopcast predict job.yaml plan.tensor_parallel=4 plan.data_parallel=16
    flopcast predict --model gpt3-175b --cluster selene --gpus 1024 --stack megatron-2022 \\
        --plan "dp=16 tp=8 pp=8 mbs=1 gbs=1536 recompute=full precision=fp16" --json
    """
    from flopcast.api import diagnose, predict, report_page
    from flopcast.plans_that_fit import CHANGES_THAT_FIT
    from flopcast.render.fit_advice import fit_advice
    from flopcast.render.report_json import as_json
    from flopcast.render.report_text import marked_text

    if (step := rl_document(request)) is not None:
        _predict_rl(step, wants_json, report, {"--log": log, "--trace": trace})
        return
    if serves(request):
        _predict_serving(request, wants_json, log, report, trace)
        return
    log_text, log_json = _log_reader(log)
    made = predict(resolve(request))
    _check_unknown_operators(made, allow_unknown)
    changes, told = fit_advice(made.job, made.memory, CHANGES_THAT_FIT)
    if wants_json:
        options.print_json(as_json(made) | told | log_json(made))
    else:
        print_text(marked_text(made, changes, _helpful(made)) + log_text(made))
    if report is not None:
        page = report_page(made if log is None else diagnose(made.job, log))
        write_output("--report", report, page)
    if trace is not None:
        _write_trace(made, trace)


def _helpful(made: "Report") -> list[str]:
    """Return lines about the setting whose change saves the most time; none if the job does not fit.

    A change of the plan that may not fit is left out if the report already offers the fastest plan of this
    kind.
    """
    from flopcast.api import predict
    from flopcast.lab.diagnosis.settings import OF_PLAN, best_change
    from flopcast.render.diagnosis import most_helpful
    from flopcast.render.trained_text import leading_assumptions

    if made.memory.verdict == "does not fit":
        return []
    best = best_change(made, predict)
    offered = any(word == "faster" for word, _ in leading_assumptions(made.job))
    if offered and best is not None and best.is_tight and best.name in OF_PLAN:
        return []
    head = "what else would help" if offered else "what would help most"
    return most_helpful(best, made.step_time_s, head)


def _write_trace(made: "Report", path: Path) -> None:
    from flopcast.interop.exports.trace_files import write_trace

    with writing("--trace", path):
        write_trace(made, path)
    click.echo(f"wrote {path}: open it in ui.perfetto.dev", err=True)


def _check_unknown_operators(made: "Report", allowed: bool) -> None:
    """Refuse a step that consists mostly of unknown operators, or say that --allow-unknown is not needed.

    Raises
    ------
    SpecError
        Unknown operators take a large part of the step, and the option is not given.
    """
    from flopcast.report.unknown_operators import needless_option_note, unknown_fault

    fault = unknown_fault(made.breakdown, made.step_time_s)
    if fault is not None and not allowed:
        raise fault
    if fault is None and allowed:
        click.echo(needless_option_note(made.breakdown, made.step_time_s), err=True)


def _predict_rl(
    document: Document, wants_json: bool, report: Path | None, files: dict[str, Path | None]
) -> None:
    """Print the prediction of a step of reinforcement learning, and write its page.

    Raises
    ------
    SpecError
        The file has faults, or an output of one job is asked for.
    """
    from flopcast.api import predict_rl, report_page
    from flopcast.render.rl_text import as_json, marked_text

    if given := [name for name, path in files.items() if path is not None]:
        allowed, because = (
            "no value, because the file describes a step of reinforcement learning",
            "such a step consists of a rollout and a training job, and the option applies to a single job",
        )
        raise spec_error(given[0], str(files[given[0]]), allowed, because, f"remove {given[0]}")
    made = predict_rl(document)
    options.print_found(made, wants_json, as_json, marked_text)
    if report is not None:
        write_output("--report", report, report_page(made))


def _predict_serving(
    request: JobRequest, wants_json: bool, log: Path | None, report: Path | None, trace: Path | None
) -> None:
    """Print the prediction of a serving job, and write its page and its trace.

    Raises
    ------
    SpecError
        The job has faults, or an option of training is given beside it.
    """
    from flopcast.api import predict_serving, report_page
    from flopcast.render import serving_json, serving_text
    from flopcast.requests.serving_request import answered

    if trace is not None and trace.suffix != ".json":
        allowed = "a file that ends with .json"
        because = "traces of serving are written in Chrome's format only"
        raise spec_error("--trace", str(trace), allowed, because, f"write {trace.stem}.json")
    if log is None:
        made = answered(request, predict_serving)
        measured_text, measured_json = "", dict[str, object]()
    else:
        made, measured_text, measured_json = _measured(request, log)
    if wants_json:
        options.print_json(serving_json.as_json(made) | measured_json)
    else:
        print_text(serving_text.marked_text(made) + measured_text)
    if report is not None:
        write_output("--report", report, report_page(made))
    if trace is not None:
        from flopcast.interop.exports.serving_trace import write_serving_trace

        with writing("--trace", trace):
            write_serving_trace(made, trace)
        click.echo(f"wrote {trace}: open it in ui.perfetto.dev", err=True)


def _measured(request: JobRequest, log: Path) -> tuple["ServingReport", str, dict[str, object]]:
    """Return the prediction of a measured run, and the measured numbers beside it, as text and as JSON.

    Every request is judged, as benchmarks do. The model is that of the result if the user states none, and
    so are the requests, or at least their lengths.
    """
    from flopcast.api import predict_serving
    from flopcast.lab.benchmark_results.formats import read_result_file
    from flopcast.lab.benchmark_results.result import compare_with_result
    from flopcast.library import catalog
    from flopcast.library.traffic_text import traffic_words
    from flopcast.render.result_comparison import as_json, marked_text
    from flopcast.requests.serving_request import answered

    result = read_result_file(log)
    if request.model is None and not request.files and catalog.known("models", result.model):
        request = replace(request, model=result.model)
        result = replace(result, notes=(f"the file names the model {result.model}", *result.notes))
    if result.traffic and not states_traffic(request):
        request = replace(request, traffic=dict(result.traffic))
        result = replace(result, notes=("the file already contains the traffic", *result.notes))
    elif result.traffic:
        own = traffic_words(request.traffic) if isinstance(request.traffic, str) else {"trace": ""}
        lengths = {key: value for key, value in result.traffic.items() if key in LENGTHS[:2]}
        kept = {} if own.keys() & set(LENGTHS) else lengths
        request = replace(request, traffic=kept | own) if kept else request
        result = replace(result, notes=("the file already contains the lengths of requests",) * bool(kept))
    made = answered(request, lambda job: predict_serving(job, leave_out_share=0.0))
    rows = compare_with_result(made, result)
    return made, f"\n\n{marked_text(result, rows)}", {"measured": as_json(result, rows)}


def _log_reader(
    path: Path | None,
) -> tuple[Callable[["Report"], str], Callable[["Report"], dict[str, object]]]:
    """Return two functions that compare a report with a log, as text and as JSON.

    Both return nothing if there is no log. The log is read before the prediction, so that a wrong log
    is reported at once.
    """
    if path is None:
        return lambda _: "", lambda _: {}
    from flopcast.lab.logs.prediction_check import compare_with_log
    from flopcast.lab.logs.reader import read_log_file
    from flopcast.render.log_comparison import as_json, marked_text

    log = read_log_file(path)
    return (
        lambda report: f"\n\n{marked_text(compare_with_log(report, log))}",
        lambda report: {"measured": as_json(compare_with_log(report, log))},
    )
