"""The description of the JSON API, in OpenAPI 3.1.

Answers: which requests exist, which fields may they have, and what do the answers contain?
Elsewhere: the meaning of the fields (request_fields.py), the answers (responses.py), their
description (tables/openapi.yaml).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import flopcast
from flopcast.files.package_table import read_table
from flopcast.render.error_json import FIELDS, KINDS
from flopcast.requests.search_request import OF_SPACE
from flopcast.ui.form_fields import FIELDS as FORM_FIELDS
from flopcast.ui.form_fields import SERVING_FIELDS, Field
from flopcast.ui.request_values import OF_DEGREES, OF_JOB, OF_LIMITS, OF_PLAN, OF_SEARCH, OF_SERVING

WHOLE = ("gpus", "seq", "lora", "qlora", "tp", "pp", "vpp", "cp", "ep", "dp", "mbs", "gbs", "zero")
# Numbers, or texts such as "4/s" or "2T".
BARE = ("rate", "prompt", "output", "tokens", "samples", "epochs")
_TABLE = read_table(__package__, "tables/openapi.yaml")
OPERATIONS: Mapping[str, Mapping[str, Any]] = _TABLE["operations"]
Schema = dict[str, object]


def described() -> Schema:
    """Return the OpenAPI document of the JSON API.

    Schemas are generated from the fields of forms (form_fields.py), so that a new field is part of the API
    without additional code. Requests must not have other fields.
    """
    several = _words(OF_JOB, several=("gpus", "power_limit")) | _words(OF_PLAN, several=OF_PLAN)
    pair = {
        side: _any_of(["Job", "Serving"]) | {"description": f"The {place} job."}
        for side, place in (("a", "first"), ("b", "second"))
    }
    serving, deployments = (
        _words(OF_SERVING, several, SERVING_FIELDS) | _TABLE["of_every_job"] | _TABLE["of_serving_jobs"]
        for several in ((), (*OF_DEGREES, *OF_LIMITS))
    )
    of_job = _words(OF_JOB) | _words(OF_PLAN) | _TABLE["of_every_job"]
    schemas: Schema = {
        "Job": _object(of_job) | {"additionalProperties": False},
        "Prediction": _object(of_job | _TABLE["of_predictions"]) | {"additionalProperties": False},
        "Run": _object(of_job | _TABLE["of_runs"]) | {"additionalProperties": False},
        "Question": _object(several | _TABLE["of_every_job"] | _words(OF_SEARCH))
        | {"additionalProperties": False},
        "Serving": _object(serving) | {"additionalProperties": False},
        "Deployments": _object(deployments | _TABLE["of_deployments"]) | {"additionalProperties": False},
        "Pair": _object(pair, required=["a", "b"]) | {"additionalProperties": False},
        "Refusal": _refusal(),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "flopcast", "version": flopcast.__version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            f"/api/v1/{name}": {"post": _operation(name, **operation)}
            for name, operation in OPERATIONS.items()
        },
        "components": {"schemas": schemas},
    }


def _words(
    names: Sequence[str], several: Sequence[str] = (), fields: Mapping[str, Field] = FORM_FIELDS
) -> Schema:
    """Return fields with their labels and types; those in `several` may hold several values, as texts."""
    return {name: _word(name, fields[name], several=name in several) for name in names}


def _word(name: str, field: Field, *, several: bool) -> Schema:
    description = field.about
    if name in OF_SPACE or name == "evolve":
        return {"type": "boolean", "description": description}
    if several:
        return {"type": ["string", "integer"], "description": f'{description} Several values: "1,2".'}
    if name in WHOLE:
        return {"type": "integer", "minimum": 0 if name == "zero" else 1, "description": description}
    kinds = "integer" if field.counts else ["string", "number"] if name in BARE else "string"
    return {"type": kinds, "description": description}


def _any_of(schemas: Sequence[str]) -> Schema:
    """Return a reference to a schema, or to several of which a request fits one."""
    references: list[Schema] = [{"$ref": f"#/components/schemas/{schema}"} for schema in schemas]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _operation(name: str, summary: str, schemas: Sequence[str]) -> Schema:
    refused = {"content": _content({"$ref": "#/components/schemas/Refusal"})}
    command = {"serve": "predict --engine …"}.get(name, name)
    content = _content({"type": "object"})
    answers = {"200": {"description": f"as `flopcast {command} --json`", "content": content}}
    answers |= {status: {"description": text} | refused for status, text in _TABLE["refusals"].items()}
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": _content(_any_of(schemas))},
        "responses": answers,
    }


def _content(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _object(properties: Mapping[str, object], **more: object) -> Schema:
    return {"type": "object", "properties": properties} | more


def _refusal() -> Schema:
    text = {"type": ["string", "null"]}
    entries: Schema = {name: text | {"description": description} for name, description in FIELDS.items()}
    entries |= {
        "kind": {"type": "string", "enum": list(KINDS), "description": "What kind of error it is."},
        "value": {"description": FIELDS["value"]},
        "edits": {"type": ["array", "null"], "items": {"type": "object"}, "description": FIELDS["edits"]},
    }
    description = f"The errors. Each has the fields {', '.join(FIELDS)}."
    version = {"type": "integer", "description": "Version of this format."}
    faults = {"type": "array", "items": _object(entries, required=list(FIELDS)), "description": description}
    return _object({"format_version": version, "faults": faults}, required=["format_version", "faults"])
