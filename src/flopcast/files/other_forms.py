"""Values in a form that another program or another field of a job uses.

Answers: which edit turns a percentage, or a number instead of a whole part, into an allowed value?
Elsewhere: other wrong values (field_faults.py).
"""

import re
from collections.abc import Mapping
from typing import get_args

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from flopcast.files.field_examples import MEANT
from flopcast.fixes import Fix, in_place, in_words, set_to
from flopcast.strict_model import NotAllowedError

OF_ONE_FIELD = {  # parts of a job → the fix of a number or a text that is meant for their usual field
    "batch": MEANT["batch_size"],
    "offload": "set plan.offload to optimizer:host instead",
    "run": "set run to {{tokens: {value}}}",
    "links": "set links to {{file: {value}}}",
    "derate": "set derate to {{ratio: {value}}}",
}
IN_SEARCH = re.compile(r"\w+_parallel|\w+_batch|virtual_stages|zero")  # fields that a search may vary
OTHER_VALUES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "awq": "int4", "gptq": "int4",
                "s3": "object_store", "gcs": "object_store", "lustre": "file_system", "nfs": "file_system",
                "ssd": "nvme", "disk": "nvme", "ram": "cpu", "dram": "cpu", "swish": "silu", "all": "full",
                "everything": "full", "true": "full", "yes": "full", "on": "full",
                "zerobubble": "zb_h1", "gpu": "cuda", "mla": "latent_attention", "mha": "attention",
                "gqa": "attention", "moe": "experts", "mamba": "selective_scan", "rwkv": "time_mix",
                "engine": "rollout", "vllm": "rollout", "trainer": "training", "actor": "training",
                "Gbps": "Gb/s", "Mbps": "Mb/s"}  # fmt: skip


def as_fraction(given: object, allowed: str) -> str:
    """Return the fix of a percentage in place of a fraction; "" for other values."""
    is_share = allowed.endswith((" at most 1", " below 1", " to 1"))
    return (
        in_place(f"{given / 100:g}", f"{given:g}")
        if is_share and isinstance(given, (int, float)) and 10 <= given <= 100
        else ""
    )


def in_other_form(name: str, given: object) -> str:
    """Return the fix of a value in the form of another program, or of another field."""
    if given == "auto" or (name == "targets" and given in ("all", "all-linear")):
        all_linear = "remove adapters, and add --lora RANK to the command, which adapts all linear layers"
        return all_linear if name == "targets" else f"leave out {name}"
    if isinstance(given, list) and given and all(re.match(r"\w+=", str(one)) for one in given):
        return Fix(f'set {name} to "{" ".join(map(str, given))}"', ({name: " ".join(map(str, given))},))
    if isinstance(given, list) and given and all(isinstance(each, dict) for each in given):
        return f"write the entries of {name} without hyphens"
    several = given.split(",") if isinstance(given, str) else given
    if IN_SEARCH.fullmatch(name) and isinstance(several, list) and len(several) > 1:
        words = f"{name}={','.join(str(each).strip() for each in several)}"
        return set_to({name: several[0]}, f'remove it, and run flopcast search with --plan "{words}"')
    if re.fullmatch(r"\d+(?:\s*[;/|+]\s*\d+)+", str(given)):
        return set_to({name: ",".join(re.findall("[0-9]+", str(given)))})
    is_known = name in OF_ONE_FIELD and isinstance(given, (int, float, str))
    return OF_ONE_FIELD[name].format(value=given) if is_known else ""


def of_kind(detail: ErrorDetails) -> ErrorDetails:
    """Return the fault of a mapping of no known kind as that of its kind; other faults unchanged."""
    if detail["type"] != "union_tag_invalid":
        return detail
    tag, kinds = detail["ctx"]["tag"], detail["ctx"]["expected_tags"]
    return {**detail, "type": "literal_error", "loc": (*detail["loc"], "kind"), "input": tag, "msg": kinds}


def known_name(info: FieldInfo, name: str) -> str:
    """Return the known name that a wrong name in a field misspells; any other name unchanged."""
    for rule in info.metadata:
        try:
            getattr(rule, "func", str)(name)
        except NotAllowedError as error:
            return str(error.fix.edits[0]["name"]) if isinstance(error.fix, Fix) else name
    return name


def as_list(name: str, mapping: Mapping[str, object], info: FieldInfo | None) -> str:
    """Return the fix of a mapping in place of a list."""
    wrong = [key for key, value in mapping.items() if isinstance(value, dict) and not key.isdecimal()]
    fix = f"begin each entry of {name} with a hyphen, or write it in square brackets"
    entry = get_args(info.annotation)[0] if info and get_args(info.annotation) else None
    fields: dict[str, FieldInfo] = getattr(entry, "model_fields", {})
    needed = [key for key, field in fields.items() if field.is_required()]
    plain = not any(isinstance(value, dict) for value in mapping.values())
    if needed[:1] == ["name"] and len(needed) == 2 and plain:
        named = {known_name(fields["name"], key): value for key, value in mapping.items()}
        entries = ", ".join(f"{{name: {key}, {needed[1]}: {value}}}" for key, value in named.items())
        fix = f"write {name}: [{entries}]"
    elif mapping and {*mapping} <= {*fields} and not {*needed} <= {*mapping}:  # a part of an entry
        fix = f"write {name}: {in_words({'0': mapping})}"
    elif mapping and {*mapping} <= {*fields}:
        fix = f"write square brackets around the entry, as in {name}: [{{{next(iter(mapping))}: ...}}]"
    elif wrong and all(isinstance(value, dict) for value in mapping.values()):
        fix = f"write the number of an entry of {name}, such as 0 for the first, in place of {wrong[0]}"
        if "name" in fields:
            fix = f'begin each entry with a hyphen and its name: write "- name: {wrong[0]}" for {wrong[0]}'
    return fix
