"""Our safe reader of YAML and JSON text: plain data, with the line of every value.

Answers: which data does this text contain, and in which lines? Only plain data of limited size and depth is
read, without tags, anchors, aliases and duplicate keys. It works on the parser's events, because the
recursion of PyYAML's composer fails on deeply nested input. The same code reads JSON, because JSON is a
subset of this YAML.
"""

import math
import re
from itertools import pairwise
from typing import Any

import yaml

from flopcast.errors import Problem, SpecError, collected, spec_error
from flopcast.records import Record, field, replace

MAX_BYTES = 4_000_000  # configs with 20,000 labels or a list of quantised modules exceed 1 MB
MAX_DEPTH = 40
TWICE = "is given twice"
COMMAND_LINE = "command line"  # the name of a document that no file holds
Path = tuple[str | int, ...]

PLAIN = "flopcast reads YAML and JSON without anchors, tags and further documents"
LIMITED = "flopcast limits the size and the nesting of the files that it reads"
FINITE = "flopcast needs finite numbers"
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[+-]?(0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[+-]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][+-]?[0-9]+)?")
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
# what YAML 1.2 does not allow (production 1); the set of allowed characters takes 3 ms to compile
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_WORDS |= {word.capitalize(): value for word, value in _WORDS.items() if word.isalpha()}


class Document(Record, eq=False, kw_only=False):
    """Plain data, and the line (from 1) on which each value of it begins.

    A path consists of the keys and positions that lead to a value: `("blocks", 0, "count")`. The path of
    the whole document is (). A mapping or list begins at its key. `places` maps values that are not from
    the file to their source, such as "--plan" or "argument plan.tp=8". `keys` holds the keys of another
    program from whose file values follow: "gradient_accumulation_steps".

    Examples
    --------
    >>> document = read_yaml(b"{plan: {tp: 8}}", "job.yaml")
    >>> document.data, document.where(("plan", "tp")), document.where(("plan", "pp"))
    ({'plan': {'tp': 8}}, 'job.yaml:1', 'job.yaml:1')
    """

    name: str
    data: object
    lines: dict[Path, int]
    places: dict[Path, str] = field(default_factory=dict)  # of values that stand in no line
    keys: dict[Path, str] = field(default_factory=dict)  # of another program, that lead to values

    @property
    def mapping(self) -> dict[Any, Any]:
        """Return the data of a mapping, or an empty mapping for other data."""
        return self.data if isinstance(self.data, dict) else {}

    def with_part(self, key: str, value: object) -> "Document":
        """Return the document with another value of one of its keys."""
        return replace(self, data=self.mapping | {key: value})

    def where(self, path: Path) -> str:
        """Return "file:line", or the given place, of the nearest value that has one.

        If a value has no line in the file, and exactly one value inside it was given elsewhere (such as on
        the command line), the result is the place of that inner value.
        """
        words = tuple(map(str, path))  # changes of the command line name entries of lists by digits
        for end in range(len(path), -1, -1):
            place = self.places.get(path[:end], self.places.get(words[:end]))
            if place is not None:
                return place
            if path[:end] in self.lines:
                return f"{self.name}:{self.lines[path[:end]]}"
            inside = [found for at, found in self.places.items() if tuple(map(str, at))[:end] == words]
            if path and end == len(path) and len(inside) == 1:
                return inside[0]
        return self.name


def line_in(place: str) -> int:
    """Return the line of a place, or 0 for a place without a line.

    >>> line_in("job.yaml:12"), line_in("argument --plan")
    (12, 0)
    """
    line = place.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def set_value(data: dict[str, object], path: Path, value: object) -> None:
    """Set a value of nested data, and create the mappings and lists that its path needs.

    A position in a list may be that of an existing entry, or of the next entry.

    >>> data: dict[str, object] = {}
    >>> set_value(data, ("model", "blocks", 0, "count"), 2)
    >>> data
    {'model': {'blocks': [{'count': 2}]}}
    """
    holder: object = data
    for part, after in pairwise(path):
        if isinstance(holder, list):
            holder.extend([{}] if len(holder) == part else [])
            holder = holder[int(part)]
        elif isinstance(holder, dict):
            holder = holder.setdefault(part, [] if isinstance(after, int) else {})
    if isinstance(holder, dict):
        holder[path[-1]] = value


def read_yaml(raw: bytes, name: str) -> Document:
    """Parse one document.

    Parameters
    ----------
    raw : the bytes of the file, which may have a byte order mark
    name : the name of the file in faults, usually its path

    Returns
    -------
    Document
        It contains only None, bool, int, float, str, list and dict with text keys; None for an empty text.

    Raises
    ------
    SpecError
        The file is not UTF-8, too large, too deep, not YAML, or YAML that is not plain data.

    Examples
    --------
    >>> read_yaml(b'{"seq": 2048, "name": "on"}', "job.json").data
    {'seq': 2048, 'name': 'on'}
    """
    text = decoded(raw, name)
    builder, problems = _Builder(name), list[Problem]()
    try:
        with collected(problems):
            for event in yaml.parse(text, Loader=_PARSER):
                builder.take(event)
    except yaml.YAMLError as error:
        from flopcast.files.yaml_faults import syntax_fault

        found = syntax_fault(error, text)
        allowed, fault, where = "well-formed YAML or JSON", "is not well-formed", f"{name}:{found.line}"
        problems.append(Problem("text", None, allowed, found.because, found.fix, where, fault))
    if problems := [*builder.repeated, *problems]:
        raise SpecError(problems)
    return Document(name, builder.result, builder.lines or {(): 1})


def decoded(raw: bytes, name: str) -> str:
    """Return the text of a file's bytes.

    Parameters
    ----------
    raw : bytes
    name : the name of the file in faults

    Raises
    ------
    SpecError
        The file is too large, is not UTF-8, or has a control character; the message has the line of the
        first bad byte, which libyaml does not give.
    """
    if len(raw) > MAX_BYTES:
        size, allowed = f"at least {len(raw)} bytes", f"at most {MAX_BYTES} bytes"
        raise refuse(name, 1, "size", size, allowed, "give a smaller file", LIMITED)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refuse(
            name,
            line,
            "encoding",
            raw[error.start : error.start + 8],
            "UTF-8 text",
            "save the file as UTF-8",
            "flopcast reads files in UTF-8 only",
        ) from None
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        because = "the file contains a control character, so it is probably not a text file"
        raise refuse(name, line, "character", bad.group(), "printable text", "use a text file", because)
    if text.lstrip()[:1] in ("{", "["):  # JSON writes characters beyond sixteen bits as two escapes
        text = _PAIR.sub(lambda pair: _joined(pair.group(1), pair.group(2)), text)
    return text


def _joined(high: str, low: str) -> str:
    """Return the character of a pair of surrogates (RFC 8259, section 7)."""
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + (int(low, 16) - 0xDC00))


class _Builder:
    """Builds plain data from events, without recursion.

    `_stack` holds the open containers with their paths, `_keys` the key that waits for its value in
    each of them (None in lists, and in mappings that await a key).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Path, int] = {}
        self.result: object = None
        self._stack: list[tuple[dict[str, object] | list[object], Path]] = []
        self._keys: list[str | None] = []
        self._documents = 0
        self._key_line = 1  # of the key that waits for its value
        self.repeated: list[Problem] = []  # the first key that is given twice; others may have its cause

    def take(self, event: yaml.Event) -> None:
        """Process one event of the parser, or raise an error for data that are not plain.

        Aliases and anchors are refused: a chain of them makes a small text huge ("a billion laughs").
        """
        line = event.start_mark.line + 1 if event.start_mark is not None else 1
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise refuse(
                    self.name, line, "document", "---", "one document", "keep only the first document"
                )
        elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            name = getattr(event, "anchor", None)
            is_alias = isinstance(event, yaml.AliasEvent)
            fix = f"replace *{name} by the value that it stands for" if is_alias else f"remove &{name}"
            raise refuse(self.name, line, "anchor", name, "plain data", fix)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._stack.pop()
            self._keys.pop()
        elif isinstance(event, yaml.NodeEvent):
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                raise refuse(self.name, line, "tag", tag, "plain data", "leave the tag out")
            self._node(event, line)

    def _node(self, event: yaml.NodeEvent, line: int) -> None:
        """Handle a scalar, or the beginning of a container: a key where a mapping expects one."""
        awaiting_key = bool(self._stack) and isinstance(self._stack[-1][0], dict)
        if awaiting_key and self._keys[-1] is None:
            self._key(event, line)
            return
        path = self._path()
        is_scalar = isinstance(event, yaml.ScalarEvent)
        self.lines[path] = self._key_line if awaiting_key and not is_scalar else line
        if isinstance(event, yaml.ScalarEvent):
            self._place(self._scalar(event, line))
            return
        container: dict[str, object] | list[object] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        if len(self._stack) >= MAX_DEPTH:
            depth, allowed = len(self._stack) + 1, f"at most {MAX_DEPTH} levels"
            raise refuse(self.name, line, "depth", depth, allowed, "remove some levels", LIMITED)
        self._place(container)
        self._stack.append((container, path))
        self._keys.append(None)

    def _key(self, event: yaml.NodeEvent, line: int) -> None:
        """Set a key; `1` and `"1"` are the same text, and the first repeated key is a problem."""
        if not isinstance(event, yaml.ScalarEvent):
            because = "the keys of a job are names of fields"
            fix = f"write one bracket in place of two in line {line}, or a word before the colon"
            raise refuse(self.name, line, "key", "a list or mapping", "a word", fix, because)
        if event.value.endswith(":") and event.implicit[0]:
            key, because = event.value.rstrip(":"), "two colons follow each other"
            fix, where = f"write one colon after {key}", f"{self.name}:{line}"
            raise spec_error(
                "text", None, "well-formed YAML or JSON", because, fix, where, "is not well-formed"
            )
        holder, path = self._stack[-1]
        if isinstance(holder, dict) and event.value in holder:
            first = self.lines.get((*path, event.value), line)
            because = f"line {first} already sets this key"
            one = f"line {first} or line {line}" if line != first else f"one {event.value} in line {line}"
            fix = f"keep only {one}, or rename the key that has the wrong name"
            if event.value == next(iter(holder)) and line > first + 1:
                fix = (
                    f"add the name of the section that begins with line {line} above it, or remove the line"
                )
            allowed, where = "each key once", f"{self.name}:{line}"
            twice = Problem(event.value, "given twice", allowed, because, fix, where, TWICE)
            self.repeated = self.repeated or [twice]
        self._keys[-1], self._key_line = event.value, line

    def _path(self) -> Path:
        if not self._stack:
            return ()
        holder, path = self._stack[-1]
        if isinstance(holder, list):
            return (*path, len(holder))
        return (*path, str(self._keys[-1]))

    def _place(self, value: object) -> None:
        """Put a value where `_path` said."""
        if not self._stack:
            self.result = value
            return
        holder, _ = self._stack[-1]
        if isinstance(holder, list):
            holder.append(value)
        else:
            holder[str(self._keys[-1])] = value
            self._keys[-1] = None

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> object:
        """Return the value of a plain scalar; anything quoted or in a block is text."""
        value = resolve(event.value) if event.implicit[0] else event.value
        if isinstance(value, float) and not math.isfinite(value):
            raise refuse(
                self.name, line, "number", event.value, "a finite number", "write a finite number", FINITE
            )
        return value


def resolve(text: str) -> object:
    """Return the value of a plain scalar: null, a truth value, a number, or the text itself.

    The rules are stricter than those of YAML 1.1: `no`, `on`, `12:30` and `2024-09` stay text, leading
    zeros make nothing octal, and nothing is read as not-a-number or infinity. A whole number of forty
    digits or more becomes a float.

    Examples
    --------
    >>> [resolve(text) for text in ("40_000_000", "1e-3", "~", "no", "12:30", "8 GB")]
    [40000000, 0.001, None, 'no', '12:30', '8 GB']
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text.replace("_", "")) if len(text) < 40 else float(text.replace("_", ""))
    if any(c.isdigit() for c in text) and _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def refuse(
    name: str, line: int, field: str, value: object, allowed: str, fix: str, because: str = PLAIN
) -> SpecError:
    """Return a fault of the syntax. Reading ends at the first fault, because the rest may be misread."""
    return spec_error(field, value, allowed, because, fix, where=f"{name}:{line}")
