"""The description of the JSON API, in OpenAPI 3.1.

Answers: which requests are there, what may they say, what do they answer?
Elsewhere: what the words mean (request_fields.py), the answers (responses.py).
"""

import flopcast
from flopcast.render.error_json import FIELDS, KINDS
from flopcast.ui.page import known_fields
from flopcast.ui.request_fields import OF_JOB, OF_PLAN, OF_SEARCH

WHOLE = ("gpus", "seq", "tp", "pp", "vpp", "cp", "ep", "dp", "mbs", "gbs", "zero")
OPERATIONS = {
    "predict": ("One training step: time, rate, memory, money, energy, each with its interval", "Job"),
    "memory": ("What must fit on each device, and whether it does", "Job"),
    "compare": ("Two jobs, and the interval of their ratio", "Pair"),
    "search": ("The best plans of a space, ranked by the intervals of their differences", "Question"),
}
REFUSALS = {
    "400": "The input is wrong: lists every error with what is allowed, why, and how to fix it",
    "413": "The body is larger than 256 KiB",
    "422": "No plan is feasible, or the request needs more processor time or memory than it may use",
    "503": "The machine is busy; Retry-After says when to try again",
}
Schema = dict[str, object]


def described() -> Schema:
    """Return the document."""
    job = {"type": "object", "additionalProperties": False, "properties": _job()}
    question = _job(several=True) | {name: _word(name) for name in OF_SEARCH}
    pair = {side: {"$ref": "#/components/schemas/Job"} for side in ("a", "b")}
    schemas: Schema = {
        "Job": job,
        "Question": {"type": "object", "additionalProperties": False, "properties": question},
        "Pair": {
            "type": "object",
            "additionalProperties": False,
            "properties": pair,
            "required": ["a", "b"],
        },
        "Refusal": _refusal(),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "flopcast", "version": flopcast.__version__, "license": {"name": "Apache-2.0"}},
        "paths": {
            f"/api/v1/{name}": {"post": _operation(name, *told)} for name, told in OPERATIONS.items()
        },
        "components": {"schemas": schemas},
    }


def _job(*, several: bool = False) -> Schema:
    """Return fields of a job; those of a search may hold several values, as texts."""
    of_plan = {name: _word(name, several=several) for name in OF_PLAN}
    rest: Schema = {
        "plan": {"type": "string", "description": 'other words of the plan: "sp optimizer=adamw"'},
        "changes": {
            "type": "string",
            "description": 'KEY=VALUE, separated by spaces: "stack.launches=graph"',
        },
        "job": {"type": "object", "description": "a job, as in a job file; the words change it"},
    }
    return {name: _word(name, several=several and name == "gpus") for name in OF_JOB} | of_plan | rest


def _word(name: str, *, several: bool = False) -> Schema:
    """Return one field: its label, and its allowed values."""
    field = known_fields()[name]
    told = ", ".join(each for each in (field.label, field.hint) if each)
    if several:
        return {"type": ["string", "integer"], "description": f'{told}; several: "1,2"'}
    if name in WHOLE:
        return {"type": "integer", "minimum": 0 if name == "zero" else 1, "description": told}
    return {"type": "string", "description": told}


def _operation(name: str, summary: str, body: str) -> Schema:
    """Return one request."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body}"}}}
    fault = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    answers: Schema = {
        "200": {
            "description": f"as `flopcast {name} --json`",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    }
    answers |= {status: {"description": told, "content": fault} for status, told in REFUSALS.items()}
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": True, "content": content},
        "responses": answers,
    }


def _refusal() -> Schema:
    """Return the schema of an answer that lists errors."""
    entries = {name: {"type": ["string", "null"], "description": told} for name, told in FIELDS.items()}
    entries |= {"kind": {"type": "string", "enum": list(KINDS)}, "value": {"description": FIELDS["value"]}}
    fault = {"type": "object", "required": list(FIELDS), "properties": entries}
    faults = {"type": "array", "items": fault, "description": f"each with {', '.join(FIELDS)}"}
    version = {"type": "integer", "description": "of the format"}
    return {
        "type": "object",
        "required": ["format_version", "faults"],
        "properties": {"format_version": version, "faults": faults},
    }
