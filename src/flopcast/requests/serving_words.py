"""Whether a request serves or trains.

Answers: does a request have a part that only serving has?
Elsewhere: the serving job that it describes (serving_request.py), which loads more.
"""

from collections.abc import Collection

from flopcast.errors import SpecError
from flopcast.requests.graph_models import is_graph
from flopcast.requests.job_request import JobRequest
from flopcast.requests.sources import read_source
from flopcast.requests.words import with_named_model

OF_SERVING = ("engine", "traffic", "slo")


def states_traffic(request: JobRequest) -> bool:
    """Return whether an option, a change or the file of a request says which requests are served."""
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


def _keys(request: JobRequest) -> Collection[object]:
    """Return the keys in the files of a request; a file that cannot be read counts as empty here.

    An exported graph is a model and has no other keys. It may be large, so that it is not read for them.
    """
    if request.source is None and request.files and is_graph(request.files[0]):
        return ()
    try:
        source = request.source or read_source(with_named_model(request))
    except SpecError:
        return ()
    return source.document.data.keys() if isinstance(source.document.data, dict) else ()
