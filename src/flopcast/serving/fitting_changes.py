"""Changes of a deployment that fix an error.

Answers: with which edit does a deployment fit into memory, or satisfy all rules about a field?
Elsewhere: the rules that are broken (checks.py), what fills the memory (memory.py).
"""

from collections.abc import Callable, Iterator

from flopcast.errors import Problem
from flopcast.fixes import set_to
from flopcast.spec.serving_job import ServingJob
from flopcast.spec.streaming import placement_text

DEGREES = tuple(2**power for power in range(1, 8))
FRACTIONS = tuple(tenth / 10 for tenth in range(1, 11))  # of weights outside the devices


def fitting_change(
    job: ServingJob, fits: Callable[[ServingJob], bool], has_room: Callable[[ServingJob], bool]
) -> str:
    """Return the first edit with which a job fits, in the order below; otherwise general advice.

    The order is: more ranks for each weight matrix, smaller formats, both, weights outside the devices,
    pipeline stages, more devices.

    Parameters
    ----------
    fits : whether a job breaks no rule and has room
    has_room : whether a job would have room if the cluster had enough devices
    """
    for text, changed in _changes(job):
        if fits(changed):
            return text
    for ranks in DEGREES:
        if ranks > job.cluster.num_devices and has_room(_with(job, tensor_parallel=ranks)):
            return f"use --gpus {ranks} and set plan.tensor_parallel to {ranks}"
    return "use devices with more memory, a smaller model, or shorter requests"


def whole_degree(job: ServingJob, heads: list[int], fits: Callable[[ServingJob], bool]) -> int:
    """Return the nearest tensor-parallel degree that divides all heads, if possible one with which the job
    fits.
    """
    stated = job.plan.tensor_parallel
    degrees = [degree for degree in range(1, max(heads) + 1) if all(count % degree == 0 for count in heads)]
    degrees.sort(key=lambda degree: (max(degree / stated, stated / degree), -degree))
    of_fitting = (degree for degree in degrees if fits(_with(job, tensor_parallel=degree)))
    return next(of_fitting, degrees[0])


def common_fix(
    job: ServingJob, problems: list[Problem], broken: Callable[[ServingJob], list[Problem]]
) -> str:
    """Return the first fix of a field that satisfies every rule about the field; "" if there is none."""
    field, value = problems[0].field, problems[0].value
    ways = [edit for each in problems for edit in each.edits]
    ways += [{field: degree} for degree in range(value, 0, -1)] if isinstance(value, int) else []
    for edit in ways:
        named = {name.removeprefix("plan."): new for name, new in edit.items()}
        if named.keys() <= type(job.plan).model_fields.keys():
            left = broken(_with(job, **named))
            if all(each.field not in (field, *edit) for each in left):
                return set_to(edit)
    return ""


def _changes(job: ServingJob) -> Iterator[tuple[str, ServingJob]]:
    plan = job.plan
    most = job.cluster.scale_up_devices
    more = [degree for degree in DEGREES if plan.tensor_parallel < degree <= most]
    for ranks in more:
        yield set_to({"plan.tensor_parallel": ranks}), _with(job, tensor_parallel=ranks)
    for cache in job.engine.caches:
        yield set_to({"plan.cache": cache}), _with(job, cache=cache)
    formats = [each for each in job.engine.weights if each != plan.weights]
    for weights in formats:
        yield set_to({"plan.weights": weights}), _with(job, weights=weights)
    for weights in formats:
        for ranks in more:
            text = set_to({"plan.weights": weights, "plan.tensor_parallel": ranks})
            yield text, _with(job, weights=weights, tensor_parallel=ranks)
    memories = () if job.engine.streaming is None else job.engine.streaming.weights
    for memory in memories:
        for share in FRACTIONS:
            placed = placement_text({memory: share})
            yield set_to({"plan.weights_on": placed}), _with(job, weights_on=placed)
    for stages in DEGREES:
        yield set_to({"plan.pipeline_parallel": stages}), _with(job, pipeline_parallel=stages)


def _with(job: ServingJob, **changes: object) -> ServingJob:
    """Return the job with a changed plan."""
    return job.model_copy(update={"plan": job.plan.model_copy(update=changes)})
