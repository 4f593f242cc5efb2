"""Fields of a form that hold a chosen plan, and that are chosen again for another job.

Answers: what does a form record about the plan that was chosen for it, and which fields does a change
remove?
Elsewhere: how a plan is chosen (search/default_plan.py), the meaning of fields (request_fields.py), the
form (page.py).

A form has a hidden field CHOSEN. It holds the model and machine for which a plan was chosen, and the
fields of that plan. If the model or the machine changes, fields that still have the chosen value are
removed; values that the user entered stay.
"""

import zlib
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

from flopcast.ui.request_values import OF_PLAN

CHOSEN = "chosen"
PARTS = "parts"  # of a report that a page shows unfolded; of the others, an answer has the headings
PLAN_FIELDS = (*OF_PLAN, "plan")
KEPT = ("gbs", "precision")  # of a plan that is chosen anew: what the training is, not how it runs
SWITCHES = ("choose", "go", "now", "hold", PARTS)  # of an address: what to do, not of what
JOB_FIELDS = (  # of a chosen plan: another plan may be the best where one of these is another
    "model", "cluster", "gpus", "stack", "seq", "lora", "qlora", "samples", "job", "images",
)  # fmt: skip
Fields = Mapping[str, str]


def requested(words: Fields, sides: Sequence[str] = ("",)) -> dict[str, str]:
    """Return the fields of an address that describe a job, or the two jobs of a comparison by `sides`.

    A plan that was chosen for another model or machine is left out. If a new plan is to be chosen, only
    its batch and precision are kept. With `hold`, the plan stays while a slider moves; only the number of
    replicas changes.
    """
    fields = {name: value for name, value in words.items() if name not in SWITCHES}
    if "hold" in words:
        left_out = {side + name for side in sides for name in (CHOSEN, "dp")}
        return {name: value for name, value in fields.items() if name not in left_out}
    for side in sides:
        fields = without_stale(fields, side)
    if "choose" not in words:
        return fields
    plan = {side + name for side in sides for name in PLAN_FIELDS if name not in KEPT}
    return {name: value for name, value in fields.items() if name not in plan}


def filled(words: Fields, requested_fields: Fields, made: Fields, sides: Sequence[str]) -> dict[str, str]:
    """Return the fields of a form with complete plans, and the record of the chosen fields."""
    fields = dict(requested_fields) | dict(made)
    for side in sides:
        own = {name.removeprefix(side): value for name, value in made.items() if name.startswith(side)}
        fields[side + CHOSEN] = chosen_word(requested_fields, own, words.get(side + CHOSEN, ""), side)
    return fields


def without_chosen(words: Fields) -> dict[str, str]:
    """Return the fields of a form without the fields of a chosen plan and without their record.

    >>> without_chosen({"model": "m", "tp": "8", "pp": "1", "chosen": "model=m&pp=1"})
    {'model': 'm', 'tp': '8'}
    """
    chosen = dict(parse_qsl(words.get(CHOSEN, "")))
    return {
        name: value
        for name, value in words.items()
        if name != CHOSEN and (name not in PLAN_FIELDS or name in KEPT or value != chosen.get(name))
    }


def without_stale(words: Fields, prefix: str = "") -> dict[str, str]:
    """Return the fields of a form without the fields of a plan that was chosen for another model or
    machine.

    Parameters
    ----------
    words : fields of a form, including CHOSEN
    prefix : "a." or "b." for one side of a comparison

    Examples
    --------
    >>> form = {"model": "gpt3-13b", "tp": "8", "vpp": "3", "chosen": "model=llama-3-8b&tp=4&vpp=3"}
    >>> without_stale(form)
    {'model': 'gpt3-13b', 'tp': '8'}
    """
    chosen = dict(parse_qsl(words.get(prefix + CHOSEN, "")))
    rest = {name: value for name, value in words.items() if name != prefix + CHOSEN}
    if not chosen or all(chosen.get(name, "") == _job_field(rest, prefix, name) for name in JOB_FIELDS):
        return rest
    stale = {prefix + name for name in PLAN_FIELDS if rest.get(prefix + name, "") == chosen.get(name)}
    return {name: value for name, value in rest.items() if name not in stale}


def chosen_word(words: Fields, fields: Fields, before: str = "", prefix: str = "") -> str:
    """Return the value of CHOSEN for a form whose plan was completed.

    Parameters
    ----------
    words : fields of the request, without stale ones
    fields : fields of the complete plan, without a prefix
    before : the earlier value of CHOSEN; fields that have not changed since then still count as chosen
    prefix : the prefix of the names in `words`
    """
    earlier = dict(parse_qsl(before))
    job = {name: _job_field(words, prefix, name) for name in JOB_FIELDS}
    plan = {
        name: value
        for name, value in fields.items()
        if value and words.get(prefix + name, "") in ("", earlier.get(name))
    }
    return urlencode({name: value for name, value in (job | plan).items() if value})


def _job_field(words: Fields, prefix: str, name: str) -> str:
    """Return a field of the model or the machine; an uploaded file is represented by its checksum."""
    value = words.get(prefix + name, "")
    return f"{zlib.crc32(value.encode()):x}" if name == "job" and value else value
