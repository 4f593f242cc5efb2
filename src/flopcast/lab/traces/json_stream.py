"""Reader of JSON that is too long for memory: it yields the values of the outermost object one at a time.

Answers: which values, and which events in `traceEvents`, does this file hold?
Elsewhere: the meaning of the events (kineto.py).

A text arrives in chunks. Each value is decoded as soon as it is complete, and then dropped, so that
memory holds only one chunk and one value. Both forms of trace files are read: an object with a list
`traceEvents`, and the list alone (Trace Event Format, "JSON Object Format" and "JSON Array Format").
Bytes that are not UTF-8 become a replacement character, and control characters inside texts are allowed,
because profilers write both.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from flopcast.errors import Problem, SpecError
from flopcast.files.unpacked import unpacked

CHUNK_BYTES = 1 << 20
MOST_BYTES = 1 << 34
MOST_VALUE_CHARACTERS = 1 << 25  # of one value: no event is nearly as long
LONGEST_WORD = 8  # what a cut word or escape leaves behind: tru, \\u00
EVENTS = "traceEvents"
_DECODER = json.JSONDecoder(strict=False)
_BLANK = re.compile(r"[\s,]*")


def read_text(path: Path, chunk_bytes: int = CHUNK_BYTES) -> Iterator[str]:
    """Yield the text of a file, plain or gzipped, in chunks.

    Raises
    ------
    SpecError
        It is not a regular file, cannot be read, is damaged, or has more than MOST_BYTES.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    try:
        with unpacked(path, MOST_BYTES) as file:
            while chunk := file.read(chunk_bytes):
                yield decoder.decode(chunk)
    except OSError as error:
        fix = "check the path, or write the trace again"
        raise SpecError([fault(str(path), str(error), fix)]) from None


def values(chunks: Iterable[str], name: str) -> Iterator[tuple[str, object]]:
    """Yield the keys and values of the outermost object, with the events of `traceEvents` one by one.

    Parameters
    ----------
    chunks : parts of one JSON text, cut at any place
    name : the file's name in faults

    Yields
    ------
    (key, value)
        Events have the key `traceEvents`, and so do the elements of a list without an object.

    Raises
    ------
    SpecError
        It is empty, is not JSON, is neither an object nor a list, or is incomplete. All complete values
        before the fault are yielded.

    Examples
    --------
    >>> list(values(['{"traceEvents": [{"a": 1}, {"a', '": 2}], "rank": 3}'], "short"))
    [('traceEvents', {'a': 1}), ('traceEvents', {'a': 2}), ('rank', 3)]
    """
    text = _Text(chunks, name)
    opened = text.next_character()
    if opened == "[":
        yield from _elements(text)
    elif opened == "{":
        yield from _members(text)
    else:
        because = (
            f"the file begins with {opened!r}, but JSON begins with {{ or ["
            if opened
            else "the file is empty"
        )
        raise SpecError([fault(name, because, "give the file that the profiler exported", text.line())])


def fault(value: str, because: str, fix: str, where: str = "") -> Problem:
    """Return a fault of the whole file, or of the line that `where` names."""
    allowed = "a Chrome trace (JSON, plain or .gz), as torch.profiler exports it"
    return Problem("trace", value, allowed, because, fix, where=where)


def _members(text: "_Text") -> Iterator[tuple[str, object]]:
    """Yield the members of an object after its brace, and those of its list of events."""
    text.take()
    while text.next_character() != "}":
        key = text.value()
        if text.next_character() != ":":
            raise SpecError([text.broken("a key without a value")])
        text.take()
        if key == EVENTS and text.next_character() == "[":
            yield from _elements(text)
        else:
            yield str(key), text.value()
    text.take()


def _elements(text: "_Text") -> Iterator[tuple[str, object]]:
    text.take()
    while text.next_character() != "]":
        yield EVENTS, text.value()
    text.take()


class _Text:
    """The part of the text that was read and not yet used, which is the only mutable state."""

    def __init__(self, chunks: Iterable[str], name: str) -> None:
        self.chunks, self.name = iter(chunks), name
        self.held, self.at, self.passed, self.ended = "", 0, 0, False
        self.passed_lines = 0

    def grow(self) -> bool:
        """Read one more chunk, or as much as memory already holds if this is more; return False at the
        end of the text.

        Doubling the text prevents a value of many chunks from being decoded again after each chunk.
        """
        self.passed += self.at
        self.passed_lines += self.held.count("\n", 0, self.at)
        parts, self.at = [self.held[self.at :]], 0
        missing = max(1, len(parts[0]))
        while missing > 0 and not self.ended:
            chunk = next(self.chunks, None)
            self.ended = chunk is None
            parts.append(chunk or "")
            missing -= len(parts[-1])
        self.held = "".join(parts)
        return len(self.held) > len(parts[0])

    def next_character(self) -> str:
        """Return the next character that is not a blank or a comma, without consuming it; "" at the end."""
        while True:
            match = _BLANK.match(self.held, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.held):
                return self.held[self.at]
            if not self.grow():
                if self.passed + len(self.held.strip()):
                    raise SpecError([self.cut()])
                return ""

    def take(self) -> None:
        """Consume the character that was returned last."""
        self.at += 1

    def value(self) -> object:
        """Return the next complete value.

        A value that ends with the chunk may continue in the next one (12 may become 123), so it is
        decoded again after more text was read.

        Raises
        ------
        SpecError
            The text is not JSON, is cut off, or has a value that is too long or nested too deeply.
        """
        while True:
            self.next_character()
            why, wrong_at = "a value of too many characters", len(self.held)
            try:
                value, end = _DECODER.raw_decode(self.held, self.at)
                if end < len(self.held):
                    self.at = end
                    return value
            except json.JSONDecodeError as error:
                why, wrong_at = error.msg, error.pos
            except RecursionError:
                raise SpecError([self.broken("values nested too deeply")]) from None
            if len(self.held) - self.at > MOST_VALUE_CHARACTERS:
                raise SpecError([self.broken(why)])
            open_text, at_end = why.startswith("Unterminated"), wrong_at > len(self.held) - LONGEST_WORD
            if not self.grow():
                raise SpecError([self.cut() if open_text or at_end else self.broken(why)])

    def cut(self) -> Problem:
        """Return the fault of a text that ends too early, for example of a job killed while writing."""
        because = (
            f"the file ends after {self.passed + len(self.held)} characters without its closing bracket"
        )
        return fault(
            self.name,
            because,
            "export the trace again: the program stopped before it had written the whole file",
            self._line(len(self.held)),
        )

    def broken(self, why: str) -> Problem:
        """Return the fault of a text that is not JSON, with its place."""
        because = f"the file is not valid JSON near character {self.passed + self.at}: {why}"
        return fault(
            self.name, because, "export the trace again, or correct that place", self._line(self.at)
        )

    def line(self) -> str:
        """Return the file and line of the next character."""
        return self._line(self.at)

    def _line(self, at: int) -> str:
        """Return the file and line of a position in the chunk."""
        return f"{self.name}:{self.passed_lines + self.held.count(chr(10), 0, at) + 1}"
