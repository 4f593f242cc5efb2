"""The number formats of a serving job that its request does not state.

Answers: in which formats does a deployment keep its weights and its cache if the plan does not state them?
Elsewhere: formats of published models and of copies (library/published_formats.py), degrees
(serving_request.py).
"""

from flopcast.library.published_formats import published_formats, stored_formats
from flopcast.spec.published_formats import PublishedFormats
from flopcast.spec.serving_job import ServingJob


def as_stored(job: ServingJob, written: object, notes: list[str]) -> ServingJob:
    """Return the job with the number formats that the name of its model states, and a note about them.

    Formats of the plan take precedence over the name.
    """
    found = stored_formats(written, job.model.name) if isinstance(written, str) else None
    if found is None or "weights" in job.plan.model_fields_set:
        return job
    shown = f"expert_weights {found.expert_weights}" if found.expert_weights else f"weights {found.weights}"
    notes.append(f"{shown}, the format of {written}")
    return _with_weights(job, found)


def _with_weights(job: ServingJob, formats: PublishedFormats) -> ServingJob:
    """Return the job with weights in these formats; a format of experts that the plan states remains."""
    experts = job.plan.expert_weights or formats.expert_weights
    return job.with_part("plan", weights=formats.weights, expert_weights=experts)


def with_formats(job: ServingJob) -> tuple[ServingJob, list[str]]:
    """Return the job with the limits of its engine on the device and with number formats, and notes.

    Formats are those in which the model was published, or those of checkpoints for this engine if there are
    any.
    """
    stated, device = job.plan.model_fields_set, job.cluster.node.device
    engine = job.engine.on_device(device.name, device.memory_bytes)
    job, notes = job.model_copy(update={"engine": engine}), []
    if "weights" not in stated:
        published = published_formats(job.model.name)
        job = _with_weights(job, published)
        notes.append(f"weights {published.weights}, the format in which the model was published")
    if "cache" not in stated and job.plan.weights in job.engine.weights_with_fp8_cache:
        job = job.with_part("plan", cache="fp8")
        notes.append(f"cache fp8, as in published checkpoints in {job.plan.weights} for this engine")
    return job, notes
