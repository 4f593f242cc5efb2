"""What a command of a script is: its assignments, and whether it is a shell that runs another script.

Answers: which words before a command set variables, where does the text that `bash -c` runs stand?
Elsewhere: in which order commands are read (script.py).
"""

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from flopcast.io.shell.tokens import Token
from flopcast.io.shell.values import Piece, Value, Word, text_of

SHELLS = ("bash", "sh")
READ_BY = ("sbatch", *SHELLS)  # programs that run the here-document that they read
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=")
_TAKES_A_SCRIPT = re.compile(r"-[a-z]*c")


def assignments(words: Sequence[Token], anywhere: bool) -> list[tuple[Token, re.Match[str]]]:
    """The assignments before a command, or `anywhere` among the words of a declaration.

    An unquoted name and an equals sign begin an assignment: they are the match.
    """
    found: list[tuple[Token, re.Match[str]]] = []
    for token in words:
        first = token.parts[0] if token.parts else None
        named = None if first is None or first.quoted else _ASSIGNMENT.match(first.text)
        if named:
            found.append((token, named))
        elif not anywhere:
            break
    return found


def shell_of(values: Sequence[Value]) -> int:
    """Where a `bash` or `sh` stands among the words of a command; -1 where there is none."""
    names = [text_of(value).rpartition("/")[2] for value in values]
    return next((at for at, name in enumerate(names) if name in SHELLS), -1)


def inner_script(values: Sequence[Value]) -> int:
    """Where the text that `bash -c` runs stands among the words of a command; 0 where there is none."""
    shell = shell_of(values)
    for at in range(shell + 1, min(shell + 4, len(values) - 1)) if shell >= 0 else ():
        if _TAKES_A_SCRIPT.fullmatch(text_of(values[at])):
            return at + 1
    return 0


def before_shell(words: Sequence[Word]) -> int:
    """How many words stand before the `bash` or `sh` of a command; 0 where there is none."""
    names = [word.text.rpartition("/")[2] for word in words]
    return next((at for at, name in enumerate(names) if name in SHELLS), 0)


def written_script(words: Sequence[Word], files: Collection[str], reads: bool) -> str:
    """The file, of those that a script has written, that a command runs; "" where it runs none.

    Parameters
    ----------
    reads : bool
        Whether the command is a shell or sbatch, which runs a file that is its argument.
    """
    names = [word.text.removeprefix("./") for word in words]
    return next((name for name in (names if reads else names[:1]) if name in files), "")


def wrapped_script(words: Sequence[Word]) -> Value:
    """The script that `sbatch --wrap` makes of its argument; empty for any other command."""
    if words[0].text.rpartition("/")[2] != "sbatch":
        return ()
    wrapped = [word for word in words if word.text.startswith("--wrap=")]
    wrapped += [after for word, after in pairwise(words) if word.text == "--wrap"]
    return (Piece(wrapped[0].text.removeprefix("--wrap="), wrapped[0].line),) if wrapped else ()
