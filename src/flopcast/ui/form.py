"""The form of a page: groups of fields, the choices of each field, and fields for a chosen plan.

Answers: which fields does a form have, in which order, and what does each show?
Elsewhere: the page around the form (page.py), what fields mean (form_fields.py), the controls that the
script shows instead of fields (static/widgets.js).

A form works without a script: a list is a `<select>`, and a number is a text field. The script replaces a
list with `data-picker` by a field that can be searched, and adds a slider to a number with `data-stops`.
"""

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import parse_qsl

from flopcast.render.search_table import objective_name
from flopcast.search.objectives import OBJECTIVES
from flopcast.ui.chosen_plan import CHOSEN
from flopcast.ui.form_fields import FIELDS, FINDS, SERVING_FIELDS, Field
from flopcast.ui.request_values import OF_DEGREES, OF_FORMATS, OF_LIMITS, OF_PLAN, OF_SEARCH

Fields = Mapping[str, str]
JOB = ("model", "cluster", "gpus", "gbs", "seq", "stack")
RUN = ("tokens", "samples", "epochs", "checkpoint", "lora", "qlora")
PLAN = (*(name for name in OF_PLAN if name != "gbs"), "plan")
MORE = ("price", "power_limit", "slow", "loader", "images", "changes")
POWERS = tuple(2**power for power in range(15))  # that sliders stop at


def predict_form(words: Fields) -> str:
    """Return the content of the form of a prediction."""
    buttons = (
        '<button type="submit">Predict</button>'
        '<button type="submit" name="choose" value="1">Choose the plan for me</button>'
    )
    return _job(words, "") + _buttons(buttons)


def search_form(words: Fields) -> str:
    """Return the content of the form of a search, whose fields may hold several values."""
    buttons = (
        '<button type="submit" name="go" value="1">Search</button>'
        '<button type="button" id="stop" class="scripted" hidden disabled>Stop</button>'
    )
    question = _card("Goal and limits", _inputs(OF_SEARCH, words))
    # the form is longer than a screen: its buttons stand above it
    return _buttons(buttons) + question + _job(words, "", several=True)


def compare_form(words: Fields) -> str:
    """Return the content of the form of a comparison: the fields of two jobs."""
    sides = "".join(
        f'<fieldset class="side"><legend>{side.upper()}</legend>{_job(words, f"{side}.")}</fieldset>'
        for side in ("a", "b")
    )
    return sides + _buttons('<button type="submit">Compare</button>')


def serve_form(words: Fields) -> str:
    """Return the content of the serving form."""
    buttons = (
        '<button type="submit">Predict</button>'
        '<button type="submit" name="choose" value="1">Find the best deployment</button>'
    )
    deployment = (*OF_DEGREES, *OF_FORMATS, *OF_LIMITS, "settings")
    return (
        _card("Model and machine", _inputs(("model", "cluster", "gpus", "engine"), words))
        + _card("Traffic", _inputs(("rate", "concurrency", "prompt", "output", "slo"), words))
        + _folded("Deployment", deployment, words, "", opened=True, fields=SERVING_FIELDS)
        + _folded("Price and requests", ("price", "requests"), words, "")
        + _buttons(buttons)
    )


def machine_fields(words: Fields) -> str:
    """Return the fields for the machine that the job of an uploaded file uses."""
    return _inputs(("cluster", "gpus"), words)


def used_values(values: Fields) -> str:
    """Return the values that apply to empty fields, as attributes of an element; the script shows them.

    >>> used_values({"seq": "8192", "rate": ""})
    ' data-used-seq="8192" data-used-rate=""'
    """
    return "".join(f' data-used-{name}="{escape(value)}"' for name, value in values.items())


def plan_note(words: Fields, prefix: str = "") -> str:
    """Return a note that states who chose the plan of a form: flopcast, the user, or both.

    >>> plan_note({"tp": "8", "pp": "1", "chosen": "model=m&pp=1"})
    'set by you: tp'
    """
    chosen = dict(parse_qsl(words.get(prefix + CHOSEN, "")))
    stated = [name for name in PLAN if words.get(prefix + name)]
    own = [name for name in stated if words[prefix + name] != chosen.get(name)]
    if not own:
        return "of the uploaded file, or chosen for you" if words.get(f"{prefix}job") else "chosen for you"
    return f"set by you: {', '.join(own)}" if len(own) < len(stated) else "set by you"


def _job(words: Fields, prefix: str, *, several: bool = False) -> str:
    """Return the groups of a job's fields; the groups of the run's length and of rare fields are folded."""
    packed = words.get(f"{prefix}job", "")
    brought = (
        f'<p class="brought"><label><input type="checkbox" name="{prefix}job" value="{escape(packed)}"'
        " checked> Use the uploaded file. Fields override it.</label></p>"
    )
    chosen = escape(words.get(prefix + CHOSEN, ""))
    note = "" if several else f' <small class="note">{escape(plan_note(words, prefix))}</small>'
    return (
        ("" if several else f'<input type="hidden" name="{prefix}{CHOSEN}" value="{chosen}">')
        + (brought if packed else "")
        + _card("Job", _inputs(JOB, words, prefix, several=several))
        + _folded("Length of the run and fine-tuning", RUN, words, prefix)
        + _folded(f"Plan{note}", PLAN, words, prefix, several=several, opened=not prefix and not several)
        + _folded("Price, power and other fields", MORE, words, prefix, several=several)
    )


def _card(legend: str, inner: str) -> str:
    return f'<fieldset class="card"><legend>{escape(legend)}</legend>{inner}</fieldset>'


def _folded(
    summary: str,
    names: Sequence[str],
    words: Fields,
    prefix: str,
    *,
    several: bool = False,
    opened: bool = False,
    fields: Mapping[str, Field] = FIELDS,
) -> str:
    """Return a group that can be unfolded; it is open if it holds a value that the user entered."""
    name = summary.partition(" <")[0]
    written = any(words.get(prefix + each) for each in names)
    shown = " open" if opened or (written and (names != PLAN or several)) else ""
    return (
        f'<details class="card"{shown}><summary>{summary}</summary>'
        f'<div role="group" aria-label="{escape(name)}" class="inner">'
        f"{_inputs(names, words, prefix, several=several, fields=fields)}</div></details>"
    )


def _inputs(
    names: Sequence[str],
    words: Fields,
    prefix: str = "",
    *,
    several: bool = False,
    fields: Mapping[str, Field] = FIELDS,
) -> str:
    inner = ""
    for name in names:
        field = fields[name]
        one = not several or (name not in OF_PLAN and not field.several)
        inner += _input(prefix + name, field, words.get(prefix + name, ""), one=one)
    return inner


def _input(name: str, field: Field, value: str, *, one: bool) -> str:
    """Return one field with its label; a field that may hold several values accepts any text."""
    key = f"field-{name}"
    slides = " slides" if field.slides and one else ""
    beside = field.hint if one else field.several or field.hint
    hint = f' <small id="{key}-hint">{escape(beside)}</small>' if beside else ""
    described = f' aria-describedby="{key}-hint"' if beside else ""
    shared = f'id="{key}" name="{name}"{described}'
    if field.choices and one:
        picked = " data-picker" if field.searched else ""
        options = _options(field.choices, value, field.empty)
        control = f"<select {shared}{picked}>{options}</select>"
    else:
        digits = ' inputmode="numeric"' if field.counts and one else ""
        stops = f' data-stops="{" ".join(map(str, POWERS))}"' if slides else ""
        shared += f' list="{key}-offered"' if field.choices else ""
        control = f'<input {shared} type="text" value="{escape(value)}"{digits}{stops} spellcheck="false">'
        if field.choices:
            options = "".join(f'<option value="{escape(each)}">' for each in field.choices)
            control += f'<datalist id="{key}-offered">{options}</datalist>'
    wide = " wide" if field.wide else ""
    return (
        f'<div class="field{wide}{slides}" title="{escape(field.about)}">'
        f'<label for="{key}">{escape(field.label)}{hint}</label>{control}</div>'
    )


def _options(choices: Sequence[str], value: str, empty: str) -> str:
    """Return the choices of a list, the empty choice first. A value outside the list is added."""
    offered = ("", *(() if value in ("", *choices) else (value,)), *choices)
    chosen = {value: " selected"}
    return "".join(
        f'<option value="{escape(each)}"{chosen.get(each, "")}>{escape(_label(each) or empty)}</option>'
        for each in offered
    )


def _label(choice: str) -> str:
    """Return the text of a choice: a label for objectives and searches, and others as they are."""
    return objective_name(OBJECTIVES[choice]) if choice in OBJECTIVES else FINDS.get(choice, choice)


def _buttons(inner: str) -> str:
    """Return the buttons of a form, and the element for its status."""
    return f'<p class="buttons">{inner}<span id="told" role="status"></span></p>'
