"""The description of the JSON API, in OpenAPI 3.1.

Answers: which requests exist, which fields may they have, and what do the answers contain?
Elsewhere: the meaning of the fields (request_fields.py), the answers (responses.py).
"""

from collections.abc import Mapping, Sequence

import flopcast
from flopcast.render.error_json import FIELDS, KINDS
from flopcast.requests.search_request import OF_SPACE
from flopcast.ui.form_fields import FIELDS as FORM_FIELDS
from flopcast.ui.request_values import OF_JOB, OF_PLAN, OF_SEARCH, OF_SERVING

WHOLE = ("gpus", "seq", "lora", "qlora", "tp", "pp", "vpp", "cp", "ep", "dp", "mbs", "gbs", "zero")
# Numbers, or texts such as "4/s" or "2T".
BARE = ("rate", "prompt", "output", "tokens", "samples", "epochs")
OPERATIONS = {
    "predict": (
        "Step time, throughput, memory, cost and energy of one training step, each with its interval",
        "Prediction",
    ),
    "memory": ("The memory of each device by category, and whether it fits", "Prediction"),
    "compare": (
        "A comparison of two jobs: ratios of time, cost and energy, each with its interval",
        "Pair",
    ),
    "diagnose": (
        "Possible causes of a slow job, each with the seconds that it costs and the evidence for it",
        "Run",
    ),
    "serve": ("How an engine serves requests: latencies, throughput, memory, cost and energy", "Serving"),
    "search": (
        "The best plans of a search space, ranked, each with the interval of its ratio to the best plan",
        "Question",
    ),
}
REFUSALS = {
    "400": "The input is wrong. The response lists every error, each with the allowed values and a fix",
    "413": "The body is larger than 256 KiB",
    "422": "No plan is feasible, or the request would exceed the limit of CPU time or memory",
    "503": "The server is busy; the header Retry-After says when to try again",
}
FREE: dict[str, object] = {
    "plan": {"type": "string", "description": 'Other settings of the plan, such as "sp optimizer=adamw".'},
    "changes": {
        "type": "string",
        "description": "Changes to the job, as KEY=VALUE separated by spaces, such as plan.vpp=2.",
    },
    "job": {
        "type": "object",
        "description": "A job with the keys of a job file. The other fields of the request change it.",
    },
}
PROPOSALS = {
    "type": "boolean",
    "description": (
        "Whether to find, for a plan that does not fit into memory, the fastest way to offload tensors so "
        "that the plan fits. The default is false, because this search takes time."
    ),
}
LOG = {"type": "string", "description": "The training log of the run, as text."}
Schema = dict[str, object]


def described() -> Schema:
    """Return the OpenAPI document of the JSON API.

    Schemas are generated from the fields of forms (form_fields.py), so that a new field is part of the
    API without further code. Requests must not have other fields.
    """
    several = _words(OF_JOB, several=("gpus", "power_limit")) | _words(OF_PLAN, several=OF_PLAN)
    pair = {
        side: {"$ref": "#/components/schemas/Job", "description": f"The {place} job."}
        for side, place in (("a", "first"), ("b", "second"))
    }
    of_job = _words(OF_JOB) | _words(OF_PLAN) | FREE
    schemas: Schema = {
        "Job": _object(of_job) | {"additionalProperties": False},
        "Prediction": _object(of_job | {"proposals": PROPOSALS}) | {"additionalProperties": False},
        "Run": _object(of_job | {"log": LOG}) | {"additionalProperties": False},
        "Question": _object(several | FREE | _words(OF_SEARCH)) | {"additionalProperties": False},
        "Serving": _object(_words(OF_SERVING)) | {"additionalProperties": False},
        "Pair": _object(pair, required=["a", "b"]) | {"additionalProperties": False},
        "Refusal": _refusal(),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "flopcast", "version": flopcast.__version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            f"/api/v1/{name}": {"post": _operation(name, *description)}
            for name, description in OPERATIONS.items()
        },
        "components": {"schemas": schemas},
    }


def _words(names: Sequence[str], several: Sequence[str] = ()) -> Schema:
    """Return fields with their labels and types; those in `several` may hold several values, as texts."""
    return {name: _word(name, several=name in several) for name in names}


def _word(name: str, *, several: bool) -> Schema:
    field = FORM_FIELDS[name]
    description = field.about
    if name in OF_SPACE or name == "evolve":
        return {"type": "boolean", "description": description}
    if several:
        return {"type": ["string", "integer"], "description": f'{description} Several values: "1,2".'}
    if name in WHOLE:
        return {"type": "integer", "minimum": 0 if name == "zero" else 1, "description": description}
    kinds = "integer" if field.counts else ["string", "number"] if name in BARE else "string"
    return {"type": kinds, "description": description}


def _operation(name: str, summary: str, body: str) -> Schema:
    refused = {"content": _content({"$ref": "#/components/schemas/Refusal"})}
    command = {"serve": "predict --engine …"}.get(name, name)
    answers = {
        "200": {"description": f"as `flopcast {command} --json`", "content": _content({"type": "object"})}
    }
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": _content({"$ref": f"#/components/schemas/{body}"})},
        "responses": answers
        | {status: {"description": description} | refused for status, description in REFUSALS.items()},
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
    }
    description, version = (
        f"The errors. Each has the fields {', '.join(FIELDS)}.",
        {"type": "integer", "description": "Version of this format."},
    )
    faults = {"type": "array", "items": _object(entries, required=list(FIELDS)), "description": description}
    return _object({"format_version": version, "faults": faults}, required=["format_version", "faults"])
