"""Errors of the command line as JSON, for commands with `--json`.

Answers: when are errors printed as JSON?
Elsewhere: the shape of the JSON (render/error_json.py), usage errors (usage_errors.py), exit codes
(main.py).
"""

import json
from collections.abc import Sequence

from flopcast.errors import InfeasibleError, SpecError

OPTION = "--json"


def wants_json(words: Sequence[str]) -> bool:
    """Return whether `--json` is among the options of a command line; words after `--` are arguments.

    Examples
    --------
    >>> wants_json(["predict", "--json"]), wants_json(["predict", "--", "--json"])
    (True, False)
    """
    options = words[: words.index("--")] if "--" in words else words
    return OPTION in options


def as_json(error: Exception) -> str:
    """Return an error as the text of one JSON object."""
    from flopcast.render.error_json import BUG, INFEASIBLE, fault, input_faults

    if isinstance(error, SpecError):
        data = input_faults(error.problems)
    elif isinstance(error, InfeasibleError):
        data = fault(INFEASIBLE, str(error), error.changes)
    else:
        data = fault(BUG, f"{type(error).__name__}: {error}")
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
