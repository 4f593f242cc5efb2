"""The text of a launch script: what is refused before it is read as a script.

Answers: is this a text of bounded size, and how is a fault of it told?
Elsewhere: what its words are (tokens.py).
"""

import re

from flopcast.errors import Problem, SpecError

MAX_CHARACTERS = 1_000_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


def script_text(raw: bytes, name: str) -> str:
    """A script's bytes as text; letters that are not UTF-8, in comments mostly, become U+FFFD.

    Raises
    ------
    SpecError
        Too large, or no text at all.
    """
    if len(raw) > MAX_CHARACTERS:
        raise fault(name, 1, "size", f"at least {len(raw)} bytes", f"at most {MAX_CHARACTERS} bytes")
    text = raw.decode("utf-8-sig", errors="replace")
    check_text(text, name)
    return text


def check_text(text: str, name: str) -> None:
    """Refuse what is no script: too long, or with characters that no text has.

    Raises
    ------
    SpecError
        With the line of the first such character.
    """
    if len(text) > MAX_CHARACTERS:
        raise fault(name, 1, "size", f"{len(text)} characters", f"at most {MAX_CHARACTERS} characters")
    bad = _CONTROL.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise fault(name, line, "character", bad.group(), "a shell script, which is text", "binary file?")


def fault(name: str, line: int, field: str, value: object, allowed: str, fix: str = "") -> SpecError:
    """One fault of the script's own text: what follows it cannot be trusted."""
    problem = Problem(
        where=f"{name}:{line}",
        field=field,
        value=value,
        allowed=allowed,
        because="a launch script is read as the shell would read it",
        fix=fix or "give a smaller script",
    )
    return SpecError([problem])
