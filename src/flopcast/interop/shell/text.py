"""The text of a launch script: checks before it is read as a script.

Answers: is the file a text of bounded size?
Elsewhere: its tokens (tokens.py).
"""

import re

from flopcast.errors import SpecError, spec_error

MAX_CHARACTERS = 1_000_000
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


def script_text(raw: bytes, name: str) -> str:
    """Return a script's bytes as text; bytes that are not UTF-8, mostly in comments, become U+FFFD.

    Raises
    ------
    SpecError
        The script is too large or is not text.
    """
    if len(raw) > MAX_CHARACTERS:
        raise fault(name, 1, "size", f"at least {len(raw)} bytes", f"at most {MAX_CHARACTERS} bytes")
    text = raw.decode("utf-8-sig", errors="replace")
    check_text(text, name)
    return text


BINARY = "the script contains a control character, so it is probably not a text file"
LIMITED = "flopcast follows a launch script as a shell does, but only up to a limited size"


def check_text(text: str, name: str) -> None:
    """Check that a text can be a script: not too long, and without control characters.

    Raises
    ------
    SpecError
        The text is too long, or a line contains such a character; the error names the line.
    """
    if len(text) > MAX_CHARACTERS:
        raise fault(name, 1, "size", f"{len(text)} characters", f"at most {MAX_CHARACTERS} characters")
    bad = _CONTROL.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise fault(name, line, "character", bad.group(), "printable text", "give a text file", BINARY)


def fault(
    name: str, line: int, field: str, value: object, allowed: str, fix: str = "", because: str = LIMITED
) -> SpecError:
    """Return an error in the text of a script, after which the rest is not read."""
    fix = fix or "give a smaller script"
    return spec_error(field, value, allowed, because, fix, where=f"{name}:{line}")
