"""Parts that a job lacks: what stands in for them, and what an error says about them.

Answers: which values are usual for a missing part, and is a part missing or misspelt?
Elsewhere: fields of plans that are missing (missing_plan.py), fields of a noun (files/validate.py).
"""

from collections.abc import Iterable

from flopcast.errors import Problem
from flopcast.files.nearest_names import nearest
from flopcast.files.validate import NEAR
from flopcast.files.yaml_text import COMMAND_LINE
from flopcast.library import catalog
from flopcast.spec.job import Job

# values of missing parts: assumed where an option could state them, suggested where a file must
USUAL = {"model": "llama-3-8b", "cluster": "dgx-h100", "stack": "megatron-core"}


def is_misspelt(part: str, keys: Iterable[object]) -> bool:
    """Return whether an unknown key of a job is a misspelling of the name of one of its parts.

    >>> is_misspelt("model", ["MODEL", "cluster"]), is_misspelt("model", ["cluster"])
    (True, False)
    """
    unknown = (str(key) for key in keys if key not in Job.model_fields)
    return any(nearest(key, Job.model_fields, least_ratio=NEAR) == [part] for key in unknown)


def missing_part(key: str, where: str) -> Problem:
    """Return the fault of omitting a model, a cluster or a stack, which a name could state."""
    kind = f"{key}s"
    allowed = f"one of {len(catalog.names(kind))} names (flopcast catalog {kind}), or a description"
    because = f"flopcast needs a {key} for a prediction"
    fix = f"add {key}: NAME, such as {key}: {USUAL[key]}"
    if where == COMMAND_LINE:
        file = "a job file, or " if key == "model" else ""
        fix = f"add {file}--{key} NAME, such as --{key} {USUAL[key]}"
    if key == "cluster":  # which only a measured run has to name (resolve.py)
        because = "to compare a measured run, flopcast predicts it on the cluster on which it ran"
        fix = f"add --cluster NAME, the machine of the run, such as --cluster {USUAL[key]}"
    return Problem(key, None, allowed, because, fix, where=where, fault="is missing")
