"""`flopcast explain`."""

import re
import shlex
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from flopcast.cli.documented_options import DocumentedOptions
from flopcast.cli.options import OF_RUN, SAMPLES, SERVING, job_options, print_found, writes_document
from flopcast.cli.suggestions import words
from flopcast.errors import MEANT, InfeasibleError, Problem, SpecError, collected, problems_of
from flopcast.files.inputs import exists
from flopcast.files.nearest_names import nearest
from flopcast.requests.checked_request import check_after
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import USUAL as USUAL_JOB
from flopcast.requests.resolve import resolve
from flopcast.requests.serving_words import serves
from flopcast.requests.words import is_model
from flopcast.spec.factor_kinds import KINDS as FACTOR_KINDS

if TYPE_CHECKING:
    from flopcast.report.explain.explanation import Explanation

option = DocumentedOptions(__name__)

NEAR = 0.75  # of letters in common, from which a word misspells the name of a number
NEAR_OPERATOR = 0.85  # the same for a name with a dot
USUAL = ("step", "mfu", "memory", "mlp", "attention", "tp_communication", "pipeline_bubble")
OF_SERVING = ("ttft", "tpot", "iteration", "cost", "goodput")


def _check(what: str, request: JobRequest) -> None:
    """Check the request, and whether its prediction contains the number WHAT."""
    from flopcast.report.labels import COMPONENTS

    known, problems = {*USUAL, *OF_SERVING, *COMPONENTS}, list[Problem]()
    is_job = exists(what) or is_model(what)
    only_predicted = serves(request) or what in known or re.search(r"[.\[]", what)
    near = [] if only_predicted else nearest(what, known, least_ratio=NEAR)
    if near and not is_job:
        because, fix = "a prediction contains no number with this name", f"did you mean {near[0]}?"
        problems.append(Problem("WHAT", what, ", ".join(sorted(known)), because, fix))
    with collected(problems):
        check_after(what, request)
    if not (problems or is_job or what in known):  # only the prediction knows all its numbers
        with collected(problems), suppress(InfeasibleError):
            _explained(what, request)
    elif problems and not (near or is_job or what in known):
        problems += _misspelt(what, request)
    if problems:
        raise SpecError(problems)


def _misspelt(what: str, request: JobRequest) -> list[Problem]:
    """Return the error of a word that names no number of a prediction, for a request whose job has errors.

    Operators and factors differ between jobs. Their names are errors only if they misspell one of a usual
    job.
    """
    from flopcast.requests.serving_request import USUAL_ENGINE

    engine = USUAL_ENGINE if serves(request) else None
    usual = JobRequest(model=USUAL_JOB["model"], gpus=8, engine=engine)
    found = problems_of(lambda: _explained(what, usual))
    differs = re.search(r"[.\[]", what) or what in FACTOR_KINDS
    kind = what.partition("[")[0]
    near = (each.fix[len(MEANT) : -1].partition("[")[:1] for each in found)
    return [
        each
        for each, name in zip(found, near, strict=True)
        if not differs or nearest(kind, name, least_ratio=NEAR_OPERATOR)
    ]


@click.command("explain")
@click.argument("what", metavar="WHAT", shell_complete=words(*USUAL, *OF_SERVING))
@job_options(
    without=OF_RUN,
    samples=SAMPLES,
    check=lambda request, others: _check(others["what"] or "", request),
    **SERVING,
)
@option("--json", "wants_json", is_flag=True)
@writes_document
def command(what: str, request: JobRequest, wants_json: bool) -> None:
    """Explain a number of a prediction: its formula, its inputs and the source of each constant.

    WHAT is "step", "mfu" or "memory"; a component of the step (mlp, tp_communication, pipeline_bubble …);
    an operator (mlp.up, attention.flash.dgrad, gradients.reduce …); an uncertain factor, such as
    "gemm_level[h100-sxm5-80gb]"; or a category of memory (memory.activations …). For any other word,
    the error message proposes the most similar of these, or lists all of them. Describe the job as for
    `predict`.

    \b
    flopcast explain step llama-3-8b --gpus 16
    flopcast explain step job.yaml
    flopcast explain mlp.up --model llama-3-8b --cluster dgx-h100:1 --plan "tp=8 gbs=32"
    flopcast explain memory.activations job.yaml plan.recompute=full --json
    flopcast explain tpot llama-3.1-70b --engine vllm --cluster dgx-h100:1

    With --engine, --traffic or --slo, WHAT is "ttft", "tpot", "iteration", "memory", "cost" (of a million
    output tokens) or "goodput", or a component or an operator of one iteration of the engine.
    """
    from flopcast.render.assumption_lines import assumption_lines
    from flopcast.render.explanation import as_json, marked_text

    if exists(what) or is_model(what):
        raise SpecError([_swapped(what, str(next(iter(request.files), "step")))])
    explanation, assumptions = _explained(what, request)
    assumed = assumption_lines(assumptions)
    print_found(explanation, wants_json, as_json, lambda found: "\n".join([marked_text(found), *assumed]))


def _explained(what: str, request: JobRequest) -> tuple["Explanation", tuple[str, ...]]:
    """Return the explanation of a number of a prediction, and the assumptions of the prediction.

    Raises
    ------
    SpecError
        The request has errors, or its prediction contains no such number.
    """
    from flopcast.api import predict, predict_serving
    from flopcast.explanations import explain
    from flopcast.requests.serving_request import answered

    if serves(request):
        served = answered(request, predict_serving)
        return explain(served, what), served.job.assumptions
    report = predict(resolve(request))
    return explain(report, what), report.assumptions


def _swapped(what: str, second: str) -> Problem:
    """Return the fault of a command line that names the job before the number.

    `second` is the word after the job: the number, if it is like a usual one or has a dot.
    """
    near = [each for each in USUAL if second.startswith(f"{each}_")] or nearest(second, USUAL)
    number = second if re.search(r"[.\[]", second) else near[0] if near else "step"
    allowed = "flopcast explain WHAT JOB, where WHAT is what to explain, such as step, mlp or memory"
    because = f"{what} is a {'file' if exists(what) else 'model'}, and the job comes after WHAT"
    rest = [word for word in sys.argv[2:] if word != second]
    return Problem("WHAT", what, allowed, because, shlex.join(["flopcast", "explain", number, *rest]))
