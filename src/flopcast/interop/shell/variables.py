"""Values of shell variables, and the expansion of words.

Answers: which words does `$GPT_ARGS` contain, and what are the values of `${TP:-8}` and `$((NODES * 8))`?
Elsewhere: the beginning and end of words (tokens.py), the order of commands (script.py).

A value stores the line of the script for each of its characters, so that an error in a flag names the
line of the flag and not the line where the variable is used. A value that only a running shell knows (a
command's output, `$1`, a variable that the script never sets) is represented by the text of its
expansion, which is marked as unknown.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from flopcast.interop.shell.lexer import quoted_parts
from flopcast.interop.shell.text import fault
from flopcast.interop.shell.tokens import Token, WordPart
from flopcast.records import Record

MAX_EXPANDED = 4_000_000  # characters of all values that a script makes
MAX_NESTING = 20
MAX_EXPRESSION = 200
MAX_NUMBER = 10**18

_CALCULATORS = (  # commands whose output is the result of their arithmetic
    re.compile(r"(?:\$\(|`)\s*expr\s+(?P<sum>[^;|&<>]*?)\s*[)`]"),
    re.compile(r"""(?:\$\(|`)\s*echo\s+["']?(?P<sum>[^"';|&<>]*?)["']?\s*\|\s*bc\s*[)`]"""),
)
_PARAMETER = re.compile(
    r"(?P<name>[A-Za-z_]\w*|[0-9]+|[@*])(?:\[(?P<index>[^\]]*)\])?(?P<how>:?[-=+?])?(?P<word>.*)", re.DOTALL
)


def _quotient(a: int, b: int) -> int:
    """Return the quotient rounded towards zero, as in C, so that a remainder has the dividend's sign."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_ARITHMETIC: Mapping[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
}


class Piece(Record, kw_only=False):
    """Characters of a value with the line that wrote them; if not `known`, the expansion's text."""

    text: str
    line: int
    known: bool = True


Value = tuple[Piece, ...]


class Word(Record, kw_only=False):
    """An argument of a command.

    `line` is the line of its first character; `unknown` is its first part that only a running shell
    knows, "" if all of it is known.
    """

    text: str
    line: int
    unknown: str = ""


def text_of(value: Value) -> str:
    """Return the characters of a value."""
    return "".join(piece.text for piece in value)


def word_of(value: Value, line: int) -> Word:
    """Return a value as a command's argument; `line` is used for an empty one."""
    unknown = next((piece.text for piece in value if not piece.known), "")
    return Word(text_of(value), value[0].line if value else line, unknown)


def is_known(value: Value) -> bool:
    """Return whether the script alone determines the value."""
    return all(piece.known for piece in value)


class Variables:
    """Scalars and arrays of one script.

    The total size of all expansions is limited, so that values that repeatedly double raise an error
    instead of filling memory.
    """

    def __init__(self, name: str, given: Mapping[str, Value]) -> None:
        """Start with the job scheduler's variables, `given`; error messages call the script `name`."""
        self.scalars: dict[str, Value] = dict(given)
        self.arrays: dict[str, tuple[Value, ...]] = {}
        self._name = name
        self._spent = 0
        self._depth = 0

    def value_assigned(self, token: Token, named: re.Match[str]) -> Value:
        """Return the value of an assignment that is not an array, after its name and equals sign."""
        first = token.parts[0]
        rest = type(first)("text", first.text[named.end() :], first.line)
        return self.value((rest, *token.parts[1:]))

    def assign(self, token: Token, named: re.Match[str], doubtful: bool) -> None:
        """Assign a value. An unknown value does not replace a known one if the assignment may not run.

        A scalar and an array with the same name replace each other.
        """
        name, value, appends = named.group(1), self.value_assigned(token, named), bool(named.group(2))
        if token.items is not None:
            elements = self.elements(token.items)
            self.arrays[name] = (*self.arrays.get(name, ()), *elements) if appends else elements
        elif not doubtful or is_known(value) or name not in self.scalars:
            self.scalars[name] = (*self.scalars.get(name, ()), *value) if appends else value
            self.arrays.pop(name, None)

    def set_arguments(self, values: Sequence[Value]) -> None:
        """Set the arguments of the script: `$1`, `$2`, … and all of them, `$@`."""
        for name in [name for name in self.scalars if name.isdecimal()]:
            del self.scalars[name]
        self.scalars |= {f"{place}": value for place, value in enumerate(values, 1)}
        self.arrays["@"] = tuple(values)

    def fields(self, token: Token) -> list[Value]:
        """Return the arguments that a word expands to: none, one, or several if it contains unquoted lists.

        Quoted parts and literal characters stay together; the value of an unquoted variable is split at
        its blanks.

        Examples
        --------
        >>> from flopcast.interop.shell.lexer import tokens_of
        >>> variables = Variables("run.sh", {"ARGS": (Piece("--tp 8", 1),)})
        >>> [text_of(field) for field in variables.fields(tokens_of("$ARGS", "run.sh")[0])]
        ['--tp', '8']
        """
        fields: list[Value] = []
        current: list[Piece] | None = None
        for part in token.parts:
            chunks = self._chunks(part)
            for number, chunk in enumerate(chunks):
                if number and current is not None:
                    fields.append(tuple(current))
                    current = None
                if chunk or part.kind == "text":
                    current = [] if current is None else current
                    current += [piece for piece in chunk if piece.text]
        return fields if current is None else [*fields, tuple(current)]

    def value(self, parts: tuple[WordPart, ...]) -> Value:
        """Return a value that is not split into words: the right-hand side of an assignment."""
        return tuple(piece for part in parts for piece in self._value(part) if piece.text)

    def elements(self, items: Sequence[Token]) -> tuple[Value, ...]:
        """Return the arguments that several words expand to, for a command, a list or an array."""
        return tuple(field for item in items for field in self.fields(item))

    def _chunks(self, part: WordPart) -> list[Value]:
        """Return the pieces that a part adds to its word: the first joins the preceding text, and the
        last joins the following text.

        A blank at either end gives an empty piece.
        """
        array = self._array(part)
        if array is not None and part.quoted:
            return list(array)
        value = self._value(part)
        if part.quoted or part.kind == "text":
            return [value]
        return split(value)

    def _array(self, part: WordPart) -> tuple[Value, ...] | None:
        """Return the elements of `${NAME[@]}`; None for any other part."""
        match = _PARAMETER.fullmatch(part.text) if part.kind == "variable" else None
        if match is None or match["how"] or match["word"]:
            return None
        if match["name"] in ("@", "*"):
            return self.arrays.get("@")
        return self.arrays.get(match["name"]) if match["index"] in ("@", "*") else None

    def _value(self, part: WordPart) -> Value:
        """Return a part with its variables expanded; literal characters keep their lines."""
        value = self._expanded(part)
        self._spent += sum(len(piece.text) for piece in value)
        if self._spent > MAX_EXPANDED:
            allowed = f"at most {MAX_EXPANDED} characters in the values of all variables together"
            fix = "make the values of the variables shorter"
            raise fault(self._name, part.line, "variable", part.written or part.text[:40], allowed, fix)
        return value

    def _expanded(self, part: WordPart) -> Value:
        """Return a part as pieces, before their size is counted."""
        if part.kind == "text":
            return (Piece(part.text, part.line),)
        if part.kind in ("command", "arithmetic"):
            command = part.kind == "command"
            number = self._calculated(part) if command else self._number(part)
            written = part.text if command else f"$(({part.text}))"
            return (Piece(written if number is None else f"{number}", part.line, number is not None),)
        return self._parameter(part)

    def _parameter(self, part: WordPart) -> Value:
        """Return the value of `$NAME`, `${NAME}` or `${NAME[i]}`, with its default if it is unset or empty.

        `-` and `=` give a default if the variable is unset, and `:-` and `:=` also if it is empty; `+`
        gives an alternative if it is set. Patterns, lengths and parts of a value stay unknown.
        """
        unknown = (Piece(part.written, part.line, known=False),)
        match = _PARAMETER.fullmatch(part.text)
        if match is None or (match["word"] and not match["how"]):
            return unknown
        value, how = self._held(match["name"], match["index"]), match["how"] or ""
        filled = value is not None and (bool(text_of(value)) or not how.startswith(":"))
        if how.endswith("+"):
            return self._nested(match["word"], part) if filled else ()
        if value is not None and (filled or not how):
            return value
        if how.endswith(("-", "=")):
            value = self._nested(match["word"].strip("\"'"), part)
            if how.endswith("="):
                self.scalars[match["name"]] = value
            return value
        return unknown

    def _held(self, name: str, index: str | None) -> Value | None:
        """Return a variable's value; for an array, all elements joined by blanks, or the selected one."""
        elements = self.arrays.get(name)
        if elements is None:
            return self.scalars.get(name) if index is None else None
        if index in ("@", "*"):
            return joined(elements)
        position = int(index) if index and index.isdecimal() and len(index) < 9 else 0
        return elements[position] if position < len(elements) else None

    def _nested(self, text: str, part: WordPart) -> Value:
        """Return a default or an alternative, which may contain variables."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            allowed = f"expansions that are nested at most {MAX_NESTING} deep"
            fix = "set a variable to the inner expansion, and use this variable"
            raise fault(self._name, part.line, "variable", part.text[:40], allowed, fix)
        value = self.value(quoted_parts(text, self._name, part.line))
        self._depth -= 1
        return value

    def _calculated(self, part: WordPart) -> int | None:
        """Return the output of a command that only calculates, `$(expr 16 / $N)`; None for any other."""
        match = next((found for one in _CALCULATORS if (found := one.fullmatch(part.text))), None)
        if match is None:
            return None
        plain = match["sum"].replace("\\*", "*")
        return self._number(type(part)("arithmetic", plain, part.line, part.quoted))

    def _number(self, part: WordPart) -> int | None:
        """Return the result of integer arithmetic; None if a number is not known."""
        value = self._nested(part.text, part)
        text = text_of(value).strip()
        if not is_known(value) or len(text) > MAX_EXPRESSION:
            return None
        try:
            return self._computed(ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError):
            return None

    def _computed(self, node: ast.AST) -> int:
        """Return the value of an expression of whole numbers, variables, + - * / % and parentheses.

        Python's parser reads the expression; only these operations are executed, on numbers below 10**18.

        Raises
        ------
        ValueError, ZeroDivisionError
            The expression is not of this kind, or cannot be computed.
        """
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self._computed(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.Name):
            return int(text_of(self.scalars.get(node.id, (Piece("unset", 0),))))
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            number = _ARITHMETIC[type(node.op)](self._computed(node.left), self._computed(node.right))
            if abs(number) <= MAX_NUMBER:
                return number
        raise ValueError(f"{type(node).__name__} is not arithmetic")


def joined(values: Iterable[Value]) -> Value:
    """Return values joined by blanks; each blank has the line of the character before it."""
    return tuple(
        piece for value in values for piece in (*value, Piece(" ", value[-1].line if value else 0))
    )


def split(value: Value) -> list[Value]:
    """Return a value cut at its blanks; unknown parts count as one word.

    A piece never spans lines, so its chunks keep its line.

    >>> [text_of(chunk) for chunk in split((Piece("--a 1 ", 1), Piece("--b", 2)))]
    ['--a', '1', '--b']
    """
    chunks: list[list[Piece]] = [[]]
    for piece in value:
        texts = re.split(r"[ \t\n]+", piece.text) if piece.known else [piece.text]
        for number, text in enumerate(texts):
            if number:
                chunks.append([])
            if text:
                chunks[-1].append(Piece(text, piece.line, piece.known))
    return [tuple(chunk) for chunk in chunks]
