"""What differs between a job and a changed one, as KEY=VALUE of a command.

Answers: which edit of a job gives the other one?
Elsewhere: edits that are read (library/edits.py), which changes are tried (settings.py).
"""

from flopcast.spec.job import Job


def difference(job: Job, changed: Job) -> str:
    """Return the fields of the plan that differ, else those of the stack, as KEY=VALUE.

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
    fields = getattr(type(after), "model_fields", None)
    if fields is None:
        return f"{name}={_text(after)}"
    inner = [field for field in fields if getattr(before, field) != getattr(after, field)]
    return " ".join(f"{name}.{field}={_text(getattr(after, field))}" for field in inner)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
