"""The two jobs of a comparison over HTTP.

Answers: which jobs does a request compare, and which faults do both have?
Elsewhere: one job (request_fields.py, serving.py), names of the two (request_values.py).
"""

import json
from collections.abc import Mapping
from typing import Any

from flopcast.errors import Problem, SpecError
from flopcast.ui.error_responses import of_side
from flopcast.ui.request_fields import job_from
from flopcast.ui.request_values import REQUEST, Words, with_sides
from flopcast.ui.serving import serves, serving_job_from


def compared_jobs(words: Words, *, serving_too: bool = False) -> list[Any]:
    """Return the two jobs in the fields `a` and `b`, or in those that begin with "a." and "b.".

    If `serving_too` is true, both may be serving jobs.

    Raises
    ------
    SpecError
        A job is missing or has faults, or one job trains and the other one serves.
    """
    example, because = '{"model": "llama-3-8b", "gpus": 16}', "a comparison needs two jobs"
    words, written, problems = with_sides(words)
    outside = {name: words[name] for name in words if name[:2] not in ("a", "b", "a.", "b.")}
    named, fault = ", ".join(outside), f"describe{'s' * (len(outside) == 1)} one job, not two"
    fix = f'move {named} into "a" and "b", as in "a": {json.dumps(outside)}'
    told = Problem(named, None, "a and b: two jobs", because, fix, REQUEST, fault)
    problems += [told] * bool(outside)
    if outside and outside.keys() == words.keys():
        raise SpecError(problems)
    sides = dict[str, Words]()
    for side in ("a", "b"):
        given = words.get(side, {})
        own = {name[2:]: value for name, value in words.items() if name.startswith(f"{side}.")}
        if not isinstance(given, Mapping) or not (given or own):
            fix, fault = f'write "{side}": {example}', "" if given else "is missing"
            allowed = f"an object: {example}"
            problems.append(Problem(side, given or None, allowed, because, fix, REQUEST, fault))
            continue
        sides[side] = {**given, **own}
    both, jobs = serving_too and any(map(serves, sides.values())), []
    for side, stated in sides.items():
        if both and not serves(stated):
            because = "a training step and a serving job have no metrics in common"
            allowed, fix = "two training jobs or two serving jobs", f'add "engine": "vllm" to {side}'
            problems.append(Problem(side, stated, allowed, because, fix, REQUEST, "describes training"))
            continue
        try:
            jobs.append(serving_job_from(stated) if both else job_from(stated))
        except SpecError as error:
            named = written.get(side, side)
            problems += [of_side(one, named) if side in words else one for one in error.problems]
    if problems:
        raise SpecError(problems)
    return jobs
