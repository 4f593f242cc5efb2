"""TOML text as plain data with the line of every key.

Answers: which values does this text contain, and on which lines?
Elsewhere: the reader for YAML and JSON (files/yaml_text.py). The standard library's parser returns values
without lines, so a second pass over the text finds the lines of keys; entries of inline tables and lists
have the line of the key that holds them. The size and the nesting depth are checked before the parser sees
the text.
"""

import math
import re
import tomllib
from datetime import date, time

from flopcast.errors import spec_error
from flopcast.files.yaml_text import FINITE, LIMITED, MAX_DEPTH, Document, Path, decoded, line_in, refuse

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_DOTTED = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_KEY = re.compile(rf"[ \t]*({_DOTTED})[ \t]*=")
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_DOTTED})[ \t]*\]")
_PLACE = re.compile(r"\(at line (\d+), column \d+\)")
_OPEN = re.compile(r'"""|\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|[][{}#\n]')


def read_toml(raw: bytes, name: str) -> Document:
    """Parse one document.

    Parameters
    ----------
    raw : the bytes of the file
    name : the file's name in faults, usually its path

    Returns
    -------
    Document
        Dates become texts.

    Raises
    ------
    SpecError
        The text is not UTF-8, too large, nested too deeply, not TOML, or has a number that is not finite.

    Examples
    --------
    >>> document = read_toml(b"[training]\\nseq_len = 8192\\n", "train.toml")
    >>> document.data, document.where(("training", "seq_len"))
    ({'training': {'seq_len': 8192}}, 'train.toml:2')
    """
    text = decoded(raw, name).replace("\r\n", "\n")
    lines = _Places(text, name).found()
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        because, fix = _reason(_PLACE.sub("", str(error)).strip(), text.split("\n")[line - 1], line)
        fault, where = "is not well-formed", f"{name}:{line}"
        raise spec_error("text", None, "well-formed TOML", because, fix, where, fault) from None
    document = Document(name, None, lines)
    return Document(name, _plain(data, (), document), lines)


def _reason(message: str, content: str, line: int) -> tuple[str, str]:
    """Return why the parser cannot read a line, and the fix."""
    key, _, value = (part.strip() for part in content.partition("="))
    if value.lower() in ("null", "none", "~"):
        return f"TOML has no {value}", f"remove line {line}, so that {key} has its default"
    if message.startswith("Invalid value"):
        because = f"{value or 'the value'} is not a value of TOML"
        return because, f'write {key} = "{value}", as texts need quotes'
    if message.startswith("Cannot overwrite"):
        return f"{key} is given twice in this table", f"remove one of the two lines with {key}"
    if re.fullmatch(r"\d{1,3}(,\d{3})+", value):
        because = f"a number has no commas, as in {value}"
        return because, f"write {value.replace(',', '')} in place of {value}"
    return f"the parser reports: {message}", f"write line {line} as KEY = VALUE, with texts in quotes"


class _Places:
    """The lines of keys, found in one pass that skips strings, comments and the content of brackets."""

    def __init__(self, text: str, name: str) -> None:
        self._text = text
        self._name = name
        self._lines: dict[Path, int] = {(): 1}
        self._table: Path = ()
        self._arrays: dict[Path, int] = {}

    def found(self) -> dict[Path, int]:
        """Return the line of every table and key; keys that are nested too deeply are refused."""
        at, line = 0, 1
        while at < len(self._text):
            header = _HEADER.match(self._text, at)
            key = None if header else _KEY.match(self._text, at)
            if header:
                self._open(header[1], _parts(header[2]), line)
                at = header.end()
            elif key:
                self._put((*self._table, *_parts(key[1])), line)
                at = key.end()
            at, line = self._rest(at, line)
        return self._lines

    def _open(self, brackets: str, parts: Path, line: int) -> None:
        """Begin a table; each table of an array has its own path."""
        path: Path = ()
        for index, part in enumerate(parts):
            path = (*path, part)
            if brackets == "[[" and index == len(parts) - 1:
                self._arrays[path] = self._arrays.get(path, -1) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path])
        self._table = path
        self._put(path, line)

    def _put(self, path: Path, line: int) -> None:
        if len(path) > MAX_DEPTH:
            raise self._too_deep(line, len(path))
        for end in range(1, len(path) + 1):
            self._lines.setdefault(path[:end], line)

    def _rest(self, at: int, line: int) -> tuple[int, int]:
        """Return the offset of the next line that may hold a key, and its number."""
        depth = 0
        while match := _OPEN.search(self._text, at):
            token, at = match[0], match.end()
            if token in ('"""', "'''"):
                end = self._text.find(token, at)
                end = len(self._text) if end < 0 else end + 3
                line += self._text.count("\n", at, end)
                at = end
            elif token == "#":
                at = self._text.find("\n", at)
                at = len(self._text) if at < 0 else at
            elif token == "\n":
                line += 1
                if depth <= 0:
                    return at, line
            elif len(token) == 1:
                depth += 1 if token in "[{" else -1
                if depth > MAX_DEPTH:
                    raise self._too_deep(line, depth)
        return len(self._text), line

    def _too_deep(self, line: int, depth: int) -> Exception:
        allowed = f"at most {MAX_DEPTH} levels"
        return refuse(self._name, line, "depth", depth, allowed, "remove some levels", LIMITED)


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_PART, dotted))


def _plain(value: object, path: Path, document: Document) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner, (*path, key), document) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, (*path, index), document) for index, inner in enumerate(value)]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        line = line_in(document.where(path))
        raise refuse(
            document.name, line, "number", str(value), "a finite number", "write a finite number", FINITE
        )
    return value
