"""The recognition of flopcast's own job files and models among files of other programs.

Answers: do the keys of a file belong to a job or a model of flopcast, or to a Hugging Face config?
Elsewhere: the readers of files (sources.py), steps of reinforcement learning (rl_files.py), the formats of
other programs (interop/configs/formats.py).
"""

from collections.abc import Mapping

from flopcast.errors import SpecError, spec_error
from flopcast.files.yaml_text import Document, read_yaml
from flopcast.requests.rl_files import OF_STEP, is_step

OF_JOB = {"plan", "cluster", "stack", "batch", "engine", "traffic"}  # keys of a job
SHARED = {"engine", "cluster"}  # keys that files of other programs have too
OF_MODEL = {"name", "hidden", "vocabulary", "blocks"}  # keys of a model; three of them identify one
FURTHER = {"model", "run", "site", "checkpoint", "loader", "assumptions", "slo"}  # further keys of a job


def job_keys(document: Document) -> set[str]:
    """Return the keys of a file that only jobs of flopcast have; empty if the file is not a mapping."""
    found = OF_JOB & document.data.keys() if isinstance(document.data, dict) else set()
    return found if found - SHARED else set()


def refuse_own_job(document: Document, kind: str) -> None:
    """Check that a file which should have the format of another program is not a job of flopcast.

    Raises
    ------
    SpecError
        The file has two or more keys of a job.
    """
    keys = sorted(job_keys(document))
    if len(keys) > 1:
        because = f"the file has {', '.join(keys[:-1])} and {keys[-1]}, so it is a job file of flopcast"
        fault, fix = f"is not a file of {kind}", f"run flopcast predict {document.name}"
        raise spec_error(
            document.name, None, f"a configuration or command of {kind}", because, fix, fault=fault
        )


def refuse_own_text(raw: bytes, name: str, kind: str) -> None:
    """Check that a text, which may not be YAML, is not a job of flopcast.

    Raises
    ------
    SpecError
        As `refuse_own_job`.
    """
    try:
        document = read_yaml(raw, name)
    except SpecError:
        return  # jobs of flopcast are YAML
    refuse_own_job(document, kind)


def is_foreign(data: Mapping[str, object]) -> bool:
    """Return whether most keys of a file do not exist in jobs of flopcast."""
    known = data.keys() & (OF_JOB | FURTHER | (set(OF_STEP) if is_step(data) else set()))
    return not OF_JOB & data.keys() and len(known) < len(data) / 2


def is_config(document: Document) -> bool:
    """Return whether this is a Hugging Face config, which has keys that no job or model of flopcast has."""
    data = document.data
    return isinstance(data, dict) and ("model_type" in data or "architectures" in data)


def is_model(document: Document) -> bool:
    """Return whether a file describes only a model: a Hugging Face config, or a model of flopcast."""
    data = document.data
    return is_config(document) or (isinstance(data, dict) and len(OF_MODEL & data.keys()) >= 3)
