"""A job as the text of a complete job file.

Answers: which text gives exactly the same job when it is read, without the catalogue?
Elsewhere: reading job files (requests/job_files.py).

Fields that have their default value are omitted, except the global batch, because a search would complete a
plan without one. Quantities have units, as in every job file.
"""

import json
from collections.abc import Mapping

from flopcast.errors import InternalError
from flopcast.quantities import exactly
from flopcast.spec.job import Job
from flopcast.units import units_of

WIDEST = 100  # characters of a value that stands on one line


def job_document(job: Job) -> dict[str, object]:
    """Return the job as the plain data of a job file: texts, numbers, lists and mappings. All quantities
    have units.

    Examples
    --------
    Quantities of every depth have units:

    >>> from flopcast.requests.job_files import load_catalog_job
    >>> document = job_document(load_catalog_job("paper/llemma-7b-vista-pp4-tp2-dp2"))
    >>> document["cluster"]["tiers"][0]["bytes_per_s"]
    '50 GB/s'
    """
    plain = job.model_dump(mode="json", exclude_defaults=True)
    plain["plan"] = {**plain["plan"], "global_batch": job.plan.global_batch}
    document = _with_units(plain, ())
    if not isinstance(document, dict):
        raise InternalError(f"a job is a mapping, not {type(document)}")
    return document


def job_text(job: Job) -> str:
    """Return the job as YAML with one line per field; equal jobs give equal texts."""
    return "".join(f"{key}:{_block(value, 1)}\n" for key, value in job_document(job).items())


def _with_units(value: object, units: tuple[str, ...]) -> object:
    """Return the value with the unit that its field's name states."""
    if isinstance(value, Mapping):
        return {key: _with_units(inner, units_of(key) or units) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_units(inner, ()) for inner in value]
    if units and isinstance(value, (int, float)) and not isinstance(value, bool):
        return exactly(value, units[0])
    return value


def _block(value: object, depth: int) -> str:
    """Return a value after its key: on the same line if it is short, else on lines of its own."""
    flow = json.dumps(value, ensure_ascii=False)
    pad = "\n" + "  " * depth
    if len(flow) <= WIDEST or not isinstance(value, (Mapping, list)):
        return f" {flow}"
    if isinstance(value, Mapping):
        return "".join(f"{pad}{_key(key)}:{_block(inner, depth + 1)}" for key, inner in value.items())
    return "".join(f"{pad}-{_entry(inner, depth + 1)}" for inner in value)


def _key(key: str) -> str:
    """Return a key, quoted if YAML might read it as another type."""
    return key if key.isidentifier() and key not in ("true", "false", "null") else json.dumps(key)


def _entry(value: object, depth: int) -> str:
    text = _block(value, depth)
    return " " + text.lstrip() if text.startswith("\n") else text
