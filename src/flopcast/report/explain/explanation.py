"""An explanation: a number of a report, its formula, what went into it, and what it adds up from.

Answers: how is an explained number shown, as text and as JSON?
Elsewhere: which numbers can be explained (names.py), what is said of each kind (kernels.py, messages.py,
others.py).
"""

from dataclasses import dataclass

from flopcast.units import show, show_seconds

WIDTH = 26


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One number or word of a formula, with its source.

    `number` is the same in SI units, where it is one.
    """

    name: str
    told: str
    source: str = ""
    number: float | int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """A number of a report.

    `amount` is in `unit`: "s", "B", or "" for a ratio. `parts`, where there are any, add up to it, but for
    rounding; `note` says what one of them is ("256 × 2.4 ms").
    """

    name: str
    amount: float | int
    unit: str
    formula: str
    inputs: tuple[Input, ...] = ()
    parts: "tuple[Explanation, ...]" = ()
    note: str = ""


def as_text(explained: Explanation) -> str:
    """Return lines for a terminal: the number, its formula, its inputs, its parts with theirs."""
    return "\n".join(_lines(explained, ""))


def _lines(explained: Explanation, indent: str) -> list[str]:
    """Return an explanation as lines, with its parts indented by one step."""
    note = f"   {explained.note}" if explained.note else ""
    lines = [f"{indent}{explained.name:{WIDTH}} {told(explained.amount, explained.unit)}{note}"]
    lines += [f"{indent}  = {explained.formula}"] if explained.formula else []
    for each in explained.inputs:
        source = f"   ({each.source})" if each.source else ""
        lines.append(f"{indent}  {each.name:{WIDTH - 2}} {each.told}{source}")
    for part in explained.parts:
        lines += _lines(part, f"{indent}  ")
    return lines


def told(amount: float | int, unit: str) -> str:
    """Return a number with its unit."""
    if unit == "s":
        return show_seconds(amount)
    return show(amount, unit) if unit else f"{amount:.4g}"


def as_json(explained: Explanation) -> dict[str, object]:
    """Return JSON data: every field, with parts nested."""
    return {
        "name": explained.name,
        "value": explained.amount,
        "unit": explained.unit,
        "formula": explained.formula,
        "note": explained.note,
        "inputs": [
            {"name": each.name, "value": each.told, "number": each.number, "source": each.source}
            for each in explained.inputs
        ],
        "parts": [as_json(part) for part in explained.parts],
    }
