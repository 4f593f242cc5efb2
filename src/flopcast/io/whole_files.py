"""Files that are whole or as they were: what breaks a write off leaves no half of one.

Answers: how is a text written so that no reader ever sees a part of it?
Elsewhere: files that grow line by line (io/samples/packs.py).
"""

from pathlib import Path

PARTIAL = ".partial"


def write_whole(path: Path, text: str) -> None:
    """Write a text beside its place, which it then takes at once; what stood there stands until then.

    Beside it is a file of the same name and PARTIAL, so that two names never share one.

    Raises
    ------
    OSError
        The folder does not exist, or cannot be written to.
    """
    partial = path.with_name(path.name + PARTIAL)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
