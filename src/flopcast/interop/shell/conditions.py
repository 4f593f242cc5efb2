"""Conditions of a shell script: the values of `[ … ]`, `[[ … ]]` and `test` if they can be known.

Answers: is a condition true, false, or dependent on unknown values?
Elsewhere: the values of variables (variables.py), the effect of a condition (script.py).
"""

import operator
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from flopcast.interop.shell.tokens import Token
from flopcast.interop.shell.variables import Variables, is_known, text_of

_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def decided(tokens: tuple[Token, ...], variables: Variables) -> bool | None:
    """Return whether a condition holds, None if only a running shell knows.

    Tests of texts and numbers, joined by `&&` and `||`, are understood; commands and files are not. A
    variable that the script never sets may come from outside, so a test of it stays undecided.

    Examples
    --------
    >>> from flopcast.interop.shell.lexer import tokens_of
    >>> from flopcast.interop.shell.variables import Piece
    >>> known = Variables("run.sh", {"TP": (Piece("8", 1),)})
    >>> [decided(tokens_of(text, "run.sh"), known) for text in ("[ $TP -gt 1 ]", "[ -z $DP ]")]
    [True, None]
    """
    words = [token for token in tokens if token.plain not in ("[", "]", "[[", "]]", "test")]
    if len(words) == len(tokens):  # no test, but a command
        return None
    verdict, joined, segment = None, "", list[Token]()
    for token in (*words, Token(0, text="end")):
        if token.is_word:
            segment.append(token)
            continue
        if token.text not in ("&&", "||", ";", "newline", "end"):
            return None
        if segment:
            verdict = _join(verdict, joined, _test(segment, variables))
            segment = []
        joined = token.text if token.text in ("&&", "||") else joined
    return verdict


def _join(left: bool | None, how: str, right: bool | None) -> bool | None:
    """Return two conditions joined by `&&` or `||`; None if an unknown one could change the result."""
    if not how:
        return right
    decisive = how == "||"
    if left is decisive or right is decisive:
        return decisive
    return None if left is None or right is None else right


def _test(tokens: list[Token], variables: Variables) -> bool | None:
    """Return one test: `-z X`, `-n X`, `A = B`, `A -lt B`, or an empty text; `!` negates it."""
    turned = tokens[0].plain == "!"
    values = [variables.value(token.parts) for token in tokens[turned:]]
    if not all(is_known(value) for value in values):
        return None
    verdict = _compared([text_of(value) for value in values])
    return None if verdict is None else verdict != turned


def _compared(texts: list[str]) -> bool | None:
    """Return the result of a test whose words are all known."""
    if len(texts) == 1:
        return bool(texts[0])
    if len(texts) == 2 and texts[0] in ("-z", "-n"):
        return bool(texts[1]) == (texts[0] == "-n")
    if len(texts) == 3 and texts[1] in ("=", "==", "!="):
        return fnmatchcase(texts[0], texts[2]) == (texts[1] != "!=")
    compare = _COMPARISONS.get(texts[1]) if len(texts) == 3 else None
    if compare is None or not all(re.fullmatch(r"-?[0-9]{1,18}", text) for text in texts[::2]):
        return None
    return compare(int(texts[0]), int(texts[2]))
