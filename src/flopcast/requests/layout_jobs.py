"""Jobs of searches over one plan, which choose missing fields of the plan in a special way.

Answers: with which plan does a search for split points, or for strategies of blocks, begin?
Elsewhere: other requests (resolve.py), the searches (search/split_points.py, search/per_layer.py).
"""

from contextlib import suppress

from flopcast.errors import InfeasibleError, SpecError
from flopcast.files.yaml_text import Document
from flopcast.library.edits import merged
from flopcast.records import replace
from flopcast.requests.job_files import AUTO, built, checked_job, job_of
from flopcast.requests.job_request import JobRequest
from flopcast.requests.missing_parts import stated_plan
from flopcast.requests.resolve import made_from, of_training
from flopcast.spec.cluster import Cluster
from flopcast.spec.divisors import divided_over_chunks
from flopcast.spec.job import Job
from flopcast.spec.model import Model

ON_HOST = ("optimizer:host", "optimizer:host,activations:host")  # the second needs the least of a device


def resolve_chain(request: JobRequest) -> Job:
    """Return the checked job of a request, with the stages and blocks that its plan omits.

    Raises
    ------
    SpecError
        Every fault of the files and the other values.
    """
    make = of_training(lambda document, read: job_of(_with_stages(document), read))
    check = of_training(lambda document, read: checked_job(_with_stages(document), read))
    return made_from(request, make, check)


def resolve_blocks(request: JobRequest, *, placements: bool) -> Job:
    """Return the checked job of a request for strategies of blocks, with one chunk on each stage.

    Parameters
    ----------
    placements : whether strategies place states on the host; fields of the plan that the request omits are
        then chosen with such a placement, if no plan fits without one

    Raises
    ------
    SpecError
        Every fault of the files and the other values.
    InfeasibleError
        The request omits fields of the plan, and no plan fits.
    """
    make = of_training(lambda document, read: job_of(_with_one_chunk(document), read))
    check = of_training(lambda document, read: checked_job(_with_one_chunk(document), read))
    offloads = (None, *ON_HOST) if placements else (request.offload,)
    for offload in offloads[:-1]:
        with suppress(InfeasibleError):
            return made_from(replace(request, offload=offload), make, check)
    return made_from(replace(request, offload=offloads[-1]), make, check)


def _with_one_chunk(document: Document) -> Document:
    """Return the document whose plan, if it does not say otherwise, has one chunk on each stage."""
    plan = stated_plan(document)
    if ("plan" in document.mapping and not plan) or plan.keys() & {"virtual_stages", "schedule"}:
        return document
    return document.with_part("plan", (plan or {AUTO: True}) | {"virtual_stages": 1})


def _with_stages(document: Document) -> Document:
    """Return the document with a stage for every device, and blocks for every stage."""
    try:
        model, cluster = (built(key, document.mapping.get(key), document) for key in ("model", "cluster"))
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
    plan = {name: value for name, value in plan.items() if name != AUTO}
    return document.with_part("plan", merged(whole, plan))
