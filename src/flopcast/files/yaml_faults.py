"""Errors in the syntax of YAML and JSON, in plain English.

Answers: what does a message of the YAML parser mean, where is the error, and how is the text mended?
Elsewhere: reading YAML (yaml_text.py).

The parser reports the first character that it cannot read. The error is often earlier, for example at the
end of the previous line, so every function in this module searches for the place to edit.
"""

import re
from collections.abc import Callable

import yaml

from flopcast.files.bracket_faults import (
    CLOSING,
    QUOTES,
    by_indentation,
    in_all,
    in_brackets,
    last_open,
    text_after_value,
    unopened,
    unopened_by,
    unopened_in,
)
from flopcast.files.syntax_places import Place, SyntaxFault
from flopcast.records import replace

NO_BLANK = re.compile(r"\s*(?:- )?([A-Za-z_][\w-]*):[^\s/]")  # a key whose colon has no blank after it
KEY_ALONE = re.compile(r"\s*(?:- )?[\"']?([A-Za-z_][\w-]*)[\"']?(?: ?= ?| +|$)((?:[^:]|:(?=\S))*?),?\s*")
BEFORE_BRACKET = re.compile(r"\s*(?:- )?([A-Za-z_][\w-]*)(?: *=? *|:)([{\[])")  # without ": "
HALF_QUOTED = re.compile(r"(?<![\w\"'])([\"']?)([A-Za-z_][^\"',:{}\[\]]*)([\"']?)(?=\s*(?:[,:}\]]|$))")
DOUBLED = re.compile(r"\w\"\"|\"\"\w|\w''|''\w")
PAIR = r"([A-Za-z_][\w-]*): ([^\s,:]+)"
PAIRS_IN_LINE = re.compile(rf"\s*(?:- )?([\w-]+): ({PAIR}(?:,? +{PAIR})+)\s*")  # of one key, without braces
SEVERAL_PAIRS = re.compile(rf"\s*(?:- )?{PAIR}(?:,? +{PAIR})+\s*")  # without braces
KEY_VALUE = "KEY: VALUE"


def syntax_fault(error: yaml.YAMLError, text: str) -> SyntaxFault:
    """Return where and why the parser cannot read a text, and the fix.

    >>> def fault(text):
    ...     try:
    ...         yaml.safe_load(text)
    ...     except yaml.YAMLError as error:
    ...         found = syntax_fault(error, text)
    ...         print(found.line, found.because, found.fix, sep="; ")
    >>> fault("plan: [1, 2")
    1; the list that begins with [ in line 1 has no ]; add ] at the end of line 1
    >>> fault('a: {b: 1}}')
    1; no bracket is open where } stands; remove } in line 1, column 10
    """
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark, start = (getattr(error, f"{name}_mark", None) for name in ("problem", "context"))
    place = Place(text, _offset(text, mark), _offset(text, start) if start is not None else -1)
    if text.lstrip()[:1] == "{" and (unclosed := _unclosed_quote(place)):
        return unclosed
    if in_all(text) and (misplaced := by_indentation(place)):
        return misplaced
    for part, reason in REASONS.items():
        if part in problem:
            return reason(place)
    fix = f"correct the text in line {place.line(place.at)}, column {place.column(place.at)}"
    return SyntaxFault(place.line(place.at), f"the YAML parser reports: {problem}", fix)


def _offset(text: str, mark: yaml.Mark | None) -> int:
    """Return the offset of a mark, whose own index counts bytes in some parsers."""
    if mark is None:
        return 0
    lines = text.split("\n")
    before = sum(len(line) + 1 for line in lines[: mark.line])
    return min(before + mark.column, len(text))


def _unclosed_quote(place: Place) -> SyntaxFault | None:
    """Return the fault of the first line of JSON with an odd number of quotation marks."""
    for number, line in enumerate(place.text.split("\n")[: place.line(place.at)], 1):
        if len(re.findall(r'(?<!\\)"', line)) % 2:
            if place.text.rstrip().endswith(line) and line[-1] not in "}],":
                return SyntaxFault(number, "the file ends inside a text", "copy the whole file again")
            return _odd_quotes(number, line, "the line has an odd number of quotation marks")
    return None


def _odd_quotes(number: int, line: str, because: str) -> SyntaxFault:
    """Return the fault of a line with an odd number of quotation marks; the fix names the quoted text."""
    if DOUBLED.search(line):
        because = f"line {number} has two quotation marks in a row"
        return SyntaxFault(number, because, f"remove one of the two quotation marks in line {number}")
    halves = [half for half in HALF_QUOTED.finditer(line) if half[1] != half[3]]
    if len(halves) == 1:
        half = halves[0]
        quote = '"' if half[1] and half[3] else half[1] or half[3]
        fix = f"write {quote}{half[2].strip()}{quote} in place of {half[0].strip()} in line {number}"
        return SyntaxFault(number, because, fix)
    return SyntaxFault(number, because, f"add the missing quotation mark in line {number}")


def _in_brackets(place: Place) -> SyntaxFault:
    """Return the fault of a list or mapping in brackets, or of a line if none is open."""
    return in_brackets(place) if place.text[place.start : place.start + 1] in CLOSING else _of_line(place)


def _of_line(place: Place) -> SyntaxFault:  # noqa: PLR0911 - a list of cases
    """Return the fault of a line that does not continue the mapping above it."""
    line, column = place.line(place.at), place.column(place.at)
    here = f"in line {line}, column {column}"
    if place.text.lstrip()[:1] == '"' and place.text.count("}") > place.text.count("{"):
        because = "the text of a JSON file is a mapping in brackets, and the first { is missing"
        return SyntaxFault(1, because, "add { at the beginning of the file")
    if place.character in (*CLOSING.values(), ","):
        return unopened(place)
    if place.text[place.at - 1 : place.at] in QUOTES or column - 1 > place.indent(place.at):
        return text_after_value(place, place.at)
    start = max(place.start, 0)
    above, blanks = place.line(start), place.column(start) - 1
    if place.character == "-" and place.text[place.at + 1 : place.at + 2] in (" ", "\n"):
        if entry := _like_entry_above(place):
            return entry
        because = f"an entry of a list follows the keys of the mapping that begins in line {above}"
        return SyntaxFault(line, because, f"remove the hyphen {here}, or write its key in the line above")
    if blanks == column - 1:
        return _without_colon(place, place.at)
    rows = [(len(row) - len(row.lstrip()), row) for row in place.text.split("\n")[:line]]
    if line > 2 and rows[-2][0] >= column > rows[-3][0] + 1 and rows[-3][1].rstrip().endswith(":"):
        because = f"line {line - 1} is indented with {_blanks(rows[-2][0])}, and the next line with fewer"
        return SyntaxFault(line - 1, because, _indent(line - 1, column - 1))
    because = f"the mapping of line {above} begins with {_blanks(blanks)}, but this line with "
    because += _blanks(column - 1)
    return SyntaxFault(line, because, _indent(line, blanks))


def _blanks(number: int) -> str:
    return {0: "no spaces", 1: "1 space"}.get(number, f"{number} spaces")


def _indent(line: int, blanks: int) -> str:
    return (
        f"indent line {line} with {_blanks(blanks)}" if blanks else f"remove the indentation of line {line}"
    )


def _second_colon(place: Place) -> SyntaxFault:  # noqa: PLR0911 - a list of cases
    """Return the fault of a colon after a value, or of a line that is indented below a value."""
    line = place.line(place.at)
    if glued := BEFORE_BRACKET.match(place.content(place.at)):
        because = f"no colon with a space stands between {glued[1]} and {glued[2]}"
        return SyntaxFault(line, because, f'write "{glued[1]}: {glued[2]}" in line {line}, with a colon')
    before = place.content(place.at)[: place.column(place.at) - 1]
    if place.at + 1 >= len(place.text) or (place.text[place.at + 1] == "\n" and ": " in before):
        because = f"the value in line {line} ends with a colon"
        return SyntaxFault(line, because, f"remove the colon at the end of line {line}")
    if ": " in before:
        if unopened_in(place.content(place.at)):
            return unopened_by(place, line)
        because = f"the line has a second colon, in column {place.column(place.at)}"
        if found := PAIRS_IN_LINE.fullmatch(place.content(place.at)):
            pairs = ", ".join(f"{key}: {value}" for key, value in re.findall(PAIR, found[2]))
            return SyntaxFault(line, because, f"write {found[1]}: {{{pairs}}} in line {line}")
        if SEVERAL_PAIRS.fullmatch(place.content(place.at)):
            because, fix = "the line has several keys", "write each key on a line of its own"
            return SyntaxFault(line, because, fix)
        return SyntaxFault(line, because, "put a value that contains a colon in quotes")
    above = place.end_before(place.text.rfind("\n", 0, place.at) + 1)
    if missing := NO_BLANK.match(place.content(above)):
        return _no_blank(place.line(above), missing[1])
    if place.indent(place.at) <= place.indent(above):
        return _without_colon(place, above - 1)
    if unopened_in(place.content(place.at)):
        return unopened_by(place, place.line(above))
    because = f"line {line} is indented below line {place.line(above)}, which already has a value"
    if place.content(above).rstrip().endswith(","):
        because = f"line {place.line(above)} ends with a comma, but no bracket is open"
        return SyntaxFault(place.line(above), because, f"add the missing {{ in line {place.line(above)}")
    return _below_value(place, above, because)


def _below_value(place: Place, above: int, because: str) -> SyntaxFault:
    """Return the fault where a line is indented more than the line above, which already has a value."""
    line = place.line(place.at)
    below = place.text.split("\n")[line:]
    own = place.indent(place.at)
    earlier = place.end_before(place.text.rfind("\n", 0, above) + 1)
    entries = [place.content(at).lstrip().startswith("- ") for at in (earlier, place.at)]
    alone = place.content(place.at).rstrip().endswith(":")
    if alone and below and len(below[0]) - len(below[0].lstrip()) <= own:
        return SyntaxFault(line, because, _indent(line, place.indent(above)))
    less = place.indent(above) < own == place.indent(earlier) and entries != [True, False]
    if less and place.line(earlier) < place.line(above):
        misplaced = place.line(above)
        because = f"line {misplaced} is less indented than the lines before and after it"
        fix = f"indent line {misplaced} with {_blanks(own)}, or remove it"
        if place.content(place.at).lstrip().startswith("- "):
            fix = f"remove line {misplaced}, or move it above or below the list"
        return SyntaxFault(misplaced, because, fix)
    last = line + next(
        (i for i, each in enumerate(below) if len(each) - len(each.lstrip()) < own), len(below)
    )
    fix = f"indent line {line} like the keys above it"
    if last > line:
        fix = (
            f"add the missing key above line {line}, or indent lines {line} to {last} like line {line - 1}"
        )
    return SyntaxFault(line, because, fix)


def _no_colon(place: Place) -> SyntaxFault:
    """Return the fault of a line without a colon after its key."""
    at = max(place.start, 0)
    if missing := NO_BLANK.match(place.content(at)):
        return _no_blank(place.line(at), missing[1])
    return _without_colon(place, at)


def _without_colon(place: Place, at: int) -> SyntaxFault:
    """Return the fault of a line that is a key and a value without a colon: "dp = 16", "groups"."""
    line, because = place.line(at), f"line {place.line(at)} has no colon after its key"
    words, first = KEY_ALONE.fullmatch(place.content(at)), place.content(at).lstrip()[:1]
    if first in CLOSING:
        because = f"line {line} has neither a key nor the hyphen of an entry"
        return SyntaxFault(line, because, f'begin line {line} with a hyphen: "- {first}"')
    if words is None:
        return SyntaxFault(line, because, f"write {KEY_VALUE} in line {line}")
    return SyntaxFault(line, because, f'write "{f"{words[1]}: {words[2]}".rstrip()}" in line {line}')


def _like_entry_above(place: Place) -> SyntaxFault | None:
    """Return the fault of an entry of a list that is indented unlike the entry above it; None otherwise."""
    rows, line = place.text.split("\n"), place.line(place.at)
    own = place.indent(place.at)
    above = next((i for i in range(line - 1, 0, -1) if rows[i - 1].lstrip().startswith("- ")), 0)
    blanks = len(rows[above - 1]) - len(rows[above - 1].lstrip())
    if not above or blanks == own or not rows[line - 1].lstrip().startswith("- "):
        return None
    because = (
        f"line {line} is indented with {_blanks(own)}, but the entry in line {above} is indented "
        f"with {_blanks(blanks)}"
    )
    return SyntaxFault(line, because, _indent(line, blanks))


def _no_blank(line: int, key: str) -> SyntaxFault:
    return SyntaxFault(
        line, f"no space follows the colon after {key}", f'write "{key}: " with a space in line {line}'
    )


def _character(place: Place) -> SyntaxFault:
    """Return the fault of a character with which nothing begins: a tab, or one that YAML reserves."""
    line, at = place.line(place.at), place.column(place.at)
    if "\t" in place.content(place.at)[: max(at, place.indent(place.at))]:
        because = "the line is indented with a tab, and YAML allows only spaces"
        above = place.content(place.end_before(place.text.rfind("\n", 0, place.at) + 1))
        blanks = len(above) - len(above.lstrip()) + 2 * above.rstrip().endswith(":")
        if re.match(r"\s*- [\[{]", above):  # a whole entry: the line is no part of it
            rows = [row for row in place.text.split("\n")[: line - 1] if row.strip()]
            blanks = next(less for row in rows[::-1] if (less := len(row) - len(row.lstrip())) < blanks)
        return SyntaxFault(line, because, _indent(line, blanks))
    because = f"a value cannot begin with {place.character} (column {at})"
    return SyntaxFault(line, because, f"put the value in line {line} in quotes")


def _open_quote(place: Place) -> SyntaxFault:
    line = place.line(max(place.start, 0))
    because = f"the text in quotes that begins in column {place.column(max(place.start, 0))} does not end"
    return _odd_quotes(line, place.content(max(place.start, 0)), because)


def _no_hyphen(place: Place) -> SyntaxFault:
    """Return the fault of a line that ends a list without being less indented."""
    line, above = place.line(place.at), place.line(max(place.start, 0))
    if entry := _like_entry_above(place):
        return entry
    because = (
        f"line {above} begins a list with a hyphen, and line {line} has the same indentation without one"
    )
    return SyntaxFault(line, because, f"remove the hyphen in line {above}, or begin line {line} with one")


def _list_in_line(place: Place) -> SyntaxFault:
    line = place.line(place.at)
    because = f"a hyphen stands after a key or a value (column {place.column(place.at)})"
    return SyntaxFault(line, because, f"remove the hyphen in line {line}, or write a list as [A, B]")


def _no_value(place: Place) -> SyntaxFault:
    line, opening = place.line(place.at), last_open(place.text)
    if not place.text[place.at :].strip() and opening >= 0:
        return _in_brackets(replace(place, start=opening))
    here = f"in line {line}, column {place.column(place.at)}"
    if place.character in (",", ":") and place.text[: place.at].rstrip().endswith(place.character):
        because = f"two {'commas' if place.character == ',' else 'colons'} follow each other"
        return SyntaxFault(line, because, f"remove {place.character} {here}")
    because = f"a value is missing before {place.character or 'the end'}"
    return SyntaxFault(line, because, f"add the value before {place.character or 'the end'} {here}")


def _second_document(place: Place) -> SyntaxFault:
    """Return the fault of text after the end of the document, mostly because of a bracket too many."""
    end = place.end_before(place.at)
    last = place.text[end - 1 : end]
    if not place.text[place.at :].strip("]}, \t\r\n"):
        because = f"no bracket is open where {place.character} stands"
        return SyntaxFault(
            place.line(place.at), because, f"remove {place.character} {place.named(place.at)}"
        )
    first = re.search(r"^(?!\s*(?:#|---|$)).+$", place.text, re.M)
    if first and place.indent(first.start()) > place.indent(place.at):
        begin, line = place.line(first.start()), place.line(place.at)
        blanks = _blanks(place.indent(first.start()))
        because = f"line {begin} is indented with {blanks}, but line {line} is indented with fewer"
        lines = f"lines {begin} to {line - 1}"
        fix = f"add the missing key above line {begin}, or remove the indentation of {lines}"
        if line == begin + 1:
            fix = f"remove the indentation of line {begin}"
        return SyntaxFault(begin, because, fix)
    if last in CLOSING.values():
        where = f"line {place.line(end)}, column {place.column(end - 1)}"
        because = f"the {last} in {where} ends the file's content, but text follows it"
        return SyntaxFault(place.line(end), because, f"remove this {last}, or remove the text after it")
    where = f"line {place.line(place.at)}, column {place.column(place.at)}"
    because = f"the content of the file ends before {where}, but text follows it"
    return SyntaxFault(place.line(place.at), because, f"write each line as {KEY_VALUE}")


def _escape(place: Place) -> SyntaxFault:
    because = "a text in double quotes contains a backslash before a character that needs none"
    return SyntaxFault(place.line(place.at), because, "write two backslashes, or use single quotes")


REASONS: dict[str, Callable[[Place], SyntaxFault]] = {  # a part of the parser's message → its reason
    "',' or ']'": _in_brackets,
    "',' or '}'": _in_brackets,
    "expected key": _of_line,
    "<block end>": _of_line,
    "mapping values are not allowed": _second_colon,
    "expected ':'": _no_colon,
    "cannot start any token": _character,
    "tab character": _character,
    "unexpected end of stream": _open_quote,
    "'-' indicator": _no_hyphen,
    "block sequence entries": _list_in_line,
    "node content": _no_value,
    "<document start>": _second_document,
    "escape": _escape,
}
