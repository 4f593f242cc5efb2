"""Parts of a command in a script: its assignments, and the inner script if the command is a shell.

Answers: which words before a command set variables, and which text does `bash -c` run?
Elsewhere: the order in which commands are read (script.py).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from flopcast.interop.shell.tokens import Token
from flopcast.interop.shell.variables import Piece, Value, Variables, Word, text_of
from flopcast.records import Record

SHELLS = ("bash", "sh")
READ_BY = ("sbatch", *SHELLS)  # programs that run a here-document
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=")
_WRAPPING = {"sbatch": "--wrap", "xpk": "--command", "gcloud": "--command", "ssh": None}  # with which flag
_TAKES_A_SCRIPT = re.compile(r"-[a-z]*c")


class Command(Record, kw_only=False):
    """One command: its arguments, beginning with the program, and the variables set before it.

    If `bash -c "…"` runs a command, the words before `bash` precede the command here.
    """

    words: tuple[Word, ...]
    environment: Mapping[str, Word]
    line: int


def assignments(words: Sequence[Token], anywhere: bool) -> list[tuple[Token, re.Match[str]]]:
    """Return the assignments before a command, or `anywhere` among the words of a declaration.

    Each match is the unquoted name with its equals sign.
    """
    assigned: list[tuple[Token, re.Match[str]]] = []
    for token in words:
        first = token.parts[0] if token.parts else None
        named = None if first is None or first.quoted else _ASSIGNMENT.match(first.text)
        if named:
            assigned.append((token, named))
        elif not anywhere:
            break
    return assigned


def sets_variables(values: Sequence[Value], variables: Variables, doubtful: bool) -> bool:
    """Run `unset`, `set --` and `shift`; return whether the command is one of them.

    Parameters
    ----------
    doubtful : whether only a running shell decides that the command runs, in which case `shift` is not run
    """
    program, *rest = (text_of(value) for value in values)
    if program == "unset":
        for name in rest:
            variables.scalars.pop(name, None)
    elif program == "set" and rest[:1] == ["--"]:
        variables.set_arguments(values[2:])
    elif program == "shift" and "@" in variables.arrays and not doubtful:
        number = rest[0] if rest else "1"
        variables.set_arguments(variables.arrays["@"][int(number) if number.isdecimal() else 1 :])
    else:
        return False
    return True


def shell_of(values: Sequence[Value]) -> int:
    """Return the index of `bash` or `sh` among the words of a command, or -1."""
    names = [text_of(value).rpartition("/")[2] for value in values]
    return next((at for at, name in enumerate(names) if name in SHELLS), -1)


def inner_script(values: Sequence[Value]) -> int:
    """Return the index of the text that `bash -c` runs among the words of a command, or 0."""
    shell = shell_of(values)
    for at in range(shell + 1, min(shell + 4, len(values) - 1)) if shell >= 0 else ():
        if _TAKES_A_SCRIPT.fullmatch(text_of(values[at])):
            return at + 1
    return 0


def before_shell(words: Sequence[Word]) -> int:
    """Return the number of words before the `bash` or `sh` of a command, or 0."""
    names = [word.text.rpartition("/")[2] for word in words]
    return next((at for at, name in enumerate(names) if name in SHELLS), 0)


def written_script(words: Sequence[Word], files: Collection[str], reads: bool) -> str:
    """Return the file that a command runs, if the script has written it, or "".

    Parameters
    ----------
    reads : whether the command is a shell or sbatch, which run the file that is their argument
    """
    names = [word.text.removeprefix("./") for word in words]
    return next((name for name in (names if reads else names[:1]) if name in files), "")


def variable_of_read(commands: Sequence[Command]) -> str:
    """Return the variable that stores a whole text if the last command is `read -d ''`, or ""."""
    words = [word.text for word in commands[-1].words] if commands else []
    return words[-1] if words[:1] == ["read"] and "-d" in words else ""


def wrapped_script(words: Sequence[Word]) -> Value:
    """Return the script that a command such as `sbatch --wrap` or `ssh` runs; empty for any other command.

    >>> [piece.text for piece in wrapped_script([Word("ssh", 1), Word("node", 1), Word("vllm serve a", 1)])]
    ['vllm serve a']
    """
    program = next((name for word in words[:2] if (name := _named(word)) in _WRAPPING), "")
    flag = _WRAPPING.get(program)
    if flag is None:
        return (Piece(words[-1].text, words[-1].line),) if program and " " in words[-1].text else ()
    wrapped = [word for word in words if word.text.startswith(f"{flag}=")]
    wrapped += [after for word, after in pairwise(words) if word.text == flag]
    return (Piece(wrapped[0].text.removeprefix(f"{flag}="), wrapped[0].line),) if wrapped else ()


def _named(word: Word) -> str:
    return word.text.rpartition("/")[2].removesuffix(".py")
