"""Paths of fields in a document: how users write them, which values stand there, examples of values.

Answers: what is the place of a field called, and what stands in this place?
Elsewhere: lines of fields (yaml_text.py), names of fields (field_names.py).
"""

import re

from flopcast.files.yaml_text import Path

OF_FILES: dict[Path, tuple[str, ...]] = {  # keys of files that change an entry of the catalogue
    ("cluster",): ("base", "nodes"),
    ("model",): ("base", "num_layers"),
    ("stack",): ("base",),
}


def example_of(field: str) -> str:
    """Return an example of a field's value; "" if there is none. Only errors contain examples."""
    from flopcast.files.field_examples import EXAMPLES

    return EXAMPLES.get(field, "")


def value_at(data: object, location: Path) -> object:
    """Return the value at a location of the data before its units were converted."""
    for each in location:
        part = str(each) if isinstance(data, dict) and each not in data else each  # of a changed list
        is_entry = isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data)
        holds = is_entry or (isinstance(data, dict) and part in data)
        data = data[part] if holds else getattr(data, str(part), None)  # type: ignore[index]
    return data


def dotted(path: Path) -> str:
    """Return a path as a user writes it: "model.blocks[0].count"; "document" for the whole."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "document"


def path_of(field: str) -> Path:
    """Return the path of a field as messages show it.

    >>> path_of("model.blocks[0].count")
    ('model', 'blocks', 0, 'count')
    >>> path_of("site.fabric[infiniband]")
    ('site', 'fabric[infiniband]')
    """
    parts = re.findall(r"[^.\[\]]+(?:\[[a-z][^\]]*\])?", field)
    return tuple(int(part) if part.isdecimal() else part for part in parts)
