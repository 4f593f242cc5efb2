"""The fields of an HTTP request, and the job or search that they describe.

Answers: which fields may a request have, and which job do they describe?
Elsewhere: documents in an address (packed_documents.py), the meaning of the fields
(requests/job_request.py, requests/search_request.py).

A request names entries of the catalogue, or contains a document as text. The server never opens a path or
an address that a request names: a model, a site or a schedule is given by name or in full.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from flopcast.errors import InfeasibleError, Problem, SpecError, spec_error
from flopcast.files.yaml_text import Document
from flopcast.interop.shell.parameters import parsed_values, with_values
from flopcast.library import catalog
from flopcast.library.edits import long_names, plan_words
from flopcast.records import replace
from flopcast.requests.job_request import JobRequest, JobSource
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.resolve import resolve
from flopcast.requests.search_request import SearchRequest, question_of
from flopcast.requests.sources import is_script, refuse_values, source_of
from flopcast.requests.words import separate_changes
from flopcast.search.question import Question
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan
from flopcast.ui.packed_documents import packed, unpacked
from flopcast.ui.request_values import (
    COUNTS,
    OF_JOB,
    OF_PLAN,
    OF_SEARCH,
    OF_TRAINING,
    PLAIN,
    WHOLE,
    Words,
    checked,
    count,
    text_of,
)

_FIELD_OF = {name.replace("_", "-"): name for name in (*OF_JOB, *OF_SEARCH, "offload", "plan", "log")}
_FIELD_OF |= {"engine": "engine", "slo": "slo", "traffic": "traffic"}
_FIELD_OF |= {"objective": "objectives", "trace": "flopcast diagnose --trace"}
_OPTION = re.compile(rf"--(?<![\w-]--)({'|'.join(_FIELD_OF)})(?![\w-])")  # finds "--" fast
MOST_NAME = 100  # characters in the name of a file
Made = TypeVar("Made")


def job_from(words: Words, resolved: Callable[[JobRequest], Job] = resolve) -> Job:
    """Return the job of a request; fields of the plan that it omits are chosen, or filled in by `resolved`.

    Raises
    ------
    SpecError
        The fields have faults. All faults are reported together.
    InfeasibleError
        No plan fits.
    """
    words, problems = _stated_once(*checked(words, PLAIN))

    def made() -> Job:
        request, source = request_of(words)
        plan = _plan(words, request.devices or request.whole_cluster, own="plan" in source.document.mapping)
        return resolved(replace(request, source=source, plan=plan))

    return reported_together(problems, made)


def question_from(words: Words) -> Question:
    """Return the search of a request; fields of the plan that it states are fixed, or restricted to a
    list of values.

    Raises
    ------
    SpecError
        The fields have faults. All faults are reported together.
    """
    words, problems = _stated_once(*checked(words, (*PLAIN, *OF_SEARCH), several=("gpus", "power_limit")))
    numbers = {**words, "gpus": None, "power_limit": None}
    clusters, stacks, objectives = (
        str(words.get(name) or "").replace(",", " ").split() for name in ("cluster", "stack", "objectives")
    )
    limits = [each.strip() for each in str(words.get("power_limit") or "").split(",") if each.strip()]
    named: dict[str, Any] = {name: text_of(words, name) for name in OF_SEARCH[2:]}
    named |= {"clusters": clusters, "stacks": stacks, "power_limits": limits, "objectives": objectives}

    def made() -> Question:
        request, source = request_of(numbers)
        plan, gpus = " ".join(_stated_words(words)) or None, text_of(words, "gpus")
        job = replace(request, source=source, plan=plan, gpus=gpus)
        return question_of(SearchRequest(job=job, **named))

    return reported_together(problems, made)


def brought_from(
    name: str, text: str, cluster: str = "", gpus: str = "", arg: str = "", env: str = ""
) -> dict[str, str]:
    """Return the form fields for an uploaded file and for the machine of its job.

    Parameters
    ----------
    name, text : those of the file
    cluster : a cluster of the catalogue; "" for that of the file, or the usual one if the file names none
    gpus : number of devices; "" for as many as the file starts, or one node if the file does not say
    arg, env : arguments and environment of a launch script, "1=8 2=4" and "NNODES=4", to write into its
        text

    Raises
    ------
    SpecError
        The name or the text is missing, the type of the file is unknown, or the cluster does not exist.
    """
    if not name.strip() or len(name) > MOST_NAME or not name.isprintable():
        allowed = f"a name of at most {MOST_NAME} characters"
        because = "the ending of the file name shows the format"
        raise spec_error("name", name, allowed, because, "write config.json", "request")
    if not text.strip():
        allowed = "the text of a file"
        raise spec_error("text", text, allowed, "the file is empty", "choose another file", "request")
    if cluster and cluster not in catalog.names("clusters"):
        raise SpecError([catalog.unknown_name("clusters", cluster, "cluster", "request")])
    machine = cluster or USUAL["cluster"]
    node = catalog.cluster(machine).node.devices
    given = count({"gpus": gpus}, "gpus")
    text = _with_values(text, name, arg.split(), env.split())
    source = _read_upload(text, name, given, node)
    words = {"job": packed(f"{name}\n{text}")}
    if cluster or gpus or "cluster" not in source.document.mapping:
        words |= {"cluster": machine, "gpus": str(given or source.devices or node)}
    return words


def with_field_names(text: str) -> str:
    """Return a text with the fields of a request instead of the command line's options.

    Options without a matching field stay, with their command; flags of other software stay too.

    >>> with_field_names("--seq 4096, --power-limit 500W or --objective cost; --seq-length stays")
    'seq 4096, power_limit 500W or objectives cost; --seq-length stays'
    >>> with_field_names("give a trace (--trace)")
    'give a trace (flopcast diagnose --trace)'
    """
    return _OPTION.sub(lambda found: _FIELD_OF[found[1]], text)


def _with_values(text: str, name: str, arguments: list[str], environment: list[str]) -> str:
    """Return an uploaded script with its arguments and environment set; return any other file unchanged.

    Raises
    ------
    SpecError
        A value has a wrong form, the script does not use it, or the file is not a script.
    """
    if not is_script(text.encode(), name):
        refuse_values(JobRequest(arg=tuple(arguments), env=tuple(environment)))
        return text
    values = parsed_values(arguments, "--arg"), parsed_values(environment, "--env")
    return with_values(text.replace("\r\n", "\n"), *values) if any(values) else text


def _read_upload(text: str, name: str, given: int | None, node: int) -> JobSource:
    """Return an uploaded file for `given` devices. By default, the number of devices is the number that
    the file starts, or one node.

    Raises
    ------
    SpecError
        The file cannot be read with any of these numbers.
    """
    if given is None:
        with suppress(SpecError):  # some files can only be read where the number of devices is known
            return source_of(text.encode(), name, JobRequest())
    return source_of(text.encode(), name, JobRequest(gpus=given or node))


def request_of(words: Words) -> tuple[JobRequest, JobSource]:
    """Return a request without its plan, and its document, which is empty if there is none."""
    texts = ("model", "cluster", "stack", "price", "slow", "loader", "power_limit", *OF_TRAINING[2:])
    named: dict[str, Any] = {name: text_of(words, name) for name in texts}
    job, changes = words.get("job"), str(words.get("changes") or "").strip()
    named |= {name: count(words, name) for name in COUNTS}
    named |= {"changes": tuple(separate_changes(changes) if changes else ())}
    request = JobRequest(**named)
    if isinstance(job, Mapping) or not job:
        data = dict(job) if isinstance(job, Mapping) else {}
        return request, JobSource(document=Document("request", data, {}))
    name, _, text = unpacked(str(job)).partition("\n")
    return request, source_of(text.encode(), name, request)


def reported_together(problems: Sequence[Problem], made: Callable[[], Made]) -> Made:
    """Return what `made` returns. Its errors and `problems` are reported together.

    Raises
    ------
    SpecError
        There are problems, or `made` finds some.
    InfeasibleError
        There are no problems, but no plan fits.
    """
    try:
        result = made()
    except SpecError as found:
        raise SpecError([*problems, *found.problems]) from None
    except InfeasibleError:
        if not problems:
            raise
        raise SpecError(problems) from None
    if problems:
        raise SpecError(problems)
    return result


def _plan(words: Words, devices: int | None, *, own: bool) -> str | None:
    """Return the plan in one line, with "auto" to choose the other fields; None keeps the plan of the
    document.

    If the request states every field but `dp`, nothing is chosen and `dp` follows from the devices.
    """
    words_of_plan = _stated_words(words)
    if own and not words_of_plan:
        return None
    if devices is None or any(words.get(name) in (None, "") for name in WHOLE):
        return " ".join(["auto", *words_of_plan])
    degrees = [str(words[name]) for name in ("tp", "pp", "cp")]
    inner = math.prod(int(each) for each in degrees if each.isdecimal())
    if not words.get("dp") and inner and devices % inner == 0:
        words_of_plan = [f"dp={devices // inner}", *words_of_plan]
    return " ".join(words_of_plan)


def _stated_once(words: Words, problems: Sequence[Problem]) -> tuple[Words, list[Problem]]:
    """Return a request without fields that its plan states as well, and problems of different values."""
    names, found = long_names(Plan), list(problems)
    pairs = [word.partition("=") for word in str(words.get("plan") or "").split()]
    in_plan = {names.get(key, key): (key, value) for key, _, value in pairs}
    for name in (each for each in OF_PLAN if words.get(each) not in (None, "")):
        key, value = in_plan.get(names.get(name, name), ("", ""))
        if key and value != str(words[name]):
            allowed, because = f"{name} as a field or inside plan", f"plan states {key}={value}"
            fix = f"remove the field {name}, or {key}={value} from plan"
            found.append(Problem(name, words[name], allowed, because, fix, "request"))
    twice = {each for each in OF_PLAN if names.get(each, each) in in_plan}
    return {name: value for name, value in words.items() if name not in twice}, found


def _stated_words(words: Words) -> list[str]:
    """Return the fields of the plan that a request states, each as name=value."""
    short = [f"{name}={words[name]}" for name in OF_PLAN if words.get(name) not in (None, "")]
    rest = str(words.get("plan") or "").split()
    plan_words(" ".join([*short, *rest]), "plan")  # raises if there are faults
    return [*short, *(word for word in rest if word != "auto")]
