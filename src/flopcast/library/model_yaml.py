"""A model's mapping as YAML text, laid out as the catalogue's files are.

Answers: how is a model written so that people and `files.yaml_text` can read it? Texts are always quoted,
so that they are not read as numbers or truth values.
"""

import json
from collections.abc import Mapping, Sequence

FIRST = ("count", "norm", "norm_bias", "norm_scale", "norm_placement", "residual")  # keys of a block


def model_text(mapping: Mapping[str, object]) -> str:
    """Return the YAML of a model: one line per field, with blocks and sources as lists.

    Parameters
    ----------
    mapping : plain data, as `interop.hugging_face.model_from_config` gives it

    Examples
    --------
    >>> print(model_text({"hidden": 64, "blocks": [{"mixer": {"heads": 4}, "count": 2}]}), end="")
    hidden: 64
    blocks:
      - count: 2
        mixer: {heads: 4}
    """
    lines = []
    for key, value in mapping.items():
        if isinstance(value, Sequence) and not isinstance(value, str) and isinstance(value[0], Mapping):
            lines.append(f"{key}:")
            for entry in value:
                lines += _entry(entry)
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def _entry(entry: object) -> list[str]:
    """Return one block or source: its keys in the catalogue's order, a source on one line."""
    if not isinstance(entry, Mapping) or "mixer" not in entry:
        return [f"  - {flow(entry)}"]
    keys = [key for key in FIRST if key in entry] + [key for key in entry if key not in FIRST]
    lines = [line for key in keys for line in _field(key, entry[key])]
    return [f"  - {lines[0].lstrip()}", *lines[1:]]


def _field(key: str, value: object) -> list[str]:
    """Return a field of a block: on one line, or one line for each part of its lists (a traced mixer)."""
    if not isinstance(value, Mapping) or not any(_is_list(inner) for inner in value.values()):
        return [f"    {key}: {flow(value)}"]
    lines = [f"    {key}:"]
    for name, inner in value.items():
        listed = inner if _is_list(inner) else ()
        lines.append(f"      {name}:" + ("" if listed else f" {flow(inner)}"))
        lines += [f"        - {flow(part)}" for part in listed]
    return lines


def _is_list(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return bool(value) and isinstance(value[0], Mapping)


def flow(value: object) -> str:
    """Return a value on one line of YAML.

    Texts are quoted if YAML might read them as another type. Whole floats are written as integers. A
    mapping or a list becomes one in braces or brackets.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    if isinstance(value, str) and value.replace("_", "").isalpha() and value.islower():
        return value if value not in ("true", "false", "null") else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)
