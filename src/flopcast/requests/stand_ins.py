"""Faults of a job whose model is unknown, or whose files cannot be read.

Answers: which further faults does such a job have, independently of the model?
Elsewhere: the faults of a job (resolve.py), faults of files (sources.py).

The job is checked with other models instead of the unknown one. Only faults that occur with all of them
count.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from flopcast.errors import Problem, SpecError, common_problems, problems_of
from flopcast.files.field_names import ARGUMENT
from flopcast.files.yaml_text import Document
from flopcast.library import catalog
from flopcast.records import replace
from flopcast.requests.graph_models import is_graph
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.stated_options import with_files

OF_DECODERS = ("model", "batch", "plan", "--")  # beginnings of fields with rules of decoders

Check = Callable[[JobRequest], object]  # raises the faults of a request


@cache
def stand_ins() -> tuple[str, ...]:
    """Return two models of the catalogue that have few common rules: a dense model, and a model with
    experts.

    >>> [catalog.model(name).has_experts for name in stand_ins()]
    [False, True]
    """
    return USUAL["model"], next(name for name in catalog.names("models") if catalog.model(name).has_experts)


def with_files_or_faults(
    document: Document, request: JobRequest, check: Check
) -> tuple[Document, JobRequest]:
    """Return what `with_files` returns.

    Raises
    ------
    SpecError
        The error of a file, with the faults of the rest of the job. Rules of decoders count only if the
        model is no exported graph.
    """
    try:
        return with_files(document, request)
    except SpecError as error:
        if request.model in stand_ins():
            raise
        model = request.model or document.mapping.get("model")
        graph = model.get("graph", "") if isinstance(model, dict) else model
        others = (replace(request, model=name, site=None, size=(), autocast=False) for name in stand_ins())
        found = common_problems([problems_of(partial(check, each)) for each in others])
        own = (each for each in found if not each.field.startswith(OF_DECODERS) or not is_graph(str(graph)))
        raise SpecError((*error.problems, *own)) from None


def faults_with_each(problems: Sequence[Problem], request: JobRequest, check: Check) -> Iterator[Problem]:
    """Yield the faults of a job with an unknown model that occur with all known models."""
    (unknown, *others) = problems
    files = tuple(each for each in request.files if each != unknown.value)
    if others or len(files) == len(request.files):
        return
    named = [str(edit[""]) for edit in unknown.edits if "" in edit]
    meant = [replace(request, files=files, model=name) for name in named or stand_ins()]
    for each in common_problems([problems_of(partial(check, each)) for each in meant]):
        if named or (each.where or each.field).startswith(
            ("--", ARGUMENT)
        ):  # a missing file may state all other parts
            yield each
