"""The difference between a job and a changed job, as KEY=VALUE arguments of a command.

Answers: which edit turns a job into the other one?
Elsewhere: reading such edits (library/edits.py), the changes that a diagnosis tries (settings.py).
"""

from flopcast.spec.job import Job
from flopcast.spec.offload import Placement, offload_word
from flopcast.spec.plan import Plan

OF_RECOMPUTE = (  # fields of a plan that mean nothing without recompute
    "recompute_method",
    "recompute_layers",
    "recompute_modules",
    "recompute_blocks",
    "partition_activations",
)


def difference(job: Job, changed: Job) -> str:
    """Return the fields of the plan that differ or, if there are none, those of the stack, as KEY=VALUE.

    >>> from flopcast.jobs import job
    >>> one = job("llama-3-8b", gpus=8, plan="dp=8 gbs=64 mbs=1")
    >>> difference(one, job("llama-3-8b", gpus=8, plan="dp=8 gbs=64 mbs=2"))
    'plan.micro_batch=2'
    """
    for part in ("plan", "stack"):
        old, new = getattr(job, part), getattr(changed, part)
        found = [
            (name, getattr(old, name), getattr(new, name))
            for name in type(new).model_fields
            if getattr(old, name) != getattr(new, name)
        ]
        if found:
            return " ".join(f"{part}.{_named(name, before, after)}" for name, before, after in found)
    return "the same settings"


def _named(name: str, before: object, after: object) -> str:
    if isinstance(before, tuple) and isinstance(after, tuple):
        placed = tuple(one for one in after if isinstance(one, Placement))
        if placed or any(isinstance(one, Placement) for one in before):
            return f"{name}={offload_word(placed) or 'none'}"
    fields = getattr(type(after), "model_fields", None)
    if fields is None:
        return f"{name}={_text(after)}"
    inner = [field for field in fields if getattr(before, field) != getattr(after, field)]
    return " ".join(f"{name}.{field}={_text(getattr(after, field))}" for field in inner)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_recompute(job: Job, mode: str) -> Job:
    """Return the job with another kind of recompute, without the details of the former kind."""
    usual = {name: Plan.model_fields[name].get_default() for name in OF_RECOMPUTE}
    return job.with_part("plan", **usual, recompute=mode)
