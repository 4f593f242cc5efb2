"""A shell script as tokens: words, operators and ends of lines, each with its line.

Answers: what is a word of a script, which of its parts are quoted, and which refer to variables?
Elsewhere: the beginning and end of words (lexer.py), the values of variables (variables.py), branches and
commands (script.py).

Nothing is executed. Command substitutions and here-documents are kept as text.
"""

from typing import Literal

from flopcast.records import Record

HERE_DOCUMENT = "here-document"  # `text` of the token of a here-document, which follows its command's line
REDIRECTS = ("&>>", "&>", ">>", ">&", ">|", "<&", "<>", "<<<", "<", ">")


class WordPart(Record, kw_only=False):
    """A part of a word.

    `text` is the literal text, the variable after `$` or between `${` and `}`, the expression inside
    `$((` and `))`, or a whole command substitution. Quoted parts are never split into words. `written` is
    a variable as the script writes it, including its braces.
    """

    kind: Literal["text", "variable", "arithmetic", "command"]
    text: str
    line: int
    quoted: bool = False
    written: str = ""


class Token(Record, kw_only=False):
    """A word with its parts, or an operator with its `text` ("newline" is one of them).

    `items` are the elements of an array if the word ends in `NAME=( … )`, else None.
    """

    line: int
    text: str = ""
    parts: tuple[WordPart, ...] = ()
    items: tuple["Token", ...] | None = None

    @property
    def is_word(self) -> bool:
        """Return whether this is a word, including an empty one in quotes."""
        return not self.text

    @property
    def plain(self) -> str:
        """Return the word if no part of it is quoted or expanded; only such a word can be reserved."""
        if self.items is None and all(part.kind == "text" and not part.quoted for part in self.parts):
            return "".join(part.text for part in self.parts)
        return ""
