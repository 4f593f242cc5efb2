"""The recognition of files of steps of reinforcement learning.

Answers: does a file describe a step of reinforcement learning, and is one of its two jobs missing?
Elsewhere: the meaning of the file (rl_request.py), files of one job (sources.py).
"""

from collections.abc import Mapping

from flopcast.errors import Problem
from flopcast.files.nearest_names import nearest
from flopcast.files.yaml_text import Document

OF_STEP = ("rollout", "training")  # the jobs of a step of reinforcement learning
KEYS_OF_JOBS = {"model", "cluster", "engine", "traffic", "stack", "batch", "plan"}
PARTS = {  # what to add if a part is missing
    "rollout": "rollout, with the model, engine, plan and traffic that generate the answers",
    "training": "training, with the model, batch and plan of the job that trains on the answers",
}


def is_step(data: object) -> bool:
    """Return whether a document describes a step of reinforcement learning."""
    return isinstance(data, Mapping) and all(name in data for name in OF_STEP)


def lacking_part(document: Document) -> Problem | None:
    """Return the fault of a file that has only one of the two jobs of a step of reinforcement learning."""
    data = document.mapping
    has = [part for part in OF_STEP if _is_job(data.get(part))]
    if len(has) != 1:
        return None
    (lacking,) = (part for part in OF_STEP if part not in has)
    because = f"the file has {has[0]}, so it describes a step of reinforcement learning, which has two jobs"
    from flopcast.files.field_names import NEAR, UNKNOWN_KEY

    for key in data:
        if key not in OF_STEP and nearest(key, OF_STEP, least_ratio=NEAR) == [lacking]:
            allowed, where = " and ".join(OF_STEP), document.where((key,))
            return Problem(key, None, allowed, because, f"did you mean {lacking}?", where, UNKNOWN_KEY)
    allowed, where = f"a job, below the key {lacking}", document.where((has[0],))
    return Problem(lacking, None, allowed, because, f"add {PARTS[lacking]}", where, "is missing")


def _is_job(part: object) -> bool:
    """Return whether a part of a file has keys of a job."""
    return isinstance(part, dict) and not KEYS_OF_JOBS.isdisjoint(part)
