"""Values that a launch script takes from outside: its arguments `$1`, `$2`, …, and the environment.

Answers: what is the text of a script in which the first command sets these values?
Elsewhere: reading the script (script.py).

The values are written into the text before its first command, on the same line, so line numbers in error
messages stay correct. A value that the script does not use is an error, because it would have no effect.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from flopcast.errors import Problem, SpecError

NAME = re.compile(r"[A-Za-z_]\w*")
FROM_OUTSIDE = re.compile(r"\$(?:([A-Za-z_]\w*|[0-9]+)|\{([A-Za-z_]\w*|[0-9]+)(?::?[?][^}]*)?\})")
OUTSIDE = ("WORLD_SIZE",)  # variables that have an effect even if the script does not name them
MOST_ARGUMENTS = 99
MOST_LENGTH = 10_000


def parsed_values(words: Sequence[str], option: str) -> dict[str, str]:
    """Return values by name, from arguments "NAME=VALUE".

    Raises
    ------
    SpecError
        An argument has another form, its name cannot be used in a script, or it is given twice.

    Examples
    --------
    >>> parsed_values(["1=8", "2=a b"], "--arg"), parsed_values(["NNODES=4"], "--env")
    ({'1': '8', '2': 'a b'}, {'NNODES': '4'})
    """
    values: dict[str, str] = {}
    problems = []
    for word in words:
        name, equals, value = word.partition("=")
        number = name.isdecimal() and 0 < int(name[:3]) <= MOST_ARGUMENTS
        right = number if option == "--arg" else bool(NAME.fullmatch(name))
        if not equals or not right or name in values or len(value) > MOST_LENGTH or not value.isprintable():
            allowed = "1=VALUE, 2=VALUE, …" if option == "--arg" else "NAME=VALUE"
            key = "its position" if option == "--arg" else "the name of its variable"
            because = f"each value follows {key} and an equals sign, and may be given only once"
            edit = f"1={word}" if option == "--arg" and not equals else allowed
            problems.append(Problem(option, word, allowed, because, f"write {option} {edit}"))
        values[name] = value
    if problems:
        raise SpecError(problems)
    return values


def with_values(text: str, arguments: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the script with its arguments and variables set before its first command.

    Raises
    ------
    SpecError
        The script does not use a value.

    Examples
    --------
    >>> with_values("#!/bin/bash\\nrun --tp $1\\n", {"1": "8"}, {})
    '#!/bin/bash\\nset -- 8; run --tp $1\\n'
    >>> with_values("run --tp $2\\n", {"2": "8"}, {})  # $1 stays unknown
    'set -- "${1}" 8; run --tp $2\\n'
    """
    _check_used(text, arguments, environment)
    prefix = ""
    if arguments:
        count = max(map(int, arguments))
        places = map(str, range(1, count + 1))
        words = [shlex.quote(arguments[one]) if one in arguments else f'"${{{one}}}"' for one in places]
        prefix += f"set -- {' '.join(words)}; "
    if environment:
        prefix += "".join(f"export {name}={shlex.quote(value)}; " for name, value in environment.items())
    lines = text.split("\n")
    stripped = enumerate(map(str.strip, lines))
    first = next((i for i, line in stripped if line and not line.startswith("#")), -1)
    lines[first] = prefix + lines[first]
    return "\n".join(lines)


def _check_used(text: str, arguments: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Check that a script uses every value."""
    problems = []
    for place, value in arguments.items():
        bare = f"{place}|" if len(place) == 1 else ""  # $24 is $2 and then a 4
        if not re.search(rf"\$(?:{bare}\{{{place}\b|[@*]|\{{[@*]|#)|\bshift\b", text):
            problems.append(_unused("--arg", f"{place}={value}", f"${place}"))
    for name, value in environment.items():
        if name not in OUTSIDE and not re.search(rf"(?<!\w){name}(?!\w)", text):
            problems.append(_unused("--env", f"{name}={value}", f"${name}"))
    if problems:
        raise SpecError(problems)


def _unused(option: str, word: str, variable: str) -> Problem:
    """Return the error for a value that a script does not use."""
    because = f"the script does not use {variable}"
    return Problem(option, word, "a variable that the script uses", because, f"remove {option} {word}")


def from_outside(unknown: str, example: str = "2") -> str:
    """Return how to pass a value that a script takes from outside.

    >>> from_outside("$1"), from_outside("${NNODES}", "8")
    ('add --arg 1=2, with its value', 'add --env NNODES=8, with its value')
    """
    match = FROM_OUTSIDE.fullmatch(unknown)
    if match is None:
        return f"write the value of {unknown} instead"
    name = match[1] or match[2]
    return f"add --{'arg' if name.isdecimal() else 'env'} {name}={example}, with its value"
