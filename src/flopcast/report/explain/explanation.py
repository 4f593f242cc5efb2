"""An explanation: a number of a report, its formula, its inputs, and its parts.

Answers: how is an explained number shown, as text and as JSON?
Elsewhere: which numbers can be explained (registry.py), the explanation of each kind of number
(kernels.py, messages.py, steps.py, memory.py).
"""

from flopcast.records import Record
from flopcast.units import show, show_memory, show_seconds, show_usd


class Input(Record):
    """One input of a formula, with its source. `number` is the input in SI units, if it is a number."""

    name: str
    text: str
    source: str = ""
    number: float | int | None = None


class Explanation(Record):
    """A number of a report.

    `amount` is in `unit`: "s", "B", "USD", "requests/s", or "" for a ratio. The sum of `parts`, if there
    are any, is the amount, except for rounding; `note` describes a part ("256 × 2.4 ms").
    """

    name: str
    amount: float | int
    formula: str
    unit: str = "s"
    inputs: tuple[Input, ...] = ()
    parts: "tuple[Explanation, ...]" = ()
    note: str = ""


def with_unit(amount: float | int, unit: str) -> str:
    """Return a number with its unit."""
    if unit == "s":
        return show_seconds(amount)
    if unit == "B":
        return show_memory(amount)
    if unit == "USD":
        return show_usd(amount)
    return show(amount, unit) if unit else f"{amount:.4g}"
