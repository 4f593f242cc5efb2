"""The names of the fields of HTTP requests, and checks of their values.

Answers: which fields may a request have, and which of its fields are unknown or of a wrong type?
Elsewhere: the job or the search that the fields describe (request_fields.py), what they mean
(form_fields.py).
"""

import json
import re
from collections.abc import Mapping, Sequence

from flopcast.argument_checks import job_field
from flopcast.errors import Problem, SpecError, spec_error
from flopcast.files.field_names import NEAR, same_elsewhere
from flopcast.files.nearest_names import nearest
from flopcast.fixes import Fix, set_to
from flopcast.library import catalog
from flopcast.quantities import parse_length
from flopcast.requests.missing_parts import USUAL
from flopcast.requests.search_request import OF_RANKING, OF_SPACE
from flopcast.slips import whole_number
from flopcast.spec.batch import Batch
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name

OF_MACHINE = ("model", "cluster", "gpus", "seq", "stack", "price", "power_limit", "slow", "loader")
COUNTS = ("gpus", "seq", "lora", "qlora")
# What is trained, for how long.
OF_TRAINING = ("lora", "qlora", "samples", "epochs", "tokens", "checkpoint", "images")
OF_JOB = (*OF_MACHINE, *OF_TRAINING)
OF_PLAN = (
    "dp", "tp", "pp", "vpp", "cp", "ep", "mbs", "gbs", "zero", "recompute", "precision", "schedule",
    "offload",
)  # fmt: skip
WHOLE = ("tp", "pp", "vpp", "cp", "ep", "mbs", "gbs", "zero", "recompute", "precision")  # all but dp
FREE = ("plan", "changes", "job")  # other fields of a plan; KEY=VALUE; a document, packed for an address
OF_SEARCH = ("find", *OF_RANKING, *OF_SPACE)
OF_ENGINE = ("model", "cluster", "gpus", "engine", "price")
OF_TRAFFIC = ("rate", "concurrency", "prompt", "output", "requests")
OF_DEGREES = ("tp", "dp", "ep", "pp", "replicas")
OF_LIMITS = ("max_sequences", "max_tokens")
OF_FORMATS = ("weights", "cache")
OF_DEPLOYMENT = (*OF_DEGREES, *OF_LIMITS, *OF_FORMATS)
OF_SERVING = (*OF_ENGINE, *OF_TRAFFIC, "slo", *OF_DEPLOYMENT, "settings")
WITH_SERVING = (*OF_SERVING, "traffic", *FREE)  # all fields of requests that describe a serving job
PLAIN = (*OF_JOB, *OF_PLAN, *FREE)
USUAL_COUNTS = {"gbs": 512, "seq": 4096, "lora": 16, "qlora": 16, "requests": 1000, "max_tokens": 8192}
Words = Mapping[str, object]
REQUEST = "request"  # the place of errors in a request
UNKNOWN = "is not a known field"
ONLY_IN = {"serve": OF_SERVING, "search": OF_SEARCH, "diagnose": ("log",)}  # fields of other requests
MOST_SHORT = 3  # letters of a name, most of which are similar to a degree of a plan
OF_TRAFFIC_FIELDS = {"rate": "rate_per_s", "prompt": "prompt_tokens", "output": "output_tokens"}
MEANT = {  # names in other programs → our field, if it is none of a plan or a batch
    **dict.fromkeys(("gpu", "num_gpus", "world_size"), "gpus"),
    "framework": "stack",
}


def checked(
    words: Words, known: Sequence[str], several: Sequence[str] = ()
) -> tuple[dict[str, object], list[Problem]]:
    """Return the fields of a request whose name and type are right, and the errors of all others.

    The remaining fields can still be checked, so that all errors are reported together. They include the
    fields that an unknown one means. The default model replaces a wrong one, because other fields can be
    checked only with some model.

    Parameters
    ----------
    known : names of the fields that the request may have
    several : counts that may list several values
    """
    rest, problems = dict(words), []
    for name, value in words.items():
        if name in known:
            found = [] if (wrong := _mistyped(name, value, several)) is None else [wrong]
        else:
            unknown, meant = _unknown(name, words, known)
            found = [unknown]
            found += [wrong for key in meant if (wrong := _mistyped(key, meant[key], several))]
            refused = {each.field for each in found}
            rest |= {key: meant[key] for key in meant if key not in refused | (rest.keys() - {"plan"})}
        if found:
            problems += found
            texts = [edit for each in found for edit in each.edits if isinstance(value, (Mapping, list))]
            del rest[name]
            rest |= {key: text for edit in texts for key, text in edit.items() if key == name in known}
    model = text_of(rest, "model")
    unknown_model = model is not None and catalog.known("models", model) is None
    if unknown_model:
        problems.append(catalog.unknown_name("models", str(model), "model", REQUEST))
    if unknown_model or "model" in words.keys() - rest.keys():
        rest["model"] = USUAL["model"]
    return rest, problems


def with_sides(words: Words) -> tuple[Words, Mapping[str, str], list[Problem]]:
    """Return the fields of a comparison under the names of its two jobs, `a` and `b`.

    Returns
    -------
    tuple
        The fields, the name that the request has for each misnamed job, and the errors of misnamed jobs.
    """
    beside = (name for name in words if name[:2] not in ("a", "b", "a.", "b.") and name not in OF_JOB)
    jobs = {name: words[name] for name in beside}
    jobs = {
        name: value if isinstance(value, Mapping) else {"model": value}
        for name, value in jobs.items()
        if isinstance(value, Mapping) or catalog.known("models", str(value))
    }
    stated = {name[:1] for name in words if name in ("a", "b") or name[:2] in ("a.", "b.")}
    right, problems = dict(zip(jobs, sorted({"a", "b"} - stated), strict=False)), []
    for name, job in jobs.items():
        because, fix = "the two jobs of a comparison are a and b", f"remove {name}"
        if side := right.get(name):
            whole = "" if job is words[name] else f": {json.dumps(job)}"
            fix = f'write "{side}"{whole} in place of "{name}"'
        problems.append(Problem(name, None, "a, b", because, fix, REQUEST, UNKNOWN))
    rest = {name: value for name, value in words.items() if name not in jobs}
    rest |= {side: jobs[name] for name, side in right.items()}
    return rest, {side: name for name, side in right.items()}, problems


def _unknown(name: str, words: Words, known: Sequence[str]) -> tuple[Problem, Words]:
    """Return the error of a field that the request may not have, and the fields that it means."""
    value = words[name]
    because = "unknown fields raise an error, so that none is silently ignored"
    meant = job_field(name)
    of_plan = short_name(meant, Plan.model_fields[meant]) if meant in Plan.model_fields else ""
    of_batch = short_name(meant, Batch.model_fields[meant]) if meant in Batch.model_fields else ""
    similar = nearest(name, known, least_ratio=NEAR) if len(name) > MOST_SHORT else []
    once = re.sub(r"(.)\1+$", r"\1", name)  # "tp" of "tpp"
    long = {OF_TRAFFIC_FIELDS.get(each, each): each for each in known}
    near = [each for each in (MEANT.get(name), of_plan, of_batch, once) if each in known]
    near += [long[each] for each in (same_elsewhere(name, long),) if each] + similar
    other = next((path for path, names in ONLY_IN.items() if name in names), None)
    fix = f"remove {name}"
    if near:
        fix = Fix(f"did you mean {near[0]}?", ({str(near[0]): value},))
    elif of_plan and {*OF_PLAN} <= {*known}:
        plan = f"{words.get('plan') or ''} {of_plan}={value}".strip()
        fix = Fix(f'write "plan": "{plan}"', ({"plan": plan},))
    elif other is not None:
        fix = f"send the request to /api/v1/{other}, or remove {name}"
    problem = Problem(name, value, ", ".join(known), because, fix, REQUEST, UNKNOWN)
    return problem, problem.edits[0] if problem.edits else {}


def _mistyped(name: str, value: object, several: Sequence[str]) -> Problem | None:
    """Return the error for a value of a wrong type, or None if the type is right."""
    if name == "job":
        return None
    if isinstance(value, (Mapping, list)):
        allowed, because = "a text or a number", "the value is a list or an object"
        fix = _as_text(name, value)
        if isinstance(value, list) and value and name in {*COUNTS, *OF_PLAN} - {*several}:
            fix = set_to({name: value[0]}, "send the request to /api/v1/search")
        return Problem(name, value, allowed, because, fix, REQUEST)
    try:
        if name in COUNTS and name not in several:
            count({name: value}, name)
    except SpecError as wrong:
        return wrong.problems[0]
    return None


def _as_text(name: str, value: Mapping[str, object] | list[object]) -> str:
    """Return the fix for a list or an object: the text that the field can hold."""
    if isinstance(value, Mapping):
        if name in ("model", "cluster", "stack"):
            return f'write "job": {json.dumps({name: value})}'
        text = " ".join(f"{key}={each}" for key, each in value.items())
    else:
        text = (" " if name in FREE else ",").join(map(str, value))
    return Fix(f'write "{name}": "{text}"', ({name: text},))


def text_of(words: Words, name: str) -> str | None:
    """Return a field as a text, or None if it is empty."""
    value = words.get(name)
    return None if value in (None, "") else str(value)


def count(words: Words, name: str) -> int | None:
    """Return a field as a whole number above 0, or None if it is empty; a length may be 8k.

    Raises
    ------
    SpecError
        The value is not a whole number above 0.
    """
    value = words.get(name)
    if value in (None, ""):
        return None
    text = str(value)
    if name == "seq" and isinstance(value, str):
        try:
            text = str(parse_length(value))
        except ValueError:
            text = value
    if not text.isdecimal() or not 0 < int(text[:12]) < 10**9:
        right = whole_number(value, USUAL_COUNTS.get(name, 8))
        number = re.fullmatch(r"(-?)0*([1-9]\d*)?", text)
        because = "the value is not a whole number"
        if number and number[2] and not number[1]:
            because, right = "no job has so many", USUAL_COUNTS.get(name, 8)
        elif number:
            because = "the value is not above 0"
        allowed = "a whole number from 1 to 999,999,999"
        raise spec_error(name, value, allowed, because, set_to({name: right}), REQUEST)
    return int(text)
