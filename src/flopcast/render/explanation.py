"""An explanation as text and as JSON.

Answers: what does `flopcast explain` print?
Elsewhere: the contents of an explanation (report/explain/explanation.py).
"""

from flopcast.render.plain_data import unrounded
from flopcast.render.terminal import answer, aside
from flopcast.report.explain.explanation import Explanation, with_unit

WIDTH = 26


def marked_text(explained: Explanation) -> str:
    """Return the printed text, with marks that a terminal shows as colours (terminal.py)."""
    return "\n".join(_lines(explained, ""))


def _lines(explained: Explanation, indent: str) -> list[str]:
    note = f"   {explained.note}" if explained.note else ""
    amount = with_unit(explained.amount, explained.unit)
    lines = [f"{indent}{explained.name:{WIDTH}} {amount if indent else answer(amount)}{note}"]
    lines += [f"{indent}  = {explained.formula}"] if explained.formula else []
    for each in explained.inputs:
        source = f"   {aside(f'({each.source})')}" if each.source else ""
        lines.append(f"{indent}  {each.name:{WIDTH - 2}} {each.text}{source}")
    for part in explained.parts:
        lines += _lines(part, f"{indent}  ")
    return lines


def as_json(explained: Explanation) -> dict[str, object]:
    """Return JSON data with all fields. Parts are nested."""
    return {
        "name": explained.name,
        "value": explained.amount,
        **unrounded(explained, "unit", "formula", "note"),
        "inputs": [
            {"name": each.name, "value": each.text, **unrounded(each, "number", "source")}
            for each in explained.inputs
        ],
        "parts": [as_json(part) for part in explained.parts],
    }
