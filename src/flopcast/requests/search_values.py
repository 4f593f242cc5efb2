"""Values of the options of a search: switches, an amount of money and a time.

Answers: which limits does a search have, and what is wrong with one that cannot be read?
Elsewhere: the settings of a search (search_request.py).
"""

import re

from flopcast.errors import spec_error
from flopcast.fixes import set_to
from flopcast.meant_quantities import meant_count, meant_quantity
from flopcast.quantities import parse_quantity, parse_usd

DEADLINE_UNITS = ("d", "h", "min", "s")  # a bare number in a fix is one of days


def flag(name: str, given: object) -> bool:
    """Return whether an option without a value is set; other interfaces than the command line give words.

    >>> flag("--evolve", "yes"), flag("--evolve", None)
    (True, False)
    """
    word = str(given or "no").lower()
    if word not in ("yes", "true", "no", "false"):
        because = f"{name} is an option without a value"
        raise spec_error(name, given, "yes or no", because, set_to({name: "yes"}, "remove it"))
    return word in ("yes", "true")


def dollars(text: object) -> float | None:
    """Return an amount of money, with or without its unit; with letters as for tokens."""
    if text is None:
        return None
    try:
        amount = parse_usd(str(text))
    except ValueError:
        amount = None
    if amount is None or amount <= 0:
        allowed = 'dollars above 0, such as "2.5M USD" or 40000'
        right = meant_count(re.sub(r"(?<=\d) (?=\d{3}\b)", "", str(text)))
        fix = f'write --budget "{right} USD"' if right else "convert the budget to US dollars"
        fix = fix if re.search(r"\d", str(text)) else 'write --budget "2M USD"'
        because = "a budget is an amount of US dollars, and flopcast does not convert currencies"
        if amount is not None:
            right = f"{-amount:g}" if amount else "2M"
            because, fix = "the amount is not above 0", f'write --budget "{right} USD"'
        raise spec_error("--budget", text, allowed, because, fix)
    return amount


def seconds(text: object) -> float | None:
    """Return the seconds of a deadline, or None if there is none."""
    if text is None:
        return None
    try:
        time_s = parse_quantity(str(text), DEADLINE_UNITS)
    except ValueError:
        time_s = -1.0
    if time_s <= 0:
        right = meant_quantity(str(text).lstrip("- "), DEADLINE_UNITS)
        right = right if right and parse_quantity(right, DEADLINE_UNITS) > 0 else "30 d"
        allowed, because = (
            'a time such as "30 d" or "12 h"',
            "a deadline is the longest allowed time of the run",
        )
        raise spec_error("--deadline", text, allowed, because, f'write --deadline "{right}"')
    return time_s
