"""The options of a request, as a document with the keys of a job file.

Answers: which keys of a job does each option set, and which files does it name?
Elsewhere: the job of a document (resolve.py), options of clusters (cluster_options.py) and of training
(training_options.py).
"""

from flopcast.errors import spec_error
from flopcast.files.named_files import read_file
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.library.edits import long_names, placed
from flopcast.records import replace
from flopcast.requests.graph_models import is_graph, refuse_graph_options, stated_graph
from flopcast.requests.job_request import JobRequest
from flopcast.requests.serving_words import OF_SERVING, sent_requests
from flopcast.requests.sources import assuming, with_described_model, with_model
from flopcast.requests.training_options import (
    with_adapters,
    with_plan,
    with_plan_options,
    with_site_options,
)
from flopcast.requests.usual_values import with_usual_stack
from flopcast.requests.words import is_path
from flopcast.spec.batch import Batch

WRITTEN = ("model", "stack", "cluster", "checkpoint", "loader", *OF_SERVING)  # parts that options replace


def with_files(document: Document, request: JobRequest) -> tuple[Document, JobRequest]:
    """Return the document with the model and the site of files, and the request without this model."""
    stated = stated_graph(document) if request.model is None else None
    model = request.model or (stated.graph if stated else document.mapping.get("model"))
    if not any(is_graph(str(each)) for each in (model, *request.files[:1])):
        refuse_graph_options(request.size, request.autocast)
    if isinstance(model, str) and is_path(model):
        sizes = (*(stated.size_words if stated else ()), *request.size)
        autocast = request.autocast or (stated is not None and stated.autocast)
        document = with_model(document, model, sizes, autocast)
        request = replace(request, model=None)
    from flopcast.requests.own_files import OF_JOB, is_config

    if isinstance(model, dict):  # of a config.json, below the key model
        lines = {path[1:]: line for path, line in document.lines.items() if path[:1] == ("model",)}
        config = Document(document.name, model, lines)
        document = with_described_model(document, config) if is_config(config) else document
    if isinstance(request.traffic, str) and (sent := sent_requests(request.traffic, model)):
        document = assuming(document, tuple(sent.mapping["assumptions"]))
        limits = request.slo or sent.mapping.get("slo")
        request = replace(request, traffic=sent.mapping["traffic"], slo=limits)
    if request.site is not None:
        given = read_yaml(read_file(request.site), str(request.site))
        if given.mapping.keys() & {"model", *OF_JOB}:
            allowed, because = "a file of flopcast calibrate from-run", "the file describes a job"
            fix, fault = "choose a site file for --site", "is a job file, not a site file"
            raise spec_error(str(request.site), None, allowed, because, fix, fault=fault)
        document = placed(document.with_part("site", given.data), ("site",), given.name, given)
    return document, request


def with_options(document: Document, request: JobRequest, devices: int | None = None) -> Document:
    """Return the document with the parts that options state. `devices` is the number in a launch script."""
    data = dict(document.mapping)
    for key in WRITTEN:
        if (value := getattr(request, key)) is not None:
            data[key] = value
            document = placed(document, (key,), f"--{key}")
    of_batch = {"seq": "sequence_length", "images": "images", "inference": "forward_only"}
    for option, name in of_batch.items():
        value = getattr(request, option)
        if value is not None and value is not False:
            data["batch"] = _others(data.get("batch"), name) | {name: value}
            document = placed(document, ("batch", name), f"--{option}")
    return with_plan(replace(document, data=data), request, devices)


def with_training_options(document: Document, request: JobRequest) -> Document:
    """Return the document with the options of a site, of a plan and of adapters."""
    document = with_site_options(with_plan_options(document, request), request)
    return with_adapters(document, request, anew=True)


def with_changed_stack(document: Document, request: JobRequest) -> Document:
    """Return the document with the usual stack if no stack is named, but a field of the stack is
    changed.
    """
    names = {change.partition("=")[0] for change in request.changes}
    changed = any(name.startswith("stack.") for name in names) and not names & {"stack", "stack.base"}
    return with_usual_stack(document) if changed and "stack" not in document.mapping else document


def _others(batch: object, name: str) -> dict[str, object]:
    """Return what a batch states in addition to one of its fields."""
    if not isinstance(batch, dict):
        return {}
    long = long_names(Batch)
    return {key: value for key, value in batch.items() if long.get(key, key) != name}
