"""Faults of one value of a job: the allowed values, the reason, and the edit that fixes the value.

Answers: which words describe a value that pydantic refused?
Elsewhere: which values are refused, and on which line they are (refused_data.py), what fields mean (the
models in spec/ and layers/: descriptions of fields, docstrings of classes).
"""

import re
from collections.abc import Mapping
from typing import Literal, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flopcast.errors import SpecError
from flopcast.field_text import field_text
from flopcast.files.field_examples import EXAMPLES, MEANT
from flopcast.files.nearest_names import alternatives, nearest, with_other_numbers
from flopcast.files.other_forms import OTHER_VALUES, as_fraction, as_list, in_other_form
from flopcast.fixes import Fix, in_words, is_within, set_to, such_as
from flopcast.records import Record
from flopcast.slips import OFF
from flopcast.strict_model import NotAllowedError
from flopcast.units import units_of

KINDS = {  # how pydantic's kinds of errors begin → what would be allowed, and why
    "model_": ("a name, or a mapping from fields to values", "the value is neither a name nor a mapping"),
    "dict_": ("a mapping from names to values", "the value is not a mapping"),
    "mapping_": ("a mapping from names to values", "the value is not a mapping"),
    "int_parsing_size": ("a smaller whole number", "the number has too many digits"),
    "int_": ("a whole number", "the value is not a whole number"),
    "float_": ("a finite number", "the value is not a finite number"),
    "finite_": ("a finite number", "the value is infinite or not a number"),
    "bool_": ("true or false", "the field is either on or off"),
    "string_type": ("a text", "the value is not a text"),
    "tuple_": ("a list", "the value is not a list"),
    "too_short": ("a list with at least one entry", "the list is empty"),
}
TYPES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
PLAIN = (TYPES[int], "a finite number")  # what is allowed without a range
BOUNDS = {"greater_than": "smaller", "less_than": "larger"}  # pydantic's kind → values that are refused
SIDES = ("ge", "gt", "le", "lt")  # of a range, as annotated_types and pydantic's errors call them
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
ONLY_NUMBERS = re.compile(r"\d+")
CHOICE = re.compile(r"\d+(?:, \d+)* or \d+")  # numbers of which one is allowed
QUOTED = re.compile(r"'([^']*)'")
NO_OTHER = "flopcast supports only these values"  # begins the reason of an error about a word
NAMED = re.compile(r"^(\w+): ")  # the field that a condition on several fields is about
OTHER_FIELD = re.compile(r"\b(?:at most|divisor of|multiple of|if|unless) (?!the )(\w+)")
SUCH_AS = re.compile(r"such as (\S+?),? ")  # an example in the words of what is allowed
LISTED = re.compile(r": (\d+(?:, \d+)*)$")  # numbers behind a rule: "a divisor of heads (32): 1, 2, 4"


class FieldFault(Record):
    """The text of one fault, as in `errors.Problem`.

    `allowed` states the allowed values, `because` the reason, and `fix` an edit that corrects the file.
    """

    allowed: str
    because: str
    fix: str


def field_fault(detail: ErrorDetails, name: str, owner: type[BaseModel] | None, field: str) -> FieldFault:
    """Return the allowed values, the reason and the fix for a value that pydantic refused.

    Parameters
    ----------
    detail : ErrorDetails
        Pydantic's error.
    name : str
        The last name in the path of the value, or "document" for the whole document.
    owner : type or None
        The model that has the field; None if no model has it.
    field : str
        The name of the owner's field. For an entry of a mapping, it differs from `name`.

    Examples
    --------
    >>> from pydantic import Field, ValidationError
    >>> class Fan(BaseModel):
    ...     load_fraction: float = Field(ge=0, le=1, description="its load")
    >>> try:
    ...     Fan(load_fraction=2)
    ... except ValidationError as error:
    ...     fault = field_fault(error.errors()[0], "load_fraction", Fan, "load_fraction")
    >>> fault.allowed, fault.because
    ('a number from 0 to 1', 'larger values are not possible for load_fraction ("its load")')
    >>> fault.fix
    'set load_fraction to 1'
    """
    kind, info = detail["type"], owner.model_fields.get(field) if owner else None
    if kind == "value_error" and "true and false are not numbers" in detail["msg"]:  # of strict_model.py
        if info and get_origin(info.annotation) is Literal:
            allowed = alternatives([str(each) for each in get_args(info.annotation)])
            right = set_to({name: int(detail["input"])})
            return FieldFault(allowed=allowed, because="true and false are not numbers", fix=right)
        kind = "int_" if info and int in (info.annotation, *get_args(info.annotation)) else "float_"
    meaning, proposed = field_meaning(owner, field), _proposed(name, owner, field)
    refused = next((side for begun, side in BOUNDS.items() if kind.startswith(begun)), "")
    if refused:
        allowed = _range(detail.get("ctx", {}), info, field)
        because = f"{refused} values are not possible{f' for {meaning}' if meaning else ''}"
        inside = set_to({name: _inside(detail, allowed, refused, field)})
        right = proposed if proposed and is_within(proposed, allowed) else inside
        fix = as_fraction(detail["input"], allowed) or right
        return FieldFault(allowed=allowed, because=because, fix=fix)
    known = next((words for begun, words in KINDS.items() if kind.startswith(begun)), None)
    if known:
        if kind.startswith("tuple_") and isinstance(detail["input"], dict):
            fix = as_list(name, detail["input"], info)
            return FieldFault(allowed="a list", because="the value is a mapping", fix=fix)
        proposed = _in_form(kind, name, detail["input"]) or proposed
        if kind.startswith("bool_"):
            is_off = str(detail["input"]).lower() in ("0", "none", "null", "[]", *OFF)
            proposed = set_to({name: ((_usual(owner, field) if is_off else "") or "true").lower()})
        allowed, because = _quantity(field) or known if kind.startswith("float_") else known
        if allowed in PLAIN and info and info.metadata and name in spellings(field, info):
            allowed = _range({}, info, field)
        fix = in_other_form(name, detail["input"]) or proposed or f"set {name} to {allowed}"
        return FieldFault(allowed=allowed, because=because, fix=fix)
    return _of_condition(detail, name, meaning, _usual(owner, field))


def _of_condition(detail: ErrorDetails, name: str, meaning: str, usual: str) -> FieldFault:
    """Return the fault of a value that is not one of the choices, or breaks a condition of its model."""
    kind = detail["type"]
    if isinstance(cause := detail.get("ctx", {}).get("error"), SpecError):  # of a model in a short form
        first = cause.problems[0]
        fix = set_to(first.edits[0]) if first.edits else first.fix
        return FieldFault(allowed=first.allowed, because=first.because, fix=fix)
    message, because, fix = detail["msg"].removeprefix("Input should be "), "", ""
    if isinstance(cause, NotAllowedError):
        message, because, fix = cause.allowed, cause.because, cause.fix
    message = message.removeprefix("Value error, ")
    allowed = message.replace("'", "") if kind == "literal_error" else message
    if isinstance(detail["input"], dict) and kind == "value_error":
        wrong = NAMED.match(allowed)
        if wrong is None:
            because = because or f"the fields of {name} contradict each other"
            return FieldFault(allowed=allowed, because=because, fix=fix or f"change these fields of {name}")
        allowed = allowed.removeprefix(wrong[0]) if wrong[1] in detail["input"] else allowed
        cause = OTHER_FIELD.search(allowed)
        because = (
            because or f"{wrong[1]} {f'depends on {cause[1]}' if cause else 'contradicts another field'}"
        )
        fix = fix or _agreeing(wrong[1], detail["input"].get(wrong[1]), allowed)
        return FieldFault(allowed=allowed, because=because, fix=fix)
    if isinstance(detail["input"], str) and detail["input"] in ONLY_NUMBERS.findall(allowed):
        because = f"the value is a text, and {name} is a number"
        fix = Fix(f"write {name}: {detail['input']}, without quotes", ({name: detail["input"]},))
        return FieldFault(allowed=allowed, because=because, fix=fix)
    other = f"{NO_OTHER}{f' of the field {meaning}' if meaning else ''}"
    has_words = kind == "literal_error" or QUOTED.search(message)
    because = because or (other if has_words else "the value does not have this form")
    example = SUCH_AS.search(f"{allowed} ")
    such = example[1] if example else EXAMPLES.get(name)
    listed = QUOTED.search(message) or LISTED.search(message)
    right = "" if such and not listed else _choice(detail["input"], message, usual)
    meant = MEANT.get(str(detail["input"]).lower(), "")  # "fsdp" as a ZeRO stage
    fix = fix or (meant if isinstance(meant, Fix) and name in meant.edits[0] else "")
    fix = fix or (set_to({name: right}) if right else such_as(name, such) if such else f"change {name}")
    return FieldFault(allowed=allowed, because=because, fix=fix)


def _in_form(kind: str, name: str, given: object) -> Fix | None:
    """Return the fix that writes a mapping as text, one value as a list, or one of several numbers."""
    if kind.startswith("int_") and (listed := re.fullmatch(r"(\d+)(,\d\d?)+", str(given))):
        return set_to({name: int(listed[1])})
    if kind.startswith("string_") and isinstance(given, dict) and given:
        return set_to({name: " ".join(f"{key}={value}" for key, value in given.items())})
    return set_to({name: [given]}) if kind.startswith("tuple_") and name not in EXAMPLES else None


def _agreeing(name: str, value: object, allowed: str) -> str:
    """Return a fix whose value fits the other field that `allowed` names.

    >>> _agreeing("top_k", 9, "at most num_experts (8)"), _agreeing("top_k", 9, "a divisor of hidden (16)")
    ('set top_k to 8', 'set top_k to 8')
    >>> _agreeing("norm_placement", "after", "before, if residual is parallel")
    'set norm_placement to before'
    """
    if number := re.search(r"(divisor|multiple|most) .*\((\d+)( pixels)?\)", allowed):
        bound, given = int(number[2]), value if isinstance(value, int) else 1
        if number[1] == "divisor":
            divisors = (each for each in range(1, bound + 1) if bound % each == 0)
            return set_to({name: min(divisors, key=lambda each: abs(each - given))})
        return set_to({name: max(1, round(given / bound)) * bound if number[1] == "multiple" else bound})
    if word := re.match(r"(?:one of )?(\w+)(?:, \w+)*, (?:if|unless|because) ", allowed):
        return set_to({name: word[1]})
    return such_as(name, EXAMPLES[name]) if name in EXAMPLES else f"set {name} to {allowed}"


def contradicted(detail: ErrorDetails) -> str:
    """Return the field that a condition on several fields of a mapping concerns, or "" if it names none."""
    message = detail["msg"].removeprefix("Value error, ")
    wrong = NAMED.match(message) if detail["type"] == "value_error" else None
    return wrong[1] if wrong else ""


def missing_field(owner: type[BaseModel] | None, field: str) -> tuple[str, str, str]:
    """Return the allowed values of a missing field, why it is needed, and an example, or "" if none is
    known.
    """
    meaning = field_meaning(owner, field)
    because = f"there is no default for {meaning or 'this field'}"
    info = owner.model_fields.get(field) if owner else None
    kind = info.annotation if info else None
    if kind in (int, float) and info and info.metadata:
        allowed = _range({}, info, field)
    elif get_origin(kind) is Literal:
        allowed = alternatives([str(word) for word in get_args(kind)])
    else:
        allowed = (
            "a list"
            if get_origin(kind) is tuple
            else next((text for one, text in TYPES.items() if kind is one), KINDS["model_"][0])
        )
    return allowed, because, EXAMPLES.get(field, "")


def _proposed(name: str, owner: type[BaseModel] | None, field: str) -> Fix | None:
    """Return the fix that sets a field to a typical value, or to its default; None if none is known."""
    is_short = owner is not None and name in spellings(field, owner.model_fields[field])
    if example := EXAMPLES.get(field if is_short else name):
        return such_as(name, example)
    usual = _usual(owner, field)
    if units_of(field) or not NUMBER.fullmatch(usual):
        return None
    return Fix(f"set {name} to {usual}, the default", ({name: usual},))


def spellings(name: str, info: FieldInfo) -> list[str]:
    """Return the names that a field may have in files: its name and, if it has one, its short name."""
    choices = info.validation_alias
    return [str(each) for each in choices.choices] if isinstance(choices, AliasChoices) else [name]


def _quantity(field: str) -> tuple[str, str] | None:
    """Return what a quantity may be, and why a value that is no text is none; None for other fields."""
    units = units_of(field)
    if not units:
        return None
    example = EXAMPLES.get(field) or f"1 {units[0]}"
    return f"a number and a unit, such as {example}", "the value is not a number with a unit"


def _range(context: Mapping[str, float], info: FieldInfo | None, field: str) -> str:
    """Return the range of a number in words; the bounds of a quantity have its unit.

    A bound that only the error's `context` names, as in a mapping of numbers, is the whole range.
    """
    bounds = {
        side: getattr(rule, side)
        for rule in (info.metadata if info else ())
        for side in SIDES
        if hasattr(rule, side)
    }
    lower, above, upper, below = map((bounds or context).get, SIDES)
    units = units_of(field)
    unit = f" {units[0]}" if units else ""
    whole = info is not None and int in (info.annotation, *get_args(info.annotation))
    noun = "a whole number" if whole else "a quantity" if unit else "a number"
    if lower is not None and upper is not None:
        shown = [f"{end:,}" if whole else f"{end:g}" for end in (lower, upper)]
        return f"{noun} from {' to '.join(shown)}{unit}"
    ends = {"of at least": lower, "above": above, "of at most": upper, "below": below}
    if lower is None:
        ends["at most"] = ends.pop("of at most") if above is not None else None
    parts = [f"{words} {bound:g}{unit}" for words, bound in ends.items() if bound is not None]
    return f"{noun} {' and '.join(parts)}".rstrip()


def _inside(detail: ErrorDetails, allowed: str, refused: str, field: str) -> str:
    """Return a value inside a range, next to the bound that the refused value crosses."""
    ends = [float(number) for number in NUMBER.findall(allowed)]
    bound = ends[0] if refused == "smaller" else ends[-1]
    open_end = detail["type"] in ("greater_than", "less_than")
    step = 1.0 if len(ends) < 2 else min(1.0, 0.5 * (ends[1] - ends[0]))
    if open_end:
        bound += step if refused == "smaller" else -min(step, 0.5 * abs(bound) or step)
    units = units_of(field)
    return f"{bound:g}{f' {units[0]}' if units else ''}"


def _usual(owner: type[BaseModel] | None, field: str) -> str:
    """Return the default of a field as text; "" if it has none."""
    default = owner.model_fields[field].default if owner and field in owner.model_fields else None
    return str(default) if isinstance(default, (str, int, float)) else ""


def _choice(value: object, allowed: str, usual: str) -> str:
    """Return the nearest of the words or numbers that are allowed; "" if none are listed.

    If no word is near, it is one with the same digits at its end ("int8" and "fp8"), the usual one, or the
    first.
    """
    listed = LISTED.search(allowed)
    if listed and isinstance(value, int):
        numbers = [int(word) for word in listed[1].split(", ")]
        return str(min(numbers, key=lambda number: abs(number - value)))
    words = QUOTED.findall(allowed)
    numbers = [int(word) for word in ONLY_NUMBERS.findall(allowed)] if CHOICE.fullmatch(allowed) else []
    if numbers and isinstance(value, (int, float)):
        return str(min(numbers, key=lambda number: abs(number - value)))
    if (same := OTHER_VALUES.get(in_words(value))) in words:
        return str(same)
    plain = str(value).lower().removeprefix("torch.").replace("float", "fp")
    parts = sorted(re.split("[_-]", plain))
    if turned := [word for word in words if "_" in word and sorted(word.split("_")) == parts]:
        return str(turned[0])
    begun = [str(word) for word in words if re.match(rf"{re.escape(word)}(?:[_.-]|$)", plain)]
    if begun:
        return max(begun, key=len)  # fp8 of float8_e4m3fn
    near = nearest(str(value), words, least_ratio=0.6) if words else []
    initials = "".join(part[0] for part in re.findall(r"[a-z]+", str(value)))  # "zb" of "zero-bubble"
    near = near or [word for word in words if len(initials) > 1 and word.startswith(f"{initials}_")]
    first = str(value).partition("_")[0]  # "q" of "q_proj"
    near = near or sorted((word for word in words if word.startswith(first)), key=len)
    digits = re.search(r"\d+$", str(value))
    if digits and (usual in words or not usual):  # "fp12" is no slip of the pen for "fp16"
        number, stem = digits[0], str(value).removesuffix(digits[0])
        near = [w for w in near if w.endswith(number) or w == stem or w.rstrip("0123456789") != stem]
    near += [word for word in words if digits and re.fullmatch(rf"\D*{digits[0]}", word)]
    near += with_other_numbers(str(value), words)  # int3 is nearer to int4 than to bf16
    choices = words if len(words) > 1 else [str(number) for number in numbers]
    if usual in ("none", "0") and value and str(value).lower() not in OFF:
        choices.sort(key=usual.__eq__)  # who writes a value does not want the feature off
    elif usual in choices:
        near.append(usual)
    near += choices
    return near[0] if near else ""


def field_meaning(owner: type[BaseModel] | None, field: str) -> str:
    """Return a field with its meaning, from the docstring of its model or its own description.

    The result is "" if there is no description, or if it states only the effect of omitting the field.
    """
    if owner is None:
        return ""
    text = re.split(r"(?<=[^.][.;]) ", field_text(owner, field))[0].rstrip(".;:")
    if text.lower().startswith(("left out:", "default:", "by default", "as in")):
        return ""
    if text.partition(" ")[0][1:].islower():
        text = text[0].lower() + text[1:]  # but no abbreviation
    quoted = text.replace('"', "'")
    return f'{field} ("{quoted}")' if text else ""
