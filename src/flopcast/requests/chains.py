"""The job of a search for split points: one pipeline stage on each device of a chain.

Answers: which plan does such a search begin with, if the request does not state its stages?
Elsewhere: other requests (resolve.py), the search (search/split_points.py).
"""

from flopcast.errors import SpecError
from flopcast.files.yaml_text import Document
from flopcast.library.edits import merged
from flopcast.records import replace
from flopcast.requests.job_files import built, job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.resolve import made_from, of_training
from flopcast.requests.usual_values import stated_plan
from flopcast.spec.cluster import Cluster
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.model import Model


def resolve_chain(request: JobRequest) -> Job:
    """Return the checked job of a request; the stages and blocks that its plan omits are filled in.

    Raises
    ------
    SpecError
        Every fault of the files and the other values.
    """
    return made_from(request, of_training(lambda document, read: job_of(_with_stages(document), read)))


def _with_stages(document: Document) -> Document:
    """Return the document with a stage for every device, and blocks for every stage."""
    data = document.data if isinstance(document.data, dict) else {}
    try:
        model, cluster = (built(key, data.get(key), document) for key in ("model", "cluster"))
    except SpecError:
        return document  # its faults are reported with those of the other parts
    if not isinstance(model, Model) or not isinstance(cluster, Cluster):
        return document
    plan = stated_plan(document)
    stages = plan.get("pipeline_parallel", cluster.num_devices)
    if not isinstance(stages, int) or not 0 < stages <= model.num_blocks:
        return document
    parts = list(divided_over_chunks(model.num_blocks, stages))
    whole = {"pipeline_parallel": stages, "micro_batch": 1, "global_batch": 1, "stage_layers": parts}
    plan = {name: value for name, value in plan.items() if name != "auto"}
    return replace(document, data=data | {"plan": merged(whole, plan)})
