"""Whether a request serves or trains, and the requests of a benchmark that it names.

Answers: does a request have parts that only serving has, and does a plan have words of other software?
Elsewhere: the serving job that the request describes (serving_request.py).
"""

import re
from collections.abc import Collection
from pathlib import Path

from flopcast.errors import Problem, SpecError, problems_of, spec_error
from flopcast.files.inputs import exists
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import Document
from flopcast.library.edits import long_names
from flopcast.library.traffic_text import traffic_words
from flopcast.records import replace
from flopcast.requests.corrected_source import source_and_faults
from flopcast.requests.graph_models import is_graph
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import COMMAND, reader_in
from flopcast.requests.words import SCRIPTS, is_command, with_named_model
from flopcast.spec.plan import Plan

OF_SERVING = ("engine", "traffic", "slo")
OF_TRAINING_JOBS = ("stack", "batch", "run", "checkpoint", "loader")  # keys of files


def states_traffic(request: JobRequest) -> bool:
    """Return whether an option, a change or the file of a request states which requests are served."""
    if request.traffic is not None or any(change.startswith("traffic") for change in request.changes):
        return True
    return "traffic" in _keys(request)


def serves(request: JobRequest) -> bool:
    """Return whether a request asks for serving: by an option, a change, or a key of its file."""
    if any(getattr(request, name) is not None for name in OF_SERVING):
        return True
    if any(change.partition("=")[0].partition(".")[0] in OF_SERVING for change in request.changes):
        return True
    return not set(_keys(request)).isdisjoint(OF_SERVING)


def is_training_job(request: JobRequest) -> bool:
    """Return whether the file of a request has keys that only a training job has."""
    return not set(_keys(request)).isdisjoint(OF_TRAINING_JOBS)


def refuse_options_of_serving(request: JobRequest) -> None:
    """Check that options of serving are not given with the file of a training job.

    Raises
    ------
    SpecError
        The error lists each such option.
    """
    keys = set(_keys(request))
    training = [key for key in OF_TRAINING_JOBS if key in keys]
    given = [name for name in OF_SERVING if getattr(request, name) is not None]
    if not training or not given or not keys.isdisjoint(OF_SERVING):
        return
    names = " and ".join(training)
    because = f"the option applies to serving, but the file has {names}, so it describes a training job"
    raise SpecError(
        Problem(
            f"--{name}",
            getattr(request, name),
            "no value, because the file describes a training job",
            because,
            f"remove --{name}, or give the file of a serving job",
        )
        for name in given
    )


def _keys(request: JobRequest) -> Collection[object]:
    """Return the keys in the files of a request; a file that cannot be read counts as empty here.

    An exported graph is a model and has no other keys. It may be large, so that it is not read for them.
    """
    if request.source is None and request.files and is_graph(request.files[0]):
        return ()
    try:
        source = request.source or source_and_faults(with_named_model(request))[0]
    except SpecError:
        return ()
    return source.document.data.keys() if isinstance(source.document.data, dict) else ()


def sent_requests(traffic: str, model: object) -> Document | None:
    """Return the requests that a benchmark sends, if a traffic names its command or the script with it.

    Raises
    ------
    SpecError
        The script starts no benchmark, or the flags of the benchmark have faults.
    """
    script = Path(traffic).suffix in SCRIPTS
    if not script and not is_command(traffic):
        return None
    from flopcast.interop.serving.launch import LaunchText
    from flopcast.interop.serving.sources import serving_command

    raw, name = (read_file(Path(traffic)), traffic) if script else (traffic.encode(), COMMAND)
    found = serving_command(LaunchText(raw=raw, name=name), reader_in(Path(name).parent), str(model))
    if found is None or "traffic" not in found.mapping:
        allowed, because = "the command of a benchmark, or a script with it", "no command sends requests"
        fix = 'give the script of the benchmark, or write --traffic "rate=4/s"'
        raise spec_error("--traffic", traffic, allowed, because, fix)
    return found


def refuse_other_words(words: dict[str, object], document: Document) -> None:
    """Raise an error for words of other software for the format of weights, for drafting and for pools.

    Raises
    ------
    SpecError
        The error lists each such word, with the edit that has the same meaning.
    """
    problems = []
    from flopcast.files.other_forms import OTHER_VALUES

    for name, value in words.items():
        if name in ("precision", "quantization"):
            right = OTHER_VALUES.get(str(value), value)
            allowed, because = f"weights={right}", "weights and the KV cache have separate formats"
        elif name == "drafting" and isinstance(value, str):
            allowed, because = f"draft={value}", "the method of drafting is stated as draft"
        elif name in ("prefill", "decode") and not (value is None or isinstance(value, dict)):
            has_both = words.keys() >= {"prefill", "decode"} and isinstance(value, int)
            allowed = f"{name}.tp={value}" if has_both else "prefill.tp=2 decode.tp=4"
            because = "the degrees and the number of replicas of a pool are separate settings"
        else:
            continue
        where = document.where(("plan", name))
        fix = f'write "{allowed}"'
        if where[-1:].isdigit() and " " not in allowed:  # in a file
            fix = f"write {allowed.replace('=', ': ')} in place of {name}"
        problems.append(Problem(f"plan.{name}", value, allowed, because, fix, where))
    if problems:
        raise SpecError(problems)


def nested_pools(words: object) -> object:
    """Return words with those of a pool, "decode.tp", in a mapping of their own."""
    if not isinstance(words, dict):
        return words
    found: dict[str, object] = {}
    for name, value in words.items():
        pool, dot, word = str(name).partition(".")
        inner = found.setdefault(pool, {}) if dot else None
        if isinstance(inner, dict):
            inner[word] = value
        else:
            found[str(name)] = value
    return found


def as_written(problem: Problem, plan: str) -> Problem:
    """Return the error of a word that only plans of training have, under the name that the plan states.

    >>> unknown = Problem("plan.global_batch", 64, "", "", "remove global_batch")
    >>> print(as_written(unknown, "tp=2 gbs=64").fix, as_written(unknown, "global_batch=64").fix, sep="; ")
    remove gbs; remove global_batch
    """
    name = problem.field.removeprefix("plan.")
    short = next((key for key, long in long_names(Plan).items() if long == name), "")
    if not short or problem.fix != f"remove {name}" or not re.search(rf"\b{short}\b", plan) or name in plan:
        return problem
    return replace(problem, field=f"plan.{short}", fix=f"remove {short}")


def traffic_of_text(text: str, where: str, *, opens_files: bool) -> dict[str, object]:
    """Return the fields of a traffic in one line.

    Raises
    ------
    SpecError
        As for `traffic_words`. If the text is only the name of a trace, the error lists its errors, too.
    """
    try:
        return traffic_words(text, where)
    except SpecError as error:
        if not (opens_files and f"trace={text}" in error.problems[0].fix and exists(text)):
            raise
        from flopcast.interop.request_traces.reader import read_request_trace  # only this error needs it

        of_trace = problems_of(lambda: read_request_trace(Path(text)))
        raise SpecError((*error.problems, *of_trace)) from None
