"""Error responses: JSON for the API, a part of a page for browsers.

Answers: which status and which text does the client receive for a wrong, infeasible, too large or too slow
request?
Elsewhere: the fields of JSON errors (render/error_json.py), where errors are detected (worker.py, app.py).
"""

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from urllib.parse import urlencode

from flopcast.errors import MEANT, Problem
from flopcast.files.yaml_text import COMMAND_LINE
from flopcast.fixes import Edit, Fix, in_words, with_names
from flopcast.records import replace
from flopcast.render.error_json import fault, input_faults
from flopcast.requests.argument_names import without_options
from flopcast.spec.plan import Plan
from flopcast.spec.plan_fields import short_name
from flopcast.ui.form_fields import FIELDS
from flopcast.ui.pool import Answer
from flopcast.ui.request_values import (
    OF_JOB,
    OF_PLAN,
    OF_SEARCH,
    OF_SERVING,
    OF_TRAFFIC_FIELDS,
    REQUEST,
    UNKNOWN,
)

JSON = "application/json"
ARGUMENT = re.compile(r"^argument (?=\w+$)")  # the place of a value that has a field of its own
DATA = "api."  # tasks of the API: their answers are data, all others are shown on a page
RETRY_AFTER_S = 1
FORM_FIELDS = {*OF_JOB, *OF_PLAN, *OF_SEARCH, *OF_SERVING, "plan", "changes"}
OF_TRAFFIC = {field: name for name, field in OF_TRAFFIC_FIELDS.items()}  # of a traffic → of a form
OF_TRAFFIC |= {"traffic": "prompt"}
OPTIONS = {"objective": "objectives", "batch": "gbs"}  # options of the command line → fields of a form
FREE = ("plan", "changes", "settings")  # fields of a form that hold several words
NAMED = re.compile(
    r"--(?P<option>[a-z][a-z-]*)|\b(?P<dotted>(?:plan|traffic|batch|run)\.\w+)\b(?!=)"
    rf"|\b(?P<plan>{'|'.join(Plan.model_fields)})(?= to )"
)
EDIT = re.compile(
    rf"\b(?:write|set|use|add) (?:--)?(?P<name>{'|'.join((*FIELDS, *Plan.model_fields))})(?:=| to | (?=\d))"
)
SHORT_NAMES = {name: short for name, field in Plan.model_fields.items()
               if (short := short_name(name, field)) in OF_PLAN}  # fmt: skip
SHORT_NAMES |= {f"plan.{name}": short for name, short in SHORT_NAMES.items()}
COMMAND = re.compile(r" ?\((?:see )?flopcast [a-z ]+\)|(?<=; )flopcast [a-z ]+ lists them")


def refusal(
    task: str,
    status: int,
    kind: str,
    message: str = "",
    problems: Sequence[Problem] = (),
    changes: Sequence[Fix] = (),
) -> Answer:
    """Return the error response for a task.

    Parameters
    ----------
    task : a name of answers.TASKS
    status : the HTTP status
    kind : one of render.error_json.KINDS
    message : the error, if there are no problems
    problems : every error in the input
    changes : changes of the input that the message lists
    """
    if task.startswith(DATA):
        body = errors_as_json(kind, message, problems, changes)
    else:
        body = json.dumps({"html": errors_as_html(message, problems, changes), "fields": {}})
    return Answer(status=status, media=JSON, body=body)


def errors_as_json(
    kind: str, message: str, problems: Sequence[Problem] = (), changes: Sequence[Fix] = ()
) -> str:
    """Return errors as `flopcast --json` prints them."""
    named = [_with_short_field(without_options(each)) for each in problems]
    named = [replace(each, where=ARGUMENT.sub("field ", each.where) or REQUEST) for each in named]
    named = [_with_right_values(each, named) for each in named]
    data = input_faults(named) if named else fault(kind, message, changes)
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def with_whole_texts(problems: Sequence[Problem], words: Mapping[str, object]) -> list[Problem]:
    """Return the problems of a request; the edit of a misspelt name inside a text of it is the right text.

    >>> unknown = Problem("plan.zeroo", 1, "", "", "did you mean zero?")
    >>> with_whole_texts([unknown], {"plan": "tp=2 zeroo=1"})[0].edits
    ({'plan': 'tp=2 zero=1'},)
    """
    meant = {each.field: each.fix[len(MEANT) : -1] for each in problems if each.fix.startswith(MEANT)}
    texts = {name: text for name, text in words.items() if isinstance(text, str)}
    for field, right in meant.items():
        part, _, wrong = field.partition(".")
        if part in texts and wrong:
            texts[part] = re.sub(rf"(?<!\S){re.escape(wrong)}(?==)", right, texts[part])
    changed = {name: text for name, text in texts.items() if text != words[name]}
    parts = {each.field: each.field.partition(".")[0] for each in problems if each.field in meant}
    return [
        replace(each, fix=Fix(each.fix, ({part: changed[part]},)))
        if (part := parts.get(each.field, "")) in changed
        else each
        for each in problems
    ]


def of_side(problem: Problem, side: str) -> Problem:
    """Return the problem of a job of a comparison; its place names the job, and a file or change in it.

    >>> option = Problem("plan.zero", 4, "", "", "", where="--zero")
    >>> of_side(option, "b").where, of_side(replace(option, where="argument plan.zero=4"), "b").where
    ('b', 'b: argument plan.zero=4')
    """
    problem = without_options(problem)
    own = problem.where in ("", REQUEST) or ARGUMENT.match(problem.where)
    return replace(problem, where=side if own else f"{side}: {problem.where}")


def _with_right_values(problem: Problem, every: Sequence[Problem]) -> Problem:
    """Return the problem of an unknown field; its fix has the right values of the fields that it means."""
    if problem.fault != UNKNOWN or not problem.edits:
        return problem
    text, edit, right = str(problem.fix), dict(problem.edits[0]), dict[str, object]()
    for other in every:
        if other.fault != UNKNOWN and other.edits:
            right |= {name or other.field: value for name, value in other.edits[0].items()}
    for name in edit.keys() & right.keys():
        wrong, new = (f'"{name}": {json.dumps(value)}' for value in (edit[name], right[name]))
        text = text.replace(wrong, new)
    return replace(problem, fix=Fix(text, (edit | {name: right.get(name, edit[name]) for name in edit},)))


def _with_short_field(problem: Problem) -> Problem:
    """Return a problem with the names of fields that a request has, such as "rate" of a traffic."""
    own = problem.field.rpartition("traffic.")[2]
    name = OF_TRAFFIC.get(own, own if own in OF_SERVING else "")
    if name and "." in problem.field and not problem.where:
        problem = replace(problem, field=name, where=REQUEST)
    if problem.field in OPTIONS and not problem.where:
        problem = replace(problem, field=OPTIONS[problem.field])
    if any("=" in str(value) for edit in problem.edits for value in edit.values()):
        return problem  # the edit is a whole text of the request
    return replace(problem, fix=with_names(problem.fix, SHORT_NAMES | OF_TRAFFIC))


def errors_as_html(message: str, problems: Sequence[Problem] = (), changes: Sequence[Fix] = ()) -> str:
    """Return errors as a part of a page, each with the allowed values, the reason and the fix."""
    named = list(problems)
    count = f"{len(named)} error{'s' if len(named) != 1 else ''} in the input"
    items = "".join(f"<li>{_problem(each)}</li>" for each in named)
    text = f"<ul>{items}</ul>" if named else _message(message, changes)
    return f'<div class="faults" role="alert"><h2>{count if named else "No answer"}</h2>{text}</div>'


def _message(message: str, changes: Sequence[Fix]) -> str:
    """Return a message as paragraphs; indented lines become a list, with buttons that apply changes."""
    html, buttons = "", {str(each): _button(each.edits[0]) for each in changes}
    for indented, lines in groupby(message.splitlines(), lambda line: line.startswith("  ")):
        texts = [(escape(in_labels(each.strip())), buttons.get(each.strip(), "")) for each in lines]
        tag = "li" if indented else "p"
        shown = "".join(f"<{tag}>{text}{button}</{tag}>" for text, button in texts)
        html += f'<ul class="changes">{shown}</ul>' if indented else shown
    return html


def _button(edit: Edit) -> str:
    """Return the button that fills the fields of a form with an edit; "" if no form has one of its fields.

    >>> _button({"plan.tensor_parallel": 4, "lora": ""}), _button({"cluster.tiers": 1})
    (' <button type="button" data-fill="tp=4&amp;lora=">Apply</button>', '')
    """
    fields = {_form_field(name): in_words(value) for name, value in edit.items()}
    if not fields or "" in fields:
        return ""
    return f' <button type="button" data-fill="{escape(urlencode(fields))}">Apply</button>'


def _button_of(problem: Problem) -> str:
    """Return the button that applies the first edit of a fix; "" if the fix sets no fields of a form."""
    fix = problem.fix
    if not isinstance(fix, Fix) or not fix.edits or fix.is_example:
        return ""
    edit = {name or problem.field: value for name, value in fix.edits[0].items()}
    if fix.part and problem.field in edit:
        whole = in_words(problem.value)
        edit[problem.field] = whole.replace(fix.part, in_words(edit[problem.field]), 1)
    return _button(edit)


def _problem(problem: Problem) -> str:
    """Return one problem as HTML: the error, the allowed values, the reason, and the edit that fixes it."""
    in_file = ":" in problem.where  # a file has fields, and no labels
    words = str if in_file else in_labels
    pairs = [("fix", problem.fix)]
    for allowed, because in reversed(problem.conditions):
        pairs[:0] = [("allowed", allowed), ("because", because)]
    texts = [(name, escape(words(text))) for name, text in pairs]
    if not in_file:
        texts[-1] = ("fix", texts[-1][1] + _button_of(problem))
    rows = "".join(f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in texts)
    own, where = _form_field(problem.field), _form_field(problem.where.removeprefix("--"))
    key, label = own or where, words(problem.field)
    if key in FIELDS and not in_file and (own or key not in FREE):
        label = FIELDS[key].label
    elif in_file or (not key and problem.where not in ("", REQUEST)):
        label = f"{words(problem.where)}: {label}"
    name, said = f"<strong>{escape(label)}</strong>", problem.message.removeprefix(problem.field)
    if key:
        name = f'<a href="#field-{key}" data-field="{key}">{name}</a>'
    return f"<p>{name}{escape(said)}</p><dl>{rows}</dl>"


def _form_field(field: str) -> str:
    """Return the field of a form that holds a field of a job, or "" if no form has it.

    >>> _form_field("plan.tensor_parallel"), _form_field("model"), _form_field("cluster.tiers")
    ('tp', 'model', '')
    """
    name = field.removeprefix("--").rpartition("plan.")[2].replace("-", "_")
    if field.startswith("traffic"):
        name = OF_TRAFFIC.get(field.rpartition(".")[2], field.rpartition(".")[2])
    if name in Plan.model_fields:
        name = short_name(name, Plan.model_fields[name])
    return name if name in FORM_FIELDS else ""


def in_labels(text: str) -> str:
    """Return a text with the labels of the form instead of options and dotted names.

    >>> in_labels("set plan.tensor_parallel to 16"), in_labels("write gpus=8"), in_labels("--gpus 16")
    ('set Tensor parallel to 16', 'set GPUs to 8', 'GPUs 16')
    """
    text = COMMAND.sub("", text.replace(COMMAND_LINE, "form"))
    text = EDIT.sub(lambda found: f"set {_label(found['name'])} to ", text)
    return NAMED.sub(lambda found: _label(found["option"] or found["dotted"] or found["plan"]), text)


def _label(name: str) -> str:
    """Return the label of a field, an option or a dotted name, or the name itself if no form has it."""
    key = _form_field(OPTIONS.get(name, name))
    return FIELDS[key].label if key in FIELDS else name.removeprefix("plan.")


def last_comma(error: Exception) -> tuple[str, str] | None:
    """Return reason and fix if a JSON parser stopped at a comma before the end of an object or a list.

    >>> try:
    ...     json.loads('{"gpus": 16,}')
    ... except ValueError as error:
    ...     print(last_comma(error))
    ('a comma stands before "}" at character 12', 'remove this comma')
    """
    if not isinstance(error, json.JSONDecodeError):  # too deep, or half a character
        return None
    start = error.doc.rfind(",", 0, error.pos + 1)
    after = error.doc[start + 1 :].lstrip()[:1]
    if start < 0 or after not in ("}", "]") or error.doc[start + 1 : error.pos].strip():
        return None
    return f'a comma stands before "{after}" at character {start + 1}', "remove this comma"
