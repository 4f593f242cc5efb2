"""The largest micro-batch, sequence length or adapter rank with which a plan fits.

Answers: how far can one value of a job grow before its memory is tight, and before the job does not fit?
Elsewhere: the largest model (largest_model.py), the nearest plan that fits (plan_that_fits.py), the rule
that decides whether a job fits (memory/verdict.py).
"""

from collections.abc import Callable, Mapping
from functools import cache
from math import lcm

from flopcast.errors import spec_error
from flopcast.memory.verdict import Verdict
from flopcast.prediction import memory_of
from flopcast.records import Record
from flopcast.spec.job import Job
from flopcast.spec.plan import Plan

MOST = 2**22  # tokens of a sequence, or sequences of a micro-batch
OF_RECOMPUTE = {name for name in Plan.model_fields if name.startswith("recompute")}
TOKENS = 128  # of which a sequence length is a multiple


class LargestValue(Record):
    """The largest values with which a job fits, and with which it may fit, if nothing else changes.

    Attributes
    ----------
    recompute
        The recompute mode of the plan: that of the job, or "full".
    fits, tight
        The largest value with the verdict "fits", and with at least the verdict "tight"; None if no value
        has this verdict.
    """

    recompute: str
    fits: int | None
    tight: int | None


def largest_values(job: Job, name: str) -> tuple[LargestValue, ...]:
    """Return the largest micro-batch, sequence length or adapter rank with which a job fits.

    Parameters
    ----------
    job : its other values do not change, except that the global batch becomes a multiple of the micro-batch
    name : "batch" (sequences of a micro-batch), "seq" (tokens of a sequence) or "rank" (of adapters)

    Returns
    -------
    tuple of LargestValue
        The answer for the plan and, unless it recomputes all blocks, for the plan with full recompute.

    Raises
    ------
    SpecError
        The name is wrong, the job has no such value, or the job contradicts itself.

    Examples
    --------
    >>> from flopcast.jobs import job
    >>> tuned = job("llama-3-8b", cluster="dgx-a100:1", lora=16, seq=2048, plan="dp=8 gbs=64")
    >>> [(each.recompute, each.fits < each.tight) for each in largest_values(tuned, "batch")]
    [('none', True), ('full', True)]
    """
    if name not in CHANGED:
        because = "only these values of a job have a largest one that fits"
        raise spec_error("name", name, ", ".join(CHANGED), because, "write seq")
    _refuse_missing(job, name)
    jobs = [job]
    if job.plan.recompute_word != "full" and not job.plan.layers:
        plan = job.plan.model_dump(exclude=OF_RECOMPUTE) | {"recompute": "full"}
        jobs.append(job.model_copy(update={"plan": Plan(**plan)}))
    return tuple(_largest(each, name) for each in jobs)


def step_of(job: Job, name: str) -> int:
    """Return the number of which all tried values are multiples."""
    plan = job.plan
    return lcm(TOKENS, 2 * plan.context_parallel * plan.tensor_parallel) if name == "seq" else 1


def _largest(job: Job, name: str) -> LargestValue:
    """Return the largest values for one plan."""
    step = step_of(job, name)
    most = job.model.hidden if name == "rank" else MOST // step

    @cache
    def verdict(count: int) -> Verdict:
        return memory_of(CHANGED[name](job, count * step)).verdict

    fits = _last(lambda count: verdict(count) == "fits", most)
    tight = _last(lambda count: verdict(count) != "does not fit", most)
    return LargestValue(
        recompute=job.plan.recompute_word, fits=step * fits or None, tight=step * tight or None
    )


def _last(holds: Callable[[int], bool], most: int) -> int:
    """Return the last of the numbers 1, 2, ... for which a condition holds that larger numbers break; 0 if
    there is none, and `most` if all hold.

    >>> [_last(lambda n: n <= 37, most) for most in (20, 100)], _last(lambda n: False, 8)
    ([20, 37], 0)
    """
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _with_micro_batch(job: Job, size: int) -> Job:
    """Return the job with a micro-batch, and the nearest global batch that it divides.

    Interleaved stages need a number of micro-batches that is a multiple of the number of stages.
    """
    unit = job.plan.data_parallel * job.plan.pipeline_parallel * size
    whole = max(1, round(job.plan.global_batch / unit)) * unit
    return job.with_part("plan", micro_batch=size, global_batch=whole)


def _with_rank(job: Job, rank: int) -> Job:
    if job.model.adapters is None:
        return job
    return job.model_copy(update={"model": job.model.with_part("adapters", rank=rank)})


CHANGED: Mapping[str, Callable[[Job, int], Job]] = {
    "batch": _with_micro_batch,
    "seq": lambda job, tokens: job.with_part("batch", sequence_length=tokens),
    "rank": _with_rank,
}  # name → the job with another value


def _refuse_missing(job: Job, name: str) -> None:
    """Raise SpecError if a job has no value of a name, or several."""
    batch = job.batch
    if batch.listed:
        because, fix = "the batch lists its micro-batches, whose lengths differ", "remove the list"
    elif name == "rank" and job.model.adapters is None:
        because, fix = "the job trains no adapters", "add --lora 16"
    elif name == "seq" and (batch.documents or batch.source_length or job.batch_unit == "samples"):
        because, fix = ("the documents, source or samples of this job have a fixed length", "write batch")
    else:
        return
    others = tuple(other for other in CHANGED if other != name)
    raise spec_error("largest", name, "no value" if batch.listed else " or ".join(others), because, fix)
