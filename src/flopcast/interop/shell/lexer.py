"""The lexer of shell scripts: it splits a text into tokens, including quotes and here-documents.

Answers: where do words begin and end, and which of their parts are literal?
Elsewhere: the definition of a token (tokens.py), the values of variables (variables.py), the meaning of a
script (script.py). Grammar: POSIX.1-2017, Shell Command Language, section 2, and bash's arrays.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence

from flopcast.errors import SpecError
from flopcast.interop.shell.text import fault
from flopcast.interop.shell.tokens import HERE_DOCUMENT, Token, WordPart

MAX_TOKENS = 100_000

_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_PLAIN = re.compile(r"[^ \t\n\\'\"$`;&|()<>]+")  # other blanks are letters, as in bash
_INSIDE_QUOTES = re.compile(r"[^\\\"$`\n]+|\n")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|&>>|&>|>>|>&|>\||<&|<>|<<<|[;&|()<>\n]")
_PLACEHOLDER = re.compile(r"<[A-Za-z](?:[^<>|&;\n]*[^\s<>|&;])?>(?=\s|$)")


def tokens_of(text: str, name: str, lines: Sequence[tuple[int, int]] = ()) -> tuple[Token, ...]:
    """Return every token of a text.

    Parameters
    ----------
    text : str
        A script, or a text that `eval` or `bash -c` reads again.
    lines : pairs of int
        The positions at which the text begins a line of the script: (offset, line), in order. Empty for a
        whole script.

    Raises
    ------
    SpecError
        A quote, brace or parenthesis is never closed; the error names the line where it opens.

    Examples
    --------
    >>> [token.plain or token.text for token in tokens_of("A=1; run --x 2 # why", "run.sh")]
    ['A=1', ';', 'run', '--x', '2']
    """
    lexer = _Lexer(text, name, lines)
    tokens = []
    while (token := lexer.token()) is not None:
        tokens.append(token)
        if len(tokens) > MAX_TOKENS:
            allowed = f"at most {MAX_TOKENS} words and operators"
            raise fault(name, token.line, "size", f"more than {MAX_TOKENS}", allowed)
    return tuple(tokens)


def quoted_parts(text: str, name: str, line: int) -> tuple[WordPart, ...]:
    """Return the parts of a default or an expression, read as if in double quotes."""
    lexer = _Lexer(text, name, [(0, line)])
    return lexer.quoted_until("")


def document_parts(token: Token, name: str) -> tuple[WordPart, ...]:
    """Return the parts of a here-document with their lines; plain text if its delimiter is quoted.

    Raises
    ------
    SpecError
        An expansion in the here-document is not closed.
    """
    (whole,) = token.parts
    starts = [0, *(newline.end() for newline in re.finditer("\n", whole.text))]
    lines = [(start, whole.line + number) for number, start in enumerate(starts)]
    if whole.quoted:
        texts = whole.text.splitlines(keepends=True)
        return tuple(WordPart("text", text, whole.line + i, quoted=True) for i, text in enumerate(texts))
    return _Lexer(whole.text, name, lines).quoted_until("", keeps_quotes=True)


class _Lexer:
    """Reads one token after another; `_at` is the offset of the next character."""

    def __init__(self, text: str, name: str, lines: Sequence[tuple[int, int]]) -> None:
        self._text = text
        self._name = name
        self._at = 0
        self._in_array = False
        self._heredocs: list[tuple[str, bool, bool]] = []
        self._documents: list[Token] = []  # here-documents of the line that was read last
        starts = [0, *(newline.end() for newline in re.finditer("\n", text))]
        pairs = lines or [(start, number) for number, start in enumerate(starts, 1)]
        self._offsets = [offset for offset, _ in pairs]
        self._lines = [line for _, line in pairs]

    def token(self) -> Token | None:
        """Return the next token, None at the end."""
        if self._documents:
            return self._documents.pop(0)
        while self._at < len(self._text):
            blank = _BLANK.match(self._text, self._at)
            if blank:
                self._at = blank.end()
            elif self._text[self._at] == "#":
                self._at = self._end_of_line()
            elif self._ahead("<<") and not self._ahead("<<<"):
                self._heredoc()
            elif self._ahead("<(", ">(") or _PLACEHOLDER.match(self._text, self._at):
                return self._process()
            else:
                match = _OPERATOR.match(self._text, self._at)
                token = self._operator(match.group()) if match else self._word()
                if token is not None:
                    return token
        return None

    def quoted_until(self, end: str, keeps_quotes: bool = False) -> tuple[WordPart, ...]:
        """Return the parts up to the closing quote or, if `end` is empty, to the end of the text.

        In a here-document, quotes are ordinary characters.
        """
        parts: list[WordPart] = []
        opened = self._at - 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"' and keeps_quotes:
                parts.append(self._literal(char))
                self._at += 1
            elif char == '"':
                self._at += 1
                if end and len(parts) == 1 and parts[0].text.endswith("[@]"):
                    return tuple(parts)  # an array without elements is no word, not an empty one
                if end:
                    return (*parts, self._literal("", opened))
            elif char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                if self._text[self._at + 1] != "\n":
                    parts.append(self._literal(self._text[self._at + 1]))
                self._at += 2
            elif char in "$`":
                parts.append(self._expansion(quoted=True))
            else:
                match = _INSIDE_QUOTES.match(self._text, self._at)
                parts.append(self._literal(match.group() if match else char))
                self._at = match.end() if match else self._at + 1
        if end:
            raise self._unclosed('"', opened)
        return tuple(parts)

    def _literal(self, text: str, at: int | None = None) -> WordPart:
        """Return quoted characters, with the current line or the line of another offset."""
        return WordPart("text", text, self._line(self._at if at is None else at), quoted=True)

    def _line(self, at: int) -> int:
        """Return the line number in the script at an offset of the text."""
        return self._lines[bisect_right(self._offsets, at) - 1]

    def _ahead(self, *texts: str) -> bool:
        return self._text.startswith(texts, self._at)

    def _end_of_line(self) -> int:
        """Return the offset of the next newline, or of the end."""
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _operator(self, text: str) -> Token:
        """Return an operator; after a newline, read the here-documents that the line announced."""
        token = Token(self._line(self._at), text="newline" if text == "\n" else text)
        self._at += len(text)
        if text == "\n":
            self._documents = [self._here_document(*heredoc) for heredoc in self._heredocs]
            self._heredocs = []
        return token

    def _heredoc(self) -> None:
        """Record the delimiter of a here-document; the text begins on the next line."""
        self._at += 2
        tabs = self._ahead("-")
        match = re.compile(r"-?[ \t]*(['\"]?)([^\s'\";&|()<>]+)\1").match(self._text, self._at)
        if match:
            self._at = match.end()
            quoted = bool(match.group(1)) or match.group(2).startswith("\\")
            self._heredocs.append((match.group(2).lstrip("\\"), tabs, quoted))

    def _here_document(self, delimiter: str, tabs: bool, quoted: bool) -> Token:
        start, kept = self._line(self._at), list[str]()
        while self._at < len(self._text):
            end = self._end_of_line()
            line = self._text[self._at : end]
            line = line.lstrip("\t") if tabs else line
            self._at = min(end + 1, len(self._text))
            if line == delimiter:
                break
            kept.append(line)
        text = "".join(f"{line}\n" for line in kept)
        return Token(start, text=HERE_DOCUMENT, parts=(WordPart("text", text, start, quoted),))

    def _process(self) -> Token:
        """Return a process substitution, `<(…)`, or a placeholder that the user replaces, `<your path>`."""
        start = self._at
        blank = _PLACEHOLDER.match(self._text, start)
        self._at = blank.end() if blank else self._closing(")", start + 2)
        part = WordPart("command", self._text[start : self._at], self._line(start))
        return Token(part.line, parts=(part,))

    def _word(self) -> Token | None:
        """Return a word; None if it was the number of a redirected stream, such as the 2 in `2>&1`.

        It ends at an unquoted blank or operator. A parenthesis directly after `NAME=` opens an array,
        which ends the word.
        """
        start, parts = self._at, list[WordPart]()
        while self._at < len(self._text):
            match = _PLAIN.match(self._text, self._at)
            char = self._text[self._at]
            if match:
                parts.append(WordPart("text", match.group(), self._line(self._at)))
                self._at = match.end()
            elif char == "(" and not self._in_array and _ASSIGNED.fullmatch(self._text[start : self._at]):
                return Token(self._line(start), parts=tuple(parts), items=self._array())
            elif char in " \t\n;&|()<>":
                break
            else:
                parts += self._special(char)
        if self._ahead("<", ">") and self._text[start : self._at].isdigit():
            return None
        return Token(self._line(start), parts=tuple(parts))

    def _special(self, char: str) -> tuple[WordPart, ...]:
        """Return parts that begin with a backslash, a quote, a dollar sign or a backquote."""
        if char == "\\":
            letter = self._text[self._at + 1 : self._at + 2]
            part = self._literal(letter)
            self._at += 2
            return () if letter == "\n" else (part,)
        if char == "'" or self._ahead("$'"):
            return self._single(self._at + (1 if char == "'" else 2))
        if char == '"' or self._ahead('$"'):
            self._at += 1 if char == '"' else 2
            return self.quoted_until('"')
        return (self._expansion(quoted=False),)

    def _single(self, start: int) -> tuple[WordPart, ...]:
        """Return the characters in single quotes, one part per line."""
        end = self._text.find("'", start)
        if end < 0:
            raise self._unclosed("'", self._at)
        parts = []
        for text in self._text[start:end].splitlines(keepends=True) or [""]:
            parts.append(self._literal(text, start))
            start += len(text)
        self._at = end + 1
        return tuple(parts)

    def _array(self) -> tuple[Token, ...]:
        """Return the elements between parentheses, which comments and line ends may separate."""
        opened = self._at
        self._at += 1
        self._in_array = True
        items: list[Token] = []
        while (token := self.token()) is not None and token.text != ")":
            items += [token] if token.is_word else []
        self._in_array = False
        if token is None:
            raise self._unclosed("(", opened)
        return tuple(items)

    def _expansion(self, quoted: bool) -> WordPart:
        """Return an expansion, which begins with a dollar sign or a backquote."""
        start, text = self._at, self._text
        line = self._line(start)
        if text[start] == "`":
            end = text.find("`", start + 1)
            if end < 0:
                raise self._unclosed("`", start)
            self._at = end + 1
            return WordPart("command", text[start : self._at], line, quoted)
        if self._ahead("$("):
            self._at = self._closing(")", start + 2)
            written = text[start : self._at]
            if written.startswith("$((") and written.endswith("))"):
                return WordPart("arithmetic", written[3:-2], line, quoted)
            return WordPart("command", written, line, quoted)
        if self._ahead("${"):
            self._at = self._closing("}", start + 2)
            written = text[start : self._at]
            return WordPart("variable", written[2:-1], line, quoted, written)
        match = _NAME.match(text, start + 1)
        self._at = match.end() if match else start + 1
        if match is None:
            return WordPart("text", "$", line, quoted)
        return WordPart("variable", match.group(), line, quoted, text[start : self._at])

    def _closing(self, close: str, start: int) -> int:
        """Return the offset after the brace or parenthesis that closes the one before `start`.

        Quotes and backslashes protect other braces; in a command substitution, an apostrophe is also a
        quote.
        """
        opening = {"}": "{", ")": "("}[close]
        depth, at, text, quoted = 1, start, self._text, False
        while at < len(text):
            char = text[at]
            if char == "\\":
                at += 1
            elif char == '"':
                quoted = not quoted
            elif char == "'" and close == ")" and not quoted:
                end = text.find("'", at + 1)
                at = len(text) if end < 0 else end
            elif char == opening:
                depth += 1
            elif char == close:
                depth -= 1
                if not depth:
                    return at + 1
            at += 1
        raise self._unclosed(opening, start - 1)

    def _unclosed(self, opening: str, at: int) -> SpecError:
        line = self._line(max(at, 0))
        closing = {"(": ")", "{": "}"}.get(opening, opening)
        excerpt = self._text[max(at, 0) :].partition("\n")[0][:40]
        allowed, fix = f"a text that ends with {closing}", f"add the closing {closing}"
        because = f"the script ends before the {opening} is closed"
        return fault(self._name, line, "text", excerpt, allowed, fix, because)
